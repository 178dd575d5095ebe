//! One run as a line of a file: what was varied, and what came of it.
//!
//! Always true: what is written is read back as it was, so that figures are drawn of kept rows as of new ones.

use guira_loadgen::changing::Pattern;
use guira_switched::{CacheMode, backend::Reports};
use serde::{Deserialize, Serialize};

use super::{Asked, Change, LoadReport, LoadScenario, Offer, RuleOrder, measure};

/// One run. Rates are the paper's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which experiment it belongs to.
    pub experiment: String,
    /// Who is asked first.
    pub cache_mode: CacheMode,
    /// Backends.
    pub backends: u16,
    /// What each can do, requests a second.
    pub backend_per_s: f64,
    /// Cache nodes.
    pub caches: u16,
    /// Parts of each.
    #[serde(default = "one")]
    pub cache_threads: u16,
    /// Their loads are made even: some have keys of others, and backends change theirs.
    #[serde(default)]
    pub balances: bool,
    /// What each can do with all of its parts, requests a second.
    pub cache_per_s: f64,
    /// Items of all cache nodes together.
    pub cache_items: usize,
    /// Of the zipf distribution; 0 is uniform.
    pub exponent: f64,
    /// So many of the hottest keys are asked for; `None`: all.
    pub asked_hottest: Option<u64>,
    /// Requests a second that are asked; `None`: as many as are answered but for half to one in a hundred.
    pub offered_per_s: Option<f64>,
    /// The share of writes.
    pub write_share: f64,
    /// They are of popular keys, and not of any.
    pub writes_by_popularity: bool,
    /// What backends tell of hot keys.
    pub reports: Reports,
    /// Rules that the switch takes each second.
    pub rules_per_s: u32,
    /// Those that it makes while it is measured, if not all at once.
    #[serde(default)]
    pub switch_per_s: Option<f64>,
    /// Which come first.
    pub rule_order: RuleOrder,
    /// How long a rule may stay after its key has left the cache, seconds.
    pub rule_deletion_delay_s: f64,
    /// How popularity changes.
    pub change: Option<Changing>,
    /// Rates were divided by this in the simulation; latencies are those of that scale.
    pub scale: f64,
    /// Everything was drawn from it.
    pub seed: u64,
    /// What came of it.
    pub report: LoadReport,
}

/// Rows were kept before there were others.
fn one() -> u16 {
    1
}

/// A [`Change`], in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Changing {
    /// How.
    pub pattern: Pattern,
    /// So many keys.
    pub keys: usize,
    /// The first time, from the beginning of measuring.
    pub first_s: f64,
    /// How often from then on.
    pub every_s: f64,
}

impl From<Change> for Changing {
    fn from(change: Change) -> Self {
        let Change { pattern, keys, first, every } = change;
        Self { pattern, keys, first_s: first.as_s(), every_s: every.as_s() }
    }
}

impl Row {
    /// Runs a scenario.
    pub(super) fn run(experiment: &str, scenario: &LoadScenario) -> Self {
        let is_cached = scenario.cache_mode != CacheMode::None;
        Self {
            experiment: experiment.to_owned(),
            cache_mode: scenario.cache_mode,
            backends: scenario.backends,
            backend_per_s: scenario.backend_per_s,
            caches: if is_cached { scenario.caches } else { 0 },
            cache_threads: scenario.cache_threads.get(),
            balances: is_cached && scenario.balances,
            cache_per_s: scenario.cache_per_s,
            cache_items: if is_cached { scenario.cache_items } else { 0 },
            exponent: scenario.exponent,
            asked_hottest: match scenario.asked {
                Asked::All => None,
                Asked::Hottest(len) => Some(len),
            },
            offered_per_s: match scenario.offer {
                Offer::Most => None,
                Offer::PerSecond(per_s) => Some(per_s),
            },
            write_share: scenario.writes.map_or(0.0, |writes| writes.share),
            writes_by_popularity: scenario.writes.is_some_and(|writes| writes.by_popularity),
            reports: scenario.reports,
            rules_per_s: scenario.rules_per_s,
            switch_per_s: scenario.switch_per_s.is_finite().then_some(scenario.switch_per_s),
            rule_order: scenario.rule_order,
            rule_deletion_delay_s: scenario.rule_deletion_delay.as_s(),
            change: scenario.change.map(Changing::from),
            scale: scenario.scale,
            seed: scenario.seed,
            report: measure(scenario),
        }
    }

