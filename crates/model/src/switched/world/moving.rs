//! What the coordinator does, and who hears of it when.

use guira_routing::NodeId;
use guira_switched::{Happened, backend, gateway};

use super::World;
use crate::switched::{
    act::Act,
    coordinator::Known,
    members::{BACKENDS, Member, incarnation},
    scenario::Scenario,
};

impl World {
    /// What can happen of what the coordinator does.
    pub(super) fn moves(&self, acts: &mut Vec<Act>) {
        if self.moves_left > 0 {
            acts.push(Act::IsToMove);
        }
        acts.extend(self.unheard().map(Act::Hears));
        for at in 0..self.coordinator.asked() {
            acts.push(Act::Commits(at));
            if self.left.refusals > 0 {
                acts.push(Act::IsRefused(at));
            }
        }
        acts.extend((0..self.coordinator.answers()).map(Act::IsAnswered));
    }

    /// Those who have not heard of the map as it is now; backends also of what it is to be.
    pub(super) fn unheard(&self) -> impl Iterator<Item = NodeId> {
        let now = self.coordinator.now();
        let is_heard = move |name: NodeId, known: &Known| {
            *known == now || (!BACKENDS.contains(&name) && known.has_the_map_of(&now))
        };
        self.known.iter().filter(move |(name, known)| !is_heard(**name, known)).map(|(name, _)| *name)
    }

    pub(super) fn all_backends_hear(&mut self, scenario: &Scenario) {
        BACKENDS[..self.backends.len()].iter().for_each(|name| self.hear_of_the_map(scenario, *name));
    }

    /// A member hears who is there, and who has what.
    pub(super) fn hear_of_the_map(&mut self, scenario: &Scenario, name: NodeId) {
        self.known.insert(name, self.coordinator.now());
        let view = scenario.view(usize::from(self.has_gone), self.coordinator.shares());
        match Member::of(name) {
            Member::Backend(at) => self.on_backend(scenario, at, backend::Happened::View(&view)),
            Member::Cache(at) => self.on_cache(scenario, at, Happened::View(&view)),
            Member::Gateway(at) => self.on_gateway(scenario, at, gateway::Happened::View(&view)),
        }
    }

    pub(super) fn commit(&mut self, scenario: &Scenario, at: usize, is_refused: bool) {
        let backends = &self.backends;
        let life_of = |name| {
            let at = BACKENDS.iter().position(|backend| *backend == name).expect("one of the backends");
            (backends[at].life, incarnation(backends[at].life))
        };
        self.coordinator.commit(at, is_refused, scenario.mutant, life_of);
    }

    /// How often the partition has gone to another backend.
    pub(crate) fn moved(&self) -> u64 {
        self.coordinator.moved()
    }
}
