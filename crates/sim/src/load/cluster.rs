//! The cluster in virtual time: cores, their queues, the network between them, and clients.
//!
//! ```text
//! asks ----> Gateway ==hop==> Station of a node --done--> its core ==hop==> Gateway --> answers
//!                    ==hop==> core, for all that is no request
//! ```
//! Always true: what happens at one moment happens in one order, whatever the machine; the network is in order by itself, as
//! it has one delay, so that only nodes that serve and nodes that wake have to be searched for the next.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use guira_chain::Reply;
use guira_item::{
    Answer, Expiry, Get, Key, Moment, Operation, Span, Store, StoreMode,
    store::{Generation, Record, Written},
};
use guira_loadgen::{changing::ChangingKeys, latency::Latencies};
use guira_routing::{Load, NodeId, PartitionMap};
use guira_switched::{
    AskId, Body, CacheMode, Happened, Message, Outbox, Scanned, StoreCall,
    backend::{self, Backend},
    cache_node::CacheNode,
    controller::Controller,
    gateway::{self, Gateway},
};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::{
    Asked, LoadScenario, Offer, RuleOrder,
    key_name::{KEY_LEN, KeyName, name_of},
    members::{BEGINS, Core, GATEWAY, Members, SEGMENT},
    pace::{ADJUSTED_EVERY, Pace},
    station::Station,
};
use crate::{
    members::{CONTROLLER, FIRST_BACKEND, FIRST_CACHE, hash_of, of_kind},
    switch::{Switch, SwitchBounds},
};

/// A value is its key so many times: 128 bytes, as the paper's.
const KEYS_IN_VALUE: usize = 8;

/// How often a gateway looks for what was lost, and how often any other node is woken at most.
const GATEWAY_TICK: Span = Span::from_ms(1);
const WAKE_GAP_MIN: Span = Span::from_us(50);

/// Later than anything.
pub(super) const FAR: Moment = Moment::from_ns(u64::MAX);

/// The value of a key: nobody has to keep it.
fn value_of(key: &[u8]) -> Arc<[u8]> {
    let mut value = [0; KEY_LEN * KEYS_IN_VALUE];
    value.chunks_exact_mut(KEY_LEN).for_each(|part| part.copy_from_slice(key));
    Arc::from(&value[..])
}

/// What goes over the network.
#[derive(Debug)]
pub(super) struct Datagram {
    from: NodeId,
    to: NodeId,
    /// Takes its receiver's time.
    is_request: bool,
    bytes: Vec<u8>,
}

/// A request of a client's.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// `None`: it was answered.
    asked_at: Option<Moment>,
    key: KeyName,
}

/// Requests of clients, by the places of which their names are made.
#[derive(Debug, Default)]
struct Requests {
    all: Vec<Request>,
    free: Vec<usize>,
}

/// What was counted, from the beginning of the run on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) asked: u64,
    pub(super) answered: u64,
    pub(super) failed: u64,
    pub(super) wrong: u64,
    /// At the nodes' queues, before anybody is told.
    pub(super) dropped: u64,
    pub(super) hits: u64,
    pub(super) admitted: u64,
    pub(super) passed_on: u64,
    pub(super) rule_updates: u64,
}

/// What comes next.
#[derive(Clone, Copy)]
enum Next {
    Arrival,
    Done(NodeId),
    Wake(NodeId),
    Ask,
    Adjust,
}

/// Everything.
pub(super) struct Cluster {
    pub(super) scenario: LoadScenario,
    pub(super) popularity: ChangingKeys,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) now: Moment,
    partitions: Arc<PartitionMap>,
    gateway: Gateway<Switch>,
    backends: Vec<Backend>,
    pub(super) caches: Vec<CacheNode>,
    controller: Controller,
    /// Cache nodes' first, then backends'.
    pub(super) stations: Vec<Station<Datagram>>,
    serving: BinaryHeap<Reverse<(Moment, NodeId)>>,
    wakes: BinaryHeap<Reverse<(Moment, NodeId)>>,
    /// When each node wakes, as they are named by [`Cluster::place`].
    wakes_at: Vec<Moment>,
    /// In order of arrival.
    on_the_way: VecDeque<(Moment, Datagram)>,
    spare: Vec<Vec<u8>>,
    out: Outbox,
    requests: Requests,
    pace: Pace,
    /// Nanoseconds; `None`: nothing is asked.
    ask_at_ns: Option<f64>,
    adjust_at: Moment,
    adjusted: Tally,
    pub(super) tally: Tally,
    pub(super) latencies: Latencies,
    pub(super) steps: u64,
}

