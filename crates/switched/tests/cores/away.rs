//! A gateway whose backend falls silent: what it is asked is refused at once after a while, and carried out again once it is heard of.

use std::time::Duration;

use guira_chain::Reply;
use guira_cluster::{Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::{Answer, Expiry, Failure, Get, Key, Moment, Operation, Span, Store, StoreMode, Time};
use guira_routing::{NodeId, RuleUpdate};
use guira_switched::{
    Ask, AskId, Asker, Body, CacheMode, Life, Member, Message, Outbox, Role, Said, StaticFile,
    gateway::{Gateway, Happened},
    hash_of,
};

const CONTROLLER: NodeId = NodeId(1);
const GATEWAY: NodeId = NodeId(2);
const CACHE: NodeId = NodeId(100);
const BACKENDS: [NodeId; 2] = [NodeId(1_000), NodeId(1_001)];

const SET: Operation<'_> = Operation::Store(Store {
    mode: StoreMode::Set,
    flags: 0,
    expiry: Expiry::NEVER,
    cas: None,
    vivify: None,
    value: b"v",
});

/// A gateway that is told of time as often as it wants, backends of which some answer, and a cache node of which nothing is heard.
struct Setting {
    gateway: Gateway,
    now: Moment,
    asked: u64,
    /// They begin sessions.
    alive: Vec<NodeId>,
    /// They answer requests, too.
    answering: Vec<NodeId>,
    answers: Vec<(AskId, Reply)>,
    /// The cache node has nothing, and says so.
    has_cache: bool,
    /// The life that backends are in.
    incarnation: Incarnation,
    /// Messages that backends were told.
    told: usize,
}

impl Setting {
    fn new(answer_within_ms: u64) -> Self {
        let member = |node: NodeId, role| Member { id: node.0, address: ([127, 0, 0, 1], node.0).into(), role };
        let gateway = Role::Gateway { listen: ([127, 0, 0, 1], 9).into(), cache_mode: CacheMode::default() };
        let mut members =
            vec![member(CONTROLLER, Role::Controller), member(GATEWAY, gateway), member(CACHE, Role::CACHE)];
        members.extend(BACKENDS.map(|backend| member(backend, Role::backend(None))));
        let file = StaticFile { members, answer_within_ms, ..StaticFile::default() };
        let now = Moment::from_ns(1_000_000_000);
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let life = Life { incarnation: Incarnation(7), clock, seed: 1 };
        let gateway = Gateway::new(file.gateway_config(GATEWAY, &file.shares().expect("it has backends"), life));
        let (alive, answering) = (BACKENDS.to_vec(), BACKENDS.to_vec());
        Self {
            gateway,
            now,
            asked: 0,
            alive,
            answering,
            answers: Vec::new(),
            has_cache: false,
            incarnation: Incarnation(9),
            told: 0,
        }
    }

    /// The controller has the keys of a backend asked of the cache node first.
    fn is_given_a_rule(&mut self, backend: NodeId) {
        let lease = Span::from_s(3_600);
        let session = SessionId { incarnation: Incarnation(1), opening: Opening::first_of(Incarnation(7)) };
        self.step(Happened::Message(CONTROLLER, Message::Opened { session, at: self.now, lease }));
        let rule = RuleUpdate::Install { hash: hash_of(self.key_of(backend).as_bytes()), choices: CACHE.into() };
        let body = Some(Body::Routes(vec![rule]));
        self.step(Happened::Message(CONTROLLER, Message::Told { session, ack: Seq(0), seq: Seq(1), body }));
        assert_eq!(self.gateway.routes(), 1);
    }

    fn key_of(&self, backend: NodeId) -> String {
        let file = StaticFile {
            members: BACKENDS
                .map(|node| Member { id: node.0, address: ([127, 0, 0, 1], node.0).into(), role: Role::backend(None) })
                .into(),
            ..StaticFile::default()
        };
        let map = file.shares().expect("it has backends").map;
        let mut names = (0..).map(|number| format!("key{number}"));
        names.find(|name| map.owner_of(hash_of(name.as_bytes())) == backend).expect("each has some")
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.gateway.step(self.now, happened, &mut out);
        let told: Vec<(NodeId, Vec<u8>)> = out.sends().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.answers.append(&mut out.answers);
        for (to, bytes) in told {
            self.hears(to, &Message::decode(&bytes).expect("a message"));
        }
    }

