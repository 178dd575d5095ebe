//! Who is in charge of which backend: of its hot keys, that is, which it reports to that cache node (SwitchKV, section 3.2).
//!
//! ```text
//! cache nodes --(in charge of these, with so much load)--> owners --(be in charge of these)--> cache nodes
//!                                     nobody's: to its home, or to who has fewest
//!                                     one has too much for long: one backend, to who has least
//! ```
//! Always true: a cache node is told to take a backend only when no other says that it has it, has yet to hear an order in which it is, or has yet to
//! say what it has. So a backend knows of one at a time, but for cache nodes that the controller does not hear of, or that say nothing for some rounds:
//! nobody waits for those for ever. It is no more than a matter of speed: whoever is in charge, or how many are, answers are the same. So nothing of it
//! is kept: a controller that begins goes by what cache nodes say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use guira_item::{Moment, Span};
use guira_routing::{Load, NodeId};

use super::report::BackendReport;

/// How often it is looked whether loads are even: as often as they are told.
const ROUND: Span = Span::from_s(1);

/// Rounds after which a backend that nobody is in charge of is given to somebody: who is says so by then, even if it was the controller that was away.
const HOMELESS_FOR: u32 = 3;

/// Rounds in which it is waited for what a cache node with a session has to say: it says it at once, and again with each segment.
const AWAITED_FOR: u32 = 3;

/// A cache node has too much with more than so many times the mean, for so many rounds in a row. What can be spread key by key is by then.
const TOO_MUCH: f64 = 1.25;
const TOO_MUCH_FOR: u32 = 4;

/// A backend with more than this part of what one cache node has to do more than the other is not moved.
const MOVED_MAX: f64 = 0.8;

/// Rounds after a backend has gone elsewhere in which no other does: loads are smoothed, and what is to be cached again takes a while.
const REST_FOR: u32 = 6;

/// What is known of cache nodes, and who is to be in charge of what.
#[derive(Debug)]
pub(super) struct Balance {
    /// The cache node of a backend, if nothing speaks against it.
    homes: BTreeMap<NodeId, NodeId>,
    /// The mean load of a cache node below which all is well.
    load_min: f64,
    /// Those with a session.
    caches: BTreeMap<NodeId, Cache>,
    /// Who is to be in charge of a backend.
    owners: BTreeMap<NodeId, NodeId>,
    /// Backends of which nobody is, since which round.
    homeless: BTreeMap<NodeId, u32>,
    round_at: Moment,
    rounds: u32,
    /// Rounds in a row in which somebody had too much.
    uneven_for: u32,
    /// Rounds in which nothing is moved.
    rest: u32,
}

#[derive(Debug, Default)]
struct Cache {
    /// The round in which its session began.
    opened_in: u32,
    /// What it has said last: nothing yet.
    told: Option<Told>,
    /// What it was told last to be in charge of.
    ordered: Option<BTreeSet<NodeId>>,
    /// How often it was told.
    orders: u32,
    /// The last order, of those that it has yet to hear, in which a backend is: it may have it until then, whatever it was told since.
    coming: BTreeMap<NodeId, Coming>,
}

#[derive(Clone, Copy, Debug)]
struct Coming {
    order: u32,
    /// The round in which it was given.
    since: u32,
}

impl Cache {
    /// Whether it is waited for what it has.
    fn is_awaited(&self, rounds: u32) -> bool {
        self.told.is_none() && rounds - self.opened_in < AWAITED_FOR
    }

    /// Whether it has a backend, or may have it soon.
    fn may_have(&self, backend: &NodeId, rounds: u32) -> bool {
        let is_told = self.told.as_ref().is_some_and(|told| told.charge.contains_key(backend));
        is_told || self.coming.get(backend).is_some_and(|coming| rounds - coming.since < AWAITED_FOR)
    }
}

#[derive(Debug)]
struct Told {
    /// With their loads.
    charge: BTreeMap<NodeId, f64>,
    /// What else it is in charge of: backends that are none any more.
    gone: BTreeSet<NodeId>,
    load: f64,
}

