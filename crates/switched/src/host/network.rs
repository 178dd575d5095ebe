//! The rules of a cluster in its switches: which flows they are to have, of what the controller says and of who there is.
//!
//! Always true: a key's rule is at the backend that has it, by the last view, and goes along when its partition moves; rules of keys that switches have when a
//! controller begins are left to them until cache nodes have had the time to say what they have: else all that is hot would come to backends meanwhile.

mod flow_plan;

use std::{collections::BTreeMap, io, net::TcpListener, sync::Arc};

use guira_item::{Moment, Span};
use guira_openflow::{
    DatapathId, Fabric, FlowAt, FlowChange, FlowKey, Refusal, Rules, RulesOfKeys, SwitchConfig, SwitchStatus, Switches,
    SwitchesConfig, SwitchesTold, TableId, Told,
};
use guira_routing::{KeyHash, NodeId, RuleUpdate};

use self::flow_plan::{FlowPlan, Flows};
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
    /// How its switches are joined, and which of them have the rules of keys; `None`: there is one, or all are alike and find out ways by themselves.
    pub fabric: Option<(Fabric, RulesOfKeys)>,
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
    plan: FlowPlan,
    switches: Arc<Switches>,
    /// Until then rules of hashes are left to them that an earlier controller has made.
    spares_until: Option<Moment>,
    /// What they are to have.
    flows: Flows,
    /// Whose rules some of these are.
    hashes: BTreeMap<FlowAt, KeyHash>,
    /// The rules that there are to be: for each hash a part of a cache node.
    made: BTreeMap<KeyHash, NodeId>,
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
        NetworkConfig { rules, fabric, listener, told: mut hear }: NetworkConfig,
        view: &View,
        mut told: impl FnMut(SwitchesTold) + Send + 'static,
    ) -> io::Result<Self> {
        let told = move |what: SwitchesTold| {
            hear(&what);
            told(what);
        };
        let switch =
            SwitchConfig { spares: Some(Rules::OF_A_HASH), last: Some(Rules::OF_A_HASH), ..SwitchConfig::default() };
        let expected = fabric.as_ref().map(|(fabric, _)| fabric.switches().collect());
        let several = fabric.as_ref().map_or(0, |(fabric, _)| fabric.len());
        let SwitchesConfig { connections_max, .. } = SwitchesConfig::default();
        // Each of them, what is left of its last line, and others.
        let config = SwitchesConfig { switch, expected, connections_max: connections_max + 2 * several };
        let mut network = Self {
            plan: FlowPlan::new(rules, fabric, view),
            switches: Arc::new(Switches::listen_at(listener, config, told)?),
            spares_until: Some(now + lease.times(WAIT_LEASES)),
            flows: Flows::new(),
            hashes: BTreeMap::new(),
            made: BTreeMap::new(),
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
        self.plan.set_view(view);
        let before = std::mem::take(&mut self.flows);
        self.flows = self.plan.always();
        self.hashes.clear();
        for (hash, part) in &self.made {
            if let Some((flow, actions)) = self.plan.to_part(*hash, *part) {
                self.hashes.insert(flow, *hash);
                self.flows.insert(flow, actions);
            }
        }
        let gone = before.keys().filter(|flow| !self.flows.contains_key(*flow)).map(|flow| (*flow, None));
        let new = self.flows.iter().filter(|(flow, actions)| before.get(*flow) != Some(*actions));
        self.tell(gone.chain(new.map(|(flow, actions)| (*flow, Some(*actions)))).collect());
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
            match part.and_then(|part| Some((part, self.plan.to_part(hash, part)?))) {
                Some((part, (flow, actions))) => {
                    self.made.insert(hash, part);
                    self.hashes.insert(flow, hash);
                    self.flows.insert(flow, actions);
                    told.push((flow, Some(actions)));
                }
                None => told.extend(self.take_back(hash).map(|flow| (flow, None))),
            }
        }
        self.tell(told);
    }

    /// A hash has no rule any more; which flow that was.
    fn take_back(&mut self, hash: KeyHash) -> Option<FlowAt> {
        self.made.remove(&hash)?;
        let flow = self.plan.of_hash(hash);
        // With headers that carry a part of it, another hash may have it by now.
        if self.hashes.get(&flow) != Some(&hash) {
            return None;
        }
        self.hashes.remove(&flow);
        self.flows.remove(&flow);
        Some(flow)
    }

    /// Something of switches, which the controller is to know.
    pub(super) fn on_told(&mut self, now: Moment, told: SwitchesTold, controller: &mut Controller) {
        match told {
            SwitchesTold::Of(_, Told::Known(_)) => controller.on_room(),
            SwitchesTold::Of(switch, Told::Refused(key, why)) => self.on_refused(now, switch, key, why, controller),
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
    fn on_refused(
        &mut self,
        now: Moment,
        switch: Option<DatapathId>,
        key: FlowKey,
        why: Refusal,
        controller: &mut Controller,
    ) {
        let Some((flow, actions)) = FlowPlan::find(&self.flows, switch, key) else { return };
        let actions = *actions;
        // While it has rules that it is not to have, it says nothing of how many it has room for; and of several that have other rules each nothing of how many all have.
        let is_full = why == Refusal::TABLE_FULL && self.spares_until.is_none() && !self.plan.is_parted();
        if let Some(hash) = self.hashes.get(&flow).copied() {
            let flow = self.take_back(hash);
            self.tell(flow.into_iter().map(|flow| (flow, None)).collect());
            controller.on_refused(now, hash, is_full);
        } else if why == Refusal::TABLE_FULL && key.table == TableId::FIRST {
            // It has to be there: keys do without, of which that switch has rules.
            let are_there = self.hashes.iter().filter(|(flow, _)| flow.switch.is_none_or(|its| Some(its) == switch));
            let some: Vec<KeyHash> = are_there.map(|(_, hash)| *hash).take(MAKES_ROOM).collect();
            if some.is_empty() {
                return;
            }
            let mut told: Vec<FlowChange> = Vec::new();
            for hash in some {
                told.extend(self.take_back(hash).map(|flow| (flow, None)));
                controller.on_refused(now, hash, is_full);
            }
            told.push((flow, Some(actions)));
            self.tell(told);
        }
    }

    /// # Panics
    /// Switches are not spoken to any more: without that a controller is of no use, and begins again.
    fn tell(&self, updates: Vec<FlowChange>) {
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