impl Cluster {
    /// A cluster at rest.
    pub(super) fn new(mut scenario: LoadScenario) -> Self {
        if scenario.cache_mode == CacheMode::None {
            scenario.caches = 0;
        }
        let Members { gateway, controller, caches, backends, partitions } = Members::new(&scenario);
        let backend_per_s = scenario.backend_per_s / scenario.scale;
        let cache_per_s = scenario.cache_per_s / f64::from(scenario.cache_threads.get()) / scenario.scale;
        let cache_stations = caches.iter().map(|_| Station::new(cache_per_s, scenario.cache_queue_len_max));
        let backend_stations = backends.iter().map(|_| Station::new(backend_per_s, scenario.backend_queue_len_max));
        Self {
            popularity: ChangingKeys::new(scenario.keys, scenario.exponent, scenario.seed),
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
            now: BEGINS,
            gateway,
            controller,
            stations: cache_stations.chain(backend_stations).collect(),
            serving: BinaryHeap::new(),
            wakes: BinaryHeap::new(),
            wakes_at: vec![FAR; 2 + caches.len() + backends.len()],
            on_the_way: VecDeque::new(),
            spare: Vec::new(),
            out: Outbox::default(),
            requests: Requests::default(),
            pace: Pace::fixed(0.0),
            ask_at_ns: None,
            adjust_at: FAR,
            adjusted: Tally::default(),
            tally: Tally::default(),
            latencies: Latencies::default(),
            steps: 0,
            partitions,
            backends,
            caches,
            scenario,
        }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        let caches = self.scenario.cache_nodes().parts().collect::<Vec<_>>();
        [CONTROLLER, GATEWAY].into_iter().chain(caches).chain(of_kind(FIRST_BACKEND, self.scenario.backends))
    }

    /// Among all nodes: controller, gateway, cache nodes, backends.
    fn place(&self, node: NodeId) -> usize {
        match Core::of(node) {
            Core::Controller => 0,
            Core::Gateway => 1,
            Core::Cache(at) => 2 + at,
            Core::Backend(at) => 2 + self.caches.len() + at,
        }
    }

    fn station(&mut self, node: NodeId) -> &mut Station<Datagram> {
        let place = self.place(node) - 2;
        &mut self.stations[place]
    }

    /// Everybody begins, and opens the sessions there are to be.
    pub(super) fn begin(&mut self) {
        for node in self.nodes() {
            self.tick(node);
        }
        self.idle(Span::from_ms(300));
        // One to each backend: so that there is a session with it when it counts.
        for backend in 0..self.backends.len() {
            let key = loop {
                let key = name_of(self.popularity.any_key(&mut self.rng));
                if self.backend_of(&key) == backend {
                    break key;
                }
            };
            self.read(key);
        }
        self.idle(Span::from_ms(300));
    }

    /// The backend that has a key.
    pub(super) fn backend_of(&self, key: &KeyName) -> usize {
        usize::from(self.partitions.owner_of(hash_of(key)).0 - FIRST_BACKEND)
    }

    /// What is cached.
    pub(super) fn cached_keys(&self) -> BTreeSet<Box<[u8]>> {
        self.caches.iter().flat_map(|cache| cache.hottest(usize::MAX)).map(|(key, _)| key).collect()
    }

    /// Items that are cached.
    pub(super) fn cached(&self) -> usize {
        self.caches.iter().map(CacheNode::items).sum()
    }

    /// From now on the switch makes no more rules than the scenario says.
    pub(super) fn slow_switch_down(&mut self) {
        let updates_per_s = self.scenario.switch_per_s;
        self.gateway.rules_mut().set_bounds(SwitchBounds { updates_per_s, ..SwitchBounds::NONE });
    }

    /// Rules that the gateway has.
    pub(super) fn rules(&self) -> usize {
        self.gateway.routes()
    }

