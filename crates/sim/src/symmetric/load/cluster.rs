//! The cluster in virtual time: cores, the network between them, and clients.
//!
//! Always true: what happens at one moment happens in one order, whatever the machine; a member has one wake to come at a time.

use std::{collections::BTreeMap, time::Duration};

use guira_chain::{Owned, Reply};
use guira_cluster::{Drift, Incarnation, Life, NodeClock};
use guira_consistency::{Consistency, Epoch, Key};
use guira_item::{Answer, Expiry, Get, Moment, Operation, Span, Store, StoreMode};
use guira_loadgen::{latency::Latencies, payload::push_key, zipf::Zipf};
use guira_routing::NodeId;
use guira_symmetric::{
    AskId, Coordinator, CoordinatorConfig, CoordinatorHappened, CoordinatorOutbox, FlowConfig, HomecomingConfig,
    HotSet, HotSetConfig, Message, Node, NodeConfig, NodeHappened, NodeOutbox, ShardAccess, ViewsConfig,
};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::{
    LoadReport, LoadScenario, Offer, Variant,
    every_key::EveryKey,
    network::{Link, Packet, Place, Rate, Waiting, framed_len},
    traffic::{Kind, Traffic},
};
use crate::agenda::Agenda;

const COORDINATOR: NodeId = NodeId(1);
const FIRST_NODE: u16 = 100;

/// When a run begins, by every clock, and in Unix time.
const BEGINS: Moment = Moment::from_ns(1_000_000_000);
const BEGINS_UNIX: Duration = Duration::from_secs(1_800_000_000);

/// Longer than a run is looked at for leases or hot sets to change.
const LEASE: Span = Span::from_s(10);
const HOT_EPOCH: Span = Span::from_s(100_000);

/// Bytes of a key, as the paper's.
const KEY_LEN: usize = 8;

/// Room for hot keys and their values, and more.
const ITEM_LEN_MAX: usize = 8 << 10;
const ITEMS_LEN_MAX: usize = 1 << 30;

/// Uniform keys are as zipf has it with this exponent.
const UNIFORM: f64 = 0.0;

/// While the hot set is promoted.
const WARMS_BY: Span = Span::from_ms(20);
const WARMS_TIMES_MAX: usize = 1_000;

/// What is going to happen.
enum Coming {
    /// The link out of a member is free.
    LinkFree(Place),
    /// A packet has come to its member's link in, of so many bytes.
    Arrives(Packet, usize),
    /// And through it.
    Delivered(Packet),
    Wake(Place),
    Kept(Epoch),
    /// A client asks, at a node.
    Asks(usize),
}

/// A member's network.
struct Port {
    out: Link,
    into: Link,
    waiting: Waiting,
    is_sending: bool,
    wakes_at: Option<Moment>,
}

/// A request under way.
struct Open {
    node: usize,
    asked_at: Moment,
    is_read: bool,
}

/// Everything.
pub(super) struct Cluster {
    scenario: LoadScenario,
    /// Keys, and how many are hot.
    keys: u64,
    hot: u64,
    zipf: Zipf,
    rng: Xoshiro256PlusPlus,
    now: Moment,
    coming: Agenda<Coming>,
    nodes: Vec<Node<EveryKey>>,
    coordinator: Coordinator,
    /// Of the nodes, and of the coordinator.
    ports: Vec<Port>,
    open: BTreeMap<AskId, Open>,
    last: AskId,
    hop: Span,
    is_on: bool,
    write: Owned,
    traffic: Traffic,
    latencies: Latencies,
    asked: u64,
    answered: u64,
    wrong: u64,
}

fn name_of(place: usize) -> NodeId {
    NodeId(FIRST_NODE + place as u16)
}

fn key_of(rank: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_LEN);
    push_key(&mut key, rank, KEY_LEN);
    key
}

