//! Beside a model: whatever several workers ask, in whatever order the store completes, fails and the engine evicts, what they are
//! told can have happened one after the other, by [`apply`].

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use guira_chain::{Base, Item, Owned, Setting};
use guira_history::{Event, Model, check};
use guira_item::{
    Arithmetic, ArithmeticMode, CasRule, Delete, Expiry, Failure, Footprints, Get, Hit, Key, Operation, Single,
    Store as StoreOperation, StoreMode, VALUE_SLACK_LEN, store::Generation,
};
use guira_memc3::Memc3;
use proptest::{prelude::*, test_runner::TestRunner};

use super::*;
use crate::{Fault, MemoryStore};

const NOW: Time = Time(1_000);

/// What a client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    /// Flags, version, value.
    Value(u32, u64, Vec<u8>),
    Other(Answer),
}

/// Takes the answers to a batch.
#[derive(Default)]
struct Ear {
    said: Vec<(usize, Said)>,
    room: Vec<u8>,
}

impl Sink for Ear {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.room.resize(VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0);
        &mut self.room
    }

    fn commit(&mut self, index: usize, hit: &Hit) {
        let value = self.room[VALUE_SLACK_LEN..][..hit.value_len].to_vec();
        self.said.push((index, Said::Value(hit.flags, hit.cas, value)));
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn guira_item::PinnedValue>) {
        self.said.push((index, Said::Value(hit.flags, hit.cas, value.piece(0).to_vec())));
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        self.said.push((index, Said::Value(hit.flags, hit.cas, Vec::new())));
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        self.said.push((index, Said::Other(answer)));
    }

    fn answer_change(&mut self, index: usize, answer: Answer, _: &Footprints) {
        self.answer(index, answer);
    }
}

type Through = WriteThrough<Memc3, MemoryStore>;

struct Rig {
    through: Through,
    engine: Arc<Memc3>,
    store: Arc<MemoryStore>,
}

/// A server's life on a store, begun at a moment of Unix time.
fn rig_at(unix_s: u64, store: Arc<MemoryStore>) -> Rig {
    let engine = Arc::new(Memc3::new(guira_memc3::Config::new(8 << 20)).expect("an engine"));
    let config = WriteThroughConfig {
        clock: Arc::new(move || Clock::starting_at(unix_s)),
        item_len_max: 1 << 20,
        late_len_max: 1 << 20,
        versions_shown: true,
    };
    Rig { through: WriteThrough::new(Arc::clone(&engine), Arc::clone(&store), config), engine, store }
}

fn rig_with(store: Arc<MemoryStore>) -> Rig {
    rig_at(1_700_000_000, store)
}

fn rig(store: MemoryStore) -> Rig {
    rig_with(Arc::new(store))
}

impl Rig {
    fn worker(&self) -> Worker<Memc3> {
        self.through.worker(Arc::new(|| {}))
    }

    /// Asks for one thing; what is answered at once.
    fn ask(&self, worker: &mut Worker<Memc3>, ticket: u64, name: &str, operation: Operation<'_>) -> Option<Said> {
        self.ask_at(NOW, worker, ticket, name, operation)
    }

    fn ask_at(
        &self,
        now: Time,
        worker: &mut Worker<Memc3>,
        ticket: u64,
        name: &str,
        operation: Operation<'_>,
    ) -> Option<Said> {
        let mut ear = Ear::default();
        let request = Request { key: key(name), operation };
        let answered = self.through.submit(worker, now, Ticket(ticket), &[request], &mut ear);
        assert_eq!(answered, ear.said.len());
        ear.said.pop().map(|(_, said)| said)
    }

    /// The tickets that are answered now, with what was said.
    fn hear(&self, worker: &mut Worker<Memc3>) -> BTreeMap<u64, Vec<(usize, Said)>> {
        let mut all = BTreeMap::new();
        while let Some(ticket) = self.through.next_ready(worker) {
            let mut ear = Ear::default();
            self.through.deliver(worker, ticket, &mut ear);
            assert!(all.insert(ticket.0, ear.said).is_none(), "answered once");
        }
        all
    }

    /// The one thing that is answered now.
    fn hear_one(&self, worker: &mut Worker<Memc3>) -> Option<Said> {
        let mut all = self.hear(worker);
        assert!(all.len() <= 1);
        all.pop_first().map(|(_, mut said)| {
            assert_eq!(said.len(), 1);
            said.remove(0).1
        })
    }

    /// What an eviction does.
    fn evict(&self, name: &str) {
        let mut worker = self.engine.worker();
        let operation = Operation::Delete(Delete { cas: None, invalidate: None });
        self.engine.execute(&mut worker, NOW, &[Request { key: key(name), operation }], &mut Single::default());
    }
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).expect("a key")
}

const GET: Operation<'static> = Operation::Get(Get::PLAIN);

fn set(value: &[u8]) -> Operation<'_> {
    store(StoreMode::Set, value)
}

fn store(mode: StoreMode, value: &[u8]) -> Operation<'_> {
    let (flags, expiry) = (7, Expiry::NEVER);
    Operation::Store(StoreOperation { mode, flags, expiry, cas: None, vivify: None, value })
}

fn value(said: Option<Said>) -> Vec<u8> {
    match said {
        Some(Said::Value(7, _, value)) => value,
        other => panic!("a value was wanted: {other:?}"),
    }
}

fn failed(unknown: bool) -> Option<Said> {
    Some(Said::Other(Answer::Failed(Failure::Refused.or_unknown(unknown))))
}

#[test]
fn a_change_is_answered_and_seen_when_the_store_has_it_and_not_before() {
    let rig = rig(MemoryStore::holding());
    let (mut writer, mut reader) = (rig.worker(), rig.worker());
    assert_eq!(rig.ask(&mut writer, 1, "k", set(b"new")), None);
    assert_eq!(rig.hear_one(&mut writer), None);
    // Who reads meanwhile waits for it.
    assert_eq!(rig.ask(&mut reader, 1, "k", GET), None);
    // Versions are reserved first.
    assert_eq!(rig.store.held(), (0, 2));
    rig.store.complete_write(Fault::None);
    rig.store.complete_write(Fault::None);
    assert!(matches!(rig.hear_one(&mut writer), Some(Said::Other(Answer::Stored { .. }))));
    assert_eq!(value(rig.hear_one(&mut reader)), b"new");
    // From the engine now.
    assert_eq!(value(rig.ask(&mut reader, 2, "k", GET)), b"new");
    assert_eq!(&*rig.store.record(b"k").expect("there").value, b"new");
}

