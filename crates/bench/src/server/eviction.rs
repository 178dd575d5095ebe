//! Eviction at work: a working set ten times the memory limit, a miss followed by a set (MemC3, section 5.3).

use std::sync::Arc;

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
    // Draws that come again would find what they left: every round has its own, twice as many as the fastest server gets through, and
    // every client its share of them.
    let count: usize = bench.extent.scaled(16_000_000, 40_000);
    let draw = |stream: usize| Arc::new(Draws::new(&workload, count, stream as u64));
    let players = |contestant: &Contestant, draws: &Arc<Draws>, operations: u64| -> Vec<ReadThrough> {
        let player = |number: usize| {
            let from = number * (count / CLIENTS);
            ReadThrough::new(&workload, contestant.peer.protocol(), Arc::clone(draws), from, operations, false)
        };
        (0..CLIENTS).map(player).collect()
    };
    let mut drawn = (0, draw(0));
    let mut contestants = Vec::new();
    for peer in bench.peers() {
        let contestant = bench.empty(peer, limit_mib)?;
        let mut players = players(&contestant, &drawn.1, (count / 2 / CLIENTS) as u64);
        let plan = bench.play_plan(&contestant, players[0].shape(), None);
        bench.play(NAME, &contestant, &plan, &mut players)?;
        contestants.push(contestant);
    }
    bench.alternate(NAME, &contestants, |contestant, round| {
        if drawn.0 != round + 1 {
            drawn = (round + 1, draw(round + 1));
        }
        let mut players = players(contestant, &drawn.1, u64::MAX);
        let plan = bench.play_plan(contestant, players[0].shape(), Some(bench.measure));
        let interval = bench.play(NAME, contestant, &plan, &mut players)?;
        let tally = interval.outcome.tally;
        interval.record(&mut report, "", &contestant.name, tally.hits + tally.misses);
        report.record("", &contestant.name, metric::MISS_RATIO, interval.outcome.miss_ratio());
        contestant.record_rss(&mut report, "")
    })?;
    Ok(report)
}
