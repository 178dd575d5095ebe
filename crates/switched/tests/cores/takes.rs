//! A backend that takes a partition from another: what it has said to have it has, and on disk.

use std::{collections::VecDeque, time::Duration};

use guira_cluster::{Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::{
    Expiry, Moment, Span, Time,
    store::{Found, StoreError, StoreErrorKind, StoreState, Write, Written},
};
use guira_routing::{NodeId, PartitionId, PartitionMap};
use guira_switched::{
    Asker, Body, CacheMode, ItemCopy, Life, Member, Message, Number, Outbox, Revision, Role, Scanned, Shares,
    StaticFile, StoreCall,
    backend::{Backend, Happened},
    hash_of,
};

const GIVER: NodeId = NodeId(3);
const TAKER: NodeId = NodeId(4);

const GATEWAY: NodeId = NodeId(5);

const KEY: &[u8] = b"key";

/// When a taker begins.
const UNIX_S: u64 = 1_800_000_000;

/// Above all versions that a backend reserves when it begins.
const LAST_VERSION: u64 = 1 << 40;

struct Taker {
    backend: Backend,
    now: Moment,
    session: SessionId,
    /// The last message that it was told.
    seq: u64,
    /// What its store is to do.
    calls: VecDeque<StoreCall>,
    /// What it has told the giver.
    told: Vec<Body>,
    /// It knows the session no more.
    is_gone: bool,
}

impl Taker {
    /// One that has made room for the partition of [`KEY`].
    fn ready() -> Self {
        let mut taker = Self::begin(PartitionId::of(hash_of(KEY)));
        taker.complete_all();
        assert_eq!(taker.told, [Body::Ready]);
        taker
    }

    /// One that is to take a partition, where that of [`KEY`] is the giver's.
    fn begin(partition: PartitionId) -> Self {
        let wanted = PartitionMap::over(&[TAKER]).expect("a map");
        Self::begin_with(partition, &wanted.with_owner([PartitionId::of(hash_of(KEY))], GIVER), 0)
    }

    /// One that is to take a partition from a giver that has a `flush_all` to come.
    fn begin_with(partition: PartitionId, map: &PartitionMap, flush_at_unix_s: u64) -> Self {
        let backend = |node: NodeId| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), Role::backend(None));
        let gateway = Role::Gateway { listen: ([127, 0, 0, 1], 9).into(), cache_mode: CacheMode::default() };
        let gateway = Member::new(GATEWAY.0, ([127, 0, 0, 1], GATEWAY.0).into(), gateway);
        let file = StaticFile { members: vec![backend(GIVER), backend(TAKER), gateway], ..StaticFile::default() };
        let wanted = PartitionMap::over(&[TAKER]).expect("a map");
        let shares = Shares { map: map.clone().into(), revision: Revision(1), wanted: wanted.into() };
        let now = Moment::from_ns(1_000_000_000);
        let clock = NodeClock::set(now, Duration::from_secs(UNIX_S));
        let life = Life { incarnation: Incarnation(7), clock, seed: 1 };
        let core = Backend::new(file.backend_config(TAKER, &shares, life), StoreState::default(), now);
        let session = SessionId { incarnation: Incarnation(7), opening: Opening(9) };
        let (calls, told) = (VecDeque::new(), Vec::new());
        let mut taker = Self { backend: core, now, session, seq: 0, calls, told, is_gone: false };
        taker.step(Happened::Tick);
        taker.complete_all();
        taker.now = taker.now + Span::from_s(2);
        taker.step(Happened::Tick);
        taker.step(Happened::Message(GIVER, Message::Open { opening: Opening(9), at: taker.now, in_charge: false }));
        taker.tell(Body::Begin { partitions: vec![partition], revision: Revision(1), flush_at_unix_s });
        taker
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.backend.step(self.now, happened, &mut out);
        self.calls.extend(out.store.drain(..));
        for (_, bytes) in out.sends().filter(|(to, _)| *to == GIVER) {
            match Message::decode(bytes).expect("a message") {
                Message::Told { body: Some(body), .. } => self.told.push(body),
                Message::Gone { .. } => self.is_gone = true,
                _ => {}
            }
        }
    }

    fn tell(&mut self, body: Body) {
        self.seq += 1;
        let (session, seq, ack) = (self.session, Seq(self.seq), Seq(self.told.len() as u64));
        self.step(Happened::Message(GIVER, Message::Given { session, ack, seq, body: Some(body) }));
    }

    /// It has all that is given, and has said so.
    fn fill(&mut self) {
        self.tell(Body::Record(KEY.into(), Some(item(b"value"))));
        self.tell(Body::Seal { last_version: 8 });
        self.complete_all();
        assert_eq!(self.told.last(), Some(&Body::Stored));
    }

    /// Its store does the next thing, or fails.
    fn complete(&mut self, error: Option<StoreError>) {
        let result = |error: Option<StoreError>| error.map_or(Ok(Written::All), Err);
        let happened = match self.calls.pop_front().expect("it is to do something") {
            StoreCall::Read(key) => Happened::Read(key, error.map_or(Ok(Found::default()), Err)),
            StoreCall::Write(key, _) => Happened::Written(key, result(error)),
            StoreCall::Scan(scan) => Happened::Scanned(scan.number, error.map_or(Ok(Scanned::default()), Err)),
            StoreCall::Fence(_) => Happened::Fenced(error.map_or(Ok(()), Err)),
            StoreCall::Flush => Happened::Flushed(error.map_or(Ok(()), Err)),
            StoreCall::State(_) => Happened::StateWritten(result(error)),
        };
        self.step(happened);
    }

    fn complete_all(&mut self) {
        while !self.calls.is_empty() {
            self.complete(None);
        }
    }
}

