//! A state of a model: cores, what is under way between them, and what clients have seen.
//!
//! Always true: a step of a core is one act, and nothing else happens in it; what a state's number does not tell makes no difference to what can
//! happen from there on.

mod flushing;
mod moving;
mod settling;
mod telling;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use guira_cluster::Opening;
use guira_item::{Key, store::StoreState};
use guira_routing::NodeId;
use guira_switched::{
    AskId, Happened, Message, Outbox, Shares,
    backend::{self, Backend},
    cache_node::CacheNode,
    gateway::{self, Gateway},
};
use serde::Serialize;

use crate::switched::{
    act::{Act, Next, Timed, Way},
    coordinator::{Coordinator, Known},
    disk::{Disk, Fate},
    fingerprint::fingerprint,
    members::{BACKENDS, CACHES, CONTROLLER, FIRST_GATEWAY, FIRST_TICK, Member, Node, moment},
    network::{Age, Network},
    orders::{Number, Orders, Read, Seen, Wish},
    scenario::{Begins, Faults, KEYS, KeyNumber, Scenario},
};
use flushing::ToCome;

#[derive(Clone, Copy, Debug, Serialize)]
struct Waiting {
    next: usize,
    asked: Option<Number>,
    /// What it has read last, where it goes by that.
    read: Option<Read>,
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    backends: Vec<Node<Backend>>,
    /// One for each.
    disks: Vec<Disk>,
    caches: Vec<Node<CacheNode>>,
    gateways: Vec<Node<Gateway>>,
    coordinator: Coordinator,
    /// What each member has heard of the map.
    known: BTreeMap<NodeId, Known>,
    pub(crate) network: Network,
    /// What comes within the act in which it is sent.
    at_once: VecDeque<(NodeId, NodeId, Box<[u8]>)>,
    clients: Vec<Waiting>,
    orders: Vec<Orders>,
    /// The `flush_all` that is to come.
    to_come: Option<ToCome>,
    left: Faults,
    /// How often it may yet change who is to have the partition of key A.
    moves_left: u8,
    /// The backends take the first cache node for gone.
    has_gone: bool,
    /// The last session that each cache node has begun with each backend, and how many all have.
    openings: Vec<[Opening; BACKENDS.len()]>,
    sessions: u8,
    /// What it began with.
    first_tick: u64,
    /// What clients were told last, for who reads a trace.
    pub(crate) told: Vec<(usize, Seen)>,
    /// A core has panicked in the last act: this is what was before it.
    pub(crate) has_failed: bool,
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
    backends: &'w [Node<Backend>],
    disks: &'w [Disk],
    coordinator: &'w Coordinator,
    known: &'w BTreeMap<NodeId, Known>,
    caches: &'w [Node<CacheNode>],
    /// How far their clocks are apart.
    skew: i64,
    /// How far they have gone, if that is bounded.
    ticks: Option<u64>,
    gateways: &'w [Node<Gateway>],
    network: u64,
    clients: &'w [Waiting],
    orders: &'w [Orders],
    to_come: &'w Option<ToCome>,
    has_gone: bool,
    left: [Option<u8>; 9],
    moves_left: u8,
}

