//! Filling a map that was made with room for all: every insert from empty to full, and the last ones alone, when a table is
//! nearly full and an insert costs the most.

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::Contender,
    phase::{Phase, Work},
    play::BATCH,
    subject::Subject,
};
use crate::crew::Rate;
use crate::in_process::threads;

pub(super) const NAME: &str = "inserts";

/// From here on an insert counts as one of the last, percent.
const NEARLY_FULL_PERCENT: u64 = 90;

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "new 8 B keys with 8 B values into a map that was made with room for {}, until {FULL_PERCENT} % of that are in; one at a \
         time; batched: {BATCH} a call where a map takes several, one at a time where it does not; the clock stops when the slowest thread is done",
        bench.room
    );
    let mut report = ExperimentReport::new(NAME, "Inserts into a map with room", words).over("threads");
    bench.alternate(bench.run.rounds, |contender| {
        for count in bench.thread_counts(contender) {
            let one_by_one = fill(bench, contender, count, false)?;
            one_by_one.record(&mut report, contender.name, "", count);
            if bench.any_has_batches() {
                let batched = if contender.has_batches { fill(bench, contender, count, true)? } else { one_by_one };
                batched.record(&mut report, contender.name, " batched", count);
            }
        }
        Ok(())
    })?;
    Ok(report)
}

fn fill(bench: &MapBench, contender: &Contender, count: usize, batched: bool) -> Result<Filled, BenchError> {
    let mut map = contender.open(bench, Some(bench.room as usize), 8)?;
    Filled::of(&mut *map, bench.room, bench.cores(count), batched)
}

/// The speed of all inserts into a map, and of the last.
#[derive(Clone, Copy)]
pub(super) struct Filled {
    pub all: Rate,
    pub last: Rate,
}

impl Filled {
    /// Fills a map that was made with so much room.
    pub fn of(map: &mut dyn Subject, room: u64, cores: &[usize], batched: bool) -> Result<Self, BenchError> {
        let mut fill = |from: u64, to: u64| {
            let numbers = room * from / 100..room * to / 100;
            map.rate(&Phase { batched, ..Phase::new(Work::Fill, numbers, cores) })
        };
        let (most, last) = (fill(0, NEARLY_FULL_PERCENT)?, fill(NEARLY_FULL_PERCENT, FULL_PERCENT)?);
        let (most_share, last_share) = (NEARLY_FULL_PERCENT as f64, (FULL_PERCENT - NEARLY_FULL_PERCENT) as f64);
        let whole = |most: f64, last: f64| (most_share + last_share) / (most_share / most + last_share / last);
        let all = Rate { per_s: whole(most.per_s, last.per_s), per_cpu_s: whole(most.per_cpu_s, last.per_cpu_s) };
        Ok(Self { all, last })
    }

    /// Adds both; `how` says what was special.
    pub fn record(self, report: &mut ExperimentReport, name: &str, how: &str, count: usize) {
        let threads = threads(count);
        record(report, &format!("0 to {FULL_PERCENT} %{how}, {threads}"), name, self.all);
        record(report, &format!("{NEARLY_FULL_PERCENT} to {FULL_PERCENT} %{how}, {threads}"), name, self.last);
    }
}
