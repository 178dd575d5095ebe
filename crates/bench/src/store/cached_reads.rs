//! Point reads of what the block cache has room for: what the store adds to a read that takes no input.

use guira_item::store::Store;
use guira_loadgen::progress::Progress;
use guira_persist::Durability;

use super::bench::Bench;
use super::items::{self, STORED_LEN, StoredKey, VALUE_LEN};
use super::reads::Set;
use crate::error::BenchError;
use crate::in_process::threads;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "cached-reads";

/// Share of the memory that the data takes: the block cache has three quarters, and what RocksDB adds to the data is not counted.
const SHARE: f64 = 0.4;

const AIM: Aim = Aim { peer: "guira", variant: None, metric: metric::OVER_ROCKSDB, bound: 0.85 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let keys = StoredKey::all((bench.memory_bytes() as f64 * SHARE) as u64 / STORED_LEN as u64);
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, uniform over {} items, all of them in the block cache of a store with {} MiB; get_now (get \
         for what would wait) beside get_pinned of RocksDB, on the same database and with the same options; each looks at both ends of \
         the value; threads pinned to cores",
        keys.len(),
        bench.memory_mib
    );
    let mut report = ExperimentReport::new(NAME, "Point reads from the block cache", words).over("threads");
    let (store, _) = bench.store(NAME, &bench.options(Durability::Os))?;
    items::load(&store, NAME, &keys)?;
    items::settle(&store)?;
    let set = Set::new(&store, &keys);
    set.read_all();
    let counts: Vec<usize> = (1..=bench.cores.len()).filter(|count| count.is_power_of_two()).collect();
    let progress = Progress::new(NAME, (bench.rounds * counts.len()) as u64);
    for step in 0..bench.rounds * counts.len() {
        progress.at(step as u64);
        let count = counts[step % counts.len()];
        let cores = &bench.cores[..count];
        let before = store.stats();
        let ours = bench.run(cores, (0..count).map(|number| set.reader(number as u64, 1)).collect())?;
        let after = store.stats();
        let theirs = (0..count).map(|number| set.direct_reader(number as u64)).collect();
        let theirs = bench.run(cores, theirs)?;
        let variant = threads(count);
        for (peer, rate) in [("guira", ours), ("rocksdb", theirs)] {
            report.record(&variant, peer, metric::OPERATIONS, rate.per_s);
            report.record(&variant, peer, metric::PER_CPU, rate.per_cpu_s);
        }
        report.record(&variant, "guira", metric::OVER_ROCKSDB, ours.per_s / theirs.per_s);
        let (at_once, waited) = (after.reads_at_once - before.reads_at_once, after.reads_waited - before.reads_waited);
        report.record(&variant, "guira", metric::AT_ONCE, at_once as f64 / (at_once + waited) as f64);
    }
    set.expect_all_right(NAME)?;
    report.aim(&AIM);
    Ok(report)
}
