//! CPHASH's servers (PPoPP'12, section 6.7): CPSERVER and LOCKSERVER over their own protocol, Guira's default engine over the same,
//! and memcached partitioned by core: one with a single thread on each server core, the keys split over them.
//!
//! Always true: all have the same keys, draws and cores; inserts are done before the turn counts as answered.

use guira_loadgen::key_source::Popularity;
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::Pacing;
use guira_loadgen::size::Sizes;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, Contestant, QUANTILES};
use super::peer::{Peer, PeerKind};
use super::process::Server;
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

/// Bytes of a value, which the paper counts a working set in.
const VALUE_BYTES: u64 = 8;
/// The name of a hash key, by which memcached knows the same items.
const KEY_BYTES: u32 = 15;
/// Share of lookups; the rest are inserts.
const LOOKUPS: f64 = 0.7;
/// Bytes of memory for an item, more than any of the servers needs: nothing is evicted.
const ITEM_BYTES: u64 = 160;
/// Memory for what does not grow with the items, MiB.
const BASE_MIB: u64 = 64;

const CLIENTS: usize = 8;
/// Turns in flight a client: some thousand requests wait for a server at any time.
const DEPTH: u32 = 8;

/// More server cores than this are not asked for.
const CORES_MAX: usize = 16;

/// What the servers are called in the report, in the order in which they are measured.
const CPSERVER: &str = "cpserver";
const LOCKSERVER: &str = "lockserver";
const MEMCACHED: &str = "memcached";

pub(super) mod working_sets {
    use super::*;

    pub(in super::super) const NAME: &str = "cp-working-sets";

    /// Figure 13.
    pub(in super::super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
        let sizes_mb: &[u64] = bench.extent.scaled(&[1, 4, 16, 64], &[1]);
        let title = "CPSERVER and LOCKSERVER over working sets (CPHASH's Figure 13)";
        let mut report = report(NAME, title, "one server core").over("working set, MB");
        for size_mb in sizes_mb {
            let keys = bench.extent.scaled((size_mb << 20) / VALUE_BYTES, 2_000);
            measure(bench, NAME, &mut report, &format!("{size_mb} MB"), keys, 1)?;
        }
        Ok(report)
    }
}

pub(super) mod cores {
    use super::*;

    pub(in super::super) const NAME: &str = "cp-cores";

    /// Figure 14, with a smaller working set than the paper's 128 MB.
    pub(in super::super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
        let size_mb = 16;
        let keys = bench.extent.scaled((size_mb << 20) / VALUE_BYTES, 2_000);
        let title = "CPSERVER, LOCKSERVER and partitioned memcached over cores (CPHASH's Figure 14)";
        let words = format!("a working set of {size_mb} MB");
        let mut report = report(NAME, title, &words).over("server cores");
        let mut cores = 1;
        while cores <= bench.core_count().min(CORES_MAX) {
            if cores >= bench.core_count() {
                let note = format!("with {cores} cores servers and generator share cores: read the CPU time only");
                report.notes.push(note);
            }
            measure(bench, NAME, &mut report, &format!("{cores} cores"), keys, cores)?;
            cores *= 2;
        }
        Ok(report)
    }
}

fn report(name: &str, title: &str, extent: &str) -> ExperimentReport {
    let words = format!(
        "{VALUE_BYTES} B values under 60-bit hash keys (memcached: their {KEY_BYTES} hexadecimal digits), uniform, all stored \
         before, room for all; {:.0} % inserts; turns of 100 lookups (memcached: a multiget) and the inserts that fall among \
         them, {DEPTH} in flight on each of {CLIENTS} connections; {extent}; guira: engine memc3 over CPSERVER's protocol; \
         memcached: one with a single thread on each server core, the keys split over them",
        (1.0 - LOOKUPS) * 100.0
    );
    ExperimentReport::new(name, title, words)
}

