//! A cache node, or one of the parts that it is made of ([`CacheNodes`](guira_routing::CacheNodes)): items of hot keys, from the backends in its charge.
//!
//! ```text
//! Request --> item, under a valid lease? --> Reply
//!               | no
//!               v
//!             Request --> backend of the key
//! ```
//! Always true:
//! - an item is served only under the lease of the session in which it was told (R6), which is looked at after the request has come (R1), and not
//!   once its backend may hold it for over;
//! - what another cache node may have too is not served from when its backend says so until it tells the item again (R7);
//! - the whole key is compared: two with one hash share a rule and nothing else (R8);
//! - what is not kept is told to its backend, with what had been told by then;
//! - what the network has no room to route here is not kept.

mod exchanges;
mod items;
mod sharing;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::AddAssign;
use std::sync::Arc;

use guira_cluster::{Frame, Incarnation, NodeClock, Opening, SessionId};
use guira_hotkeys::{Alpha, admission_threshold};
use guira_item::{Change, Current, Moment, Operation, Span, apply};
use guira_routing::{KeyHash, Load, NodeId, PartitionMap};
use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};
use serde::Serialize;

use crate::{
    Ask, Body, Drift, Happened, ItemCopy, KeyBytes, Loaded, Message, Mutant, Outbox, Said, View,
    initiator::{Initiator, Turn},
};
use exchanges::{Exchanges, Reported};
use items::{Cached, Items, Leaving};

/// What a cache node is, or a part of one.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Its name, or the part's.
    pub me: NodeId,
    /// This life's number.
    pub incarnation: Incarnation,
    /// The backends that are in its charge, until the controller says otherwise: they report their hot keys to it.
    pub charge: Vec<NodeId>,
    /// Who makes rules.
    pub controller: NodeId,
    /// Who has which keys.
    pub partitions: Arc<PartitionMap>,
    /// How a key is hashed for routing.
    pub hash_of: fn(&[u8]) -> KeyHash,
    /// Items at most.
    pub items_max: usize,
    /// Bytes of keys and values at most.
    pub bytes_max: usize,
    /// The bound on clocks.
    pub drift: Drift,
    /// Ties its moments to the cluster's seconds.
    pub clock: NodeClock,
    /// As the backends' segments are.
    pub segment: Span,
    /// As the backends' is.
    pub alpha: Alpha,
    /// The share of keys below the load that admits another (section 3.2.1).
    pub threshold_rank: f64,
    /// Items a second that reports may put in the place of others, once it is full: each costs two updates of rules, and when more are wanted than
    /// the switch takes, those of keys that have just become hot come too late. What is many times hotter than it has to be may take those of the next second as well. See
    /// [`CacheConfig::exchanges`].
    pub exchanges_per_s: f64,
    /// Seeds what is drawn.
    pub seed: u64,
    /// A fault put in on purpose, for the tests of the checkers.
    pub mutant: Option<Mutant>,
}

impl CacheConfig {
    /// How many exchanges one may make, of so many parts of cache nodes behind a switch that takes so many updates a second: three quarters of the
    /// switch's time in the long run. The rest is for bursts, which wait for no leave.
    pub fn exchanges(updates_per_s: u32, parts: usize) -> f64 {
        f64::from(updates_per_s) * 3.0 / 8.0 / parts.max(1) as f64
    }
}

/// Keys that are drawn for the threshold.
const THRESHOLD_SAMPLE: usize = 100;

/// Fetches that are waited for at most; what is reported beyond is reported again.
const FETCHING_MAX: usize = 4_096;

/// How long a fetch is waited for.
const FETCH_FOR: Span = Span::from_s(1);

/// Keys that are remembered for an item larger than all that may be kept; those beyond are fetched again when they are reported again.
const TOO_LARGE_MAX: usize = 1_000;

/// Segments after which they are forgotten: the item may have become smaller.
const TOO_LARGE_FOR: u32 = 16;

