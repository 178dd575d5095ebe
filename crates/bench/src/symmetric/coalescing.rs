//! Messages that share packets (ccKVS, sections 6.4 and 8.5), beside the same cluster that sends each by itself: small values, with hot keys and without.

use super::bench::{Bench, PAPER, SMALL_LEN};
use super::contest::{Contender, Variant, hold};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "coalescing";

const UNCOALESCED: &[&str] = &["--uncoalesced"];

const NO_CACHE: &str = "no cache";
const HOT_KEYS: &str = "hot keys";

const AIM: Aim = Aim { peer: "guira", variant: Some(NO_CACHE), metric: metric::OVER_UNCOALESCED, bound: 2.0 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{}, reads alone, values of {SMALL_LEN} B; without hot keys and with so many that {:.0} % of the reads are for them; packets are writes and datagrams, as nodes count what they send",
        bench.words(),
        bench.hot_share * 100.0
    );
    let mut report = ExperimentReport::new(NAME, "Messages that share packets", words).beside(PAPER);
    for (name, hot_keys) in [(NO_CACHE, 0), (HOT_KEYS, bench.hot_keys())] {
        let contenders = [Contender::new("guira", hot_keys, &[]), Contender::new("uncoalesced", hot_keys, UNCOALESCED)];
        let variants = [Variant { name, load: bench.load(0.0, SMALL_LEN) }];
        hold(bench, &mut report, NAME, &contenders, &variants, |report, variant, driven| {
            let [coalesced, alone] = [0, 1].map(|at: usize| driven[at].interval.outcome.keys_per_s());
            report.record(variant.name, "guira", metric::OVER_UNCOALESCED, coalesced / alone);
            Ok(())
        })?;
    }
    // Section 8.5: of nine nodes, whose packets go through a switch.
    report.publish(NO_CACHE, "Base", metric::OVER_UNCOALESCED, 4.0);
    report.publish(HOT_KEYS, "ccKVS", metric::OVER_UNCOALESCED, 3.0);
    report.aim(&AIM);
    Ok(report)
}
