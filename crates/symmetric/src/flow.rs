//! Flow control: how much a node has under way to each of the others, by credits (ccKVS, EuroSys 2018, sections 6.3 and 6.4).
//!
//! ```text
//! Request             takes one of its home's        Replied gives it back (`lanes`)
//! Protocol (number)   takes one of its receiver's    seen, in whatever is told back of hot keys, gives back all up to that number:
//!                                                    an Ack that of its Invalidate; for what has no answer Credits come, one for a quarter of all
//! AskCredits (sent)   takes none                     Credits
//! ```
//! Always true: a credit is no thing that can be lost. Messages of hot keys are numbered, in each direction, from 1 on in each view; their receiver tells the highest number
//! that has come, and so many beyond that may be sent. What is lost on the way is given back with what comes after it; if nothing does, or what was told is lost, who waits asks again
//! and again, with the number of its last, and is told. What comes twice or late says nothing that was not so. A number of another view is none in this one, so a peer that has died and
//! is back begins with all credits. What gives credits takes none, so both directions may be full and go on. What waits is bounded; what finds no room is dropped, as a network
//! would drop it, and told again by whoever waits for it (0037).

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use guira_consistency::{Envelope, Epoch};
use guira_item::{Moment, Span};
use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

use crate::Message;

/// Requests of a node that are under way to another: an eighth of all that it may have under way. So with nine nodes (the paper's) one that stands still takes what is its own, and
/// a thread that answers a hundred in the time of a round trip is never waited for.
const REQUESTS: usize = 1_024;

/// Requests that wait for that: with those under way more than the connections of a server have, some hundred bytes each beside values, which the server bounds.
const REQUESTS_WAIT: usize = 4_096;

/// Messages of hot keys that are under way to another node: small ones of nine nodes, a hundred bytes each, are a megabyte, which a socket's buffer (four) has room for until its
/// thread is back. One write is two of them, so a thread has five hundred writes under way, some times what it does in a round trip.
const MESSAGES: u64 = 1_024;

/// Messages that wait for that: those of a new view for four thousand hot keys. The others are told again after 40 ms.
const MESSAGES_WAIT: usize = 4_096;

/// Bytes of values that wait with them: as much as datagrams of a transport, or one of the longest.
const VALUES_LEN_MAX: usize = 16 << 20;

/// Of so many parts of all credits each is told by itself, if nothing else has told it: so the message costs next to nothing, and three quarters are there meanwhile.
const TOLD_PARTS: u64 = 4;

/// How much may be under way; the same for all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowConfig {
    /// Requests to one node, from 1 on.
    pub requests: usize,
    /// Requests that wait for that, for one node.
    pub requests_wait: usize,
    /// Messages of hot keys to one node, from 1 on.
    pub messages: u64,
    /// Messages that wait for that, for one node.
    pub messages_wait: usize,
    /// A fault put in, for the tests of the checkers.
    pub mutant: Option<FlowMutant>,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            requests: REQUESTS,
            requests_wait: REQUESTS_WAIT,
            messages: MESSAGES,
            messages_wait: MESSAGES_WAIT,
            mutant: None,
        }
    }
}

/// A fault that has to be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowMutant {
    /// What has come is counted: what is lost is given back by nothing.
    LossLeaks,
    /// Who has no credits waits to be told so.
    NeverAsks,
    /// Credits of an earlier view count.
    FormerCounts,
    /// A request that nobody has answered keeps its credit.
    RequestLeaks,
}

impl FlowMutant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::LossLeaks, Self::NeverAsks, Self::FormerCounts, Self::RequestLeaks];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::LossLeaks => "flow-loss-leaks",
            Self::NeverAsks => "flow-never-asks",
            Self::FormerCounts => "flow-former-counts",
            Self::RequestLeaks => "flow-request-leaks",
        }
    }
}

/// Which of the messages of hot keys that one node tells another in one view: from 1 on; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct MessageNumber(pub u64);