/// Segments after which more items are kept again than the network had room for: it may have more.
const ROOM_FOR: u32 = 64;

/// Items for which there is always said to be room: who has none tries so many.
const ROOM_MIN: usize = 2;

/// Rules in one message.
const RULES_AT_ONCE: usize = 1_000;

/// Numbers about a cache node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Requests answered.
    pub hits: u64,
    /// Requests sent on to their backends, and probes for what is not here.
    pub misses: u64,
    /// Items that came in.
    pub admitted: u64,
    /// Items that made room.
    pub evicted: u64,
    /// Items that were replaced by newer ones.
    pub updated: u64,
    /// Items that were not to be served until they were told again.
    pub held: u64,
    /// Sessions that were void in the end.
    pub voided: u64,
    /// Messages that mean nothing here.
    pub ignored: u64,
}

/// Those of another part of the same node.
impl AddAssign for CacheCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { hits, misses, admitted, evicted, updated, held, voided, ignored } = other;
        self.hits += hits;
        self.misses += misses;
        self.admitted += admitted;
        self.evicted += evicted;
        self.updated += updated;
        self.held += held;
        self.voided += voided;
        self.ignored += ignored;
    }
}

/// A cache node.
#[derive(Clone, Debug, Serialize)]
pub struct CacheNode {
    #[serde(skip)]
    config: CacheConfig,
    /// All backends: each may have it take over a key from another cache node.
    sources: BTreeMap<NodeId, Initiator>,
    /// Who is a backend, by the last view.
    backends: BTreeSet<NodeId>,
    /// The next session with each that was one: none is there twice.
    gone: BTreeMap<NodeId, Opening>,
    /// Those that report to it.
    charge: BTreeSet<NodeId>,
    controller: Initiator,
    /// How often the controller has said in this session who is to report to it.
    orders_heard: u32,
    items: Items,
    fetching: HashMap<KeyBytes, Fetching>,
    /// Keys whose items were too large of late: they are not fetched.
    too_large: HashSet<KeyBytes>,
    /// Segments since they were forgotten.
    too_large_since: u32,
    /// What the controller has yet to be told.
    rules: Vec<(KeyHash, Option<Load>)>,
    threshold: f64,
    /// So many items the network has room to route here, as far as was told, and after how many segments that is forgotten.
    room: Option<(usize, u32)>,
    /// The load of all items, as it was told last.
    #[serde(skip)]
    load: f64,
    /// Segments that have ended.
    #[serde(skip)]
    segments: u32,
    exchanges: Exchanges,
    segment_from: Moment,
    #[serde(skip)]
    rng: Xoshiro256PlusPlus,
    #[serde(skip)]
    counts: CacheCounts,
}

#[derive(Clone, Debug, Serialize)]
struct Fetching {
    source: NodeId,
    since: Moment,
    per_s: f32,
    /// It took leave.
    is_exchange: bool,
}

impl CacheNode {
    /// A cache node with nothing, at `now`.
    pub fn new(config: CacheConfig, now: Moment) -> Self {
        let opening = Opening::first_of(config.incarnation);
        let initiator = |peer| Initiator::new(peer, opening, config.drift, config.mutant);
        let charge: BTreeSet<NodeId> = config.charge.iter().copied().collect();
        let backends: BTreeSet<NodeId> = config.partitions.backends().iter().chain(&charge).copied().collect();
        let source = |backend: &NodeId| (*backend, initiator(*backend).in_charge(charge.contains(backend)));
        Self {
            sources: backends.iter().map(source).collect(),
            backends,
            gone: BTreeMap::new(),
            charge,
            controller: initiator(config.controller),
            orders_heard: 0,
            items: Items::default(),
            fetching: HashMap::new(),
            too_large: HashSet::new(),
            too_large_since: 0,
            rules: Vec::new(),
            threshold: 0.0,
            room: None,
            load: 0.0,
            segments: 0,
            exchanges: Exchanges::new(config.exchanges_per_s, now),
            segment_from: now,
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            counts: CacheCounts::default(),
            config,
        }
    }

