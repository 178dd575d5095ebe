//! A gateway where one backend takes another's place: what becomes of what that was asked.

use std::time::Duration;

use guira_chain::Reply;
use guira_cluster::{Incarnation, NodeClock, SessionId};
use guira_item::{Answer, Expiry, Failure, Get, Key, Moment, Operation, Store, StoreMode, Time};
use guira_routing::NodeId;
use guira_switched::{
    AskId, CacheMode, Life, Member, Message, Number, Outbox, Revision, Role, Shares, StaticFile,
    gateway::{Gateway, GatewayConfig, Happened, PENDING_MAX},
};

const CONTROLLER: NodeId = NodeId(1);
const BACKEND: NodeId = NodeId(3);
const GATEWAY: NodeId = NodeId(4);
const OTHER: NodeId = NodeId(6);

fn file(backends: &[NodeId]) -> StaticFile {
    let gateway = Role::Gateway { listen: ([127, 0, 0, 1], 1).into(), cache_mode: CacheMode::default() };
    let backends = backends.iter().map(|backend| (*backend, Role::backend(None)));
    let roles = [(CONTROLLER, Role::Controller), (GATEWAY, gateway)].into_iter().chain(backends);
    let member = |(node, role): (NodeId, Role)| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role);
    StaticFile { members: roles.into_iter().map(member).collect(), ..StaticFile::default() }
}

/// What a gateway says, and answers.
struct Said {
    told: Vec<(NodeId, Vec<u8>)>,
    answers: Vec<(AskId, Reply)>,
}

/// A gateway with a session with its one backend.
struct Asking {
    gateway: Gateway,
    now: Moment,
}

impl Asking {
    fn new() -> Self {
        Self::with_room_for(PENDING_MAX)
    }

    /// One that has so many operations under way for a backend at most.
    fn with_room_for(pending_max: usize) -> Self {
        let now = Moment::from_ns(1_000_000_000);
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let file = file(&[BACKEND]);
        let life = Life { incarnation: Incarnation(7), clock, seed: 1 };
        let config = file.gateway_config(GATEWAY, &file.shares().expect("it has a backend"), life);
        let mut asking = Self { gateway: Gateway::new(GatewayConfig { pending_max, ..config }), now };
        // A session begins with the first request.
        let said = asking.asks(0, Operation::Get(Get::PLAIN));
        asking.is_let_in(BACKEND, &said);
        asking
    }

    /// A backend that was asked for a session has begun it.
    fn is_let_in(&mut self, backend: NodeId, said: &Said) -> (SessionId, Said) {
        let opening = said.told.iter().find_map(|(to, bytes)| match Message::decode(bytes) {
            Ok(Message::Join { opening }) if *to == backend => Some(opening),
            _ => None,
        });
        let session = SessionId { incarnation: Incarnation(7), opening: opening.expect("it joins") };
        (session, self.step(Happened::Message(backend, Message::Joined { session })))
    }

    fn step(&mut self, happened: Happened<'_>) -> Said {
        let mut out = Outbox::default();
        self.gateway.step(self.now, happened, &mut out);
        Said { told: out.sends().map(|(to, bytes)| (to, bytes.to_vec())).collect(), answers: out.answers }
    }

    fn asks(&mut self, id: u64, operation: Operation<'_>) -> Said {
        self.step(Happened::Ask(AskId(id), Key::new(b"k").expect("a key"), operation))
    }

    /// Another has what the first one had, which is none any more.
    fn is_replaced(&mut self) -> Said {
        let file = file(&[OTHER]);
        let shares = Shares { revision: Revision(9), ..file.shares().expect("it has a backend") };
        self.step(Happened::View(&file.view(shares)))
    }

    /// Another has what the first one had, which is still there.
    fn has_given(&mut self) -> Said {
        let shares = Shares { revision: Revision(9), ..file(&[OTHER]).shares().expect("it has a backend") };
        self.step(Happened::View(&file(&[BACKEND, OTHER]).view(shares)))
    }
}

