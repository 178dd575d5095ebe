//! The rules of a cluster in its switches: which flows they are to have, of what the controller says and of who there is.
//!
//! Always true: a key's rule is at the backend that has it, by the last view, and goes along when its partition moves; rules of keys that switches have when a
//! controller begins are left to them until cache nodes have had the time to say what they have: else all that is hot would come to backends meanwhile.

use std::{collections::BTreeMap, io, net::TcpListener, sync::Arc};

use guira_item::{Moment, Span};
use guira_openflow::{
    Actions, DatapathId, FlowKey, Place, Refusal, Rules, SwitchConfig, SwitchStatus, Switches, SwitchesConfig,
    SwitchesTold, Told,
};
use guira_routing::{CacheNodes, KeyHash, NodeId, PartitionMap, RuleUpdate};

use crate::{View, controller::Controller};

/// Leases that cache nodes are waited for: by then they have begun a session, and said what they have.
const WAIT_LEASES: u64 = 3;

/// Times as many updates a second as a switch was seen to take are made: it may take more.
const HEADROOM: u32 = 2;

/// Rules of hashes that are taken back for a flow that a full switch has to have.
const MAKES_ROOM: usize = 16;

/// A network that routes.
pub struct NetworkConfig {
    /// How a cluster's rules look there.
    pub rules: Rules,
    /// Where its switches call.
    pub listener: TcpListener,
    /// Hears what is told of switches, on a thread that must not wait.
    pub told: Box<dyn FnMut(&SwitchesTold) + Send>,
}

impl std::fmt::Debug for NetworkConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetworkConfig").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A cluster's switches.
pub(super) struct Network {
    rules: Rules,
    switches: Arc<Switches>,
    /// Until then rules of hashes are left to them that an earlier controller has made.
    spares_until: Option<Moment>,
    /// What they are to have.
    flows: BTreeMap<FlowKey, Actions>,
    /// Whose rules some of these are.
    hashes: BTreeMap<FlowKey, KeyHash>,
    /// The rules that there are to be: for each hash a part of a cache node.
    made: BTreeMap<KeyHash, NodeId>,
    backends: Vec<NodeId>,
    caches: CacheNodes,
    map: Arc<PartitionMap>,
    places: BTreeMap<NodeId, Place>,
    rates: BTreeMap<DatapathId, u32>,
}