/// What a cache node is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Be in charge of these.
    Charge(Vec<NodeId>),
    /// So much a cache node has to do, on average.
    MeanLoad(Load),
}

/// Why a backend does not go to a cache node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveError {
    /// No backend has this number, or none whose cache node may change.
    UnknownBackend(NodeId),
    /// No cache node has this number.
    UnknownCache(NodeId),
    /// The cache node has not been heard of for some time, or not yet.
    SilentCache(NodeId),
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownBackend(backend) => write!(f, "{} is no backend whose cache node may change", backend.0),
            Self::UnknownCache(cache) => write!(f, "{} is no cache node", cache.0),
            Self::SilentCache(cache) => write!(f, "cache node {} is silent", cache.0),
        }
    }
}

impl std::error::Error for MoveError {}

impl Balance {
    pub(super) fn new(homes: BTreeMap<NodeId, NodeId>, load_min: f64) -> Self {
        Self {
            homes,
            load_min,
            caches: BTreeMap::new(),
            owners: BTreeMap::new(),
            homeless: BTreeMap::new(),
            round_at: Moment::default(),
            rounds: 0,
            uneven_for: 0,
            rest: 0,
        }
    }

    /// Backends have these homes now: what was at the home that they had before goes to the new one, if that has said what it has. If there were none, or
    /// are none any more, all is as if sessions began now.
    pub(super) fn on_view(&mut self, homes: &BTreeMap<NodeId, NodeId>, caches: &[NodeId]) {
        let before = std::mem::replace(&mut self.homes, homes.clone());
        self.owners.retain(|backend, owner| homes.contains_key(backend) && caches.contains(owner));
        if before.is_empty() != homes.is_empty() {
            for cache in self.caches.values_mut() {
                *cache = Cache { opened_in: self.rounds, orders: cache.orders, ..Cache::default() };
            }
        }
        for (backend, home) in homes {
            let was_at_home = before.get(backend) == self.owners.get(backend) || !self.owners.contains_key(backend);
            if before.get(backend) != Some(home) && was_at_home && self.told_by(*home).is_some() {
                self.owners.insert(*backend, *home);
            }
        }
    }

    /// A session with a cache node has begun.
    pub(super) fn opened(&mut self, cache: NodeId) {
        self.caches.insert(cache, Cache { opened_in: self.rounds, ..Cache::default() });
    }

    /// A cache node is silent: others take what it had.
    pub(super) fn lost(&mut self, cache: NodeId) {
        if self.caches.remove(&cache).is_some() {
            self.owners.retain(|_, owner| *owner != cache);
        }
    }

    /// A cache node that has heard the first `orders_heard` of its orders says what it is in charge of and what there is to do; what cache nodes are
    /// to be told because of it.
    pub(super) fn on_loads(
        &mut self,
        cache: NodeId,
        orders_heard: u32,
        charge: &[(NodeId, Load)],
        others: Load,
    ) -> Vec<(NodeId, Order)> {
        let Some(known) = self.caches.get_mut(&cache) else { return Vec::new() };
        let is_first = known.told.is_none();
        let all = charge.iter().map(|(backend, load)| (*backend, f64::from(load.0)));
        let (charge, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|(backend, _)| self.homes.contains_key(backend));
        let gone = gone.into_keys().collect();
        for backend in charge.keys() {
            let is_home = self.homes.get(backend) == Some(&cache);
            // Who comes back has what is its own, whoever took it over meanwhile.
            if !self.owners.contains_key(backend) || (is_first && is_home) {
                self.owners.insert(*backend, cache);
            }
        }
        let load = charge.values().sum::<f64>() + f64::from(others.0);
        known.coming.retain(|_, coming| coming.order > orders_heard);
        known.told = Some(Told { charge, gone, load });
        self.orders()
    }

