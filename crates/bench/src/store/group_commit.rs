//! `always` over the number of clients that write: how many share a sync, and how fast that makes them.

use guira_item::store::Store;
use guira_loadgen::progress::Progress;
use guira_persist::Durability;

use super::bench::Bench;
use super::items::{Payload, StoredKey, VALUE_LEN, wait_for_background};
use super::writes::Changes;
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "group-commit";

const WRITERS: [usize; 4] = [1, 4, 16, 64];

const AIM: Aim = Aim { peer: "guira", variant: Some("64 writers"), metric: metric::WRITES_PER_SYNC, bound: 16.0 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let keys = StoredKey::all(bench.extent.scaled(100_000, 1_000));
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, uniform over {} items; clients in a closed loop through Store::write with durability always, \
         one record each, all of them on one thread, as a server's are; beside them as many threads that put into RocksDB with a sync, \
         into the same database",
        keys.len()
    );
    let mut report = ExperimentReport::new(NAME, "Writes that share a sync", words).over("writers");
    let (store, _) = bench.store(NAME, &bench.options(Durability::Always))?;
    let values = Payload::some();
    let changes = Changes::new(&store, &keys, &values);
    let progress = Progress::new(NAME, (bench.rounds * WRITERS.len()) as u64);
    for step in 0..bench.rounds * WRITERS.len() {
        progress.at(step as u64);
        let writers = WRITERS[step % WRITERS.len()];
        let variant = if writers == 1 { "1 writer".to_string() } else { format!("{writers} writers") };
        let before = store.stats();
        let ours = bench.run(&[], vec![changes.writer(step as u64, writers)])?.per_s;
        let after = store.stats();
        wait_for_background(&store)?;
        let threads = (0..writers).map(|number| changes.direct_writer((step * 100 + number) as u64)).collect();
        let theirs = bench.run(&[], threads)?.per_s;
        wait_for_background(&store)?;
        let (writes, syncs) = (after.writes - before.writes, after.syncs - before.syncs);
        report.record(&variant, "guira", metric::OPERATIONS, ours);
        report.record(&variant, "rocksdb", metric::OPERATIONS, theirs);
        report.record(&variant, "guira", metric::OVER_ROCKSDB, ours / theirs);
        report.record(&variant, "guira", metric::WRITES_PER_SYNC, writes as f64 / syncs.max(1) as f64);
    }
    changes.expect_all_done(NAME)?;
    report.aim(&AIM);
    Ok(report)
}
