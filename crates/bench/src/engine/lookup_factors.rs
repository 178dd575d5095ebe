//! Figure 5: what each step from memcached's index to the paper's, and to Guira's, does for lookups.

use std::sync::Arc;

use guira_bench_memory::Pages;

use super::{
    BenchError, ExperimentReport, crew,
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

pub(super) const NAME: &str = "lookup-factors";

/// Lookups between two looks at the clock.
const TURN: usize = 256;

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let slots: usize = bench.extent.scaled(1 << 21, 1 << 13);
    let keys = slots * 9 / 10;
    let words = format!(
        "lookups of random 16 B keys, one at a time; {keys} items of a cache line each; chaining: {} buckets; cuckoo: 4-way, \
         {slots} slots; each row adds to the one before; found: every key is there, absent: none is",
        slots / 2
    );
    let mut report = ExperimentReport::new(NAME, "Lookups, factor by factor (MemC3's Figure 5)", words);
    let counts: &[usize] = if bench.cores.len() == 1 { &[1] } else { &[1, bench.cores.len()] };
    for count in counts {
        let contenders = steps(keys, slots, *count).map_err(no_memory)?;
        for (name, index) in &contenders {
            for item in 0..keys as u32 {
                index.insert(item).map_err(|_| BenchError::Invalid(format!("{NAME}: {name} is full")))?;
            }
        }
        for _ in 0..bench.rounds {
            for (what, first) in [("found", 0), ("absent", keys)] {
                let variant = format!("{what}, {}", threads(*count));
                for (name, index) in &contenders {
                    let rate = measure(bench, &**index, first, keys, *count)?;
                    report.record(&variant, name, metric::OPERATIONS, rate.per_s);
                    report.record(&variant, name, metric::PER_CPU, rate.per_cpu_s);
                }
            }
        }
    }
    report.notes.push("with one thread the peers use no lock at all; guira always checks its versions".into());
    report.notes.push("guira: 12-way, 4-byte payloads, SIMD tag match, striped versions, any number of writers".into());
    Ok(report)
}

type Step = (&'static str, Box<dyn PointerIndex>);

/// The contenders, each with items of its own, since chains run through them.
fn steps(keys: usize, slots: usize, threads: usize) -> std::io::Result<Vec<Step>> {
    use Compare::{Bytes, Words};
    use Pages::{Huge, Small};
    let locked = |locking| if threads == 1 { Locking::None } else { locking };
    let chaining = |pages, compare, locking| -> std::io::Result<Box<dyn PointerIndex>> {
        let records = Arc::new(Records::new(keys, pages)?);
        Ok(Box::new(Chaining::new(records, slots / 2, pages, compare, locked(locking))?))
    };
    let records = Arc::new(Records::new(keys, Huge)?);
    let cuckoo = |uses_tags, locking| -> std::io::Result<Box<dyn PointerIndex>> {
        Ok(Box::new(SharedCuckoo::new(Arc::clone(&records), slots / WAYS, Huge, uses_tags, locked(locking))?))
    };
    let mut steps = vec![
        ("chaining", chaining(Small, Bytes, Locking::Global)?),
        ("+huge pages", chaining(Huge, Bytes, Locking::Global)?),
        ("+word compare", chaining(Huge, Words, Locking::Global)?),
    ];
    if threads > 1 {
        steps.push(("+bucket locks", chaining(Huge, Words, Locking::Bucket)?));
    }
    steps.push(("cuckoo", cuckoo(false, Locking::Bucket)?));
    steps.push(("+tags", cuckoo(true, Locking::Bucket)?));
    if threads > 1 {
        steps.push(("+optimistic", cuckoo(true, Locking::Optimistic)?));
    }
    steps.push(("guira", Box::new(GuiraIndex::new(Arc::clone(&records), keys, Huge)?)));
    Ok(steps)
}

/// Random lookups among `keys` keys from number `first`.
fn measure(
    bench: &Bench,
    index: &dyn PointerIndex,
    first: usize,
    keys: usize,
    threads: usize,
) -> Result<crew::Rate, BenchError> {
    let worker = |thread: usize| {
        let mut draw = Draw::new(thread as u64);
        move || {
            let numbers: [u32; TURN] = std::array::from_fn(|_| (first + draw.below(keys)) as u32);
            std::hint::black_box(index.count(&numbers));
            TURN as u64
        }
    };
    crew::run(&bench.cores, bench.measure, (0..threads).map(worker).collect())
}
