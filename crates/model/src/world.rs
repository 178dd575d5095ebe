//! A state of a model: cores, what is under way between them, and what clients have seen.
//!
//! Always true: a step of a core is one act, and nothing else happens in it; what a state's number does not tell makes no difference to what can
//! happen from there on.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use guira_cluster::Opening;
use guira_item::{Key, store::StoreState};
use guira_routing::NodeId;
use guira_switched::{
    AskId, Happened, Message, Outbox,
    backend::{self, Backend},
    cache_node::CacheNode,
    gateway::{self, Gateway},
};
use serde::Serialize;

use crate::{
    act::{Act, Timed, Way},
    disk::{Disk, Fate},
    fingerprint::fingerprint,
    members::{BACKEND, CACHES, CONTROLLER, FIRST_GATEWAY, Node},
    network::{Age, Network},
    orders::{Number, Orders, Seen, Wish},
    scenario::{Begins, Faults, KEYS, KeyNumber, Scenario},
};

/// How many ticks it takes at most until everything is answered once faults stop: two leases, and what was under way.
const SETTLES_WITHIN_TICKS: usize = 16;

/// Steps in a moment, at most.
const STEPS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, Serialize)]
struct Waiting {
    next: usize,
    asked: Option<Number>,
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    backend: Node<Backend>,
    caches: Vec<Node<CacheNode>>,
    gateways: Vec<Node<Gateway>>,
    disk: Disk,
    pub(crate) network: Network,
    /// What comes within the act in which it is sent.
    at_once: VecDeque<(NodeId, NodeId, Box<[u8]>)>,
    clients: Vec<Waiting>,
    orders: Vec<Orders>,
    left: Faults,
    /// The backend takes the first cache node for gone.
    has_gone: bool,
    /// The last session that each cache node has begun, and how many all have.
    openings: Vec<Opening>,
    sessions: u8,
    /// What it began with.
    first_tick: u64,
    /// What clients were told last, for who reads a trace.
    pub(crate) told: Vec<(usize, Seen)>,
    print: u64,
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Eq for World {}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.print.hash(state);
    }
}

/// What tells one state from another.
#[derive(Serialize)]
struct Print<'w> {
    backend: &'w Node<Backend>,
    caches: &'w [Node<CacheNode>],
    /// How far their clocks are apart.
    skew: i64,
    /// How far they have gone, if that is bounded.
    ticks: Option<u64>,
    gateways: &'w [Node<Gateway>],
    disk: &'w Disk,
    network: u64,
    clients: &'w [Waiting],
    orders: &'w [Orders],
    has_gone: bool,
    left: [Option<u8>; 7],
}

impl World {
    /// What a scenario begins with: sessions are there, and what is to be cached is.
    pub(crate) fn first(scenario: &Scenario) -> Self {
        let gateways = scenario.names_of_gateways().map(|name| Node::new(scenario.gateway(name))).collect();
        let caches: Vec<_> =
            CACHES[..scenario.caches].iter().map(|cache| Node::new(scenario.cache(*cache, 1, 0))).collect();
        let first_tick = caches[0].ticks;
        let backend = Node::new(scenario.backend(1, first_tick, StoreState::default(), 0));
        let mut world = Self {
            first_tick,
            backend,
            openings: vec![Opening(0); caches.len()],
            caches,
            gateways,
            disk: Disk::default(),
            network: Network::default(),
            at_once: VecDeque::new(),
            clients: Vec::new(),
            orders: KEYS.map(|_| Orders::new()).into(),
            left: Faults::default(),
            has_gone: false,
            sessions: 0,
            told: Vec::new(),
            print: 0,
        };
        let calm = Scenario { room: usize::MAX, mutant: None, ..scenario.clone() };
        world.settles(&calm);
        let (key, wishes): (_, &[Wish]) = match scenario.begins {
            // Of what is not there nothing comes but sessions.
            Begins::Empty => (KeyNumber(KEYS.len() - 1), &[Wish::Get]),
            Begins::Cached(key) => (key, &[Wish::Set(0), Wish::Get]),
            Begins::Fetching(key) => (key, &[Wish::Get]),
        };
        let gateways = world.gateways.len();
        for (wish, gateway) in wishes.iter().flat_map(|wish| (0..gateways).map(move |at| (wish, at))) {
            world.clients = vec![Waiting { next: 0, asked: Some(Number(0)) }];
            world.ask(&calm, gateway, Number(0), key, *wish);
            world.hand_over(&calm);
            assert!(world.settles(&calm), "what is asked before a model begins is answered");
        }
        if let Begins::Fetching(_) = scenario.begins {
            world.happen(&calm, Act::ClockGoesOn(Timed::Caches));
            world.happen(&calm, Act::ClockGoesOn(Timed::Backend));
            world.happen(&calm, Act::BackendIsDue);
            while let Some(at) = world.network.datagrams.iter().position(|datagram| CACHES.contains(&datagram.to)) {
                world.happen(&calm, Act::Datagram(at, Way::Comes));
            }
        }
        world.clients = vec![Waiting { next: 0, asked: None }; scenario.clients.len()];
        world.left = scenario.faults;
        world.first_tick = world.cache_ticks().min(world.backend.ticks);
        world.told.clear();
        world.sessions = 0;
        world.see(scenario);
        world
    }

