//! Nodes and their coordinator together, in virtual time, where nothing is lost that is told.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use guira_chain::{Owned, Reply};
use guira_cluster::{Drift, Incarnation, Life, NodeClock};
use guira_consistency::Consistency;
use guira_item::{
    Answer, Arithmetic, ArithmeticMode, CasRule, Expiry, Failure, Get, Hit, Key, Moment, Operation, Span, Store,
    StoreMode,
};
use guira_routing::NodeId;

use crate::{
    AskId, Coordinator, CoordinatorConfig, CoordinatorHappened, CoordinatorOutbox, FlowConfig, HomecomingConfig,
    HotSetConfig, MemoryItems, Message, Node, NodeConfig, NodeHappened, NodeOutbox, ShardAccess, ViewsConfig, slot_of,
};

const COORDINATOR: NodeId = NodeId(9);
const LEASE: Span = Span::from_ms(1_000);
const ANSWER_WITHIN: Span = Span::from_ms(5_000);
const STEP: Span = Span::from_ms(1);
const UNIX: Duration = Duration::from_secs(1_800_000_000);

fn nodes() -> impl Iterator<Item = NodeId> {
    (1..=3).map(NodeId)
}

/// The cluster, and what its clients have been told.
struct Cluster {
    now: Moment,
    nodes: BTreeMap<NodeId, Node<MemoryItems>>,
    lives: u64,
    coordinator: Coordinator,
    under_way: VecDeque<(NodeId, NodeId, Message)>,
    asked: u64,
    told: BTreeMap<AskId, Reply>,
    consistency: Consistency,
    flow: FlowConfig,
    /// What the coordinator has told of nodes that promise something else.
    differed: Vec<(NodeId, Consistency)>,
}

impl Cluster {
    /// One that serves, with so many hot keys at most.
    fn new(hot_keys_max: usize, consistency: Consistency) -> Self {
        Self::with_flow(hot_keys_max, consistency, FlowConfig::default())
    }

    /// The same, with other bounds of what may be under way.
    fn with_flow(hot_keys_max: usize, consistency: Consistency, flow: FlowConfig) -> Self {
        let now = Moment::default();
        let drift = Drift::default();
        let views = ViewsConfig {
            nodes: nodes().collect(),
            lease: LEASE,
            drift,
            last_copy_waits: LEASE.times(4),
            mutant: None,
        };
        let hot = HotSetConfig { len_max: hot_keys_max, changes_max: 4, margin: 1.25 };
        let config = CoordinatorConfig { me: COORDINATOR, views, hot, epoch: Span::from_ms(100), consistency };
        let coordinator = Coordinator::new(now, config, None).unwrap();
        let (nodes, under_way, told) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        let mut cluster = Self {
            now,
            nodes,
            lives: 0,
            coordinator,
            under_way,
            asked: 0,
            told,
            consistency,
            flow,
            differed: Vec::new(),
        };
        self::nodes().for_each(|node| cluster.start(node));
        cluster.run_until(|cluster| cluster.all_serve());
        cluster
    }

    fn start(&mut self, me: NodeId) {
        self.lives += 1;
        let incarnation = Incarnation(self.lives);
        let life = Life { incarnation, clock: NodeClock::set(self.now, UNIX), seed: u64::from(me.0) };
        let config = NodeConfig {
            me,
            coordinator: COORDINATOR,
            life,
            lease: LEASE,
            drift: Drift::default(),
            consistency: self.consistency,
            item_len_max: 1_000,
            items_len_max: 1 << 20,
            shard_access: ShardAccess::Crcw,
            hot_keys_max: 8,
            answer_within: ANSWER_WITHIN,
            sample_one_in: 1,
            flow: self.flow,
            homecoming: HomecomingConfig { page_len_max: 100, ..HomecomingConfig::USUAL },
            mutant: None,
            shown_mutant: None,
        };
        self.nodes.insert(me, Node::new(self.now, config, MemoryItems::new(1 << 20)));
    }

