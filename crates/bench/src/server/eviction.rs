//! Eviction at work: a working set ten times the memory limit, a miss followed by a set (MemC3, section 5.3).

use std::sync::Arc;
use std::time::Duration;

use guira_loadgen::read_through::{Draws, ReadThrough};
use guira_loadgen::workload::Workload;

use super::bench::{Bench, Contestant};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "eviction";
const CLIENTS: usize = 8;
/// Bytes of key and value together.
const ITEM_BYTES: u64 = 48;
const TIMES: u64 = 10;

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let limit_mib: u64 = bench.extent.scaled(100, 2);
    let workload = Workload::small_items((limit_mib << 20) * TIMES / ITEM_BYTES);
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {} keys (keys and values {TIMES} times -m {limit_mib}), {}, multigets \
         of 100, a miss followed by a set, {CLIENTS} connections, one server thread",
        workload.keys, workload.mix
    );
    let mut report = ExperimentReport::new(NAME, "Eviction at work", words);
    let draws = Arc::new(Draws::new(&workload, bench.extent.scaled(8_000_000, 20_000), 0));
    let fill: u64 = bench.extent.scaled(8_000_000, 20_000);
    let player = |contestant: &Contestant, number: usize, from: usize, operations: u64| {
        let from = from + number * 1_000_003;
        ReadThrough::new(&workload, contestant.peer.protocol(), Arc::clone(&draws), from, operations, false)
    };
    let plan = |contestant: &Contestant, measure: Option<Duration>| {
        bench.play_plan(contestant, player(contestant, 0, 0, 1).shape(), measure)
    };
    let mut contestants = Vec::new();
    for peer in bench.peers() {
        let contestant = bench.empty(peer, limit_mib)?;
        let mut players: Vec<_> =
            (0..CLIENTS).map(|number| player(&contestant, number, 0, fill / CLIENTS as u64)).collect();
        bench.play(NAME, &contestant, &plan(&contestant, None), &mut players)?;
        contestants.push(contestant);
    }
    bench.alternate(NAME, &contestants, |contestant, round| {
        let from = round * 333_337;
        let mut players: Vec<_> = (0..CLIENTS).map(|number| player(contestant, number, from, u64::MAX)).collect();
        let interval = bench.play(NAME, contestant, &plan(contestant, Some(bench.measure)), &mut players)?;
        let tally = interval.outcome.tally;
        interval.record(&mut report, "", &contestant.name, tally.hits + tally.misses);
        report.record("", &contestant.name, metric::MISS_RATIO, interval.outcome.miss_ratio());
        contestant.record_rss(&mut report, "")
    })?;
    Ok(report)
}