impl World {
    /// What a scenario begins with: sessions are there, and what is to be cached is.
    pub(crate) fn first(scenario: &Scenario) -> Self {
        let coordinator = scenario.coordinator();
        let shares = coordinator.shares();
        let gateway = |name| Node::new(scenario.gateway(name, shares.clone()));
        let cache = |name: &NodeId| Node::new(scenario.cache(*name, 1, 0, Arc::clone(&shares.map)));
        let caches: Vec<_> = CACHES[..scenario.caches].iter().map(cache).collect();
        let first_tick = FIRST_TICK;
        let backend =
            |name: &NodeId| Node::new(scenario.backend(*name, 1, first_tick, StoreState::default(), 0, shares.clone()));
        let backends: Vec<_> = BACKENDS[..scenario.backends()].iter().map(backend).collect();
        let names = CACHES[..caches.len()].iter().chain(&BACKENDS[..backends.len()]).copied();
        let names = names.chain(scenario.names_of_gateways());
        let mut world = Self {
            first_tick,
            disks: vec![Disk::new(scenario.faults.late > 0); backends.len()],
            backends,
            known: names.map(|name| (name, coordinator.now())).collect(),
            openings: vec![[Opening(0); BACKENDS.len()]; caches.len()],
            caches,
            gateways: scenario.names_of_gateways().map(gateway).collect(),
            coordinator,
            network: Network::default(),
            at_once: VecDeque::new(),
            clients: Vec::new(),
            orders: KEYS.map(|_| Orders::new()).into(),
            to_come: None,
            left: Faults::default(),
            moves_left: 0,
            has_gone: false,
            sessions: 0,
            told: Vec::new(),
            has_failed: false,
            print: 0,
        };
        assert!(!scenario.flushes_several_keys(), "a flush is an act of the one key that clients name");
        assert!(scenario.has_one_to_come_at_most(), "a flush that is to come is followed by itself alone");
        assert!(!scenario.marks_what_is_swapped(), "a mark has a version of its own, that the digit does not tell");
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
            world.clients = vec![Waiting { next: 0, asked: Some(Number(0)), read: None }];
            world.ask(&calm, gateway, Number(0), key, *wish);
            world.hand_over(&calm);
            assert!(world.settles(&calm), "what is asked before a model begins is answered");
        }
        if let Begins::Fetching(_) = scenario.begins {
            world.happen(&calm, Act::ClockGoesOn(Timed::Caches));
            world.happen(&calm, Act::ClockGoesOn(Timed::Backend));
            world.happen(&calm, Act::BackendIsDue(0));
            while let Some(at) = world.network.datagrams.iter().position(|datagram| CACHES.contains(&datagram.to)) {
                world.happen(&calm, Act::Datagram(at, Way::Comes));
            }
        }
        world.clients = vec![Waiting { next: 0, asked: None, read: None }; scenario.clients.len()];
        world.left = scenario.faults;
        world.moves_left = scenario.moves;
        if scenario.moves > 0 {
            // It begins with that.
            world.happen(&calm, Act::IsToMove);
        }
        world.first_tick = world.cache_ticks().min(world.backend_ticks());
        world.told.clear();
        world.sessions = 0;
        world.see(scenario);
        world
    }

    /// All that can happen.
    pub(crate) fn acts(&self, scenario: &Scenario, acts: &mut Vec<Act>) {
        if self.has_failed || !self.are_possible() || self.all_are_done(scenario) {
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
        for (of, disk) in self.disks.iter().enumerate() {
            for at in 0..disk.calls().len() {
                acts.push(Act::Disk(of, at, Fate::Done));
                if self.left.disk_failures > 0 {
                    let fates = [Fate::Refused, Fate::Unknown { done: true }, Fate::Unknown { done: false }];
                    acts.extend(fates.map(|fate| Act::Disk(of, at, fate)));
                }
                if self.left.late > 0 && disk.may_be_late(at) {
                    acts.push(Act::Disk(of, at, Fate::Late));
                }
            }
            acts.extend((0..disk.late()).map(|at| Act::ComesLate(of, at)));
        }
        let (of_backend, of_caches) = (self.backend_ticks(), self.cache_ticks());
        let may_go_on = |ticks: u64| scenario.ticks_max.is_none_or(|max| ticks < self.first_tick + max);
        if of_backend <= of_caches && may_go_on(of_backend) {
            acts.push(Act::ClockGoesOn(Timed::Backend));
        }
        if !self.caches.is_empty() && of_caches <= of_backend && may_go_on(of_caches) {
            acts.push(Act::ClockGoesOn(Timed::Caches));
        }
        for (at, backend) in self.backends.iter().enumerate() {
            if backend.core.wake_at().is_some_and(|at| at <= backend.now()) {
                acts.push(Act::BackendIsDue(at));
            }
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
            for (of, disk) in self.disks.iter().enumerate() {
                acts.extend((0..=disk.calls().len()).map(|through| Act::BackendDies(of, through, Next::Never)));
                let late = (0..disk.calls().len()).filter(|at| self.left.late > 0 && disk.may_be_late(*at));
                acts.extend(late.map(|through| Act::BackendDies(of, through, Next::Late)));
            }
        }
        if self.left.cache_deaths > 0 {
            acts.push(Act::CacheDies);
        }
        if self.has_gone {
            acts.push(Act::CacheComesBack);
        } else if self.left.departures > 0 {
            acts.push(Act::CacheGoes);
        }
        self.moves(acts);
    }

    /// What is there after something has happened.
    pub(crate) fn after(&self, scenario: &Scenario, act: Act) -> Self {
        let happens = AssertUnwindSafe(|| {
            let mut world = self.clone();
            world.told.clear();
            world.happen(scenario, act);
            world.see(scenario);
            world
        });
        // Nothing of what has panicked is looked at again.
        catch_unwind(happens).unwrap_or_else(|_| Self { has_failed: true, print: !self.print, ..self.clone() })
    }

    fn happen(&mut self, scenario: &Scenario, act: Act) {
        self.begin(scenario, act);
        self.hand_over(scenario);
        self.see_what_was_to_come();
    }

    /// What comes at once comes.
    fn hand_over(&mut self, scenario: &Scenario) {
        while let Some((from, to, bytes)) = self.at_once.pop_front() {
            let message = Message::decode(&bytes).expect("what a core has sent can be read");
            self.hear(scenario, from, to, message);
        }
    }

    fn hear(&mut self, scenario: &Scenario, from: NodeId, to: NodeId, message: Message<'_>) {
        match Member::of(to) {
            Member::Backend(at) => self.on_backend(scenario, at, backend::Happened::Message(from, message)),
            Member::Cache(at) => self.on_cache(scenario, at, Happened::Message(from, message)),
            Member::Gateway(at) => self.on_gateway(scenario, at, gateway::Happened::Message(from, message)),
        }
    }

    fn begin(&mut self, scenario: &Scenario, act: Act) {
        match act {
            Act::Asks(client) => {
                let Waiting { next, read, .. } = self.clients[client];
                let (asks, number) = (&scenario.clients[client], number(client, next));
                let (key, wish) = asks.wishes[next];
                let wish = if let Wish::Swap { to, .. } = wish { Wish::Swap { to, read } } else { wish };
                self.clients[client] = Waiting { next: next + 1, asked: Some(number), read };
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
            Act::Disk(of, at, fate) => {
                match fate {
                    Fate::Done => {}
                    Fate::Late => self.left.late -= 1,
                    Fate::Refused | Fate::Unknown { .. } => self.left.disk_failures -= 1,
                }
                let happened = self.disks[of].complete(at, fate, scenario.hash_of());
                self.on_backend(scenario, of, happened);
            }
            Act::ClockGoesOn(Timed::Backend) => {
                for backend in &mut self.backends {
                    backend.ticks += 1;
                    backend.changed();
                }
                self.network.grow_older(self.age(scenario));
            }
            Act::ClockGoesOn(Timed::Caches) => {
                for cache in &mut self.caches {
                    cache.ticks += 1;
                    cache.changed();
                }
                self.network.grow_older(self.age(scenario));
            }
            Act::BackendIsDue(at) => self.on_backend(scenario, at, backend::Happened::Tick),
            Act::CacheIsDue(at) => self.on_cache(scenario, at, Happened::Tick),
            Act::GatewayWaited(at) => {
                take_one(&mut self.left.resends);
                self.gateways[at].ticks += 1;
                self.on_gateway(scenario, at, gateway::Happened::Tick);
            }
            Act::ComesLate(of, at) => self.disks[of].come(at),
            Act::BackendDies(at, through, next) => {
                self.left.backend_deaths -= 1;
                self.left.late -= u8::from(next == Next::Late);
                self.disks[at].crash(through, next == Next::Late);
                let (name, gone, state) = (BACKENDS[at], usize::from(self.has_gone), self.disks[at].state());
                self.coordinator.forget(name);
                self.known.insert(name, self.coordinator.now());
                let shares = self.coordinator.shares();
                let backend = &mut self.backends[at];
                backend.life += 1;
                let core = scenario.backend(name, backend.life, backend.ticks, state, gone, shares);
                backend.core = Arc::new(core);
                self.on_backend(scenario, at, backend::Happened::Tick);
            }
            Act::CacheDies => {
                self.left.cache_deaths -= 1;
                let cache = &mut self.caches[0];
                cache.life += 1;
                let Shares { map, .. } = self.coordinator.shares();
                cache.core = Arc::new(scenario.cache(CACHES[0], cache.life, cache.ticks, map));
                self.known.insert(CACHES[0], self.coordinator.now());
                self.on_cache(scenario, 0, Happened::Tick);
            }
            Act::CacheGoes => {
                self.left.departures -= 1;
                self.has_gone = true;
                self.all_backends_hear(scenario);
            }
            Act::CacheComesBack => {
                self.has_gone = false;
                self.all_backends_hear(scenario);
            }
            Act::IsToMove => {
                self.moves_left -= 1;
                self.coordinator.turn();
            }
            Act::Hears(name) => self.hear_of_the_map(scenario, name),
            Act::Commits(at) => self.commit(scenario, at, false),
            Act::IsRefused(at) => {
                self.left.refusals -= 1;
                self.commit(scenario, at, true);
            }
            Act::IsAnswered(at) => {
                let (to, committed) = self.coordinator.answer(at);
                if let Member::Backend(at) = Member::of(to) {
                    self.on_backend(scenario, at, backend::Happened::Committed(committed));
                }
            }
        }
    }

    fn ask(&mut self, scenario: &Scenario, gateway: usize, number: Number, key: KeyNumber, wish: Wish) {
        self.orders[key.0].begin(number, wish);
        let id = AskId(u64::from(number.0) * KEYS.len() as u64 + key.0 as u64);
        let name = Key::new(&KEYS[key.0]).expect("a short name");
        let asked = match wish.operation() {
            Some(operation) => gateway::Happened::Ask(id, name, operation),
            None => gateway::Happened::Flush(id, self.want_flush(number, key, wish)),
        };
        self.on_gateway(scenario, gateway, asked);
    }

    fn on_backend(&mut self, scenario: &Scenario, at: usize, happened: backend::Happened<'_>) {
        let mut out = Outbox::default();
        let backend = &mut self.backends[at];
        let now = backend.now();
        Arc::make_mut(&mut backend.core).step(now, happened, &mut out);
        backend.changed();
        self.disks[at].take(out.store.drain(..));
        if let Some(commit) = &out.commit {
            self.coordinator.take(BACKENDS[at], backend.life, commit);
        }
        self.send(scenario, BACKENDS[at], &out);
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
            self.see_answer(number, seen);
            for (at, client) in self.clients.iter_mut().enumerate() {
                if client.asked == Some(number) {
                    client.asked = None;
                    client.read = Read::of(&reply).filter(|_| scenario.swaps(at)).or(client.read);
                    self.told.push((at, seen));
                }
            }
        }
    }

    fn send(&mut self, scenario: &Scenario, from: NodeId, out: &Outbox) {
        let age = self.age(scenario);
        let is_gateway = |NodeId(name)| name >= FIRST_GATEWAY;
        for (to, bytes) in out.sends().filter(|(to, _)| *to != CONTROLLER) {
            let comes_at_once = (scenario.gateways_are_near && (is_gateway(from) || is_gateway(to)))
                || (scenario.backends_are_near && [from, to].iter().all(|name| BACKENDS.contains(name)));
            if comes_at_once {
                self.at_once.push_back((from, to, bytes.into()));
                continue;
            }
            if let Ok(Message::Open { opening, .. }) = Message::decode(bytes)
                && let (Member::Cache(cache), Member::Backend(backend)) = (Member::of(from), Member::of(to))
                && let last = &mut self.openings[cache][backend]
                && opening > *last
            {
                (*last, self.sessions) = (opening, self.sessions + 1);
            }
            self.network.send((from, to), bytes, scenario.room, age);
        }
        // Wherever one of these is looked at first, the others may come never.
        for (backend, _, bytes) in out.gets() {
            for to in CACHES[..scenario.caches].iter().copied().chain([backend]) {
                self.network.send((from, to), bytes, scenario.room, age);
            }
        }
    }

    fn age(&self, scenario: &Scenario) -> Age {
        let (backends, caches) = (moment(self.backend_ticks()), moment(self.cache_ticks()));
        Age { caches, backends, max: scenario.lease_ticks - 1 }
    }

    /// The clock of the backends.
    fn backend_ticks(&self) -> u64 {
        self.backends[0].ticks
    }

    /// The clock of the cache nodes; without any it goes with the backends'.
    fn cache_ticks(&self) -> u64 {
        self.caches.first().map_or(self.backend_ticks(), |cache| cache.ticks)
    }

    /// Finds its number.
    fn see(&mut self, scenario: &Scenario) {
        let Faults {
            losses,
            doublings,
            backend_deaths,
            cache_deaths,
            departures,
            resends,
            disk_failures,
            late,
            refusals,
        } = self.left;
        let now = moment(self.cache_ticks());
        let print = Print {
            backends: &self.backends,
            disks: &self.disks,
            coordinator: &self.coordinator,
            known: &self.known,
            caches: &self.caches,
            skew: self.backend_ticks() as i64 - self.cache_ticks() as i64,
            ticks: scenario.ticks_max.map(|_| self.cache_ticks() - self.first_tick),
            gateways: &self.gateways,
            network: self.network.print(now),
            clients: &self.clients,
            orders: &self.orders,
            to_come: &self.to_come,
            has_gone: self.has_gone,
            left: [
                losses,
                doublings,
                resends,
                Some(backend_deaths),
                Some(cache_deaths),
                Some(departures),
                Some(disk_failures),
                Some(late),
                Some(refusals),
            ],
            moves_left: self.moves_left,
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

    /// Reads that gateways have hedged.
    pub(crate) fn hedged(&self) -> u64 {
        self.gateways.iter().map(|gateway| gateway.core.counts().hedged).sum()
    }

    /// The state's number.
    pub(crate) fn print(&self) -> u64 {
        self.print
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
