//! The main claim: small items, zipf 0.99, 95 % GET in multigets of 100 (MemC3, section 5.4, batched as there).

use guira_loadgen::pacing::Pacing;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, ROOMY_MIB};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "multiget";
const CLIENTS: usize = 8;
/// Turns in flight a client: enough that the server always finds work when it comes back to a connection.
const DEPTH: u32 = 8;

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = Workload::small_items(bench.scaled(1_000_000, 2_000));
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {} keys, {}, multigets of 100, {CLIENTS} connections, {DEPTH} turns \
         in flight each, one server thread",
        workload.keys, workload.mix
    );
    let mut report = ExperimentReport::new(NAME, "Multiget of 100 keys", words);
    let contestants = bench.contestants(NAME, &workload, bench.scaled(20_000, 200), ROOMY_MIB)?;
    let progress = bench.progress(NAME, contestants.len());
    for step in 0..bench.rounds * contestants.len() {
        let contestant = &contestants[step % contestants.len()];
        progress.at(step as u64);
        let pacing = Pacing::Closed { depth: DEPTH };
        let interval = bench.drive(NAME, contestant, CLIENTS, pacing, bench.generator_cores(1))?;
        let tally = interval.outcome.tally;
        if tally.misses + tally.errors + tally.refused > 0 {
            let text = format!("{NAME}, {}: keys that had been loaded were not answered: {tally:?}", contestant.name);
            return Err(BenchError::Invalid(text));
        }
        interval.record(&mut report, "", &contestant.name, tally.keys());
        report.record("", &contestant.name, metric::HIT_RATIO, 1.0 - interval.outcome.miss_ratio());
        report.record("", &contestant.name, metric::P50, interval.outcome.latencies.quantile_us(0.5));
        report.record("", &contestant.name, metric::P99, interval.outcome.latencies.quantile_us(0.99));
    }
    Ok(report)
}