/// What was waited for, since a node began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// Requests that waited for a credit.
    pub requests_waited: u64,
    /// Messages of hot keys that waited for one.
    pub messages_waited: u64,
    /// Messages that found no room to wait.
    pub messages_dropped: u64,
    /// Times that a credit was asked for, since there had been none for a while.
    pub asked: u64,
    /// Messages that came here without a credit: there are none.
    pub beyond: u64,
}

/// All messages of hot keys, to and from the members of a view.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    config: FlowConfig,
    ask_after: Span,
    epoch: Epoch,
    peers: BTreeMap<NodeId, Peer>,
    counts: FlowCounts,
}

/// One of them.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// The last that was sent.
    sent: MessageNumber,
    /// The last of these that has come there, as it has told.
    heard: MessageNumber,
    waiting: Waiting,
    /// Since when it has told nothing new, while something waits; or when it was asked last.
    silent_since: Moment,
    /// The last that has come from there.
    seen: MessageNumber,
    /// What it was told of that.
    told: MessageNumber,
}

/// What waits for a credit, first come first sent.
#[derive(Clone, Debug, Default)]
struct Waiting {
    queue: VecDeque<Envelope>,
    /// Of all that is in it: what is told again need not wait twice.
    hashes: HashSet<u64>,
    values_len: usize,
}

impl Waiting {
    /// Whether there is room for it, or it is there.
    fn push(&mut self, envelope: Envelope, len_max: usize) -> bool {
        let hash = hash_of(&envelope);
        if self.hashes.contains(&hash) {
            return true;
        }
        let values_len = envelope.message.values_len();
        let has_room = self.queue.is_empty() || self.values_len + values_len <= VALUES_LEN_MAX;
        if self.queue.len() >= len_max || !has_room {
            return false;
        }
        self.values_len += values_len;
        self.hashes.insert(hash);
        self.queue.push_back(envelope);
        true
    }

    fn pop(&mut self) -> Option<Envelope> {
        let envelope = self.queue.pop_front()?;
        self.values_len -= envelope.message.values_len();
        self.hashes.remove(&hash_of(&envelope));
        Some(envelope)
    }
}

/// The same in each run.
fn hash_of(envelope: &Envelope) -> u64 {
    let mut hasher = DefaultHasher::new();
    envelope.hash(&mut hasher);
    hasher.finish()
}

impl Peer {
    fn has_credit(&self, all: u64) -> bool {
        self.sent.0 - self.heard.0 < all
    }

    /// It has told what it has seen.
    fn hear(&mut self, now: Moment, seen: MessageNumber, is_former: bool) {
        // What was never sent nobody has seen; and who says again and again what he has said before says nothing of what was lost since.
        let heard = if seen <= self.sent || is_former { seen.min(self.sent) } else { self.heard };
        if heard > self.heard {
            (self.heard, self.silent_since) = (heard, now);
        }
    }

    /// Sends a message that has a credit.
    fn send(&mut self, to: NodeId, envelope: Envelope, out: &mut Vec<(NodeId, Message)>) {
        self.sent.0 += 1;
        self.told = self.seen;
        out.push((to, Message::Protocol { number: self.sent, seen: self.seen, envelope }));
    }

    /// Sends what waits and has one.
    fn go_on(&mut self, to: NodeId, all: u64, out: &mut Vec<(NodeId, Message)>) {
        while self.has_credit(all)
            && let Some(envelope) = self.waiting.pop()
        {
            self.send(to, envelope, out);
        }
    }
}

impl Flow {
    /// One in no view; credits are asked for when there has been none for so long.
    pub(crate) fn new(config: FlowConfig, ask_after: Span) -> Self {
        Self { config, ask_after, epoch: Epoch::default(), peers: BTreeMap::new(), counts: FlowCounts::default() }
    }

    /// There is another view: everything begins anew, and what waits is of the one before.
    pub(crate) fn set_view(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.peers.clear();
    }

