//! What is put into a map is dropped exactly once: when it is refused, replaced, removed, or with the map.

use std::{
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use guira_cuckoo::{Boxed, Builder, Change, Changed, CuckooMap, RandomState, Ways, Width};

/// Counts the drops of everything that was made with it.
#[derive(Debug)]
struct Ledger {
    drops: Box<[AtomicU32]>,
    made: AtomicUsize,
}

impl Ledger {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { drops: (0..room).map(|_| AtomicU32::new(0)).collect(), made: AtomicUsize::new(0) })
    }

    fn made(&self) -> &[AtomicU32] {
        &self.drops[..self.made.load(Ordering::Relaxed)]
    }

    fn alive(&self) -> usize {
        self.made().iter().filter(|drops| drops.load(Ordering::Relaxed) == 0).count()
    }

    fn all_are_dropped_once(&self) {
        for (at, drops) in self.made().iter().enumerate() {
            assert_eq!(drops.load(Ordering::Relaxed), 1, "drops of number {at} of {}", self.made().len());
        }
    }
}

/// A key or a value.
#[derive(Debug)]
struct Counted {
    number: u64,
    at: usize,
    ledger: Arc<Ledger>,
}

impl Counted {
    fn new(number: u64, ledger: &Arc<Ledger>) -> Self {
        Self { number, at: ledger.made.fetch_add(1, Ordering::Relaxed), ledger: Arc::clone(ledger) }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.number, &self.ledger)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.ledger.drops[self.at].fetch_add(1, Ordering::Relaxed);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// All hashes are one.
#[derive(Clone, Copy, Default)]
struct Constant;

impl Hasher for Constant {
    fn write(&mut self, _: &[u8]) {}
    fn finish(&self) -> u64 {
        1
    }
}

type Map<const WAYS: usize, S = RandomState> = CuckooMap<Counted, Counted, S, Boxed, WAYS>;

fn map<const WAYS: usize, S: BuildHasher>(hasher: S) -> Map<WAYS, S>
where
    Ways<WAYS>: Width,
{
    Builder::new().hasher(hasher).build().expect("memory")
}

/// The outcome is not what it is about.
fn ignore<T>(_: T) {}

/// One of each operation, on a key that is there or not, by `turn`.
fn operate<const WAYS: usize>(map: &Map<WAYS>, ledger: &Arc<Ledger>, turn: u64, number: u64)
where
    Ways<WAYS>: Width,
{
    let new = |number| Counted::new(number, ledger);
    let (key, value) = (new(number), new(turn));
    match turn % 26 {
        0 => ignore(map.insert(key, value)),
        1 => ignore(map.try_insert(key, value).expect("it grows")),
        2 | 3 => ignore(map.upsert(key, value).expect("it grows")),
        4 => ignore(map.insert_if_absent(key, value).expect("it grows")),
        5 => ignore(map.get_or_insert(key, value).expect("it grows")),
        6 => ignore(map.get_or_insert_with(key, || value).expect("it grows")),
        7 => ignore(map.get(&key)),
        8 => ignore(map.get_with(&key, Counted::clone)),
        9 => ignore(map.get_many(&[key, new(number + 1), new(number)])),
        10 => ignore(map.update(&key, |old| new(old.number + 1))),
        11 => assert_eq!(map.compute(key, |_| Change::Keep), Changed::Kept),
        12 => ignore(map.compute(key, |old| Change::Put(new(old.map_or(0, |old| old.number))))),
        13 => ignore(map.compute(key, |_| Change::Remove)),
        14 => ignore(map.compute(key, |old| if old.is_some() { Change::Remove } else { Change::Put(new(turn)) })),
        15 => ignore(map.remove(&key)),
        16 => ignore(map.delete(&key)),
        17 => ignore(map.remove_if(&key, |key, value| key.number % 2 == 0 || *value == new(turn))),
        18 => map.get_many_with(&[key], |_, value| ignore(value.cloned())),
        19 => {
            ignore(map.insert_many([(key, value), (new(number), new(1)), (new(number + 1), new(2))]).expect("it grows"))
        }
        20 => ignore(map.raw_upsert(map.hash_key(&key), key, value).expect("it grows")),
        21 => ignore(map.raw_get_or_insert_with(
            map.hash_key(&key),
            |there| there.number == number,
            || (new(number), value),
        )),
        22 => ignore(map.raw_remove(map.hash_key(&key), |there| *there == key, |_, value| value.clone())),
        23 => {
            let mut map = map;
            map.extend([(key, value)])
        }
        24 if (turn / 26).is_multiple_of(5) => map.retain(|there, _| there.number % 700 != number),
        25 if (turn / 26).is_multiple_of(5) => ignore(map.iter().take(50).collect::<Vec<_>>()),
        _ => map.reserve(10).expect("memory"),
    }
}

#[test]
fn each_operation_drops_what_it_should() {
    fn at_width<const WAYS: usize>()
    where
        Ways<WAYS>: Width,
    {
        let ledger = Ledger::new(300_000);
        let map = map::<WAYS, _>(RandomState::default());
        for turn in 0..40_000u64 {
            operate(&map, &ledger, turn, turn.wrapping_mul(0x9e37_79b9) % 700);
        }
        let len = map.len();
        assert!(len > 100 && ledger.alive() >= 2 * len);
        drop(map);
        ledger.all_are_dropped_once();
    }
    at_width::<4>();
    at_width::<8>();
    at_width::<16>();
}

#[test]
fn a_map_that_is_emptied_or_made_smaller_drops_what_has_gone_and_nothing_else() {
    let ledger = Ledger::new(200_000);
    let mut map = map::<8, _>(RandomState::default());
    let fill = |map: &Map<8>| {
        map.insert_many((0..20_000).map(|number| (Counted::new(number, &ledger), Counted::new(number, &ledger))))
            .expect("it grows")
    };
    assert_eq!(fill(&map), 20_000);
    map.retain(|key, _| key.number < 10);
    map.shrink_to_fit();
    assert!(map.capacity() <= 256, "{}", map.capacity());
    let key = |number| Counted::new(number, &ledger);
    assert_eq!((map.len(), map.get(&key(9)), map.get(&key(10))), (10, Some(key(9)), None));
    assert_eq!(fill(&map), 19_990);
    map.clear();
    assert!(map.is_empty() && map.iter().next().is_none());
    assert_eq!(map.upsert(key(1), key(2)), Ok(true));
    drop(map);
    ledger.all_are_dropped_once();
}

#[test]
fn what_insert_many_could_not_store_comes_back() {
    let ledger = Ledger::new(10_000);
    let map = map::<8, _>(BuildHasherDefault::<Constant>::default());
    let new = |number| Counted::new(number, &ledger);
    let mut pairs = (0..200).map(|number| (new(number), new(number)));
    let full = map.insert_many(&mut pairs).expect_err("half a bucket of one hash");
    assert_eq!((full.inserted, map.len()), (4, 4));
    let rest: Vec<u64> = full.rest.iter().map(|(key, _)| key.number).collect();
    assert_eq!(rest, (4..4 + rest.len() as u64).collect::<Vec<_>>(), "a batch, in order");
    assert_eq!(
        pairs.next().map(|(key, _)| key.number),
        Some(4 + rest.len() as u64),
        "what was not taken is still there"
    );
    drop(full);
    drop(map);
    ledger.all_are_dropped_once();
}

#[test]
fn threads_that_have_gone_leave_nothing_behind() {
    const THREADS: u64 = 4;
    let ledger = Ledger::new(1_000_000);
    let map = map::<4, _>(RandomState::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (map, ledger) = (&map, &ledger);
            scope.spawn(move || {
                for turn in 0..20_000u64 {
                    // Many at once on a few keys, so that each one's way is crossed; and others that make the map grow.
                    let range = if turn % 4 == 0 { 50_000 } else { 20 };
                    operate(map, ledger, turn * 7 + thread, turn.wrapping_mul(0x9e37_79b9_7f4a_7c15 + thread) % range);
                }
            });
        }
    });
    drop(map);
    ledger.all_are_dropped_once();
}

