//! A backend, and cache nodes of several parts: which part is told of which key.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    time::Duration,
};

use guira_cluster::{Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::{
    Get, Key, Moment, Operation, Span,
    store::{Generation, Record, StoreState, Written},
};
use guira_routing::{CacheNodes, NodeId};
use guira_switched::{
    Ask, Asker, Body, CacheMode, KeyBytes, Life, Loaded, Member, Message, Number, Outbox, Role, StaticFile, StoreCall,
    backend::{Backend, Happened, HotConfig},
    hash_of,
};

const BACKEND: NodeId = NodeId(2);
const GATEWAY: NodeId = NodeId(3);
const SESSION: SessionId = SessionId { incarnation: Incarnation(7), opening: Opening(100) };

/// A cache node of four parts, and one of two.
const BIG: NodeId = NodeId(100);
const SMALL: NodeId = NodeId(200);

fn parts(node: NodeId) -> NonZero<u16> {
    NonZero::new(if node == BIG { 4 } else { 2 }).expect("not none")
}

/// A backend that has every key, and what cache nodes are told.
struct Setting {
    backend: Backend,
    nodes: CacheNodes,
    now: Moment,
    reads: u64,
    told: Vec<(NodeId, Body)>,
    /// What was said last in each session, by part: what was heard, and told.
    seqs: BTreeMap<NodeId, (Seq, Seq)>,
}

impl Setting {
    fn file(caches: &[NodeId]) -> StaticFile {
        let member = |node: NodeId, role| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role);
        let gateway = Role::Gateway { listen: ([127, 0, 0, 1], 9).into(), cache_mode: CacheMode::default() };
        let mut members = vec![
            member(NodeId(1), Role::Controller),
            member(BACKEND, Role::backend(Some(caches[0].0))),
            member(GATEWAY, gateway),
        ];
        members.extend(caches.iter().map(|node| member(*node, Role::Cache { threads: parts(*node) })));
        let file = StaticFile { secret: "a secret that is long enough".into(), members, ..StaticFile::default() };
        file.check().expect("it is a cluster");
        file
    }

    /// With these cache nodes, the first of which is in charge.
    fn new(caches: &[NodeId]) -> Self {
        let (now, file) = (Moment::from_ns(1_000_000_000), Self::file(caches));
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let life = Life { incarnation: SESSION.incarnation, clock, seed: 1 };
        let mut config = file.backend_config(BACKEND, &file.shares().expect("it has a backend"), life);
        config.hot = HotConfig { reported: 20, burst_log: 20, burst_visits: 4, burst_load_min: 0.0, ..config.hot };
        config.lease = Span::from_s(600);
        let backend = Backend::new(config, StoreState::default(), now);
        let (told, seqs) = (Vec::new(), BTreeMap::new());
        let mut setting = Self { backend, nodes: file.caches(), now, reads: 0, told, seqs };
        setting.pass(Span::from_s(1_200));
        assert!(setting.backend.serves());
        setting.step(Happened::Message(GATEWAY, Message::Join { opening: SESSION.opening }));
        caches.iter().for_each(|node| setting.open(*node, *node == caches[0]));
        setting
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.backend.step(self.now, happened, &mut out);
        for (to, bytes) in out.sends() {
            if let Ok(Message::Told { seq, body: Some(body), .. }) = Message::decode(bytes) {
                let (heard, _) = self.seqs.entry(to).or_default();
                if seq > *heard {
                    *heard = seq;
                    self.told.push((to, body));
                }
            }
        }
        for call in out.store.drain(..) {
            let record = || Record {
                flags: 0,
                expires_unix_s: 0,
                version: 1,
                generation: Generation(0),
                stale: false,
                win_sent: false,
                value: (*b"value").into(),
            };
            match call {
                StoreCall::Read(key) => self.step(Happened::Read(key, Ok(Some(record()).into()))),
                StoreCall::State(_) => self.step(Happened::StateWritten(Ok(Written::All))),
                other => panic!("nothing is changed here: {other:?}"),
            }
        }
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.step(Happened::Tick);
        self.step(Happened::Tick);
    }

    fn read(&mut self, key: &str) {
        self.reads += 1;
        let asker =
            Asker { gateway: GATEWAY, session: SESSION, number: Number(self.reads), done_below: Number(self.reads) };
        let key = Key::new(key.as_bytes()).expect("a key");
        let operation = Operation::Get(Get::PLAIN);
        let ask = Ask { asker, hash: hash_of(key.as_bytes()), key, operation };
        self.step(Happened::Message(GATEWAY, Message::Request(ask)));
    }

    /// A part says something, and what parts were told since.
    fn says(&mut self, part: NodeId, body: Body) -> Vec<(NodeId, Body)> {
        self.told.clear();
        let (ack, seq) = self.seqs.entry(part).or_default();
        seq.0 += 1;
        let told = Message::Told { session: SESSION, ack: *ack, seq: *seq, body: Some(body) };
        self.step(Happened::Message(part, told));
        std::mem::take(&mut self.told)
    }

    /// A part has too much to do because of a key, or has it no longer.
    fn spread(&mut self, part: NodeId, key: &str) -> Vec<(NodeId, Body)> {
        self.says(part, Body::Spread(Loaded { key: of(key), per_s: 1_000.0 }))
    }

    fn open(&mut self, node: NodeId, in_charge: bool) {
        for part in self.nodes.clone().parts_of(node) {
            let open = Message::Open { opening: SESSION.opening, at: self.now, in_charge };
            self.step(Happened::Message(part, open));
        }
    }

    /// This cache node alone is in charge from here on.
    fn put_in_charge(&mut self, node: NodeId) {
        for part in self.nodes.clone().parts() {
            let is_its = self.nodes.node_of(part) == Some(node);
            self.says(part, Body::InCharge(is_its));
        }
    }

    fn part_of(&self, node: NodeId, key: &str) -> NodeId {
        self.nodes.part_for(node, hash_of(key.as_bytes())).expect("it is there")
    }
}

