//! Who is there beside the controller, where that changes while all serve (`docs/design/0024`).
//!
//! Always true: no answer depends on who has heard of which view. A backend gives leases to the cache nodes of its own view, and waits for those that it
//! gave to others; all else costs a detour at most.

use std::collections::BTreeMap;

use guira_openflow::Place;
use guira_routing::{CacheNodes, NodeId, RuleBudget};

use crate::Shares;

/// Who is there, as of an epoch.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// The cache nodes.
    pub caches: CacheNodes,
    /// The gateways, by number.
    pub gateways: Vec<NodeId>,
    /// The backends, by number: without those that stand by.
    pub backends: Vec<NodeId>,
    /// Who has which keys, and who is to.
    pub shares: Shares,
    /// The cache nodes of backends that have one.
    pub cache_of: BTreeMap<NodeId, NodeId>,
    /// The same, where a backend's cache node may change: see [`ControllerConfig::homes`](crate::controller::ControllerConfig::homes).
    pub homes: BTreeMap<NodeId, NodeId>,
    /// What the switch takes.
    pub budget: RuleBudget,
    /// Where members are for switches, if the network routes.
    pub places: BTreeMap<NodeId, Place>,
    /// See [`CacheConfig::exchanges_per_s`](crate::cache_node::CacheConfig::exchanges_per_s).
    pub exchanges_per_s: f64,
}
