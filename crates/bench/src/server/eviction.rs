//! Eviction at work: a working set ten times the memory limit, a miss followed by a set (MemC3, section 5.3); and the same with
//! larger values in ten times the memory, where what an eviction costs must not have grown.

use std::sync::Arc;

use guira_loadgen::read_through::{Draws, ReadThrough};
use guira_loadgen::size::Sizes;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, Contestant};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "eviction";
const CLIENTS: usize = 8;
const KEY_LEN: u32 = 16;
const TIMES: u64 = 10;

/// A limit, and what does not fit into it.
struct Pressure {
    limit_mib: u64,
    value_len: u32,
    keys_per_get: u32,
    /// Draws of a round: twice as many as the fastest server gets through. Half of them fill it.
    draws: usize,
}

impl Pressure {
    fn variant(&self) -> String {
        format!("-m {}, values of {} B", self.limit_mib, self.value_len)
    }

    fn workload(&self) -> Workload {
        Workload {
            value_size: Sizes::Fixed(self.value_len),
            keys_per_get: self.keys_per_get,
            ..Workload::small_items((self.limit_mib << 20) * TIMES / u64::from(KEY_LEN + self.value_len))
        }
    }
}

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let pressure = |limit_mib: u64, value_len: u32, keys_per_get: u32, draws: usize| Pressure {
        limit_mib: bench.extent.scaled(limit_mib, 2 + u64::from(value_len) / 250),
        value_len,
        keys_per_get,
        draws: bench.extent.scaled(draws, 40_000),
    };
    // The first is the paper's.
    let pressures = [
        pressure(100, 32, 100, 16_000_000),
        pressure(1024, 1_000, 10, 8_000_000),
        pressure(1024, 15_000, 4, 1_000_000),
    ];
    let words = format!(
        "{KEY_LEN} B keys, zipf 0.99 over as many as have keys and values of {TIMES} times -m, {}, multigets of {}, a miss followed \
         by a set, {CLIENTS} connections, one server thread",
        pressures[0].workload().mix,
        pressures.each_ref().map(|pressure| pressure.keys_per_get.to_string()).join(", ")
    );
    let mut report = ExperimentReport::new(NAME, "Eviction at work", words);
    for pressure in &pressures {
        measure(bench, &mut report, pressure)?;
    }
    Ok(report)
}

fn measure(bench: &Bench, report: &mut ExperimentReport, pressure: &Pressure) -> Result<(), BenchError> {
    let (workload, variant, count) = (pressure.workload(), pressure.variant(), pressure.draws);
    // Draws that come again would find what they left: every round has its own, and every client its share of them.
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
        let contestant = bench.empty(peer, pressure.limit_mib)?;
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
        interval.record(report, &variant, &contestant.name, tally.hits + tally.misses);
        report.record(&variant, &contestant.name, metric::MISS_RATIO, interval.outcome.miss_ratio());
        contestant.record_rss(report, &variant)
    })
}
