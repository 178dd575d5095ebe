//! The end of a round: nothing goes wrong any more, and all has to go on.

use guira_item::Span;
use guira_routing::NodeId;
use guira_switched::Shares;

use super::{Coming, Input, World};
use crate::{
    clients::{KeyNumber, Wish},
    disk::Failing,
    members::Core,
    network::Weather,
    register::State,
    simulation::Failure,
};

impl World {
    /// Heals everything, waits for what is under way (a disk that does nothing just now goes on later), and reads every key: what is there.
    pub(super) fn settle_down(&mut self) -> Result<Vec<State>, Failure> {
        const WITHIN: Span = Span::from_s(30);
        self.is_on = false;
        self.network.heal();
        self.network.weather = Weather::CLEAR;
        let now = self.now;
        for node in self.nodes.values_mut() {
            node.failing = Failing { per_mille: 0 };
            node.host.go_on(now);
        }
        if *self.view() != self.full_view() {
            self.set_view(self.full_view(), Span::default());
        }
        let down: Vec<NodeId> = self.nodes.keys().copied().filter(|name| self.is_down(*name)).collect();
        for name in down {
            if self.may_start(name) {
                self.start(name);
            }
        }
        self.run_until(self.now + WITHIN)?;
        if self.clients.waiting() > 0 {
            return Err(Failure::Stuck(format!("{} clients wait for an answer", self.clients.waiting())));
        }
        if self.scenario.backends_change {
            self.read_all(WITHIN)?;
            self.settle_owners(WITHIN)?;
        }
        self.expect_no_flush_to_come()?;
        self.read_all(WITHIN)?;
        let charge = |part: NodeId| match &self.nodes[&part].core {
            Some(Core::Cache(core)) => core.charge(),
            _ => 0,
        };
        let caches = self.scenario.cache_nodes();
        for node in caches.nodes() {
            let charges: Vec<usize> = caches.parts_of(node).map(charge).collect();
            if charges.iter().any(|charge| *charge != charges[0]) {
                return Err(Failure::Stuck(format!("parts of {node:?} are in charge of {charges:?} backends")));
            }
        }
        let charged: usize = caches.nodes().map(charge).sum();
        if charged != usize::from(self.scenario.backends) {
            return Err(Failure::Stuck(format!("cache nodes are in charge of {charged} backends")));
        }
        for (name, node) in &self.nodes {
            let now = node.host.local(self.now);
            let is_well = match &node.core {
                Some(Core::Backend(core)) => core.serves() && core.under_way() == 0,
                Some(Core::Cache(core)) => core.sessions(now) == usize::from(self.scenario.backends),
                Some(Core::Controller(_)) => true,
                Some(Core::Gateway(core)) => core.pending() == 0,
                None => !self.is_there(*name, self.views.len() - 1),
            };
            if !is_well {
                return Err(Failure::Stuck(format!("node {} is not well though nothing is wrong", name.0)));
            }
        }
        Ok(self.clients.last_states())
    }

    /// Whatever was to be gone is, by now.
    fn expect_no_flush_to_come(&self) -> Result<(), Failure> {
        if self.clients.awaits_flush() {
            return Err(Failure::Stuck("a flush_all whose time has come has not taken place".into()));
        }
        Ok(())
    }

    /// No backend has anything of another's on its disk.
    fn expect_no_strays(&self) -> Result<(), Failure> {
        let (map, hash_of) = (&self.view().shares.map, self.scenario.hash_of());
        for (name, node) in &self.nodes {
            let strays = node.disk.own_keys().filter(|key| map.owner_of(hash_of(key)) != *name).count();
            if strays > 0 {
                return Err(Failure::Stuck(format!("backend {} has {strays} keys of others", name.0)));
            }
        }
        Ok(())
    }

    /// Waits until all backends have what they are to have, and takes everything away: nobody holds that up for what was given long ago.
    fn settle_owners(&mut self, within: Span) -> Result<(), Failure> {
        // Who has tried in vain tries again after a while.
        const WAITS_MAX: usize = 10;
        // The first request that a backend's new life gets in the session with the one before is of unknown outcome.
        const FLUSHES_MAX: usize = 3;
        for _ in 0..WAITS_MAX {
            let Shares { map, wanted, .. } = &self.view().shares;
            if map == wanted {
                // All hear of it.
                self.run_until(self.now + within)?;
                // What is taken away below would take its place.
                self.expect_no_flush_to_come()?;
                if self.scenario.ends_clean {
                    self.expect_no_strays()?;
                }
                for _ in 0..FLUSHES_MAX {
                    let before = self.clients.tally;
                    let (id, gateway) = (self.clients.flush(0), self.gateway_of(0));
                    self.come(Span::default(), Coming::To(gateway, None, Input::Ask(id, Wish::Flush)));
                    self.run_until(self.now + within)?;
                    if !self.clients.tally.has_more_failures(before) {
                        return Ok(());
                    }
                }
                return Err(Failure::Stuck("a flush_all fails again and again though everything is well".into()));
            }
            self.run_until(self.now + within)?;
        }
        Err(Failure::Stuck("backends have what others are to have".into()))
    }

    /// A client reads every key: nothing fails.
    fn read_all(&mut self, within: Span) -> Result<(), Failure> {
        let before = self.clients.tally;
        for key in 0..self.scenario.keys {
            let id = self.clients.read(0, KeyNumber(key));
            let gateway = self.gateway_of(0);
            self.come(Span::default(), Coming::To(gateway, None, Input::Ask(id, Wish::read(KeyNumber(key)))));
        }
        self.run_until(self.now + within)?;
        if self.clients.waiting() > 0 || self.clients.tally.has_more_failures(before) {
            return Err(Failure::Stuck("a read failed though everything is well".into()));
        }
        Ok(())
    }
}
