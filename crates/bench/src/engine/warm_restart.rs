//! What a warm restart takes (`guira serve -e`): saving a full engine's items, and loading them into a new one.

use std::time::Instant;

use guira_cphash::{Cphash, Lockhash};
use guira_item::{
    Answer, Clock, Engine, Expiry, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode, Time,
};
use guira_memc3::Memc3;
use guira_persist::{Loaded, MemoryFile};

use super::{BenchError, ExperimentReport, in_process::Bench, metric, report::Aim};

pub(super) const NAME: &str = "warm-restart";

const VALUE_LEN: usize = 32;

/// Memory for an item, of whatever engine, in bytes: no item is to go.
const ITEM_BYTES: usize = 192;

/// Items that are stored together.
const BATCH_LEN: usize = 1_000;

/// Ten million items in under ten seconds.
const AIMS: [Aim; 3] = [aim("memc3"), aim("cphash"), aim("lockhash")];

const fn aim(peer: &'static str) -> Aim {
    Aim { peer, variant: Some("10"), metric: metric::LOAD, bound: 10.0 }
}

const NOW: Time = Time(2);

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let sizes: Vec<usize> = bench.extent.scaled(vec![1_000_000, 3_000_000, 10_000_000], vec![20_000]);
    let words = format!(
        "items of 16 B keys and {VALUE_LEN} B values that never expire; saved, with the file on disk, by one thread, and loaded by one into \
         a new engine, the file in the system's memory; it lies in the folder for temporary files"
    );
    let mut report = ExperimentReport::new(NAME, "Warm restart", words).over("million items");
    for _ in 0..bench.rounds {
        for items in &sizes {
            let (items, variant) = (*items, (*items as f64 / 1e6).to_string());
            let memory = items * ITEM_BYTES + (16 << 20);
            let (of_memc3, of_cphash) = (guira_memc3::Config::new(memory), guira_cphash::Config::new(memory));
            let memc3 = || Memc3::new(of_memc3.clone()).map_err(refused);
            let cphash = || Cphash::new(of_cphash.clone()).map_err(refused);
            let lockhash = || Lockhash::new(of_cphash.clone()).map_err(refused);
            restart(&mut report, &variant, "memc3", items, memc3)?;
            restart(&mut report, &variant, "cphash", items, cphash)?;
            restart(&mut report, &variant, "lockhash", items, lockhash)?;
        }
    }
    AIMS.iter().for_each(|aim| report.aim(aim));
    Ok(report)
}

fn refused(error: impl std::error::Error) -> BenchError {
    BenchError::Setting(error.to_string())
}

fn restart<E: Engine>(
    report: &mut ExperimentReport,
    variant: &str,
    name: &str,
    items: usize,
    make: impl Fn() -> Result<E, BenchError>,
) -> Result<(), BenchError> {
    let folder = tempfile::tempdir().map_err(refused)?;
    let path = folder.path().join("items");
    let clock = Clock::starting_at(1_700_000_000);
    let engine = make()?;
    fill(&engine, items);
    let file = MemoryFile::claim(&path).map_err(refused)?;
    let begin = Instant::now();
    let saved = file.save(&engine, &clock, NOW).map_err(refused)?;
    report.record(variant, name, metric::SAVE, begin.elapsed().as_secs_f64());
    report.record(variant, name, metric::BYTES_PER_ITEM, saved.bytes as f64 / items as f64);
    drop(engine);
    let engine = make()?;
    let file = MemoryFile::claim(&path).map_err(refused)?;
    let begin = Instant::now();
    let loaded = file.load(&engine, &clock, NOW, true).map_err(refused)?;
    report.record(variant, name, metric::LOAD, begin.elapsed().as_secs_f64());
    let all = Loaded { items: items as u64, ..Loaded::default() };
    match loaded {
        Some(loaded) if loaded == all && saved.items == all.items => Ok(()),
        other => Err(BenchError::Setting(format!(
            "{name}: of {items} items {} were saved, and loaded: {other:?}",
            saved.items
        ))),
    }
}

/// Stores every item once.
fn fill<E: Engine>(engine: &E, items: usize) {
    struct Stored;
    impl Sink for Stored {
        fn reserve(&mut self, _: usize, _: &Hit) -> &mut [u8] {
            unreachable!("nothing is read")
        }
        fn commit(&mut self, _: usize, _: &Hit) {}
        fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {}
        fn metadata(&mut self, _: usize, _: &Hit) {}
        fn answer(&mut self, _: usize, _: Answer) {}
    }
    let mut worker = engine.worker();
    let (mode, flags, expiry, value) = (StoreMode::Set, 0, Expiry::NEVER, &[7; VALUE_LEN][..]);
    let operation = Operation::Store(Store { mode, flags, expiry, cas: None, vivify: None, value });
    for from in (0..items).step_by(BATCH_LEN) {
        let keys: Vec<String> = (from..items.min(from + BATCH_LEN)).map(|number| format!("key{number:013}")).collect();
        let requests: Vec<Request<'_>> = keys
            .iter()
            .map(|name| Request { key: Key::new(name.as_bytes()).expect("sixteen bytes"), operation })
            .collect();
        engine.execute(&mut worker, NOW, &requests, &mut Stored);
    }
}
