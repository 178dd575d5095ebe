//! What a server with a store takes of memory, beside what `-m` says.

use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::Pacing;
use guira_loadgen::progress::Progress;
use guira_loadgen::workload::Workload;

use super::bench::Bench;
use super::items::{STORED_LEN, VALUE_LEN};
use super::served::{self, IN_MEMORY};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::server::bench::Contestant;

pub(super) const NAME: &str = "memory";

const CLIENTS: usize = 50;

/// The data, in times `-m`.
const TIMES: u64 = 2;

/// `-m`, and the store's part of it.
const LIMITS_MIB: [(u64, u64); 2] = [(512, 256), (1024, 256)];

const AIM: Aim = Aim { peer: "guira", variant: None, metric: metric::RSS_OVER_LIMIT, bound: 1.1 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, {TIMES} times -m of them set once, then 90 % get, 10 % set, uniform, one key a turn, on \
         {CLIENTS} connections; one server thread; the resident memory at the end of each round, huge pages included; beside the same \
         server without a store"
    );
    let mut report = ExperimentReport::new(NAME, "Memory with a store", words).over("memory limit, -m (MiB)");
    for (limit_mib, store_mib) in bench.extent.scaled(LIMITS_MIB.to_vec(), vec![(64, 32)]) {
        let variant = format!("-m {limit_mib}");
        let mixed = mixed(TIMES * (limit_mib << 20) / STORED_LEN as u64);
        let flags = served::store_flags(&bench.workplace.place(&format!("{NAME}-{limit_mib}")), store_mib);
        let mut contestants = [
            served::contestant(bench, "guira", served::start(bench, limit_mib, &flags)?),
            served::contestant(bench, IN_MEMORY, served::start(bench, limit_mib, &[])?),
        ];
        for contestant in &mut contestants {
            bench.processes.load(NAME, contestant, &mixed)?;
            let turns = bench.extent.scaled(200_000, 2_000);
            contestant.scripts = bench.processes.scripts(NAME, &contestant.peer, &mixed, turns, 1)?;
        }
        let progress = Progress::new(NAME, bench.rounds as u64);
        for round in 0..bench.rounds {
            progress.at(round as u64);
            for contestant in &contestants {
                measure(bench, contestant, &variant, limit_mib, &mut report)?;
            }
        }
    }
    report.aim(&AIM);
    Ok(report)
}

fn mixed(keys: u64) -> Workload {
    Workload { mix: Mix::get_set(0.9), ..served::reads(keys) }
}

fn measure(
    bench: &Bench,
    contestant: &Contestant,
    variant: &str,
    limit_mib: u64,
    report: &mut ExperimentReport,
) -> Result<(), BenchError> {
    let processes = &bench.processes;
    let interval =
        processes.drive(NAME, contestant, CLIENTS, Pacing::Closed { depth: 1 }, processes.generator_cores(1))?;
    let tally = interval.outcome.tally;
    if tally.errors + tally.refused > 0 {
        let text = format!("{NAME}, {}: something was refused: {tally:?}", contestant.name);
        return Err(BenchError::Invalid(text));
    }
    contestant.record_rss(report, variant)?;
    let rss_bytes = contestant.servers[0].usage()?.rss_bytes;
    report.record(variant, &contestant.name, metric::RSS_OVER_LIMIT, rss_bytes as f64 / (limit_mib << 20) as f64);
    report.record(variant, &contestant.name, metric::MISS_SHARE, interval.outcome.miss_ratio());
    Ok(())
}