    /// What cache nodes are to be told by now.
    pub(super) fn go_on(&mut self, now: Moment) -> Vec<(NodeId, Order)> {
        if now < self.round_at || self.wake_at().is_none() {
            return Vec::new();
        }
        self.round_at = now + ROUND;
        self.rounds = self.rounds.saturating_add(1);
        self.house();
        let mean = self.mean();
        self.even_out(mean);
        let mut orders = self.orders();
        if let Some(mean) = mean {
            orders.extend(self.caches.keys().map(|cache| (*cache, Order::MeanLoad(Load(mean as u32)))));
        }
        orders
    }

    /// An operator wants a backend to be in the charge of a cache node: it goes there as if it had been found too much where it is, and no other
    /// follows for a while. It stays until its home comes back, or loads are uneven. What cache nodes are to be told because of it.
    ///
    /// # Errors
    /// Nobody knows the backend, or the cache node is silent.
    pub(super) fn move_to(&mut self, backend: NodeId, cache: NodeId) -> Result<Vec<(NodeId, Order)>, MoveError> {
        if !self.homes.contains_key(&backend) {
            return Err(MoveError::UnknownBackend(backend));
        }
        if self.told_by(cache).is_none() {
            return Err(MoveError::SilentCache(cache));
        }
        // Who says again what is so already keeps nothing from being evened out.
        if self.owners.get(&backend) != Some(&cache) {
            self.give(backend, cache);
        }
        Ok(self.orders())
    }

    /// A backend goes to a cache node, and then all rests.
    fn give(&mut self, backend: NodeId, cache: NodeId) {
        self.owners.insert(backend, cache);
        (self.uneven_for, self.rest) = (0, REST_FOR);
    }

    /// What a cache node has said last: what it has to do in all, and the backends in its charge with their loads.
    pub(super) fn told_by(&self, cache: NodeId) -> Option<(f64, &BTreeMap<NodeId, f64>)> {
        let told = self.caches.get(&cache)?.told.as_ref()?;
        Some((told.load, &told.charge))
    }

    /// All backends.
    pub(super) fn backends(&self) -> Vec<BackendReport> {
        let told = self.caches.values().filter_map(|cache| cache.told.as_ref());
        let loads: BTreeMap<NodeId, f64> = told.flat_map(|told| &told.charge).map(|(id, load)| (*id, *load)).collect();
        let report = |(backend, home): (&NodeId, &NodeId)| BackendReport {
            backend: *backend,
            home: *home,
            owner: self.owners.get(backend).copied(),
            load_per_s: loads.get(backend).copied(),
        };
        self.homes.iter().map(report).collect()
    }