    /// How many of the hottest keys the gateway routes to a cache node.
    pub(super) fn routed_of_hottest(&self, len: usize) -> usize {
        let is_routed = |rank: &u64| self.gateway.route_of(hash_of(&name_of(self.popularity.key(*rank)))).is_some();
        (0..len as u64).filter(is_routed).count()
    }

    /// A client reads a key.
    pub(super) fn read(&mut self, key: KeyName) {
        self.ask(key, &Operation::Get(Get::PLAIN));
    }

    fn write(&mut self, key: KeyName) {
        let value = value_of(&key);
        let store =
            Store { mode: StoreMode::Set, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value: &value };
        self.ask(key, &Operation::Store(store));
    }

    fn ask(&mut self, name: KeyName, operation: &Operation<'_>) {
        let request = Request { asked_at: Some(self.now), key: name };
        let place = match self.requests.free.pop() {
            Some(place) => {
                self.requests.all[place] = request;
                place
            }
            None => {
                self.requests.all.push(request);
                self.requests.all.len() - 1
            }
        };
        self.tally.asked += 1;
        self.steps += 1;
        let key = Key::new(&name).expect("16 letters and digits");
        let mut out = std::mem::take(&mut self.out);
        self.gateway.step(self.now, gateway::Happened::Ask(AskId(place as u64), key, *operation), &mut out);
        self.carry_out(GATEWAY, out);
    }

    fn answer(&mut self, id: AskId, reply: &Reply) {
        let Some(request) = self.requests.all.get_mut(id.0 as usize) else {
            self.tally.wrong += 1;
            return;
        };
        let Some(asked_at) = request.asked_at.take() else {
            self.tally.wrong += 1;
            return;
        };
        self.requests.free.push(id.0 as usize);
        let is_right = match reply {
            Reply::Answer(Answer::Failed(_), _) => {
                self.tally.failed += 1;
                return;
            }
            Reply::Hit(_, Some(value)) => value.starts_with(&request.key),
            Reply::Hit(_, None) => false,
            Reply::Answer(answer, _) => matches!(answer, Answer::Stored { .. }),
        };
        self.tally.answered += 1;
        self.tally.wrong += u64::from(!is_right);
        self.latencies.record_ns(self.now.since(asked_at).ns());
    }

    /// Does what a step of `from` wants done.
    fn carry_out(&mut self, from: NodeId, mut out: Outbox) {
        let mut tells = false;
        loop {
            for (to, bytes) in out.sends() {
                let is_request = to.0 >= FIRST_CACHE
                    && matches!(
                        Message::decode(bytes),
                        Ok(Message::Request(_) | Message::Probe(_) | Message::Flush { .. })
                    );
                tells |= !is_request && to != GATEWAY;
                self.send(Datagram { from, to, is_request, bytes: Vec::new() }, bytes);
            }
            for (id, reply) in std::mem::take(&mut out.answers) {
                self.answer(id, &reply);
            }
            let calls = std::mem::take(&mut out.store);
            out.clear();
            if calls.is_empty() {
                break;
            }
            let Core::Backend(at) = Core::of(from) else { break };
            for call in calls {
                self.steps += 1;
                self.backends[at].step(self.now, completed(call), &mut out);
            }
        }
        self.out = out;
        if tells {
            self.set_wake(from);
        }
    }

    /// Puts something on the network.
    fn send(&mut self, mut datagram: Datagram, bytes: &[u8]) {
        datagram.bytes = self.spare.pop().unwrap_or_default();
        datagram.bytes.clear();
        datagram.bytes.extend_from_slice(bytes);
        self.on_the_way.push_back((self.now + self.scenario.hop, datagram));
    }

    /// Something has come to where it was sent.
    fn arrive(&mut self, datagram: Datagram) {
        if !datagram.is_request {
            self.hear(datagram);
            return;
        }
        let (now, to) = (self.now, datagram.to);
        let station = self.station(to);
        match station.offer(now, datagram) {
            Ok(true) => {
                let done_at = station.done_at().expect("there is one");
                self.serving.push(Reverse((done_at, to)));
            }
            Ok(false) => {}
            Err(lost) => {
                self.tally.dropped += 1;
                self.spare.push(lost.bytes);
            }
        }
    }

