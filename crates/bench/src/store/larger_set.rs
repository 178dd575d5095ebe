//! Point reads from a set four times the memory given: most of them wait, for the system's page cache or for the disk.

use guira_item::store::Store;
use guira_loadgen::progress::Progress;
use guira_persist::Durability;

use super::bench::Bench;
use super::items::{self, STORED_LEN, StoredKey, VALUE_LEN};
use super::reads::Set;
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::workplace::drop_page_cache;

pub(super) const NAME: &str = "larger-set";

/// The data, in memories.
const TIMES: u64 = 4;

/// Reads on their way: one a reader, and as many as a server with many clients has.
const DEPTHS: [usize; 2] = [8, 64];

const AIMS: [Aim; 4] = [
    aim("page cache, 8 on their way"),
    aim("page cache, 64 on their way"),
    aim("disk, 8 on their way"),
    aim("disk, 64 on their way"),
];

const fn aim(variant: &'static str) -> Aim {
    Aim { peer: "guira", variant: Some(variant), metric: metric::OVER_ROCKSDB, bound: 0.8 }
}

/// Where what the block cache has not is read from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    PageCache,
    Disk,
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let keys = StoredKey::all(TIMES * bench.memory_bytes() as u64 / STORED_LEN as u64);
    let options = bench.options(Durability::Os);
    let readers = options.readers;
    // As a server has workers.
    let askers = bench.cores.len();
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, uniform over {} items, {TIMES} times the {} MiB of the store; {askers} threads that ask get_now and, \
         for what would wait, get with its {readers} readers, so many on their way at most in all; beside it {readers} threads that call \
         get_pinned of RocksDB, on the same database and with the same options; page cache: the system has all files in memory; disk: \
         the system is told before each interval to forget them (what it reads meanwhile it keeps)",
        keys.len(),
        bench.memory_mib
    );
    bench.workplace.expect_room(3 * TIMES * bench.memory_bytes() as u64, NAME)?;
    let mut report =
        ExperimentReport::new(NAME, "Point reads from four times the memory", words).over("reads on their way");
    let (store, path) = bench.store(NAME, &options)?;
    items::load(&store, NAME, &keys)?;
    items::settle(&store)?;
    let set = Set::new(&store, &keys);
    set.read_all();
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        for (name, from) in [("page cache", From::PageCache), ("disk", From::Disk)] {
            for depth in DEPTHS {
                let prepare = || match from {
                    From::PageCache => Ok(()),
                    From::Disk => drop_page_cache(&path),
                };
                let seed = (round * 1_000 + depth) as u64;
                prepare()?;
                let before = store.stats();
                let asking = shares(depth, askers).map(|(number, share)| set.reader(seed * 100 + number, share));
                let asking = asking.collect();
                let ours = bench.run(&[], asking)?;
                let after = store.stats();
                prepare()?;
                let direct = (0..readers as u64).map(|number| set.direct_reader(seed * 100 + number)).collect();
                let theirs = bench.run(&[], direct)?;
                let variant = format!("{name}, {depth} on their way");
                for (peer, rate) in [("guira", ours), ("rocksdb", theirs)] {
                    report.record(&variant, peer, metric::OPERATIONS, rate.per_s);
                    report.record(&variant, peer, metric::PER_CPU, rate.per_cpu_s);
                }
                report.record(&variant, "guira", metric::OVER_ROCKSDB, ours.per_s / theirs.per_s);
                let at_once = after.reads_at_once - before.reads_at_once;
                let waited = after.reads_waited - before.reads_waited;
                report.record(&variant, "guira", metric::AT_ONCE, at_once as f64 / (at_once + waited) as f64);
            }
            if from == From::Disk {
                // Back into the page cache.
                set.read_all();
            }
        }
    }
    set.expect_all_right(NAME)?;
    AIMS.iter().for_each(|aim| report.aim(aim));
    Ok(report)
}

/// So many reads among so many threads that ask: the number of each that has some, and its share.
fn shares(depth: usize, askers: usize) -> impl Iterator<Item = (u64, usize)> {
    let share = move |number| depth / askers + usize::from(number < depth % askers);
    (0..askers.min(depth)).map(move |number| (number as u64, share(number)))
}