    /// All that can happen.
    pub(crate) fn acts(&self, scenario: &Scenario, acts: &mut Vec<Act>) {
        if !self.are_possible() || self.all_are_done(scenario) {
            return;
        }
        for (at, client) in self.clients.iter().enumerate() {
            if client.asked.is_none() && client.next < scenario.clients[at].wishes.len() {
                acts.push(Act::Asks(at));
            }
        }
        for at in 0..self.network.datagrams.len() {
            acts.push(Act::Datagram(at, Way::Comes));
            if self.left.doublings != Some(0) {
                acts.push(Act::Datagram(at, Way::ComesAndStays));
            }
            if self.left.losses != Some(0) {
                acts.push(Act::Datagram(at, Way::IsLost));
            }
        }
        for at in 0..self.disk.calls().len() {
            acts.push(Act::Disk(at, Fate::Done));
            if self.left.disk_failures > 0 {
                let fates = [Fate::Refused, Fate::Unknown { done: true }, Fate::Unknown { done: false }];
                acts.extend(fates.map(|fate| Act::Disk(at, fate)));
            }
        }
        let (of_backend, of_caches) = (self.backend.ticks, self.cache_ticks());
        let may_go_on = |ticks: u64| scenario.ticks_max.is_none_or(|max| ticks < self.first_tick + max);
        if of_backend <= of_caches && may_go_on(of_backend) {
            acts.push(Act::ClockGoesOn(Timed::Backend));
        }
        if of_caches <= of_backend && may_go_on(of_caches) {
            acts.push(Act::ClockGoesOn(Timed::Caches));
        }
        if self.backend.core.wake_at().is_some_and(|at| at <= self.backend.now()) {
            acts.push(Act::BackendIsDue);
        }
        for (at, cache) in self.caches.iter().enumerate() {
            if cache.core.wake_at().is_some_and(|at| at <= cache.now()) {
                acts.push(Act::CacheIsDue(at));
            }
        }
        for (at, gateway) in self.gateways.iter().enumerate() {
            if gateway.core.pending() > 0 && self.left.resends != Some(0) {
                acts.push(Act::GatewayWaited(at));
            }
        }
        if self.left.backend_deaths > 0 {
            acts.extend((0..=self.disk.calls().len()).map(Act::BackendDies));
        }
        if self.left.cache_deaths > 0 {
            acts.push(Act::CacheDies);
        }
        if self.has_gone {
            acts.push(Act::CacheComesBack);
        } else if self.left.departures > 0 {
            acts.push(Act::CacheGoes);
        }
    }

    /// What is there after something has happened.
    pub(crate) fn after(&self, scenario: &Scenario, act: Act) -> Self {
        let mut world = self.clone();
        world.told.clear();
        world.happen(scenario, act);
        world.see(scenario);
        world
    }

    fn happen(&mut self, scenario: &Scenario, act: Act) {
        self.begin(scenario, act);
        self.hand_over(scenario);
    }

    /// What comes at once comes.
    fn hand_over(&mut self, scenario: &Scenario) {
        while let Some((from, to, bytes)) = self.at_once.pop_front() {
            let message = Message::decode(&bytes).expect("what a core has sent can be read");
            self.hear(scenario, from, to, message);
        }
    }