fn item(value: &[u8]) -> ItemCopy {
    ItemCopy {
        flags: 5,
        version: 8,
        expiry: Expiry::NEVER,
        serve_until: None,
        stale: false,
        win_sent: false,
        value: value.into(),
    }
}

/// A copy that an earlier life of the taker's had on its way came to be there after all was removed that could be seen.
#[test]
fn room_is_made_only_once_what_may_come_yet_is_fenced_off() {
    let partition = PartitionId::of(hash_of(KEY));
    let fence = StoreCall::Fence([partition].into());
    let fencing = || {
        let mut taker = Taker::begin(partition);
        assert!(matches!(taker.calls.make_contiguous(), [StoreCall::Scan(_)]), "{:?}", taker.calls);
        taker.complete(None);
        assert_eq!((&*taker.calls.make_contiguous(), &*taker.told), (&[fence.clone()][..], &[][..]));
        taker
    };
    let mut taker = fencing();
    taker.complete(None);
    assert_eq!(taker.told, [Body::Ready]);

    let mut taker = fencing();
    taker.complete(Some(StoreError::unknown(StoreErrorKind::Unavailable, "a disk")));
    assert_eq!(taker.told, []);
    taker.tell(Body::Mark);
    assert!(taker.is_gone, "it begins again");

    // What was asked for an earlier attempt is not what this one waits for.
    let mut taker = fencing();
    taker.session.opening = Opening(10);
    taker.seq = 0;
    taker.step(Happened::Message(GIVER, Message::Open { opening: Opening(10), at: taker.now, in_charge: false }));
    taker.tell(Body::Begin { partitions: vec![partition], revision: Revision(1), flush_at_unix_s: 0 });
    let earlier = taker.calls.pop_front();
    assert_eq!(earlier, Some(fence.clone()));
    while taker.calls[0] != fence {
        taker.complete(None);
    }
    taker.step(Happened::Fenced(Ok(())));
    assert_eq!(taker.told, [], "one of two");
    taker.complete(None);
    assert_eq!(taker.told, [Body::Ready]);
}

#[test]
fn what_is_taken_is_on_disk_with_its_versions_before_that_is_said() {
    let mut taker = Taker::ready();
    taker.tell(Body::Record(KEY.into(), Some(item(b"value"))));
    assert!(
        matches!(&taker.calls[0], StoreCall::Write(key, Write::Put { record, .. }) if **key == *KEY && record.version == 8)
    );
    taker.tell(Body::Seal { last_version: LAST_VERSION });
    taker.told.clear();
    // The item, the versions, and only then all of it on disk.
    let state = |call: &StoreCall| matches!(call, StoreCall::State(state) if state.versions_reserved > LAST_VERSION);
    assert!(taker.calls.len() == 2 && state(&taker.calls[1]), "{:?}", taker.calls);
    taker.complete(None);
    taker.complete(None);
    assert!(taker.calls.len() == 1 && taker.calls[0] == StoreCall::Flush, "{:?}", taker.calls);
    assert_eq!(taker.told, []);
    taker.complete(None);
    assert_eq!(taker.told, [Body::Stored]);
}

#[test]
fn what_did_not_come_to_disk_is_not_taken() {
    let mut taker = Taker::ready();
    taker.tell(Body::Record(KEY.into(), Some(item(b"value"))));
    taker.tell(Body::Seal { last_version: 8 });
    while taker.calls[0] != StoreCall::Flush {
        taker.complete(None);
    }
    taker.told.clear();
    taker.complete(Some(StoreError::refused(StoreErrorKind::Unavailable, "a disk")));
    assert_eq!(taker.told, []);
    taker.tell(Body::Mark);
    assert!(taker.is_gone);
}

