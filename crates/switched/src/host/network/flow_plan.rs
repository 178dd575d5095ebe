//! Which flows the switches of a cluster are to have: what is so whatever is cached, and what leads a hash to a cache node.
//!
//! ```text
//!                    one switch, or several that are alike     several, and how they are joined
//! whose a packet is  all: by the host's port                   all; rules of hashes all, or the one alone at which their backend is
//! by which way       --                                        each its own, in tables behind the first
//! ```
//! Always true: a flow of a hash is at its owner's, by the last view. A get is decided on by the first switch that it comes to, or, where rules of hashes are parted, by the
//! one at which its backend is; and not by any other, whatever members each of them has heard of: so none goes in circles, but some may be lost on their way to whom one of
//! them does not know.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use guira_openflow::{Actions, DatapathId, Fabric, FlowAt, FlowKey, Place, Rules, RulesOfKeys};
use guira_routing::{CacheNodes, KeyHash, NodeId, PartitionMap};

use crate::View;

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
            fabric.switches().for_each(|at| self.add_its_own(at, fabric, *of_keys, &mut flows));
        }
        flows
    }

    /// What one of several switches has alone: what comes by its links, and by which of its ports hosts are reached.
    fn add_its_own(&self, at: DatapathId, fabric: &Fabric, of_keys: RulesOfKeys, flows: &mut Flows) {
        let mut add = |(key, actions)| _ = flows.insert(FlowAt { switch: Some(at), key }, actions);
        for link in fabric.links(at) {
            add(self.rules.decided(link, of_keys));
            if !fabric.is_in_tree(at, link) {
                add(Rules::of_others_by(link));
            }
        }
        let decides_behind_others = of_keys == RulesOfKeys::Parted;
        for (node, place) in &self.places {
            let Some(its) = place.switch else { continue };
            let port = if its == at { Some(place.port) } else { fabric.way(at, its, *node) };
            let Some(port) = port else { continue };
            add(Rules::way(place.mac, port));
            if decides_behind_others && self.caches.is_node(*node) {
                Rules::way_or_back(place.mac, port).into_iter().for_each(&mut add);
            }
        }
    }

    /// What brings packets to a place.
    fn to(&self, place: Place) -> Option<Actions> {
        if self.fabric.is_some() { Some(Rules::to_host(place.mac)) } else { self.rules.to(place) }
    }

    /// The flow of a hash.
    pub(super) fn of_hash(&self, hash: KeyHash) -> FlowAt {
        let owner = self.map.owner_of(hash);
        let switch = self.places.get(&owner).and_then(|place| place.switch).filter(|_| self.is_parted());
        FlowAt { switch, key: self.rules.of_hash(owner, hash) }
    }

    /// The flow that leads a hash to a part of a cache node.
    pub(super) fn to_part(&self, hash: KeyHash, part: NodeId) -> Option<(FlowAt, Actions)> {
        let place = self.places.get(&self.caches.node_of(part)?)?;
        let actions = match &self.fabric {
            Some((_, RulesOfKeys::Parted)) => Rules::to_host_or_back(place.mac),
            _ => self.to(*place)?,
        };
        Some((self.of_hash(hash), actions))
    }

    /// Whether each switch has rules of its own backends' hashes alone.
    pub(super) fn is_parted(&self) -> bool {
        matches!(self.fabric, Some((_, RulesOfKeys::Parted)))
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