#[test]
fn the_old_value_is_read_until_the_new_one_is_written() {
    let rig = rig(MemoryStore::holding());
    let mut worker = rig.worker();
    rig.ask(&mut worker, 1, "k", set(b"old"));
    while rig.store.held().1 > 0 {
        rig.store.complete_write(Fault::None);
    }
    assert!(rig.hear_one(&mut worker).is_some());
    rig.ask(&mut worker, 2, "k", set(b"new"));
    let mut reader = rig.worker();
    assert_eq!(value(rig.ask(&mut reader, 1, "k", GET)), b"old");
    rig.store.complete_write(Fault::None);
    assert!(rig.hear_one(&mut worker).is_some());
    assert_eq!(value(rig.ask(&mut reader, 2, "k", GET)), b"new");
}

#[test]
fn what_the_engine_has_is_not_served_while_another_may_be_the_owner() {
    let rig = rig(MemoryStore::default());
    let mut worker = rig.worker();
    let ask = |worker: &mut Worker<Memc3>, operation| {
        let said = rig.ask(worker, 1, "k", operation);
        said.or_else(|| rig.hear_one(worker)).expect("this store answers at once")
    };
    assert!(matches!(ask(&mut worker, set(b"old")), Said::Other(Answer::Stored { .. })));
    assert!(matches!(ask(&mut worker, GET), Said::Value(..)));
    rig.store.set_anothers(true);
    let refused = Said::Other(Answer::Failed(Failure::Refused));
    assert_eq!((ask(&mut worker, GET), ask(&mut worker, set(b"new"))), (refused.clone(), refused));
    rig.store.set_anothers(false);
    let Said::Value(.., value) = ask(&mut worker, GET) else { panic!("it is served again") };
    assert_eq!(value, b"old");
}

#[test]
fn many_misses_of_a_key_make_one_read() {
    let rig = rig(MemoryStore::holding());
    let mut workers: Vec<_> = (0..3).map(|_| rig.worker()).collect();
    for (at, worker) in workers.iter_mut().enumerate() {
        assert_eq!(rig.ask(worker, 1, "k", GET), None);
        assert_eq!(rig.ask(worker, 2, "k", GET), None);
        assert_eq!(rig.store.held(), (1, 0), "worker {at}");
    }
    rig.store.complete_read(0, Fault::None);
    for worker in &mut workers {
        let all = rig.hear(worker);
        assert_eq!(all.len(), 2);
        assert!(all.values().all(|said| *said == [(0, Said::Other(Answer::Miss))]));
    }
}

#[test]
fn what_is_asked_of_one_key_meanwhile_is_written_once() {
    let rig = rig(MemoryStore::holding());
    let mut worker = rig.worker();
    rig.ask(&mut worker, 1, "n", set(b"0"));
    let add = Arithmetic { mode: ArithmeticMode::Increment, delta: 1, cas: None, touch: None, create: None };
    for ticket in 2..=101 {
        rig.ask(&mut worker, ticket, "n", Operation::Arithmetic(add));
    }
    rig.store.complete_write(Fault::None);
    rig.store.complete_write(Fault::None);
    assert!(rig.hear_one(&mut worker).is_some());
    assert_eq!(rig.store.held(), (0, 1));
    rig.store.complete_write(Fault::None);
    let all = rig.hear(&mut worker);
    for (ticket, said) in &all {
        assert!(
            matches!(said[..], [(0, Said::Other(Answer::Number { value, .. }))] if value == ticket - 1),
            "{said:?}"
        );
    }
    assert_eq!((all.len(), &*rig.store.record(b"n").expect("there").value), (100, &b"100"[..]));
}

#[test]
fn who_changed_nothing_is_answered_though_a_write_has_failed() {
    for (fault, unknown) in [(Fault::Refused, false), (Fault::UnknownNot, true)] {
        let rig = rig(MemoryStore::holding());
        let mut worker = rig.worker();
        rig.ask(&mut worker, 1, "k", set(b"old"));
        while rig.store.held().1 > 0 {
            rig.store.complete_write(Fault::None);
        }
        rig.hear_one(&mut worker);
        rig.ask(&mut worker, 2, "k", set(b"new"));
        // Asked behind the change, in the same round as another.
        rig.evict("k");
        rig.ask(&mut worker, 3, "k", store(StoreMode::Append, b"!"));
        rig.ask(&mut worker, 4, "k", GET);
        rig.store.complete_write(fault);
        assert_eq!(rig.hear_one(&mut worker), failed(unknown));
        // The base is not known: it was written blindly.
        rig.store.complete_read(0, Fault::None);
        assert_eq!(rig.hear_one(&mut worker), None);
        rig.store.complete_write(fault);
        let mut all = rig.hear(&mut worker);
        if unknown {
            // Nobody knows what is there.
            assert_eq!(all.len(), 1);
            rig.store.complete_read(0, Fault::None);
            all.extend(rig.hear(&mut worker));
        }
        assert_eq!(all[&3], [(0, failed(unknown).expect("some"))]);
        assert_eq!(all[&4], [(0, Said::Value(7, 1, b"old".to_vec()))]);
        assert_eq!(value(rig.ask(&mut worker, 5, "k", GET)), b"old");
    }
}

#[test]
fn a_write_that_nobody_can_say_took_place_is_never_taken_back_once_it_was_seen() {
    let rig = rig(MemoryStore::holding());
    let mut worker = rig.worker();
    rig.ask(&mut worker, 1, "k", set(b"old"));
    while rig.store.held().1 > 0 {
        rig.store.complete_write(Fault::None);
    }
    rig.hear_one(&mut worker);
    rig.ask(&mut worker, 2, "k", set(b"new"));
    rig.store.complete_write(Fault::UnknownDone);
    assert_eq!(rig.hear_one(&mut worker), failed(true));
    // Not from the engine, which had the old one.
    assert_eq!(rig.ask(&mut worker, 3, "k", GET), None);
    rig.store.complete_read(0, Fault::None);
    assert_eq!(value(rig.hear_one(&mut worker)), b"new");
    assert_eq!(value(rig.ask(&mut worker, 4, "k", GET)), b"new");
}