    /// Heeds what has happened; `now` was read after it had.
    pub fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        match happened {
            Happened::Message(from, message) => self.on_message(now, from, message, out),
            Happened::View(view) => self.on_view(now, view),
            Happened::Tick => self.on_tick(now, out),
        }
        self.tell_rules(now, out);
    }

    /// Cache nodes have come or gone. Whether this is one of them backends say by their leases.
    fn on_view(&mut self, now: Moment, view: &View) {
        self.exchanges.set_rate(now, view.exchanges_per_s);
        self.config.partitions = Arc::clone(&view.shares.map);
        self.backends = view.backends.iter().chain(view.shares.map.backends()).copied().collect();
        view.shares.map.backends().iter().for_each(|backend| self.know(*backend));
        if view.homes.is_empty() {
            // The controller says nothing of it.
            let node = view.caches.node_of(self.config.me);
            let its = view.cache_of.iter().filter(|(_, cache)| Some(**cache) == node);
            self.take_charge(now, its.map(|(backend, _)| *backend).collect());
        }
        self.forget_who_has_gone();
    }

    /// Who is no backend any more, and in nobody's charge here, is asked nothing.
    fn forget_who_has_gone(&mut self) {
        let is_there = |backend: &NodeId| self.backends.contains(backend) || self.charge.contains(backend);
        let gone: BTreeSet<NodeId> = self.sources.keys().copied().filter(|backend| !is_there(backend)).collect();
        let mut void = BTreeSet::new();
        for backend in gone {
            let Some(initiator) = self.sources.remove(&backend) else { continue };
            self.gone.insert(backend, initiator.opening().next());
            if initiator.is_open() {
                void.insert(backend);
            }
        }
        self.forget(void);
    }

    /// This is a backend.
    fn know(&mut self, backend: NodeId) {
        let CacheConfig { incarnation, drift, mutant, .. } = self.config;
        let gone = &mut self.gone;
        self.sources.entry(backend).or_insert_with(|| {
            let opening = gone.remove(&backend).unwrap_or_else(|| Opening::first_of(incarnation));
            Initiator::new(backend, opening, drift, mutant)
        });
    }

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, out: &mut Outbox) {
        match &message {
            // What may change something is asked of its backend by its gateway alone, so that it acts once (R3).
            Message::Request(ask) if ask.operation.only_reads() => {
                if !self.is_answered(now, ask, out) {
                    out.send(self.config.partitions.owner_of(ask.hash), &message);
                }
                return;
            }
            Message::Request(ask) | Message::Probe(ask) => {
                if !self.is_answered(now, ask, out) {
                    let absent = Message::Absent { session: ask.asker.session, number: ask.asker.number };
                    out.send(ask.asker.gateway, &absent);
                }
                return;
            }
            _ => {}
        }
        let is_controller = from == self.config.controller;
        let initiator = if is_controller { Some(&mut self.controller) } else { self.sources.get_mut(&from) };
        let Some(initiator) = initiator else {
            self.counts.ignored += 1;
            return;
        };
        let turn = match message {
            Message::Opened { session, at, lease } => initiator.on_opened(now, session, at, lease),
            Message::Lease { session, at, lease } => {
                initiator.on_lease(now, session, at, lease);
                Turn::None
            }
            Message::Gone { session } => initiator.on_gone(now, session),
            Message::Void { incarnation, up_to } => initiator.on_void(now, incarnation, up_to, out),
            Message::Told { session, ack, seq, body } => {
                self.on_told(now, from, session, Frame { ack, seq, body }, out);
                Turn::None
            }
            _ => {
                self.counts.ignored += 1;
                Turn::None
            }
        };
        self.on_turn(now, from, turn);
    }

    /// A session has begun, or is void.
    fn on_turn(&mut self, now: Moment, peer: NodeId, turn: Turn) {
        match turn {
            Turn::None => {}
            Turn::Opened if peer == self.config.controller => {
                // It knows nothing of this session yet.
                self.orders_heard = 0;
                self.room = None;
                self.rules = self.items.hashes().map(|(hash, per_s)| (hash, Some(load(per_s)))).collect();
                self.tell_loads(now);
            }
            Turn::Opened => {}
            Turn::Void if peer == self.config.controller => {}
            Turn::Void => self.forget([peer].into()),
        }
    }

    /// Sessions with these backends are void: what was told in them is gone. Looks at all items, once.
    fn forget(&mut self, backends: BTreeSet<NodeId>) {
        if backends.is_empty() {
            return;
        }
        self.counts.voided += backends.len() as u64;
        let gone = self.items.remove_all_of(&backends);
        self.rules.extend(gone.into_iter().map(|hash| (hash, None)));
        self.fetching.retain(|_, fetching| !backends.contains(&fetching.source));
        self.exchanges.forget(&backends);
    }

    /// Answers from here, if that can be.
    fn is_answered(&mut self, now: Moment, ask: &Ask<'_>, out: &mut Outbox) -> bool {
        let found = self.found(now, ask);
        if let Some(said) = &found {
            let crate::Asker { gateway, session, number, .. } = ask.asker;
            out.send(gateway, &Message::Reply { session, number, via: None, said: said.borrowed() });
        }
        let counter = if found.is_some() { &mut self.counts.hits } else { &mut self.counts.misses };
        *counter += 1;
        found.is_some()
    }

    /// What is answered from here.
    fn found(&mut self, now: Moment, ask: &Ask<'_>) -> Option<Found> {
        let Operation::Get(get) = &ask.operation else { return None };
        let cached = match self.config.mutant {
            Some(Mutant::R8) => self.items.get_by_hash(ask.hash),
            _ => self.items.get(ask.key.as_bytes()),
        }?;
        let is_valid = self.sources.get(&cached.source)?.is_valid(now);
        let is_over = cached.item.serve_until.is_some_and(|until| now >= until);
        if !is_valid || is_over || cached.is_held {
            return None;
        }
        cached.load.see();
        let item = &cached.item;
        let current = Current {
            flags: item.flags,
            cas: item.version,
            expiry: item.expiry,
            value_len: item.value.len(),
            value: Some(&item.value),
            // How used items are nobody keeps in a cluster: what is here was asked for, of late.
            fetched: true,
            stale: item.stale,
            win_sent: item.win_sent,
            idle_s: 0,
            class: 0,
            total_len: ask.key.as_bytes().len() + item.value.len(),
        };
        match apply(&ask.operation, Some(&current), self.config.clock.time(now), 0) {
            (Change::Keep, Ok(hit)) => Some(Found { hit, value: get.value.then(|| Arc::clone(&item.value)) }),
            // What changes something is the backend's to do.
            _ => None,
        }
    }

    fn on_told(&mut self, now: Moment, from: NodeId, session: SessionId, frame: Frame<Body>, out: &mut Outbox) {
        let is_controller = from == self.config.controller;
        let initiator = if is_controller { Some(&mut self.controller) } else { self.sources.get_mut(&from) };
        let Some(open) = initiator.and_then(|initiator| initiator.valid(now)).filter(|open| open.id == session) else {
            return;
        };
        let body = open.link.hear(now, frame);
        match body {
            None => {}
            Some(Body::Report(loaded)) => loaded.into_iter().for_each(|loaded| self.on_report(now, from, loaded)),
            Some(Body::Burst(Loaded { key, per_s }, item)) => self.admit(now, from, key, per_s, item),
            Some(Body::Value(key, item)) => match (self.fetching.remove(&key), item) {
                (Some(Fetching { per_s, .. }), Some(item)) => {
                    self.admit(now, from, key.clone(), per_s, item);
                    if !self.charge.contains(&from) {
                        // It was on its way when the charge went elsewhere.
                        self.items.set_leaving(&key.0, Leaving::Soon);
                    }
                }
                // It was asked for twice: the key may be here from the first time.
                (None, Some(item)) => self.update_or_drop(now, from, key, item),
                // Nothing changes places for it.
                (Some(Fetching { is_exchange: true, .. }), None) => self.exchanges.give_back(),
                (_, None) => {}
            },
            Some(Body::Update(key, item)) => self.on_update(now, from, key, item),
            Some(Body::Hold(key)) => {
                if let Some(cached) = self.items.get(&key.0).filter(|cached| cached.source == from) {
                    cached.is_held = true;
                    self.counts.held += 1;
                }
            }
            Some(Body::Charge(backends)) if is_controller => {
                self.orders_heard += 1;
                self.take_charge(now, backends);
            }
            Some(Body::MeanLoad(mean)) if is_controller => self.spread(now, f64::from(mean.0)),
            Some(Body::NoRoom(hashes)) if is_controller => self.do_without(now, &hashes),
            Some(_) => self.counts.ignored += 1,
        }
        self.fetch(now);
        if let Some(initiator) = self.sources.get_mut(&from) {
            initiator.emit(now, out);
        } else {
            self.controller.emit(now, out);
        }
    }

    fn on_report(&mut self, now: Moment, from: NodeId, loaded: Loaded) {
        let Loaded { key, per_s } = loaded;
        if !per_s.is_finite() {
            self.counts.ignored += 1;
            return;
        }
        if let Some(cached) = self.items.get(&key.0).filter(|cached| cached.source == from) {
            // Who asks its backend knows of no rule: it may have been lost among others.
            self.rules.push((cached.hash, Some(load(cached.load.per_s().max(per_s.into())))));
        }
        if self.is_worth_it(&key, per_s) {
            self.exchanges.want(key, Reported { source: from, per_s, at: now });
        }
    }

    /// Whether a key that was reported is to be fetched, as far as there is leave.
    fn is_worth_it(&mut self, key: &KeyBytes, per_s: f32) -> bool {
        f64::from(per_s) > self.threshold
            && self.items.get(&key.0).is_none()
            && !self.fetching.contains_key(key)
            && !self.too_large.contains(key)
    }

    /// Fetches what reports want, as far as its items may take the places of others; where there is room they always may. What there is no room to ask for is
    /// reported again.
    fn fetch(&mut self, now: Moment) {
        while !self.exchanges.is_empty() && self.fetching.len() < FETCHING_MAX {
            // What has been asked for takes places, too.
            let is_free = !self.is_full() && self.items.len() + self.fetching.len() < self.items_max();
            let Some((key, Reported { source, per_s, .. })) = self.exchanges.next(now, is_free) else { return };
            // It may have come meanwhile, have moved, or have become too cold for this.
            let is_its = self.config.partitions.owner_of((self.config.hash_of)(&key.0)) == source;
            if is_its && self.is_worth_it(&key, per_s) && self.tell(now, source, Body::Fetch(key.clone())) {
                if !is_free {
                    self.exchanges.spend();
                }
                self.fetching.insert(key, Fetching { source, since: now, per_s, is_exchange: !is_free });
            }
        }
    }

    /// There is no room to route these here: they make room, and others may come only in the places of those that there are.
    fn do_without(&mut self, now: Moment, hashes: &[KeyHash]) {
        let there = self.items.with_hashes(&hashes.iter().copied().collect());
        if !there.is_empty() {
            self.room = Some(((self.items.len() - there.len()).max(ROOM_MIN), ROOM_FOR));
        }
        for key in there {
            self.counts.evicted += 1;
            self.remove(now, &key);
        }
    }

    fn items_max(&self) -> usize {
        self.room.map_or(self.config.items_max, |(room, _)| room.min(self.config.items_max))
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.items_max() || self.items.bytes() >= self.config.bytes_max / 16 * 15
    }

    /// Tells a backend something; whether there was room for it.
    fn tell(&mut self, now: Moment, backend: NodeId, body: Body) -> bool {
        let open = self.sources.get_mut(&backend).and_then(|initiator| initiator.valid(now));
        open.is_some_and(|open| open.link.send(body).is_ok())
    }

    /// Keeps an item, if it is worth its place.
    fn admit(&mut self, now: Moment, from: NodeId, key: KeyBytes, per_s: f32, item: ItemCopy) {
        let len = key.0.len() + item.value.len();
        match self.items.get(&key.0).map(|cached| cached.source) {
            Some(source) if source == from => {
                self.update_or_drop(now, from, key, item);
                return;
            }
            Some(_) => self.remove(now, &key.0),
            None => {}
        }
        if len > self.config.bytes_max {
            if self.too_large.len() < TOO_LARGE_MAX {
                self.too_large.insert(key.clone());
            }
            self.drop_key(now, from, key);
            return;
        }
        if self.config.partitions.owner_of((self.config.hash_of)(&key.0)) != from {
            self.drop_key(now, from, key);
            return;
        }
        while self.items.len() >= self.items_max() || self.items.bytes() + len > self.config.bytes_max {
            let coldest = self.items.coldest_of_some(&mut self.rng);
            let Some((victim, _)) = coldest.filter(|(_, load)| *load < f64::from(per_s)) else {
                self.drop_key(now, from, key);
                return;
            };
            self.counts.evicted += 1;
            self.remove(now, &victim);
        }
        if !self.sources.get(&from).is_some_and(|initiator| initiator.is_valid(now)) {
            // What made room was too much to tell: the session in which the item came has ended.
            return;
        }
        let hash = (self.config.hash_of)(&key.0);
        let is_its = self.charge.contains(&from);
        self.items.insert(key, Cached::new(from, hash, item, f64::from(per_s), is_its));
        self.rules.push((hash, Some(load(per_s.into()))));
        self.counts.admitted += 1;
    }

    /// Takes an item out, and tells its backend.
    fn remove(&mut self, now: Moment, key: &[u8]) {
        if let Some((key, cached)) = self.items.remove(key) {
            self.rules.push((cached.hash, None));
            self.drop_key(now, cached.source, key);
        }
    }

    /// Tells a backend that a key is not kept.
    fn drop_key(&mut self, now: Moment, backend: NodeId, key: KeyBytes) {
        let Some(initiator) = self.sources.get_mut(&backend) else { return };
        let Some(open) = initiator.valid(now) else { return };
        let seen = open.link.received();
        if open.link.send(Body::Drop { key, seen }).is_err() {
            // It would take the key for cached for ever: rather begin again.
            let turn = initiator.end(now);
            self.on_turn(now, backend, turn);
        }
    }

    fn on_update(&mut self, now: Moment, from: NodeId, key: KeyBytes, item: Option<ItemCopy>) {
        match item {
            Some(item) => self.update_or_drop(now, from, key, item),
            None if self.items.get(&key.0).is_some_and(|cached| cached.source == from) => self.remove(now, &key.0),
            None => self.drop_key(now, from, key),
        }
    }

    /// Replaces an item of a backend's, or says that it is not here.
    fn update_or_drop(&mut self, now: Moment, from: NodeId, key: KeyBytes, item: ItemCopy) {
        if self.items.get(&key.0).is_some_and(|cached| cached.source == from) {
            self.items.replace(&key.0, item);
            self.counts.updated += 1;
            while self.items.bytes() > self.config.bytes_max {
                let Some((victim, _)) = self.items.coldest_of_some(&mut self.rng) else { return };
                self.counts.evicted += 1;
                self.remove(now, &victim);
            }
        } else {
            self.drop_key(now, from, key);
        }
    }

    fn on_tick(&mut self, now: Moment, out: &mut Outbox) {
        self.fetch(now);
        let turns = self.sources.iter_mut().map(|(backend, initiator)| (*backend, initiator.tick(now, out)));
        let void = turns.filter(|(_, turn)| *turn == Turn::Void).map(|(backend, _)| backend).collect();
        self.forget(void);
        let turn = self.controller.tick(now, out);
        self.on_turn(now, self.config.controller, turn);
        let elapsed = now.since(self.segment_from);
        if elapsed >= self.config.segment {
            let segment_from = std::mem::replace(&mut self.segment_from, now);
            self.items.end_segment(self.config.alpha, 1.0 / elapsed.as_s());
            self.segments = self.segments.wrapping_add(1);
            self.room = self.room.and_then(|(room, left)| (left > 1).then(|| (room, left - 1)));
            self.hand_over(now);
            self.tell_loads(now);
            self.fetching.retain(|_, fetching| now.since(fetching.since) < FETCH_FOR);
            // What was not reported in the segment that ends is not among the hottest any more.
            self.exchanges.forget_before(segment_from);
            self.set_threshold();
            self.too_large_since += 1;
            if self.too_large_since >= TOO_LARGE_FOR {
                self.too_large_since = 0;
                self.too_large.clear();
            }
        }
    }

    /// While there is room every key that is read is worth its place.
    fn set_threshold(&mut self) {
        let (len, rank) = (self.items.len(), self.config.threshold_rank);
        let is_full = self.is_full();
        let items = &self.items;
        let drawn = admission_threshold(len, |at| items.load_at(at), THRESHOLD_SAMPLE, rank, &mut self.rng);
        self.threshold = drawn.filter(|_| is_full).unwrap_or(0.0);
        self.exchanges.set_threshold(self.threshold);
    }

    fn tell_rules(&mut self, now: Moment, out: &mut Outbox) {
        let Some(open) = self.controller.valid(now) else {
            self.rules.clear();
            return;
        };
        while !self.rules.is_empty() {
            let some = self.rules.len().min(RULES_AT_ONCE);
            if open.link.send(Body::Rules(self.rules[..some].to_vec())).is_err() {
                // They are told again when there is another session.
                self.controller.end(now);
                self.rules.clear();
                return;
            }
            self.rules.drain(..some);
        }
        self.controller.emit(now, out);
    }

    /// When `step` has something to do, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        let sources = self.sources.values().map(Initiator::wake_at);
        // Once too many are fetched, the end of a segment makes room.
        let exchanges = self.exchanges.wake_at().filter(|_| self.fetching.len() < FETCHING_MAX);
        sources.chain([self.controller.wake_at(), self.segment_from + self.config.segment]).chain(exchanges).min()
    }

    /// Its name.
    pub fn name(&self) -> NodeId {
        self.config.me
    }

    /// Numbers.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// Backends whose items may be served now.
    pub fn sessions(&self, now: Moment) -> usize {
        self.sources.values().filter(|initiator| initiator.is_valid(now)).count()
    }

    /// Backends in its charge.
    pub fn charge(&self) -> usize {
        self.charge.len()
    }

    /// The load of its items when that was told last, queries a second.
    pub fn load_per_s(&self) -> u64 {
        self.load.round() as u64
    }

    /// Items there are.
    pub fn items(&self) -> usize {
        self.items.len()
    }

    /// The keys with the most load, at most `len_max`, hottest first, with queries a second.
    pub fn hottest(&self, len_max: usize) -> Vec<(Box<[u8]>, f64)> {
        self.items.hottest(len_max)
    }
}

/// A load in whole queries a second.
fn load(per_s: f64) -> Load {
    Load(per_s as u32)
}

/// A hit that is answered from here.
struct Found {
    hit: guira_item::Hit,
    value: Option<Arc<[u8]>>,
}

impl Found {
    fn borrowed(&self) -> Said<'_> {
        Said::Hit { hit: self.hit, value: self.value.as_deref() }
    }
}
