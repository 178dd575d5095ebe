//! The whole map under random schedules: threads store, read, change, remove, walk, retain, reserve and clear on a map so small that
//! they meet everywhere, while it grows from one small segment to several. Shuttle may stop a thread at every access of an
//! atomic of ours, and in the hasher, which is called by whoever helps growth along. What the collector does is one step each:
//! seize is taken as it is, but each guard protects for itself, and what is retired is freed as soon as no guard is left that saw it.
//!
//! Each worker owns some keys and knows what it last stored, so what it is told of them is certain; of others' keys it may ask
//! that none is seen older than before. Some keys are everybody's: a counter that all add to, a token that one at a time takes,
//! a cell that is made once, one that is raised and then stays. In every other schedule a worker may empty the map: then keys
//! vanish, all at once.

use std::{
    hash::{BuildHasher, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicIsize, Ordering},
    },
};

use guira_sync::{
    hint,
    schedules::{self, Tally},
};
use shuttle::{
    rand::{Rng, RngCore, thread_rng},
    scheduler::Scheduler,
    thread,
};

use super::{Boxed, Builder, Change, Changed, CuckooMap, Inline, Storage, TableFull};
use crate::{GrowError, Growth};

mod seeded_faults;

/// Schedules of each kind that must pass, for each storage.
const SCHEDULES: usize = 20_000;

const WORKERS: usize = 3;
const KEYS_EACH: usize = 5;
const OWN_KEYS: usize = WORKERS * KEYS_EACH;
const OPERATIONS: usize = 7;

/// Keys that are everybody's.
const COUNTER: u64 = 100;
const TOKEN: u64 = 101;
const MADE_ONCE: u64 = 102;
const RAISED: u64 = 103;

/// Gives every schedule hashes of its own; who hashes may be stopped there.
#[derive(Clone, Debug)]
struct Salted(u64);

impl BuildHasher for Salted {
    type Hasher = SaltedHasher;

    fn build_hasher(&self) -> SaltedHasher {
        hint::schedule();
        SaltedHasher(self.0)
    }
}

/// SplitMix64's finaliser, for keys of one word.
struct SaltedHasher(u64);

impl Hasher for SaltedHasher {
    fn finish(&self) -> u64 {
        let mut z = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are words");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 ^= key.wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
}

/// What a map holds for a key: the key and a version, in a form that tells a torn one and one that has been dropped.
trait Value: Clone + Send + Sync + 'static {
    fn new(key: u64, version: u64, ledger: &Arc<Ledger>) -> Self;

    /// The version, if the value is whole and the key's.
    fn version(&self, key: u64) -> u64;

    fn next(&self, key: u64) -> Self;
}

fn stamp(key: u64, version: u64) -> u64 {
    key << 32 | version
}

fn version_of(stamp: u64, key: u64) -> u64 {
    assert_eq!(stamp >> 32, key, "another key's value");
    stamp & u64::from(u32::MAX)
}

/// Two words that say the same.
impl Value for [u64; 2] {
    fn new(key: u64, version: u64, _: &Arc<Ledger>) -> Self {
        [stamp(key, version); 2]
    }

    fn version(&self, key: u64) -> u64 {
        assert_eq!(self[0], self[1], "torn");
        version_of(self[0], key)
    }

    fn next(&self, key: u64) -> Self {
        [stamp(key, self.version(key) + 1); 2]
    }
}

/// How many tracked values are alive.
#[derive(Default)]
struct Ledger(AtomicIsize);

/// A value on the heap, which is counted. Whether it is alive is written as its last, for who looks at it all the same.
struct Tracked {
    stamp: u64,
    is_alive: AtomicBool,
    ledger: Arc<Ledger>,
}