#[test]
fn who_cannot_be_answered_is_told_so() {
    let rig = rig(MemoryStore::holding());
    let mut worker = rig.worker();
    rig.ask(&mut worker, 1, "k", GET);
    rig.ask(&mut worker, 2, "k", store(StoreMode::Add, b"x"));
    rig.store.complete_read(0, Fault::Refused);
    let all = rig.hear(&mut worker);
    assert!(all.len() == 2 && all.values().all(|said| *said == [(0, failed(false).expect("some"))]));
    // And nothing stays behind.
    assert_eq!(rig.ask(&mut worker, 3, "k", GET), None);
    rig.store.complete_read(0, Fault::None);
    assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Miss)));
}

#[test]
fn versions_go_on_over_a_restart_and_a_delete() {
    let store = Arc::new(MemoryStore::default());
    let mut last = 0;
    for life in 0..3 {
        let rig = rig_with(Arc::clone(&store));
        let mut worker = rig.worker();
        let mut version = |operation| {
            rig.ask(&mut worker, 1, "k", operation);
            match rig.hear_one(&mut worker) {
                Some(Said::Other(Answer::Stored { cas })) => cas,
                other => panic!("{other:?}"),
            }
        };
        for _ in 0..2 {
            let next = version(set(b"x"));
            assert!(next > last, "life {life}: {next} behind {last}");
            last = next;
        }
        let delete = Operation::Delete(Delete { cas: None, invalidate: None });
        rig.ask(&mut worker, 2, "k", delete);
        assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Deleted)));
        assert!(store.written_state().versions_reserved >= last);
    }
}

#[test]
fn a_flush_takes_what_the_store_has_and_what_is_on_its_way() {
    let rig = rig(MemoryStore::holding());
    let mut worker = rig.worker();
    rig.ask(&mut worker, 1, "cached", set(b"x"));
    rig.ask(&mut worker, 2, "evicted", set(b"x"));
    while rig.store.held().1 > 0 {
        rig.store.complete_write(Fault::None);
    }
    assert_eq!(rig.hear(&mut worker).len(), 2);
    rig.evict("evicted");
    assert_eq!(rig.through.flush_all(&mut worker, NOW, NOW, Ticket(3)), None);
    rig.ask(&mut worker, 4, "late", set(b"x"));
    // Until the flush is written everything is there.
    assert_eq!(value(rig.ask(&mut worker, 5, "cached", GET)), b"x");
    rig.store.complete_write(Fault::None);
    rig.store.complete_write(Fault::None);
    let all = rig.hear(&mut worker);
    assert_eq!(all[&3], [(0, Said::Other(Answer::Deleted))]);
    assert!(matches!(all[&4][..], [(0, Said::Other(Answer::Stored { .. }))]));
    for (ticket, name) in [(6, "cached"), (7, "evicted"), (8, "late")] {
        assert_eq!(rig.ask(&mut worker, ticket, name, GET), None, "{name} is not in the engine");
        rig.store.complete_read(0, Fault::None);
        assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Miss)), "{name}");
    }
    // What is stored now is there, and its versions are ones that the engine takes.
    rig.ask(&mut worker, 9, "cached", set(b"y"));
    rig.store.complete_write(Fault::None);
    rig.hear_one(&mut worker);
    let Some(Said::Value(_, cas, _)) = rig.ask(&mut worker, 10, "cached", GET) else { panic!("it is in the engine") };
    assert_eq!(cas, rig.store.record(b"cached").expect("there").version);
}

#[test]
fn a_flush_that_is_to_come_comes_though_the_server_was_restarted() {
    for is_restarted in [false, true] {
        let store = Arc::new(MemoryStore::default());
        let mut rig = rig_with(Arc::clone(&store));
        let mut worker = rig.worker();
        rig.ask(&mut worker, 1, "k", set(b"x"));
        rig.hear_one(&mut worker);
        rig.through.flush_all(&mut worker, Time(NOW.0 + 10), NOW, Ticket(2));
        assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Deleted)));
        assert_eq!(value(rig.ask_at(Time(NOW.0 + 9), &mut worker, 3, "k", GET)), b"x");
        let mut due = Time(NOW.0 + 10);
        if is_restarted {
            // Another life, five seconds before; its time begins again, at 2.
            rig = rig_at(store.written_state().flush_at_unix_s - 5, Arc::clone(&store));
            worker = rig.worker();
            due = Time(7);
            assert_eq!(value(rig.ask_at(Time(6), &mut worker, 4, "k", GET)), b"x");
        }
        assert_eq!(rig.ask_at(due, &mut worker, 5, "k", GET), Some(Said::Other(Answer::Miss)));
        assert_eq!(store.written_state().flush_at_unix_s, 0);
    }
    // Time came while nobody served.
    let store = Arc::new(MemoryStore::default());
    let rig = rig_with(Arc::clone(&store));
    let mut worker = rig.worker();
    rig.ask(&mut worker, 1, "k", set(b"x"));
    rig.through.flush_all(&mut worker, Time(NOW.0 + 10), NOW, Ticket(2));
    rig.hear(&mut worker);
    let rig = rig_at(store.written_state().flush_at_unix_s + 1, Arc::clone(&store));
    let mut worker = rig.worker();
    assert_eq!(rig.ask_at(Time(2), &mut worker, 1, "k", GET), Some(Said::Other(Answer::Miss)));
}

/// A flush that failed stayed in what was to be written next: a store that had gone away and come back had it then, though nobody here went
/// by it, and what was stored since was gone with the next start.
#[test]
fn a_flush_that_failed_is_not_written_with_what_comes_next() {
    for fault in [Fault::Refused, Fault::UnknownNot, Fault::UnknownDone] {
        for delay_s in [0, 10] {
            let store = Arc::new(MemoryStore::holding());
            let rig = rig_with(Arc::clone(&store));
            let mut worker = rig.worker();
            assert_eq!(rig.through.flush_all(&mut worker, Time(NOW.0 + delay_s), NOW, Ticket(1)), None);
            rig.store.complete_write(fault);
            let unknown = fault != Fault::Refused;
            assert_eq!(rig.hear_one(&mut worker), failed(unknown));
            let refused = Some(Said::Other(Answer::Failed(Failure::Refused)));
            assert_eq!(rig.ask(&mut worker, 2, "k", set(b"x")), refused, "nobody knows what the store has");
            // It does not take it back at first.
            rig.store.complete_write(Fault::Refused);
            rig.hear(&mut worker);
            assert_eq!(rig.ask(&mut worker, 3, "k", set(b"x")), refused);
            rig.store.complete_write(Fault::None);
            rig.hear(&mut worker);
            assert_eq!(rig.ask(&mut worker, 4, "k", set(b"x")), None);
            while rig.store.held().1 > 0 {
                rig.store.complete_write(Fault::None);
            }
            assert!(matches!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Stored { .. }))));
            let state = store.written_state();
            assert_eq!((state.generation, state.flush_at_unix_s), (Generation(0), 0), "{fault:?} after {delay_s} s");
            assert!(state.versions_reserved > 0);
            let record = store.record(b"k").expect("it was stored");
            assert!(record.is_live(1 << 40, state.generation), "gone with the next start");
        }
    }
}

