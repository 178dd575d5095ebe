//! A node.

use guira_chain::{Owned, Reply};
use guira_cluster::{Drift, Life};
use guira_consistency::{Consistency, Counts, Epoch, Mutant};
use guira_item::{Answer, Failure, Key, Moment, Span};
use guira_routing::{HashSeed, KeyHash, NodeId};

use crate::{Items, Message};

/// Names what a node was asked, by whoever drives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskId(pub u64);

/// What a node is.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Which.
    pub me: NodeId,
    /// Who gives out views and says which keys are hot.
    pub coordinator: NodeId,
    /// This life of it.
    pub life: Life,
    /// How long a lease lasts; the same for all.
    pub lease: Span,
    /// How far clocks drift apart; the same for all.
    pub drift: Drift,
    /// What is promised; the same for all.
    pub consistency: Consistency,
    /// Bytes of a key and its value at most.
    pub item_len_max: usize,
    /// Keys that are hot at most.
    pub hot_keys_max: usize,
    /// How long an answer is waited for.
    pub answer_within: Span,
    /// Of what is asked here one in so many is counted to find the hottest keys.
    pub sample_one_in: u32,
    /// A fault put in on purpose, for the tests of the checkers.
    pub mutant: Option<Mutant>,
}

/// What has happened to a node.
#[derive(Clone, Debug)]
pub enum NodeHappened<'h> {
    /// A member has said something.
    Message(NodeId, Message),
    /// A client wants something of a key; expiries are in the cluster's seconds.
    Ask(AskId, Key<'h>, &'h Owned),
    /// A client wants everything to be gone.
    Flush(AskId),
    /// Time has passed: at [`Node::wake_at`], at the latest.
    Tick,
}

/// What a step wants done.
#[derive(Clone, Debug, Default)]
pub struct NodeOutbox {
    /// For members.
    pub sends: Vec<(NodeId, Message)>,
    /// For clients.
    pub answers: Vec<(AskId, Reply)>,
}

impl NodeOutbox {
    /// Everything is done.
    pub fn clear(&mut self) {
        let Self { sends, answers } = self;
        sends.clear();
        answers.clear();
    }
}

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
    /// Refused, since too much was under way.
    pub busy: u64,
    /// Had no answer in time.
    pub away: u64,
    /// May have taken effect: nobody knows.
    pub unknown: u64,
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
    /// What is under way.
    pub pending: usize,
    /// Its numbers.
    pub counts: NodeCounts,
    /// Those of hot keys.
    pub replica: Counts,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node<I> {
    config: NodeConfig,
    items: I,
}

impl<I: Items> Node<I> {
    /// One that is in no view yet.
    pub fn new(_now: Moment, config: NodeConfig, items: I) -> Self {
        Self { config, items }
    }

    /// Heeds what has happened; `now` was read after it had (R1).
    pub fn step(&mut self, _now: Moment, happened: NodeHappened<'_>, out: &mut NodeOutbox) {
        if let NodeHappened::Ask(id, ..) | NodeHappened::Flush(id) = happened {
            out.answers.push((id, Reply::Answer(Answer::Failed(Failure::Busy), None)));
        }
    }

    /// Whether all members have this key as hot, as far as this one knows.
    pub fn is_hot(&self, _key: &[u8]) -> bool {
        false
    }

    /// When it has to be ticked.
    pub fn wake_at(&self, now: Moment) -> Option<Moment> {
        Some(now + self.config.lease)
    }

    /// How it is.
    pub fn status(&self, _now: Moment) -> NodeStatus {
        NodeStatus { items: self.items.len(), bytes: self.items.bytes(), ..NodeStatus::default() }
    }
}

/// The same for all nodes.
const HASH_SEED: HashSeed = HashSeed(0x6775_6972_6122);

/// Which of so many shards a key is in; `None` if there is none.
pub fn slot_of(key: &[u8], shards: usize) -> Option<usize> {
    KeyHash::of(key, HASH_SEED).0.checked_rem(shards as u64).map(|slot| slot as usize)
}
