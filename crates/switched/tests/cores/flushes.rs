//! A `flush_all` that is to come: it is in the store before anybody is told, and takes place whatever happens meanwhile, once.

use std::time::Duration;

use guira_chain::Reply;
use guira_cluster::{CLOCK, Incarnation, NodeClock, Opening, SessionId};
use guira_item::{
    Answer, Failure, Get, Key, Moment, Operation, Span, Time,
    store::{Generation, StoreError, StoreErrorKind, StoreState, Written},
};
use guira_routing::NodeId;
use guira_switched::{
    Ask, Asker, CacheMode, Life, Member, Message, Number, Outbox, Revision, Role, StaticFile, StoreCall,
    backend::{Backend, Happened},
    hash_of,
};

const BACKEND: NodeId = NodeId(2);
const GATEWAY: NodeId = NodeId(3);
const CACHE: NodeId = NodeId(4);
const SESSION: SessionId = SessionId { incarnation: Incarnation(7), opening: Opening(1) };

/// When everything begins.
const BEGINS: Moment = Moment::from_ns(1_000_000_000);
const BEGINS_UNIX_S: u64 = 1_800_000_000;

const DONE: Answer = Answer::Deleted;

/// A backend before a store that does what it is told to, and a gateway; there may be a cache node that says nothing.
struct Setting {
    backend: Backend,
    /// What its store is to have as its state, and has yet to say that it has.
    writing: Vec<StoreState>,
    reads: usize,
    said: Vec<Answer>,
    asked: u64,
    now: Moment,
}

/// The cluster's time, so many seconds after the beginning.
fn after_s(seconds: u64) -> Time {
    CLOCK.from_unix_s(BEGINS_UNIX_S + seconds)
}

fn failed(unknown: bool) -> Answer {
    Answer::Failed(Failure::Refused.or_unknown(unknown))
}

fn error(unknown: bool) -> StoreError {
    let error = if unknown { StoreError::unknown } else { StoreError::refused };
    error(StoreErrorKind::Unavailable, "a disk")
}

impl Setting {
    /// One that begins with this state, where there are these beside.
    fn beginning(state: StoreState, caches: &[NodeId]) -> Self {
        let member = |node: NodeId, role| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role);
        let gateway = Role::Gateway { listen: ([127, 0, 0, 1], 9).into(), cache_mode: CacheMode::default() };
        let mut members =
            vec![member(NodeId(1), Role::Controller), member(BACKEND, Role::backend(None)), member(GATEWAY, gateway)];
        members.extend(caches.iter().map(|cache| member(*cache, Role::CACHE)));
        let file = StaticFile { secret: "a secret that is long enough".into(), members, ..StaticFile::default() };
        let clock = NodeClock::set(BEGINS, Duration::from_secs(BEGINS_UNIX_S));
        let life = Life { incarnation: SESSION.incarnation, clock, seed: 1 };
        let config = file.backend_config(BACKEND, &file.shares().expect("it has a backend"), life);
        let backend = Backend::new(config, state, BEGINS);
        let mut setting = Self { backend, writing: Vec::new(), reads: 0, said: Vec::new(), asked: 0, now: BEGINS };
        setting.step(Happened::Tick);
        setting
    }

    /// One that serves.
    fn serving() -> Self {
        let mut setting = Self::beginning(StoreState::default(), &[]);
        setting.writes(None);
        setting.joins();
        setting
    }

    fn joins(&mut self) {
        self.step(Happened::Message(GATEWAY, Message::Join { opening: SESSION.opening }));
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.backend.step(self.now, happened, &mut out);
        for call in out.store.drain(..) {
            match call {
                StoreCall::State(state) => self.writing.push(state),
                StoreCall::Read(_) => self.reads += 1,
                other => panic!("nothing else is asked for: {other:?}"),
            }
        }
        for (_, bytes) in out.sends() {
            if let Message::Reply { said, .. } = Message::decode(bytes).expect("a message") {
                let Reply::Answer(answer, _) = said.to_reply() else { panic!("nothing is there to be read") };
                self.said.push(answer);
            }
        }
        assert!(self.writing.len() <= 1, "one state at a time: {:?}", self.writing);
    }

    /// The store has written the state that it was told, or not.
    fn writes(&mut self, error: Option<StoreError>) -> StoreState {
        let state = self.writing.pop().expect("a state is to be written");
        self.step(Happened::StateWritten(error.map_or(Ok(Written::All), Err)));
        state
    }

    fn asker(&mut self) -> Asker {
        self.asked += 1;
        Asker { gateway: GATEWAY, session: SESSION, number: Number(self.asked), done_below: Number(0) }
    }

    fn flush(&mut self, at: Time) {
        let asker = self.asker();
        self.step(Happened::Message(GATEWAY, Message::Flush { asker, at, revision: Revision::default() }));
    }

    fn get(&mut self) {
        let (asker, key) = (self.asker(), Key::new(b"key").expect("a key"));
        let ask = Ask { asker, hash: hash_of(b"key"), key, operation: Operation::Get(Get::PLAIN) };
        self.step(Happened::Message(GATEWAY, Message::Request(ask)));
    }

    /// Time goes on to so many milliseconds after the beginning.
    fn go_on_to_ms(&mut self, ms: u64) {
        self.now = BEGINS + Span::from_ms(ms);
        self.step(Happened::Tick);
    }
}

