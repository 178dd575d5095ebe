//! Backends that stand by, and take over what others have: those are down, or asleep, or only cut off from their store (`docs/design/0026`).
//!
//! ```text
//! a fault -> who has the store is let down by it, from then on or a little later -> (it answers nothing any more) -> the other one has the store,
//!         and begins a life -> the coordinator has it in the first one's place -> it serves
//! ```
//! Always true: a store is one backend's at a time; what those before have asked of it may come yet (`table`).

use guira_item::{Moment, Span};
use guira_routing::{NodeId, PartitionMap};
use guira_switched::{Mutant, Revision, Shares, View};
use rand::RngExt;

use crate::{
    members::{FIRST_BACKEND, of_kind, view_of},
    world::{Coming, World},
};

/// What a store lets a backend do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Hold {
    /// All.
    #[default]
    Its,
    /// It is not renewed: it may say something until then.
    EndsAt(Moment),
    /// Nothing: another one has it.
    Lost,
    /// Nothing yet: another's is waited for, or that one's place.
    Waits,
}

impl Hold {
    /// Whether what it says may leave it then.
    pub(crate) fn lets_say(self, now: Moment) -> bool {
        match self {
            Self::Its => true,
            Self::EndsAt(at) => now < at,
            Self::Lost | Self::Waits => false,
        }
    }
}

impl World {
    /// Somebody is to take over what a backend has, if anybody stands by.
    pub(crate) fn have_taken_over(&mut self) {
        let Some(standby) = self.any_free_standby() else { return };
        let backends: Vec<NodeId> = self.places.values().copied().collect();
        let backend = backends[self.rng.random_range(0..backends.len())];
        if self.hold(backend) != Hold::Its {
            return;
        }
        let says_for = self.span(Span::from_ms(1), Span::from_s(5));
        *self.hold_mut(backend) = Hold::EndsAt(self.now + says_for);
        match self.rng.random_range(0..3) {
            0 => {
                // It is back too late, or at least not with what it had.
                let (down_for, loses_clock) = (self.span(Span::from_s(1), Span::from_s(9)), self.rng.random_bool(0.3));
                self.crash(backend, down_for, loses_clock);
            }
            1 => {
                let (pause, in_a_step) = (self.span(Span::from_ms(20), Span::from_s(3)), self.rng.random_bool(0.5));
                self.pause(backend, pause, in_a_step);
            }
            _ => {}
        }
        let a_moment = self.span(Span::default(), Span::from_s(1));
        // The fault: the store is not asked who has it.
        let waits = if self.scenario.mutant == Some(Mutant::TakesEarly) { a_moment } else { says_for + a_moment };
        *self.hold_mut(standby) = Hold::Waits;
        self.come(waits, Coming::HasStore { standby, of: backend });
    }

    /// One that has nothing, and does not run, nor waits for somebody's store.
    fn any_free_standby(&mut self) -> Option<NodeId> {
        let all = of_kind(FIRST_BACKEND, self.scenario.backends + self.scenario.standbys);
        let is_free = |name: &NodeId| !self.places.values().any(|other| other == name) && self.is_down(*name);
        let free: Vec<NodeId> =
            all.into_iter().filter(|name| is_free(name) && self.hold(*name) != Hold::Waits).collect();
        if free.is_empty() { None } else { Some(free[self.rng.random_range(0..free.len())]) }
    }

    /// A store is another's from now on.
    pub(crate) fn has_store(&mut self, standby: NodeId, of: NodeId) {
        self.have_database(standby, of);
        if self.scenario.mutant != Some(Mutant::TakesEarly) {
            *self.hold_mut(of) = Hold::Lost;
        }
        // What an earlier life of its was given is not this one's.
        self.begin_life(standby);
        let after = self.sometimes_long();
        self.come(after, Coming::HasPlace { standby, of });
    }

    /// The coordinator has one backend in another's place.
    pub(crate) fn has_place(&mut self, standby: NodeId, of: NodeId) {
        let place = self.places.iter().find(|(_, backend)| **backend == of).map(|(place, _)| *place);
        let place = place.expect("nobody else takes it over");
        self.places.insert(place, standby);
        let View { caches, gateways, shares, .. } = self.view().clone();
        let name = |backend: NodeId| if backend == of { standby } else { backend };
        let shares = Shares {
            map: shares.map.renamed(name).into(),
            revision: Revision(shares.revision.0 + 1),
            wanted: shares.wanted.renamed(name).into(),
        };
        // Who was cut off from the store may be so from the coordinator.
        let heard_within = if self.rng.random_bool(0.5) { Span::from_ms(500) } else { Span::from_s(6) };
        self.set_view(view_of(&self.scenario, &self.places, caches, gateways, shares), heard_within);
        *self.hold_mut(standby) = Hold::Its;
        self.count_takeover();
        let after = self.span(Span::default(), Span::from_s(1));
        self.come(after, Coming::Restart(standby));
    }

    /// A like share for each of these places, of who has it.
    pub(crate) fn dealt_out_to(&self, places: &[NodeId]) -> Option<PartitionMap> {
        let map = PartitionMap::over(places).ok()?;
        Some(map.renamed(|place| self.places[&place]))
    }
}
