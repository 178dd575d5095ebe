//! Filling a map that was made with room for all: every insert from empty to full, and the last ones alone, when a table is
//! nearly full and an insert costs the most.

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::Contender,
    phase::{Phase, Work},
    play::BATCH,
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
            record_fill(&mut report, contender, "", count, one_by_one);
            if bench.any_has_batches() {
                let batched = if contender.has_batches { fill(bench, contender, count, true)? } else { one_by_one };
                record_fill(&mut report, contender, " batched", count, batched);
            }
        }
        Ok(())
    })?;
    Ok(report)
}

/// The speed of all inserts, and of the last.
fn fill(bench: &MapBench, contender: &Contender, count: usize, batched: bool) -> Result<(Rate, Rate), BenchError> {
    let mut map = contender.open(bench, Some(bench.room as usize), 8)?;
    let mut fill = |from: u64, to: u64| {
        let numbers = bench.keys_at(from)..bench.keys_at(to);
        map.rate(&Phase { batched, ..Phase::new(Work::Fill, numbers, bench.cores(count)) })
    };
    let (most, last) = (fill(0, NEARLY_FULL_PERCENT)?, fill(NEARLY_FULL_PERCENT, FULL_PERCENT)?);
    let (most_share, last_share) = (NEARLY_FULL_PERCENT as f64, (FULL_PERCENT - NEARLY_FULL_PERCENT) as f64);
    let whole = |most: f64, last: f64| (most_share + last_share) / (most_share / most + last_share / last);
    let all = Rate { per_s: whole(most.per_s, last.per_s), per_cpu_s: whole(most.per_cpu_s, last.per_cpu_s) };
    Ok((all, last))
}

fn record_fill(
    report: &mut ExperimentReport,
    contender: &Contender,
    how: &str,
    count: usize,
    (all, last): (Rate, Rate),
) {
    let threads = threads(count);
    record(report, &format!("0 to {FULL_PERCENT} %{how}, {threads}"), contender.name, all);
    record(report, &format!("{NEARLY_FULL_PERCENT} to {FULL_PERCENT} %{how}, {threads}"), contender.name, last);
}