fn names(len: usize) -> Vec<String> {
    (0..len).map(|at| format!("key {at}")).collect()
}

fn of(key: &str) -> KeyBytes {
    KeyBytes(key.as_bytes().into())
}

#[test]
fn each_hot_key_is_reported_to_its_part_of_who_is_in_charge_and_to_no_other() {
    let mut setting = Setting::new(&[BIG, SMALL]);
    let keys = names(16);
    for key in &keys {
        (0..3).for_each(|_| setting.read(key));
    }
    setting.told.clear();
    setting.pass(Span::from_s(2));
    let reports = setting.told.iter().filter_map(|(part, body)| match body {
        Body::Report(loaded) => Some(loaded.iter().map(|loaded| (loaded.key.clone(), *part))),
        _ => None,
    });
    let mut reported: Vec<_> = reports.flatten().collect();
    let mut expected: Vec<_> = keys.iter().map(|key| (of(key), setting.part_of(BIG, key))).collect();
    reported.sort();
    expected.sort();
    assert_eq!(reported, expected);
    let told: BTreeSet<NodeId> = setting.told.iter().map(|(part, _)| *part).collect();
    assert!(told.len() > 1, "16 keys are of several parts: {told:?}");
}

#[test]
fn a_burst_is_told_to_its_part_alone() {
    let mut setting = Setting::new(&[BIG, SMALL]);
    for key in names(8) {
        setting.told.clear();
        (0..6).for_each(|_| setting.read(&key));
        let bursts: Vec<NodeId> = setting.told.iter().map(|(part, _)| *part).collect();
        assert_eq!(bursts, [setting.part_of(BIG, &key)], "{key}: {:?}", setting.told);
    }
}