    /// What a member does with what it is told.
    fn hears(&mut self, member: NodeId, message: &Message<'_>) {
        let incarnation = self.incarnation;
        self.told += usize::from(BACKENDS.contains(&member));
        match message {
            Message::Join { opening } if self.alive.contains(&member) => {
                let session = SessionId { incarnation, opening: *opening };
                self.step(Happened::Message(member, Message::Joined { session }));
            }
            Message::Request(Ask { asker, .. })
                if self.alive.contains(&member) && asker.session.incarnation != incarnation =>
            {
                self.step(Happened::Message(member, Message::Gone { session: asker.session }));
            }
            Message::Probe(Ask { asker: Asker { session, number, .. }, .. }) if member == CACHE && self.has_cache => {
                self.step(Happened::Message(CACHE, Message::Absent { session: *session, number: *number }));
            }
            Message::Request(ask) if self.answering.contains(&member) => {
                let Asker { session, number, .. } = ask.asker;
                let answer = if ask.operation.only_reads() { Answer::Miss } else { Answer::Stored { cas: 1 } };
                let reply = Reply::Answer(answer, None);
                let said = Said::of(&reply);
                self.step(Happened::Message(member, Message::Reply { session, number, via: None, said }));
            }
            _ => {}
        }
    }

    /// Time passes, as its timers want it.
    fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while self.gateway.wake_at() <= until {
            self.now = self.now.max(self.gateway.wake_at());
            self.step(Happened::Tick);
        }
        self.now = until;
    }

    fn ask(&mut self, backend: NodeId, operation: Operation<'_>) -> AskId {
        self.asked += 1;
        let (id, name) = (AskId(self.asked), self.key_of(backend));
        self.step(Happened::Ask(id, Key::new(name.as_bytes()).expect("a key"), operation));
        id
    }

    fn reads(&mut self, backend: NodeId) -> AskId {
        self.ask(backend, Operation::Get(Get::PLAIN))
    }

    /// What a request was answered; nothing yet.
    fn answer(&self, id: AskId) -> Option<&Answer> {
        self.answers.iter().find(|(of, _)| *of == id).map(|(_, reply)| match reply {
            Reply::Answer(answer, _) => answer,
            Reply::Hit(..) => panic!("nothing is there to be read"),
        })
    }

    fn away(&self) -> u64 {
        self.gateway.counts().away
    }
}

const REFUSED: Option<&Answer> = Some(&Answer::Failed(Failure::Away));
const STORED: Option<&Answer> = Some(&Answer::Stored { cas: 1 });
const UNKNOWN: Option<&Answer> = Some(&Answer::Failed(Failure::Unknown));

/// A setting whose first backend answered, and then was silent for as long as it takes.
fn one_is_away() -> Setting {
    let mut setting = Setting::new(5_000);
    setting.reads(BACKENDS[0]);
    setting.reads(BACKENDS[1]);
    assert_eq!(setting.answers.len(), 2);
    (setting.alive, setting.answering) = (vec![BACKENDS[1]], vec![BACKENDS[1]]);
    let (read, write) = (setting.reads(BACKENDS[0]), setting.ask(BACKENDS[0], SET));
    setting.pass(Span::from_ms(4_999));
    let late = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(read), setting.answer(write), setting.answer(late)), (None, None, None));
    setting.pass(Span::from_ms(1));
    assert_eq!((setting.answer(read), setting.answer(write)), (REFUSED, UNKNOWN));
    assert_eq!(setting.away(), 0, "these have waited");
    setting.pass(Span::from_ms(4_999));
    assert_eq!(setting.answer(late), REFUSED);
    setting
}

#[test]
fn a_backend_that_is_away_has_its_requests_refused_at_once_and_no_other_has() {
    let mut setting = one_is_away();
    let before = setting.told;
    for operation in [Operation::Get(Get::PLAIN), SET] {
        let id = setting.ask(BACKENDS[0], operation);
        assert_eq!(setting.answer(id), REFUSED);
    }
    assert_eq!((setting.away(), setting.told, setting.gateway.pending()), (2, before, 0), "nobody was asked");
    let other = setting.ask(BACKENDS[1], SET);
    assert_eq!(setting.answer(other), STORED);
}

