//! What `--durability` costs: writes with `always` and `interval` beside `os`.

use guira_loadgen::progress::Progress;
use guira_persist::Durability;
use guira_persist::rocks::RocksStore;

use super::bench::Bench;
use super::items::{Payload, StoredKey, VALUE_LEN, wait_for_background};
use super::writes::Changes;
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "durability";

const WRITERS: usize = 64;

const AIM: Aim = Aim { peer: "interval", variant: None, metric: metric::OVER_OS, bound: 0.8 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let keys = StoredKey::all(bench.extent.scaled(100_000, 1_000));
    let durabilities =
        [("os", Durability::Os), ("interval", Durability::Interval(bench.interval)), ("always", Durability::Always)];
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, uniform over {} items; {WRITERS} clients in a closed loop through Store::write, one record each, \
         all of them on one thread; interval: a sync every {} ms; each begins when RocksDB has nothing left to merge",
        keys.len(),
        bench.interval.as_millis()
    );
    let mut report = ExperimentReport::new(NAME, "Writes by durability", words);
    let open = |(name, durability): &(&'static str, Durability)| {
        let (store, _) = bench.store(&format!("{NAME}-{name}"), &bench.options(*durability))?;
        Ok((*name, store))
    };
    let stores: Vec<(&str, RocksStore)> = durabilities.iter().map(open).collect::<Result<_, BenchError>>()?;
    let values = Payload::some();
    let progress = Progress::new(NAME, (bench.rounds * stores.len()) as u64);
    for round in 0..bench.rounds {
        // The first is what the others are compared with.
        let mut os_per_s = None;
        for (number, (name, store)) in stores.iter().enumerate() {
            progress.at((round * stores.len() + number) as u64);
            let changes = Changes::new(store, &keys, &values);
            let per_s = bench.run(&[], vec![changes.writer(round as u64, WRITERS)])?.per_s;
            changes.expect_all_done(NAME)?;
            wait_for_background(store)?;
            report.record("", name, metric::OPERATIONS, per_s);
            report.record("", name, metric::OVER_OS, per_s / *os_per_s.get_or_insert(per_s));
        }
    }
    report.aim(&AIM);
    Ok(report)
}