/// The numbers under which a backend was asked.
fn asked(said: &Said, whom: NodeId) -> Vec<Number> {
    let number = |(to, bytes): &(NodeId, Vec<u8>)| match Message::decode(bytes) {
        Ok(Message::Request(ask)) if *to == whom => Some(ask.asker.number),
        _ => None,
    };
    said.told.iter().filter_map(number).collect()
}

/// Whether one thing was answered, and nobody knows what came of it.
fn is_unknown(said: &Said, asked: AskId) -> bool {
    matches!(said.answers[..], [(answered, Reply::Answer(Answer::Failed(Failure::Unknown), _))] if answered == asked)
}

#[test]
fn what_was_asked_of_a_backend_that_has_gone_is_of_unknown_outcome_and_reads_are_asked_of_who_has_it() {
    let mut asking = Asking::new();
    let store = Store { mode: StoreMode::Set, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value: b"v" };
    let asked = asking.asks(1, Operation::Store(store));
    assert!(matches!(asked.told[..], [(BACKEND, _)]));
    let replaced = asking.is_replaced();
    assert!(is_unknown(&replaced, AskId(1)), "and the read is not answered: {:?}", replaced.answers);
    let joins = |said: &Said, whom| {
        let is_one =
            |(to, bytes): &(NodeId, Vec<u8>)| *to == whom && matches!(Message::decode(bytes), Ok(Message::Join { .. }));
        said.told.iter().any(is_one)
    };
    assert!(joins(&replaced, OTHER) && !joins(&replaced, BACKEND));
    assert_eq!(asking.gateway.pending(), 1);
}

#[test]
fn a_flush_that_was_on_its_way_to_a_backend_that_has_gone_is_of_unknown_outcome() {
    let mut asking = Asking::new();
    asking.step(Happened::Flush(AskId(2), Time::default()));
    assert!(is_unknown(&asking.is_replaced(), AskId(2)));
    assert_eq!(asking.gateway.pending(), 1);
}

#[test]
fn what_has_moved_is_refused_where_its_new_backend_is_asked_for_as_much_as_may_be() {
    const GET: Operation<'_> = Operation::Get(Get::PLAIN);
    let is_refused = |said: &Said, id| matches!(said.answers[..], [(answered, Reply::Answer(Answer::Failed(Failure::Busy), _))] if answered == AskId(id));
    let mut asking = Asking::with_room_for(2);
    // Beside the one that it began with.
    let first = asked(&asking.asks(1, GET), BACKEND);
    let given = asking.has_given();
    assert!(given.told.is_empty() && given.answers.is_empty(), "what was sent may be answered yet");
    let joins = asking.asks(2, GET);
    let (session, sent) = asking.is_let_in(OTHER, &joins);
    let open = asked(&sent, OTHER);
    let moved = |number| Message::Moved { session, number };
    // There is room for one, and then for none. Sessions with different backends have the same names.
    let goes_on = asking.step(Happened::Message(BACKEND, moved(first[0])));
    assert_eq!((asked(&goes_on, OTHER).len(), goes_on.answers.len()), (1, 0));
    assert!(is_refused(&asking.asks(3, GET), 3));
    let refused = asking.step(Happened::Message(BACKEND, moved(Number(first[0].0 - 1))));
    assert!(is_refused(&refused, 0) && refused.told.is_empty(), "{:?}", refused.answers);
    let counts = asking.gateway.counts();
    assert_eq!((counts.moved, counts.refused, asking.gateway.pending()), (2, 2, 2));

    let miss = guira_switched::Said::Answer { answer: Answer::Miss, death: None };
    let reply = Message::Reply { session, number: open[0], via: None, said: miss };
    assert!(matches!(asking.step(Happened::Message(OTHER, reply)).answers[..], [(AskId(2), _)]));
    assert_eq!(asked(&asking.asks(4, GET), OTHER).len(), 1, "there is room again");
}
