//! A backend where cache nodes and gateways come and go: what it remembers of those that have gone.

use std::time::Duration;

use guira_cluster::{Incarnation, NodeClock, Opening, SessionId};
use guira_item::{
    Expiry, Key, Moment, Operation, Span, Store, StoreMode,
    store::{Found, StoreState, Written},
};
use guira_routing::NodeId;
use guira_switched::{
    Ask, Asker, CacheMode, Life, Member, Message, Number, Outbox, Role, StaticFile, StoreCall, View,
    backend::{Backend, Happened},
    hash_of,
};

const CONTROLLER: NodeId = NodeId(1);
const CACHE: NodeId = NodeId(2);
const BACKEND: NodeId = NodeId(3);
const GATEWAYS: [NodeId; 2] = [NodeId(4), NodeId(5)];

const LEASE: Span = Span::from_s(1);

fn file(members: &[NodeId]) -> StaticFile {
    let role = |node: &NodeId| match *node {
        CONTROLLER => Role::Controller,
        CACHE => Role::CACHE,
        BACKEND => Role::backend(None),
        _ => Role::Gateway { listen: ([127, 0, 0, 1], 1).into(), cache_mode: CacheMode::default() },
    };
    let member = |node: &NodeId| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role(node));
    StaticFile { members: members.iter().map(member).collect(), ..StaticFile::default() }
}

/// A backend that serves, and whose store does at once what it is asked.
struct Setting {
    backend: Backend,
    now: Moment,
    /// Writes of items.
    writes: usize,
    told: Vec<(NodeId, Vec<u8>)>,
}

impl Setting {
    fn new() -> Self {
        let now = Moment::from_ns(1_000_000_000);
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let all = file(&[CONTROLLER, CACHE, BACKEND, GATEWAYS[0], GATEWAYS[1]]);
        let life = Life { incarnation: Incarnation(7), clock, seed: 1 };
        let mut config = all.backend_config(BACKEND, &all.shares().expect("it has a backend"), life);
        (config.caches_change, config.lease) = (true, LEASE);
        let backend = Backend::new(config, StoreState::default(), now);
        let mut setting = Self { backend, now, writes: 0, told: Vec::new() };
        setting.pass(LEASE.times(2));
        assert!(setting.backend.serves());
        setting
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.backend.step(self.now, happened, &mut out);
        self.told.extend(out.sends().map(|(to, bytes)| (to, bytes.to_vec())));
        for call in out.store.drain(..) {
            match call {
                StoreCall::Read(key) => self.step(Happened::Read(key, Ok(Found::default()))),
                StoreCall::Write(key, _) => {
                    self.writes += 1;
                    self.step(Happened::Written(key, Ok(Written::All)));
                }
                StoreCall::State(_) => self.step(Happened::StateWritten(Ok(Written::All))),
                StoreCall::Scan(_) | StoreCall::Fence(_) | StoreCall::Flush => panic!("nothing moves here: {call:?}"),
            }
        }
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.step(Happened::Tick);
        self.step(Happened::Tick);
    }

    fn view(&mut self, members: &[NodeId]) {
        let file = file(members);
        let view: View = file.view(file.shares().expect("it has a backend"));
        self.step(Happened::View(&view));
    }

    fn hears(&mut self, from: NodeId, message: Message<'_>) {
        self.step(Happened::Message(from, message));
    }

    /// What somebody was told, and not asked for yet.
    fn told(&mut self, to: NodeId) -> Vec<Message<'static>> {
        let told = self.told.extract_if(.., |(node, _)| *node == to).map(|(_, bytes)| bytes);
        told.map(|bytes| Message::decode(bytes.leak()).expect("a message")).collect()
    }
}

const SESSION: SessionId = SessionId { incarnation: Incarnation(7), opening: Opening(100) };

fn sets(number: u64) -> Message<'static> {
    let asker = Asker { gateway: GATEWAYS[0], session: SESSION, number: Number(number), done_below: Number(0) };
    let (key, mode) = (Key::new(b"k").expect("a key"), StoreMode::Set);
    let store = Store { mode, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value: b"v" };
    Message::Request(Ask { asker, hash: hash_of(b"k"), key, operation: Operation::Store(store) })
}

#[test]
fn what_comes_late_of_a_gateway_that_has_gone_is_not_carried_out_once_it_is_back() {
    let all = [CONTROLLER, CACHE, BACKEND, GATEWAYS[0], GATEWAYS[1]];
    let mut setting = Setting::new();
    let join = || Message::Join { opening: SESSION.opening };
    setting.hears(GATEWAYS[0], join());
    assert_eq!(setting.told(GATEWAYS[0]), [Message::Joined { session: SESSION }]);
    // Nothing was asked yet: it may go on as if it had never gone.
    setting.view(&[CONTROLLER, CACHE, BACKEND, GATEWAYS[1]]);
    setting.hears(GATEWAYS[0], sets(1));
    assert_eq!((setting.told(GATEWAYS[0]), setting.writes), (vec![], 0), "it is nobody");
    setting.view(&all);
    setting.hears(GATEWAYS[0], join());
    assert_eq!(setting.told(GATEWAYS[0]), [Message::Joined { session: SESSION }]);
    setting.hears(GATEWAYS[0], sets(1));
    assert_eq!((setting.told(GATEWAYS[0]).len(), setting.writes), (1, 1));
    setting.view(&[CONTROLLER, CACHE, BACKEND, GATEWAYS[1]]);
    setting.view(&all);
    // Both were under way all the time.
    setting.hears(GATEWAYS[0], join());
    setting.hears(GATEWAYS[0], sets(1));
    let gone = || Message::Gone { session: SESSION };
    assert_eq!(
        (setting.told(GATEWAYS[0]), setting.writes),
        (vec![gone(), gone()], 1),
        "also who only probes hears of it"
    );
    let opening = SESSION.opening.next();
    setting.hears(GATEWAYS[0], Message::Join { opening });
    assert_eq!(setting.told(GATEWAYS[0]), [Message::Joined { session: SessionId { opening, ..SESSION } }]);
}

#[test]
fn a_session_of_a_cache_node_that_has_gone_is_not_begun_again() {
    let mut setting = Setting::new();
    let (opening, at) = (Opening(50), setting.now);
    let open = || Message::Open { opening, at, in_charge: true };
    setting.hears(CACHE, open());
    let session = SessionId { opening, ..SESSION };
    assert!(matches!(setting.told(CACHE)[..], [Message::Opened { session: begun, .. }] if begun == session));
    setting.view(&[CONTROLLER, BACKEND, GATEWAYS[0]]);
    setting.pass(LEASE.times(2));
    setting.hears(CACHE, open());
    assert_eq!(setting.told(CACHE), [], "it is nobody");
    setting.view(&[CONTROLLER, CACHE, BACKEND, GATEWAYS[0]]);
    setting.hears(CACHE, open());
    let void = Message::Void { incarnation: SESSION.incarnation, up_to: opening };
    assert_eq!(setting.told(CACHE), [void], "what was told in it may still be under way");
}
