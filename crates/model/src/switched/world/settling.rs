//! What comes of a state when no more faults come: everything is answered, what is to come comes, and what is to move moves.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::World;
use crate::switched::{
    act::{Act, Timed, Way},
    disk::Fate,
    scenario::Scenario,
};

/// How many ticks it takes at most until everything is answered once faults stop: two leases, and what was under way.
const SETTLES_WITHIN_TICKS: usize = 16;

/// The same, and until what is to move has: an attempt waits for ten seconds for a taker that is not there, and for as long as sixteen for the one before.
const MOVES_WITHIN_TICKS: usize = 64;

/// Steps in a moment, at most.
const STEPS_MAX: usize = 1_000;

impl World {
    /// Whether what was asked is answered, sessions are there, what was to come has, and what is to move has moved, once no more faults come.
    pub(crate) fn settles_after(&self, scenario: &Scenario) -> bool {
        let calm = Scenario { room: usize::MAX, ..scenario.clone() };
        // A core that panics has not settled.
        catch_unwind(AssertUnwindSafe(|| self.clone().settles(&calm))).unwrap_or(false)
    }

    /// The same, at once.
    pub(super) fn settles(&mut self, calm: &Scenario) -> bool {
        if self.has_gone {
            self.happen(calm, Act::CacheComesBack);
        }
        let within_ticks = if calm.moves == 0 { SETTLES_WITHIN_TICKS } else { MOVES_WITHIN_TICKS };
        for _ in 0..within_ticks {
            for _ in 0..STEPS_MAX {
                let Some(act) = self.calm_act() else { break };
                self.happen(calm, act);
            }
            let backends = self.backends.len();
            let have_sessions = self.caches.iter().all(|cache| cache.core.sessions(cache.now()) == backends);
            let are_answered = self.clients.iter().all(|client| client.asked.is_none());
            if have_sessions && are_answered && self.has_come() && (calm.moves == 0 || self.has_moved()) {
                return true;
            }
            self.happen(calm, Act::ClockGoesOn(Timed::Backend));
            (0..self.backends.len()).for_each(|at| self.happen(calm, Act::BackendIsDue(at)));
            if !self.caches.is_empty() {
                self.happen(calm, Act::ClockGoesOn(Timed::Caches));
            }
            (0..self.caches.len()).for_each(|at| self.happen(calm, Act::CacheIsDue(at)));
            (0..self.gateways.len()).for_each(|at| self.happen(calm, Act::GatewayWaited(at)));
        }
        false
    }

    /// What happens next where nothing goes wrong, before time goes on.
    fn calm_act(&self) -> Option<Act> {
        let disk = self.disks.iter().position(|disk| !disk.calls().is_empty());
        let datagram = (!self.network.datagrams.is_empty()).then_some(Act::Datagram(0, Way::Comes));
        datagram.or_else(|| disk.map(|of| Act::Disk(of, 0, Fate::Done))).or_else(|| {
            let commits = (self.coordinator.asked() > 0).then_some(Act::Commits(0));
            let answers = (self.coordinator.answers() > 0).then_some(Act::IsAnswered(0));
            commits.or(answers).or_else(|| self.unheard().next().map(Act::Hears))
        })
    }

    /// Who is to have the partition has it, all know that, and backends serve.
    fn has_moved(&self) -> bool {
        self.coordinator.is_as_wanted()
            && self.unheard().next().is_none()
            && self.backends.iter().all(|backend| backend.core.serves())
    }
}
