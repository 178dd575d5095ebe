//! The cache node is killed while clients read: what that costs, and for how long.

use std::time::Duration;

use guira_loadgen::progress::Progress;
use guira_switched::CacheMode;

use super::bench::{Bench, Run};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::timeline::{Timeline, WHOLE};

pub(super) const NAME: &str = "killed-cache";

const EXPONENT: f64 = 0.99;

const AIM: Aim = Aim { peer: "guira", variant: Some(WHOLE), metric: metric::FAILED, bound: 0.0 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{}, zipf {EXPONENT}; once what is hot is cached the cache node is killed (-9), which is started again a second later, with nothing; beside \
         the same without a cache",
        bench.words()
    );
    let mut report = ExperimentReport::new(NAME, "The cache node is killed", words).over("seconds since then");
    let run = Run {
        mode: CacheMode::Switched,
        warm_up: Duration::from_millis(bench.extent.scaled(4_000, 200)),
        measure: Duration::from_millis(bench.extent.scaled(12_000, 1_500)),
        samples: false,
        stretch: Duration::from_millis(bench.extent.scaled(500, 100)),
        change: None,
    };
    let cluster = bench.up(&[CacheMode::Switched, CacheMode::None], &[])?;
    let keys = bench.zipf(EXPONENT);
    let mut failed = 0;
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        bench.warm(&cluster, &keys)?;
        let read = bench.read(NAME, &cluster, keys.clone(), &run, || cluster.kill_caches())?;
        Timeline::of(&read.seen.hits, run.stretches()).record(&mut report, "guira");
        failed += read.seen.failed;
        let uncached = Run { mode: CacheMode::None, measure: bench.measure, stretch: bench.measure, ..run };
        let uncached = bench.read(NAME, &cluster, keys.clone(), &uncached, || Ok(()))?;
        report.record(WHOLE, "no cache", metric::THROUGHPUT, uncached.interval.outcome.keys_per_s());
    }
    cluster.down()?;
    // Of all rounds together.
    report.record(WHOLE, "guira", metric::FAILED, failed as f64);
    report.aim(&AIM);
    Ok(report)
}