/// What comes of a write that nobody knows the end of may come later, unless it was read since.
#[test]
fn what_a_store_may_have_written_is_read_before_anything_else_is_written_there() {
    let mut taker = Taker::ready();
    taker.tell(Body::Record(KEY.into(), Some(item(b"value"))));
    taker.complete(Some(StoreError::unknown(StoreErrorKind::Unavailable, "a disk")));
    assert_eq!(taker.calls, [StoreCall::Read(KEY.into())]);
    taker.tell(Body::Mark);
    assert!(taker.is_gone, "it begins again");
}

#[test]
fn of_a_key_that_changes_fast_the_last_is_written_and_one_at_a_time() {
    let mut taker = Taker::ready();
    for value in [b"1", b"2", b"3"] {
        taker.tell(Body::Record(KEY.into(), Some(item(value))));
    }
    taker.tell(Body::Record(KEY.into(), None));
    assert_eq!(taker.calls.len(), 1);
    taker.complete(None);
    assert!(matches!(taker.calls.front(), Some(StoreCall::Write(_, Write::Delete { .. }))), "{:?}", taker.calls);
    assert_eq!(taker.calls.len(), 1);
}

/// A giver says again and again that an earlier attempt is over, also while the next one is on its way into the map: once that is doubtful here, too, it
/// may be given all the same.
#[test]
fn what_is_said_of_an_earlier_session_decides_nothing_of_a_later_one() {
    let mut taker = Taker::ready();
    taker.tell(Body::Record(KEY.into(), Some(item(b"value"))));
    taker.tell(Body::Seal { last_version: 8 });
    taker.complete_all();
    assert_eq!(taker.told.last(), Some(&Body::Stored));
    // The giver waits for the coordinator, and says nothing.
    taker.now = taker.now + Span::from_s(10);
    taker.step(Happened::Tick);
    let released = |up_to| Happened::Message(GIVER, Message::Release { up_to: Opening(up_to), revision: Revision(1) });
    taker.step(released(8));
    assert_eq!(taker.calls, []);
    // Of this one it is said: what is left of it is looked for.
    taker.step(released(9));
    assert!(matches!(taker.calls.front(), Some(StoreCall::Scan(_))), "{:?}", taker.calls);
}

#[test]
fn what_is_not_the_givers_is_not_taken() {
    let mut taker = Taker::ready();
    let other = (0u32..).map(|number| number.to_le_bytes());
    let other = other.into_iter().find(|key| PartitionId::of(hash_of(key)) != PartitionId::of(hash_of(KEY)));
    taker.tell(Body::Record(other.expect("there are many partitions")[..].into(), Some(item(b"value"))));
    taker.tell(Body::Mark);
    // What is left of the attempt is looked for, and nothing was written.
    assert!(taker.is_gone && matches!(taker.calls.make_contiguous(), [StoreCall::Scan(_)]), "{:?}", taker.calls);

    let ours = PartitionId(u16::from(PartitionId::of(hash_of(KEY)) == PartitionId(0)));
    for partition in [ours, PartitionId(u16::MAX)] {
        let mut taker = Taker::begin(partition);
        taker.tell(Body::Mark);
        assert!(taker.is_gone && taker.calls.is_empty(), "{partition:?}: {:?}", taker.calls);
    }
}

/// What the giver has done to a key its taker would do once more, to what was stored since.
#[test]
fn nothing_is_taken_of_who_has_another_flush_to_come() {
    let partition = PartitionId::of(hash_of(KEY));
    let map = PartitionMap::over(&[TAKER]).expect("a map").with_owner([partition], GIVER);
    let mut taker = Taker::begin_with(partition, &map, UNIX_S + 60);
    assert_eq!((taker.calls.len(), taker.told.len()), (0, 0));
    taker.tell(Body::Mark);
    assert!(taker.is_gone);
    assert_eq!(taker.backend.flush_to_come(), None);
}

#[test]
fn who_has_no_keys_has_the_flush_to_come_of_its_giver() {
    let partition = PartitionId::of(hash_of(KEY));
    let map = PartitionMap::over(&[GIVER]).expect("a map");
    let mut taker = Taker::begin_with(partition, &map, UNIX_S + 60);
    taker.step(Happened::Tick);
    let refused = StoreError::refused(StoreErrorKind::Unavailable, "a disk");
    for error in [Some(refused), None] {
        let Some(StoreCall::State(state)) = taker.calls.front() else { panic!("{:?}", taker.calls) };
        assert_eq!(state.flush_at_unix_s, UNIX_S + 60);
        taker.complete(error);
        taker.now = taker.now + Span::from_ms(200);
        taker.step(Happened::Tick);
    }
    assert!(matches!(taker.calls.make_contiguous(), [StoreCall::Scan(_)]), "it makes room: {:?}", taker.calls);
    taker.complete_all();
    assert_eq!(taker.told, [Body::Ready]);
    // When it comes nothing is taken any more, though the giver is heard of all the while.
    for _ in 0..300 {
        taker.now = taker.now + Span::from_ms(200);
        taker.step(Happened::Message(GIVER, Message::AskLease { session: taker.session, at: taker.now }));
    }
    assert!(taker.is_gone);
    assert!(taker.calls.iter().any(|call| matches!(call, StoreCall::State(state) if state.generation.0 == 1)));
}

