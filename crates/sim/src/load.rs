//! How much a switched cluster serves, and how soon: the cores in virtual time with rate-limited nodes, for the paper's experiments
//! (SwitchKV, NSDI 2016, section 4).
//!
//! ```text
//! clients --> Gateway --hop--> [queue] Backend, CacheNode --hop--> Gateway --> clients
//! ```
//! *Real*: gateways, backends, cache nodes and the controller, which are the cores that serve; every message between them, encoded; how
//! keys are found to be hot, fetched, admitted, evicted and routed, at the rate that a switch takes rules.
//!
//! *Modelled*:
//! - a request takes `1/rate` of its node's time, one after the other, whatever it is: a read, a write, a miss that is passed on. What
//!   members tell each other beside requests takes none, nor does a gateway;
//! - a queue before each node; what finds no room is lost, and its client is told so in the end by the gateway, which does not ask again;
//! - the network is perfect: the same time for each hop, in order;
//! - a store answers at once, and has every key there can be: a value is its key, repeated.
//!
//! *Throughput* is what the paper's is ([`Offer::Most`]): clients ask so fast that between 0.5 % and 1 % is lost, so that one node at its
//! limit is what limits all. *Scale*: every rate is told as of the paper's, and divided by [`LoadScenario::scale`] where it is simulated,
//! so that long runs have fewer events; times (segments of trackers, leases, hops) stay as they are, and so do rules a second. The fewer
//! requests a segment has, the more of what trackers see in it is chance: at a twentieth periodic reports bring hundreds of keys a second
//! that are no hotter than what they replace, and whose rules take all that the switch can do; at a quarter, some dozens.
//!
//! ```text
//! experiments (a figure's scenarios) --> measure --> Row --> kept (NAME.jsonl) --> figures (SVG, PNG)
//!                                                     \----> aims (met, missed)
//! ```
//! Always true: a run is a function of its scenario; every request is answered once.

pub mod aims;
mod cluster;
pub mod experiments;
pub(crate) mod figures;
pub mod kept;
mod key_name;
mod measuring;
mod members;
mod pace;
mod row;
mod station;
#[cfg(test)]
mod tests;
mod timeline;
mod warming;

use std::num::NonZero;

use guira_item::Span;
pub use guira_loadgen::changing::Pattern;
use guira_switched::{CacheMode, backend::Reports};
pub use row::{Changing, Row};
use serde::{Deserialize, Serialize};

/// How much is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Offer {
    /// As much as is answered but for half to one in a hundred.
    Most,
    /// So many requests a second.
    PerSecond(f64),
}

/// Which keys are asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Asked {
    /// All, by their popularity.
    All,
    /// Only the so many most popular ones, by their popularity.
    Hottest(u64),
}

/// What is written, beside what is read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Writes {
    /// The share of requests that are writes.
    pub share: f64,
    /// By the popularity of keys; or any key, each as likely.
    pub by_popularity: bool,
}

/// Which rules a switch is given first, and how many are asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleOrder {
    /// Guira's: those of the hottest keys, and reports leave a quarter of the switch's time to bursts.
    #[default]
    HottestFirst,
    /// The paper's: those that came first, and reports take what they want.
    AsTheyCome,
}

/// A change of popularity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// How.
    pub pattern: Pattern,
    /// So many keys.
    pub keys: usize,
    /// The first time: so long after measuring has begun.
    pub first: Span,
    /// How often from then on.
    pub every: Span,
}

/// A cluster, and what it is asked.
#[derive(Clone, Debug)]
pub struct LoadScenario {
    /// Who is asked first.
    pub cache_mode: CacheMode,
    /// Backends.
    pub backends: u16,
    /// Cache nodes; each has its share of the backends.
    pub caches: u16,
    /// Parts of each.
    pub cache_threads: NonZero<u16>,
    /// Their loads are made even: some have keys of others (two choices), and backends change theirs.
    pub balances: bool,
    /// Requests a second that a backend can do.
    pub backend_per_s: f64,
    /// Requests a second that a cache node can do, with all of its parts.
    pub cache_per_s: f64,
    /// Items of all cache nodes together.
    pub cache_items: usize,
    /// Rates are divided by this in the simulation.
    pub scale: f64,
    /// Keys.
    pub keys: u64,
    /// Of the zipf distribution; 0 is uniform.
    pub exponent: f64,
    /// Which of them are asked for.
    pub asked: Asked,
    /// What is written.
    pub writes: Option<Writes>,
    /// How much is asked.
    pub offer: Offer,
    /// What backends tell of hot keys.
    pub reports: Reports,
    /// Rules that a switch takes each second.
    pub rules_per_s: u32,
    /// Those that it makes each second while it is measured, whatever it was said to take; infinity: all at once. Not scaled, as the former is not.
    pub switch_per_s: f64,
    /// How long a rule may stay after its key has left the cache.
    pub rule_deletion_delay: Span,
    /// Which rules come first.
    pub rule_order: RuleOrder,
    /// How popularity changes.
    pub change: Option<Change>,
    /// From one node to another.
    pub hop: Span,
    /// Requests that wait at a backend at most.
    pub backend_queue_len_max: usize,
    /// Requests that wait at a part of a cache node at most.
    pub cache_queue_len_max: usize,
    /// The cache is filled with the hottest keys first.
    pub warms: bool,
    /// Under load before it is measured.
    pub settle: Span,
    /// How long it is measured.
    pub measure: Span,
    /// How often a sample is taken; zero: never.
    pub sample_every: Span,
    /// Everything is drawn from it.
    pub seed: u64,
}

