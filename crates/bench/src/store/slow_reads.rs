//! Hits on some connections while others wait for reads that take 50 ms each.

use std::sync::Arc;

use guira_loadgen::driver::{self, Outcome, Plan, Reach, Target};
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::{Arrivals, Pacing};
use guira_loadgen::progress::Progress;
use guira_loadgen::script::Script;
use guira_loadgen::size::Sizes;
use guira_loadgen::workload::Workload;

use super::bench::Bench;
use super::items::{KEY_LEN, VALUE_LEN};
use super::served;
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::server::bench::{Contestant, Interval, QUANTILES, failed};
use crate::server::peer::{Peer, PeerKind, Setup};
use crate::server::process::Server;

pub(super) const NAME: &str = "slow-reads";

const DELAY_MS: u64 = 50;

/// Those who hit, and their requests a second, all together.
const CLIENTS: usize = 16;
const RATE_PER_S: f64 = 5_000.0;

/// Those who wait for the store.
const SLOW_CLIENTS: usize = 256;

/// Hit and slow keys differ by their length.
const HIT_KEY_LEN: u32 = 20;

const MEMORY_MIB: u64 = 512;

const ALONE: &str = "alone";
const BESIDE: &str = "beside slow reads";

const AIM: Aim = Aim { peer: "guira", variant: Some(BESIDE), metric: metric::P99, bound: 5_000.0 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    // So many that hardly one is asked for twice, and found in the engine then.
    let slow = served::reads(bench.extent.scaled(400_000, 20_000));
    let hits = Workload {
        mix: Mix::get_set(1.0),
        key_size: Sizes::Fixed(HIT_KEY_LEN),
        keys_per_get: 1,
        writes_per_turn: 1,
        ..Workload::small_items(bench.extent.scaled(10_000, 1_000))
    };
    let words = format!(
        "{RATE_PER_S} hits a second ({HIT_KEY_LEN} B keys, 32 B values, zipf 0.99 over {} items, Poisson) on {CLIENTS} connections, \
         one server thread; alone, and beside {SLOW_CLIENTS} connections, each of which reads, one after the other, items of \
         {KEY_LEN} + {VALUE_LEN} B out of {} that are in the store and not in the engine; every read of the store takes {DELAY_MS} ms \
         (a store in memory that answers so late, behind WriteThrough)",
        hits.keys, slow.keys
    );
    let mut report = ExperimentReport::new(NAME, "Hits beside slow reads", words);
    let processes = &bench.processes;
    let peer = Peer { kind: PeerKind::DelayedStore, program: served::guira(bench).program.clone() };
    let flags = ["--read-delay", &DELAY_MS.to_string(), "--items", &slow.keys.to_string()].map(String::from).to_vec();
    let setup = Setup { flags, ..processes.setup(MEMORY_MIB, 1, processes.server_cores(1)) };
    let server = Server::start(&peer, &setup)?;
    let scripts = processes.scripts(NAME, &peer, &hits, bench.extent.scaled(200_000, 1_000), 1)?;
    let contestant = Contestant { name: "guira".into(), peer, servers: vec![server], scripts };
    processes.load(NAME, &contestant, &hits)?;
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        let alone = hit(bench, &contestant)?;
        let (beside, others) = std::thread::scope(|scope| {
            let others = scope.spawn(|| wait_for_the_store(bench, &contestant, &slow, round as u64));
            let beside = hit(bench, &contestant);
            (beside, others.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (beside, others) = (beside?, others?);
        let p99_us = |interval: &Interval| interval.outcome.latencies.quantile_us(0.99);
        for (variant, interval) in [(ALONE, &alone), (BESIDE, &beside)] {
            interval.record_latencies(&mut report, variant, "guira", &QUANTILES);
            let busy = interval.server_cpu_s / interval.outcome.elapsed_s;
            report.record(variant, "guira", metric::SERVER_BUSY, busy);
        }
        report.record(BESIDE, "guira", metric::P99_RATIO, p99_us(&beside) / p99_us(&alone));
        report.record(BESIDE, "guira", metric::SLOW_READS, others.turns_per_s());
        report.record(BESIDE, "guira", metric::SLOW_P50, others.latencies.quantile_us(0.5));
    }
    report.aim(&AIM);
    Ok(report)
}

/// An interval of hits.
fn hit(bench: &Bench, contestant: &Contestant) -> Result<Interval, BenchError> {
    let pacing = Pacing::Open { rate_per_s: RATE_PER_S, arrivals: Arrivals::Poisson };
    let interval = bench.processes.drive(NAME, contestant, CLIENTS, pacing, bench.processes.generator_cores(1))?;
    interval.expect_all_answered(NAME, &contestant.name)?;
    Ok(interval)
}

/// Reads what only the store has, for longer than an interval of hits takes.
fn wait_for_the_store(
    bench: &Bench,
    contestant: &Contestant,
    slow: &Workload,
    round: u64,
) -> Result<Outcome, BenchError> {
    let processes = &bench.processes;
    // Another part of the items each round.
    let slow = Workload { seed: slow.seed + round, ..slow.clone() };
    let scripts = Script::build(&slow, contestant.peer.protocol(), bench.extent.scaled(100_000, 4_000), 1, round);
    let scripts = scripts.map_err(failed(NAME, &contestant.name))?;
    let address = contestant.servers[0].address();
    let targets = scripts.into_iter().map(|script| Target { address, script: Arc::new(script) }).collect();
    let plan = Plan {
        targets,
        reach: Reach::All,
        clients: SLOW_CLIENTS,
        pacing: Pacing::Closed { depth: 1 },
        warm_up: processes.warm_up / 2,
        measure: processes.measure + processes.warm_up,
        cores: processes.generator_cores(1),
        seed: round,
    };
    let outcome = driver::run(&plan, &mut |_| ()).map_err(failed(NAME, &contestant.name))?;
    let tally = outcome.tally;
    if tally.misses + tally.errors > 0 || outcome.latencies.quantile_us(0.5) < DELAY_MS as f64 * 900.0 {
        let text = format!("{NAME}: slow reads were not slow, or went wrong: {tally:?}");
        return Err(BenchError::Invalid(text));
    }
    Ok(outcome)
}
