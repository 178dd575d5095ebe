//! Panics in what the map calls: hashers, `Eq`, `Clone`, closures, `Drop`. No lock stays held, and nothing that was there is lost.

use std::{
    cell::Cell,
    collections::HashSet,
    hash::{BuildHasher, Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
};

use guira_cuckoo::{Auto, Boxed, Builder, Change, CuckooMap, Inline, Plain, Storage, Ways, Width};

/// The outcome is not what it is about.
fn ignore<T>(_: T) {}

fn panics<R>(work: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// These keys can be written and read, from this thread and from another: no lock of theirs is held.
fn is_usable<
    K: Hash + Eq + Clone + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher + Sync,
    L: Storage<K, V>,
    const WAYS: usize,
>(
    map: &CuckooMap<K, V, S, L, WAYS>,
    keys: &[K],
    value: impl Fn(&K) -> V + Sync,
) where
    Ways<WAYS>: Width,
{
    let touch = || {
        for key in keys {
            assert!(map.upsert(key.clone(), value(key)).is_ok());
            assert!(map.update(key, V::clone).is_some());
            assert!(map.contains_key(key));
        }
        assert_eq!(map.get_many(keys).iter().flatten().count(), keys.len());
    };
    touch();
    std::thread::scope(|scope| assert!(scope.spawn(touch).join().is_ok(), "from another thread"));
    touch();
}

/// Hashes a certain number of keys and panics at the next.
#[derive(Clone, Default)]
struct Fuse(Arc<AtomicI64>);

#[derive(Default)]
struct Mixing(u64);

impl BuildHasher for Fuse {
    type Hasher = Mixing;
    fn build_hasher(&self) -> Mixing {
        if self.0.load(Ordering::Relaxed) >= 0 {
            assert_ne!(self.0.fetch_sub(1, Ordering::Relaxed), 0, "the fuse has burnt down");
        }
        Mixing(0)
    }
}

impl Hasher for Mixing {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Inserts `before` keys; lets the hasher panic after so many more hashes; goes on inserting until it has; and looks whether all
/// is there.
fn a_hasher_panics<L: Storage<u64, u64>, const WAYS: usize>(before: u64, hashes: i64)
where
    Ways<WAYS>: Width,
{
    let fuse = Fuse(Arc::new(AtomicI64::new(-1)));
    let map: CuckooMap<u64, u64, Fuse, L, WAYS> = Builder::new().hasher(fuse.clone()).build().expect("memory");
    (0..before).for_each(|key| assert_eq!(map.insert(key, !key), None));
    fuse.0.store(hashes, Ordering::Relaxed);
    let unlucky = (before..).find(|key| panics(|| map.insert(*key, !*key))).expect("it burns down");
    fuse.0.store(-1, Ordering::Relaxed);
    assert!((0..unlucky).all(|key| map.get(&key) == Some(!key)), "{before} keys, {hashes} hashes, {map:?}");
    // The one that was being inserted is there or not, and counted accordingly.
    let is_there = map.get(&unlucky).inspect(|value| assert_eq!(*value, !unlucky)).is_some();
    assert_eq!(map.len() as u64, unlucky + u64::from(is_there));
    // Growth goes on.
    let end = unlucky + unlucky / 2 + 300;
    (unlucky..end).for_each(|key| assert_eq!(map.insert(key, !key), (is_there && key == unlucky).then_some(!key)));
    let last = [end - 1, end - 2];
    is_usable(&map, &last, |key| !key);
    assert!((0..end).all(|key| map.get(&key) == Some(!key)));
    assert_eq!(map.len() as u64, end);
    (0..end).for_each(|key| assert_eq!(map.remove(&key), Some(!key)));
    assert!(map.is_empty());
}

#[test]
fn a_hasher_that_panics_while_a_small_table_is_rebuilt_loses_nothing() {
    for before in [100, 120, 240, 1000, 2000] {
        for hashes in [0, 1, 2, 40, 110, 117, 180, 400, 1100, 2500] {
            a_hasher_panics::<Auto, 8>(before, hashes);
            a_hasher_panics::<Auto, 4>(before, hashes);
            a_hasher_panics::<Boxed, 8>(before, hashes);
        }
    }
}

#[test]
fn a_hasher_that_panics_in_the_middle_of_growth_loses_nothing() {
    // A segment of four ways has 16,384 slots, and grows from 14,418 keys on; each insert moves eight buckets, so hashes some
    // thirty keys.
    for hashes in [0, 5, 15, 16, 17, 100, 101, 102, 500, 5000, 12_000, 18_000, 25_000, 33_000] {
        a_hasher_panics::<Auto, 4>(14_300, hashes);
    }
    a_hasher_panics::<Auto, 8>(30_000, 3000);
    a_hasher_panics::<Boxed, 4>(14_300, 400);
}

/// Growth goes on with removals too.
fn a_hasher_panics_beside_removals<L: Storage<u64, u64>>(hashes: i64) {
    const KEYS: u64 = 14_500;
    let fuse = Fuse(Arc::new(AtomicI64::new(-1)));
    let map: CuckooMap<u64, u64, Fuse, L, 4> = Builder::new().hasher(fuse.clone()).build().expect("memory");
    (0..KEYS).for_each(|key| assert_eq!(map.insert(key, !key), None));
    fuse.0.store(hashes, Ordering::Relaxed);
    let unlucky = (0..KEYS).find(|key| panics(|| map.remove(key))).expect("it burns down");
    fuse.0.store(-1, Ordering::Relaxed);
    let is_there = map.contains_key(&unlucky);
    assert!((0..unlucky).all(|key| map.get(&key).is_none()), "{hashes} hashes");
    assert!((unlucky + 1..KEYS).all(|key| map.get(&key) == Some(!key)), "{hashes} hashes, {map:?}");
    assert_eq!(map.len() as u64, KEYS - unlucky - u64::from(!is_there));
    is_usable(&map, &[KEYS - 1, KEYS], |key| !key);
    assert_eq!(map.reserve(0), Ok(()), "growth ends");
    assert!((unlucky + 1..=KEYS).all(|key| map.remove(&key) == Some(!key)));
}

#[test]
fn a_hasher_that_panics_in_a_growth_that_removals_drive_loses_nothing() {
    for hashes in [0, 1, 2, 3, 4, 5, 17, 100, 1001, 5000] {
        a_hasher_panics_beside_removals::<Auto>(hashes);
        a_hasher_panics_beside_removals::<Boxed>(hashes);
    }
}

thread_local! {
    /// Comparisons and clones that go well on this thread before one panics; none does if it is negative.
    static PATIENCE: Cell<i64> = const { Cell::new(-1) };
}

fn try_patience() {
    let left = PATIENCE.get();
    if left >= 0 {
        PATIENCE.set(left - 1);
        assert_ne!(left, 0, "patience is at its end");
    }
}

fn panics_soon<R>(patience: i64, work: impl FnOnce() -> R) -> bool {
    PATIENCE.set(patience);
    let has_panicked = panics(work);
    PATIENCE.set(-1);
    has_panicked
}

/// A number whose comparison may panic.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Touchy(u64);

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        try_patience();
        self.0 == other.0
    }
}

impl Eq for Touchy {}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

// SAFETY: a `u64` and nothing else: no padding, no interior mutability.
unsafe impl Plain for Touchy {}

fn an_eq_panics<L: Storage<Touchy, u64>, const WAYS: usize>()
where
    Ways<WAYS>: Width,
{
    let map: CuckooMap<Touchy, u64, _, L, WAYS> = Builder::new().build().expect("memory");
    let keys: Vec<Touchy> = (0..300).map(Touchy).collect();
    keys.iter().for_each(|key| assert_eq!(map.insert(*key, key.0), None));
    let key = keys[7];
    let works: [&dyn Fn(); 15] = [
        &|| ignore(map.get(&key)),
        &|| ignore(map.get_with(&key, |_| ())),
        &|| ignore(map.contains_key(&key)),
        &|| ignore(map.get_many(&[key])),
        &|| ignore(map.insert(key, 1)),
        &|| ignore(map.try_insert(key, 1)),
        &|| ignore(map.upsert(key, 1)),
        &|| ignore(map.insert_if_absent(key, 1)),
        &|| ignore(map.get_or_insert(key, 1)),
        &|| ignore(map.update(&key, |_| 1)),
        &|| ignore(map.compute(key, |_| Change::Put(1))),
        &|| ignore(map.compute(key, |_| Change::Remove)),
        &|| ignore(map.remove(&key)),
        &|| ignore(map.delete(&key)),
        &|| ignore(map.remove_if(&key, |_, _| true)),
    ];
    for (at, work) in works.iter().enumerate() {
        assert!(panics_soon(0, work), "operation {at} compares");
        assert_eq!((map.len(), map.get(&key)), (300, Some(7)), "after operation {at}");
        // Those that compare more than once may panic in the middle.
        let _second_comparison = panics_soon(1, work);
        assert!(map.upsert(key, 7).is_ok());
        is_usable(&map, &keys, |key| key.0);
    }
    assert_eq!(map.len(), 300);
}

#[test]
fn an_eq_that_panics_leaves_the_map_as_it_was() {
    an_eq_panics::<Inline, 4>();
    an_eq_panics::<Inline, 8>();
    an_eq_panics::<Inline, 16>();
    an_eq_panics::<Boxed, 8>();
}

fn closures_panic<V: Clone + Eq + std::fmt::Debug + Send + Sync, L: Storage<u64, V>, const WAYS: usize>(
    of: fn(u64) -> V,
) where
    Ways<WAYS>: Width,
{
    let map: CuckooMap<u64, V, _, L, WAYS> = Builder::new().build().expect("memory");
    let keys: Vec<u64> = (0..300).collect();
    keys.iter().for_each(|key| assert_eq!(map.insert(*key, of(*key)), None));
    let calls = Cell::new(0);
    let fail = || -> ! {
        calls.set(calls.get() + 1);
        panic!("on purpose")
    };
    for key in [5, 1000] {
        let works: [&dyn Fn(); 16] = [
            &|| ignore(map.get_with(&key, |_| fail())),
            &|| ignore(map.get_with(&5, |_| fail())),
            &|| {
                map.get_many_with(&[1, key, 3], |at, _| {
                    if at == 1 {
                        fail()
                    }
                })
            },
            &|| ignore(map.update(&key, |_| fail())),
            &|| ignore(map.update(&5, |_| fail())),
            &|| ignore(map.compute(key, |_| fail())),
            &|| ignore(map.try_compute(key, |_| fail())),
            &|| ignore(map.remove_if(&key, |_, _| fail())),
            &|| ignore(map.remove_if(&5, |_, _| fail())),
            &|| ignore(map.get_or_insert_with(key, || fail())),
            &|| ignore(map.get_or_insert_with(1000, || fail())),
            &|| map.retain(|_, _| fail()),
            &|| map.for_each(|_, _| fail()),
            &|| ignore(map.raw_remove(map.hash_key(&key), |_| fail(), |_, _| ())),
            &|| ignore(map.raw_get_or_insert_with(map.hash_key(&key), |there| *there == key, || fail())),
            &|| ignore(map.insert_many((0..100).map(|number| if number < 90 { (number, of(number)) } else { fail() }))),
        ];
        for (at, work) in works.iter().enumerate() {
            let before = calls.get();
            assert_eq!(panics(work), calls.get() > before, "what panics is passed on");
            assert_eq!((map.len(), map.get(&key)), (300, (key == 5).then(|| of(key))), "after work {at} on {key}");
            is_usable(&map, &keys, |key| of(*key));
        }
    }
    assert!(calls.get() >= 26, "{} calls", calls.get());
}

#[test]
fn closures_that_panic_leave_the_map_as_it_was() {
    closures_panic::<u64, Auto, 4>(|key| key);
    closures_panic::<u64, Auto, 8>(|key| key);
    closures_panic::<String, Auto, 8>(|key| key.to_string());
    closures_panic::<String, Boxed, 16>(|key| key.to_string());
}

/// A value that may panic when it is cloned, or dropped, and counts its drops.
#[derive(Debug)]
struct Fragile {
    number: u64,
    breaks_in_drop: bool,
    drops: Option<(Arc<[AtomicU32]>, usize)>,
}

impl Fragile {
    fn new(number: u64) -> Self {
        Self { number, breaks_in_drop: false, drops: None }
    }
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        try_patience();
        Self::new(self.number)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if let Some((drops, at)) = &self.drops {
            drops[*at].fetch_add(1, Ordering::Relaxed);
        }
        assert!(!self.breaks_in_drop, "broken in its drop");
    }
}

