//! Bulk loading: pipelined sets of small items, all of them fresh or overwriting, nothing evicted.

use guira_loadgen::key_source::Popularity;
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::Pacing;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, ROOMY_MIB};
use crate::error::BenchError;
use crate::report::ExperimentReport;

const NAME: &str = "bulk-sets";
const CLIENTS: usize = 4;
const DEPTH: u32 = 4;

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = Workload {
        mix: Mix::get_set(0.0),
        popularity: Popularity::Uniform,
        ..Workload::small_items(bench.extent.scaled(1_000_000, 2_000))
    };
    let words = format!(
        "16 B keys, 32 B values, uniform over {} keys, sets pipelined by {} with {DEPTH} batches in flight on each of \
         {CLIENTS} connections, one server thread",
        workload.keys, workload.writes_per_turn
    );
    let mut report = ExperimentReport::new(NAME, "Bulk sets, pipelined", words);
    let contestants = bench.contestants(NAME, &workload, bench.extent.scaled(10_000, 100), ROOMY_MIB)?;
    bench.alternate(NAME, &contestants, |contestant, _| {
        let pacing = Pacing::Closed { depth: DEPTH };
        let interval = bench.drive(NAME, contestant, CLIENTS, pacing, bench.generator_cores(1))?;
        interval.expect_all_answered(NAME, &contestant.name)?;
        interval.record(&mut report, "", &contestant.name, interval.outcome.tally.done);
        Ok(())
    })?;
    Ok(report)
}