impl Tracked {
    fn alive(stamp: u64, ledger: &Arc<Ledger>) -> Self {
        ledger.0.fetch_add(1, Ordering::Relaxed);
        Self { stamp, is_alive: AtomicBool::new(true), ledger: Arc::clone(ledger) }
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        assert!(self.is_alive.load(Ordering::Relaxed), "a value is copied that has been dropped");
        Self::alive(self.stamp, &self.ledger)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.is_alive.store(false, Ordering::Relaxed);
        self.ledger.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Value for Tracked {
    fn new(key: u64, version: u64, ledger: &Arc<Ledger>) -> Self {
        Self::alive(stamp(key, version), ledger)
    }

    fn version(&self, key: u64) -> u64 {
        assert!(self.is_alive.load(Ordering::Relaxed), "a value is looked at that has been dropped");
        version_of(self.stamp, key)
    }

    fn next(&self, key: u64) -> Self {
        Self::new(key, self.version(key) + 1, &self.ledger)
    }
}

type Map<V, L> = CuckooMap<u64, V, Salted, L, 4>;

/// How the map is used, where faults are seeded.
struct Uses<V: Value, L: Storage<u64, V>> {
    /// What `look` makes of a value.
    read: fn(&Map<V, L>, u64, &mut dyn FnMut(&V) -> u64) -> Option<u64>,
    /// Adds one to a value that is there.
    increment: fn(&Map<V, L>, u64) -> bool,
    take: fn(&Map<V, L>, u64) -> bool,
    retain: fn(&Map<V, L>, &mut dyn FnMut(&u64, &V) -> bool),
    clear: fn(&Map<V, L>),
}

impl<V: Value, L: Storage<u64, V>> Clone for Uses<V, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Value, L: Storage<u64, V>> Copy for Uses<V, L> {}

impl<V: Value, L: Storage<u64, V>> Uses<V, L> {
    const SOUND: Self = Self {
        read: |map, key, look| map.get_with(&key, look),
        increment: |map, key| map.update(&key, |value| value.next(key)).is_some(),
        take: |map, key| map.delete(&key),
        retain: |map, keep| map.retain(keep),
        clear: Map::clear,
    };
}

/// What the schedules of one run have gone through, in all.
#[derive(Default)]
struct Coverage {
    growths: Tally,
    growths_underway_at_the_end: Tally,
    tokens_taken: Tally,
    vanished: Tally,
    made_by_another: Tally,
    raised: Tally,
}

/// The map, and what all threads know of it.
struct Shared<V: Value, L: Storage<u64, V>> {
    map: Map<V, L>,
    /// A worker may empty it.
    is_cleared: bool,
    ledger: Arc<Ledger>,
    uses: Uses<V, L>,
    coverage: Arc<Coverage>,
}

/// What a worker knows of a key of its own that it has stored.
#[derive(Clone, Copy)]
struct Known {
    version: u64,
    /// The worker's time when it was put there, and when it was last known to be there.
    since: u64,
    seen: u64,
}

struct Worker<V: Value, L: Storage<u64, V>> {
    shared: Arc<Shared<V, L>>,
    me: usize,
    now: u64,
    /// Of all keys the versions seen last.
    versions: [u64; OWN_KEYS],
    /// Of its own those that are there, unless the map has been emptied.
    known: [Option<Known>; OWN_KEYS],
    increments: u64,
    tokens: i64,
    made: Option<u64>,
    /// It has seen what is raised in its last version.
    has_raised: bool,
}

impl<V: Value, L: Storage<u64, V>> Worker<V, L> {
    fn map(&self) -> &Map<V, L> {
        &self.shared.map
    }

    fn value(&self, key: usize, version: u64) -> V {
        V::new(key as u64, version, &self.shared.ledger)
    }

    /// What the map says of a key of this worker's: whether it is there, and in which version if it said that too.
    fn told(&mut self, key: usize, is_there: bool, version: Option<u64>) {
        self.now += 1;
        let now = self.now;
        let Some(known) = &mut self.known[key] else {
            return assert!(!is_there, "key {key} is there, and its owner has not stored it");
        };
        if is_there {
            assert!(version.is_none_or(|version| version == known.version), "key {key} is not as its owner left it");
            known.seen = now;
            return;
        }
        assert!(self.shared.is_cleared, "key {key} is not there, where its owner left it");
        self.shared.coverage.vanished.count();
        let seen = known.seen;
        self.known[key] = None;
        // Whoever emptied the map did so after the key was last seen, and removed all at once.
        for other in self.own_keys() {
            if self.known[other].is_some_and(|known| known.since < seen) {
                assert!(
                    !self.map().contains_key(&(other as u64)),
                    "key {other} is there, but {key} vanished after it came"
                );
                self.known[other] = None;
            }
        }
    }

    /// A key of this worker's has been stored.
    fn stored(&mut self, key: usize, version: u64, is_new: bool) {
        self.told(key, !is_new, None);
        self.now += 1;
        let since = self.known[key].map_or(self.now, |known| known.since);
        self.known[key] = Some(Known { version, since, seen: self.now });
        self.versions[key] = version;
    }

    fn own_keys(&self) -> impl Iterator<Item = usize> + use<V, L> {
        (0..KEYS_EACH).map({
            let me = self.me;
            move |at| at * WORKERS + me
        })
    }

    fn work(mut self) -> Self {
        for _ in 0..OPERATIONS {
            self.operate();
        }
        self
    }

    fn operate(&mut self) {
        let mut rng = thread_rng();
        let own = rng.gen_range(0..KEYS_EACH) * WORKERS + self.me;
        let any = rng.gen_range(0..OWN_KEYS);
        match rng.gen_range(0..26) {
            0..=7 => self.store(own, rng.gen_range(0..4)),
            8 | 9 => self.remove(own),
            10 | 11 => self.change(own),
            12 | 13 => self.read(any),
            14 => self.read_many(),
            15 => self.walk(),
            16 => self.retain(),
            17 | 18 => self.increment(),
            19 => self.token(),
            20 => self.make_once(),
            21 => drop(self.map().reserve(rng.gen_range(0..8))),
            22 => drop(self.map().grow_by(1)),
            23 | 24 => self.raise(),
            _ if self.shared.is_cleared => self.clear(),
            _ => self.remove_if(own),
        }
    }

    fn store(&mut self, key: usize, way: u32) {
        let (name, version) = (key as u64, self.versions[key] + 1);
        let value = self.value(key, version);
        let is_new = match way {
            0 => self.map().upsert(name, value),
            1 => self.map().insert_many([(name, value)]).map(|new| new == 1).map_err(|mut full| {
                let (key, value) = full.rest.pop().expect("the pair");
                TableFull { key, value }
            }),
            2 => self.map().try_insert(name, value).map(|old| {
                if let (Some(old), Some(known)) = (&old, &self.known[key]) {
                    assert_eq!(old.version(name), known.version);
                }
                old.is_none()
            }),
            _ => {
                let outcome = self.map().insert_if_absent(name, value);
                if let Ok(false) = outcome {
                    return self.told(key, true, None);
                }
                outcome
            }
        };
        match is_new {
            Ok(is_new) => self.stored(key, version, is_new),
            Err(full) => {
                assert_eq!((full.key, full.value.version(name)), (name, version), "the pair comes back");
                self.told(key, false, None);
            }
        }
        self.read(key);
    }

    fn remove(&mut self, key: usize) {
        let removed = self.map().remove(&(key as u64)).map(|value| value.version(key as u64));
        self.told(key, removed.is_some(), removed);
        self.known[key] = None;
        self.read(key);
    }

    fn remove_if(&mut self, key: usize) {
        let newest = self.versions[key];
        let mut seen = None;
        let is_removed = self.map().remove_if(&(key as u64), |_, value| {
            seen = Some(value.version(key as u64));
            newest.is_multiple_of(2)
        });
        self.told(key, seen.is_some(), seen);
        assert_eq!(is_removed, seen.is_some() && newest.is_multiple_of(2));
        if is_removed {
            self.known[key] = None;
        }
        self.read(key);
    }

    /// Computes a key's value anew: stores, changes or removes it.
    fn change(&mut self, key: usize) {
        let (name, next) = (key as u64, self.versions[key] + 1);
        let ledger = &self.shared.ledger;
        let mut seen = None;
        let outcome = self.map().try_compute(name, |value| {
            seen = value.map(|value| value.version(name));
            match seen {
                Some(version) if version.is_multiple_of(3) => Change::Remove,
                Some(version) if version.is_multiple_of(2) => Change::Keep,
                _ => Change::Put(V::new(name, next, ledger)),
            }
        });
        match outcome {
            Err(full) => {
                assert_eq!(full.value.version(name), next);
                self.told(key, false, None);
            }
            Ok(Changed::Kept) => self.told(key, true, seen),
            Ok(Changed::Inserted) => self.stored(key, next, true),
            Ok(Changed::Updated) => {
                self.told(key, true, seen);
                self.stored(key, next, false);
            }
            Ok(Changed::Removed) => {
                self.told(key, true, seen);
                self.known[key] = None;
            }
        }
        self.read(key);
    }

    /// None of its own is there afterwards.
    fn clear(&mut self) {
        (self.shared.uses.clear)(self.map());
        for key in self.own_keys() {
            self.known[key] = None;
            self.read(key);
        }
    }

    /// Looks at a key's value twice, and lets others go first in between.
    fn read(&mut self, key: usize) {
        let name = key as u64;
        let seen = (self.shared.uses.read)(self.map(), name, &mut |value| {
            let version = value.version(name);
            hint::schedule();
            assert_eq!(value.version(name), version, "a value changes while it is looked at");
            version
        });
        self.see(key, seen);
    }

    fn see(&mut self, key: usize, seen: Option<u64>) {
        if key % WORKERS == self.me {
            return self.told(key, seen.is_some(), seen);
        }
        if let Some(version) = seen {
            assert!(version >= self.versions[key], "key {key} went back to version {version}");
            self.versions[key] = version;
        }
    }

    fn read_many(&mut self) {
        let keys: Vec<u64> = (0..OWN_KEYS as u64).collect();
        let values = self.map().get_many(&keys);
        let seen = values.iter().zip(&keys).map(|(value, key)| value.as_ref().map(|value| value.version(*key)));
        self.see_all(&seen.collect::<Vec<_>>());
    }

    /// Each key of its own is seen once.
    fn walk(&mut self) {
        let mut seen = [None; OWN_KEYS];
        for (key, value) in &self.shared.map {
            if let Some(seen) = seen.get_mut(key as usize) {
                let before = seen.replace(value.version(key));
                assert!(before.is_none() || key as usize % WORKERS != self.me, "key {key} is seen twice");
            }
        }
        self.see_all(&seen);
    }

    /// What was seen of all keys, of one earlier than of the other: the map may have been emptied in between.
    fn see_all(&mut self, seen: &[Option<u64>]) {
        let is_there = |(_, seen): &(usize, Option<u64>)| seen.is_some();
        let (there, missing): (Vec<_>, Vec<_>) = seen.iter().copied().enumerate().partition(is_there);
        there.into_iter().chain(missing).for_each(|(key, seen)| self.see(key, seen));
    }

    /// Removes its own keys of odd versions, and what is raised before it is.
    fn retain(&mut self) {
        let is_odd = |version: u64| !version.is_multiple_of(2);
        let me = self.me;
        (self.shared.uses.retain)(self.map(), &mut |key, value| {
            let is_mine = (*key as usize) < OWN_KEYS && *key as usize % WORKERS == me;
            let keeps = !((is_mine || *key == RAISED) && is_odd(value.version(*key)));
            // Others may raise it now.
            hint::schedule();
            keeps
        });
        for key in self.own_keys() {
            if self.known[key].is_some_and(|known| is_odd(known.version)) {
                self.known[key] = None;
            }
            self.read(key);
        }
    }

    fn increment(&mut self) {
        if (self.shared.uses.increment)(self.map(), COUNTER) {
            self.increments += 1;
        } else {
            assert!(self.shared.is_cleared, "the counter is gone");
        }
    }

    /// Takes the token, or puts it there: whoever did either was the only one.
    fn token(&mut self) {
        if (self.shared.uses.take)(self.map(), TOKEN) {
            self.shared.coverage.tokens_taken.count();
            self.tokens -= 1;
        } else if self.map().insert_if_absent(TOKEN, V::new(TOKEN, 1, &self.shared.ledger)).unwrap_or(false) {
            self.tokens += 1;
        }
    }

    /// Makes it, or raises it from its first version to its second and last.
    fn raise(&mut self) {
        let ledger = &self.shared.ledger;
        let changed = self.map().try_compute(RAISED, |there| match there.map(|value| value.version(RAISED)) {
            None => Change::Put(V::new(RAISED, 1, ledger)),
            Some(1) => Change::Put(V::new(RAISED, 2, ledger)),
            Some(_) => Change::Keep,
        });
        match changed {
            Ok(Changed::Updated | Changed::Kept) => {
                self.shared.coverage.raised.count();
                self.has_raised = true;
            }
            Ok(Changed::Inserted | Changed::Removed) | Err(_) => {
                assert!(!self.has_raised || self.shared.is_cleared, "what has been raised is gone");
            }
        }
    }

    /// Whoever comes first makes it; the others get what it made.
    fn make_once(&mut self) {
        let (me, ledger) = (self.me as u64, &self.shared.ledger);
        let Ok(made) = self.map().get_or_insert_with(MADE_ONCE, || V::new(MADE_ONCE, me, ledger)) else { return };
        let maker = made.version(MADE_ONCE);
        if maker != me {
            self.shared.coverage.made_by_another.count();
        }
        assert!(self.shared.is_cleared || self.made.is_none_or(|before| before == maker), "made twice");
        self.made = Some(maker);
    }
}

/// One schedule.
fn play<V: Value, L: Storage<u64, V>>(uses: Uses<V, L>, coverage: &Arc<Coverage>) {
    let ledger = Arc::new(Ledger::default());
    let map: Map<V, L> = Builder::new().hasher(Salted(thread_rng().next_u64())).build().expect("memory");
    let is_cleared = thread_rng().gen_bool(0.5);
    let value = |key, version| V::new(key, version, &ledger);
    assert!(map.upsert(COUNTER, value(COUNTER, 0)).is_ok() && map.upsert(TOKEN, value(TOKEN, 1)).is_ok());
    let mut known = [None; OWN_KEYS];
    for (key, known) in known.iter_mut().enumerate() {
        if thread_rng().gen_bool(0.7) && map.upsert(key as u64, value(key as u64, 1)).is_ok() {
            *known = Some(Known { version: 1, since: 0, seen: 1 });
        }
    }
    let before = map.table.segments();
    let shared =
        Arc::new(Shared { map, is_cleared, ledger: Arc::clone(&ledger), uses, coverage: Arc::clone(coverage) });
    let threads: Vec<_> = (0..WORKERS)
        .map(|me| {
            let worker = Worker {
                shared: Arc::clone(&shared),
                me,
                now: 1,
                versions: [1; OWN_KEYS],
                known: std::array::from_fn(|key| known[key].filter(|_| key % WORKERS == me)),
                increments: 0,
                tokens: 0,
                made: None,
                has_raised: false,
            };
            thread::spawn(move || worker.work())
        })
        .collect();
    let mut workers: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("worker")).collect();
    check(&shared, &mut workers, before);
    drop(workers);
    drop(shared);
    assert_eq!(ledger.0.load(Ordering::Relaxed), 0, "values that were not dropped, or were twice");
}

/// Nobody is at work: everything is as it was left, and nothing else is there.
fn check<V: Value, L: Storage<u64, V>>(shared: &Shared<V, L>, workers: &mut [Worker<V, L>], segments_before: usize) {
    let (map, coverage) = (&shared.map, &shared.coverage);
    for worker in &mut *workers {
        worker.own_keys().for_each(|key| worker.read(key));
        worker.walk();
    }
    let shared_keys = [COUNTER, TOKEN, MADE_ONCE, RAISED].map(|key| map.get(&key).map(|value| value.version(key)));
    let own = workers.iter().flat_map(|worker| worker.known).flatten().count();
    let expected = own + shared_keys.iter().flatten().count();
    assert_eq!((map.len(), map.iter().count()), (expected, expected), "keys that are counted, and keys that are there");
    let [counter, token, made, raised] = shared_keys;
    if !shared.is_cleared {
        assert_eq!(counter, Some(workers.iter().map(|worker| worker.increments).sum()), "increments");
        let tokens = 1 + workers.iter().map(|worker| worker.tokens).sum::<i64>();
        assert_eq!(i64::from(token.is_some()), tokens, "tokens");
        for worker in workers.iter().filter(|worker| worker.made.is_some()) {
            assert_eq!(worker.made, made, "what was made once");
        }
        if workers.iter().any(|worker| worker.has_raised) {
            assert_eq!(raised, Some(2), "what was raised");
        }
    }
    if map.table.segments() > segments_before {
        coverage.growths.count();
    }
    if map.table.is_growing() {
        coverage.growths_underway_at_the_end.count();
    }
    // It ends now, and all is where it was.
    loop {
        match map.grow_by(usize::MAX) {
            Ok(Growth::Underway) => {}
            Ok(Growth::Complete | Growth::Idle) => break assert!(!map.table.is_growing()),
            // Too many keys share two buckets, which with four slots each they may.
            Err(GrowError::Unplaced) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    workers.iter_mut().for_each(Worker::walk);
}

/// Plays the map as it is, and sees to it that its threads have met.
fn passes<V: Value, L: Storage<u64, V>>(scheduler: impl Scheduler + 'static) {
    let coverage = Arc::default();
    let counted = Arc::clone(&coverage);
    assert_eq!(schedules::pass(scheduler, move || play(Uses::<V, L>::SOUND, &counted)), SCHEDULES);
    let Coverage { growths, growths_underway_at_the_end, tokens_taken, vanished, made_by_another, raised } = &*coverage;
    schedules::have_happened(
        SCHEDULES / 100,
        &[
            (growths, "growths"),
            (growths_underway_at_the_end, "growths under way at the end"),
            (tokens_taken, "tokens taken"),
            (vanished, "keys seen to have vanished"),
            (made_by_another, "values made by another thread"),
            (raised, "values raised, or seen to have been"),
        ],
    );
}

#[test]
fn shuttle_a_map_of_words_is_as_its_users_left_it_under_random_schedules() {
    passes::<[u64; 2], Inline>(schedules::random(SCHEDULES));
}

#[test]
fn shuttle_a_map_of_words_is_as_its_users_left_it_under_few_preemptions() {
    passes::<[u64; 2], Inline>(schedules::few_preemptions(SCHEDULES));
}

#[test]
fn shuttle_a_map_of_entries_is_as_its_users_left_it_under_random_schedules() {
    passes::<Tracked, Boxed>(schedules::random(SCHEDULES));
}

#[test]
fn shuttle_a_map_of_entries_is_as_its_users_left_it_under_few_preemptions() {
    passes::<Tracked, Boxed>(schedules::few_preemptions(SCHEDULES));
}
