//! Cold keys become the hottest all at once (SwitchKV, section 4.4, "hot-in").

use std::time::Duration;

use guira_loadgen::changing::Pattern;
use guira_loadgen::progress::Progress;
use guira_loadgen::reader::ChangeAt;
use guira_switched::CacheMode;

use super::bench::{Bench, Run};
use crate::error::BenchError;
use crate::report::ExperimentReport;
use crate::timeline::Timeline;

pub(super) const NAME: &str = "hot-in";

const EXPONENT: f64 = 0.99;

/// What backends tell of hot keys, and how that is called in the report.
const REPORTS: [(&str, &str); 2] = [("both", "guira"), ("periodic", "periodic reports alone")];

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    // The paper's 200 of 10,000 that are cached.
    let keys = bench.extent.scaled(200, 5);
    let words = format!(
        "{}, zipf {EXPONENT}; once what is hot is cached, {keys} cold keys become the hottest, other ones in each round; backends report the \
         hottest keys of each second and bursts, or the former alone",
        bench.words()
    );
    let mut report = ExperimentReport::new(NAME, "Cold keys become the hottest", words).over("seconds since then");
    let needed = keys as u64 * bench.rounds as u64 * 2;
    if needed > bench.keys {
        return Err(BenchError::Setting(format!(
            "{NAME} makes {keys} keys hot in each round: --keys {needed} or more"
        )));
    }
    let run = Run {
        mode: CacheMode::Switched,
        warm_up: Duration::from_millis(bench.extent.scaled(4_000, 200)),
        measure: Duration::from_millis(bench.extent.scaled(6_000, 300)),
        samples: false,
        stretch: Duration::from_millis(bench.extent.scaled(250, 50)),
        change: None,
    };
    let at_ns = run.warm_up.as_nanos() as u64;
    let run = Run { change: Some(ChangeAt { at_ns, pattern: Pattern::HotIn, keys }), ..run };
    let progress = Progress::new(NAME, bench.rounds as u64);
    let mut popularity = REPORTS.map(|_| bench.zipf(EXPONENT));
    for round in 0..bench.rounds {
        progress.at(round as u64);
        for ((reports, peer), keys) in REPORTS.into_iter().zip(&mut popularity) {
            let cluster = bench.up(&[CacheMode::Switched], &["--reports", reports])?;
            bench.warm(&cluster, keys)?;
            let read = bench.read(NAME, &cluster, keys.clone(), &run, || Ok(()))?;
            read.interval.expect_all_answered(NAME, peer)?;
            Timeline::of(&read.seen.hits, run.stretches()).record(&mut report, peer);
            *keys = read.keys;
            cluster.down()?;
        }
    }
    Ok(report)
}