    /// A node has done a request.
    fn done(&mut self, node: NodeId) {
        let station = self.station(node);
        let (request, next) = (station.finish(), station.done_at());
        if let Some(at) = next {
            self.serving.push(Reverse((at, node)));
        }
        if let Some(request) = request {
            self.hear(request);
        }
    }

    /// A node heeds a message.
    fn hear(&mut self, datagram: Datagram) {
        let Datagram { from, to, is_request, bytes } = datagram;
        let message = Message::decode(&bytes).expect("what a core has sent can be read");
        let mut out = std::mem::take(&mut self.out);
        let now = self.now;
        self.steps += 1;
        match Core::of(to) {
            Core::Controller => {
                let message = in_order(self.scenario.rule_order, message);
                self.controller.step(now, Happened::Message(from, message), &mut out);
            }
            Core::Gateway => self.gateway.step(now, gateway::Happened::Message(from, message), &mut out),
            Core::Cache(at) => self.caches[at].step(now, Happened::Message(from, message), &mut out),
            Core::Backend(at) => self.backends[at].step(now, backend::Happened::Message(from, message), &mut out),
        }
        self.carry_out(to, out);
        self.spare.push(bytes);
        if !is_request && to != GATEWAY {
            self.set_wake(to);
        }
    }

    /// A node is told that time has passed.
    fn tick(&mut self, node: NodeId) {
        let mut out = std::mem::take(&mut self.out);
        let now = self.now;
        self.steps += 1;
        match Core::of(node) {
            Core::Controller => self.controller.step(now, Happened::Tick, &mut out),
            Core::Gateway => self.gateway.step(now, gateway::Happened::Tick, &mut out),
            Core::Cache(at) => self.caches[at].step(now, Happened::Tick, &mut out),
            Core::Backend(at) => self.backends[at].step(now, backend::Happened::Tick, &mut out),
        }
        self.carry_out(node, out);
        self.set_wake(node);
    }

    /// Has a node wake up when it wants to.
    fn set_wake(&mut self, node: NodeId) {
        let wake_at = match Core::of(node) {
            Core::Controller => self.controller.wake_at(self.now),
            Core::Gateway => Some(self.now + GATEWAY_TICK),
            Core::Cache(at) => self.caches[at].wake_at(),
            Core::Backend(at) => self.backends[at].wake_at(),
        };
        let Some(wake_at) = wake_at else { return };
        let at = wake_at.max(self.now + WAKE_GAP_MIN);
        let place = self.place(node);
        if at < self.wakes_at[place] {
            self.wakes_at[place] = at;
            self.wakes.push(Reverse((at, node)));
        }
    }

    fn wake(&mut self, node: NodeId) {
        let place = self.place(node);
        // Unless it was to wake earlier, and has.
        if self.wakes_at[place] == self.now {
            self.wakes_at[place] = FAR;
            self.tick(node);
        }
    }

    /// A client asks for what is popular.
    fn ask_next(&mut self) {
        let is_write = self.scenario.writes.filter(|writes| self.rng.random_bool(writes.share));
        match is_write {
            Some(writes) => {
                let any = |cluster: &mut Self| name_of(cluster.popularity.any_key(&mut cluster.rng));
                let key = if writes.by_popularity { self.draw() } else { any(self) };
                self.write(key);
            }
            None => {
                let key = self.draw();
                self.read(key);
            }
        }
    }

    fn draw(&mut self) -> KeyName {
        loop {
            let rank = self.popularity.draw(&mut self.rng);
            match self.scenario.asked {
                Asked::Hottest(len) if rank >= len => {}
                _ => return name_of(self.popularity.key(rank)),
            }
        }
    }

    fn adjust(&mut self) {
        let (asked, lost) = (self.tally.asked - self.adjusted.asked, self.tally.dropped - self.adjusted.dropped);
        self.pace.adjust(asked, lost);
        self.adjusted = self.tally;
        self.adjust_at = self.now + ADJUSTED_EVERY;
    }

