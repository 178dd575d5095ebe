//! Figure 6: throughput of an index over threads, read-only and with writes; and the measurement that Figure 7 shares.

use std::sync::Arc;

use guira_bench_memory::Pages;

use super::{
    BenchError, ExperimentReport,
    crew::{self, Rate},
    in_process::{Bench, no_memory, threads},
    metric,
};
use crate::peers::{
    Locking, PointerIndex,
    chaining::Chaining,
    guira_index::GuiraIndex,
    key::Draw,
    random_walk::WAYS,
    records::{Compare, Records},
    shared_cuckoo::SharedCuckoo,
};

pub(super) const NAME: &str = "index-threads";

/// Shares of writes, in percent.
const WRITE_PERCENTS: [u32; 3] = [0, 5, 10];

/// Operations between two looks at the clock.
const TURN: usize = 256;

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let contenders = Contenders::new(bench)?;
    let words = format!("{}; threads pinned to cores", contenders.workload());
    let mut report =
        ExperimentReport::new(NAME, "Index throughput over threads (MemC3's Figure 6)", words).over("threads");
    for _ in 0..bench.rounds {
        for percent in WRITE_PERCENTS {
            for count in bench.thread_counts() {
                let variant = if percent == 0 { "read-only".to_string() } else { format!("{percent} % writes") };
                let variant = format!("{variant}, {}", threads(count));
                for (name, index) in &contenders.all {
                    let rate = contenders.measure(bench, &**index, percent, count)?;
                    report.record(&variant, name, metric::OPERATIONS, rate.per_s);
                    report.record(&variant, name, metric::PER_CPU, rate.per_cpu_s);
                }
            }
        }
    }
    Ok(report)
}

/// Filled indexes, and keys that come and go.
pub(super) struct Contenders {
    pub all: Vec<(&'static str, Box<dyn PointerIndex>)>,
    /// Items that stay.
    stable: usize,
    /// Items that each thread inserts and removes.
    moving: usize,
}

impl Contenders {
    pub fn new(bench: &Bench) -> Result<Self, BenchError> {
        let slots: usize = bench.extent.scaled(1 << 21, 1 << 13);
        let stable = slots * 85 / 100;
        let moving = slots * 5 / 100 / bench.cores.len();
        let all = Self::all(slots, stable + moving * bench.cores.len()).map_err(no_memory)?;
        for (name, index) in &all {
            for item in 0..stable as u32 {
                index.insert(item).map_err(|_| BenchError::Invalid(format!("{NAME}: {name} is full")))?;
            }
        }
        Ok(Self { all, stable, moving })
    }

    fn all(slots: usize, keys: usize) -> std::io::Result<Vec<(&'static str, Box<dyn PointerIndex>)>> {
        let chaining = |pages, compare, locking| -> std::io::Result<Box<dyn PointerIndex>> {
            let records = Arc::new(Records::new(keys, pages)?);
            Ok(Box::new(Chaining::new(records, slots / 2, pages, compare, locking)?))
        };
        let records = Arc::new(Records::new(keys, Pages::Huge)?);
        let cuckoo = SharedCuckoo::new(Arc::clone(&records), slots / WAYS, Pages::Huge, true, Locking::Optimistic)?;
        Ok(vec![
            ("chaining, one lock", chaining(Pages::Small, Compare::Bytes, Locking::Global)?),
            ("chaining, bucket locks", chaining(Pages::Huge, Compare::Words, Locking::Bucket)?),
            ("cuckoo, optimistic", Box::new(cuckoo)),
            ("guira", Box::new(GuiraIndex::new(records, keys, Pages::Huge)?)),
        ])
    }

    /// In words, for the report.
    pub fn workload(&self) -> String {
        format!(
            "lookups of random 16 B keys among {}, all there, index 85 to 90 % full; writes remove a key \
             and insert another, in turn, each counted; one operation at a time",
            self.stable
        )
    }

    /// `percent` of the operations are writes.
    pub fn measure(
        &self,
        bench: &Bench,
        index: &dyn PointerIndex,
        percent: u32,
        threads: usize,
    ) -> Result<Rate, BenchError> {
        let worker = |thread: usize| {
            let mut draw = Draw::new(thread as u64);
            let mut writer = Writer::new(index, self.stable + thread * self.moving, self.moving);
            // Whole turns of lookups through one call, with the writes that belong to them between.
            let writes = TURN * percent as usize / 100;
            let mut numbers = vec![0; (TURN - writes) / (writes + 1)];
            move || {
                let mut operations = 0;
                for turn in 0..=writes {
                    numbers.fill_with(|| draw.below(self.stable) as u32);
                    std::hint::black_box(index.count(&numbers));
                    operations += numbers.len() as u64;
                    if turn < writes {
                        writer.write();
                        operations += 1;
                    }
                }
                operations
            }
        };
        crew::run(&bench.cores, bench.measure, (0..threads).map(worker).collect())
    }
}

/// Removes the oldest of its items and inserts another, in turn, half of them being there; all are gone when it is dropped.
struct Writer<'a> {
    index: &'a dyn PointerIndex,
    first: usize,
    span: usize,
    inserted: usize,
    removed: usize,
}

impl<'a> Writer<'a> {
    fn new(index: &'a dyn PointerIndex, first: usize, span: usize) -> Self {
        let mut writer = Self { index, first, span, inserted: 0, removed: 0 };
        (0..span / 2).for_each(|_| writer.insert());
        writer
    }

    fn item(&self, at: usize) -> u32 {
        (self.first + at % self.span) as u32
    }

    #[inline]
    fn insert(&mut self) {
        self.index.insert(self.item(self.inserted)).expect("the index has room for every item at once");
        self.inserted += 1;
    }

    #[inline]
    fn write(&mut self) {
        if self.inserted - self.removed < self.span / 2 {
            return self.insert();
        }
        self.index.remove(self.item(self.removed));
        self.removed += 1;
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        for at in self.removed..self.inserted {
            self.index.remove(self.item(at));
        }
    }
}