    fn hear(&mut self, scenario: &Scenario, from: NodeId, to: NodeId, message: Message<'_>) {
        match to {
            BACKEND => self.on_backend(scenario, backend::Happened::Message(from, message)),
            NodeId(name) if name < FIRST_GATEWAY => {
                let at = CACHES.iter().position(|cache| *cache == to).expect("one of the cache nodes");
                self.on_cache(scenario, at, Happened::Message(from, message));
            }
            NodeId(name) => {
                let at = usize::from(name - FIRST_GATEWAY);
                self.on_gateway(scenario, at, gateway::Happened::Message(from, message));
            }
        }
    }

    fn begin(&mut self, scenario: &Scenario, act: Act) {
        match act {
            Act::Asks(client) => {
                let Waiting { next, .. } = self.clients[client];
                let (asks, number) = (&scenario.clients[client], number(client, next));
                let (key, wish) = asks.wishes[next];
                self.clients[client] = Waiting { next: next + 1, asked: Some(number) };
                self.ask(scenario, asks.gateway, number, key, wish);
            }
            Act::Datagram(at, way) => {
                let datagram = match way {
                    Way::Comes => self.network.datagrams.remove(at),
                    Way::ComesAndStays => {
                        take_one(&mut self.left.doublings);
                        self.network.datagrams[at].clone()
                    }
                    Way::IsLost => {
                        take_one(&mut self.left.losses);
                        self.network.datagrams.remove(at);
                        return;
                    }
                };
                self.hear(scenario, datagram.from, datagram.to, datagram.message());
            }
            Act::Disk(at, fate) => {
                self.left.disk_failures -= u8::from(fate != Fate::Done);
                let happened = self.disk.complete(at, fate);
                self.on_backend(scenario, happened);
            }
            Act::ClockGoesOn(Timed::Backend) => {
                self.backend.ticks += 1;
                self.backend.changed();
            }
            Act::ClockGoesOn(Timed::Caches) => {
                for cache in &mut self.caches {
                    cache.ticks += 1;
                    cache.changed();
                }
                self.network.grow_older(self.age(scenario));
            }
            Act::BackendIsDue => self.on_backend(scenario, backend::Happened::Tick),
            Act::CacheIsDue(at) => self.on_cache(scenario, at, Happened::Tick),
            Act::GatewayWaited(at) => {
                take_one(&mut self.left.resends);
                self.gateways[at].ticks += 1;
                self.on_gateway(scenario, at, gateway::Happened::Tick);
            }
            Act::BackendDies(through) => {
                self.left.backend_deaths -= 1;
                self.disk.crash(through);
                self.backend.life += 1;
                let gone = usize::from(self.has_gone);
                let core = scenario.backend(self.backend.life, self.backend.ticks, self.disk.state(), gone);
                self.backend.core = Arc::new(core);
                self.on_backend(scenario, backend::Happened::Tick);
            }
            Act::CacheDies => {
                self.left.cache_deaths -= 1;
                let cache = &mut self.caches[0];
                cache.life += 1;
                cache.core = Arc::new(scenario.cache(CACHES[0], cache.life, cache.ticks));
                self.on_cache(scenario, 0, Happened::Tick);
            }
            Act::CacheGoes => {
                self.left.departures -= 1;
                self.has_gone = true;
                self.on_backend(scenario, backend::Happened::View(&scenario.view(1)));
            }
            Act::CacheComesBack => {
                self.has_gone = false;
                self.on_backend(scenario, backend::Happened::View(&scenario.view(0)));
            }
        }
    }

    fn ask(&mut self, scenario: &Scenario, gateway: usize, number: Number, key: KeyNumber, wish: Wish) {
        self.orders[key.0].begin(number, wish);
        let id = AskId(u64::from(number.0) * KEYS.len() as u64 + key.0 as u64);
        let key = Key::new(&KEYS[key.0]).expect("a short name");
        self.on_gateway(scenario, gateway, gateway::Happened::Ask(id, key, wish.operation()));
    }

