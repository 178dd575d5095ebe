//! Who is in charge of which backend: of its hot keys, that is, which it reports to that cache node (SwitchKV, section 3.2).
//!
//! ```text
//! cache nodes --(in charge of these, with so much load)--> owners --(be in charge of these)--> cache nodes
//!                                     nobody's: to its home, or to who has fewest
//!                                     one has too much for long: one backend, to who has least
//! ```
//! A cache node is in charge with all of its parts ([`CacheNodes`]), each of which is told so, and says so: what a node has to do is what its parts have,
//! and what is made even is the load of a part, on average.
//!
//! Always true: a cache node is told to take a backend only when no other says that it has it, has yet to hear an order in which it is, or has yet to
//! say what it has. So a backend knows of one at a time, but for cache nodes that the controller does not hear of, or that say nothing for some rounds:
//! nobody waits for those for ever. It is no more than a matter of speed: whoever is in charge, or how many are, answers are the same. So nothing of it
//! is kept: a controller that begins goes by what cache nodes say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
};

use guira_item::{Moment, Span};
use guira_routing::{CacheNodes, Load, NodeId};

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

/// A backend with more than this part of what one cache node has to do more than the other, for each of its parts, is not moved.
const MOVED_MAX: f64 = 0.8;

/// Rounds after a backend has gone elsewhere in which no other does: loads are smoothed, and what is to be cached again takes a while.
const REST_FOR: u32 = 6;