/// The loads that a part was told of a key: with its item, and without it.
fn loads_told(told: &[(NodeId, Body)], key: &str) -> (Vec<f32>, Vec<f32>) {
    let (mut with_item, mut alone) = (Vec::new(), Vec::new());
    for (_, body) in told {
        match body {
            Body::Burst(loaded, _) if loaded.key == of(key) => with_item.push(loaded.per_s),
            Body::Report(loaded) => alone.extend(loaded.iter().filter(|it| it.key == of(key)).map(|it| it.per_s)),
            _ => {}
        }
    }
    (with_item, alone)
}

#[test]
fn what_is_cached_and_asked_for_here_all_the_same_is_told_again_when_it_has_become_much_hotter() {
    let mut setting = Setting::new(&[SMALL]);
    let mut cold = names(2_000).into_iter();
    let mut read_cold = |setting: &mut Setting, len| cold.by_ref().take(len).for_each(|key| setting.read(&key));
    // The backend's own load: a thousand a second.
    read_cold(&mut setting, 1_000);
    setting.pass(Span::from_s(1));
    setting.told.clear();
    // One in four is the key's: five of the last seventeen, when it is told first.
    for _ in 0..5 {
        setting.read("hot");
        read_cold(&mut setting, 3);
    }
    let (with_item, alone) = loads_told(&setting.told, "hot");
    assert_eq!((with_item.len(), alone.len()), (1, 0), "{:?}", setting.told);
    let guessed = 1_000.0 * 5.0 / 17.0;
    assert!((with_item[0] - guessed).abs() < 2.0, "{with_item:?}");
    // All are the key's.
    (0..40).for_each(|_| setting.read("hot"));
    let (with_item, alone) = loads_told(&setting.told, "hot");
    assert_eq!(with_item.len(), 1, "it has the item");
    assert_eq!(alone.len(), 1, "that it has doubled once is told once: {alone:?}");
    assert!((512.0..1_010.0).contains(&alone[0]), "from below 512 on: {alone:?}");
    // With each segment once, at least.
    setting.pass(Span::from_s(1));
    setting.told.clear();
    setting.read("hot");
    let (with_item, alone) = loads_told(&setting.told, "hot");
    assert_eq!((with_item.len(), alone.len()), (0, 1), "{:?}", setting.told);
}

#[test]
fn what_is_too_much_for_a_part_is_had_by_another_node_or_else_by_another_part() {
    for caches in [&[BIG, SMALL][..], &[BIG]] {
        let mut setting = Setting::new(caches);
        let mut seconds = BTreeSet::new();
        for key in names(12) {
            (0..6).for_each(|_| setting.read(&key));
            let first = setting.part_of(BIG, &key);
            let told = setting.spread(first, &key);
            let [(second, Body::Burst(Loaded { key: told, per_s }, _))] = &told[..] else { panic!("{key}: {told:?}") };
            assert_eq!((told, *per_s), (&of(&key), 500.0), "a half of it");
            match caches.len() {
                1 => assert!(*second != first && setting.nodes.node_of(*second) == Some(BIG), "{second:?}"),
                _ => assert_eq!(*second, setting.part_of(SMALL, &key)),
            }
            seconds.insert(*second);
            // Two have it now.
            assert_eq!(setting.spread(first, &key), []);
        }
        assert!(seconds.len() > 1, "all go to {seconds:?}");
    }
}

#[test]
fn what_leaves_a_node_goes_to_its_part_of_who_is_in_charge_now() {
    let mut setting = Setting::new(&[BIG, SMALL]);
    for key in names(8) {
        (0..6).for_each(|_| setting.read(&key));
    }
    setting.put_in_charge(SMALL);
    for key in names(8) {
        let first = setting.part_of(BIG, &key);
        let told = setting.spread(first, &key);
        let [(second, Body::Burst(Loaded { per_s, .. }, _))] = &told[..] else { panic!("{key}: {told:?}") };
        assert_eq!((*second, *per_s), (setting.part_of(SMALL, &key), 1_000.0), "all of it");
        assert_eq!(setting.spread(first, &key), [], "it goes once");
    }
}

