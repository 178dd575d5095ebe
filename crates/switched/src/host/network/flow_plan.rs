//! Which flows the switches of a cluster are to have: what is so whatever is cached, and what leads a hash to a cache node.
//!
//! ```text
//!                    one switch, or several that are alike     several, and how they are joined
//! whose a packet is  all: by the host's port                   all; rules of hashes all, or the one alone at which their backend is
//! by which way       --                                        each its own, in a second table
//! ```
//! Always true: a flow of a hash is at its owner's, by the last view. Where rules of hashes are parted, gets come to the switch at which their backend is without having
//! been looked up there, and no get that is on its way to a cache node is looked up again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use guira_openflow::{Actions, DatapathId, Fabric, FlowAt, FlowKey, Place, Rules};
use guira_routing::{CacheNodes, KeyHash, MacAddress, NodeId, PartitionMap};

use crate::{RulesOfKeys, View};

/// Flows, and what becomes of their packets.
pub(super) type Flows = BTreeMap<FlowAt, Actions>;

/// What flows follow from.
pub(super) struct FlowPlan {
    rules: Rules,
    fabric: Option<(Fabric, RulesOfKeys)>,
    backends: BTreeSet<NodeId>,
    caches: CacheNodes,
    map: Arc<PartitionMap>,
    places: BTreeMap<NodeId, Place>,
}

impl FlowPlan {
    pub(super) fn new(rules: Rules, fabric: Option<(Fabric, RulesOfKeys)>, view: &View) -> Self {
        let map = Arc::clone(&view.shares.map);
        let (backends, caches, places) = (BTreeSet::new(), CacheNodes::default(), BTreeMap::new());
        let mut plan = Self { rules, fabric, backends, caches, map, places };
        plan.set_view(view);
        plan
    }

    /// There are others now, or partitions have moved.
    pub(super) fn set_view(&mut self, view: &View) {
        self.backends = view.backends.iter().chain(view.shares.map.backends()).copied().collect();
        self.caches.clone_from(&view.caches);
        self.map = Arc::clone(&view.shares.map);
        self.places.clone_from(&view.places);
    }

    /// What there is whatever is cached.
    pub(super) fn always(&self) -> Flows {
        let to = |node: &NodeId| self.to(*self.places.get(node)?);
        let of_backend = |node: &NodeId| Some((self.rules.of_backend(*node)?, to(node)?));
        let of_member = |node: &NodeId| Some((self.rules.of_member(*node)?, to(node)?));
        let backends = self.backends.iter().filter_map(of_backend);
        let members = self.places.keys().filter_map(of_member);
        let of_all = backends.chain(members).chain([self.rules.of_nobody(), self.rules.of_others()]);
        let mut flows: Flows = of_all.map(|(key, actions)| (key.into(), actions)).collect();
        if let Some((fabric, of_keys)) = &self.fabric {
            flows.extend(self.bound(fabric, *of_keys));
            flows.extend(self.ways(fabric));
        }
        flows
    }

    /// What is on its way to a host that takes gets: it goes on. But to a backend gets are on their way, too, that have not been where rules of its keys are.
    fn bound(&self, fabric: &Fabric, of_keys: RulesOfKeys) -> impl Iterator<Item = (FlowAt, Actions)> {
        let takes_gets = |(node, _): &(&NodeId, &Place)| self.backends.contains(*node) || self.caches.is_node(**node);
        self.places.iter().filter(takes_gets).flat_map(move |(node, place)| {
            let (key, actions) = (self.rules.of_bound(place.mac), Rules::to_host(place.mac));
            let looks_up = place.switch.filter(|_| of_keys == RulesOfKeys::Parted && self.backends.contains(node));
            let others = fabric.switches().filter(|switch| Some(*switch) != looks_up).map(Some);
            let at: Vec<Option<DatapathId>> = if looks_up.is_some() { others.collect() } else { vec![None] };
            at.into_iter().map(move |switch| (FlowAt { switch, key }, actions))
        })
    }

    /// By which ports hosts are reached.
    fn ways(&self, fabric: &Fabric) -> impl Iterator<Item = (FlowAt, Actions)> {
        // Of each host the first of its members: all are at one place.
        let mut hosts: BTreeMap<MacAddress, (NodeId, Place)> = BTreeMap::new();
        for (node, place) in &self.places {
            hosts.entry(place.mac).or_insert((*node, *place));
        }
        let way = |at: DatapathId, (node, place): (NodeId, Place)| {
            let its = place.switch?;
            let port = if its == at { place.port } else { fabric.way(at, its, node)? };
            let back = fabric.is_link(at, port).then(|| Rules::way_back(place.mac, port));
            let ways = [Some(Rules::way(place.mac, port)), back].into_iter().flatten();
            Some(ways.map(move |(key, actions)| (FlowAt { switch: Some(at), key }, actions)))
        };
        let at_each = fabric.switches().flat_map(|at| hosts.values().filter_map(move |host| way(at, *host)));
        at_each.flatten().collect::<Vec<_>>().into_iter()
    }

    /// What brings packets to a place.
    fn to(&self, place: Place) -> Option<Actions> {
        if self.fabric.is_some() { Some(Rules::to_host(place.mac)) } else { self.rules.to(place) }
    }

    /// The flow of a hash.
    pub(super) fn of_hash(&self, hash: KeyHash) -> FlowAt {
        let owner = self.map.owner_of(hash);
        let is_parted = matches!(self.fabric, Some((_, RulesOfKeys::Parted)));
        let switch = self.places.get(&owner).and_then(|place| place.switch).filter(|_| is_parted);
        FlowAt { switch, key: self.rules.of_hash(owner, hash) }
    }

    /// The flow that leads a hash to a part of a cache node.
    pub(super) fn to_part(&self, hash: KeyHash, part: NodeId) -> Option<(FlowAt, Actions)> {
        let place = self.places.get(&self.caches.node_of(part)?)?;
        Some((self.of_hash(hash), self.to(*place)?))
    }

    /// The flow that a switch has of a key, whether it is its own or that of all.
    pub(super) fn find(flows: &Flows, switch: Option<DatapathId>, key: FlowKey) -> Option<(FlowAt, &Actions)> {
        let at = [switch, None].map(|switch| FlowAt { switch, key });
        at.into_iter().find_map(|flow| Some((flow, flows.get(&flow)?)))
    }
}

#[cfg(test)]
#[path = "flow_plan_tests.rs"]
mod tests;
