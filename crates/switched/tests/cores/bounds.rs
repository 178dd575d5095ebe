//! What a backend keeps of values is bounded in bytes: what is beyond is refused or said to be unknown, and nothing of it is lost without a word.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use guira_chain::Reply;
use guira_cluster::{Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::{
    Answer, Expiry, Failure, Get, Key, Moment, Operation, Span, Store, StoreMode, Time,
    store::{Generation, Record, StoreState, Write, Written},
};
use guira_routing::NodeId;
use guira_switched::{
    Ask, Asker, Body, CacheMode, ITEM_LEN_MAX, KeyBytes, Life, Member, Message, Number, Outbox, Role, StaticFile,
    StoreCall,
    backend::{Backend, BackendConfig, Happened},
    hash_of,
};

const BACKEND: NodeId = NodeId(2);
const GATEWAY: NodeId = NodeId(3);
const CACHE: NodeId = NodeId(4);
const SESSION: SessionId = SessionId { incarnation: Incarnation(7), opening: Opening(1) };

/// A backend before a store that does nothing until it is told to, and one gateway.
struct Setting {
    backend: Backend,
    records: BTreeMap<Box<[u8]>, Record<Arc<[u8]>>>,
    calls: Vec<StoreCall>,
    said: Vec<(Number, Reply)>,
    told: Vec<Body>,
    now: Moment,
}

impl Setting {
    fn new(change: impl FnOnce(&mut BackendConfig)) -> Self {
        let now = Moment::from_ns(1_000_000_000);
        let member = |node: NodeId, role| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role);
        let file = StaticFile {
            secret: "a secret that is long enough".into(),
            item_len_max: ITEM_LEN_MAX,
            members: vec![
                member(NodeId(1), Role::Controller),
                member(BACKEND, Role::backend(None)),
                member(GATEWAY, Role::Gateway { listen: ([127, 0, 0, 1], 9).into(), cache_mode: CacheMode::default() }),
            ],
            ..StaticFile::default()
        };
        file.check().expect("it is a cluster");
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let mut config = file.backend_config(
            BACKEND,
            &file.shares().expect("it has a backend"),
            Life { incarnation: SESSION.incarnation, clock, seed: 1 },
        );
        change(&mut config);
        let backend = Backend::new(config, StoreState::default(), now);
        let mut setting =
            Self { backend, records: BTreeMap::new(), calls: Vec::new(), said: Vec::new(), told: Vec::new(), now };
        setting.step(Happened::Tick);
        setting.settle();
        setting.step(Happened::Message(GATEWAY, Message::Join { opening: SESSION.opening }));
        setting
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.backend.step(self.now, happened, &mut out);
        self.calls.append(&mut out.store);
        for (_, bytes) in out.sends() {
            match Message::decode(bytes).expect("it was encoded") {
                Message::Reply { number, said, .. } => self.said.push((number, said.to_reply())),
                Message::Told { body, .. } => self.told.extend(body),
                _ => {}
            }
        }
    }

    /// The store does all that it was asked to.
    fn settle(&mut self) {
        while !self.calls.is_empty() {
            for call in std::mem::take(&mut self.calls) {
                let happened = match call {
                    StoreCall::Read(key) => {
                        let found = self.records.get(&key).cloned();
                        Happened::Read(key, Ok(found.into()))
                    }
                    StoreCall::Write(key, write) => {
                        match write {
                            Write::Put { key, record, .. } => drop(self.records.insert(key, record)),
                            Write::Delete { key, .. } => drop(self.records.remove(&key)),
                            Write::State(_) => {}
                        }
                        Happened::Written(key, Ok(Written::All))
                    }
                    StoreCall::State(_) => Happened::StateWritten(Ok(Written::All)),
                    StoreCall::Scan(_) | StoreCall::Fence(_) | StoreCall::Flush => {
                        panic!("nothing moves here: {call:?}")
                    }
                };
                self.step(happened);
            }
        }
    }

    fn ask(&mut self, number: u64, done_below: u64, key: &str, operation: Operation<'_>) {
        let (number, done_below) = (Number(number), Number(done_below));
        let asker = Asker { gateway: GATEWAY, session: SESSION, number, done_below };
        let key = Key::new(key.as_bytes()).expect("a key");
        let ask = Ask { asker, hash: hash_of(key.as_bytes()), key, operation };
        self.step(Happened::Message(GATEWAY, Message::Request(ask)));
    }

    /// The last thing that was said.
    fn last(&self) -> (u64, &Reply) {
        let (number, reply) = self.said.last().expect("something was said");
        (number.0, reply)
    }
}

fn set(value: &[u8]) -> Operation<'_> {
    let mode = StoreMode::Set;
    Operation::Store(Store { mode, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value })
}

fn is_stored(reply: &Reply) -> bool {
    matches!(reply, Reply::Answer(Answer::Stored { .. }, _))
}

fn is_failed(reply: &Reply, why: Failure) -> bool {
    matches!(reply, Reply::Answer(Answer::Failed(told), _) if *told == why)
}