impl Cluster {
    /// A cluster at rest, whose hot keys are hot, in a network with its limits.
    pub(super) fn new(scenario: LoadScenario) -> Self {
        let (keys, hot) = scenario.simulated_keys();
        let exponent = if scenario.variant == Variant::Uniform { UNIFORM } else { scenario.exponent };
        let names: Vec<NodeId> = (0..usize::from(scenario.nodes)).map(name_of).collect();
        let life = |place: usize| Life {
            incarnation: Incarnation(BEGINS_UNIX.as_nanos() as u64 + place as u64),
            clock: NodeClock::set(BEGINS, BEGINS_UNIX),
            seed: scenario.seed.wrapping_add(place as u64),
        };
        let node = |(place, me): (usize, &NodeId)| {
            Node::new(BEGINS, node_config(&scenario, *me, life(place), hot as usize), EveryKey::new(scenario.value_len))
        };
        let unlimited = Rate::new(f64::INFINITY, f64::INFINITY);
        let port = |_| Port {
            out: Link::new(unlimited),
            into: Link::new(unlimited),
            waiting: Waiting::default(),
            is_sending: false,
            wakes_at: None,
        };
        let value = vec![0; scenario.value_len];
        let store =
            Store { mode: StoreMode::Set, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value: &value };
        let mut cluster = Self {
            keys,
            hot,
            zipf: Zipf::new(keys, exponent),
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
            now: BEGINS,
            coming: Agenda::default(),
            nodes: names.iter().enumerate().map(node).collect(),
            coordinator: Coordinator::new(BEGINS, coordinator_config(&scenario, names.clone()), None)
                .expect("two nodes at least"),
            ports: (0..=names.len()).map(port).collect(),
            open: BTreeMap::new(),
            last: AskId(0),
            hop: Span::from_us(1),
            is_on: false,
            write: Owned::of(&Operation::Store(store)),
            traffic: Traffic::default(),
            latencies: Latencies::default(),
            asked: 0,
            answered: 0,
            wrong: 0,
            scenario,
        };
        (0..cluster.ports.len()).for_each(|place| cluster.tick(place));
        cluster.warm();
        cluster
    }

    /// Who is no node.
    fn coordinator_place(&self) -> Place {
        self.nodes.len()
    }

    fn place_of(&self, name: NodeId) -> Place {
        if name == COORDINATOR { self.coordinator_place() } else { usize::from(name.0 - FIRST_NODE) }
    }

    /// Until all serve and have the hot keys; then the network has its limits.
    fn warm(&mut self) {
        let all = self.nodes.len();
        let serves = |cluster: &Self| {
            let status = |node: &Node<EveryKey>| node.status(cluster.now);
            cluster.nodes.iter().map(status).all(|status| status.has_lease && status.is_whole && status.members == all)
        };
        self.pass_until(serves);
        let keys = (0..self.hot).map(|rank| Key::from(key_of(rank))).collect();
        let set = HotSet { number: 1, keys };
        for place in 0..all {
            self.step(place, NodeHappened::Message(COORDINATOR, Message::HotSet(set.clone())));
        }
        let hot = self.hot as usize;
        self.pass_until(|cluster| {
            let has_all = |node: &Node<EveryKey>| {
                let status = node.status(cluster.now);
                status.hot_keys == hot && status.pending == 0
            };
            cluster.nodes.iter().all(has_all) && (0..cluster.hot).all(|rank| cluster.nodes[0].is_hot(&key_of(rank)))
        });
        let LoadScenario { bytes_per_s, packets_per_s, scale, hop, .. } = self.scenario;
        let rate = Rate::new(bytes_per_s / scale as f64, packets_per_s / scale as f64);
        for port in &mut self.ports {
            port.out.set_rate(rate);
            port.into.set_rate(rate);
        }
        self.hop = hop.times(scale);
    }

