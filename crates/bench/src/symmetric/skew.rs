//! What hot keys on all nodes are worth under skew, and under one key that all ask for, which melts its home: beside the same cluster without.

use super::bench::{Bench, Load, SMALL_LEN};
use super::contest::{Contender, Variant, hold};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

pub(super) const NAME: &str = "skew";

const PEERS: [&str; 2] = ["guira", "no cache"];

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{}, values of {SMALL_LEN} B; reads alone, with 1 % writes, and reads of one key alone; with so many hot keys that {:.0} % of the requests are for them, and without. A node's share \
         of the CPU time is that of its process",
        bench.words(),
        bench.hot_share * 100.0
    );
    let mut report = ExperimentReport::new(NAME, "Skew, and one hot key", words);
    let contenders = [Contender::new(PEERS[0], bench.hot_keys(), &[]), Contender::new(PEERS[1], 0, &[])];
    let variants = [
        Variant { name: "zipf, read-only", load: bench.load(0.0, SMALL_LEN) },
        Variant { name: "zipf, 1 % writes", load: bench.load(0.01, SMALL_LEN) },
        Variant { name: "one key, read-only", load: Load { keys: 1, ..bench.load(0.0, SMALL_LEN) } },
    ];
    hold(bench, &mut report, NAME, &contenders, &variants, |report, variant, driven| {
        let [with, without] = [0, 1].map(|at: usize| driven[at].interval.outcome.keys_per_s());
        report.record(variant.name, "guira", metric::OVER_NO_CACHE, with / without);
        for (peer, driven) in PEERS.iter().zip(driven) {
            let nodes_cpu_s = &driven.counted.nodes_cpu_s;
            let all_s = nodes_cpu_s.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            for (node, cpu_s) in (1..).zip(nodes_cpu_s) {
                report.record(variant.name, &format!("{peer}, node {node}"), metric::NODE_CPU, cpu_s / all_s);
            }
        }
        Ok(())
    })?;
    Ok(report)
}
