//! How much is served, by skew, for each way to use the cache (SwitchKV, Figures 9 and 10).

use std::time::Duration;

use guira_loadgen::progress::Progress;
use guira_switched::CacheMode;

use super::bench::{Bench, Read, Run};
use crate::error::BenchError;
use crate::experiment::order;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::server::bench::QUANTILES;

pub(super) const NAME: &str = "modes";

/// The most skewed first: what is then cached is as hot under less skew.
const EXPONENTS: [f64; 4] = [0.99, 0.95, 0.9, 0.0];

const MODES: [CacheMode; 4] = [CacheMode::Switched, CacheMode::None, CacheMode::LookAside, CacheMode::LookThrough];

/// Where [`MODES`] has these.
const SWITCHED: usize = 0;
const NO_CACHE: usize = 1;

const AIM: Aim = Aim { peer: "guira", variant: Some("zipf 0.99"), metric: metric::OVER_NO_CACHE, bound: 5.0 };

fn peer(mode: CacheMode) -> &'static str {
    match mode {
        CacheMode::Switched => "guira",
        CacheMode::None => "no cache",
        other => other.name(),
    }
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{}; for each skew the cache is filled first by what backends report; then in turns the gateway that goes by rules and those that ask no \
         cache node, or the cache node first (look-aside: and then the backend; look-through: which asks the backend)",
        bench.words()
    );
    let mut report = ExperimentReport::new(NAME, "Throughput by skew", words).over("zipf exponent");
    let cluster = bench.up(&MODES, &[])?;
    let progress = Progress::new(NAME, (EXPONENTS.len() * bench.rounds) as u64);
    let run = Run {
        mode: CacheMode::Switched,
        // What the mode before has left waiting is done by then.
        warm_up: bench
            .extent
            .scaled(Duration::from_millis(1_500).max(bench.backlog().mul_f64(1.5)), Duration::from_millis(100)),
        measure: bench.measure,
        samples: true,
        stretch: bench.measure,
        change: None,
    };
    for (at, exponent) in EXPONENTS.into_iter().enumerate() {
        let keys = bench.zipf(exponent);
        let variant = format!("zipf {exponent}");
        bench.warm(&cluster, &keys)?;
        for round in 0..bench.rounds {
            progress.at((at * bench.rounds + round) as u64);
            let mut rates = [0.0; MODES.len()];
            // None of them is always the first, or behind the same other one.
            for at in order(MODES.len(), round) {
                let (mode, rate) = (MODES[at], &mut rates[at]);
                let read = bench.read(NAME, &cluster, keys.clone(), &Run { mode, ..run }, || Ok(()))?;
                *rate = read.interval.outcome.keys_per_s();
                record(bench, &mut report, &variant, mode, &read)?;
            }
            report.record(&variant, "guira", metric::OVER_NO_CACHE, rates[SWITCHED] / rates[NO_CACHE]);
        }
    }
    cluster.down()?;
    report.aim(&AIM);
    Ok(report)
}

fn record(
    bench: &Bench,
    report: &mut ExperimentReport,
    variant: &str,
    mode: CacheMode,
    read: &Read,
) -> Result<(), BenchError> {
    let (interval, counted, peer) = (&read.interval, &read.counted, peer(mode));
    interval.expect_all_answered(NAME, mode.name())?;
    let (keys, elapsed_s) = (interval.outcome.tally.keys(), interval.outcome.elapsed_s);
    interval.record(report, variant, peer, keys);
    let backends_per_s = f64::from(bench.backends) * bench.limit.map_or(f64::INFINITY, |limit| limit.per_s() as f64);
    let by_backends = counted.operations.iter().sum::<u64>() as f64 / elapsed_s;
    report.record(variant, peer, metric::BACKENDS_BUSY, by_backends / backends_per_s);
    report.record(variant, peer, metric::CACHE_HITS, counted.hits as f64 / keys as f64);
    if mode != CacheMode::None {
        report.record(variant, peer, metric::PASSED_ON, counted.passed_on as f64 / keys as f64);
    }
    report.record(variant, peer, metric::BUSIEST_BACKEND, counted.busiest_over_mean());
    report.record(variant, peer, metric::CACHED, counted.items as f64);
    interval.record_latencies(report, variant, peer, &QUANTILES[..2]);
    Ok(())
}