    fn all_serve(&self) -> bool {
        let serves = |node: &Node<MemoryItems>| {
            let status = node.status(self.now);
            status.has_lease && status.is_whole && status.members == self.nodes.len()
        };
        let shards: usize = self.nodes.values().map(|node| node.status(self.now).shards).sum();
        self.nodes.values().all(serves) && shards == nodes().count()
    }

    /// What one node heeds, and what it wants done.
    fn step(&mut self, name: NodeId, happened: NodeHappened<'_>) -> usize {
        let Some(node) = self.nodes.get_mut(&name) else { return 0 };
        let mut out = NodeOutbox::default();
        node.step(self.now, happened, &mut out);
        let sent = out.sends.len();
        self.under_way.extend(out.sends.into_iter().map(|(to, message)| (name, to, message)));
        self.told.extend(out.answers);
        sent
    }

    fn step_coordinator(&mut self, happened: CoordinatorHappened) {
        let mut out = CoordinatorOutbox::default();
        self.coordinator.step(self.now, happened, &mut out);
        self.under_way.extend(out.sends.into_iter().map(|(to, message)| (COORDINATOR, to, message)));
        self.differed.extend(out.differs);
        if let Some(kept) = out.keep {
            self.step_coordinator(CoordinatorHappened::Kept(kept.view.epoch));
        }
    }

    /// What is under way comes, as bytes, and time passes.
    fn pass(&mut self) {
        self.now = self.now + STEP;
        for (from, to, message) in std::mem::take(&mut self.under_way) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let message = Message::decode(&bytes).unwrap();
            if to == COORDINATOR {
                self.step_coordinator(CoordinatorHappened::Message(from, message));
            } else {
                self.step(to, NodeHappened::Message(from, message));
            }
        }
        for node in nodes() {
            let now = self.now;
            if self.nodes.get(&node).is_some_and(|node| node.wake_at(now).is_some_and(|at| at <= now)) {
                self.step(node, NodeHappened::Tick);
            }
        }
        if self.coordinator.wake_at() <= self.now {
            self.step_coordinator(CoordinatorHappened::Tick);
        }
    }

    fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if is_so(self) {
                return;
            }
            self.pass();
        }
        panic!("it never came about");
    }

    /// Asks a node; how many messages it took at once.
    fn ask(&mut self, node: u16, key: &str, operation: Operation<'_>) -> (AskId, usize) {
        self.asked += 1;
        let id = AskId(self.asked);
        let key = Key::new(key.as_bytes()).unwrap();
        let sent = self.step(NodeId(node), NodeHappened::Ask(id, key, &Owned::of(&operation)));
        (id, sent)
    }

    fn wait(&mut self, id: AskId) -> Reply {
        self.run_until(|cluster| cluster.told.contains_key(&id));
        self.told.remove(&id).unwrap()
    }

    fn reply(&mut self, node: u16, key: &str, operation: Operation<'_>) -> Reply {
        let (id, _) = self.ask(node, key, operation);
        self.wait(id)
    }

    fn set(&mut self, node: u16, key: &str, value: &str) -> Answer {
        answer(&self.reply(node, key, Operation::Store(store(StoreMode::Set, value))))
    }

    fn get(&mut self, node: u16, key: &str) -> Option<String> {
        text(&self.reply(node, key, Operation::Get(Get::PLAIN)))
    }

    /// A key whose home a node is.
    fn key_of(&self, home: u16) -> String {
        let slot = nodes().position(|node| node == NodeId(home));
        let keys = (0..).map(|number| format!("key{number}"));
        keys.into_iter().find(|key| slot_of(key.as_bytes(), nodes().count()) == slot).unwrap()
    }

    /// Has a key asked for until it is hot everywhere.
    fn heat(&mut self, key: &str) {
        for _ in 0..1_000 {
            if self.nodes.values().all(|node| node.is_hot(key.as_bytes())) {
                return;
            }
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.get(node.0, key);
            }
        }
        panic!("it does not come to be hot");
    }
}

