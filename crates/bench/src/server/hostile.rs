//! A healthy client beside hostile ones: how much worse its 99th percentile becomes than when it is alone.
//!
//! The healthy client's requests come in an open loop at a rate that leaves every server mostly idle, so that what it
//! waits for is the hostile clients. Every round measures a server alone and then beside each kind of them, and compares
//! it with itself.

use std::time::{Duration, Instant};

use guira_loadgen::error::LoadError;
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::{Arrivals, Pacing};
use guira_loadgen::protocol::Protocol;
use guira_loadgen::workload::Workload;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::assault::{Assault, Hostility};
use super::bench::{Bench, Contestant, ROOMY_MIB, failed};
use super::flood_keys;
use super::peer::Setup;
use super::process::Server;
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "hostile";
/// The healthy client's connections, and its requests per second on all of them.
const CLIENTS: usize = 16;
const RATE_PER_S: f64 = 5_000.0;
const SLOW: usize = 10_000;
/// Keys of one hash: a chain of them takes a server that has one some 50 microseconds to walk.
const FLOOD: usize = 10_000;
/// Open files for anything but slow connections.
const FILES_BESIDE: usize = 500;
/// Time a server has to notice that hostile clients have come or left.
const NOTICE_MAX: Duration = Duration::from_secs(20);

const ALONE: &str = "alone";
const BESIDE: [&str; 3] = ["slow connections", "lies about lengths", "hash flooding"];

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = Workload {
        mix: Mix::get_set(0.9),
        keys_per_get: 1,
        writes_per_turn: 1,
        ..Workload::small_items(bench.extent.scaled(100_000, 1_000))
    };
    let slow = slow_max(bench.extent.scaled(SLOW, 50));
    let flood = bench.extent.scaled(FLOOD, 100);
    let words = format!(
        "{RATE_PER_S} requests a second (90 % get, 16 B keys, 32 B values, zipf 0.99 over {} keys, Poisson) on \
         {CLIENTS} connections, one server thread; alone, and beside: {slow} connections whose values come a byte at a \
         time; clients that announce up to 2^64-1 bytes, send 24 and leave, as many as a thread of the least priority \
         comes to (at most a thousand a second); sets and gets of {flood} keys that share their hash if its seed is the one in the server's source",
        workload.keys
    );
    let mut report = ExperimentReport::new(NAME, "A healthy client beside hostile ones", words);
    if slow < bench.extent.scaled(SLOW, 50) {
        report.notes.push(format!("only {slow} slow connections: raise the limit on open files (ulimit -n)"));
    }
    let core = bench.free_core().or_else(|| bench.generator_cores(1).first().copied());
    if bench.free_core().is_none() {
        report.notes.push("the hostile clients ran on the generator's core, which it feels as well".into());
    }
    let mut contestants = Vec::new();
    for peer in bench.peers().iter().filter(|peer| peer.protocol() == Protocol::MemcacheText) {
        let connections_max = slow + FILES_BESIDE;
        let setup = Setup { connections_max, ..bench.setup(ROOMY_MIB, 1, bench.server_cores(1)) };
        let servers = vec![Server::start(peer, &setup)?];
        let scripts = bench.scripts(NAME, peer, &workload, bench.extent.scaled(200_000, 1_000), 1)?;
        let contestant = Contestant { name: peer.name().into(), peer: peer.clone(), servers, scripts };
        bench.load(NAME, &contestant, &workload)?;
        contestants.push(contestant);
    }
    let progress = bench.progress(NAME, contestants.len());
    for step in 0..bench.rounds * contestants.len() {
        let contestant = &contestants[step % contestants.len()];
        progress.at(step as u64);
        let alone_us = measure(bench, &mut report, contestant, ALONE)?;
        for variant in BESIDE {
            let server = &contestant.servers[0];
            let address = server.address();
            let fail = || failed(NAME, &contestant.name);
            let hostility = match variant {
                "slow connections" => Hostility::slow(address, slow),
                "lies about lengths" => Ok(Hostility::lying()),
                _ => Hostility::flooding(address, flood_keys::colliding(contestant.peer.kind, flood)),
            };
            let hostility = hostility.map_err(fail())?;
            if let Hostility::Slow { .. } = hostility {
                wait_for_connections(server, |connections| connections > slow as u64).map_err(fail())?;
            }
            let assault = Assault::begin(address, hostility, core);
            let p99_us = measure(bench, &mut report, contestant, variant)?;
            let acts_per_s = assault.end().map_err(fail())?;
            report.record(variant, &contestant.name, metric::P99_RATIO, p99_us / alone_us);
            report.record(variant, &contestant.name, metric::HOSTILE_ACTS, acts_per_s);
            // Whoever asks is one; memcached counts its listener as another.
            wait_for_connections(server, |connections| connections <= 2).map_err(fail())?;
        }
    }
    Ok(report)
}

/// The healthy client's 99th percentile, microseconds.
fn measure(
    bench: &Bench,
    report: &mut ExperimentReport,
    contestant: &Contestant,
    variant: &str,
) -> Result<f64, BenchError> {
    let pacing = Pacing::Open { rate_per_s: RATE_PER_S, arrivals: Arrivals::Poisson };
    let interval = bench.drive(NAME, contestant, CLIENTS, pacing, bench.generator_cores(1))?;
    let (name, tally) = (&contestant.name, interval.outcome.tally);
    if tally.misses + tally.errors + tally.refused > 0 {
        let text = format!("{NAME}, {name}, {variant}: the healthy client was answered wrongly: {tally:?}");
        return Err(BenchError::Invalid(text));
    }
    let p99_us = interval.outcome.latencies.quantile_us(0.99);
    report.record(variant, name, metric::P50, interval.outcome.latencies.quantile_us(0.5));
    report.record(variant, name, metric::P99, p99_us);
    report.record(variant, name, metric::SERVER_BUSY, interval.server_cpu_s / interval.outcome.elapsed_s);
    contestant.record_rss(report, variant)?;
    Ok(p99_us)
}

/// As many slow connections as this process may open files for, at most `wanted`.
fn slow_max(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Refused only if another process lowered the limit meanwhile; then that one holds.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    wanted.min(usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(2 * FILES_BESIDE))
}

#[expect(clippy::disallowed_methods, reason = "another process' connections give no event to wait for")]
fn wait_for_connections(server: &Server, awaited: impl Fn(u64) -> bool) -> Result<(), LoadError> {
    let deadline = Instant::now() + NOTICE_MAX;
    while !server.counters()?.number("curr_connections").is_some_and(&awaited) {
        if Instant::now() > deadline {
            return Err(LoadError::Gone("it was to notice that hostile clients come and leave"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