#[test]
fn a_clone_that_panics_leaves_no_lock_behind() {
    let map: CuckooMap<u64, Fragile> = CuckooMap::new();
    let keys: Vec<u64> = (0..100).collect();
    keys.iter().for_each(|key| assert_eq!(map.upsert(*key, Fragile::new(*key)), Ok(true)));
    let works: [&dyn Fn(); 7] = [
        &|| ignore(map.get(&7)),
        &|| ignore(map.get_many(&[7])),
        &|| ignore(map.insert(7, Fragile::new(8))),
        &|| ignore(map.update(&7, |value| Fragile::new(value.number))),
        &|| ignore(map.get_or_insert(7, Fragile::new(9))),
        &|| ignore(map.get_or_insert(1000, Fragile::new(9))),
        &|| ignore(map.remove(&7)),
    ];
    for work in works {
        assert!(panics_soon(0, work));
        assert!(map.upsert(7, Fragile::new(7)).is_ok());
        assert!(!map.contains_key(&1000));
        is_usable(&map, &keys, |key| Fragile::new(*key));
        assert_eq!(map.len(), 100);
    }
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// Values that count their drops in one place.
struct Batch(Arc<[AtomicU32]>);

impl Batch {
    fn new(len: usize) -> Self {
        Self((0..len).map(|_| AtomicU32::new(0)).collect())
    }

    fn value(&self, at: usize, breaks_in_drop: bool) -> Fragile {
        Fragile { number: at as u64, breaks_in_drop, drops: Some((Arc::clone(&self.0), at)) }
    }

    fn dropped(&self, times: u32) -> HashSet<usize> {
        (0..self.0.len()).filter(|at| self.0[*at].load(Ordering::Relaxed) == times).collect()
    }
}

const VALUES: usize = 5000;

/// Replaces and removes values on ten keys, of which a few panic when they are dropped; how often something panicked.
fn churn(map: &CuckooMap<u64, Fragile>, batch: &Batch) -> usize {
    let is_broken = |at: usize| at % 1000 == 500;
    let has_panicked = |at: &usize| {
        let value = batch.value(*at, is_broken(*at));
        panics(|| {
            let key = (*at % 10) as u64;
            if at.is_multiple_of(3) {
                map.delete(&key);
            }
            assert!(map.upsert(key, value).is_ok());
        })
    };
    let count = (0..VALUES).filter(has_panicked).count();
    // None is left in the map.
    count + (0..10).filter(|key| panics(|| map.upsert(*key, Fragile::new(*key)))).count()
}

#[test]
fn a_drop_that_panics_leaves_the_map_usable() {
    let map: CuckooMap<u64, Fragile> = CuckooMap::new();
    let batch = Batch::new(VALUES);
    assert!(churn(&map, &batch) <= 5);
    let keys: Vec<u64> = (0..10).collect();
    is_usable(&map, &keys, |key| Fragile::new(*key));
    assert_eq!(map.len(), 10);
    let _broken_ones = panics(|| drop(map));
    assert!((2..10).all(|times| batch.dropped(times).is_empty()), "none is dropped twice");
}

/// A value that panicked when it was dropped took with it all those that were to be freed together with it, and all that the
/// thread had to free after them: they leaked.
#[test]
fn a_drop_that_panics_has_the_others_dropped_all_the_same() {
    let map: CuckooMap<u64, Fragile> = CuckooMap::new();
    let batch = Batch::new(VALUES);
    churn(&map, &batch);
    let _broken_ones = panics(|| drop(map));
    let mut left: Vec<usize> = batch.dropped(0).into_iter().collect();
    left.sort_unstable();
    assert!(left.is_empty(), "{} of {VALUES} have leaked: {left:?}", left.len());
}

/// The same of what is still in the map when it is dropped.
#[test]
fn a_drop_that_panics_in_the_drop_of_the_map_has_the_others_dropped_all_the_same() {
    let map: CuckooMap<u64, Fragile> = CuckooMap::new();
    let batch = Batch::new(100);
    (0..100).for_each(|at| assert!(map.upsert(at as u64, batch.value(at, at == 50)).is_ok()));
    assert!(panics(|| drop(map)), "the panic is passed on");
    assert_eq!(batch.dropped(0).len(), 0, "of 100");
}
