//! How a node is, in numbers.

use guira_consistency::{Counts, Epoch};
use guira_item::Moment;

use crate::{FlowCounts, Items, Node, SentCounts};

/// Numbers about a node, since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeCounts {
    /// Asked here, and answered by what is hot here, without a message.
    pub hot_reads: u64,
    /// Asked here, and written here as hot.
    pub hot_writes: u64,
    /// Asked here of keys whose home is here.
    pub at_home: u64,
    /// Asked here, and forwarded to the key's home.
    pub forwarded: u64,
    /// Forwarded again, since nobody had answered.
    pub resent: u64,
    /// Asked by other nodes.
    pub for_others: u64,
    /// Asked by other nodes by another view than the one here, and not heeded.
    pub refused: u64,
    /// Refused, since too much was under way.
    pub busy: u64,
    /// Had no answer in time.
    pub away: u64,
    /// May have taken effect: nobody knows.
    pub unknown: u64,
    /// Asked of a home that had given the shard away by then, and asked again of the one it has now.
    pub elsewhere: u64,
    /// Copies of its own shard that were begun.
    pub copies: u64,
    /// Those that came to an end: it is home of it again.
    pub homecomings: u64,
    /// Pages that were given to others.
    pub pages: u64,
    /// Keys that were promoted here, as home.
    pub promotions: u64,
    /// Keys that were evicted here, as home.
    pub evictions: u64,
}

/// How a node is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeStatus {
    /// The epoch of its view.
    pub epoch: Epoch,
    /// Members of that.
    pub members: usize,
    /// It has a lease.
    pub has_lease: bool,
    /// It has all hot keys.
    pub is_whole: bool,
    /// Keys that are hot here, and on their way in or out.
    pub hot_keys: usize,
    /// Shards of which it is home.
    pub shards: usize,
    /// Items of these.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Bytes that there is room for.
    pub bytes_max: usize,
    /// Items that have made room for others.
    pub evicted: u64,
    /// Items of its own shard that have been copied so far, while another node is home of it.
    pub copied: Option<u64>,
    /// What is under way.
    pub pending: usize,
    /// Messages of hot keys that wait for credits.
    pub waiting: usize,
    /// Its numbers.
    pub counts: NodeCounts,
    /// Messages that it has sent.
    pub sent: SentCounts,
    /// What has waited for credits.
    pub flow: FlowCounts,
    /// Those of hot keys.
    pub replica: Counts,
}

impl<I: Items> Node<I> {
    /// How it is.
    pub fn status(&self, now: Moment) -> NodeStatus {
        let view = self.holder.view();
        NodeStatus {
            epoch: view.epoch,
            members: view.members.len(),
            has_lease: now < self.holder.serves_until(),
            is_whole: self.replica.is_whole(),
            hot_keys: self.replica.len(),
            shards: self.served_shards().len(),
            copied: self.homecoming.copied(),
            items: self.shard.items().len(),
            bytes: self.shard.items().bytes(),
            bytes_max: self.shard.items().bytes_max(),
            evicted: self.shard.items().evicted(),
            pending: self.tickets.len() + self.parked.len() + self.lanes.len(),
            waiting: self.flow.waiting(),
            counts: self.counts,
            sent: self.sent,
            flow: FlowCounts { requests_waited: self.lanes.waited(), ..self.flow.counts() },
            replica: self.replica.counts(),
        }
    }
}
