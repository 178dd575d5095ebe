//! A shard that all threads of a node share (CRCW) beside shards that are each a thread's own (EREW) (ccKVS, sections 6.1 and 8.2).

use super::bench::{Bench, SMALL_LEN};
use super::contest::{Contender, Variant, hold};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

pub(super) const NAME: &str = "shard";

/// With one thread both are the same.
const THREADS: u16 = 2;

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{}, values of {SMALL_LEN} B, reads alone and with 5 % writes; no hot keys, {THREADS} threads a node; a shard that all of them share (crcw: guira), and one that each has its part of (erew)",
        bench.words()
    );
    let mut report = ExperimentReport::new(NAME, "Shards that threads share, and their own", words);
    let contender = |peer, flags| Contender { threads: THREADS, ..Contender::new(peer, 0, flags) };
    let contenders = [contender("guira", &["--shard", "crcw"][..]), contender("erew", &["--shard", "erew"][..])];
    let variants = [("read-only", 0.0), ("5 % writes", 0.05)];
    let variants = variants.map(|(name, writes)| Variant { name, load: bench.load(writes, SMALL_LEN) });
    hold(bench, &mut report, NAME, &contenders, &variants, |report, variant, driven| {
        let [shared, own] = [0, 1].map(|at: usize| driven[at].interval.outcome.keys_per_s());
        report.record(variant.name, "guira", metric::OVER_EREW, shared / own);
        Ok(())
    })?;
    Ok(report)
}