    /// Time passes until something is so.
    fn pass_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let mut times = 0;
        while !is_so(self) {
            assert!(times < WARMS_TIMES_MAX, "it does not come to be so: {:?}", self.nodes[0].status(self.now));
            times += 1;
            self.pass(WARMS_BY);
        }
    }

    /// Runs under load, measures, and waits for what is under way.
    pub(super) fn measure(mut self) -> LoadReport {
        self.is_on = true;
        match self.scenario.offer {
            Offer::Outstanding(len) => {
                for node in 0..self.nodes.len() {
                    (0..len).for_each(|_| self.ask(node));
                }
            }
            Offer::PerSecond(_) => self.asks_later(),
        }
        self.pass(self.scenario.settle);
        let busy = |cluster: &Self| cluster.ports.iter().map(|port| port.out.busy_ns()).collect::<Vec<_>>();
        let (busy_before, hits_before, resent) = (busy(&self), self.hits(), self.resent());
        let (asked, answered) = (self.asked, self.answered);
        self.traffic = Traffic::default();
        self.latencies = Latencies::default();
        self.pass(self.scenario.measure);
        let scale = self.scenario.scale as f64;
        let per_s = scale / self.scenario.measure.as_s();
        let (asked, answered) = (self.asked - asked, self.answered - answered);
        let hits = (self.hits() - hits_before) as f64;
        let busiest = busy(&self).iter().zip(&busy_before).map(|(now, before)| now - before).max().unwrap_or(0);
        let (traffic, resent) = (self.traffic.clone(), self.resent() - resent);
        let (mean_us, p95_us) = (self.latencies.summary().mean_us / scale, self.latencies.quantile_us(0.95) / scale);
        let hot_keys = self.nodes[0].status(self.now).hot_keys;
        self.is_on = false;
        self.pass(Span::from_s(2));
        LoadReport {
            asked_per_s: asked as f64 * per_s,
            answered_per_s: answered as f64 * per_s,
            hit_share: hits / answered.max(1) as f64,
            hot_keys,
            mean_us,
            p95_us,
            busiest_link: busiest as f64 / self.scenario.measure.ns() as f64,
            traffic,
            resent,
            answered,
            wrong_answers: self.wrong,
            requests: self.asked,
            requests_answered: self.answered,
        }
    }

    fn hits(&self) -> u64 {
        let hits = |node: &Node<EveryKey>| {
            let counts = node.status(self.now).counts;
            counts.hot_reads + counts.hot_writes
        };
        self.nodes.iter().map(hits).sum()
    }

    fn resent(&self) -> u64 {
        self.nodes.iter().map(|node| node.status(self.now).counts.resent).sum()
    }

    /// A client asks at some node after a while, by chance.
    fn asks_later(&mut self) {
        if let Offer::PerSecond(per_s) = self.scenario.offer {
            let mean_ns = 1e9 * self.scenario.scale as f64 / per_s;
            let gap_ns = -mean_ns * (1.0 - self.rng.random::<f64>()).ln();
            let node = self.rng.random_range(0..self.nodes.len());
            self.come(Span::from_ns(gap_ns as u64), Coming::Asks(node));
        }
    }

    /// A client asks for a key by its popularity.
    fn ask(&mut self, node: usize) {
        let rank = self.zipf.sample(&mut self.rng).min(self.keys - 1);
        let name = key_of(rank);
        let is_read = !self.rng.random_bool(self.scenario.write_share);
        self.last = AskId(self.last.0 + 1);
        self.asked += 1;
        let id = self.last;
        self.open.insert(id, Open { node, asked_at: self.now, is_read });
        let read = Operation::Get(Get::PLAIN);
        // As a thread of the node would: who can answer by himself does.
        if is_read && let Some(reply) = self.nodes[node].read_directly(self.now, &name, &read) {
            self.answer(id, &reply);
            return;
        }
        let operation = if is_read { Owned::of(&read) } else { self.write.clone() };
        let key = guira_item::Key::new(&name).expect("a short name");
        self.step(node, NodeHappened::Ask(id, key, &operation));
    }

    fn answer(&mut self, id: AskId, reply: &Reply) {
        let Some(Open { node, asked_at, is_read }) = self.open.remove(&id) else {
            self.wrong += 1;
            return;
        };
        let is_right = match reply {
            Reply::Hit(_, Some(value)) => is_read && value.len() == self.scenario.value_len,
            Reply::Answer(Answer::Stored { .. }, _) => !is_read,
            _ => false,
        };
        self.answered += 1;
        self.wrong += u64::from(!is_right);
        self.latencies.record_ns(self.now.since(asked_at).ns());
        if self.is_on && matches!(self.scenario.offer, Offer::Outstanding(_)) {
            // Not at once: what is answered without a message would go on for ever at one moment.
            self.come(self.hop, Coming::Asks(node));
        }
    }

    fn come(&mut self, after: Span, coming: Coming) {
        self.coming.put(self.now + after, coming);
    }

    /// Something happens to a node.
    fn step(&mut self, place: usize, happened: NodeHappened<'_>) {
        let mut out = NodeOutbox::default();
        self.nodes[place].step(self.now, happened, &mut out);
        out.sends.drain(..).for_each(|(to, message)| self.send(place, to, &message));
        out.answers.drain(..).for_each(|(id, reply)| self.answer(id, &reply));
        self.set_wake(place);
    }

    fn step_coordinator(&mut self, happened: CoordinatorHappened) {
        let (mut out, place) = (CoordinatorOutbox::default(), self.coordinator_place());
        self.coordinator.step(self.now, happened, &mut out);
        if let Some(given) = out.keep.take() {
            self.come(Span::from_us(100), Coming::Kept(given.view.epoch));
        }
        out.sends.drain(..).for_each(|(to, message)| self.send(place, to, &message));
        self.set_wake(place);
    }

    fn tick(&mut self, place: Place) {
        if place == self.coordinator_place() {
            self.step_coordinator(CoordinatorHappened::Tick);
        } else {
            self.step(place, NodeHappened::Tick);
        }
    }

    fn set_wake(&mut self, place: Place) {
        let wake_at = if place == self.coordinator_place() {
            Some(self.coordinator.wake_at())
        } else {
            self.nodes[place].wake_at(self.now)
        };
        let Some(wake_at) = wake_at.map(|at| at.max(self.now + Span::from_us(50))) else { return };
        let port = &mut self.ports[place];
        if port.wakes_at.is_none_or(|at| wake_at < at) {
            port.wakes_at = Some(wake_at);
            self.coming.put(wake_at, Coming::Wake(place));
        }
    }

    fn send(&mut self, from: Place, to: NodeId, message: &Message) {
        let to = self.place_of(to);
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let shares = self.scenario.coalesces;
        self.traffic.count(Kind::of(message), framed_len(&bytes, shares));
        self.ports[from].waiting.add(to, bytes, shares);
        if !self.ports[from].is_sending {
            self.ports[from].is_sending = true;
            // Once the step is over: what it says to one member is there together.
            self.come(Span::default(), Coming::LinkFree(from));
        }
    }

    /// The next packet goes out.
    fn send_next(&mut self, from: Place) {
        let (now, shares, header_len) = (self.now, self.scenario.coalesces, self.scenario.header_len);
        let port = &mut self.ports[from];
        let Some((to, messages)) = port.waiting.next(shares) else {
            port.is_sending = false;
            return;
        };
        let len = header_len + messages.iter().map(|message| framed_len(message, shares)).sum::<usize>();
        self.traffic.count_packet(header_len);
        let through_at = port.out.take(now, len);
        let packet = Packet { from, to, messages };
        self.coming.put(through_at + self.hop, Coming::Arrives(packet, len));
        self.coming.put(through_at, Coming::LinkFree(from));
    }

    fn hear(&mut self, Packet { from, to, messages }: Packet) {
        for bytes in messages {
            let message = Message::decode(&bytes).expect("what a core has sent can be read");
            let from = if from == self.coordinator_place() { COORDINATOR } else { name_of(from) };
            if to == self.coordinator_place() {
                self.step_coordinator(CoordinatorHappened::Message(from, message));
            } else {
                self.step(to, NodeHappened::Message(from, message));
            }
        }
    }

    fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some((at, coming)) = self.coming.next(until) {
            self.now = at;
            match coming {
                Coming::LinkFree(place) => self.send_next(place),
                Coming::Arrives(packet, len) => {
                    let at = self.ports[packet.to].into.take(self.now, len);
                    self.coming.put(at, Coming::Delivered(packet));
                }
                Coming::Delivered(packet) => self.hear(packet),
                Coming::Wake(place) => {
                    if self.ports[place].wakes_at == Some(at) {
                        self.ports[place].wakes_at = None;
                        self.tick(place);
                    }
                }
                Coming::Kept(epoch) => self.step_coordinator(CoordinatorHappened::Kept(epoch)),
                Coming::Asks(node) if self.is_on => {
                    self.ask(node);
                    self.asks_later();
                }
                Coming::Asks(_) => {}
            }
        }
        self.now = until;
    }
}

