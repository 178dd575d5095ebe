//! A gateway that is asked, backends of which some answer, and a cache node that has nothing and may say so.

use std::time::Duration;

use guira_chain::Reply;
use guira_cluster::{Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::{Answer, Expiry, Get, Key, Moment, Operation, Span, Store, StoreMode};
use guira_routing::{KeyHash, NodeId, RuleUpdate};
use guira_switched::{
    Ask, AskId, Asker, Body, CacheMode, Life, Member, Message, Number, Outbox, Role, Said, StaticFile,
    gateway::{Gateway, Happened},
    hash_of,
};

const CONTROLLER: NodeId = NodeId(1);
const GATEWAY: NodeId = NodeId(2);
pub(crate) const CACHE: NodeId = NodeId(100);
pub(crate) const BACKENDS: [NodeId; 2] = [NodeId(1_000), NodeId(1_001)];

pub(crate) const SET: Operation<'_> = Operation::Store(Store {
    mode: StoreMode::Set,
    flags: 0,
    expiry: Expiry::NEVER,
    cas: None,
    vivify: None,
    value: b"v",
});

/// A read by which somebody may win.
pub(crate) const WIN: Operation<'_> = Operation::Get(Get { wins: true, ..Get::PLAIN });

/// A gateway that is told of time as often as it wants, backends of which some answer, and a cache node.
pub(crate) struct Setting {
    pub(crate) gateway: Gateway,
    pub(crate) now: Moment,
    pub(crate) asked: u64,
    /// They begin sessions.
    pub(crate) alive: Vec<NodeId>,
    /// They answer requests, too.
    pub(crate) answering: Vec<NodeId>,
    pub(crate) answers: Vec<(AskId, Reply)>,
    /// The cache node has nothing, and says so.
    pub(crate) has_cache: bool,
    /// The life that backends are in.
    pub(crate) incarnation: Incarnation,
    /// Messages that backends were told.
    pub(crate) told: usize,
    /// Where the network brings what goes by its content, instead of to its backend.
    pub(crate) leads_to: Option<NodeId>,
    /// What went so: the backends, and the hashes of the keys.
    pub(crate) routed: Vec<(NodeId, KeyHash)>,
    /// Who asked last, and under which number.
    last: Option<(SessionId, Number)>,
}

impl Setting {
    /// By a file's settings, whose members are these.
    pub(crate) fn new(settings: StaticFile) -> Self {
        let member = |node: NodeId, role| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role);
        let gateway = Role::Gateway { listen: ([127, 0, 0, 1], 9).into(), cache_mode: CacheMode::default() };
        let mut members =
            vec![member(CONTROLLER, Role::Controller), member(GATEWAY, gateway), member(CACHE, Role::CACHE)];
        members.extend(BACKENDS.map(|backend| member(backend, Role::backend(None))));
        let file = StaticFile { members, ..settings };
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
            leads_to: None,
            routed: Vec::new(),
            last: None,
        }
    }

    /// The controller has the keys of a backend asked of the cache node first.
    pub(crate) fn is_given_a_rule(&mut self, backend: NodeId) {
        let lease = Span::from_s(3_600);
        let session = SessionId { incarnation: Incarnation(1), opening: Opening::first_of(Incarnation(7)) };
        self.step(Happened::Message(CONTROLLER, Message::Opened { session, at: self.now, lease }));
        let rule = RuleUpdate::Install { hash: hash_of(self.key_of(backend).as_bytes()), choices: CACHE.into() };
        let body = Some(Body::Routes(vec![rule]));
        self.step(Happened::Message(CONTROLLER, Message::Told { session, ack: Seq(0), seq: Seq(1), body }));
        assert_eq!(self.gateway.routes(), 1);
    }

    pub(crate) fn key_of(&self, backend: NodeId) -> String {
        let file = StaticFile {
            members: BACKENDS
                .map(|node| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), Role::backend(None)))
                .into(),
            ..StaticFile::default()
        };
        let map = file.shares().expect("it has backends").map;
        let mut names = (0..).map(|number| format!("key{number}"));
        names.find(|name| map.owner_of(hash_of(name.as_bytes())) == backend).expect("each has some")
    }

    pub(crate) fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.gateway.step(self.now, happened, &mut out);
        let mut told: Vec<(NodeId, Vec<u8>)> = out.sends().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        for (backend, hash, bytes) in out.gets() {
            self.routed.push((backend, hash));
            told.push((self.leads_to.unwrap_or(backend), bytes.to_vec()));
        }
        self.answers.append(&mut out.answers);
        for (to, bytes) in told {
            self.hears(to, &Message::decode(&bytes).expect("a message"));
        }
    }

    /// What a member does with what it is told.
    fn hears(&mut self, member: NodeId, message: &Message<'_>) {
        let incarnation = self.incarnation;
        if let Message::Request(Ask { asker: Asker { session, number, .. }, .. }) = message {
            self.last = Some((*session, *number));
        }
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

    /// A member says, late, that it has nothing of what was asked for last.
    pub(crate) fn says_nothing_is_there(&mut self, member: NodeId) {
        let (session, number) = self.last.expect("somebody was asked");
        let said = Said::of(&Reply::Answer(Answer::Miss, None));
        self.step(Happened::Message(member, Message::Reply { session, number, via: None, said }));
    }

    /// A member says that what was asked for last is another's by now.
    pub(crate) fn says_it_has_moved(&mut self, member: NodeId) {
        let (session, number) = self.last.expect("somebody was asked");
        self.step(Happened::Message(member, Message::Moved { session, number }));
    }

    /// Time passes, as its timers want it.
    pub(crate) fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(at) = self.gateway.wake_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.step(Happened::Tick);
        }
        self.now = until;
    }

    pub(crate) fn ask(&mut self, backend: NodeId, operation: Operation<'_>) -> AskId {
        self.asked += 1;
        let (id, name) = (AskId(self.asked), self.key_of(backend));
        self.step(Happened::Ask(id, Key::new(name.as_bytes()).expect("a key"), operation));
        id
    }

    pub(crate) fn reads(&mut self, backend: NodeId) -> AskId {
        self.ask(backend, Operation::Get(Get::PLAIN))
    }

    /// How often a request was answered.
    pub(crate) fn answers_of(&self, id: AskId) -> usize {
        self.answers.iter().filter(|(of, _)| *of == id).count()
    }

    /// What a request was answered; nothing yet.
    pub(crate) fn answer(&self, id: AskId) -> Option<&Answer> {
        self.answers.iter().find(|(of, _)| *of == id).map(|(_, reply)| match reply {
            Reply::Answer(answer, _) => answer,
            Reply::Hit(..) => panic!("nothing is there to be read"),
        })
    }
}