    /// Messages that wait for credits.
    pub(crate) fn waiting(&self) -> usize {
        self.peers.values().map(|peer| peer.waiting.queue.len()).sum()
    }

    pub(crate) fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// Sends a message, or has it wait.
    pub(crate) fn send(&mut self, now: Moment, to: NodeId, envelope: Envelope, out: &mut Vec<(NodeId, Message)>) {
        let FlowConfig { messages, messages_wait, .. } = self.config;
        let peer = self.peers.entry(to).or_default();
        if peer.waiting.queue.is_empty() {
            if peer.has_credit(messages) {
                return peer.send(to, envelope, out);
            }
            peer.silent_since = now;
        }
        let is_taken = peer.waiting.push(envelope, messages_wait);
        let count = if is_taken { &mut self.counts.messages_waited } else { &mut self.counts.messages_dropped };
        *count += 1;
    }

    /// Something was told of hot keys: under which number, and how much was seen where that was told.
    pub(crate) fn hear(
        &mut self,
        now: Moment,
        from: NodeId,
        epoch: Epoch,
        (number, seen): (MessageNumber, MessageNumber),
        out: &mut Vec<(NodeId, Message)>,
    ) {
        self.hear_credits(now, from, epoch, seen, out);
        if epoch != self.epoch {
            return;
        }
        let peer = self.peers.entry(from).or_default();
        self.counts.beyond += u64::from(number.0 > peer.told.0.saturating_add(self.config.messages));
        if self.config.mutant == Some(FlowMutant::LossLeaks) {
            peer.seen.0 += 1;
        } else {
            peer.seen = peer.seen.max(number);
        }
    }

    /// What was heard has been heeded: how much was seen is told, if it is time and nothing has told it.
    pub(crate) fn tell(&mut self, from: NodeId, out: &mut Vec<(NodeId, Message)>) {
        let least = (self.config.messages / TOLD_PARTS).max(1);
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if peer.seen.0.saturating_sub(peer.told.0) >= least {
            peer.told = peer.seen;
            out.push((from, Message::Credits { epoch: self.epoch, seen: peer.seen }));
        }
    }

    /// How much was seen of what was told here.
    pub(crate) fn hear_credits(
        &mut self,
        now: Moment,
        from: NodeId,
        epoch: Epoch,
        seen: MessageNumber,
        out: &mut Vec<(NodeId, Message)>,
    ) {
        let is_former = epoch < self.epoch && self.config.mutant == Some(FlowMutant::FormerCounts);
        if epoch == self.epoch || is_former {
            let peer = self.peers.entry(from).or_default();
            peer.hear(now, seen, is_former);
            peer.go_on(from, self.config.messages, out);
        }
    }

    /// A node that has no credits wants to be told; it has sent so many.
    pub(crate) fn on_asked(
        &mut self,
        from: NodeId,
        epoch: Epoch,
        sent: MessageNumber,
        out: &mut Vec<(NodeId, Message)>,
    ) {
        if epoch != self.epoch {
            return;
        }
        let peer = self.peers.entry(from).or_default();
        if self.config.mutant != Some(FlowMutant::LossLeaks) {
            peer.seen = peer.seen.max(sent);
        }
        peer.told = peer.seen;
        out.push((from, Message::Credits { epoch, seen: peer.seen }));
    }

    /// Time has passed: who has none and has heard nothing for a while asks.
    pub(crate) fn ask(&mut self, now: Moment, out: &mut Vec<(NodeId, Message)>) {
        if self.config.mutant == Some(FlowMutant::NeverAsks) {
            return;
        }
        for (to, peer) in &mut self.peers {
            if !peer.waiting.queue.is_empty() && now.since(peer.silent_since) >= self.ask_after {
                peer.silent_since = now;
                self.counts.asked += 1;
                out.push((*to, Message::AskCredits { epoch: self.epoch, sent: peer.sent }));
            }
        }
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
