//! Messages from node to node for each request, read-only, where 65 % of the reads are for hot keys (ccKVS, section 8.2), beside the same cluster without hot keys.
//!
//! Always true: what is compared is counted over whole requests, since nodes are asked while nobody asks them anything; a read of a hot key costs no message, or the run ends.

use std::sync::Arc;

use guira_loadgen::progress::Progress;
use guira_loadgen::script::Script;

use super::bench::{Bench, SMALL_LEN};
use super::contest::{Contender, Contestant, record};
use super::counted::Sample;
use crate::error::BenchError;
use crate::experiment::order;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "messages";

/// Each message by itself, as they are counted.
const UNCOALESCED: &[&str] = &["--uncoalesced"];

/// What chance, and an epoch's short memory, leave out of the hot set is made up for by so many more keys, as often as that.
const MORE: f64 = 1.25;
const TRIES_MAX: usize = 4;

const READ_ONLY: &str = "read-only";

const AIMS: [Aim; 2] = [
    Aim { peer: "guira", variant: None, metric: metric::MESSAGES_OVER_NO_CACHE, bound: 0.37 },
    // The read and its answer; what was lost is sent again.
    Aim { peer: "guira", variant: None, metric: metric::MESSAGES_PER_MISS, bound: 2.001 },
];

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "{}, reads alone, values of {SMALL_LEN} B, each message in a packet of its own; as many keys are hot as it takes for {:.0} % of the reads to be answered where they are asked, or for \
         what chance leaves of that; messages are requests to other nodes, their answers, and what keeps hot keys the same, as nodes count what they send: before clients come and after they are \
         gone",
        bench.words(),
        bench.hot_share * 100.0
    );
    let mut report = ExperimentReport::new(NAME, "Messages between nodes for each request", words);
    let script = bench.script(NAME, &bench.load(0.0, SMALL_LEN))?;
    let without = Contestant::up(bench, NAME, &Contender::new("no cache", 0, UNCOALESCED), SMALL_LEN)?;
    without.cluster.sample()?.sent()?;
    let (with, hot_keys) = warmed(bench, &script)?;
    report.notes.push(format!("{hot_keys} keys are hot"));
    let contestants = [with, without];
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        let mut per_request = [0.0; 2];
        for at in order(contestants.len(), round) {
            let Contestant { peer, cluster, .. } = &contestants[at];
            let before = cluster.quiet_sample()?;
            let mut driven = bench.drive(NAME, cluster, &script)?;
            // Of whole requests, those of the warm-up included.
            let counted = cluster.quiet_sample()?.since(&before)?;
            let sent = counted.sent()?;
            expect_only_misses_cost(&counted)?;
            let per_miss = (sent.requests + sent.answers) as f64 / (counted.forwarded as f64).max(1.0);
            per_request[at] = counted.of_asked(sent.for_requests());
            // All of the report's but CPU time, which is of the interval.
            let cpu = (driven.counted.nodes_cpu_s.clone(), driven.counted.cpu_s);
            driven.counted = Sample { nodes_cpu_s: cpu.0, cpu_s: cpu.1, ..counted };
            record(&mut report, READ_ONLY, peer, &driven);
            report.record(READ_ONLY, peer, metric::MESSAGES_PER_MISS, per_miss);
        }
        let [with, without] = per_request;
        report.record(READ_ONLY, "guira", metric::MESSAGES_OVER_NO_CACHE, with / without.max(f64::MIN_POSITIVE));
    }
    contestants.into_iter().try_for_each(|contestant| contestant.cluster.down())?;
    AIMS.iter().for_each(|aim| report.aim(aim));
    Ok(report)
}

/// A cluster with as many hot keys as it takes; how many that are.
fn warmed(bench: &Bench, script: &Arc<Script>) -> Result<(Contestant, u64), BenchError> {
    let mut hot_keys = bench.hot_keys();
    for left in (0..bench.extent.scaled(TRIES_MAX, 1)).rev() {
        let with = Contestant::up(bench, NAME, &Contender::new("guira", hot_keys, UNCOALESCED), SMALL_LEN)?;
        bench.warm(NAME, &with.cluster, script)?;
        let counted = bench.drive(NAME, &with.cluster, script)?.counted;
        if left == 0 || counted.of_asked(counted.hits) >= bench.hot_share {
            return Ok((with, hot_keys));
        }
        with.cluster.down()?;
        hot_keys = ((hot_keys as f64 * MORE) as u64).clamp(hot_keys + 1, bench.keys.max(hot_keys + 1));
    }
    Err(BenchError::Invalid(format!("{NAME}: there was no try")))
}

/// Nodes have sent no more requests than one for each read that they say they have forwarded, and again for those they say so of, and no more answers than requests. In another view what is
/// under way is told again, uncounted: then nothing can be said.
fn expect_only_misses_cost(counted: &Sample) -> Result<(), BenchError> {
    let sent = counted.sent()?;
    if counted.epoch > 0 || (sent.requests <= counted.forwarded + counted.resent && sent.answers <= sent.requests) {
        return Ok(());
    }
    Err(BenchError::Invalid(format!(
        "{NAME}: for {} reads, {} of them forwarded and {} of these again, nodes have sent {} requests and {} answers: some cost messages that should not",
        counted.asked(),
        counted.forwarded,
        counted.resent,
        sent.requests,
        sent.answers
    )))
}

#[cfg(test)]
mod tests {
    use super::super::counted::Sent;
    use super::*;

    #[test]
    fn a_hit_that_costs_a_message_is_noticed() {
        let counted = |requests, answers| Sample {
            hits: 65,
            at_home: 12,
            forwarded: 23,
            resent: 1,
            sent: Some(Sent { requests, answers, ..Sent::default() }),
            ..Sample::default()
        };
        assert!(expect_only_misses_cost(&counted(24, 23)).is_ok());
        for (requests, answers) in [(25, 23), (24, 25)] {
            let error = expect_only_misses_cost(&counted(requests, answers)).expect_err("too many").to_string();
            assert!(!error.contains('\n'), "{error}");
            let in_another_view = Sample { epoch: 1, ..counted(requests, answers) };
            assert!(expect_only_misses_cost(&in_another_view).is_ok());
        }
    }
}