    /// The run of another mode that is alike but for that: of so many backends, as many cache nodes if it has any, the same load and seed.
    pub(super) fn beside<'rows>(&self, mode: CacheMode, rows: &[&'rows Row]) -> Option<&'rows Row> {
        let is_alike = |other: &Row| {
            other.cache_mode == mode
                && (other.backends, other.exponent, other.seed) == (self.backends, self.exponent, self.seed)
                && (other.offered_per_s, other.change) == (self.offered_per_s, self.change)
                && (mode == CacheMode::None || other.caches == self.caches)
        };
        rows.iter().copied().find(|other| is_alike(other))
    }

    /// Times the throughput of the run beside it: that which lasts, where popularity changes.
    pub(super) fn times(&self, mode: CacheMode, rows: &[&Row]) -> Option<f64> {
        Some(self.lasting_per_s() / self.beside(mode, rows)?.lasting_per_s())
    }

    /// Keys that change, each second.
    pub(super) fn changes_per_s(&self) -> f64 {
        self.change.map_or(0.0, |change| change.keys as f64 / change.every_s)
    }
}

/// Rows for tests, of numbers that a decimal holds.
#[cfg(test)]
pub(super) mod example {
    use super::super::Sample;
    use super::*;

    /// A switched cluster that answers so much.
    pub(in super::super) fn answering(experiment: &str, answered_per_s: f64) -> Row {
        let report = LoadReport { answered_per_s, backends_per_s: vec![2.5, 1.5], ..LoadReport::default() };
        Row {
            experiment: experiment.to_owned(),
            cache_mode: CacheMode::Switched,
            backends: 2,
            backend_per_s: 4.0,
            caches: 1,
            cache_threads: 1,
            balances: true,
            cache_per_s: 100.0,
            cache_items: 10,
            exponent: 0.99,
            asked_hottest: None,
            offered_per_s: None,
            write_share: 0.0,
            writes_by_popularity: false,
            reports: Reports::Both,
            rules_per_s: 400,
            switch_per_s: None,
            rule_order: RuleOrder::HottestFirst,
            rule_deletion_delay_s: 2.0,
            change: None,
            scale: 20.0,
            seed: 1,
            report,
        }
    }

    /// One that answers so much in each tenth of a second, and whose keys change after two of them.
    pub(in super::super) fn changing(experiment: &str, per_s: &[f64]) -> Row {
        let mut row = answering(experiment, 1.0);
        let sample = |(at, per_s): (u32, &f64)| Sample {
            at_s: f64::from(at) / 10.0,
            answered_per_s: *per_s,
            ..Sample::default()
        };
        row.report.samples = (1..).zip(per_s).map(sample).collect();
        row.change = Some(Changing { pattern: Pattern::HotIn, keys: 200, first_s: 0.2, every_s: 4.0 });
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_back_as_it_was() {
        let mut row = example::changing("random", &[2.5, 1.25]);
        for pattern in [Pattern::HotIn, Pattern::Random { of: 10 }] {
            row.change = row.change.map(|change| Changing { pattern, ..change });
            let line = serde_json::to_string(&row).expect("a line");
            assert_eq!(serde_json::from_str::<Row>(&line).expect("a row"), row, "{line}");
        }
    }

    #[test]
    fn what_is_compared_is_alike_but_for_its_mode() {
        let ours = example::answering("skew", 8.0);
        let theirs = Row { cache_mode: CacheMode::None, ..example::answering("skew", 2.0) };
        let others = [Row { seed: 2, ..theirs.clone() }, Row { exponent: 0.9, ..theirs.clone() }, theirs];
        let rows: Vec<&Row> = others.iter().collect();
        assert_eq!(ours.times(CacheMode::None, &rows), Some(4.0));
        assert_eq!(ours.times(CacheMode::None, &rows[..2]), None);
        assert_eq!(ours.times(CacheMode::LookAside, &rows), None);
        let looks_aside = |caches| Row { cache_mode: CacheMode::LookAside, caches, ..example::answering("skew", 4.0) };
        let (one, two) = (looks_aside(1), looks_aside(2));
        assert_eq!(ours.times(CacheMode::LookAside, &[&two]), None, "two cache nodes are no match for one");
        assert_eq!(ours.times(CacheMode::LookAside, &[&two, &one]), Some(2.0));
    }
}
