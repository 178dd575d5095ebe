//! A backend that gives a partition to another: what a read shows that nobody knew of is told, too.

use std::{collections::VecDeque, time::Duration};

use guira_cluster::{CLOCK, Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::{
    Get, Key, Moment, Operation, Span,
    store::{Found, Generation, Record, StoreState, Written},
};
use guira_routing::{NodeId, PartitionId, PartitionMap};
use guira_switched::{
    Ask, Asker, Body, CacheMode, Life, Member, Message, Number, Outbox, Revision, Role, Scan, Scanned, Shares,
    StaticFile, StoreCall,
    backend::{Backend, Happened},
    hash_of,
};

const GATEWAY: NodeId = NodeId(2);
const GIVER: NodeId = NodeId(3);
const TAKER: NodeId = NodeId(4);

const KEY: &[u8] = b"key";

/// When a giver begins.
const UNIX_S: u64 = 1_800_000_000;

/// Longer than it is waited after the first attempts that come to nothing.
const A_WHILE: Span = Span::from_s(2);

struct Giver {
    backend: Backend,
    now: Moment,
    /// The session with the taker, if there is one.
    session: Option<SessionId>,
    /// The last message that it was told in it.
    seq: u64,
    /// What its store is to do.
    calls: VecDeque<StoreCall>,
    /// What it has told the taker in it.
    told: Vec<Body>,
    asked: u64,
}

impl Giver {
    /// One that gives the partition of [`KEY`], for which the taker has made room.
    fn copying() -> Self {
        let backend = |node: NodeId| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), Role::backend(None));
        let role = Role::Gateway { listen: ([127, 0, 0, 1], 1).into(), cache_mode: CacheMode::default() };
        let gateway = Member { role, ..backend(GATEWAY) };
        let file = StaticFile { members: vec![gateway, backend(GIVER), backend(TAKER)], ..StaticFile::default() };
        let map = PartitionMap::over(&[GIVER]).expect("a map");
        let wanted = map.with_owner([PartitionId::of(hash_of(KEY))], TAKER);
        let shares = Shares { map: map.into(), revision: Revision(1), wanted: wanted.into() };
        let now = Moment::from_ns(1_000_000_000);
        let clock = NodeClock::set(now, Duration::from_secs(UNIX_S));
        let life = Life { incarnation: Incarnation(7), clock, seed: 1 };
        let core = Backend::new(file.backend_config(GIVER, &shares, life), StoreState::default(), now);
        let (calls, told) = (VecDeque::new(), Vec::new());
        let mut giver = Self { backend: core, now, session: None, seq: 0, calls, told, asked: 0 };
        giver.step(Happened::Tick);
        assert!(matches!(giver.calls.pop_front(), Some(StoreCall::State(_))));
        giver.step(Happened::StateWritten(Ok(Written::All)));
        giver.go_on();
        giver.step(Happened::Message(GATEWAY, Message::Join { opening: Opening(1) }));
        giver.make_room();
        giver
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.backend.step(self.now, happened, &mut out);
        self.calls.extend(out.store.drain(..));
        for (_, bytes) in out.sends().filter(|(to, _)| *to == TAKER) {
            match Message::decode(bytes).expect("a message") {
                Message::Open { opening, .. } => {
                    self.session = Some(SessionId { incarnation: Incarnation(9), opening });
                    (self.seq, self.told) = (0, Vec::new());
                }
                Message::Given { body: Some(body), session, .. } if Some(session) == self.session => {
                    self.told.push(body);
                }
                _ => {}
            }
        }
    }

    /// Time goes by until it begins a session.
    fn go_on(&mut self) {
        for _ in 0..20 {
            if self.session.is_some() {
                return;
            }
            self.now = self.now + A_WHILE;
            self.step(Happened::Tick);
        }
        panic!("it gives nothing");
    }

    /// The taker opens the session, and has room: the giver scans.
    fn make_room(&mut self) {
        let session = self.session.expect("there is one");
        self.step(Happened::Message(TAKER, Message::Opened { session, at: self.now, lease: Span::from_s(60) }));
        assert!(matches!(&*self.told, [Body::Begin { .. }]), "{:?}", self.told);
        self.told.clear();
        self.hear(Body::Ready);
    }

    fn hear(&mut self, body: Body) {
        self.seq += 1;
        let (session, seq) = (self.session.expect("there is one"), Seq(self.seq));
        self.step(Happened::Message(TAKER, Message::Told { session, ack: Seq(1), seq, body: Some(body) }));
    }

    /// Its store has looked through all that it has, and has seen these keys.
    fn scan_shows(&mut self, keys: &[&[u8]]) {
        let Some(StoreCall::Scan(Scan { number, .. })) = self.calls.pop_front() else { panic!("it scans") };
        let keys = keys.iter().map(|key| (*key).into()).collect();
        self.step(Happened::Scanned(number, Ok(Scanned { keys, more_after: None })));
    }

    /// A client reads the key.
    fn is_asked(&mut self) {
        self.asked += 1;
        let session = SessionId { incarnation: Incarnation(7), opening: Opening(1) };
        let number = Number(self.asked);
        let asker = Asker { gateway: GATEWAY, session, number, done_below: number };
        let key = Key::new(KEY).expect("a key");
        let ask = Ask { asker, hash: hash_of(KEY), key, operation: Operation::Get(Get::PLAIN) };
        self.step(Happened::Message(GATEWAY, Message::Request(ask)));
    }

    /// Its store has read the key.
    fn reads(&mut self, is_news: bool) {
        assert_eq!(self.calls.pop_front(), Some(StoreCall::Read(KEY.into())));
        let record = Record {
            flags: 0,
            expires_unix_s: 0,
            version: 1,
            generation: Generation(0),
            stale: false,
            win_sent: false,
            value: b"value"[..].into(),
        };
        self.step(Happened::Read(KEY.into(), Ok(Found { record: Some(record), is_news })));
    }

    /// How often it has told of the key.
    fn told_of_key(&self) -> usize {
        self.told.iter().filter(|body| matches!(body, Body::Record(key, Some(_)) if *key.0 == *KEY)).count()
    }
}

