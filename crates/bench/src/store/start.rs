//! How long a server with a large store takes from its start to its first answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::Pacing;
use guira_loadgen::progress::Progress;
use guira_loadgen::workload::Workload;
use guira_persist::Durability;
use guira_persist::rocks::RocksOptions;

use super::bench::Bench;
use super::items::{self, STORED_LEN, StoredKey, VALUE_LEN};
use super::served::{self, IN_MEMORY};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::server::bench::Contestant;
use crate::workplace::{bytes_of, drop_page_cache};

pub(super) const NAME: &str = "start";

/// Memory of the server, and of its store, MiB: with so much a log may be as long as it ever is.
const MEMORY_MIB: u64 = 2_048;
const STORE_MIB: u64 = 1_024;

/// Share of the longest log that must be there when a server is killed, and intervals of sets that it may take to come to that: so much that a
/// log which grows by a third of the longest in each, and is gone when it is full, is met.
const LOG_SHARE: f64 = 0.5;
const INTERVALS_MAX: usize = 40;

/// Keys that are made at a time.
const KEYS_MAX: usize = 1 << 20;

const CLIENTS: usize = 50;

/// How the server before has ended.
const STOPPED: &str = "stopped";
const KILLED: &str = "killed with a long log";

const AIM: Aim = Aim { peer: "guira", variant: None, metric: metric::START, bound: 1.0 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let count = bench.start_bytes / STORED_LEN as u64;
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, {:.2} GB in {count} items; from the start of the process to the answer to its first get, with \
         nothing of the store in the system's memory; -m {MEMORY_MIB}, of which {STORE_MIB} are the store's; the server before was stopped \
         in order, or killed (-9) right after clients had set items, with durability os, until the log was half of what it may be, {} MiB, or more; beside \
         the same server without a store",
        bench.start_bytes as f64 / 1e9,
        log_bound() >> 20
    );
    // While files are merged they are there twice.
    bench.workplace.expect_room(bench.start_bytes * 5 / 2, "--start-gb")?;
    let mut report = ExperimentReport::new(NAME, "Start", words);
    let path = bench.workplace.place(NAME);
    fill(bench, count)?;
    let flags = served::store_flags(&path, STORE_MIB);
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        for variant in [STOPPED, KILLED] {
            let server = served::start(bench, MEMORY_MIB, &flags)?;
            if variant == KILLED {
                overwrite(bench, served::contestant(bench, "guira", server), count, &path)?;
            } else {
                server.stop()?;
            }
            drop_page_cache(&path)?;
            report.record(variant, "guira", metric::LOG, bytes_of(&path, ".log") as f64 / f64::from(1 << 20));
            report.record(variant, "guira", metric::ON_DISK, bytes_of(&path, "") as f64 / f64::from(1 << 20));
            report.record(variant, "guira", metric::START, first_answer(bench, &flags, true)?);
            report.record(variant, IN_MEMORY, metric::START, first_answer(bench, &[], false)?);
        }
    }
    report.aim(&AIM);
    Ok(report)
}

/// Fills the store, by ascending keys as RocksDB has them, so that next to nothing is to be merged.
fn fill(bench: &Bench, count: u64) -> Result<(), BenchError> {
    let memory = if bench.extent.tiny { bench.memory_bytes() } else { (STORE_MIB as usize) << 20 };
    let options = RocksOptions::with_memory(memory, Durability::Os, bench.options(Durability::Os).unix_now);
    let (store, _) = bench.store(NAME, &options)?;
    // All keys at once would be some gigabytes for a large store: those of some partitions at a time.
    let passes = (count as usize).div_ceil(KEYS_MAX).clamp(1, 256) as u64;
    for pass in 0..passes {
        let partitions = 256 * pass / passes..256 * (pass + 1) / passes;
        let is_meant = |key: &StoredKey| partitions.contains(&u64::from(key.stored()[0]));
        let mut keys: Vec<StoredKey> = (0..count).map(StoredKey::of).filter(is_meant).collect();
        keys.sort_unstable();
        items::load(&store, &format!("{NAME}: filling, {} of {passes}", pass + 1), &keys)?;
    }
    store.database().flush().map_err(|error| BenchError::Invalid(format!("{NAME}: {error}")))?;
    items::wait_for_background(&store)?;
    store.shut().map_err(|error| BenchError::Invalid(format!("{NAME}: {error}")))
}

/// Bytes of the longest log that the server's store has: what its memtables may take.
fn log_bound() -> usize {
    RocksOptions::with_memory((STORE_MIB as usize) << 20, Durability::Os, Arc::new(|| 0)).write_buffer_bytes
}

/// Has items set until the log is long, and kills the server.
fn overwrite(bench: &Bench, mut contestant: Contestant, count: u64, path: &Path) -> Result<(), BenchError> {
    let processes = &bench.processes;
    let sets = Workload { mix: Mix::get_set(0.0), ..served::reads(count) };
    let turns = bench.extent.scaled(50_000, 1_000);
    contestant.scripts = processes.scripts(NAME, &contestant.peer, &sets, turns, 1)?;
    let least = bench.extent.scaled(LOG_SHARE * log_bound() as f64, 0.0);
    for _ in 0..INTERVALS_MAX {
        let pacing = Pacing::Closed { depth: 1 };
        processes.drive(NAME, &contestant, CLIENTS, pacing, processes.generator_cores(1))?;
        if bytes_of(path, ".log") as f64 >= least {
            return Ok(());
        }
    }
    Err(BenchError::Invalid(format!("{NAME}: no long log after {INTERVALS_MAX} intervals")))
}

/// Seconds from the start of a server to its first answer, which is an item if it has a store.
fn first_answer(bench: &Bench, flags: &[String], is_there: bool) -> Result<f64, BenchError> {
    let begin = Instant::now();
    let server = served::contestant(bench, "guira", served::start(bench, MEMORY_MIB, flags)?);
    let found = served::finds(NAME, &server, StoredKey::of(0).name())?;
    let took_s = begin.elapsed().as_secs_f64();
    if found == is_there {
        return Ok(took_s);
    }
    Err(BenchError::Invalid(format!("{NAME}: an item was there, or was not, against all expectation")))
}
