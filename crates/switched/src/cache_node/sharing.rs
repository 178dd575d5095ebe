//! Work shared among cache nodes: the backends in the charge of this one, what it offers of their keys to others, and what the controller is told of it.
//!
//! ```text
//! too much here (the mean is told): hottest keys --(Spread)--> backend --> another cache node, too
//! a backend goes elsewhere:         its items    --(Spread)--> backend --> who is in charge now; two segments later dropped here
//! ```
//! A backend knows which cache node is to have a key that is spread, and which part of it (their hashes say so, or their charge); here nobody is told of it
//! but the backend. What is said here of a cache node each of its parts does by itself.

use std::collections::BTreeSet;

use guira_item::{Moment, Span};
use guira_routing::NodeId;

use super::{
    CacheNode,
    items::{Leaving, Spread},
    load,
};
use crate::{Body, KeyBytes, Loaded, initiator::Turn};

/// How much more than the mean, as a part of it, a cache node has to do before other cache nodes are to have some of its keys too.
const SPREAD_OVER: f64 = 0.1;

/// Keys that it looks at for that, the hottest: if many more are too much, another cache node has to have some backends in its charge.
const SPREAD_AMONG: usize = 64;

/// The load of a key that is worth it, as a part of the mean. Where lesser ones fall loads are as even as chance has it, within about the root of this, and each
/// that is had twice takes another's place, and two updates of rules.
const SPREAD_LOAD_MIN: f64 = 1.0 / 32.0;

/// How long until the same key is wanted spread again.
const SPREAD_AGAIN_AFTER: Span = Span::from_s(8);

/// How long until it is seen what that has brought: loads are smoothed. What is yet to come of it is not wanted of other keys meanwhile, each of which would
/// cost two updates of rules.
const SPREAD_SEEN_AFTER: Span = Span::from_s(4);

/// Items of backends that are in another's charge now which that is to take over with each segment, hottest first: each costs two updates of rules.
const HANDED_OVER_AT_ONCE: usize = 64;

/// Segments after which it has them, or does not want them: they are not kept here any more.
const HANDED_OVER_AFTER: u32 = 2;

impl CacheNode {
    /// Tells the controller what there is to do here, and for whom.
    pub(super) fn tell_loads(&mut self, now: Moment) {
        let mut loads = self.items.loads();
        self.load = loads.values().sum();
        let charge = self.charge.iter().map(|backend| (*backend, load(loads.remove(backend).unwrap_or(0.0))));
        let charge = charge.collect();
        let others = load(loads.values().sum());
        if let Some(open) = self.controller.valid(now) {
            // If there is no room, they are told again with the next segment.
            let _ = open.link.send(Body::Loads { orders_heard: self.orders_heard, charge, others });
        }
    }

    /// From here on these backends are in its charge. What it has of those that are no longer is handed over bit by bit ([`Self::hand_over`]).
    pub(super) fn take_charge(&mut self, now: Moment, backends: Vec<NodeId>) {
        let charge: BTreeSet<NodeId> = backends.into_iter().collect();
        charge.iter().for_each(|backend| self.know(*backend));
        let mut void = BTreeSet::new();
        for backend in self.charge.symmetric_difference(&charge) {
            let Some(initiator) = self.sources.get_mut(backend) else { continue };
            if initiator.set_in_charge(now, charge.contains(backend)) == Turn::Void {
                void.insert(*backend);
            }
        }
        self.forget(void);
        let (goes, comes) = (&self.charge - &charge, &charge - &self.charge);
        self.items.leave(&goes, &comes);
        self.exchanges.forget(&goes);
        self.charge = charge;
        self.forget_who_has_gone();
        self.tell_loads(now);
    }

    /// Has the cache nodes that are in charge now take over what they are in charge of, the hottest first, and drops what they have had time to take.
    /// Until then it is served from both: nobody has to do without.
    pub(super) fn hand_over(&mut self, now: Moment) {
        for key in self.items.left_by(self.segments) {
            self.remove(now, &key);
        }
        for (key, source, per_s) in self.items.leaving(HANDED_OVER_AT_ONCE) {
            let loaded = Loaded { key: KeyBytes(key.clone()), per_s: per_s as f32 };
            if self.tell(now, source, Body::Spread(loaded)) {
                let at = self.segments.wrapping_add(HANDED_OVER_AFTER);
                self.items.set_leaving(&key, Leaving::At(at));
            }
        }
    }

    /// Has other cache nodes take over a part of what is more than each has to do: of the hottest keys.
    pub(super) fn spread(&mut self, now: Moment, mean: f64) {
        let too_much = self.load - mean;
        if too_much <= mean * SPREAD_OVER {
            return;
        }
        let mut left = too_much;
        for (key, per_s) in self.items.hottest(SPREAD_AMONG) {
            if left <= 0.0 || per_s < mean * SPREAD_LOAD_MIN {
                return;
            }
            let Some(cached) = self.items.get(&key) else { continue };
            if let Some(Spread { at, per_s: before, is_first }) = cached.spread
                && now.since(at) < SPREAD_AGAIN_AFTER
            {
                // A part of its half is yet to go; nothing of one that is named again, which nobody wanted.
                if is_first && now.since(at) < SPREAD_SEEN_AFTER {
                    left -= (per_s - before / 2.0).max(0.0);
                }
                continue;
            }
            cached.spread = Some(Spread { at: now, per_s, is_first: cached.spread.is_none() });
            let source = cached.source;
            left -= per_s / 2.0;
            self.tell(now, source, Body::Spread(Loaded { key: KeyBytes(key), per_s: per_s as f32 }));
        }
    }
}