/// A change of which nobody knew had come once the scan had passed.
#[test]
fn what_a_read_shows_that_nobody_knew_of_is_told() {
    let mut giver = Giver::copying();
    giver.scan_shows(&[]);
    assert_eq!(giver.told, [Body::Mark]);
    giver.is_asked();
    giver.reads(false);
    assert_eq!(giver.told_of_key(), 0, "the scan would have shown it");
    giver.is_asked();
    giver.reads(true);
    assert_eq!(giver.told_of_key(), 1);
}

#[test]
fn what_is_read_for_a_scan_is_told_once() {
    let mut giver = Giver::copying();
    giver.scan_shows(&[KEY]);
    giver.reads(true);
    assert_eq!(giver.told_of_key(), 1);
    assert_eq!(giver.told.last(), Some(&Body::Mark));
}

#[test]
fn what_was_read_for_an_attempt_that_is_over_is_told_in_the_next_one() {
    let mut giver = Giver::copying();
    giver.scan_shows(&[KEY]);
    // The store takes its time; the taker has forgotten the session, and makes room in the next one. The scan passes before what is late comes.
    let session = giver.session.take().expect("there is one");
    giver.step(Happened::Message(TAKER, Message::Gone { session }));
    let read = giver.calls.pop_front().expect("it is under way");
    giver.go_on();
    giver.make_room();
    giver.scan_shows(&[]);
    assert_eq!((giver.told_of_key(), giver.told.last()), (0, Some(&Body::Mark)));
    giver.calls.push_front(read);
    giver.reads(true);
    assert_eq!(giver.told_of_key(), 1);
}

/// Its taker would not have the same to come.
#[test]
fn nothing_is_given_while_what_is_to_come_changes_and_then_the_taker_is_told_of_it() {
    let mut giver = Giver::copying();
    giver.session = None;
    giver.calls.clear();
    let session = SessionId { incarnation: Incarnation(7), opening: Opening(1) };
    let asker = Asker { gateway: GATEWAY, session, number: Number(1), done_below: Number(0) };
    let at = CLOCK.from_unix_s(UNIX_S + 3_600);
    giver.step(Happened::Message(GATEWAY, Message::Flush { asker, at, revision: Revision(1) }));
    assert!(matches!(giver.calls.pop_front(), Some(StoreCall::State(_))));
    for _ in 0..20 {
        giver.now = giver.now + A_WHILE;
        giver.step(Happened::Tick);
        assert_eq!(giver.session, None);
    }
    giver.step(Happened::StateWritten(Ok(Written::All)));
    giver.go_on();
    let session = giver.session.expect("there is one");
    giver.step(Happened::Message(TAKER, Message::Opened { session, at: giver.now, lease: Span::from_s(60) }));
    let told = &*giver.told;
    assert!(matches!(told, [Body::Begin { flush_at_unix_s, .. }] if *flush_at_unix_s == UNIX_S + 3_600), "{told:?}");
}
