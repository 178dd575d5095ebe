//! The main claim: small items, zipf 0.99, 95 % GET in multigets of 100 (MemC3, section 5.4, batched as there).

use guira_loadgen::pacing::Pacing;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, QUANTILES, ROOMY_MIB};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "multiget";
const CLIENTS: usize = 8;
/// Turns in flight a client: enough that the server always finds work when it comes back to a connection.
const DEPTH: u32 = 8;

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = Workload::small_items(bench.extent.scaled(1_000_000, 2_000));
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {} keys, {}, multigets of 100, {CLIENTS} connections, {DEPTH} turns \
         in flight each, one server thread",
        workload.keys, workload.mix
    );
    let mut report = ExperimentReport::new(NAME, "Multiget of 100 keys", words);
    let contestants = bench.contestants(NAME, &workload, bench.extent.scaled(20_000, 200), ROOMY_MIB)?;
    bench.alternate(NAME, &contestants, |contestant, _| {
        let pacing = Pacing::Closed { depth: DEPTH };
        let interval = bench.drive(NAME, contestant, CLIENTS, pacing, bench.generator_cores(1))?;
        interval.expect_all_answered(NAME, &contestant.name)?;
        interval.record(&mut report, "", &contestant.name, interval.outcome.tally.keys());
        report.record("", &contestant.name, metric::HIT_RATIO, 1.0 - interval.outcome.miss_ratio());
        interval.record_latencies(&mut report, "", &contestant.name, &QUANTILES[..2]);
        Ok(())
    })?;
    Ok(report)
}