fn store(mode: StoreMode, value: &str) -> Store<'_> {
    Store { mode, flags: 7, expiry: Expiry::NEVER, cas: None, vivify: None, value: value.as_bytes() }
}

fn answer(reply: &Reply) -> Answer {
    match reply {
        Reply::Answer(answer, _) => *answer,
        Reply::Hit(hit, _) => panic!("{hit:?}"),
    }
}

fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Hit(Hit { flags: 7, .. }, Some(value)) => Some(String::from_utf8(value.to_vec()).unwrap()),
        Reply::Answer(Answer::Miss, _) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_node_serves_any_key() {
    let mut cluster = Cluster::new(0, Consistency::Lin);
    for home in 1..=3 {
        let key = cluster.key_of(home);
        for writer in 1..=3 {
            let value = format!("of {writer}");
            assert!(matches!(cluster.set(writer, &key, &value), Answer::Stored { .. }));
            for reader in 1..=3 {
                assert_eq!(cluster.get(reader, &key).as_ref(), Some(&value));
            }
        }
        let counts = cluster.nodes[&NodeId(home)].status(cluster.now).counts;
        assert_eq!((counts.at_home, counts.for_others), (4, 8), "its own clients' and others'");
    }
    let counts = cluster.nodes.values().map(|node| node.status(cluster.now).counts);
    assert_eq!(
        counts.map(|counts| (counts.forwarded, counts.resent, counts.hot_reads)).fold((0, 0, 0), sum),
        (24, 0, 0)
    );
}

fn sum(a: (u64, u64, u64), b: (u64, u64, u64)) -> (u64, u64, u64) {
    (a.0 + b.0, a.1 + b.1, a.2 + b.2)
}

#[test]
fn what_is_hot_is_read_without_a_message_and_written_anywhere() {
    for consistency in [Consistency::Lin, Consistency::Sc] {
        let mut cluster = Cluster::new(2, consistency);
        let key = cluster.key_of(2);
        cluster.set(1, &key, "cold");
        cluster.heat(&key);
        for writer in 1..=3 {
            let value = format!("of {writer}");
            assert!(matches!(cluster.set(writer, &key, &value), Answer::Stored { .. }));
            let reads = |node: u16, cluster: &mut Cluster| {
                let (id, sent) = cluster.ask(node, &key, Operation::Get(Get::PLAIN));
                (sent, cluster.told.get(&id).map(text))
            };
            cluster.run_until(|cluster| cluster.under_way.is_empty());
            for reader in 1..=3 {
                assert_eq!(reads(reader, &mut cluster), (0, Some(Some(value.clone()))), "{consistency:?}");
            }
        }
        let count = Arithmetic { mode: ArithmeticMode::Increment, delta: 5, cas: None, touch: None, create: None };
        cluster.set(3, &key, "1");
        let counted = (1..=3).map(|node| answer(&cluster.reply(node, &key, Operation::Arithmetic(count))));
        let numbers: Vec<u64> = counted
            .map(|answer| if let Answer::Number { value, .. } = answer { value } else { panic!("{answer:?}") })
            .collect();
        assert_eq!(numbers, [6, 11, 16]);
    }
}

#[test]
fn a_content_is_known_by_one_number_whether_or_not_it_is_hot() {
    let mut cluster = Cluster::new(1, Consistency::Lin);
    let key = cluster.key_of(1);
    let Answer::Stored { cas } = cluster.set(2, &key, "a") else { panic!("not stored") };
    let told = |reply: &Reply| if let Reply::Hit(hit, _) = reply { hit.cas } else { panic!("{reply:?}") };
    let gets = Operation::Get(Get { tells: true, ..Get::PLAIN });
    assert_eq!(told(&cluster.reply(3, &key, gets)), cas);
    cluster.heat(&key);
    assert_eq!(told(&cluster.reply(3, &key, gets)), cas);
    let swap = |expected, value| {
        Operation::Store(Store { cas: Some(CasRule { expected, or_stale: false }), ..store(StoreMode::Set, value) })
    };
    let swapped = answer(&cluster.reply(1, &key, swap(cas, "b")));
    let Answer::Stored { cas: next } = swapped else { panic!("{swapped:?}") };
    assert!(next > cas);
    assert_eq!(answer(&cluster.reply(2, &key, swap(cas, "c"))), Answer::Exists);
    // Another key is hotter: this one goes, and is what it was.
    let other = cluster.key_of(2);
    cluster.set(1, &other, "x");
    cluster.heat(&other);
    assert!(!cluster.nodes[&NodeId(1)].is_hot(key.as_bytes()), "there is room for one");
    assert_eq!(told(&cluster.reply(3, &key, gets)), next);
    assert_eq!(cluster.get(1, &key).as_deref(), Some("b"));
}

