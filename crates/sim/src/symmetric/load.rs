//! How much a symmetric cluster serves at the paper's scale, and how soon: the cores in virtual time, with networks that carry so much and no more
//! (ccKVS, EuroSys 2018, sections 7 and 8).
//!
//! ```text
//! clients -> Node -- messages, encoded --> [link out] == hop ==> [link in] -> Node
//! ```
//! *Real*: nodes and the coordinator, which are the cores that serve; replicas, lanes, views, leases; every message, encoded and decoded, whose bytes are counted.
//!
//! *Modelled*:
//! - each member's network: bytes and packets a second out of it and, by as much, into it; a header on each packet; the same time for each hop. Nothing is lost;
//! - what waits for one peer while the link out is busy shares a packet, if packets are shared ([`LoadScenario::coalesces`]);
//! - processors cost nothing, as in the paper's equations;
//! - a shard has every key there can be, and keeps no write: what is read is as long as it is meant to be;
//! - the hot set is told to nodes as the coordinator would tell it, and then promoted by the protocol, before the network has its limits.
//!
//! *Scale*: all times of the network are `scale` times as long, hops too, and are told as if they were not. That is another unit of time: what a request takes of the network
//! is the same share of it. Only the nodes' own times (leases, what is told again after 40 ms) are shorter beside it, which is why nothing may wait so long.
//!
//! *Keys*: a thousandth of the paper's 250 million is more promotions than a run has time for. With [`LoadScenario::key_scale`] there are fewer keys, and as many of them hot as take the
//! same share of requests, which is all that the equations know of keys. The hottest key has more of the requests then than in the paper.
//!
//! Always true: a run is a function of its scenario; every request is answered once.

pub mod aims;
mod cluster;
mod every_key;
pub mod experiments;
mod figures;
mod network;
mod row;
#[cfg(test)]
mod tests;
mod traffic;

use guira_item::Span;
use guira_plan::Skew;
pub use row::Row;
use serde::{Deserialize, Serialize};
pub use traffic::{Kind, Traffic};

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// No cache, and all keys asked for as often.
    Uniform,
    /// No cache.
    Base,
    /// Hot keys on all nodes, per-key sequentially consistent.
    Sc,
    /// Hot keys on all nodes, linearizable.
    Lin,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::Base, Self::Sc, Self::Lin];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Base => "base",
            Self::Sc => "sc",
            Self::Lin => "lin",
        }
    }

    /// Whether there are hot keys.
    pub fn is_cached(self) -> bool {
        matches!(self, Self::Sc | Self::Lin)
    }
}

/// How much is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Offer {
    /// At each node so many requests at a time, each followed by another.
    Outstanding(usize),
    /// So many a second, of all nodes together, whatever is answered.
    PerSecond(f64),
}

/// A cluster, and what it is asked.
#[derive(Clone, Debug)]
pub struct LoadScenario {
    /// What is compared.
    pub variant: Variant,
    /// Nodes.
    pub nodes: u16,
    /// Keys.
    pub keys: u64,
    /// Of them hot.
    pub cached: u64,
    /// The keys are divided by this in the simulation, if some are hot, and so many are hot as take the same share of requests.
    pub key_scale: u64,
    /// Of the zipf distribution.
    pub exponent: f64,
    /// The share of requests that are writes.
    pub write_share: f64,
    /// Bytes of a value.
    pub value_len: usize,
    /// What the network carries out of each node, and into it, bytes a second.
    pub bytes_per_s: f64,
    /// Packets, too.
    pub packets_per_s: f64,
    /// Bytes before each packet's messages.
    pub header_len: usize,
    /// Messages share packets.
    pub coalesces: bool,
    /// From one node to another.
    pub hop: Span,
    /// Times are so many times as long in the simulation.
    pub scale: u64,
    /// How much is asked.
    pub offer: Offer,
    /// Under load before it is measured, as simulated.
    pub settle: Span,
    /// How long it is measured, as simulated.
    pub measure: Span,
    /// Everything is drawn from it.
    pub seed: u64,
}

impl LoadScenario {
    /// What small packets had of the paper's network, bytes a second (section 8.4).
    pub const SMALL_PACKETS_BYTES_PER_S: f64 = 21.5e9 / 8.0;
    /// What its cards carry, bytes a second.
    pub const LINK_BYTES_PER_S: f64 = 54e9 / 8.0;
    /// What its switch does of small packets: that of small packets by half of a request and its answer of 113 bytes.
    pub const PACKETS_PER_S: f64 = Self::SMALL_PACKETS_BYTES_PER_S / 56.5;

    /// The share of requests that is for hot keys.
    pub fn hit_share(&self) -> f64 {
        skew(self.keys, self.exponent).share_of_hottest(self.cached)
    }

    /// Keys in the simulation, and how many of them are hot.
    pub fn simulated_keys(&self) -> (u64, u64) {
        if !self.variant.is_cached() {
            return (self.keys, 0);
        }
        let keys = (self.keys / self.key_scale).max(1);
        let (skew, share) = (skew(keys, self.exponent), self.hit_share());
        let (mut low, mut high) = (0, keys);
        while low < high {
            let middle = low.midpoint(high);
            if skew.share_of_hottest(middle) < share { low = middle + 1 } else { high = middle }
        }
        (keys, low)
    }
}

#[allow(clippy::expect_used, reason = "scenarios are made here")]
fn skew(keys: u64, exponent: f64) -> Skew {
    Skew::new(keys, exponent).expect("some keys, and an exponent")
}

impl Default for LoadScenario {
    /// The paper's: nine nodes, 250 million keys, a thousandth hot, values of 40 bytes, packets of their own. The header is InfiniBand's to a queue pair that anybody may send to (local
    /// route 8, base transport 12, datagram 8, two checks 4 and 2).
    fn default() -> Self {
        Self {
            variant: Variant::Lin,
            nodes: 9,
            keys: 250_000_000,
            cached: 250_000,
            key_scale: 200,
            exponent: 0.99,
            write_share: 0.0,
            value_len: 40,
            bytes_per_s: Self::SMALL_PACKETS_BYTES_PER_S,
            packets_per_s: f64::INFINITY,
            header_len: 34,
            coalesces: false,
            hop: Span::from_us(1),
            scale: 500,
            offer: Offer::Outstanding(256),
            settle: Span::from_ms(15),
            measure: Span::from_ms(60),
            seed: 1,
        }
    }
}

/// What came of it; rates and times are the paper's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests asked, each second.
    pub asked_per_s: f64,
    /// Requests answered, each second.
    pub answered_per_s: f64,
    /// Of those, the share that was for hot keys.
    pub hit_share: f64,
    /// Keys that are hot.
    pub hot_keys: usize,
    /// From asking to the answer, on average, microseconds.
    pub mean_us: f64,
    /// Within which 95 of 100 were answered, microseconds.
    pub p95_us: f64,
    /// Of the node whose link out carried most, the share of the time that it was busy.
    pub busiest_link: f64,
    /// What went over the network.
    pub traffic: Traffic,
    /// Requests told again, since nobody had answered.
    pub resent: u64,
    /// Requests answered while it was measured.
    pub answered: u64,
    /// Requests that failed, or were told what is not so, over the whole run: none.
    pub wrong_answers: u64,
    /// Requests asked over the whole run.
    pub requests: u64,
    /// Of which were answered in the end: all.
    pub requests_answered: u64,
}

/// Runs a scenario.
///
/// # Panics
/// There are fewer than two nodes, or more than there may be.
pub fn measure(scenario: &LoadScenario) -> LoadReport {
    cluster::Cluster::new(scenario.clone()).measure()
}