impl Network {
    /// Lets switches call. `told` is told of them, on another thread.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub(super) fn new(
        now: Moment,
        lease: Span,
        NetworkConfig { rules, listener, told: mut hear }: NetworkConfig,
        view: &View,
        mut told: impl FnMut(SwitchesTold) + Send + 'static,
    ) -> io::Result<Self> {
        let told = move |what: SwitchesTold| {
            hear(&what);
            told(what);
        };
        let config = SwitchesConfig::default();
        let switch = SwitchConfig { spares: Some(Rules::OF_A_HASH), ..config.switch };
        let mut network = Self {
            rules,
            switches: Arc::new(Switches::listen_at(listener, SwitchesConfig { switch, ..config }, told)?),
            spares_until: Some(now + lease.times(WAIT_LEASES)),
            flows: BTreeMap::new(),
            hashes: BTreeMap::new(),
            made: BTreeMap::new(),
            backends: Vec::new(),
            caches: CacheNodes::default(),
            map: Arc::clone(&view.shares.map),
            places: BTreeMap::new(),
            rates: BTreeMap::new(),
        };
        network.set_view(view);
        Ok(network)
    }

    /// Has switches do without what an earlier controller has told them, if it is time.
    pub(super) fn tick(&mut self, now: Moment) {
        if self.spares_until.take_if(|until| now >= *until).is_some() {
            self.switches.spare_none().expect(SPOKEN_TO);
        }
    }

    /// When it is time.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        self.spares_until
    }

    /// The switches.
    pub(super) fn switches(&self) -> Arc<Switches> {
        Arc::clone(&self.switches)
    }

    /// There are others now, or partitions have moved.
    pub(super) fn set_view(&mut self, view: &View) {
        self.backends = view.backends.iter().chain(view.shares.map.backends()).copied().collect();
        self.caches.clone_from(&view.caches);
        self.map = Arc::clone(&view.shares.map);
        self.places.clone_from(&view.places);
        let before = std::mem::take(&mut self.flows);
        self.flows = self.always();
        self.hashes.clear();
        for (hash, part) in &self.made {
            if let Some((key, actions)) = self.flow(*hash, *part) {
                self.hashes.insert(key, *hash);
                self.flows.insert(key, actions);
            }
        }
        let gone = before.keys().filter(|key| !self.flows.contains_key(*key)).map(|key| (*key, None));
        let new = self.flows.iter().filter(|(key, actions)| before.get(*key) != Some(*actions));
        self.tell(gone.chain(new.map(|(key, actions)| (*key, Some(*actions)))).collect());
    }

    /// What there is whatever is cached.
    fn always(&self) -> BTreeMap<FlowKey, Actions> {
        let to = |node: &NodeId| self.rules.to(*self.places.get(node)?);
        let of_backend = |node: &NodeId| Some((self.rules.of_backend(*node)?, to(node)?));
        let of_member = |node: &NodeId| Some((self.rules.of_member(*node)?, to(node)?));
        let backends = self.backends.iter().filter_map(of_backend);
        let members = self.places.keys().filter_map(of_member);
        backends.chain(members).chain([self.rules.of_nobody(), self.rules.of_others()]).collect()
    }

    /// The flow that leads a hash to a part of a cache node.
    fn flow(&self, hash: KeyHash, part: NodeId) -> Option<(FlowKey, Actions)> {
        let place = self.places.get(&self.caches.node_of(part)?)?;
        Some((self.rules.of_hash(self.map.owner_of(hash), hash), self.rules.to(*place)?))
    }

    /// Rules have been made, or taken back.
    pub(super) fn update(&mut self, updates: impl IntoIterator<Item = RuleUpdate>) {
        let mut told = Vec::new();
        for update in updates {
            let (hash, part) = match update {
                // A switch leads to one.
                RuleUpdate::Install { hash, choices } => (hash, choices.iter().next()),
                RuleUpdate::Delete { hash } => (hash, None),
            };
            match part.and_then(|part| Some((part, self.flow(hash, part)?))) {
                Some((part, (key, actions))) => {
                    self.made.insert(hash, part);
                    self.hashes.insert(key, hash);
                    self.flows.insert(key, actions);
                    told.push((key, Some(actions)));
                }
                None => told.extend(self.take_back(hash).map(|key| (key, None))),
            }
        }
        self.tell(told);
    }

    /// A hash has no rule any more; which flow that was.
    fn take_back(&mut self, hash: KeyHash) -> Option<FlowKey> {
        self.made.remove(&hash)?;
        let key = self.rules.of_hash(self.map.owner_of(hash), hash);
        // With headers that carry a part of it, another hash may have it by now.
        if self.hashes.get(&key) != Some(&hash) {
            return None;
        }
        self.hashes.remove(&key);
        self.flows.remove(&key);
        Some(key)
    }

    /// Something of switches, which the controller is to know.
    pub(super) fn on_told(&mut self, now: Moment, told: SwitchesTold, controller: &mut Controller) {
        match told {
            SwitchesTold::Of(_, Told::Known(_)) => controller.on_room(),
            SwitchesTold::Of(_, Told::Refused(key, why)) => self.on_refused(now, key, why, controller),
            SwitchesTold::Of(Some(switch), Told::Takes { updates_per_s }) => {
                self.rates.insert(switch, updates_per_s);
                controller.on_rate(now, self.slowest());
            }
            SwitchesTold::Gone(Some(switch), _) => {
                self.rates.remove(&switch);
                controller.on_rate(now, self.slowest());
            }
            SwitchesTold::Of(..) | SwitchesTold::Gone(None, _) => {}
        }
    }

    fn slowest(&self) -> Option<u32> {
        self.rates.values().min().map(|slowest| slowest.saturating_mul(HEADROOM))
    }

    /// A switch has not taken a flow. Others may have, which is of no use.
    fn on_refused(&mut self, now: Moment, key: FlowKey, why: Refusal, controller: &mut Controller) {
        // While it has rules that it is not to have, it says nothing of how many it has room for.
        let is_full = why == Refusal::TABLE_FULL && self.spares_until.is_none();
        if let Some(hash) = self.hashes.get(&key).copied() {
            let key = self.take_back(hash);
            self.tell(key.into_iter().map(|key| (key, None)).collect());
            controller.on_refused(now, hash, is_full);
        } else if let Some(actions) = self.flows.get(&key).copied()
            && why == Refusal::TABLE_FULL
            && !self.made.is_empty()
        {
            // It has to be there: keys do without.
            let some: Vec<KeyHash> = self.made.keys().copied().take(MAKES_ROOM).collect();
            let mut told: Vec<(FlowKey, Option<Actions>)> = Vec::new();
            for hash in some {
                told.extend(self.take_back(hash).map(|key| (key, None)));
                controller.on_refused(now, hash, is_full);
            }
            told.push((key, Some(actions)));
            self.tell(told);
        }
    }

    /// # Panics
    /// Switches are not spoken to any more: without that a controller is of no use, and begins again.
    fn tell(&self, updates: Vec<(FlowKey, Option<Actions>)>) {
        if !updates.is_empty() {
            self.switches.update(updates).expect(SPOKEN_TO);
        }
    }
}

const SPOKEN_TO: &str = "switches are spoken to";

/// How switches are that have called; waits for the thread that speaks to them.
pub(super) fn status_of(switches: Option<Arc<Switches>>) -> Vec<SwitchStatus> {
    switches.and_then(|switches| switches.status().ok()).unwrap_or_default()
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