#[test]
fn what_is_refused_comes_back_whole() {
    let ledger = Ledger::new(10_000);
    let map = map::<8, _>(BuildHasherDefault::<Constant>::default());
    let new = |number| Counted::new(number, &ledger);
    // Half a bucket.
    for number in 0..4 {
        assert!(map.upsert(new(number), new(number)).is_ok());
    }
    assert_eq!(ledger.alive(), 8);
    for turn in 0..40 {
        let (key, value) = (new(99), new(turn));
        let (key_at, value_at) = (key.at, value.at);
        let full = match turn % 5 {
            0 => map.try_insert(key, value).expect_err("full"),
            1 => map.upsert(key, value).expect_err("full"),
            2 => map.insert_if_absent(key, value).expect_err("full"),
            3 => map.get_or_insert_with(key, || value).expect_err("full"),
            _ => {
                let mut value = Some(value);
                map.try_compute(key, |_| Change::Put(value.take().unwrap_or_else(|| new(turn)))).expect_err("full")
            }
        };
        assert_eq!((full.key.number, full.value.number), (99, turn));
        assert_eq!(full.key.at, key_at, "the very key that was passed");
        if turn % 5 != 4 {
            assert_eq!(full.value.at, value_at, "the very value that was passed");
        }
        assert_eq!(ledger.alive(), 10, "the map's, and what came back");
        drop(full);
        assert_eq!(ledger.alive(), 8);
    }
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| map.insert(new(99), new(99))));
    assert!(refused.is_err());
    assert_eq!((map.len(), ledger.alive()), (4, 8));
    drop(map);
    ledger.all_are_dropped_once();
}