#[test]
fn hot_keys_outlive_their_home_and_cold_ones_do_not() {
    let mut cluster = Cluster::new(1, Consistency::Lin);
    let hot = cluster.key_of(3);
    cluster.set(1, &hot, "hot");
    cluster.heat(&hot);
    let cold = (0..).map(|n| format!("cold{n}")).find(|key| slot_of(key.as_bytes(), 3) == Some(2)).unwrap();
    cluster.set(1, &cold, "cold");
    cluster.nodes.remove(&NodeId(3));
    // Asked while nobody knows yet that it is gone: its successor answers reads; what else was told to it may have been done, and be lost.
    let (read, _) = cluster.ask(2, &cold, Operation::Get(Get::PLAIN));
    let (add, _) = cluster.ask(1, &cold, Operation::Store(store(StoreMode::Add, "new")));
    assert_eq!(cluster.get(2, &hot).as_deref(), Some("hot"));
    assert_eq!(text(&cluster.wait(read)), None);
    assert_eq!(answer(&cluster.wait(add)), Answer::Failed(Failure::Unknown));
    let (add, _) = cluster.ask(1, &cold, Operation::Store(store(StoreMode::Add, "new")));
    assert!(matches!(answer(&cluster.wait(add)), Answer::Stored { .. }));
    cluster.set(2, &hot, "hotter");
    cluster.start(NodeId(3));
    cluster.run_until(Cluster::all_serve);
    for node in 1..=3 {
        assert_eq!(cluster.get(node, &hot).as_deref(), Some("hotter"));
        assert_eq!(cluster.get(node, &cold).as_deref(), Some("new"));
    }
}

/// Each node has its own shard.
fn all_are_at_home(cluster: &Cluster) -> bool {
    let is_at_home = |node: &Node<MemoryItems>| {
        let status = node.status(cluster.now);
        status.shards == 1 && status.copied.is_none()
    };
    cluster.all_serve() && cluster.nodes.values().all(is_at_home)
}

/// A cluster whose third node was gone, and is back; with what was written in its shard meanwhile.
fn with_one_that_is_back() -> (Cluster, Vec<String>) {
    let mut cluster = Cluster::new(0, Consistency::Lin);
    let keys: Vec<String> =
        (0..).map(|n| format!("cold{n}")).filter(|key| slot_of(key.as_bytes(), 3) == Some(2)).take(40).collect();
    cluster.nodes.remove(&NodeId(3));
    cluster.run_until(Cluster::all_serve);
    for key in &keys {
        cluster.set(1, key, "meanwhile");
    }
    cluster.start(NodeId(3));
    (cluster, keys)
}