fn measure(
    bench: &Bench,
    experiment: &'static str,
    report: &mut ExperimentReport,
    variant: &str,
    keys: u64,
    cores: usize,
) -> Result<(), BenchError> {
    let workload = Workload {
        mix: Mix::get_set(LOOKUPS),
        popularity: Popularity::Uniform,
        key_size: Sizes::Fixed(KEY_BYTES),
        value_size: Sizes::Fixed(VALUE_BYTES as u32),
        ..Workload::small_items(keys)
    };
    // Each key is asked for about once before the turns repeat themselves, so that a working set is as large as it says.
    let turns = (keys / u64::from(workload.keys_per_get)).clamp(bench.extent.scaled(2_000, 50), 120_000) as usize;
    let mut contestants = Vec::new();
    for peer in bench.peers() {
        match peer.kind {
            PeerKind::Guira => {
                let kinds =
                    [(PeerKind::CPSERVER, CPSERVER), (PeerKind::LOCKSERVER, LOCKSERVER), (PeerKind::GUIRA_CP, "guira")];
                for (kind, name) in kinds {
                    let peer = Peer { kind, ..peer.clone() };
                    contestants.push(contestant(bench, experiment, &peer, name, &workload, turns, cores)?);
                }
            }
            PeerKind::Memcached => {
                contestants.push(contestant(bench, experiment, peer, MEMCACHED, &workload, turns, cores)?);
            }
            _ => {}
        }
    }
    let generator_cores = bench.generator_cores(cores);
    let mut throughput = vec![f64::NAN; contestants.len()];
    bench.alternate(experiment, &contestants, |contestant, _| {
        let pacing = Pacing::Closed { depth: DEPTH };
        let interval = bench.drive(experiment, contestant, CLIENTS, pacing, generator_cores.clone())?;
        interval.expect_all_answered(experiment, &contestant.name)?;
        interval.record(report, variant, &contestant.name, interval.outcome.tally.keys());
        interval.record_latencies(report, variant, &contestant.name, &QUANTILES[..2]);
        let place = contestants.iter().position(|known| known.name == contestant.name);
        place.into_iter().for_each(|place| throughput[place] = interval.outcome.keys_per_s());
        if place == Some(contestants.len() - 1) {
            compare(report, variant, &contestants, &throughput);
        }
        Ok(())
    })
}

/// Starts `peer` on `cores` cores, or one of it on each if it is memcached, and loads the keys.
fn contestant(
    bench: &Bench,
    experiment: &'static str,
    peer: &Peer,
    name: &str,
    workload: &Workload,
    turns: usize,
    cores: usize,
) -> Result<Contestant, BenchError> {
    let memory_mib = ((workload.keys * ITEM_BYTES) >> 20) + BASE_MIB;
    let server_cores = bench.server_cores(cores);
    let servers = if peer.kind == PeerKind::Memcached {
        let share_mib = memory_mib / cores as u64 + BASE_MIB;
        let partition = |number| {
            let core = server_cores[number % server_cores.len()];
            Server::start(peer, &bench.setup(share_mib, 1, vec![core]))
        };
        (0..cores).map(partition).collect::<Result<_, _>>()?
    } else {
        vec![Server::start(peer, &bench.setup(memory_mib, cores, server_cores))?]
    };
    let scripts = bench.scripts(experiment, peer, workload, turns, servers.len())?;
    let contestant = Contestant { name: name.into(), peer: peer.clone(), servers, scripts };
    bench.load(experiment, &contestant, workload)?;
    Ok(contestant)
}

/// Records one round's ratios: CPSERVER's to LOCKSERVER's, which the paper is about, and of both to memcached's.
fn compare(report: &mut ExperimentReport, variant: &str, contestants: &[Contestant], throughput: &[f64]) {
    let of = |name: &str| contestants.iter().position(|known| known.name == name).map(|place| throughput[place]);
    for (name, other, metric) in [
        (CPSERVER, LOCKSERVER, metric::OVER_LOCKSERVER),
        (CPSERVER, MEMCACHED, metric::OVER_MEMCACHED),
        (LOCKSERVER, MEMCACHED, metric::OVER_MEMCACHED),
    ] {
        if let (Some(own), Some(other)) = (of(name), of(other)) {
            report.record(variant, name, metric, own / other);
        }
    }
}