#[test]
fn what_is_asked_once_a_backend_is_heard_of_is_carried_out() {
    let mut setting = one_is_away();
    setting.pass(Span::from_s(60));
    let id = setting.reads(BACKENDS[0]);
    assert_eq!(setting.answer(id), REFUSED, "however long it takes");
    (setting.alive, setting.answering) = (BACKENDS.to_vec(), BACKENDS.to_vec());
    // A probe finds it.
    setting.pass(Span::from_ms(5_000 / 16 + 1));
    let id = setting.ask(BACKENDS[0], SET);
    assert_eq!(setting.answer(id), STORED);
    let before = setting.told;
    setting.pass(Span::from_s(60));
    assert_eq!(setting.told, before, "and it is probed no more");
}

#[test]
fn a_backend_that_is_slow_is_not_away() {
    let mut setting = Setting::new(5_000);
    setting.answering = vec![];
    for _ in 0..3 {
        let id = setting.reads(BACKENDS[0]);
        assert_eq!(setting.answer(id), None);
        setting.pass(Span::from_s(5));
        assert_eq!(setting.answer(id), REFUSED);
    }
    assert_eq!(setting.away(), 0);
}

#[test]
fn a_backend_is_not_away_for_one_lost_answer_however_short_a_time_anybody_waits() {
    let mut setting = Setting::new(100);
    (setting.alive, setting.answering) = (vec![], vec![]);
    let id = setting.reads(BACKENDS[0]);
    setting.pass(Span::from_ms(100));
    assert_eq!(setting.answer(id), REFUSED);
    // Nobody asks it anything meanwhile.
    setting.pass(Span::from_ms(1_500));
    setting.alive = BACKENDS.to_vec();
    setting.pass(Span::from_s(1));
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), setting.away()), (None, 0));
}

#[test]
fn of_a_key_that_is_cached_only_the_cache_node_is_asked_and_where_it_says_nothing_that_is_an_end() {
    let mut setting = one_is_away();
    setting.is_given_a_rule(BACKENDS[0]);
    let before = setting.away();
    let id = setting.reads(BACKENDS[0]);
    assert_eq!(setting.answer(id), None, "the cache node may have it");
    setting.pass(Span::from_ms(500));
    assert_eq!((setting.answer(id), setting.away()), (REFUSED, before + 1));
}

#[test]
fn a_cache_node_that_has_not_got_it_is_not_to_pass_it_on() {
    let mut setting = one_is_away();
    setting.is_given_a_rule(BACKENDS[0]);
    setting.has_cache = true;
    let before = setting.away();
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), setting.away()), (REFUSED, before + 1));
}

#[test]
fn a_gateway_that_has_never_met_its_backend_waits_once() {
    let mut setting = Setting::new(5_000);
    (setting.alive, setting.answering) = (vec![], vec![]);
    setting.is_given_a_rule(BACKENDS[0]);
    let id = setting.reads(BACKENDS[0]);
    setting.pass(Span::from_s(5));
    assert_eq!(setting.answer(id), REFUSED);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), setting.away()), (REFUSED, 1));
}

#[test]
fn what_is_asked_of_the_next_life_of_a_backend_is_not_sent_to_the_one_before() {
    let mut setting = one_is_away();
    setting.incarnation = Incarnation(10);
    (setting.alive, setting.answering) = (BACKENDS.to_vec(), BACKENDS.to_vec());
    setting.pass(Span::from_ms(5_000 / 16 + 1));
    let id = setting.ask(BACKENDS[0], SET);
    assert_eq!(setting.answer(id), STORED);
}

#[test]
fn a_flush_is_refused_before_anybody_is_asked_if_one_is_away() {
    let mut setting = one_is_away();
    let before = setting.told;
    setting.step(Happened::Flush(AskId(100), Time::default()));
    assert_eq!((setting.answer(AskId(100)), setting.told, setting.away()), (REFUSED, before, 1));
}

#[test]
fn a_gateway_that_has_slept_does_not_take_that_for_silence() {
    let mut setting = Setting::new(5_000);
    setting.answering = vec![];
    setting.reads(BACKENDS[0]);
    setting.now = setting.now + Span::from_s(60);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), setting.away()), (None, 0));
}

#[test]
fn one_that_is_back_is_found_soon_however_long_anybody_waits() {
    let mut setting = Setting::new(600_000);
    (setting.alive, setting.answering) = (vec![], vec![]);
    setting.reads(BACKENDS[0]);
    setting.pass(Span::from_s(600));
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), setting.away()), (REFUSED, 1));
    (setting.alive, setting.answering) = (BACKENDS.to_vec(), BACKENDS.to_vec());
    setting.pass(Span::from_ms(500));
    let id = setting.ask(BACKENDS[0], SET);
    assert_eq!(setting.answer(id), STORED);
}