impl Default for LoadScenario {
    /// The paper's Table 2, a tenth of it simulated: 128 backends of 100,000 requests a second, zipf 0.99 over 10^10 keys, 10,000 items. A
    /// cache node of 14 million requests a second, beyond which the paper's did not go (section 4.3).
    fn default() -> Self {
        Self {
            cache_mode: CacheMode::Switched,
            backends: 128,
            caches: 1,
            cache_threads: NonZero::<u16>::MIN,
            balances: true,
            backend_per_s: 100e3,
            cache_per_s: 14e6,
            cache_items: 10_000,
            scale: 10.0,
            keys: 10_000_000_000,
            exponent: 0.99,
            asked: Asked::All,
            writes: None,
            offer: Offer::Most,
            reports: Reports::Both,
            rules_per_s: 400,
            switch_per_s: f64::INFINITY,
            rule_deletion_delay: Span::from_s(2),
            rule_order: RuleOrder::HottestFirst,
            change: None,
            hop: Span::from_us(10),
            backend_queue_len_max: 64,
            cache_queue_len_max: 1_024,
            warms: true,
            settle: Span::from_ms(1_500),
            measure: Span::from_s(1),
            sample_every: Span::default(),
            seed: 1,
        }
    }
}

/// What happened in one stretch of time; rates are the paper's.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When it ends, from the beginning of measuring.
    pub at_s: f64,
    /// Requests answered, each second.
    pub answered_per_s: f64,
    /// Of those by cache nodes.
    pub hits_per_s: f64,
    /// The share of requests that was lost.
    pub lost: f64,
    /// How many of the keys that have become hot with the last change of [`Pattern::HotIn`] are routed to a cache node in the end. `None`: there was none yet.
    #[serde(default)]
    pub routed_of_new: Option<usize>,
}

/// What came of it; rates are the paper's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests asked, each second.
    pub asked_per_s: f64,
    /// Requests answered, each second.
    pub answered_per_s: f64,
    /// Of those by cache nodes.
    pub hits_per_s: f64,
    /// The share of requests that was lost.
    pub lost: f64,
    /// From asking to the answer, on average, microseconds.
    pub mean_us: f64,
    /// Within which half were answered, microseconds.
    pub p50_us: f64,
    /// Within which 99 of 100 were answered, microseconds.
    pub p99_us: f64,
    /// What each backend did, requests a second, the busiest first.
    pub backends_per_s: Vec<f64>,
    /// Items in cache nodes in the end.
    pub cached: usize,
    /// Items that came into cache nodes while it was measured.
    pub admitted: u64,
    /// Requests that cache nodes passed on while it was measured.
    pub passed_on: u64,
    /// Rules installed and deleted while it was measured.
    pub rule_updates: u64,
    /// Requests asked over the whole run.
    pub requests: u64,
    /// Of which were answered.
    pub requests_answered: u64,
    /// Of which were lost.
    pub requests_lost: u64,
    /// Answers that nobody waited for, or that were another key's: none.
    pub wrong_answers: u64,
    /// Steps of cores over the whole run.
    pub steps: u64,
    /// What happened in each stretch of time.
    pub samples: Vec<Sample>,
}

/// Runs a scenario.
///
/// # Panics
/// The scenario has no backends, more than there may be ([`guira_routing::BACKENDS_MAX`]), or no rules a second.
pub fn measure(scenario: &LoadScenario) -> LoadReport {
    let mut cluster = cluster::Cluster::new(scenario.clone());
    cluster.begin();
    if scenario.warms && scenario.cache_mode != CacheMode::None {
        cluster.warm();
    }
    cluster.run(scenario.settle);
    cluster.measure()
}
