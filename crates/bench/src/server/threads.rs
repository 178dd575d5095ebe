//! Figure 9: throughput over server threads, with memcached sharded by core as the other way to use them.
//!
//! A sharded client waits for all its shards before its next turn, so the shard with the hottest keys sets the pace
//! (MemC3, section 5.4).

use std::sync::Arc;

use guira_loadgen::pacing::Pacing;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, Contestant, QUANTILES, ROOMY_MIB};
use super::peer::PeerKind;
use super::process::Server;
use crate::error::BenchError;
use crate::report::ExperimentReport;

const NAME: &str = "threads";
const CLIENTS: usize = 50;
const DEPTH: u32 = 2;
const THREADS_MAX: usize = 16;

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = Workload::small_items(bench.extent.scaled(1_000_000, 2_000));
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {} keys, {}, multigets of 100, {CLIENTS} clients, {DEPTH} turns in \
         flight each; sharded: one memcached a core, each client connected to all of them",
        workload.keys, workload.mix
    );
    let mut report =
        ExperimentReport::new(NAME, "Throughput over server threads (MemC3's Figure 9)", words).over("server threads");
    let turns = bench.extent.scaled(20_000, 200);
    let mut threads = 1;
    while threads <= bench.core_count().min(THREADS_MAX) {
        if threads >= bench.core_count() {
            let note = format!("with {threads} threads servers and generator share cores: read the CPU time only");
            report.notes.push(note);
        }
        measure(bench, &mut report, &workload, turns, threads)?;
        threads *= 2;
    }
    Ok(report)
}

fn measure(
    bench: &Bench,
    report: &mut ExperimentReport,
    workload: &Workload,
    turns: usize,
    threads: usize,
) -> Result<(), BenchError> {
    let cores = bench.server_cores(threads);
    let mut contestants = Vec::new();
    for peer in bench.peers().iter().filter(|peer| peer.kind != PeerKind::Redis) {
        let setup = bench.setup(ROOMY_MIB, threads, cores.clone());
        let scripts = bench.scripts(NAME, peer, workload, turns, 1)?;
        let servers = vec![Server::start(peer, &setup)?];
        contestants.push(Contestant { name: peer.name().into(), peer: peer.clone(), servers, scripts });
        if peer.kind == PeerKind::Memcached && threads > 1 {
            let shard = |number: usize| {
                let setup = bench.setup(ROOMY_MIB / threads as u64, 1, vec![cores[number % cores.len()]]);
                Server::start(peer, &setup)
            };
            let servers = (0..threads).map(shard).collect::<Result<_, _>>()?;
            let scripts: Vec<Arc<_>> = bench.scripts(NAME, peer, workload, turns, threads)?;
            contestants.push(Contestant { name: "memcached sharded".into(), peer: peer.clone(), servers, scripts });
        }
    }
    for contestant in &contestants {
        bench.load(NAME, contestant, workload)?;
    }
    let variant = format!("{threads} threads");
    bench.alternate(NAME, &contestants, |contestant, _| {
        let pacing = Pacing::Closed { depth: DEPTH };
        let interval = bench.drive(NAME, contestant, CLIENTS, pacing, bench.generator_cores(threads))?;
        interval.expect_all_answered(NAME, &contestant.name)?;
        interval.record(report, &variant, &contestant.name, interval.outcome.tally.keys());
        interval.record_latencies(report, &variant, &contestant.name, &QUANTILES[..2]);
        Ok(())
    })
}
