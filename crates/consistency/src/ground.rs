//! What all keys of a replica stand on: what it is, the view, its lease, and what it has counted.
//!
//! Always true: nothing is served but by a whole member under the lease of its epoch.

use guira_item::{Moment, Span};
use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

use crate::{Envelope, Epoch, Generation, Message, Mutant, Outbox, Timestamp, View, Writer};

/// What is promised of a hot key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Consistency {
    /// Every answer is linearizable for its key.
    #[default]
    Lin,
    /// All agree on the order of a key's writes, and a session that stays on a node sees it grow.
    Sc,
}

/// What a replica is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose.
    pub me: NodeId,
    /// What is promised; the same on all nodes.
    pub consistency: Consistency,
    /// How a key is hashed to find its home; the same on all nodes.
    pub hash_of: fn(&[u8]) -> u64,
    /// After how long something is told again that was not acknowledged.
    pub tell_again_after: Span,
    /// After how long somebody else's write that is not over is finished here.
    pub replay_after: Span,
    /// Operations that wait for one key at most: as many as come in during some rounds. Those beyond are told that it is busy.
    pub waiting_max: usize,
    /// Bytes of a key and its value at most.
    pub item_len_max: usize,
    /// Keys that are hot at most. A home promotes none beyond.
    pub keys_max: usize,
    /// Bytes of a page for who joins, about: the last key of it may be as much beyond as it is long. A page is a message.
    pub page_len_max: usize,
    /// A fault put in on purpose, for the tests of the checkers.
    pub mutant: Option<Mutant>,
}

/// Numbers about a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages of another epoch.
    pub refused: u64,
    /// Messages that mean nothing here.
    pub ignored: u64,
    /// Operations that found too many waiting.
    pub busy: u64,
    /// Writes of others that were finished here, or tried to.
    pub replays: u64,
    /// Read-modify-writes that met something newer, and were tried again.
    pub aborts: u64,
    /// Writes that had met something newer and turned out to have taken place all the same.
    pub finished_elsewhere: u64,
}

/// What all keys stand on.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) config: Config,
    pub(crate) view: View,
    pub(crate) serves_until: Moment,
    pub(crate) is_whole: bool,
    pub(crate) generation: Generation,
    pub(crate) counts: Counts,
}

impl Ground {
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.config.mutant == Some(mutant)
    }

    pub(crate) fn is_sequential(&self) -> bool {
        self.config.consistency == Consistency::Sc
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.view.epoch
    }

    /// Whether what is asked now may be answered now.
    pub(crate) fn serves(&self, now: Moment) -> bool {
        let is_whole = self.is_whole || self.has(Mutant::JoinerEarly);
        is_whole && self.view.epoch != Epoch::default() && (now < self.serves_until || self.has(Mutant::PastLease))
    }

    /// The life that writes here.
    pub(crate) fn writer(&self) -> Writer {
        let me = self.config.me;
        let of_view = self.view.members.get(&me).copied().filter(|_| !self.has(Mutant::WriterReturns));
        of_view.unwrap_or(Writer(me.0))
    }

    pub(crate) fn is_newer(&self, one: Timestamp, other: Timestamp) -> bool {
        if self.has(Mutant::TieIgnored) {
            return one.version_order(other).is_gt();
        }
        one.is_newer_than(other)
    }

    pub(crate) fn home_of(&self, key: &[u8]) -> Option<NodeId> {
        self.view.home_of((self.config.hash_of)(key))
    }

    pub(crate) fn is_home_of(&self, key: &[u8]) -> bool {
        self.home_of(key) == Some(self.config.me)
    }

    /// The other members.
    pub(crate) fn others(&self) -> impl Iterator<Item = NodeId> {
        self.view.members.keys().copied().filter(|member| *member != self.config.me)
    }

    pub(crate) fn send(&self, to: NodeId, message: Message, out: &mut Outbox) {
        out.sends.push((to, Envelope { epoch: self.view.epoch, message }));
    }

    pub(crate) fn send_all(&self, to: impl IntoIterator<Item = NodeId>, message: &Message, out: &mut Outbox) {
        to.into_iter().for_each(|member| self.send(member, message.clone(), out));
    }
}