#[test]
fn a_shard_comes_back_to_its_own_node_with_what_was_written_meanwhile_and_during_the_copy() {
    let (mut cluster, mut keys) = with_one_that_is_back();
    cluster.run_until(|cluster| cluster.nodes[&NodeId(3)].status(cluster.now).copied.is_some_and(|items| items > 4));
    assert!(!all_are_at_home(&cluster), "it is under way");
    let newer = || Operation::Store(store(StoreMode::Set, "newer"));
    let writes: Vec<AskId> = keys[..20].iter().map(|key| cluster.ask(2, key, newer()).0).collect();
    cluster.run_until(all_are_at_home);
    let before = cluster.nodes[&NodeId(3)].status(cluster.now);
    assert_eq!((before.counts.homecomings, before.items), (1, keys.len()));
    for write in writes {
        assert!(matches!(answer(&cluster.wait(write)), Answer::Stored { .. }));
    }
    for (number, key) in keys.drain(..).enumerate() {
        let value = if number < 20 { "newer" } else { "meanwhile" };
        assert_eq!(cluster.get(1 + number as u16 % 3, &key).as_deref(), Some(value), "{key}");
    }
    // What was its successor's is removed there, by and by.
    cluster.run_until(|cluster| [1, 2].iter().all(|id| cluster.nodes[&NodeId(*id)].status(cluster.now).items == 0));
}

#[test]
fn a_copy_begins_anew_when_everything_is_to_be_gone() {
    let (mut cluster, keys) = with_one_that_is_back();
    cluster.run_until(|cluster| cluster.nodes[&NodeId(3)].status(cluster.now).copied.is_some_and(|items| items > 4));
    cluster.asked += 1;
    let id = AskId(cluster.asked);
    cluster.step(NodeId(1), NodeHappened::Flush(id));
    assert_eq!(answer(&cluster.wait(id)), Answer::Deleted);
    cluster.run_until(all_are_at_home);
    assert!(cluster.nodes[&NodeId(3)].status(cluster.now).counts.copies > 1);
    keys.iter().for_each(|key| assert_eq!(cluster.get(2, key), None));
}

#[test]
fn when_all_are_gone_everything_begins_with_nothing() {
    let mut cluster = Cluster::new(1, Consistency::Lin);
    let key = cluster.key_of(1);
    cluster.set(1, &key, "a");
    cluster.heat(&key);
    cluster.nodes.clear();
    nodes().for_each(|node| cluster.start(node));
    cluster.run_until(Cluster::all_serve);
    assert_eq!(cluster.get(2, &key), None);
    assert!(matches!(cluster.set(2, &key, "b"), Answer::Stored { .. }));
    assert_eq!(cluster.get(3, &key).as_deref(), Some("b"));
}

#[test]
fn who_has_no_answer_in_time_is_told_what_is_known() {
    let mut cluster = Cluster::new(0, Consistency::Lin);
    let key = cluster.key_of(1);
    // Alone, it has no lease in a while, and nobody else answers.
    let lone = cluster.nodes.remove(&NodeId(2)).unwrap();
    cluster.nodes.clear();
    cluster.nodes.insert(NodeId(2), lone);
    cluster.under_way.clear();
    let (read, _) = cluster.ask(2, &key, Operation::Get(Get::PLAIN));
    let (write, _) = cluster.ask(2, &key, Operation::Store(store(StoreMode::Set, "a")));
    let asked = cluster.now;
    for _ in 0..10_000 {
        // The coordinator hears nothing and says nothing.
        cluster.under_way.clear();
        cluster.now = cluster.now + STEP;
        cluster.step(NodeId(2), NodeHappened::Tick);
    }
    assert!(cluster.now.since(asked) > ANSWER_WITHIN);
    assert_eq!(answer(&cluster.told[&read]), Answer::Failed(Failure::Away));
    assert_eq!(answer(&cluster.told[&write]), Answer::Failed(Failure::Unknown), "it was sent");
    let (late, _) = cluster.ask(2, &key, Operation::Store(store(StoreMode::Set, "a")));
    for _ in 0..10_000 {
        cluster.under_way.clear();
        cluster.now = cluster.now + STEP;
        cluster.step(NodeId(2), NodeHappened::Tick);
    }
    assert_eq!(answer(&cluster.told[&late]), Answer::Failed(Failure::Away), "it was not");
}

