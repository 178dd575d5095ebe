//! What a limit lets through, and when.

use std::sync::mpsc;

use guira_item::store::{Condition, Generation};

use super::*;
use crate::MemoryStore;

fn limited(store: MemoryStore, operations_a_second: u64) -> Limited<MemoryStore> {
    Limited::new(Arc::new(store), Limit::new(operations_a_second)).expect("a thread")
}

fn key(text: &str) -> Key<'_> {
    Key::new(text.as_bytes()).expect("a key")
}

fn put(name: &str, version: u64) -> Write {
    let value = Arc::from(name.as_bytes());
    let generation = Generation::default();
    let record = Record { flags: 0, expires_unix_s: 0, version, generation, stale: false, win_sent: false, value };
    Write::Put { key: name.as_bytes().into(), record, condition: Condition::Always }
}

/// A `done` that says what came of it, and where it stood.
fn told<T: Send + 'static>(to: &mpsc::Sender<(usize, bool)>, at: usize) -> Done<T> {
    let to = to.clone();
    Box::new(move |outcome: Result<T, StoreError>| to.send((at, outcome.is_ok())).expect("somebody listens"))
}

#[test]
fn what_is_read_and_written_takes_at_least_its_time_and_keeps_its_order() {
    const OPERATIONS: usize = 60;
    let (begun, store, (to, from)) = (Instant::now(), limited(MemoryStore::default(), 200), mpsc::channel());
    for at in 0..OPERATIONS {
        // All of one key: what was written last is what is there.
        match at % 3 {
            0 => store.get(key("k"), told(&to, at)),
            1 => store.write(vec![put("k", at as u64)], told(&to, at)),
            _ => store.write(vec![Write::Delete { key: b"k"[..].into(), condition: Condition::Always }], told(&to, at)),
        }
    }
    store.flush(told(&to, OPERATIONS));
    let completed: Vec<_> = from.iter().take(OPERATIONS + 1).collect();
    assert_eq!(completed, (0..=OPERATIONS).map(|at| (at, true)).collect::<Vec<_>>());
    // The first two come at once; no load makes the others quicker.
    assert!(begun.elapsed() >= Duration::from_millis(1_000 * (OPERATIONS as u64 - 2) / 200));
    assert_eq!(store.stats().limit, Some(200));
    assert_eq!((store.stats().limit_waits, store.stats().pending), (OPERATIONS as u64 + 1, 0));
}

#[test]
fn whoever_asks_is_answered_at_once_or_told_to_wait() {
    // Once a second: the second turn does not come within this test, nor does it wait for it.
    let (store, (to, from)) = (limited(MemoryStore::default(), 1), mpsc::channel());
    assert_eq!(store.get_now(key("k"), |found| found.is_none()), Some(true));
    assert_eq!(store.get_now(key("k"), |_| ()), None);
    // It is not limited, though it is behind the read that waits: a store that is shut waits for nothing.
    store.get(key("k"), told(&to, 0));
    store.write(vec![Write::State(StoreState::default()), put("k", 1)], told(&to, 1));
    store.shut();
    assert_eq!(from.try_iter().collect::<Vec<_>>(), [(0, true), (1, true)]);
    assert!(store.store().record(b"k").is_some());
    store.write(vec![put("k", 2)], told(&to, 2));
    assert_eq!(from.try_recv(), Ok((2, false)));
}

#[test]
fn a_read_that_the_store_cannot_answer_at_once_is_not_counted_twice() {
    let store = limited(MemoryStore::holding(), 1);
    for _ in 0..100 {
        assert_eq!(store.get_now(key("k"), |_| ()), None);
    }
    // They have cost nothing: the next turn is not a second away.
    let (gate, _) = store.gate.as_ref().expect("a limit");
    assert_eq!(gate.lock().pace.begin(gate.now_ns(), 1), Ok(()));
}

#[test]
fn no_more_waits_than_may_but_a_state_is_taken() {
    let (store, (to, from)) = (limited(MemoryStore::holding(), 1), mpsc::channel());
    // The first is let through, and pays for a minute.
    let batch = (0..60).map(|at| put("k", at)).collect();
    store.write(batch, Box::new(|_| {}));
    while store.store().held() != (0, 1) {
        thread::yield_now();
    }
    for _ in 0..QUEUE_LEN_MAX {
        store.get(key("k"), Box::new(|_| {}));
    }
    store.get(key("k"), told(&to, 0));
    assert_eq!(from.try_recv(), Ok((0, false)));
    store.write(vec![Write::State(StoreState::default())], told(&to, 1));
    assert!(from.try_recv().is_err(), "it waits for those before it");
    assert_eq!(store.stats().pending, QUEUE_LEN_MAX as u64 + 2);
}

#[test]
fn without_a_limit_nothing_waits() {
    let store = Limited::new(Arc::new(MemoryStore::default()), None).expect("nothing is needed");
    for _ in 0..1_000 {
        assert!(store.get_now(key("k"), |_| ()).is_some());
    }
    store.shut();
    assert_eq!((store.stats().limit, store.stats().limit_waits), (None, 0));
}
