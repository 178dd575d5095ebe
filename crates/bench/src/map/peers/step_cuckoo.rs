//! The dissertation's cuckoo table (sections 3.3 and 3.5), and the steps by which it comes from MemC3's: the same buckets and the
//! same lookups, but other inserts.
//!
//! ```text
//! word 0       8         16
//!      key x 8 value x 8       two cache lines a bucket
//! ```
//! Always true: a key lies in one of two buckets; a bucket changes under its stripe, which counts its versions for readers, and
//! before the last step also under the one lock of all writers; moves run from the free end backwards, each looking again
//! whether it may, so that a path found without a lock does no harm when others have been at it.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use guira_bench_memory::{Pages, Words};
use guira_sync::Stripes;

use super::super::{
    concurrent_map::ConcurrentMap,
    entry::{self, Value},
};
use super::RandomState;
use crate::peers::{
    breadth_first::BreadthFirst,
    key::mix,
    random_walk::{Buckets, Slot, Walk},
};

/// MemC3's insert: one lock for all writers, held while two paths are walked at random.
pub(in super::super) const CUCKOO: u8 = 0;
/// The lock is taken once a path is found.
pub(in super::super) const LOCK_LATER: u8 = 1;
/// Paths are searched breadth first.
pub(in super::super) const BREADTH_FIRST: u8 = 2;
/// The search asks for the next bucket's keys ahead.
pub(in super::super) const PREFETCH: u8 = 3;
/// The stripes are the only locks.
pub(in super::super) const STRIPED: u8 = 4;

const WAYS: usize = 8;
const BUCKET_WORDS: usize = 2 * WAYS;

/// Locks and versions: the dissertation's number.
const STRIPES: usize = 2048;

/// Walks side by side, as MemC3 has them.
const WALKS: usize = 2;

/// Times that a search may be spoilt by other writers, or by a path that crosses itself, before the table counts as full.
const ATTEMPTS_MAX: usize = 64;

/// Stands for a free slot: the key of a number that nobody has.
const FREE: u64 = entry::key(u64::MAX);

type Word = [u64; 1];

/// The table with all steps up to number `STEP`.
pub(in super::super) struct StepCuckoo<const STEP: u8> {
    words: Words,
    buckets: usize,
    hasher: RandomState,
    stripes: Stripes,
    writers: WritersLock,
}

/// On cache lines of its own, since readers look at what lies beside it.
#[repr(align(128))]
struct WritersLock(Mutex<()>);

/// What a thread's searches need.
struct Searches {
    walk: Walk,
    breadth_first: BreadthFirst,
}

thread_local! {
    static SEARCHES: RefCell<Searches> =
        RefCell::new(Searches { walk: Walk::new(WALKS), breadth_first: BreadthFirst::default() });
}

impl<const STEP: u8> Buckets for StepCuckoo<STEP> {
    const WAYS: usize = WAYS;

    #[inline]
    fn free(&self, bucket: usize) -> Option<usize> {
        (0..WAYS).find(|way| self.key(Slot { bucket, way: *way }) == FREE)
    }

    #[inline]
    fn other(&self, slot: Slot) -> Option<usize> {
        let key = self.key(slot);
        let [first, second] = self.roots(key);
        (key != FREE).then_some(if slot.bucket == first { second } else { first })
    }
}

impl<const STEP: u8> StepCuckoo<STEP> {
    /// The two buckets of a key, never the same.
    #[inline]
    fn roots(&self, key: u64) -> [usize; 2] {
        let hash = self.hasher.hash_one(key);
        let [first, second] =
            [hash, mix(hash)].map(|bits| ((u128::from(bits) * self.buckets as u128) >> u64::BITS) as usize);
        [first, if second == first { (first + 1) % self.buckets } else { second }]
    }

    #[inline]
    fn key(&self, slot: Slot) -> u64 {
        self.words[slot.bucket * BUCKET_WORDS + slot.way].load(Relaxed)
    }

    #[inline]
    fn value(&self, slot: Slot) -> Word {
        [self.words[slot.bucket * BUCKET_WORDS + WAYS + slot.way].load(Relaxed)]
    }

    /// The caller holds the bucket's stripe, and has said that it writes.
    #[inline]
    fn put(&self, slot: Slot, key: u64, [value]: Word) {
        self.words[slot.bucket * BUCKET_WORDS + WAYS + slot.way].store(value, Relaxed);
        self.words[slot.bucket * BUCKET_WORDS + slot.way].store(key, Relaxed);
    }

    #[inline]
    fn find(&self, roots: [usize; 2], key: u64) -> Option<Slot> {
        let ways = |bucket| (0..WAYS).map(move |way| Slot { bucket, way });
        roots.into_iter().flat_map(ways).find(|slot| self.key(*slot) == key)
    }

    fn first_free(&self, roots: [usize; 2]) -> Option<Slot> {
        roots.into_iter().find_map(|bucket| Some(Slot { bucket, way: self.free(bucket)? }))
    }