/// A flush that had been written was taken back by one that came behind it and failed: what was flushed came back with the next start, and
/// the next flush of all did nothing.
#[test]
fn a_flush_that_fails_takes_none_back_but_itself() {
    for (first, second) in
        [(Fault::None, Fault::Refused), (Fault::Refused, Fault::None), (Fault::None, Fault::UnknownDone)]
    {
        let store = Arc::new(MemoryStore::holding());
        let rig = rig_with(Arc::clone(&store));
        let (mut one, mut other) = (rig.worker(), rig.worker());
        rig.ask(&mut one, 1, "k", set(b"x"));
        (0..2).for_each(|_| rig.store.complete_write(Fault::None));
        rig.hear_one(&mut one);
        rig.through.flush_all(&mut one, NOW, NOW, Ticket(2));
        rig.through.flush_all(&mut other, NOW, NOW, Ticket(2));
        assert_eq!(store.held().1, 1, "one at a time is on its way");
        rig.store.complete_write(first);
        let told = |fault: Fault| match fault {
            Fault::None => Answer::Deleted,
            _ => Answer::Failed(Failure::Refused.or_unknown(fault != Fault::Refused)),
        };
        assert_eq!(rig.hear_one(&mut one), Some(Said::Other(told(first))));
        if first != Fault::None {
            // What takes it back.
            rig.store.complete_write(Fault::None);
            rig.hear(&mut one);
        }
        rig.store.complete_write(second);
        assert_eq!(rig.hear_one(&mut other), Some(Said::Other(told(second))));
        while store.held().1 > 0 {
            rig.store.complete_write(Fault::None);
            rig.hear(&mut other);
        }
        assert_eq!(store.written_state().generation, Generation(1));
        assert_eq!(rig.ask(&mut one, 3, "k", GET), None);
        rig.store.complete_read(0, Fault::None);
        assert_eq!(rig.hear_one(&mut one), Some(Said::Other(Answer::Miss)), "{first:?}, {second:?}");
        // And the next one flushes.
        rig.ask(&mut one, 4, "k", set(b"y"));
        rig.store.complete_write(Fault::None);
        rig.hear_one(&mut one);
        rig.through.flush_all(&mut other, NOW, NOW, Ticket(5));
        rig.store.complete_write(Fault::None);
        assert_eq!(rig.hear_one(&mut other), Some(Said::Other(Answer::Deleted)));
        assert_eq!(rig.ask(&mut one, 6, "k", GET), None);
        rig.store.complete_read(0, Fault::None);
        assert_eq!(rig.hear_one(&mut one), Some(Said::Other(Answer::Miss)), "{first:?}, {second:?}");
    }
}

/// It was forgotten when an immediate one was asked for, whatever became of that.
#[test]
fn a_flush_that_is_to_come_is_overtaken_only_by_one_that_is_written() {
    for fault in [Fault::None, Fault::Refused, Fault::UnknownNot] {
        for is_restarted in [false, true] {
            let store = Arc::new(MemoryStore::holding());
            let mut rig = rig_with(Arc::clone(&store));
            let mut worker = rig.worker();
            rig.through.flush_all(&mut worker, Time(NOW.0 + 10), NOW, Ticket(1));
            rig.store.complete_write(Fault::None);
            assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Deleted)));
            rig.through.flush_all(&mut worker, NOW, NOW, Ticket(2));
            rig.store.complete_write(fault);
            rig.hear_one(&mut worker);
            if fault != Fault::None {
                rig.store.complete_write(Fault::None);
                rig.hear(&mut worker);
            }
            rig.ask(&mut worker, 3, "k", set(b"x"));
            while store.held().1 > 0 {
                rig.store.complete_write(Fault::None);
            }
            assert!(matches!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Stored { .. }))));
            let mut later = Time(NOW.0 + 10);
            if is_restarted {
                drop(worker);
                rig = rig_at(1_700_000_000 + u64::from(later.0), Arc::clone(&store));
                worker = rig.worker();
                later = NOW;
            }
            let said = rig.ask_at(later, &mut worker, 4, "k", GET).or_else(|| {
                rig.store.complete_read(0, Fault::None);
                rig.hear_one(&mut worker)
            });
            let is_there = matches!(said, Some(Said::Value(..)));
            assert_eq!(is_there, fault == Fault::None, "{fault:?}, restarted {is_restarted}: {said:?}");
        }
    }
}

/// Its generation begins though one that was asked for before it is still on its way, and stays though that one fails.
#[test]
fn a_flush_whose_time_comes_does_not_wait_for_one_that_is_on_its_way() {
    for (delay_s, fault) in [(0, Fault::None), (0, Fault::Refused), (20, Fault::None), (20, Fault::Refused)] {
        let store = Arc::new(MemoryStore::holding());
        let rig = rig_with(Arc::clone(&store));
        let mut worker = rig.worker();
        rig.ask(&mut worker, 1, "old", set(b"x"));
        rig.through.flush_all(&mut worker, Time(NOW.0 + 10), NOW, Ticket(2));
        while store.held().1 > 0 {
            rig.store.complete_write(Fault::None);
            rig.hear(&mut worker);
        }
        rig.through.flush_all(&mut worker, Time(NOW.0 + delay_s), NOW, Ticket(3));
        let due = Time(NOW.0 + 10);
        assert_eq!(rig.ask_at(due, &mut worker, 4, "old", GET), None, "not in the engine");
        rig.store.complete_read(0, Fault::None);
        assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Miss)), "its time has come");
        rig.ask_at(due, &mut worker, 5, "new", set(b"y"));
        rig.store.complete_write(fault);
        while store.held().1 > 0 {
            rig.store.complete_write(Fault::None);
        }
        assert_eq!(rig.hear(&mut worker).len(), 2);
        if fault != Fault::None {
            rig.store.complete_write(Fault::None);
            rig.hear(&mut worker);
        }
        assert!(matches!(rig.ask_at(due, &mut worker, 6, "new", GET), Some(Said::Value(..))), "stored since");
        let state = store.written_state();
        let is_to_come = delay_s > 0 && fault == Fault::None;
        assert_eq!(state.flush_at_unix_s > 0, is_to_come, "{delay_s} s, {fault:?}: {state:?}");
        let record = store.record(b"new").expect("it was stored");
        assert!(record.is_live(1_700_000_000, state.generation), "{delay_s} s, {fault:?}");
        assert!(!store.record(b"old").expect("not yet merged away").is_live(1_700_000_000, state.generation));
    }
}