    /// When [`Self::go_on`] has something to do; `None` while there is nobody, or no backend has a home.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        (!self.caches.is_empty() && !self.homes.is_empty()).then_some(self.round_at)
    }

    /// Gives what nobody is in charge of to somebody.
    fn house(&mut self) {
        let told = self.caches.iter().filter(|(_, cache)| cache.told.is_some());
        let mut counts: BTreeMap<NodeId, usize> = told.map(|(cache, _)| (*cache, 0)).collect();
        self.owners.values().for_each(|owner| *counts.entry(*owner).or_default() += 1);
        for (backend, home) in &self.homes {
            if self.owners.contains_key(backend) {
                self.homeless.remove(backend);
                continue;
            }
            let since = *self.homeless.entry(*backend).or_insert(self.rounds);
            if self.rounds - since < HOMELESS_FOR {
                continue;
            }
            let fewest = counts.iter().min_by_key(|(_, count)| **count).map(|(cache, _)| *cache);
            let Some(owner) = Some(*home).filter(|home| counts.contains_key(home)).or(fewest) else { return };
            self.owners.insert(*backend, owner);
            *counts.entry(owner).or_default() += 1;
        }
    }

    /// What a cache node has to do on average, if several have said so, and it is worth speaking of.
    fn mean(&self) -> Option<f64> {
        if self.is_anybody_awaited() {
            return None;
        }
        let loads = self.caches.values().filter_map(|cache| Some(cache.told.as_ref()?.load));
        let loads = Some(loads.collect::<Vec<f64>>()).filter(|loads| loads.len() > 1)?;
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        // Below one it would be told as none.
        Some(mean).filter(|mean| *mean >= self.load_min.max(1.0))
    }

    /// If one cache node has had too much for long, one of its backends goes to who has least: the one that leaves both with the most even loads.
    fn even_out(&mut self, mean: Option<f64>) {
        self.rest = self.rest.saturating_sub(1);
        let told = self.caches.iter().filter_map(|(cache, known)| Some((*cache, known.told.as_ref()?)));
        let by_load = |a: &(NodeId, &Told), b: &(NodeId, &Told)| a.1.load.total_cmp(&b.1.load);
        // One that has backends and nothing to do may be cut off from them: more of them are not for it.
        let serves = |(_, told): &(NodeId, &Told)| told.charge.is_empty() || told.load > 0.0;
        let (Some(mean), Some((most, loaded)), Some((least, idle))) =
            (mean, told.clone().max_by(by_load), told.filter(serves).min_by(by_load))
        else {
            self.uneven_for = 0;
            return;
        };
        let is_uneven = loaded.load > mean * TOO_MUCH;
        self.uneven_for = if is_uneven { self.uneven_for + 1 } else { 0 };
        if self.uneven_for < TOO_MUCH_FOR || self.rest > 0 {
            return;
        }
        let gap = loaded.load - idle.load;
        let is_its = |backend: &NodeId| self.owners.get(backend) == Some(&most);
        // One that is all but the gap would soon come back.
        let fits = |load: f64| load > 0.0 && load < gap * MOVED_MAX;
        let movable = loaded.charge.iter().filter(|(backend, load)| is_its(backend) && fits(**load));
        let off_half = |load: f64| (load - gap / 2.0).abs();
        let best = movable.min_by(|a, b| off_half(*a.1).total_cmp(&off_half(*b.1))).map(|(backend, _)| *backend);
        if let Some(backend) = best {
            self.give(backend, least);
        }
    }

    fn is_anybody_awaited(&self) -> bool {
        self.caches.values().any(|cache| cache.is_awaited(self.rounds))
    }

    /// What cache nodes are to be in charge of, if it is not what they are, or were told already. Nothing, if no backend has a home.
    fn orders(&mut self) -> Vec<(NodeId, Order)> {
        if self.homes.is_empty() {
            return Vec::new();
        }
        let (rounds, is_anybody_awaited) = (self.rounds, self.is_anybody_awaited());
        let mut orders = Vec::new();
        for name in self.caches.keys().copied().collect::<Vec<_>>() {
            let cache = &self.caches[&name];
            let Some(told) = &cache.told else { continue };
            // What it has, or may have, it keeps, whoever else says that it has it; anything else waits until nobody may.
            let is_free = |backend: &NodeId| {
                let others = || self.caches.iter().filter(|(other, _)| **other != name);
                cache.may_have(backend, rounds)
                    || (!is_anybody_awaited && !others().any(|(_, other)| other.may_have(backend, rounds)))
            };
            let its = self.owners.iter().filter(|(_, owner)| **owner == name).map(|(backend, _)| *backend);
            let wanted: BTreeSet<NodeId> = its.filter(is_free).collect();
            let as_told = || told.charge.keys().chain(&told.gone).copied().collect();
            if cache.ordered.clone().unwrap_or_else(as_told) == wanted {
                continue;
            }
            let cache = self.caches.get_mut(&name).expect("one of them");
            cache.orders += 1;
            let coming = Coming { order: cache.orders, since: rounds };
            cache.coming.extend(wanted.iter().map(|backend| (*backend, coming)));
            orders.push((name, Order::Charge(wanted.iter().copied().collect())));
            cache.ordered = Some(wanted);
        }
        orders
    }
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
