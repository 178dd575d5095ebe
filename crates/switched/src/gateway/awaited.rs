//! How many answers of each cache node are waited for: what a gateway knows of how much it has to do.

use std::collections::{BTreeMap, btree_map::Entry};

use guira_routing::NodeId;
use serde::Serialize;

/// Answers that are waited for, by cache node.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Awaited(BTreeMap<NodeId, usize>);

impl Awaited {
    /// One of `cache` more.
    pub(super) fn add(&mut self, cache: NodeId) {
        *self.0.entry(cache).or_default() += 1;
    }

    /// One of `cache` less.
    pub(super) fn remove(&mut self, cache: NodeId) {
        if let Entry::Occupied(mut awaited) = self.0.entry(cache) {
            *awaited.get_mut() -= 1;
            if *awaited.get() == 0 {
                awaited.remove();
            }
        }
    }

    /// How many of `cache`.
    pub(super) fn of(&self, cache: NodeId) -> usize {
        self.0.get(&cache).copied().unwrap_or(0)
    }
}