fn flush_at_s(state: StoreState) -> u64 {
    state.flush_at_unix_s.saturating_sub(BEGINS_UNIX_S)
}

#[test]
fn a_flush_that_is_to_come_is_in_the_store_before_it_is_answered_and_then_comes_by_itself() {
    let mut setting = Setting::serving();
    setting.flush(after_s(5));
    assert_eq!((setting.said.len(), setting.backend.flush_to_come()), (0, None));
    let state = setting.writes(None);
    assert_eq!((flush_at_s(state), state.generation), (5, Generation(0)));
    assert_eq!((&*setting.said, setting.backend.flush_to_come()), (&[DONE][..], Some(after_s(5))));
    setting.go_on_to_ms(4_999);
    assert!(setting.writing.is_empty());
    assert!(setting.backend.wake_at().is_some_and(|at| at <= BEGINS + Span::from_s(5)), "it wakes up for that");
    setting.go_on_to_ms(5_000);
    let state = setting.writes(None);
    assert_eq!((flush_at_s(state), state.generation), (0, Generation(1)));
    assert_eq!((&*setting.said, setting.backend.flush_to_come()), (&[DONE][..], None));
    setting.go_on_to_ms(60_000);
    assert!(setting.writing.is_empty(), "it comes once");
}

#[test]
fn the_time_that_was_wanted_last_counts_and_none_once_all_was_taken_away() {
    let mut setting = Setting::serving();
    setting.flush(after_s(5));
    // Two more while the first is being written: they share the next write.
    setting.flush(after_s(9));
    setting.flush(after_s(7));
    assert_eq!((flush_at_s(setting.writes(None)), setting.said.len()), (5, 1));
    assert_eq!((flush_at_s(setting.writes(None)), &*setting.said), (7, &[DONE, DONE, DONE][..]));
    setting.go_on_to_ms(6_000);
    assert!(setting.writing.is_empty());
    setting.flush(Time::default());
    let state = setting.writes(None);
    assert_eq!((flush_at_s(state), state.generation, setting.said.len()), (0, Generation(1), 4));
    setting.go_on_to_ms(60_000);
    assert!(setting.writing.is_empty());
    // What has passed is now.
    setting.flush(after_s(60));
    assert_eq!(setting.writes(None).generation, Generation(2));
}