    /// What comes next, and when: of what comes at the same time, what is named first here.
    fn next(&self) -> Option<(Moment, Next)> {
        let arrival = self.on_the_way.front().map(|(at, _)| (*at, Next::Arrival));
        let done = self.serving.peek().map(|Reverse((at, node))| (*at, Next::Done(*node)));
        let wake = self.wakes.peek().map(|Reverse((at, node))| (*at, Next::Wake(*node)));
        let ask = self.ask_at_ns.map(|at| (Moment::from_ns(at as u64), Next::Ask));
        let adjust = ask.map(|_| (self.adjust_at, Next::Adjust));
        arrival.into_iter().chain(done).chain(wake).chain(ask).chain(adjust).min_by_key(|(at, _)| *at)
    }

    /// Time passes; clients ask if they do.
    fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some((at, next)) = self.next().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            match next {
                Next::Arrival => {
                    if let Some((_, datagram)) = self.on_the_way.pop_front() {
                        self.arrive(datagram);
                    }
                }
                Next::Done(node) => {
                    self.serving.pop();
                    self.done(node);
                }
                Next::Wake(node) => {
                    self.wakes.pop();
                    self.wake(node);
                }
                Next::Ask => {
                    self.ask_next();
                    let gap = 1e9 / self.pace.per_s();
                    self.ask_at_ns = self.ask_at_ns.map(|at| at + gap);
                }
                Next::Adjust => self.adjust(),
            }
        }
        self.now = until;
    }

    /// Time passes, and clients do not ask by themselves.
    pub(super) fn idle(&mut self, span: Span) {
        self.ask_at_ns = None;
        self.pass(span);
    }

    /// Time passes until all trackers have ended a segment.
    pub(super) fn idle_to_next_segment(&mut self) {
        self.idle(SEGMENT + Span::from_ms(20));
    }

    /// Time passes under load.
    pub(super) fn run(&mut self, span: Span) {
        if self.ask_at_ns.is_none() {
            let scale = self.scenario.scale;
            let all = f64::from(self.scenario.backends) * self.scenario.backend_per_s / scale;
            self.pace = match self.scenario.offer {
                Offer::Most => Pace::adjusted_from(all / 8.0),
                Offer::PerSecond(per_s) => Pace::fixed(per_s / scale),
            };
            self.ask_at_ns = Some(self.now.ns() as f64);
            self.adjust_at = self.now + ADJUSTED_EVERY;
            self.adjusted = self.tally_now();
        }
        self.pass(span);
    }

    /// With what the cores have counted.
    pub(super) fn tally_now(&self) -> Tally {
        let counts = || self.caches.iter().map(CacheNode::counts);
        let rules = self.controller.counts();
        Tally {
            hits: counts().map(|counts| counts.hits).sum(),
            admitted: counts().map(|counts| counts.admitted).sum(),
            passed_on: counts().map(|counts| counts.misses).sum(),
            rule_updates: rules.installs + rules.deletions,
            ..self.tally
        }
    }
}

/// What a controller is told, for it to make rules in that order: those of keys without a load are made as they came.
fn in_order(order: RuleOrder, mut message: Message<'_>) -> Message<'_> {
    if let (RuleOrder::AsTheyCome, Message::Told { body: Some(Body::Rules(rules)), .. }) = (order, &mut message) {
        rules.iter_mut().filter_map(|(_, load)| load.as_mut()).for_each(|load| *load = Load::default());
    }
    message
}

/// What a store says that has every key, and keeps nothing.
fn completed(call: StoreCall) -> backend::Happened<'static> {
    match call {
        StoreCall::Read(key) => {
            let record = Record {
                flags: 0,
                expires_unix_s: 0,
                version: 1,
                generation: Generation::default(),
                stale: false,
                win_sent: false,
                value: value_of(&key),
            };
            backend::Happened::Read(key, Ok(Some(record).into()))
        }
        StoreCall::Write(key, _) => backend::Happened::Written(key, Ok(Written::All)),
        // Nothing is given away.
        StoreCall::Scan(scan) => backend::Happened::Scanned(scan.number, Ok(Scanned::default())),
        StoreCall::Fence(_) => backend::Happened::Fenced(Ok(())),
        StoreCall::Flush => backend::Happened::Flushed(Ok(())),
        StoreCall::State(_) => backend::Happened::StateWritten(Ok(Written::All)),
    }
}