/// What is stored in a generation of which the store has not heard would be flushed once more, or not at all, after the next start.
#[test]
fn nothing_is_changed_while_a_generation_that_began_by_itself_may_not_be_written() {
    for fault in [Fault::Refused, Fault::UnknownNot, Fault::UnknownDone] {
        let rig = rig(MemoryStore::holding());
        let mut worker = rig.worker();
        rig.through.flush_all(&mut worker, Time(NOW.0 + 10), NOW, Ticket(1));
        rig.store.complete_write(Fault::None);
        assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Deleted)));
        let due = Time(NOW.0 + 10);
        assert_eq!(rig.ask_at(due, &mut worker, 2, "k", GET), None);
        rig.store.complete_read(0, Fault::None);
        assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Miss)));
        rig.store.complete_write(fault);
        let refused = Some(Said::Other(Answer::Failed(Failure::Refused)));
        assert_eq!(rig.ask_at(due, &mut worker, 3, "k", set(b"x")), refused, "{fault:?}");
        rig.store.complete_write(Fault::None);
        rig.hear(&mut worker);
        assert_eq!(rig.store.written_state().generation, Generation(1), "{fault:?}");
        assert_eq!(rig.ask_at(due, &mut worker, 4, "k", set(b"x")), None, "{fault:?}");
    }
}

#[derive(Clone, Debug)]
enum FlushAct {
    Set,
    Flush,
    Hear,
    Complete(Fault),
}

/// Two workers that set one key and flush, and what they were told. Each moment is later than the one before.
struct Flushing {
    rig: Rig,
    workers: [Worker<Memc3>; 2],
    clock: u64,
    /// When each was asked for, and when it was stored; its value is its place here.
    sets: Vec<(u64, Option<u64>)>,
    /// When each was asked for, when it was answered, and whether it was carried out.
    flushes: Vec<(u64, Option<(u64, bool)>)>,
    /// Worker and ticket of what is not answered; whether it is a set, and which.
    asked: BTreeMap<(usize, u64), (bool, usize)>,
}

impl Flushing {
    fn new() -> Self {
        let rig = rig(MemoryStore::holding());
        let workers = [rig.worker(), rig.worker()];
        Self { rig, workers, clock: 0, sets: Vec::new(), flushes: Vec::new(), asked: BTreeMap::new() }
    }

    fn act(&mut self, at: usize, act: &FlushAct) {
        self.clock += 1;
        let now = self.clock;
        match act {
            FlushAct::Set => {
                let number = self.sets.len();
                self.sets.push((now, None));
                let value = (number as u64).to_le_bytes();
                match self.rig.ask(&mut self.workers[at], now, "k", set(&value)) {
                    None => drop(self.asked.insert((at, now), (true, number))),
                    Some(said) => assert_eq!(said, Said::Other(Answer::Failed(Failure::Refused))),
                }
            }
            FlushAct::Flush => {
                self.asked.insert((at, now), (false, self.flushes.len()));
                self.flushes.push((now, None));
                assert_eq!(self.rig.through.flush_all(&mut self.workers[at], NOW, NOW, Ticket(now)), None);
            }
            FlushAct::Hear => self.hear(at),
            FlushAct::Complete(fault) => self.complete(*fault),
        }
    }

    fn hear(&mut self, at: usize) {
        for (ticket, said) in self.rig.hear(&mut self.workers[at]) {
            self.clock += 1;
            let (is_set, number) = self.asked.remove(&(at, ticket)).expect("asked");
            let said = &said[0].1;
            if is_set {
                self.sets[number].1 = matches!(said, Said::Other(Answer::Stored { .. })).then_some(self.clock);
            } else {
                self.flushes[number].1 = Some((self.clock, *said == Said::Other(Answer::Deleted)));
            }
        }
    }

    /// Changes of items succeed, for what is asked is what flushes do.
    fn complete(&self, fault: Fault) {
        let store = &self.rig.store;
        if store.held().1 > 0 {
            store.complete_write(if store.first_held_is_state() { fault } else { Fault::None });
        }
    }

    fn finish(&mut self) {
        // A flush that fails adds a write, and one that waited another.
        for _ in 0..200 {
            self.complete(Fault::None);
            (0..2).for_each(|at| self.hear(at));
        }
        assert_eq!((self.rig.store.held().1, self.asked.len()), (0, 0), "somebody is not answered");
    }

    /// What was stored before a flush that was carried out was asked for is gone; what was stored after the last one was answered is there.
    fn check(&self, rig: &Rig) {
        let mut worker = rig.worker();
        let said = rig.ask(&mut worker, 1, "k", GET).or_else(|| {
            rig.store.complete_read(0, Fault::None);
            rig.hear_one(&mut worker)
        });
        let carried_out = self.flushes.iter().filter(|(_, over)| over.is_some_and(|(_, is_done)| is_done));
        let flushed = carried_out.map(|(asked, _)| *asked).max().unwrap_or(0);
        let last_answer = self.flushes.iter().map(|(_, over)| over.expect("answered").0).max().unwrap_or(0);
        let must_be_there = self.sets.iter().any(|(asked, stored)| *asked > last_answer && stored.is_some());
        if let Some(Said::Value(_, _, value)) = said {
            let number = u64::from_le_bytes(value[..].try_into().expect("a number")) as usize;
            let stored = self.sets[number].1.expect("it was stored");
            assert!(stored > flushed, "{number} is back: {:?} {:?}", self.sets, self.flushes);
        } else {
            assert!(!must_be_there, "{said:?}: {:?} {:?}", self.sets, self.flushes);
        }
    }
}

