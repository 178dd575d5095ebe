//! Clusters that are compared, by workloads: all of them are up at once, and take turns.
//!
//! Always true: within a round each is asked the same, for as long, and none of them is always the first or behind the same other one; those that nobody asks anything only keep their leases.

use guira_loadgen::progress::Progress;

use super::bench::{Bench, Driven, Load};
use super::nodes::Nodes;
use crate::error::BenchError;
use crate::experiment::order;
use crate::metric;
use crate::report::ExperimentReport;
use crate::server::bench::QUANTILES;

/// A cluster that is compared.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    /// Name in the report.
    pub peer: &'static str,
    /// Keys that all nodes have, at most.
    pub hot_keys: u64,
    /// Threads of a node that serve clients.
    pub threads: u16,
    /// Further flags.
    pub flags: &'static [&'static str],
}

impl Contender {
    /// One with so many hot keys, and with a flag or some.
    pub fn new(peer: &'static str, hot_keys: u64, flags: &'static [&'static str]) -> Self {
        Self { peer, hot_keys, threads: 1, flags }
    }

    /// All its flags.
    pub fn flags(&self) -> Vec<String> {
        let (hot_keys, threads) = (self.hot_keys.to_string(), self.threads.to_string());
        let own = ["--hot-keys", &hot_keys, "--threads", &threads];
        own.into_iter().chain(self.flags.iter().copied()).map(str::to_owned).collect()
    }
}

/// What is asked of them, and how that is called.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub name: &'static str,
    pub load: Load,
}

/// A cluster that is up, with all keys in it.
pub(super) struct Contestant {
    pub peer: &'static str,
    pub cluster: Nodes,
    has_hot_keys: bool,
}

impl Contestant {
    /// Brings it up.
    pub fn up(
        bench: &Bench,
        experiment: &'static str,
        contender: &Contender,
        value_len: u32,
    ) -> Result<Self, BenchError> {
        let (peer, has_hot_keys) = (contender.peer, contender.hot_keys > 0);
        let cluster = Nodes::up(&bench.setup(bench.nodes, bench.epoch(), contender.flags()))?;
        bench.fill(experiment, &cluster, value_len)?;
        Ok(Self { peer, cluster, has_hot_keys })
    }
}

/// Has all contenders take turns at all variants, and records what each has done; `compare` is called at the end of each round, with what came of each contender, in their order.
pub(super) fn hold(
    bench: &Bench,
    report: &mut ExperimentReport,
    experiment: &'static str,
    contenders: &[Contender],
    variants: &[Variant],
    mut compare: impl FnMut(&mut ExperimentReport, &Variant, &[Driven]) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let value_len = variants.first().map_or(0, |variant| variant.load.value_len);
    let up = |contender| Contestant::up(bench, experiment, contender, value_len);
    let contestants: Vec<Contestant> = contenders.iter().map(up).collect::<Result<_, _>>()?;
    let progress = Progress::new(experiment, (variants.len() * bench.rounds) as u64);
    for (at, variant) in variants.iter().enumerate() {
        let script = bench.script(experiment, &variant.load)?;
        for contestant in contestants.iter().filter(|contestant| contestant.has_hot_keys) {
            bench.warm(experiment, &contestant.cluster, &script)?;
        }
        for round in 0..bench.rounds {
            progress.at((at * bench.rounds + round) as u64);
            let mut driven: Vec<Option<Driven>> = contestants.iter().map(|_| None).collect();
            for at in order(contestants.len(), round) {
                let Contestant { peer, cluster, .. } = &contestants[at];
                let one = bench.drive(experiment, cluster, &script)?;
                record(report, variant.name, peer, &one);
                driven[at] = Some(one);
            }
            let driven: Vec<Driven> = driven.into_iter().flatten().collect();
            compare(report, variant, &driven)?;
        }
    }
    contestants.into_iter().try_for_each(|contestant| contestant.cluster.down())
}

/// Records what is told of each cluster.
pub(super) fn record(report: &mut ExperimentReport, variant: &str, peer: &str, driven: &Driven) {
    let Driven { interval, counted } = driven;
    interval.record(report, variant, peer, interval.outcome.tally.keys());
    report.record(variant, peer, metric::HOT_HITS, counted.of_asked(counted.hits));
    report.record(variant, peer, metric::FORWARDED, counted.of_asked(counted.forwarded));
    // Of a binary that does not tell them they are not in the report.
    if let Some(sent) = counted.sent {
        report.record(variant, peer, metric::MESSAGES_PER_REQUEST, counted.of_asked(sent.for_requests()));
        report.record(variant, peer, metric::CONSISTENCY_MESSAGES, counted.of_asked(sent.consistency));
        report.record(
            variant,
            peer,
            metric::PACKETS_PER_MESSAGE,
            sent.packets as f64 / (sent.messages as f64).max(1.0),
        );
    }
    let promoted = counted.promotions as f64 / interval.outcome.elapsed_s;
    report.record(variant, peer, metric::PROMOTED, promoted);
    report.record(variant, peer, metric::BUSIEST_NODE, counted.busiest_over_mean());
    interval.record_latencies(report, variant, peer, &QUANTILES[..2]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_command_line() {
        let contender = Contender::new("sc", 7, &["--consistency", "sc"]);
        assert_eq!(contender.flags().join(" "), "--hot-keys 7 --threads 1 --consistency sc");
    }
}
