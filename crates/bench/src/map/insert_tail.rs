//! How long an insert takes while a map grows from nothing: the time of each, as percentiles.

use super::{
    BenchError, ExperimentReport,
    bench::MapBench,
    metric,
    phase::{Outcome, Phase, Work},
    subject::unexpected,
};
use crate::in_process::threads;

pub(super) const NAME: &str = "insert-tail";

const METRICS: [metric::Metric; 4] = [metric::P50, metric::P99, metric::P9999, metric::LONGEST];

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{} new 8 B keys with 8 B values into an empty map that was made without room for them; the time of each insert, one \
         at a time, a look at the clock included (some 25 ns)",
        bench.room
    );
    let mut report = ExperimentReport::new(NAME, "How long an insert takes while the map grows", words).over("threads");
    bench.alternate(bench.run.rounds, |contender| {
        for count in bench.thread_counts(contender) {
            let mut map = contender.open(bench, None, 8)?;
            let phase = Phase::new(Work::TimedFill, 0..bench.room, bench.cores(count));
            let outcome = map.play(&phase)?;
            let Outcome::Latencies(latencies_ns) = outcome else { return Err(unexpected(&phase, &outcome)) };
            for (metric, latency_ns) in METRICS.into_iter().zip(latencies_ns) {
                report.record(&threads(count), contender.name, metric, latency_ns as f64 / 1e3);
            }
        }
        Ok(())
    })?;
    report.notes.push("the longest includes what the operating system takes from a thread".into());
    Ok(report)
}
