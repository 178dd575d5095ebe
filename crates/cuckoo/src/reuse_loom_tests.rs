//! What payloads name, under every interleaving: memory that is given back and used again while a reader copies it, or while
//! it is pinned, by the rules that an engine keeps (`guira_sync::reuse` and `guira_sync::References`).

use guira_sync::{
    References,
    atomic::{AtomicU64, Ordering, fence},
    reuse,
};
use loom::{
    cell::UnsafeCell,
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    Index, Probe,
    loom_tests::{hash, index, model},
    model_heap::Heap,
    model_reads::ReadFault,
};

const KEY: u64 = 5;
const OTHER_KEY: u64 = 6;
const OLD: u64 = 50;
const NEW: u64 = 51;
const OTHER: u64 = 60;

fn probe() -> Probe {
    Probe::new(hash(KEY as u32))
}

/// Lets the index name another payload for the key, as a writer does.
fn replace(index: &Index<Heap>, payload: u32) {
    let (mut locked, place) = index.lock_and_find(&probe(), |_| true);
    locked.replace(place.expect("there"), payload);
}

/// A key and its value, copied word by word by readers that hold nothing; key 0 when there is nothing.
struct Chunk {
    key: AtomicU64,
    value: AtomicU64,
}

impl Chunk {
    fn new(key: u64, value: u64) -> Self {
        Self { key: AtomicU64::new(key), value: AtomicU64::new(value) }
    }
}

/// Three threads: one replaces the key and gives its chunk back, one takes that chunk for another key, and the reader.
/// `vacate` is what both do first to the chunk; `fault` is the read's, if it has one.
pub(crate) fn read_beside_reuse(vacate: fn(&AtomicU64), fault: Option<ReadFault>) {
    let index = index(1);
    index.lock(&probe()).insert(0).expect("room");
    let chunks = Arc::new([Chunk::new(KEY, OLD), Chunk::new(KEY, NEW)]);
    let free = Arc::new(Mutex::new(false));
    let writer = {
        let (index, chunks, free) = (Arc::clone(&index), Arc::clone(&chunks), Arc::clone(&free));
        thread::spawn(move || {
            replace(&index, 1);
            let mut free = free.lock().expect("not poisoned");
            vacate(&chunks[0].key);
            *free = true;
        })
    };
    let taker = {
        let (chunks, free) = (Arc::clone(&chunks), Arc::clone(&free));
        thread::spawn(move || {
            if *free.lock().expect("not poisoned") {
                vacate(&chunks[0].key);
                chunks[0].value.store(OTHER, Ordering::Relaxed);
                chunks[0].key.store(OTHER_KEY, Ordering::Relaxed);
            }
        })
    };
    let examine = |payload| {
        let chunk: &Chunk = &chunks[payload as usize];
        (chunk.key.load(Ordering::Relaxed) == KEY).then(|| chunk.value.load(Ordering::Relaxed))
    };
    let value = match fault {
        None => index.read(&probe(), examine),
        Some(fault) => fault.read(&index, &probe(), examine),
    };
    assert!(matches!(value, Some(OLD | NEW)), "believed {value:?}");
    writer.join().expect("writer");
    taker.join().expect("taker");
}

#[test]
fn loom_what_was_read_of_memory_used_again_is_not_believed() {
    model(|| read_beside_reuse(reuse::vacate, None));
}

#[test]
#[should_panic(expected = "believed")]
fn loom_memory_used_again_without_a_fence_is_noticed() {
    model(|| read_beside_reuse(|header| header.store(0, Ordering::Relaxed), None));
}

/// The slabs once emptied a chunk that they handed out before the fence instead of after it. Nothing in the memory model ordered
/// that zero behind the change of the stripe, so a reader could have believed that a key was not there which had only moved to
/// another chunk.
#[test]
#[should_panic(expected = "believed None")]
fn loom_memory_emptied_before_the_fence_is_noticed() {
    model(|| {
        let vacate = |header: &AtomicU64| {
            header.store(0, Ordering::Relaxed);
            fence(Ordering::Release);
        };
        read_beside_reuse(vacate, None);
    });
}

/// A large item: its bytes are read without atomics, under a reference.
struct Large {
    references: AtomicU64,
    bytes: UnsafeCell<u64>,
}

// SAFETY: whether the bytes are only written by whoever holds them alone is what loom finds out here.
unsafe impl Sync for Large {}

/// How readers pin and everyone lets go.
#[derive(Clone, Copy)]
struct Ways {
    pins_under_stripe: bool,
    give_up: fn(&AtomicU64) -> bool,
}

const SOUND: Ways = Ways { pins_under_stripe: true, give_up: |word| References::of(word).give_up() };

impl Large {
    fn new(bytes: u64) -> Self {
        Self { references: AtomicU64::new(References::first(0)), bytes: UnsafeCell::new(bytes) }
    }

    /// Gives up a reference; the last one has other bytes written in place of these.
    fn let_go(&self, ways: Ways) {
        if (ways.give_up)(&self.references) {
            // SAFETY: loom checks that nobody else is at the bytes.
            self.bytes.with_mut(|bytes| unsafe { *bytes = OTHER });
        }
    }
}

/// A reader pins an item and reads it while a writer puts another in its place.
fn pin_beside_replacement(ways: Ways) {
    let index = index(1);
    index.lock(&probe()).insert(0).expect("room");
    let items = Arc::new([Large::new(OLD), Large::new(NEW)]);
    let writer = {
        let (index, items) = (Arc::clone(&index), Arc::clone(&items));
        thread::spawn(move || {
            replace(&index, 1);
            items[0].let_go(ways);
        })
    };
    send(&index, &items, ways);
    writer.join().expect("writer");
    // SAFETY: loom checks that nobody else is at the bytes.
    let left = items.each_ref().map(|item| item.bytes.with(|bytes| unsafe { *bytes }));
    assert_eq!(left, [OTHER, NEW], "what was replaced is freed, what is in the index is not");
}

fn send(index: &Index<Heap>, items: &[Large; 2], ways: Ways) {
    let (locked, place) = index.lock_and_find(&probe(), |_| true);
    let payload = locked.content(place.expect("there"));
    let item = &items[payload as usize];
    if ways.pins_under_stripe {
        References::of(&item.references).take();
        drop(locked);
    } else {
        drop(locked);
        References::of(&item.references).take();
    }
    // SAFETY: loom checks that nobody writes the bytes meanwhile.
    let bytes = item.bytes.with(|bytes| unsafe { *bytes });
    assert_eq!(bytes, [OLD, NEW][payload as usize], "sent bytes of another item");
    item.let_go(ways);
}

#[test]
fn loom_pinned_bytes_outlive_their_replacement() {
    model(|| pin_beside_replacement(SOUND));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_pin_taken_after_the_lock_is_noticed() {
    model(|| pin_beside_replacement(Ways { pins_under_stripe: false, ..SOUND }));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_reference_given_up_without_release_is_noticed() {
    model(|| {
        pin_beside_replacement(Ways {
            give_up: |word| {
                let is_last = word.fetch_sub(1, Ordering::Relaxed) as u32 == 1;
                fence(Ordering::Acquire);
                is_last
            },
            ..SOUND
        });
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_last_reference_given_up_without_acquire_is_noticed() {
    model(|| {
        pin_beside_replacement(Ways { give_up: |word| word.fetch_sub(1, Ordering::Release) as u32 == 1, ..SOUND });
    });
}