/// The hottest keys of a node that was alone are had by two of its parts each.
#[test]
fn what_two_parts_of_a_node_have_leaves_it_too() {
    let mut setting = Setting::new(&[BIG]);
    let keys = names(8);
    let mut seconds = Vec::new();
    for key in &keys {
        (0..6).for_each(|_| setting.read(key));
        let first = setting.part_of(BIG, key);
        let told = setting.spread(first, key);
        seconds.push(told[0].0);
    }
    let file = Setting::file(&[BIG, SMALL]);
    setting.step(Happened::View(&file.view(file.shares().expect("it has a backend"))));
    setting.nodes = file.caches();
    setting.open(SMALL, false);
    setting.put_in_charge(SMALL);
    for (key, second) in keys.iter().zip(seconds) {
        let told = setting.spread(second, key);
        let [(taker, Body::Burst(Loaded { per_s, .. }, _))] = &told[..] else { panic!("{key}: {told:?}") };
        assert_eq!((*taker, *per_s), (setting.part_of(SMALL, key), 2_000.0), "what both have");
        let first = setting.part_of(BIG, key);
        assert_eq!(setting.spread(first, key), [], "{key} is there by then");
    }
}

/// Its parts hear of it one after the other, and the next node later still.
#[test]
fn what_two_parts_have_leaves_with_the_first_that_hears_of_it() {
    let mut setting = Setting::new(&[BIG]);
    let key = &names(1)[0];
    (0..6).for_each(|_| setting.read(key));
    let first = setting.part_of(BIG, key);
    let second = setting.spread(first, key)[0].0;
    let file = Setting::file(&[BIG, SMALL]);
    setting.step(Happened::View(&file.view(file.shares().expect("it has a backend"))));
    setting.nodes = file.caches();
    setting.open(SMALL, false);
    assert_eq!(setting.spread(second, key), [], "two are enough, while nobody leaves");
    setting.says(second, Body::InCharge(false));
    let told = setting.spread(second, key);
    assert!(matches!(&told[..], [(taker, Body::Burst(..))] if *taker == setting.part_of(SMALL, key)), "{told:?}");
}

#[test]
fn what_leaves_a_node_and_was_declined_stays_at_no_other_part_of_it() {
    let mut setting = Setting::new(&[BIG, SMALL]);
    let key = &names(1)[0];
    (0..6).for_each(|_| setting.read(key));
    setting.put_in_charge(SMALL);
    let (first, taker) = (setting.part_of(BIG, key), setting.part_of(SMALL, key));
    assert_eq!(setting.spread(first, key).len(), 1);
    let seen = setting.seqs[&taker].0;
    setting.says(taker, Body::Drop { key: of(key), seen });
    assert_eq!(setting.spread(first, key), []);
}

/// What was the coldest of a cache node's items a moment ago may be the hottest of all now, and the report that would say so is up to a second away.
#[test]
fn what_was_not_kept_is_offered_again_once_it_is_hotter() {
    let mut setting = Setting::new(&[BIG]);
    let key = &names(1)[0];
    // The fifth is a burst, of forty a second: five in an eighth of one.
    (0..6).for_each(|_| setting.read(key));
    let part = setting.part_of(BIG, key);
    let seen = setting.seqs[&part].0;
    assert_eq!(setting.says(part, Body::Drop { key: of(key), seen }), []);
    setting.read(key);
    assert_eq!(setting.told, [], "it is as hot as it was");
    setting.read(key);
    let [(to, Body::Burst(Loaded { per_s, .. }, _))] = &setting.told[..] else { panic!("{:?}", setting.told) };
    assert_eq!((*to, *per_s), (part, 64.0));
}