#[test]
fn everything_goes_wherever_it_is() {
    let mut cluster = Cluster::new(1, Consistency::Lin);
    let keys: Vec<String> = (1..=3).map(|home| cluster.key_of(home)).collect();
    for key in &keys {
        cluster.set(1, key, "a");
    }
    cluster.heat(&keys[1]);
    cluster.asked += 1;
    let id = AskId(cluster.asked);
    cluster.step(NodeId(3), NodeHappened::Flush(id));
    assert_eq!(answer(&cluster.wait(id)), Answer::Deleted);
    for key in &keys {
        for node in 1..=3 {
            assert_eq!(cluster.get(node, key), None, "{key}");
        }
    }
}

#[test]
fn what_comes_twice_is_done_once() {
    let mut cluster = Cluster::new(1, Consistency::Lin);
    let key = cluster.key_of(2);
    cluster.set(2, &key, "1");
    let count = Arithmetic { mode: ArithmeticMode::Increment, delta: 1, cas: None, touch: None, create: None };
    let (counts, _) = cluster.ask(1, &key, Operation::Arithmetic(count));
    let is_request = |(_, _, message): &&(NodeId, NodeId, Message)| matches!(message, Message::Request(_));
    let again = cluster.under_way.iter().find(is_request).cloned().unwrap();
    let counted =
        |reply: &Reply| if let Answer::Number { value, .. } = answer(reply) { value } else { panic!("{reply:?}") };
    assert_eq!(counted(&cluster.wait(counts)), 2);
    // While it is cold, while it is hot, and when it is cold again.
    cluster.under_way.push_back(again.clone());
    cluster.heat(&key);
    cluster.under_way.push_back(again.clone());
    let other = cluster.key_of(3);
    cluster.set(1, &other, "x");
    cluster.heat(&other);
    cluster.under_way.push_back(again);
    cluster.run_until(|cluster| !cluster.nodes[&NodeId(2)].is_hot(key.as_bytes()));
    assert_eq!(counted(&cluster.reply(3, &key, Operation::Arithmetic(count))), 3);
}

#[test]
fn what_ends_ends_for_all() {
    let mut cluster = Cluster::new(1, Consistency::Lin);
    let key = cluster.key_of(1);
    cluster.set(1, &key, "a");
    cluster.heat(&key);
    let now = cluster.nodes[&NodeId(1)].time(cluster.now);
    let expiry = Expiry::at(guira_item::Time(now.0 + 2));
    cluster.reply(2, &key, Operation::Store(Store { expiry, ..store(StoreMode::Set, "b") }));
    assert_eq!(cluster.get(3, &key).as_deref(), Some("b"));
    cluster.run_until(|cluster| expiry.is_past(cluster.nodes[&NodeId(1)].time(cluster.now)));
    for node in [3, 1, 2] {
        assert_eq!(cluster.get(node, &key), None);
    }
    assert!(matches!(
        answer(&cluster.reply(1, &key, Operation::Store(store(StoreMode::Add, "c")))),
        Answer::Stored { .. }
    ));
}

/// As little as there can be.
const ONE_OF_EACH: FlowConfig =
    FlowConfig { requests: 1, requests_wait: 3, messages: 1, messages_wait: 100, mutant: None };

#[test]
fn what_finds_no_credit_waits_for_one_and_is_refused_if_too_much_does() {
    let mut cluster = Cluster::with_flow(0, Consistency::Lin, ONE_OF_EACH);
    let key = cluster.key_of(2);
    let asked: Vec<(AskId, usize)> = (0..5).map(|_| cluster.ask(1, &key, Operation::Get(Get::PLAIN))).collect();
    assert_eq!(asked.iter().map(|(_, sent)| *sent).collect::<Vec<_>>(), [1, 0, 0, 0, 0]);
    let elsewhere = cluster.key_of(3);
    assert_eq!(cluster.ask(1, &elsewhere, Operation::Get(Get::PLAIN)).1, 1, "another's credit");
    assert_eq!(answer(&cluster.told[&asked[4].0]), Answer::Failed(Failure::Busy));
    for (id, _) in &asked[..4] {
        assert_eq!(text(&cluster.wait(*id)), None);
    }
    let status = cluster.nodes[&NodeId(1)].status(cluster.now);
    assert_eq!((status.flow.requests_waited, status.counts.busy, status.pending), (3, 1, 0));
    assert_eq!((status.sent.requests, status.counts.forwarded), (5, 6));
}

