//! The controller: makes rules of what cache nodes have, at the rate that a switch takes them, and brings them to who routes: to gateways, or to the network.
//!
//! It also says which cache node is in charge of which backend (`balance.rs`).
//!
//! Always true: no answer depends on a rule, so none is waited for; what a router was told in a session is the table as it was when that began,
//! and all that has changed since; a cache node that has not been heard of for some time has no rules; one that has a key for which there is no room in the
//! network is told to do without it.

mod balance;
mod report;

use std::{collections::BTreeMap, ops::Bound};

use guira_cluster::{Frame, Incarnation, Link, Opening, SessionId};
use guira_item::{Moment, Span};
use guira_routing::{BudgetError, CacheNodes, Choices, KeyHash, Load, NodeId, RuleBudget, RulePlan, RuleUpdate};

use crate::{Body, Happened, Message, Outbox, View, told};
use balance::{Balance, Order};

pub use balance::MoveError;
pub use report::{BackendReport, CacheReport, PartReport};

/// Rules that are told at once, at most: they are copied on the controller's thread.
pub const RULES_AT_ONCE: usize = 1_000;

/// Updates in one message.
const UPDATES_AT_ONCE: usize = 1_000;

/// Cache nodes are told no more often what they are to do without.
const NO_ROOM_EVERY: Span = Span::from_ms(10);

/// What a controller is.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Its name.
    pub me: NodeId,
    /// This life's number.
    pub incarnation: Incarnation,
    /// Who wants rules.
    pub caches: CacheNodes,
    /// Who routes, unless the network does.
    pub gateways: Vec<NodeId>,
    /// Rules are for the network ([`Outbox::rules`]), and gateways are told none.
    pub network_routes: bool,
    /// What the switch takes.
    pub budget: RuleBudget,
    /// How long the lease of a session is: who has not been heard of for this long is taken for dead.
    pub lease: Span,
    /// The cache nodes of backends, if nothing speaks against them: these are in charge of them at first. For other backends, and if there are none,
    /// nothing is ever said of who is in charge, or of loads.
    pub homes: BTreeMap<NodeId, NodeId>,
    /// Reads a second of a part of a cache node, on average, below which loads need not be even.
    pub balance_load_min: f64,
}

/// A controller.
#[derive(Debug)]
pub struct Controller {
    config: ControllerConfig,
    plan: RulePlan,
    balance: Balance,
    /// The rules that are made.
    table: BTreeMap<KeyHash, Choices>,
    /// Keys that cache nodes are to do without.
    without_room: Vec<(NodeId, KeyHash)>,
    /// When they may be told.
    no_room_at: Moment,
    /// Updates a second that the network was seen to take.
    seen_per_s: Option<u32>,
    peers: BTreeMap<NodeId, Peer>,
    /// Of those that are gone, too: a session does not begin twice.
    last_openings: BTreeMap<NodeId, Opening>,
    counts: ControllerCounts,
}

/// Numbers about a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControllerCounts {
    /// Rules made.
    pub installs: u64,
    /// Rules taken back.
    pub deletions: u64,
    /// Times that a cache node was told to be in charge of other backends than it was.
    pub charges: u64,
    /// Rules for which there was no room.
    pub refused: u64,
    /// Messages that mean nothing here.
    pub ignored: u64,
}

#[derive(Debug)]
struct Peer {
    id: SessionId,
    link: Link<Body>,
    heard_at: Moment,
}

impl Controller {
    /// A controller without rules.
    ///
    /// # Errors
    /// [`BudgetError`].
    pub fn new(mut config: ControllerConfig) -> Result<Self, BudgetError> {
        let homes = std::mem::take(&mut config.homes);
        Ok(Self {
            plan: RulePlan::new(config.budget)?,
            balance: Balance::new(homes, config.caches.clone(), config.balance_load_min),
            table: BTreeMap::new(),
            without_room: Vec::new(),
            no_room_at: Moment::default(),
            seen_per_s: None,
            peers: BTreeMap::new(),
            last_openings: BTreeMap::new(),
            counts: ControllerCounts::default(),
            config,
        })
    }