fn coordinator_config(scenario: &LoadScenario, nodes: Vec<NodeId>) -> CoordinatorConfig {
    CoordinatorConfig {
        me: COORDINATOR,
        consistency: consistency(scenario),
        views: ViewsConfig { nodes, lease: LEASE, drift: Drift::default(), last_copy_waits: LEASE, mutant: None },
        hot: HotSetConfig { len_max: 1, changes_max: 1, margin: 1.0 },
        epoch: HOT_EPOCH,
    }
}

fn node_config(scenario: &LoadScenario, me: NodeId, life: Life, hot_keys_max: usize) -> NodeConfig {
    NodeConfig {
        me,
        coordinator: COORDINATOR,
        life,
        lease: LEASE,
        drift: Drift::default(),
        consistency: consistency(scenario),
        item_len_max: ITEM_LEN_MAX,
        items_len_max: ITEMS_LEN_MAX,
        shard_access: ShardAccess::Crcw,
        hot_keys_max: hot_keys_max + 1,
        answer_within: Span::from_s(1),
        // The set is told: nobody counts.
        sample_one_in: u32::MAX,
        flow: FlowConfig::default(),
        homecoming: HomecomingConfig::USUAL,
        mutant: None,
        shown_mutant: None,
    }
}

fn consistency(scenario: &LoadScenario) -> Consistency {
    if scenario.variant == Variant::Sc { Consistency::Sc } else { Consistency::Lin }
}