/// The one that is to be done first would take the time of the other with it.
#[test]
fn a_time_that_is_being_written_is_not_lost_to_a_flush_that_comes_due_meanwhile() {
    let mut setting = Setting::serving();
    setting.flush(after_s(5));
    setting.writes(None);
    setting.go_on_to_ms(4_990);
    setting.flush(after_s(8));
    setting.go_on_to_ms(5_010);
    assert_eq!((flush_at_s(setting.writes(None)), setting.writing.len()), (8, 0), "it has the other's place");
    // And one that is wanted while it is done comes behind it.
    setting.go_on_to_ms(8_000);
    setting.flush(after_s(12));
    assert_eq!((setting.writes(None).generation, setting.said.len()), (Generation(1), 2));
    let state = setting.writes(None);
    assert_eq!((flush_at_s(state), state.generation, setting.said.len()), (12, Generation(1), 3));
}

#[test]
fn a_time_that_the_store_refuses_is_told_and_does_not_come() {
    let mut setting = Setting::serving();
    setting.flush(after_s(5));
    setting.writes(Some(error(false)));
    assert_eq!((&*setting.said, setting.backend.flush_to_come()), (&[failed(false)][..], None));
    setting.go_on_to_ms(60_000);
    assert!(setting.writing.is_empty());
}

#[test]
fn a_time_that_the_store_may_have_is_written_again_until_it_has() {
    let mut setting = Setting::serving();
    setting.flush(after_s(5));
    setting.writes(Some(error(true)));
    assert_eq!(&*setting.said, [failed(true)]);
    // One that is refused leaves the first in doubt.
    setting.flush(after_s(6));
    setting.go_on_to_ms(200);
    assert_eq!(flush_at_s(setting.writes(Some(error(false)))), 6);
    assert_eq!(&*setting.said, [failed(true), failed(false)]);
    setting.go_on_to_ms(400);
    assert_eq!(flush_at_s(setting.writes(None)), 5);
    assert_eq!((setting.said.len(), setting.backend.flush_to_come()), (2, Some(after_s(5))));
}

#[test]
fn a_flush_that_is_due_is_tried_until_it_is_done() {
    let mut setting = Setting::serving();
    setting.flush(after_s(5));
    setting.writes(None);
    setting.go_on_to_ms(5_000);
    for (ms, unknown) in [(5_200, false), (5_400, true), (5_600, false)] {
        assert_eq!(setting.writes(Some(error(unknown))).generation, Generation(1));
        assert!(setting.writing.is_empty());
        setting.go_on_to_ms(ms);
    }
    assert_eq!((setting.writes(None).generation, setting.backend.flush_to_come()), (Generation(1), None));
}

/// Nobody was here when its time came: what is there from before is not to be read any more.
#[test]
fn a_backend_that_begins_does_first_what_has_come_due() {
    let state = StoreState { flush_at_unix_s: BEGINS_UNIX_S - 100, ..StoreState::default() };
    let mut setting = Setting::beginning(state, &[]);
    assert_eq!(setting.writes(Some(error(false))).generation, Generation(1));
    setting.joins();
    setting.get();
    assert_eq!(setting.reads, 0);
    setting.go_on_to_ms(200);
    let state = setting.writes(None);
    assert_eq!((state.flush_at_unix_s, state.generation, setting.backend.serves()), (0, Generation(1), true));
    setting.joins();
    setting.get();
    assert_eq!(setting.reads, 1);
}

/// It waits for leases that an earlier life may have given, and then for that.
#[test]
fn a_backend_that_begins_does_first_what_comes_due_while_it_begins() {
    let state = StoreState { flush_at_unix_s: BEGINS_UNIX_S + 1, ..StoreState::default() };
    let mut setting = Setting::beginning(state, &[CACHE]);
    assert_eq!((flush_at_s(setting.writes(None)), setting.backend.serves()), (1, false));
    setting.go_on_to_ms(60_000);
    assert!(!setting.backend.serves());
    assert_eq!((setting.writes(None).generation, setting.backend.serves()), (Generation(1), true));
}