/// What is known of cache nodes, and who is to be in charge of what.
#[derive(Debug)]
pub(super) struct Balance {
    /// The cache node of a backend, if nothing speaks against it.
    homes: BTreeMap<NodeId, NodeId>,
    /// The mean load of a part below which all is well.
    load_min: f64,
    nodes: CacheNodes,
    /// Those with a session.
    parts: BTreeMap<NodeId, Part>,
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
struct Part {
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

impl Part {
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

impl Told {
    fn has_the_charge_of(&self, other: &Self) -> bool {
        self.charge.keys().eq(other.charge.keys()) && self.gone == other.gone
    }
}

/// What the parts of a cache node have said last, together.
#[derive(Clone, Debug)]
pub(super) struct NodeTold {
    /// What there is to do.
    pub(super) load: f64,
    /// The backends in its charge, with their loads.
    pub(super) charge: BTreeMap<NodeId, f64>,
    /// How many of them have said something.
    parts: usize,
    /// Whether all of them have: one whose other parts are silent gets nothing by itself that others can take.
    is_whole: bool,
}

impl NodeTold {
    /// What one part has to do, on average.
    fn load_each(&self) -> f64 {
        self.load / self.parts as f64
    }
}

/// What a part of a cache node is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Be in charge of these.
    Charge(Vec<NodeId>),
    /// So much a part has to do, on average.
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
    pub(super) fn new(homes: BTreeMap<NodeId, NodeId>, nodes: CacheNodes, load_min: f64) -> Self {
        Self {
            homes,
            load_min,
            nodes,
            parts: BTreeMap::new(),
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
    pub(super) fn on_view(&mut self, homes: &BTreeMap<NodeId, NodeId>, caches: &CacheNodes) {
        self.nodes.clone_from(caches);
        let before = std::mem::replace(&mut self.homes, homes.clone());
        self.owners.retain(|backend, owner| homes.contains_key(backend) && caches.is_node(*owner));
        if before.is_empty() != homes.is_empty() {
            for part in self.parts.values_mut() {
                // What it was told in its session it has yet to hear all the same.
                let coming = mem::take(&mut part.coming);
                *part = Part { opened_in: self.rounds, orders: part.orders, coming, ..Part::default() };
            }
        }
        for (backend, home) in homes {
            let was_at_home = before.get(backend) == self.owners.get(backend) || !self.owners.contains_key(backend);
            if before.get(backend) != Some(home) && was_at_home && self.told_by(*home).is_some() {
                self.owners.insert(*backend, *home);
            }
        }
    }

    /// A session with a part has begun.
    pub(super) fn opened(&mut self, part: NodeId) {
        self.parts.insert(part, Part { opened_in: self.rounds, ..Part::default() });
    }

    /// A part is silent: if all of its node are, others take what that had.
    pub(super) fn lost(&mut self, part: NodeId) {
        let Self { nodes, parts, owners, .. } = self;
        if parts.remove(&part).is_some()
            && let node = node_of(nodes, part)
            && !parts.keys().any(|other| node_of(nodes, *other) == node)
        {
            owners.retain(|_, owner| *owner != node);
        }
    }

    /// A part that has heard the first `orders_heard` of its orders says what it is in charge of and what there is to do; what cache nodes are
    /// to be told because of it.
    pub(super) fn on_loads(
        &mut self,
        part: NodeId,
        orders_heard: u32,
        charge: &[(NodeId, Load)],
        others: Load,
    ) -> Vec<(NodeId, Order)> {
        let node = node_of(&self.nodes, part);
        let Some(known) = self.parts.get_mut(&part) else { return Vec::new() };
        let is_first = known.told.is_none();
        let all = charge.iter().map(|(backend, load)| (*backend, f64::from(load.0)));
        let (charge, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|(backend, _)| self.homes.contains_key(backend));
        let gone: BTreeSet<NodeId> = gone.into_keys().collect();
        for backend in charge.keys() {
            let is_home = self.homes.get(backend) == Some(&node);
            // Who comes back has what is its own, whoever took it over meanwhile.
            if !self.owners.contains_key(backend) || (is_first && is_home) {
                self.owners.insert(*backend, node);
            }
        }
        let load = charge.values().sum::<f64>() + f64::from(others.0);
        let has_heard = known.coming.extract_if(.., |_, coming| coming.order <= orders_heard).count() > 0;
        let told = Told { charge, gone, load };
        let is_as_before = !has_heard && known.told.as_ref().is_some_and(|before| before.has_the_charge_of(&told));
        known.told = Some(told);
        // Most of the time loads alone are new, of each part each second: nothing is to be ordered because of those.
        if is_as_before { Vec::new() } else { self.orders() }
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
            orders.extend(self.parts.keys().map(|part| (*part, Order::MeanLoad(Load(mean as u32)))));
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

    /// What the parts of a cache node have said last; `None`, if nothing yet.
    pub(super) fn told_by(&self, node: NodeId) -> Option<NodeTold> {
        let parts = self.parts.iter().filter(|(part, _)| node_of(&self.nodes, **part) == node);
        let mut sum = NodeTold { load: 0.0, charge: BTreeMap::new(), parts: 0, is_whole: false };
        for told in parts.filter_map(|(_, part)| part.told.as_ref()) {
            sum.load += told.load;
            sum.parts += 1;
            told.charge.iter().for_each(|(backend, load)| *sum.charge.entry(*backend).or_default() += load);
        }
        sum.is_whole = sum.parts == self.nodes.parts_of(node).count();
        Some(sum).filter(|sum| sum.parts > 0)
    }

    /// What a part has to do, if it has said so, and whether it has a session.
    pub(super) fn load_of(&self, part: NodeId) -> Option<f64> {
        Some(self.parts.get(&part)?.told.as_ref()?.load)
    }

    /// What all cache nodes have said last that have said something.
    fn told(&self) -> BTreeMap<NodeId, NodeTold> {
        self.nodes.nodes().filter_map(|node| Some((node, self.told_by(node)?))).collect()
    }

    /// All backends.
    pub(super) fn backends(&self) -> Vec<BackendReport> {
        let told = self.told();
        let loads: BTreeMap<NodeId, f64> =
            told.values().flat_map(|told| &told.charge).map(|(id, load)| (*id, *load)).collect();
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
        (!self.parts.is_empty() && !self.homes.is_empty()).then_some(self.round_at)
    }

    /// Gives what nobody is in charge of to somebody.
    fn house(&mut self) {
        let mut told = self.told();
        if told.values().any(|told| told.is_whole) {
            told.retain(|_, told| told.is_whole);
        }
        let mut counts: BTreeMap<NodeId, usize> = told.into_keys().map(|node| (node, 0)).collect();
        for owner in self.owners.values() {
            counts.entry(*owner).and_modify(|count| *count += 1);
        }
        let for_each_part = |node: NodeId, count: usize| count as f64 / self.nodes.parts_of(node).count() as f64;
        for (backend, home) in &self.homes {
            if self.owners.contains_key(backend) {
                self.homeless.remove(backend);
                continue;
            }
            let since = *self.homeless.entry(*backend).or_insert(self.rounds);
            if self.rounds - since < HOMELESS_FOR {
                continue;
            }
            let by_count = |a: &(&NodeId, &usize), b: &(&NodeId, &usize)| {
                for_each_part(*a.0, *a.1).total_cmp(&for_each_part(*b.0, *b.1))
            };
            let fewest = counts.iter().min_by(by_count).map(|(node, _)| *node);
            let Some(owner) = Some(*home).filter(|home| counts.contains_key(home)).or(fewest) else { return };
            self.owners.insert(*backend, owner);
            *counts.entry(owner).or_default() += 1;
        }
    }

    /// What a part has to do on average, if several have said so, and it is worth speaking of.
    fn mean(&self) -> Option<f64> {
        if self.is_anybody_awaited() {
            return None;
        }
        let loads = self.parts.values().filter_map(|part| Some(part.told.as_ref()?.load));
        let loads = Some(loads.collect::<Vec<f64>>()).filter(|loads| loads.len() > 1)?;
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        // Below one it would be told as none.
        Some(mean).filter(|mean| *mean >= self.load_min.max(1.0))
    }

    /// If one cache node has had too much for long, one of its backends goes to who has least: the one that leaves both with the most even loads.
    fn even_out(&mut self, mean: Option<f64>) {
        self.rest = self.rest.saturating_sub(1);
        let told = self.told();
        let by_load = |a: &(&NodeId, &NodeTold), b: &(&NodeId, &NodeTold)| a.1.load_each().total_cmp(&b.1.load_each());
        // One that has backends and nothing to do may be cut off from them: more of them are not for it.
        let serves = |(_, told): &(&NodeId, &NodeTold)| told.is_whole && (told.charge.is_empty() || told.load > 0.0);
        let (Some(mean), Some((most, loaded)), Some((least, idle))) =
            (mean, told.iter().max_by(by_load), told.iter().filter(serves).min_by(by_load))
        else {
            self.uneven_for = 0;
            return;
        };
        // The mean over parts is nearly that of a node which has most of these, and that over nodes nearly that of small ones, if those are most nodes: it is
        // too much beside either.
        let serving: Vec<f64> = told.iter().filter(serves).map(|(_, told)| told.load_each()).collect();
        let over_nodes = serving.iter().sum::<f64>() / serving.len() as f64;
        let is_uneven = loaded.load_each() > mean.min(over_nodes) * TOO_MUCH;
        self.uneven_for = if is_uneven { self.uneven_for + 1 } else { 0 };
        if self.uneven_for < TOO_MUCH_FOR || self.rest > 0 {
            return;
        }
        // What would leave both with as much for each of their parts: with one each, half of what the one has more.
        let (of_most, of_least) = (loaded.parts as f64, idle.parts as f64);
        let evens = (loaded.load_each() - idle.load_each()) * of_most * of_least / (of_most + of_least);
        let is_its = |backend: &NodeId| self.owners.get(backend) == Some(most);
        // One that is all but twice that would soon come back.
        let fits = |load: f64| load > 0.0 && load < 2.0 * evens * MOVED_MAX;
        let movable = loaded.charge.iter().filter(|(backend, load)| is_its(backend) && fits(**load));
        let off = |load: f64| (load - evens).abs();
        let best = movable.min_by(|a, b| off(*a.1).total_cmp(&off(*b.1))).map(|(backend, _)| *backend);
        if let Some(backend) = best {
            self.give(backend, *least);
        }
    }

    fn is_anybody_awaited(&self) -> bool {
        self.parts.values().any(|part| part.is_awaited(self.rounds))
    }

    /// What parts are to be in charge of, if it is not what they are, or were told already. Nothing, if no backend has a home.
    fn orders(&mut self) -> Vec<(NodeId, Order)> {
        if self.homes.is_empty() {
            return Vec::new();
        }
        let (rounds, is_anybody_awaited) = (self.rounds, self.is_anybody_awaited());
        let mut its: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        for (backend, owner) in &self.owners {
            its.entry(*owner).or_default().insert(*backend);
        }
        let mut orders = Vec::new();
        for name in self.parts.keys().copied().collect::<Vec<_>>() {
            let (part, node) = (&self.parts[&name], node_of(&self.nodes, name));
            let Some(told) = &part.told else { continue };
            // What it has, or may have, it keeps, whoever else says that it has it; anything else waits until no other node may.
            let is_free = |backend: &NodeId| {
                let others = || self.parts.iter().filter(|(other, _)| node_of(&self.nodes, **other) != node);
                part.may_have(backend, rounds)
                    || (!is_anybody_awaited && !others().any(|(_, other)| other.may_have(backend, rounds)))
            };
            let wanted: BTreeSet<NodeId> = its.get(&node).into_iter().flatten().copied().filter(is_free).collect();
            let as_told = || told.charge.keys().chain(&told.gone).copied().collect();
            if part.ordered.clone().unwrap_or_else(as_told) == wanted {
                continue;
            }
            let part = self.parts.get_mut(&name).expect("one of them");
            part.orders += 1;
            let coming = Coming { order: part.orders, since: rounds };
            part.coming.extend(wanted.iter().map(|backend| (*backend, coming)));
            orders.push((name, Order::Charge(wanted.iter().copied().collect())));
            part.ordered = Some(wanted);
        }
        orders
    }
}

/// The node that a part is of; one of none, which has just gone, is one by itself.
fn node_of(nodes: &CacheNodes, part: NodeId) -> NodeId {
    nodes.node_of(part).unwrap_or(part)
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
