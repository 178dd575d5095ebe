//! Table 3's miss ratios, scaled: zipf over ten million small items, a miss followed by a set, small memory limits.
//!
//! One connection with one turn in flight, so that every server sees the very same order of operations.

use std::sync::Arc;

use guira_loadgen::read_through::{Draws, ReadThrough};
use guira_loadgen::workload::Workload;

use super::bench::Bench;
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "miss-ratio";

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = Workload::small_items(bench.extent.scaled(10_000_000, 100_000));
    let requests: u64 = bench.extent.scaled(16_000_000, 60_000);
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {} keys, {requests} requests, {}, a miss followed by a set, from an \
         empty server; each round draws other requests",
        workload.keys, workload.mix
    );
    let mut report =
        ExperimentReport::new(NAME, "Miss ratio (MemC3's Table 3, scaled)", words).over("memory limit, -m (MiB)");
    let limits = bench.extent.scaled(vec![64, 128], vec![2]);
    let progress = bench.progress(NAME, bench.peers().len() * limits.len());
    for step in 0..bench.rounds * limits.len() {
        let (round, limit_mib) = (step / limits.len(), limits[step % limits.len()]);
        let draws = Arc::new(Draws::new(&workload, requests as usize, round as u64));
        for (number, peer) in bench.peers().iter().enumerate() {
            progress.at((step * bench.peers().len() + number) as u64);
            let contestant = bench.empty(peer, limit_mib)?;
            let player = ReadThrough::new(&workload, peer.protocol(), Arc::clone(&draws), 0, requests, false);
            let plan = bench.play_plan(&contestant, player.shape(), None);
            let interval = bench.play(NAME, &contestant, &plan, &mut [player])?;
            let (variant, tally) = (format!("-m {limit_mib}"), interval.outcome.tally);
            report.record(&variant, peer.name(), metric::MISS_RATIO, interval.outcome.miss_ratio());
            interval.record(&mut report, &variant, peer.name(), tally.hits + tally.misses);
            contestant.record_rss(&mut report, &variant)?;
        }
    }
    Ok(report)
}