#[test]
fn what_has_waited_for_a_credit_of_who_is_gone_is_carried_out_by_its_successor() {
    let mut cluster = Cluster::with_flow(0, Consistency::Lin, ONE_OF_EACH);
    let key = cluster.key_of(3);
    cluster.nodes.remove(&NodeId(3));
    let adds: Vec<AskId> = ["a", "b", "c"]
        .into_iter()
        .map(|value| cluster.ask(1, &key, Operation::Store(store(StoreMode::Set, value))).0)
        .collect();
    assert_eq!(answer(&cluster.wait(adds[0])), Answer::Failed(Failure::Unknown), "it was told");
    for add in &adds[1..] {
        assert!(matches!(answer(&cluster.wait(*add)), Answer::Stored { .. }), "it was told to nobody");
    }
}

#[test]
fn writes_of_hot_keys_end_however_few_credits_there_are_and_a_hit_costs_no_message() {
    for consistency in [Consistency::Lin, Consistency::Sc] {
        let mut cluster = Cluster::with_flow(4, consistency, ONE_OF_EACH);
        let keys: Vec<String> = (0..4).map(|number| format!("hot{number}")).collect();
        for key in &keys {
            cluster.set(1, key, "cold");
            cluster.heat(key);
        }
        let writes: Vec<AskId> = (0..30)
            .map(|number| {
                let value = number.to_string();
                let key = &keys[number % 4];
                cluster.ask(1 + (number % 3) as u16, key, Operation::Store(store(StoreMode::Set, &value))).0
            })
            .collect();
        for write in writes {
            assert!(matches!(answer(&cluster.wait(write)), Answer::Stored { .. }));
        }
        cluster.run_until(|cluster| cluster.nodes.values().all(|node| node.status(cluster.now).waiting == 0));
        let before: Vec<_> = cluster.nodes.values().map(|node| node.status(cluster.now)).collect();
        assert!(before.iter().all(|status| status.flow.messages_waited > 0 && status.flow.beyond == 0), "{before:?}");
        assert!(before.iter().all(|status| status.flow.messages_dropped == 0), "{before:?}");
        for key in &keys {
            let seen: Vec<_> = (1..=3).map(|node| cluster.get(node, key)).collect();
            assert!(seen[0].is_some() && seen.iter().all(|value| *value == seen[0]), "{seen:?}");
        }
        for (node, before) in cluster.nodes.values().zip(&before) {
            let status = node.status(cluster.now);
            assert_eq!(status.counts.hot_reads - before.counts.hot_reads, 4);
            assert_eq!(status.sent.requests, before.sent.requests);
            assert_eq!(status.sent.of_hot_keys(), before.sent.of_hot_keys());
        }
    }
}

/// Its file is another: what the others have told it as linearizable it would not have acknowledged.
#[test]
fn who_promises_something_else_is_not_taken_in_which_is_told_once() {
    let mut cluster = Cluster::new(0, Consistency::Lin);
    cluster.nodes.remove(&NodeId(3));
    cluster.run_until(Cluster::all_serve);
    cluster.consistency = Consistency::Sc;
    cluster.start(NodeId(3));
    for _ in 0..3_000 {
        cluster.pass();
    }
    assert_eq!(cluster.differed, [(NodeId(3), Consistency::Sc)]);
    let (status, coordinator) = (cluster.nodes[&NodeId(3)].status(cluster.now), cluster.coordinator.status());
    assert!(!status.has_lease && status.members == 0, "{status:?}");
    assert_eq!((coordinator.view.members.len(), coordinator.differing), (2, 1));
    cluster.consistency = Consistency::Lin;
    cluster.start(NodeId(3));
    cluster.run_until(Cluster::all_serve);
    assert_eq!((cluster.differed.len(), cluster.coordinator.status().differing), (1, 0));
}