    /// Heeds what has happened; `now` was read after it had.
    pub fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        match happened {
            Happened::Message(from, message) => self.on_message(now, from, message, out),
            Happened::View(view) => self.on_view(now, view),
            Happened::Tick => {}
        }
        self.forget_the_silent(now);
        let orders = self.balance.go_on(now);
        self.order(now, orders);
        self.update(now, out);
        self.tell_of_no_room(now);
        for (node, peer) in &mut self.peers {
            let session = peer.id;
            peer.link.emit(now, |frame| out.send(*node, &told(session, frame)));
        }
    }

    /// Cache nodes and gateways have come or gone: who has gone has no rules, and hears of none.
    fn on_view(&mut self, now: Moment, view: &View) {
        self.config.caches.clone_from(&view.caches);
        self.config.gateways.clone_from(&view.gateways);
        let before = std::mem::replace(&mut self.config.budget, view.budget);
        if before.table_len_max != view.budget.table_len_max {
            self.plan.set_table_len_max(view.budget.table_len_max);
        }
        if before.updates_per_s != view.budget.updates_per_s {
            self.set_rate(now);
        }
        let is_there = |node: &NodeId| view.caches.is_part(*node) || view.gateways.contains(node);
        let gone: Vec<NodeId> = self.peers.keys().copied().filter(|node| !is_there(node)).collect();
        for node in gone {
            self.forget(now, node);
        }
        self.balance.on_view(&view.homes, &view.caches);
    }

    fn is_gateway(&self, node: NodeId) -> bool {
        self.config.gateways.contains(&node)
    }

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, out: &mut Outbox) {
        if !self.is_gateway(from) && !self.config.caches.is_part(from) {
            self.counts.ignored += 1;
            return;
        }
        match message {
            Message::Open { opening, at, .. } => self.on_open(now, from, opening, at, out),
            Message::AskLease { session, at } => {
                if let Some(peer) = self.peer(now, from, session, out) {
                    peer.heard_at = now;
                    out.send(from, &Message::Lease { session, at, lease: self.config.lease });
                }
            }
            Message::Told { session, ack, seq, body } => {
                let Some(peer) = self.peer(now, from, session, out) else { return };
                match peer.link.hear(now, Frame { ack, seq, body }) {
                    None => {}
                    Some(Body::Rules(rules)) => self.on_rules(now, from, &rules),
                    Some(Body::Loads { orders_heard, charge, others }) => {
                        let orders = self.balance.on_loads(from, orders_heard, &charge, others);
                        self.order(now, orders);
                    }
                    Some(_) => self.counts.ignored += 1,
                }
            }
            Message::Voided { .. } => {}
            _ => self.counts.ignored += 1,
        }
    }

    /// A session that is there; who goes by another is told.
    fn peer(&mut self, now: Moment, from: NodeId, session: SessionId, out: &mut Outbox) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(&from).filter(|peer| peer.id == session);
        match peer {
            Some(peer) => {
                peer.heard_at = now;
                Some(peer)
            }
            None => {
                out.send(from, &Message::Gone { session });
                None
            }
        }
    }

    fn on_open(&mut self, now: Moment, from: NodeId, opening: Opening, at: Moment, out: &mut Outbox) {
        let id = SessionId { incarnation: self.config.incarnation, opening };
        let known = self.last_openings.get(&from).copied();
        let is_there = self.peers.get(&from).is_some_and(|peer| peer.id == id);
        if known.is_some_and(|known| opening <= known) && !is_there {
            let (incarnation, up_to) = (self.config.incarnation, known.unwrap_or(opening));
            out.send(from, &Message::Void { incarnation, up_to });
            return;
        }
        if !is_there {
            self.last_openings.insert(from, opening);
            let mut link = Link::default();
            if !self.is_gateway(from) {
                // It tells all that it has.
                self.plan.forget_node(now, from);
                self.balance.opened(from);
            } else if !self.config.network_routes {
                let all: Vec<RuleUpdate> =
                    self.table.iter().map(|(hash, to)| RuleUpdate::Install { hash: *hash, choices: *to }).collect();
                for some in all.chunks(UPDATES_AT_ONCE) {
                    // A table has fewer pieces than a link takes.
                    let _ = link.send(Body::Routes(some.to_vec()));
                }
            }
            self.peers.insert(from, Peer { id, link, heard_at: now });
        }
        out.send(from, &Message::Opened { session: id, at, lease: self.config.lease });
    }

    /// Tells cache nodes what they are to do.
    fn order(&mut self, now: Moment, orders: Vec<(NodeId, Order)>) {
        for (cache, order) in orders {
            let Some(peer) = self.peers.get_mut(&cache) else { continue };
            let body = match order {
                Order::Charge(backends) => {
                    self.counts.charges += 1;
                    Body::Charge(backends)
                }
                Order::MeanLoad(mean) => Body::MeanLoad(mean),
            };
            if peer.link.send(body).is_err() {
                // It has fallen too far behind, and begins again.
                self.forget(now, cache);
            }
        }
    }

    fn on_rules(&mut self, now: Moment, node: NodeId, rules: &[(KeyHash, Option<Load>)]) {
        for (hash, load) in rules {
            match load {
                None => self.plan.unwant(now, *hash, node),
                Some(load) => {
                    if self.plan.want(now, *hash, node, *load).is_err() {
                        self.counts.refused += 1;
                        // Where rules are for gateways, there is room in the end: what has not been told is told again.
                        self.without_room.extend(self.config.network_routes.then_some((node, *hash)));
                    }
                }
            }
        }
    }

    /// The network has not taken a rule, and has none for this hash; whether that was since it is full.
    pub fn on_refused(&mut self, now: Moment, hash: KeyHash, is_full: bool) {
        self.counts.refused += 1;
        self.table.remove(&hash);
        let wanted = self.plan.refused(now, hash);
        if is_full {
            self.plan.is_full(now);
        }
        self.without_room.extend(wanted.iter().flat_map(Choices::iter).map(|cache| (cache, hash)));
    }

    /// The network takes so many updates a second at most, as was seen, or nobody knows: no more than these are made, nor more than the budget has.
    pub fn on_rate(&mut self, now: Moment, updates_per_s: Option<u32>) {
        self.seen_per_s = updates_per_s;
        self.set_rate(now);
    }

    fn set_rate(&mut self, now: Moment) {
        let believed = self.config.budget.updates_per_s;
        self.plan.set_updates_per_s(now, self.seen_per_s.map_or(believed, |seen| seen.min(believed)));
    }

    /// The network begins with nothing: as much room as the budget has, until it says otherwise.
    pub fn on_room(&mut self) {
        self.plan.set_table_len_max(self.config.budget.table_len_max);
    }

    /// Cache nodes are told of keys that they are to do without: many at a time, where there are many.
    fn tell_of_no_room(&mut self, now: Moment) {
        if self.without_room.is_empty() || now < self.no_room_at {
            return;
        }
        self.no_room_at = now + NO_ROOM_EVERY;
        let mut hashes: BTreeMap<NodeId, Vec<KeyHash>> = BTreeMap::new();
        for (node, hash) in std::mem::take(&mut self.without_room) {
            hashes.entry(node).or_default().push(hash);
        }
        for (node, hashes) in hashes {
            let Some(peer) = self.peers.get_mut(&node) else { continue };
            if hashes.chunks(UPDATES_AT_ONCE).any(|some| peer.link.send(Body::NoRoom(some.to_vec())).is_err()) {
                self.forget(now, node);
            }
        }
    }

    fn forget_the_silent(&mut self, now: Moment) {
        let lease = self.config.lease;
        let silent: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| now.since(peer.heard_at) > lease).map(|(node, _)| *node).collect();
        for node in silent {
            self.forget(now, node);
        }
    }

    fn forget(&mut self, now: Moment, node: NodeId) {
        self.peers.remove(&node);
        self.plan.forget_node(now, node);
        self.balance.lost(node);
    }

    /// Makes the updates that may be made by now.
    fn update(&mut self, now: Moment, out: &mut Outbox) {
        let mut updates = Vec::new();
        while let Some(update) = self.plan.next(now) {
            match update {
                RuleUpdate::Install { hash, choices } => {
                    self.table.insert(hash, choices);
                    self.counts.installs += 1;
                }
                RuleUpdate::Delete { hash } => {
                    self.table.remove(&hash);
                    self.counts.deletions += 1;
                }
            }
            updates.push(update);
        }
        if self.config.network_routes {
            out.rules.extend(updates);
            return;
        }
        let gateways = &self.config.gateways;
        for some in updates.chunks(UPDATES_AT_ONCE) {
            // Who has fallen too far behind begins again, with the table as it is then.
            self.peers
                .retain(|node, peer| !gateways.contains(node) || peer.link.send(Body::Routes(some.to_vec())).is_ok());
        }
    }

    /// When `step` has something to do, if nothing happens before.
    pub fn wake_at(&self, now: Moment) -> Option<Moment> {
        let links = self.peers.values().filter_map(|peer| peer.link.wake_at());
        let silences = self.peers.values().map(|peer| peer.heard_at + self.config.lease + Span::from_ms(1));
        let no_room = (!self.without_room.is_empty()).then_some(self.no_room_at);
        links.chain(silences).chain(self.plan.wake_at(now)).chain(self.balance.wake_at()).chain(no_room).min()
    }

    /// Numbers.
    pub fn counts(&self) -> ControllerCounts {
        self.counts
    }

    /// Rules that are made.
    pub fn rules(&self) -> usize {
        self.table.len()
    }

    /// How many installs and how many deletions wait.
    pub fn waiting(&self) -> (usize, usize) {
        self.plan.waiting()
    }

    /// What the switch takes, as far as is known.
    pub fn budget(&self) -> RuleBudget {
        self.plan.budget()
    }

    /// The cache nodes.
    pub fn caches(&self) -> Vec<CacheReport> {
        let of_part = |part| PartReport {
            part,
            has_session: self.peers.contains_key(&part),
            load_per_s: self.balance.load_of(part),
        };
        let report = |cache| {
            let told = self.balance.told_by(cache);
            CacheReport {
                cache,
                load_per_s: told.as_ref().map(|told| told.load),
                charge: told.map(|told| told.charge.into_iter().collect()).unwrap_or_default(),
                parts: self.config.caches.parts_of(cache).map(of_part).collect(),
            }
        };
        self.config.caches.nodes().map(report).collect()
    }

    /// The backends whose cache node may change.
    pub fn backends(&self) -> Vec<BackendReport> {
        self.balance.backends()
    }

    /// Rules by their hashes, those after `after`: `len_max` of them, and no more than [`RULES_AT_ONCE`].
    pub fn rules_after(&self, after: Option<KeyHash>, len_max: usize) -> Vec<(KeyHash, Choices)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rules = self.table.range((after, Bound::Unbounded)).take(len_max.min(RULES_AT_ONCE));
        rules.map(|(hash, choices)| (*hash, *choices)).collect()
    }

    /// The rule of a hash.
    pub fn rule(&self, hash: KeyHash) -> Option<Choices> {
        self.table.get(&hash).copied()
    }

    /// An operator wants a backend to be in the charge of a cache node. It is only wanted by then: whoever has it is to let go first.
    ///
    /// # Errors
    /// One of them is unknown, or the cache node is silent.
    pub fn move_backend(&mut self, now: Moment, backend: NodeId, cache: NodeId) -> Result<(), MoveError> {
        if !self.config.caches.is_node(cache) {
            return Err(MoveError::UnknownCache(cache));
        }
        let orders = self.balance.move_to(backend, cache)?;
        self.order(now, orders);
        Ok(())
    }
}
