//! Figure 4: what an insert costs, in displacements and in time, the fuller the table is.

use guira_bench_memory::{HeapSegments, Pages};
use guira_cuckoo::{BUCKET_SLOTS, Index, Probe, SEGMENT_SLOTS};

use super::{
    BenchError, ExperimentReport,
    crew::cpu_time,
    in_process::{Bench, no_memory},
    metric,
};
use crate::peers::{guira_index, key::mix, paper_cuckoo::PaperCuckoo, random_walk::WAYS};

pub(super) const NAME: &str = "insert-cost";

/// Occupancies at which the cost is taken, in percent of the slots; the cost is that of the last percent before.
const PERCENTS: [usize; 10] = [10, 30, 50, 60, 70, 80, 85, 90, 92, 94];

/// Inserts one key after the other; says how many had to move.
trait Filling {
    fn insert(&mut self, number: u64) -> usize;
    /// Slots in all.
    fn slots(&self) -> usize;
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let slots: usize = bench.extent.scaled(1 << 22, 1 << 15);
    let words = format!(
        "unique keys into a table of {slots} slots, one thread, timed by its CPU time; the cost of the last percent of inserts before an occupancy"
    );
    let mut report = ExperimentReport::new(NAME, "Cost of an insert over occupancy (MemC3's Figure 4)", words)
        .over("occupancy (% of slots)");
    let segments = slots.div_ceil(SEGMENT_SLOTS);
    for _ in 0..bench.rounds {
        for (name, paths) in [("1 path", 1), ("2 paths", 2), ("3 paths", 3)] {
            fill(&mut report, name, &mut PaperCuckoo::new(slots / WAYS, paths), true, true);
        }
        let index = || guira_index::empty(segments, Pages::Small).map_err(no_memory);
        fill(&mut report, "guira", &mut Plain(index()?), true, false);
        fill(&mut report, "guira", &mut Counting(index()?), false, true);
    }
    report.notes.push(
        "guira's displacements are counted in a second filling, outside the clock; its bucket has 12 slots".into(),
    );
    report.publish("95 %", "1 path", metric::INSERT_NS, 1300.0);
    report.publish("95 %", "2 paths", metric::INSERT_NS, 840.0);
    Ok(report)
}

fn fill(report: &mut ExperimentReport, name: &str, table: &mut impl Filling, time: bool, count: bool) {
    let mut number = 0;
    let mut insert_to = |percent: usize, table: &mut dyn FnMut(u64)| {
        let begin = number;
        while number < percent {
            table(number as u64);
            number += 1;
        }
        number - begin
    };
    for percent in PERCENTS {
        let slots = table.slots();
        insert_to(slots * (percent - 1) / 100, &mut |number| {
            table.insert(number);
        });
        let (begin, mut moved) = (cpu_time(), 0);
        let inserted = insert_to(slots * percent / 100, &mut |number| moved += table.insert(number));
        let elapsed_ns = (cpu_time() - begin).as_nanos() as f64;
        let variant = format!("{percent} %");
        if time {
            report.record(&variant, name, metric::INSERT_NS, elapsed_ns / inserted as f64);
        }
        if count {
            report.record(&variant, name, metric::DISPLACEMENTS, moved as f64 / inserted as f64);
        }
    }
}

impl Filling for PaperCuckoo {
    fn insert(&mut self, number: u64) -> usize {
        PaperCuckoo::insert(self, mix(number), number + 1).expect("the table is not full")
    }

    fn slots(&self) -> usize {
        PaperCuckoo::slots(self)
    }
}

/// Guira's index, timed.
struct Plain(Index<HeapSegments>);

impl Filling for Plain {
    fn insert(&mut self, number: u64) -> usize {
        guira_index::insert(&self.0, &Probe::new(mix(number)), number as u32).expect("the index is not full");
        0
    }

    fn slots(&self) -> usize {
        self.0.capacity()
    }
}

/// Guira's index, its displacements worked out before each insert: the search is breadth first and at most two deep, so if
/// neither bucket has a free slot, one key moves if any key there has a free slot in its other bucket, and else two do.
struct Counting(Index<HeapSegments>);

impl Counting {
    fn keys_beside(&self, number: u64) -> Vec<u32> {
        self.0.lock(&Probe::new(mix(number))).neighbours().collect()
    }
}

impl Filling for Counting {
    fn insert(&mut self, number: u64) -> usize {
        let full = 2 * BUCKET_SLOTS;
        let beside = self.keys_beside(number);
        let has_room = |key: &u32| self.keys_beside(u64::from(*key)).len() < full;
        let moves = match beside.len() < full {
            true => 0,
            false if beside.iter().any(has_room) => 1,
            false => 2,
        };
        guira_index::insert(&self.0, &Probe::new(mix(number)), number as u32).expect("the index is not full");
        moves
    }

    fn slots(&self) -> usize {
        self.0.capacity()
    }
}