fn flush_act() -> impl Strategy<Value = FlushAct> {
    let faults = [Fault::None, Fault::Refused, Fault::UnknownNot, Fault::UnknownDone];
    prop_oneof![
        2 => Just(FlushAct::Set),
        2 => Just(FlushAct::Flush),
        2 => Just(FlushAct::Hear),
        3 => prop::sample::select(faults.to_vec()).prop_map(FlushAct::Complete),
    ]
}

#[test]
fn flushes_flush_what_was_before_them_and_nothing_else_whichever_fail() {
    const RUNS: u32 = 2_000;
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(RUNS) });
    let acts = prop::collection::vec((0usize..2, flush_act()), 1..40);
    let run = |acts: Vec<(usize, FlushAct)>| {
        let mut run = Flushing::new();
        acts.iter().for_each(|(at, act)| run.act(*at, act));
        run.finish();
        run.check(&run.rig);
        // And after a restart.
        run.check(&rig_with(Arc::clone(&run.rig.store)));
        Ok(())
    };
    runner.run(&acts, run).unwrap_or_else(|error| panic!("{error}"));
}

/// A clock that wavers by a second between two looks let the server take the flush that it had just carried out for a later one, and
/// carry it out again at the next start: everything stored since was gone.
#[test]
fn a_flush_that_came_does_not_come_again_though_the_clock_wavers() {
    let (store, looks) = (Arc::new(MemoryStore::default()), AtomicU64::new(0));
    let engine = Arc::new(Memc3::new(guira_memc3::Config::new(8 << 20)).expect("an engine"));
    let config = WriteThroughConfig {
        clock: Arc::new(move || Clock::starting_at(1_700_000_001 - looks.fetch_add(1, Relaxed) % 2)),
        item_len_max: 1 << 20,
        late_len_max: 1 << 20,
        versions_shown: true,
    };
    let through = WriteThrough::new(Arc::clone(&engine), Arc::clone(&store), config);
    let rig = Rig { through, engine, store };
    let mut worker = rig.worker();
    for wavering in 0..4 {
        rig.ask(&mut worker, 1, "waver", GET);
        let now = Time(NOW.0 + 10 * wavering);
        rig.through.flush_all(&mut worker, Time(now.0 + 2), now, Ticket(2));
        assert_eq!(rig.hear(&mut worker).len(), 1);
        assert!(rig.store.written_state().flush_at_unix_s > 0);
        rig.ask_at(Time(now.0 + 2), &mut worker, 3, "k", set(b"x"));
        rig.hear(&mut worker);
        assert_eq!(rig.store.written_state().flush_at_unix_s, 0, "it has come");
    }
    let rig = rig_at(1_800_000_000, Arc::clone(&rig.store));
    assert_eq!(value(rig.ask(&mut rig.worker(), 1, "k", GET)), b"x");
}

/// LOCKHASH and CPHASH tell a plain read less of an item: what was changed on top of that forgot when the item ends.
#[test]
fn a_change_keeps_what_the_engine_knows_of_the_item() {
    let engine = Arc::new(guira_cphash::Lockhash::new(guira_cphash::Config::new(8 << 20)).expect("an engine"));
    let store = Arc::new(MemoryStore::default());
    let config = WriteThroughConfig {
        clock: Arc::new(|| Clock::starting_at(1_700_000_000)),
        item_len_max: 1 << 20,
        late_len_max: 1 << 20,
        versions_shown: true,
    };
    let through = WriteThrough::new(engine, Arc::clone(&store), config);
    let mut worker = through.worker(Arc::new(|| {}));
    let expiry = Expiry::at(Time(NOW.0 + 10));
    let (mode, flags, cas, vivify, value) = (StoreMode::Set, 7, None, None, &b"5"[..]);
    let add = Arithmetic { mode: ArithmeticMode::Increment, delta: 1, cas: None, touch: None, create: None };
    let operations =
        [Operation::Store(StoreOperation { mode, flags, expiry, cas, vivify, value }), Operation::Arithmetic(add)];
    let written = operations.map(|operation| {
        let request = Request { key: key("n"), operation };
        through.submit(&mut worker, NOW, Ticket(1), &[request], &mut Ear::default());
        let ticket = through.next_ready(&mut worker).expect("written at once");
        through.deliver(&mut worker, ticket, &mut Ear::default());
        store.record(b"n").expect("there")
    });
    assert_eq!(written[0].expires_unix_s, 1_700_000_000 - 2 + u64::from(NOW.0) + 10);
    assert_eq!((written[1].expires_unix_s, &*written[1].value), (written[0].expires_unix_s, &b"6"[..]));
}

#[test]
fn what_expires_is_gone_by_the_wall_clock() {
    let rig = rig(MemoryStore::default());
    let mut worker = rig.worker();
    let expiry = Expiry::at(Time(NOW.0 + 10));
    let operation = Operation::Store(StoreOperation {
        mode: StoreMode::Set,
        flags: 7,
        expiry,
        cas: None,
        vivify: None,
        value: b"x",
    });
    rig.ask(&mut worker, 1, "k", operation);
    rig.hear_one(&mut worker);
    rig.evict("k");
    assert_eq!(value(rig.ask_at(Time(NOW.0 + 9), &mut worker, 2, "k", GET)), b"x");
    rig.evict("k");
    assert_eq!(rig.ask_at(Time(NOW.0 + 10), &mut worker, 3, "k", GET), Some(Said::Other(Answer::Miss)));
}

#[test]
fn mail_to_a_worker_that_has_ended_goes_to_another() {
    let rig = rig(MemoryStore::holding());
    let (mut first, mut second) = (rig.worker(), rig.worker());
    rig.ask(&mut first, 1, "k", GET);
    rig.ask(&mut second, 1, "k", GET);
    // Its client has gone, and it; the other's still waits for the read.
    rig.through.abandon(&mut first, Ticket(1));
    drop(first);
    rig.store.complete_read(0, Fault::None);
    assert_eq!(rig.hear_one(&mut second), Some(Said::Other(Answer::Miss)));
}

