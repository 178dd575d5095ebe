//! What writes cost (ccKVS, section 8.3): Lin beside SC, and beside the cluster without hot keys, which writes a key at its home and nowhere else.

use super::bench::{Bench, PAPER};
use super::contest::{Contender, Variant, hold};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "consistency";

/// Bytes of a value, as where the paper compares the two.
const VALUE_LEN: u32 = 1_024;

/// The paper's, and the issue's.
const AIM_AT: &str = "1 % writes";

const WRITES: [(&str, f64); 4] = [("0 % writes", 0.0), ("0.2 % writes", 0.002), (AIM_AT, 0.01), ("5 % writes", 0.05)];

const AIM: Aim = Aim { peer: "guira", variant: Some(AIM_AT), metric: metric::OVER_SC, bound: 0.85 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{}, values of {VALUE_LEN} B, from reads alone to 5 % writes; with so many hot keys that {:.0} % of the requests are for them, with Lin (guira) and with SC, and without",
        bench.words(),
        bench.hot_share * 100.0
    );
    let mut report = ExperimentReport::new(NAME, "What writes cost", words).over("writes (%)").beside(PAPER);
    let hot_keys = bench.hot_keys();
    let contenders = [
        Contender::new("guira", hot_keys, &["--consistency", "lin"]),
        Contender::new("sc", hot_keys, &["--consistency", "sc"]),
        Contender::new("no cache", 0, &[]),
    ];
    let variants = WRITES.map(|(name, writes)| Variant { name, load: bench.load(writes, VALUE_LEN) });
    hold(bench, &mut report, NAME, &contenders, &variants, |report, variant, driven| {
        let [lin, sc, without] = [0, 1, 2].map(|at: usize| driven[at].interval.outcome.keys_per_s());
        report.record(variant.name, "guira", metric::OVER_SC, lin / sc);
        report.record(variant.name, "guira", metric::OVER_NO_CACHE, lin / without);
        Ok(())
    })?;
    // Section 1: of nine nodes, and values of 40 B.
    report.publish(AIM_AT, "Lin", metric::OVER_NO_CACHE, 2.2);
    report.aim(&AIM);
    Ok(report)
}