#[test]
fn values_under_way_beyond_the_bound_are_refused_and_taken_later() {
    let mut setting = Setting::new(|config| config.operations_len_max = 1_000);
    let value = [7; 600];
    setting.ask(1, 1, "one", set(&value));
    assert!(setting.said.is_empty(), "the store writes");
    setting.ask(2, 1, "two", set(&value));
    assert!(setting.last().0 == 2 && is_failed(setting.last().1, Failure::Busy));
    setting.ask(3, 1, "three", Operation::Get(Get::PLAIN));
    assert_eq!(setting.backend.under_way(), 2, "what brings no value is not refused");
    setting.settle();
    assert!(setting.said.iter().any(|(number, reply)| *number == Number(1) && is_stored(reply)));
    setting.ask(4, 4, "two", set(&value));
    setting.settle();
    assert!(setting.last().0 == 4 && is_stored(setting.last().1));
    // One always may be under way, however large.
    setting.ask(5, 5, "large", set(&[7; 5_000]));
    setting.settle();
    assert!(setting.last().0 == 5 && is_stored(setting.last().1));
}

#[test]
fn of_answers_that_cannot_be_kept_it_is_kept_that_nobody_can_say() {
    let mut setting = Setting::new(|_| {});
    let value = vec![7; ITEM_LEN_MAX - 16];
    let names = ["a", "b", "c", "d", "e"];
    for (name, number) in names.iter().zip(1..) {
        setting.ask(number, number, name, set(&value));
        setting.settle();
        assert!(is_stored(setting.last().1));
    }
    // All are let in before one is answered: four of the answers are 64 MiB.
    let touch = Get { touch: Some(Expiry::at(Time(1_000_000_000))), ..Get::PLAIN };
    for (name, number) in names.iter().zip(11..) {
        setting.ask(number, 11, name, Operation::Get(touch));
    }
    setting.settle();
    for (number, reply) in setting.said.iter().rev().take(5) {
        assert!(matches!(reply, Reply::Hit(_, Some(found)) if found.len() == value.len()), "{number:?}");
    }
    setting.ask(11, 11, "a", Operation::Get(touch));
    assert!(matches!(setting.last(), (11, Reply::Hit(_, Some(_)))));
    setting.ask(15, 11, "e", Operation::Get(touch));
    assert!(setting.last().0 == 15 && is_failed(setting.last().1, Failure::Unknown));
    setting.ask(17, 16, "a", set(b"y"));
    setting.settle();
    assert!(setting.last().0 == 17 && is_stored(setting.last().1));
}

#[test]
fn a_change_whose_answer_might_not_fit_waits_until_others_are_done_with() {
    let mut setting = Setting::new(|_| {});
    let value = vec![7; ITEM_LEN_MAX - 16];
    let names = ["a", "b", "c", "d"];
    for (name, number) in names.iter().zip(1..) {
        setting.ask(number, number, name, set(&value));
        setting.settle();
    }
    let touch = Get { touch: Some(Expiry::at(Time(1_000_000_000))), ..Get::PLAIN };
    for (name, number) in names.iter().zip(11..) {
        setting.ask(number, 11, name, Operation::Get(touch));
    }
    setting.settle();
    // Four are kept, nearly 64 MiB: no fifth is let in,
    setting.ask(15, 11, "a", Operation::Get(touch));
    setting.settle();
    assert_eq!((setting.last().0, setting.backend.counts().repeated), (14, 1));
    // unless it is the lowest, or another is done with.
    setting.ask(15, 12, "a", Operation::Get(touch));
    setting.settle();
    assert!(matches!(setting.last(), (15, Reply::Hit(_, Some(_)))));
    setting.ask(16, 16, "a", Operation::Get(touch));
    setting.settle();
    assert!(matches!(setting.last(), (16, Reply::Hit(_, Some(_)))));
}

#[test]
fn an_item_of_a_larger_limit_is_given_to_no_cache_and_one_that_no_message_carries_fails() {
    let mut setting =
        Setting::new(|config| (config.item_len_max, config.caches) = (1_000, [CACHE].into_iter().collect()));
    let record = |len| Record {
        flags: 0,
        expires_unix_s: 0,
        version: 1,
        generation: Generation(0),
        stale: false,
        win_sent: false,
        value: vec![7; len].into(),
    };
    let records = [("fits", 900), ("larger", 2_000), ("too large", ITEM_LEN_MAX + 1)];
    setting.records.extend(records.map(|(key, len)| (key.as_bytes().into(), record(len))));
    // The leases of earlier lives have run out.
    setting.now = setting.now + Span::from_s(600);
    setting.step(Happened::Tick);
    setting.settle();
    setting
        .step(Happened::Message(CACHE, Message::Open { opening: SESSION.opening, at: setting.now, in_charge: true }));
    for ((key, _), seq) in records.iter().zip(1..) {
        let key = KeyBytes(key.as_bytes().into());
        let (ack, body) = (Seq(seq - 1), Some(Body::Fetch(key.clone())));
        setting.step(Happened::Message(CACHE, Message::Told { session: SESSION, ack, seq: Seq(seq), body }));
        setting.settle();
        let Some(Body::Value(told, copy)) = setting.told.last() else { panic!("nothing was told") };
        assert_eq!((told, copy.is_some()), (&key, seq == 1));
    }
    setting.ask(1, 1, "larger", Operation::Get(Get::PLAIN));
    setting.settle();
    assert!(matches!(setting.last(), (1, Reply::Hit(_, Some(_)))));
    setting.ask(2, 2, "too large", Operation::Get(Get::PLAIN));
    setting.settle();
    assert!(setting.last().0 == 2 && is_failed(setting.last().1, Failure::Refused));
    let touch = Get { touch: Some(Expiry::at(Time(1_000_000_000))), ..Get::PLAIN };
    setting.ask(3, 3, "too large", Operation::Get(touch));
    setting.settle();
    assert!(setting.last().0 == 3, "it is told what became of it");
    assert!(matches!(setting.last().1, Reply::Answer(Answer::Failed(_), _)), "and nothing that cannot come");
}