/// The giver may be dead for good, and nobody else can say whose it is.
#[test]
fn what_is_to_come_comes_though_what_came_may_be_given_or_not() {
    for is_there in [false, true] {
        let map = PartitionMap::over(&[GIVER]).expect("a map");
        let mut taker = Taker::begin_with(PartitionId::of(hash_of(KEY)), &map, UNIX_S + 60);
        taker.step(Happened::Tick);
        taker.complete_all();
        taker.fill();
        // The giver is heard of all the while, or its lease is over before the time has come.
        for _ in 0..300 {
            taker.now = taker.now + Span::from_ms(200);
            let lease = Message::AskLease { session: taker.session, at: taker.now };
            taker.step(if is_there { Happened::Message(GIVER, lease) } else { Happened::Tick });
        }
        let Some(StoreCall::State(state)) = taker.calls.front() else { panic!("{:?}", taker.calls) };
        assert_eq!((state.generation.0, state.flush_at_unix_s), (1, 0));
        taker.complete_all();
        assert_eq!((taker.backend.flush_to_come(), taker.is_gone), (None, false));
    }
}

/// Its giver may have done that before it has let something change, which it gave then.
#[test]
fn what_is_asked_of_who_may_have_been_given_something_waits() {
    let mut taker = Taker::ready();
    taker.step(Happened::Message(GATEWAY, Message::Join { opening: Opening(1) }));
    taker.fill();
    let session = SessionId { incarnation: Incarnation(7), opening: Opening(1) };
    let asker = Asker { gateway: GATEWAY, session, number: Number(1), done_below: Number(0) };
    let flush = || Message::Flush { asker, at: Time::default(), revision: Revision(1) };
    taker.step(Happened::Message(GATEWAY, flush()));
    taker.now = taker.now + Span::from_s(10);
    taker.step(Happened::Message(GATEWAY, flush()));
    assert!(taker.calls.is_empty(), "{:?}", taker.calls);
    taker.step(Happened::Message(GIVER, Message::Release { up_to: Opening(9), revision: Revision(1) }));
    taker.calls.clear();
    taker.step(Happened::Message(GATEWAY, flush()));
    assert!(matches!(taker.calls.make_contiguous(), [StoreCall::State(_)]), "{:?}", taker.calls);
}

/// By its clock it would do that at once, and again with each attempt.
#[test]
fn what_is_due_here_and_not_at_the_giver_is_waited_for() {
    let map = PartitionMap::over(&[GIVER]).expect("a map");
    let mut taker = Taker::begin_with(PartitionId::of(hash_of(KEY)), &map, UNIX_S + 1);
    assert!(taker.calls.is_empty(), "{:?}", taker.calls);
    taker.tell(Body::Mark);
    assert!(taker.is_gone);
}

/// What is to be taken away changes while it is written: a giver that is told of that begins anew.
#[test]
fn nothing_is_begun_to_be_taken_while_a_time_is_being_written() {
    let map = PartitionMap::over(&[GIVER]).expect("a map");
    let mut taker = Taker::begin_with(PartitionId::of(hash_of(KEY)), &map, UNIX_S + 60);
    taker.step(Happened::Tick);
    assert!(matches!(taker.calls.make_contiguous(), [StoreCall::State(_)]));
    // Another session, of another attempt.
    taker.session.opening = Opening(10);
    let open = || Message::Open { opening: Opening(10), at: Moment::from_ns(1), in_charge: false };
    taker.step(Happened::Message(GIVER, open()));
    taker.seq = 0;
    taker.tell(Body::Mark);
    assert!(taker.is_gone, "it is not there");
    taker.complete_all();
    taker.step(Happened::Message(GIVER, open()));
    (taker.seq, taker.is_gone) = (0, false);
    taker.told.clear();
    taker.tell(Body::Begin {
        partitions: vec![PartitionId::of(hash_of(KEY))],
        revision: Revision(1),
        flush_at_unix_s: UNIX_S + 60,
    });
    taker.complete_all();
    assert_eq!((&*taker.told, taker.is_gone), (&[Body::Ready][..], false));
}