    /// The lock of all writers, where a step has one.
    fn lock_writers(&self) -> Option<MutexGuard<'_, ()>> {
        (STEP < STRIPED).then(|| self.writers.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, unless the caller has it already.
    fn lock_writers_later(&self) -> Option<MutexGuard<'_, ()>> {
        if STEP < LOCK_LATER { None } else { self.lock_writers() }
    }

    /// Stores a pair if one of the buckets has a free slot or the key already; says whether the key is new.
    fn add(&self, roots: [usize; 2], key: u64, value: Word) -> Option<bool> {
        let mut guard = self.stripes.lock_pair(roots[0], roots[1]);
        let known = self.find(roots, key);
        let slot = known.or_else(|| self.first_free(roots))?;
        guard.start_writing();
        self.put(slot, key, value);
        Some(known.is_none())
    }

    /// Moves keys so that one of the full buckets `roots` has a free slot: says whether that was done, and keeps the lock that
    /// it was done under.
    fn make_room(&self, roots: [usize; 2]) -> (bool, Option<MutexGuard<'_, ()>>) {
        SEARCHES.with_borrow_mut(|Searches { walk, breadth_first }| {
            let found = match STEP {
                CUCKOO | LOCK_LATER => walk.search(self, roots),
                BREADTH_FIRST => breadth_first.search(self, roots, |_| ()),
                _ => breadth_first.search(self, roots, |next| {
                    guira_cuckoo::prefetch(&self.words[next * BUCKET_WORDS]);
                }),
            };
            let Some((path, end)) = found else { return (false, None) };
            let lock = self.lock_writers_later();
            let mut to = end.bucket;
            let is_done = path.iter().rev().all(|from| {
                let is_moved = self.displace(*from, to);
                to = from.bucket;
                is_moved
            });
            (is_done, lock)
        })
    }

    /// Moves what lies in a slot to its other bucket, if that is `to` and has a free slot.
    fn displace(&self, from: Slot, to: usize) -> bool {
        let mut guard = self.stripes.lock_pair(from.bucket, to);
        if self.other(from) != Some(to) {
            return false;
        }
        let Some(way) = self.free(to) else { return false };
        guard.start_writing();
        self.put(Slot { bucket: to, way }, self.key(from), self.value(from));
        self.put(from, FREE, [0]);
        true
    }

    /// Changes the slot of a key; says whether it was there.
    fn change(&self, key: u64, change: impl FnOnce(Slot)) -> bool {
        let roots = self.roots(key);
        let _lock = self.lock_writers();
        let mut guard = self.stripes.lock_pair(roots[0], roots[1]);
        let found = self.find(roots, key);
        found.into_iter().for_each(|_| guard.start_writing());
        found.map(change).is_some()
    }
}

impl<const STEP: u8> ConcurrentMap<Word> for StepCuckoo<STEP> {
    type Guard<'map> = ();

    fn with_room_for(keys: usize) -> Self {
        let buckets = keys.div_ceil(WAYS).max(2);
        let words = Words::new(buckets * BUCKET_WORDS, Pages::Huge).expect("memory for the benchmark");
        let table = Self {
            words,
            buckets,
            hasher: RandomState::new(),
            stripes: Stripes::new(STRIPES),
            writers: WritersLock(Mutex::new(())),
        };
        let slots = (0..buckets).flat_map(|bucket| (0..WAYS).map(move |way| Slot { bucket, way }));
        slots.for_each(|slot| table.put(slot, FREE, [0]));
        table
    }

    /// # Panics
    /// It does not grow.
    fn growing() -> Self {
        panic!("the dissertation's table does not grow");
    }

    fn guard(&self) {}

    #[inline]
    fn get(&self, key: u64, (): &()) -> Option<Word> {
        let roots = self.roots(key);
        loop {
            let versions = roots.map(|bucket| self.stripes.begin(bucket));
            let value = self.find(roots, key).map(|slot| self.value(slot));
            if versions.iter().all(|version| version.is_unchanged()) {
                return value;
            }
        }
    }

    fn insert(&self, key: u64, value: Word, (): &()) -> bool {
        let roots = self.roots(key);
        for _ in 0..ATTEMPTS_MAX {
            let _early = (STEP < LOCK_LATER).then(|| self.lock_writers());
            let (has_room, _late) = match self.first_free(roots) {
                Some(_) => (true, self.lock_writers_later()),
                None => self.make_room(roots),
            };
            let is_new = if has_room { self.add(roots, key, value) } else { None };
            if let Some(is_new) = is_new {
                return is_new;
            }
        }
        false
    }

    fn remove(&self, key: u64, (): &()) -> bool {
        self.change(key, |slot| self.put(slot, FREE, [0]))
    }

    fn update(&self, key: u64, (): &()) -> bool {
        self.change(key, |slot| self.put(slot, key, self.value(slot).updated()))
    }

    fn slots(&self) -> Option<usize> {
        Some(self.buckets * WAYS)
    }
}