#[test]
fn an_abandoned_batch_is_carried_out_and_answered_to_nobody() {
    let rig = rig(MemoryStore::holding());
    let mut worker = rig.worker();
    rig.ask(&mut worker, 1, "k", set(b"x"));
    rig.through.abandon(&mut worker, Ticket(1));
    // Another batch under the same ticket is another.
    rig.ask(&mut worker, 1, "other", GET);
    while rig.store.held().1 > 0 {
        rig.store.complete_write(Fault::None);
    }
    assert_eq!(rig.hear_one(&mut worker), None);
    rig.store.complete_read(0, Fault::None);
    assert_eq!(rig.hear_one(&mut worker), Some(Said::Other(Answer::Miss)));
    assert_eq!(value(rig.ask(&mut worker, 2, "k", GET)), b"x");
}

#[test]
fn late_answers_take_no_more_memory_than_they_may() {
    let rig = rig(MemoryStore::holding());
    let mut worker = rig.worker();
    let large = vec![b'x'; 300 << 10];
    rig.ask(&mut worker, 1, "k", set(&large));
    while rig.store.held().1 > 0 {
        rig.store.complete_write(Fault::None);
    }
    rig.hear_one(&mut worker);
    rig.evict("k");
    for ticket in 2..8 {
        rig.ask(&mut worker, ticket, "k", GET);
    }
    rig.store.complete_read(0, Fault::None);
    let all = rig.hear(&mut worker);
    let refused = all.values().filter(|said| said[0].1 == Said::Other(Answer::Failed(Failure::Busy))).count();
    assert_eq!((all.len(), refused), (6, 3), "a megabyte holds three");
    assert_eq!(rig.through.late_len.load(Relaxed), 0);
}

/// What is there under a key, with the version.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Held {
    value: Vec<u8>,
    version: u64,
}

#[derive(Clone, PartialEq, Debug)]
struct Act {
    operation: Owned,
    /// `None` if nobody knows.
    said: Option<Said>,
}

/// What operations do, one after the other.
struct Meaning;

impl Model for Meaning {
    /// And the highest version so far: they grow.
    type State = (Option<Held>, u64);
    type Act = Act;

    fn first(&self) -> (Option<Held>, u64) {
        (None, 0)
    }

    fn step(&self, (state, highest): &(Option<Held>, u64), act: &Act) -> Option<(Option<Held>, u64)> {
        let current = state.as_ref().map(|held| Item {
            flags: 7,
            version: held.version,
            expiry: Expiry::NEVER,
            generation: Generation(0),
            stale: false,
            win_sent: false,
            fetched: false,
            idle_s: 0,
            value: held.value.as_slice().into(),
        });
        let base = current.map_or(Base::Absent(None), Base::Present);
        // The version that it got is the one that was told.
        let told = match &act.said {
            Some(Said::Other(Answer::Stored { cas } | Answer::Number { cas, .. })) => *cas,
            _ => 0,
        };
        let mut last_version = told;
        let mut setting = Setting {
            now: NOW,
            generation: Generation(0),
            key_len: 1,
            len_max: 1 << 20,
            last_version: &mut last_version,
            next_version: |told| told,
            versions_shown: true,
            buries: false,
        };
        let (reply, changed) = guira_chain::step(&act.operation.get(), &base, &mut setting);
        let after = match &changed {
            None => state.clone(),
            Some(Base::Present(item)) => Some(Held { value: item.value.to_vec(), version: item.version }),
            Some(_) => None,
        };
        let said = match reply {
            Reply::Hit(hit, value) => Said::Value(hit.flags, hit.cas, value.expect("it was wanted").to_vec()),
            Reply::Answer(answer, _) => Said::Other(answer),
        };
        let is_as_told = act.said.as_ref().is_none_or(|told| *told == said);
        let has_grown = changed.is_none() || after.as_ref().is_none_or(|held| held.version > *highest);
        let highest = after.as_ref().map_or(0, |held| held.version).max(*highest);
        (is_as_told && has_grown).then_some((after, highest))
    }

    fn rank(&self, act: &Act) -> Option<u64> {
        match &act.said {
            Some(Said::Other(Answer::Stored { cas } | Answer::Number { cas, .. })) => Some(2 * cas),
            Some(Said::Value(_, cas, _)) => Some(2 * cas + 1),
            _ => None,
        }
    }
}

/// What happens next in a run.
#[derive(Clone, Debug)]
enum Happening {
    Ask { worker: usize, requests: Vec<(u8, Kind, u8)> },
    Read { at: usize, fails: bool },
    Write(Fault),
    Hear { worker: usize },
    Evict(u8),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Set,
    Add,
    Append,
    Increment,
    Delete,
    /// With the version that was last seen of the key.
    Cas,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Kind::{Add, Append, Cas, Delete, Get, Increment, Set};
    let kind = prop::sample::select(vec![Get, Get, Get, Set, Set, Add, Append, Increment, Delete, Cas]);
    let requests = prop::collection::vec((0u8..3, kind, 0u8..10), 1..6);
    use Fault::{None, Refused, UnknownNot};
    let fault = prop::sample::select(vec![None, None, None, None, Refused, UnknownNot]);
    prop_oneof![
        4 => (0usize..3, requests).prop_map(|(worker, requests)| Happening::Ask { worker, requests }),
        4 => (0usize..4, prop::bool::weighted(0.1)).prop_map(|(at, fails)| Happening::Read { at, fails }),
        4 => fault.prop_map(Happening::Write),
        4 => (0usize..3).prop_map(|worker| Happening::Hear { worker }),
        1 => (0u8..3).prop_map(Happening::Evict),
    ]
}

/// A run, and what its clients saw of each key.
#[derive(Default)]
struct Seen {
    histories: BTreeMap<u8, Vec<Event<Act>>>,
    /// The events of tickets that are open.
    open: BTreeMap<(usize, u64), Vec<(u8, usize)>>,
    versions: BTreeMap<u8, u64>,
    clock: u64,
}

impl Seen {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn hear(&mut self, name: u8, event: usize, said: Said) {
        let at = self.tick();
        let heard = &mut self.histories.get_mut(&name).expect("asked")[event];
        match &said {
            // It has not happened, told so or not: as if it had not been asked for.
            Said::Other(Answer::Failed(_)) => heard.invoked = u64::MAX,
            Said::Other(Answer::Stored { cas } | Answer::Number { cas, .. }) | Said::Value(_, cas, _) => {
                self.versions.insert(name, *cas);
                (heard.returned, heard.act.said) = (Some(at), Some(said));
            }
            Said::Other(_) => (heard.returned, heard.act.said) = (Some(at), Some(said)),
        }
    }
}

