//! Cache nodes and their parts, as a file says they are.
//!
//! Always true: what a node may have is shared out over its parts.

use std::sync::Arc;

use guira_routing::{CacheNodes, NodeId};

use super::{Life, Role, StaticFile, hash_of};
use crate::{Drift, Shares, cache_node::CacheConfig};

/// The share of a cache's keys that a new one has to surpass: the paper's example (section 3.2.1).
const THRESHOLD_RANK: f64 = 0.1;

impl StaticFile {
    /// The cache nodes, with their parts.
    pub fn caches(&self) -> CacheNodes {
        let caches = self.members.iter().filter(|member| matches!(member.role, Role::Cache { .. }));
        caches.map(|member| (NodeId(member.id), member.parts())).collect()
    }

    /// What a cache node of one thread is, or a part of one.
    pub fn cache_config(&self, me: NodeId, shares: &Shares, life: Life) -> CacheConfig {
        let seed = life.seed.wrapping_add(me.0.into());
        let (caches, hot) = (self.caches(), self.hot(seed));
        let node = caches.node_of(me).unwrap_or(me);
        let is_mine = |role: &Role| role.as_backend().is_some_and(|backend| backend.cache == Some(node.0));
        CacheConfig {
            me,
            incarnation: life.incarnation,
            charge: self.of(is_mine),
            controller: self.controller(),
            partitions: Arc::clone(&shares.map),
            hash_of,
            items_max: self.items_max_each(&caches, node),
            bytes_max: (self.cache_megabytes << 20) / caches.parts_of(node).count().max(1),
            drift: Drift::default(),
            clock: life.clock,
            segment: hot.segment,
            alpha: hot.alpha,
            threshold_rank: THRESHOLD_RANK,
            exchanges_per_s: self.exchanges_per_s(),
            seed,
            mutant: None,
        }
    }

    pub(super) fn exchanges_per_s(&self) -> f64 {
        CacheConfig::exchanges(self.rules_per_s, self.caches().parts_len())
    }

    /// Items of each part of a cache node, at most.
    pub(super) fn items_max_each(&self, caches: &CacheNodes, node: NodeId) -> usize {
        self.items_max.div_ceil(caches.parts_of(node).count().max(1))
    }
}