    fn on_backend(&mut self, scenario: &Scenario, happened: backend::Happened<'_>) {
        let mut out = Outbox::default();
        let now = self.backend.now();
        Arc::make_mut(&mut self.backend.core).step(now, happened, &mut out);
        self.backend.changed();
        self.disk.take(out.store.drain(..));
        self.send(scenario, BACKEND, &out);
    }

    fn on_cache(&mut self, scenario: &Scenario, at: usize, happened: Happened<'_>) {
        let mut out = Outbox::default();
        let cache = &mut self.caches[at];
        let now = cache.now();
        Arc::make_mut(&mut cache.core).step(now, happened, &mut out);
        cache.changed();
        self.send(scenario, CACHES[at], &out);
    }

    fn on_gateway(&mut self, scenario: &Scenario, at: usize, happened: gateway::Happened<'_>) {
        let mut out = Outbox::default();
        let gateway = &mut self.gateways[at];
        let now = gateway.now();
        Arc::make_mut(&mut gateway.core).step(now, happened, &mut out);
        gateway.changed();
        self.send(scenario, NodeId(FIRST_GATEWAY + at as u16), &out);
        for (AskId(id), reply) in out.answers.drain(..) {
            let (number, key) = (Number((id / KEYS.len() as u64) as u8), (id % KEYS.len() as u64) as usize);
            let seen = Seen::of(&reply);
            self.orders[key].end(number, seen);
            for (at, client) in self.clients.iter_mut().enumerate() {
                if client.asked == Some(number) {
                    client.asked = None;
                    self.told.push((at, seen));
                }
            }
        }
    }

    fn send(&mut self, scenario: &Scenario, from: NodeId, out: &Outbox) {
        let age = self.age(scenario);
        let is_gateway = |NodeId(name)| name >= FIRST_GATEWAY;
        for (to, bytes) in out.sends().filter(|(to, _)| *to != CONTROLLER) {
            if scenario.gateways_are_near && (is_gateway(from) || is_gateway(to)) {
                self.at_once.push_back((from, to, bytes.into()));
                continue;
            }
            if let Ok(Message::Open { opening, .. }) = Message::decode(bytes)
                && let Some(last) = CACHES.iter().position(|cache| *cache == from).map(|at| &mut self.openings[at])
                && opening > *last
            {
                (*last, self.sessions) = (opening, self.sessions + 1);
            }
            self.network.send((from, to), bytes, scenario.room, age);
        }
    }

    fn age(&self, scenario: &Scenario) -> Age {
        Age { now: self.caches[0].now(), max: scenario.lease_ticks - 1 }
    }

    /// The clock of the cache nodes.
    fn cache_ticks(&self) -> u64 {
        self.caches[0].ticks
    }

    /// Finds its number.
    fn see(&mut self, scenario: &Scenario) {
        let Faults { losses, doublings, backend_deaths, cache_deaths, departures, resends, disk_failures } = self.left;
        let now = self.caches[0].now();
        let print = Print {
            backend: &self.backend,
            caches: &self.caches,
            skew: self.backend.ticks as i64 - self.cache_ticks() as i64,
            ticks: scenario.ticks_max.map(|_| self.cache_ticks() - self.first_tick),
            gateways: &self.gateways,
            disk: &self.disk,
            network: self.network.print(now),
            clients: &self.clients,
            orders: &self.orders,
            has_gone: self.has_gone,
            left: [
                losses,
                doublings,
                resends,
                Some(backend_deaths),
                Some(cache_deaths),
                Some(departures),
                Some(disk_failures),
            ],
        };
        self.print = fingerprint(&print, now);
    }

    /// It is still looked at.
    pub(crate) fn is_within(&self, scenario: &Scenario) -> bool {
        self.sessions <= scenario.sessions_max
    }

    /// Everything that clients were told can have happened in some order.
    pub(crate) fn are_possible(&self) -> bool {
        self.orders.iter().all(Orders::are_possible)
    }

    /// Clients have asked all that they want, and have all answers.
    pub(crate) fn all_are_done(&self, scenario: &Scenario) -> bool {
        let mut all = self.clients.iter().zip(&scenario.clients);
        all.all(|(client, wanted)| client.asked.is_none() && client.next == wanted.wishes.len())
    }