fn run(happenings: &[Happening], seed_fault: bool) -> Result<(), TestCaseError> {
    let rig = rig(MemoryStore::holding());
    let mut workers: Vec<_> = (0..3).map(|_| rig.worker()).collect();
    let (mut seen, mut next_ticket) = (Seen::default(), 0);
    let names = ["a", "b", "c"];
    let hear = |worker: &mut Worker<Memc3>, at: usize, seen: &mut Seen| {
        for (ticket, all) in rig.hear(worker) {
            let events = seen.open.remove(&(at, ticket)).expect("it was open");
            assert_eq!(events.len(), all.len());
            for ((name, event), (_, said)) in events.into_iter().zip(all) {
                seen.hear(name, event, said);
            }
        }
    };
    for happening in happenings {
        match happening {
            Happening::Ask { worker: at, requests } => {
                next_ticket += 1;
                let owned: Vec<(u8, Vec<u8>, Kind)> =
                    requests.iter().map(|(name, kind, digit)| (*name, vec![b'0' + digit], *kind)).collect();
                let asked: Vec<Request<'_>> = owned
                    .iter()
                    .map(|(name, value, kind)| {
                        let add = Arithmetic {
                            mode: ArithmeticMode::Increment,
                            delta: 1,
                            cas: None,
                            touch: None,
                            create: None,
                        };
                        let expected = seen.versions.get(name).copied().unwrap_or(9);
                        let operation = match kind {
                            Kind::Get => GET,
                            Kind::Set => set(value),
                            Kind::Add => store(StoreMode::Add, value),
                            Kind::Append => store(StoreMode::Append, value),
                            Kind::Increment => Operation::Arithmetic(add),
                            Kind::Delete => Operation::Delete(Delete { cas: None, invalidate: None }),
                            Kind::Cas => Operation::Store(StoreOperation {
                                mode: StoreMode::Set,
                                flags: 7,
                                expiry: Expiry::NEVER,
                                cas: Some(CasRule { expected, or_stale: false }),
                                vivify: None,
                                value,
                            }),
                        };
                        Request { key: key(names[usize::from(*name)]), operation }
                    })
                    .collect();
                let mut events = Vec::new();
                for (request, (name, ..)) in asked.iter().zip(&owned) {
                    let invoked = seen.tick();
                    let history = seen.histories.entry(*name).or_default();
                    let act = Act { operation: Owned::of(&request.operation), said: None };
                    events.push((*name, history.len()));
                    history.push(Event { invoked, returned: None, is_certain: true, act });
                }
                let mut ear = Ear::default();
                let answered = rig.through.submit(&mut workers[*at], NOW, Ticket(next_ticket), &asked, &mut ear);
                prop_assert_eq!(answered, ear.said.len());
                for ((_, said), (name, event)) in ear.said.into_iter().zip(&events) {
                    seen.hear(*name, *event, said);
                }
                let open = events.split_off(answered);
                if !open.is_empty() {
                    seen.open.insert((*at, next_ticket), open);
                }
            }
            Happening::Read { at, fails } => {
                let held = rig.store.held().0;
                if held > 0 {
                    rig.store.complete_read(at % held, if *fails { Fault::Refused } else { Fault::None });
                }
            }
            Happening::Write(fault) => {
                if rig.store.held().1 > 0 {
                    rig.store.complete_write(*fault);
                }
            }
            Happening::Hear { worker } => hear(&mut workers[*worker], *worker, &mut seen),
            Happening::Evict(name) => rig.evict(names[usize::from(*name)]),
        }
        if seed_fault {
            // An engine that is filled behind the chains' backs with something that is not in the store.
            let mut worker = rig.engine.worker();
            let request = Request { key: key("a"), operation: store(StoreMode::Add, b"5") };
            rig.engine.execute(&mut worker, NOW, &[request], &mut Single::default());
        }
    }
    // Everything comes to an end.
    let mut quiet = 0;
    // Who is answered by another worker hears of it a round later.
    while quiet < 3 {
        let (reads, writes) = rig.store.held();
        if reads > 0 {
            rig.store.complete_read(0, Fault::None);
        }
        if writes > 0 {
            rig.store.complete_write(Fault::None);
        }
        for (at, worker) in workers.iter_mut().enumerate() {
            hear(worker, at, &mut seen);
        }
        quiet = if rig.store.held() == (0, 0) && reads + writes == 0 { quiet + 1 } else { 0 };
    }
    prop_assert!(seen.open.is_empty(), "never answered: {:?}", seen.open);
    prop_assert_eq!(rig.through.operations.load(Relaxed), 0);
    prop_assert!(rig.through.shards.iter().all(|shard| shard.lock().expect("sound").chains.is_empty()));
    for (name, history) in &mut seen.histories {
        history.retain(|event| event.invoked != u64::MAX);
        let verdict = check(&Meaning, history, 3_000_000);
        prop_assert!(verdict.is_ok(), "key {name}: {verdict:?} in {history:#?}");
        // And what the engine has is what the store has.
        let name = names[usize::from(*name)];
        let mut sink = Single::default();
        let request = Request { key: key(name), operation: GET };
        rig.engine.execute(&mut rig.engine.worker(), NOW, &[request], &mut sink);
        if let Some((hit, value)) = sink.found {
            let record = rig.store.record(name.as_bytes());
            prop_assert_eq!(Some((hit.cas, value)), record.map(|record| (record.version, record.value)), "{}", name);
        }
    }
    Ok(())
}

#[test]
fn whatever_happens_clients_see_what_can_have_happened_one_after_the_other() {
    let happenings = prop::collection::vec(happening(), 1..80);
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) });
    runner.run(&happenings, |happenings| run(&happenings, false)).unwrap_or_else(|failure| panic!("{failure}"));
}

/// The checker would notice.
#[test]
fn an_engine_that_has_what_the_store_has_not_is_found_out() {
    let happenings = prop::collection::vec(happening(), 60..120);
    let config = ProptestConfig { failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::with_cases(50) };
    assert!(TestRunner::new(config).run(&happenings, |happenings| run(&happenings, true)).is_err());
}
