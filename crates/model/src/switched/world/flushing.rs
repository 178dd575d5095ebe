//! A `flush_all` that is to come: when it may take place, and when it has.
//!
//! Always true: [`FLUSH_TO_COME`] is open among the orders of its key from the tick at which some backend may do it until all that own something have nothing of it to come;
//! if no client knows whether it is to come, it stays open.

use guira_item::Time;
use serde::Serialize;

use super::World;
use crate::switched::{
    members::{BACKENDS, moment},
    orders::{FLUSH_TO_COME, Number, Seen, Wish},
    scenario::{KeyNumber, Scenario},
};

/// A `flush_all` that a client wants at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ToCome {
    /// What the client has asked.
    asked: Number,
    /// The key of which clients ask in this scenario.
    key: KeyNumber,
    /// The tick of the backends' clock.
    at_tick: u64,
    /// The client was told that it will be.
    is_sure: bool,
    /// It may take place by now.
    may_be: bool,
}

impl World {
    /// A client wants a `flush_all`, at once or some ticks from now: when.
    pub(super) fn want_flush(&mut self, asked: Number, key: KeyNumber, wish: Wish) -> Time {
        let Wish::FlushIn(ticks) = wish else { return Time::default() };
        let at_tick = self.backend_ticks() + ticks;
        self.to_come = Some(ToCome { asked, key, at_tick, is_sure: false, may_be: false });
        Scenario::clock().time(moment(at_tick))
    }

    /// Somebody was answered.
    pub(super) fn see_answer(&mut self, number: Number, seen: Seen) {
        let Some(to_come) = self.to_come.as_mut().filter(|to_come| to_come.asked == number) else { return };
        to_come.is_sure = seen == Seen::Removed(true);
        if seen == (Seen::Failed { unknown: false }) {
            // Nobody has anything to come of it.
            let ToCome { key, may_be, .. } = *to_come;
            self.to_come = None;
            if may_be {
                self.orders[key.0].end(FLUSH_TO_COME, seen);
            }
        }
    }

    /// After each act: its time may have come, and it may have taken place.
    pub(super) fn see_what_was_to_come(&mut self) {
        let now = self.backend_ticks();
        let Some(to_come) = self.to_come.as_mut().filter(|to_come| to_come.at_tick <= now) else { return };
        let ToCome { key, at_tick, is_sure, may_be, .. } = *to_come;
        to_come.may_be = true;
        if !may_be {
            self.orders[key.0].begin(FLUSH_TO_COME, Wish::Flush);
        }
        if is_sure && self.have_flushed(at_tick) {
            self.to_come = None;
            self.orders[key.0].end(FLUSH_TO_COME, Seen::Removed(true));
        }
    }

    /// Whether those that own something serve, and have nothing to come of what was to be by a tick.
    fn have_flushed(&self, by_tick: u64) -> bool {
        let by = Scenario::clock().time(moment(by_tick));
        let map = self.coordinator.shares().map;
        let owners = BACKENDS.iter().zip(&self.backends).filter(|(name, _)| map.backends().contains(name));
        let mut cores = owners.map(|(_, backend)| &backend.core);
        cores.all(|core| core.serves() && core.flush_to_come().is_none_or(|at| at > by))
    }

    /// Whether nothing is to come any more whose time has, whoever knows of it.
    pub(super) fn has_come(&self) -> bool {
        let is_known = self.to_come.is_some_and(|to_come| to_come.is_sure);
        !is_known && self.have_flushed(self.backend_ticks())
    }
}