#[test]
fn a_map_dropped_in_the_middle_of_growth_drops_every_pair_once() {
    let segment = 4096 * 4;
    for further in [0, 1, 20, 300, 800, 1020, 1030, 1100, 1500, 2000, 2100, 3000] {
        let ledger = Ledger::new(60_000);
        let map = map::<4, _>(RandomState::default());
        let mut number = 0;
        let mut insert = || {
            assert!(map.upsert(Counted::new(number, &ledger), Counted::new(number, &ledger)).is_ok());
            number += 1;
        };
        while map.capacity() <= segment {
            insert();
        }
        (0..further).for_each(|_| insert());
        assert_eq!(map.len() as u64, number);
        assert_eq!(ledger.alive() as u64, 2 * number);
        drop(map);
        ledger.all_are_dropped_once();
    }
}

#[test]
fn what_is_looked_at_is_not_dropped_meanwhile() {
    let ledger = Ledger::new(100_000);
    let map = map::<8, _>(RandomState::default());
    let new = |number| Counted::new(number, &ledger);
    map.insert(new(1), new(1));
    let seen = map.get_with(&new(1), |value| {
        assert!(map.delete(&new(1)));
        // Enough that what can be freed is freed, by this thread and by another.
        (0..2000).for_each(|turn| ignore(map.upsert(new(2), new(turn))));
        let churned = std::thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|turn| ignore(map.upsert(new(3), new(turn))))).join()
        });
        assert!(churned.is_ok());
        assert_eq!(ledger.drops[value.at].load(Ordering::Relaxed), 0);
        value.number
    });
    assert_eq!(seen, Some(1));
    drop(map);
    ledger.all_are_dropped_once();
}

#[test]
fn what_was_taken_out_is_freed_while_the_map_lives() {
    let ledger = Ledger::new(100_000);
    let map = map::<8, _>(RandomState::default());
    for turn in 0..20_000 {
        assert!(map.upsert(Counted::new(1, &ledger), Counted::new(turn, &ledger)).is_ok());
    }
    assert!(ledger.alive() < 2000, "{} of one pair", ledger.alive());
}

/// A pin puts off what is freed, and no more: reads are as they were, and afterwards it is freed.
#[test]
fn what_is_taken_out_while_a_thread_is_pinned_is_freed_once_it_is_not() {
    let ledger = Ledger::new(100_000);
    let map = map::<8, _>(RandomState::default());
    let new = |number| Counted::new(number, &ledger);
    let store = |turn| assert!(map.upsert(new(1), new(turn)).is_ok());
    let is_stored = |turn| map.get_with(&new(1), |value| value.number == turn) == Some(true);
    let pinned = map.pin();
    for turn in 0..5_000 {
        store(turn);
        assert!(is_stored(turn));
    }
    assert!(map.get_many(&[new(1), new(2)]) == [Some(new(4_999)), None]);
    // Of each pair the key that was stored, and the value.
    assert!(ledger.alive() >= 2 * 5_000, "{}: some were freed", ledger.alive());
    drop(pinned);
    (0..2_000).for_each(store);
    assert!(ledger.alive() < 2_000, "{} of one pair", ledger.alive());
    drop(map);
    ledger.all_are_dropped_once();
}
