//! Who is there: the members of an epoch, and which of them is home to which keys.
//!
//! Always true: within an epoch a key has one home. Who gives a view out has waited out the leases of all who were members and are none any more (R2).

use std::collections::BTreeMap;

use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

use crate::Writer;

/// The number of a view. What is told in another epoch than the receiver's is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// Tells a key's times in the hot set apart: a home numbers its promotions, one after the other, and an epoch has one home for a key. So numbers of
/// a home only go up, however often it begins another life, and nobody has to remember them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Generation {
    /// When the home promoted the key.
    pub epoch: Epoch,
    /// From 1 in each epoch.
    pub number: u32,
}

impl Generation {
    /// The next one that a home gives in an epoch.
    #[must_use]
    pub(crate) fn next(self, epoch: Epoch) -> Self {
        let number = if epoch == self.epoch { self.number + 1 } else { 1 };
        Self { epoch, number }
    }
}

/// Who is there, as of an epoch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// Its number: higher than those of all views before.
    pub epoch: Epoch,
    /// Who acknowledges writes, also those that have yet to become whole; and the number of each one's life.
    pub members: BTreeMap<NodeId, Writer>,
    /// The homes of the shards of all keys: members that are whole, successors where a home is absent.
    pub homes: Vec<NodeId>,
    /// Since which epoch each shard has had the home that it has: in one life of it, and without a break.
    pub homes_since: Vec<Epoch>,
    /// Since which it had had the one before that.
    pub homes_before: Vec<Epoch>,
}

impl View {
    /// Which shard the key with this hash is in; `None` if there are none.
    pub fn shard_of(&self, hash: u64) -> Option<usize> {
        hash.checked_rem(self.homes.len() as u64).map(|shard| shard as usize)
    }

    /// The home of the key with this hash; `None` if there is no shard.
    pub fn home_of(&self, hash: u64) -> Option<NodeId> {
        self.homes.get(self.shard_of(hash)?).copied()
    }

    /// Whether a key with this hash, after the view of an epoch, has had a home that was none in that and is not `me`.
    pub(crate) fn has_had_another_home(&self, hash: u64, after: Epoch, me: NodeId) -> bool {
        let of =
            |epochs: &[Epoch]| self.shard_of(hash).and_then(|shard| epochs.get(shard)).copied().unwrap_or(self.epoch);
        let is_mine = self.home_of(hash) == Some(me);
        of(&self.homes_since) > after && (!is_mine || of(&self.homes_before) > after)
    }

    /// Whether a life is that of a member.
    pub(crate) fn has_writer(&self, writer: Writer) -> bool {
        self.members.values().any(|member| *member == writer)
    }
}
