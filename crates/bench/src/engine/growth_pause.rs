//! How long a request waits while the table grows under it: one thread stores new keys, another reads those that are there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use guira_loadgen::affinity;
use guira_loadgen::latency::Latencies;

use super::{
    BenchError, ExperimentReport,
    contender::{Contender, Player, WRITE},
    in_process::Bench,
    metric,
};
use crate::peers::key::{self, Draw, Key};

pub(super) const NAME: &str = "growth-pause";

const QUANTILES: [(metric::Metric, f64); 4] =
    [(metric::P50, 0.5), (metric::P99, 0.99), (metric::P9999, 0.9999), (metric::LONGEST, 1.0)];

/// The standard library's table, which moves all keys at once when it is full, behind its lock.
#[derive(Default)]
struct LockedMap(RwLock<HashMap<Key, [u64; 4]>>);

impl LockedMap {
    fn player(&self) -> Player<'_> {
        Box::new(|draws| {
            for draw in draws {
                let number = u64::from(draw & !WRITE);
                if draw & WRITE == 0 {
                    let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
                    std::hint::black_box(map.get(&key::numbered(number)).copied());
                } else {
                    let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
                    map.insert(key::numbered(number), [number; 4]);
                }
            }
            0
        })
    }
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let keys: u32 = bench.extent.scaled(4_000_000, 20_000);
    let words = format!(
        "one thread stores {keys} new keys of 16 B with 32 B values into an empty cache, then stores them again; another one \
         reads keys that are there; every request is timed; no background thread helps with the growth"
    );
    let mut report = ExperimentReport::new(NAME, "How long a request waits while the table grows", words);
    for _ in 0..bench.rounds {
        let engine = Contender::memc3_on_small_pages(bench.extent.scaled(1 << 30, 8 << 20))?;
        measure(bench, &mut report, "guira", keys, &|| engine.player())?;
        let map = LockedMap::default();
        measure(bench, &mut report, "HashMap behind a lock", keys, &|| map.player())?;
    }
    report.notes.push("without huge pages".into());
    report.notes.push("the longest wait includes what the operating system takes from a thread".into());
    Ok(report)
}

fn measure<'p>(
    bench: &Bench,
    report: &mut ExperimentReport,
    name: &str,
    keys: u32,
    player: &(dyn Fn() -> Player<'p> + Sync),
) -> Result<(), BenchError> {
    for (phase, known) in [("growing", 0), ("grown", keys)] {
        let (stored, is_over) = (AtomicU32::new(known), AtomicBool::new(false));
        let pin = |core: usize| {
            affinity::pin(core).map_err(|source| BenchError::Load { peer: name.into(), experiment: NAME, source })
        };
        let store = || {
            let _pinned = pin(bench.cores[0])?;
            let (mut player, mut latencies) = (player(), Latencies::default());
            for number in 0..keys {
                timed(&mut latencies, || player(&[number | WRITE]));
                // Release: pairs with the Acquire of the reader; the key is there.
                stored.fetch_max(number + 1, Ordering::Release);
            }
            is_over.store(true, Ordering::Relaxed);
            Ok::<_, BenchError>(latencies)
        };
        let read = |core: usize| {
            let _pinned = pin(core)?;
            let (mut player, mut latencies, mut draw) = (player(), Latencies::default(), Draw::new(1));
            while !is_over.load(Ordering::Relaxed) {
                let there = stored.load(Ordering::Acquire);
                if there > 0 {
                    let number = draw.below(there as usize) as u32;
                    timed(&mut latencies, || player(&[number]));
                }
            }
            Ok::<_, BenchError>(latencies)
        };
        let (stores, reads) = std::thread::scope(|scope| {
            let reader = bench.cores.get(1).map(|core| scope.spawn(|| read(*core)));
            let stores = store();
            // Also if storing failed, or the reader would never end.
            is_over.store(true, Ordering::Relaxed);
            let reads = reader.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            (stores, reads)
        });
        record(report, &format!("SET, {phase}"), name, &stores?);
        if let Some(reads) = reads {
            record(report, &format!("GET, {phase}"), name, &reads?);
        }
    }
    Ok(())
}

fn timed(latencies: &mut Latencies, request: impl FnOnce() -> u64) {
    let begin = Instant::now();
    std::hint::black_box(request());
    latencies.record_ns(begin.elapsed().as_nanos() as u64);
}

fn record(report: &mut ExperimentReport, variant: &str, name: &str, latencies: &Latencies) {
    for (metric, quantile) in QUANTILES {
        report.record(variant, name, metric, latencies.quantile_us(quantile));
    }
}