    /// Reads that cache nodes have answered.
    pub(crate) fn hits(&self) -> u64 {
        self.caches.iter().map(|cache| cache.core.counts().hits).sum()
    }

    /// The state's number.
    pub(crate) fn print(&self) -> u64 {
        self.print
    }

    /// Whether what was asked is answered, and sessions are there, once no more faults come.
    pub(crate) fn settles_after(&self, scenario: &Scenario) -> bool {
        let calm = Scenario { room: usize::MAX, ..scenario.clone() };
        self.clone().settles(&calm)
    }

    fn settles(&mut self, calm: &Scenario) -> bool {
        if self.has_gone {
            self.happen(calm, Act::CacheComesBack);
        }
        for _ in 0..SETTLES_WITHIN_TICKS {
            for _ in 0..STEPS_MAX {
                if !self.network.datagrams.is_empty() {
                    self.happen(calm, Act::Datagram(0, Way::Comes));
                } else if !self.disk.calls().is_empty() {
                    self.happen(calm, Act::Disk(0, Fate::Done));
                } else {
                    break;
                }
            }
            let have_sessions = self.caches.iter().all(|cache| cache.core.sessions(cache.now()) == 1);
            if have_sessions && self.clients.iter().all(|client| client.asked.is_none()) {
                return true;
            }
            self.happen(calm, Act::ClockGoesOn(Timed::Backend));
            self.happen(calm, Act::BackendIsDue);
            self.happen(calm, Act::ClockGoesOn(Timed::Caches));
            (0..self.caches.len()).for_each(|at| self.happen(calm, Act::CacheIsDue(at)));
            (0..self.gateways.len()).for_each(|at| self.happen(calm, Act::GatewayWaited(at)));
        }
        false
    }

    /// Says what an act is, here.
    pub(crate) fn tell(&self, scenario: &Scenario, act: Act) -> String {
        let name = |NodeId(name): NodeId| match name {
            2 => "cache node".to_owned(),
            3 => "second cache node".to_owned(),
            4 => "backend".to_owned(),
            other => format!("gateway {}", other - FIRST_GATEWAY),
        };
        match act {
            Act::Asks(at) => {
                let client = &scenario.clients[at];
                let (key, wish) = client.wishes[self.clients[at].next];
                let key = char::from(KEYS[key.0][0]);
                format!("client {at} asks gateway {}: {wish:?} of key {key}", client.gateway)
            }
            Act::Datagram(at, way) => {
                let datagram = &self.network.datagrams[at];
                let (from, to) = (name(datagram.from), name(datagram.to));
                let way = match way {
                    Way::Comes => "comes",
                    Way::ComesAndStays => "comes, and may come again",
                    Way::IsLost => "is lost",
                };
                format!("{from} -> {to} {way}: {:?}", datagram.message())
            }
            Act::Disk(at, fate) => format!("the disk: {:?} is {fate:?}", self.disk.calls()[at]),
            Act::ClockGoesOn(Timed::Backend) => "a tick goes by for the backend".to_owned(),
            Act::ClockGoesOn(Timed::Caches) => "a tick goes by for cache nodes".to_owned(),
            Act::BackendIsDue => "the backend does what is due".to_owned(),
            Act::CacheIsDue(at) => format!("the {} does what is due", name(CACHES[at])),
            Act::GatewayWaited(at) => format!("gateway {at} has waited for long enough"),
            Act::BackendDies(through) => {
                format!("the backend dies when {through} calls of its disk have happened, and begins another life")
            }
            Act::CacheDies => "the cache node dies and begins another life".to_owned(),
            Act::CacheGoes => "the backend hears that the cache node has gone".to_owned(),
            Act::CacheComesBack => "the backend hears that the cache node is there again".to_owned(),
        }
    }
}

/// Operations of a client, at most.
const WISHES_MAX: usize = 16;

fn number(client: usize, at: usize) -> Number {
    Number((1 + client * WISHES_MAX + at) as u8)
}

fn take_one(left: &mut Option<u8>) {
    // Where all is calm nobody counts.
    *left = left.map(|left| left.saturating_sub(1));
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (client, seen) in &self.told {
            write!(f, "client {client} is told {seen:?}; ")?;
        }
        Ok(())
    }
}
