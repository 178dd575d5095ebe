//! What a map does at its limits: no room, no memory, too many keys of one hash.

use std::hash::{BuildHasher, Hasher};

use guira_cuckoo::{Auto, Boxed, Builder, Change, Changed, CuckooMap, ReserveError, Storage, TableFull, Ways, Width};

/// Keys from here on share a few hashes.
const ALIKE: u64 = 1 << 60;

/// Hashes all keys below [`ALIKE`] well, and those from there on to so many hashes in turn.
#[derive(Clone, Copy)]
struct SomeAlike {
    hashes: u64,
    /// Other hashes for each.
    salt: u64,
    key: u64,
}

impl Default for SomeAlike {
    fn default() -> Self {
        Self { hashes: 1, salt: 0, key: 0 }
    }
}

impl BuildHasher for SomeAlike {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for SomeAlike {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }
    fn write_u64(&mut self, key: u64) {
        self.key = if key >= ALIKE { ALIKE + key % self.hashes } else { key } ^ self.salt << 40;
    }
    fn finish(&self) -> u64 {
        self.key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn growing<L: Storage<u64, u64>, const WAYS: usize>() -> CuckooMap<u64, u64, SomeAlike, L, WAYS>
where
    Ways<WAYS>: Width,
{
    Builder::new().hasher(SomeAlike::default()).build().expect("memory")
}

fn fixed<L: Storage<u64, u64>, const WAYS: usize>(keys: usize) -> CuckooMap<u64, u64, SomeAlike, L, WAYS>
where
    Ways<WAYS>: Width,
{
    Builder::new().capacity(keys).fixed().hasher(SomeAlike::default()).build().expect("memory")
}

#[test]
fn a_map_of_no_capacity_holds_keys_all_the_same() {
    let map: CuckooMap<u64, u64> = CuckooMap::with_capacity(0);
    assert!(map.is_empty() && map.get(&1).is_none() && !map.delete(&1) && map.get_many::<u64>(&[]).is_empty());
    for key in 0..1000 {
        assert_eq!(map.insert(key, key), None);
    }
    assert_eq!(map.len(), 1000);
    let fixed = fixed::<Auto, 8>(0);
    let held = (0..1000).take_while(|key| fixed.upsert(*key, *key).is_ok()).count();
    assert_eq!((held, fixed.len()), (fixed.len(), held));
    assert!(held <= fixed.capacity());
}

fn keys_of_one_hash_end_in_table_full<L: Storage<u64, u64>, const WAYS: usize>(
    map: &CuckooMap<u64, u64, SomeAlike, L, WAYS>,
) where
    Ways<WAYS>: Width,
{
    let before = map.len();
    let alike = |at: usize| ALIKE + at as u64;
    let held = (0..1000).take_while(|at| map.upsert(alike(*at), alike(*at) + 1).is_ok()).count();
    assert_eq!(held, WAYS / 2, "half a bucket");
    let refused = alike(held);
    let full = TableFull { key: refused, value: 5 };
    assert_eq!(map.try_insert(refused, 5), Err(full));
    assert_eq!(map.upsert(refused, 5), Err(full));
    assert_eq!(map.insert_if_absent(refused, 5), Err(full));
    assert_eq!(map.get_or_insert(refused, 5), Err(full));
    assert_eq!(map.try_compute(refused, |_| Change::Put(5)), Err(full));
    assert_eq!(map.try_compute(refused, |_| Change::Keep), Ok(Changed::Kept));
    assert_eq!((map.get(&refused), map.len()), (None, before + held));
    for at in 0..held {
        assert_eq!(map.get(&alike(at)), Some(alike(at) + 1));
        assert_eq!(map.try_insert(alike(at), 9), Ok(Some(alike(at) + 1)), "a key that is there needs no room");
        assert_eq!(map.try_compute(alike(at), |_| Change::Put(8)), Ok(Changed::Updated));
        assert_eq!(map.get_or_insert(alike(at), 7), Ok(8));
    }
    assert_eq!(map.remove(&alike(1)), Some(8));
    assert_eq!(map.upsert(refused, 5), Ok(true), "in the place of the one that has gone");
    assert_eq!(map.upsert(alike(1), 5), Err(TableFull { key: alike(1), value: 5 }));
    for at in (0..=held).filter(|at| *at != 1) {
        assert!(map.delete(&alike(at)));
    }
    assert_eq!(map.len(), before);
}

#[test]
fn keys_of_one_hash_end_in_table_full_and_go_on_being_served() {
    fn everywhere<L: Storage<u64, u64>, const WAYS: usize>()
    where
        Ways<WAYS>: Width,
    {
        keys_of_one_hash_end_in_table_full(&growing::<L, WAYS>());
        keys_of_one_hash_end_in_table_full(&fixed::<L, WAYS>(100));
        for others in [60, 2000] {
            let map = growing::<L, WAYS>();
            (0..others).for_each(|key| assert_eq!(map.upsert(key, key), Ok(true)));
            keys_of_one_hash_end_in_table_full(&map);
            assert!((0..others).all(|key| map.get(&key) == Some(key)));
        }
    }
    everywhere::<Auto, 4>();
    everywhere::<Auto, 8>();
    everywhere::<Auto, 16>();
    everywhere::<Boxed, 4>();
    everywhere::<Boxed, 8>();
    everywhere::<Boxed, 16>();
}

/// A growing map whose keys from [`ALIKE`] on share so many hashes.
fn growing_with<L: Storage<u64, u64>, const WAYS: usize>(hashes: u64) -> CuckooMap<u64, u64, SomeAlike, L, WAYS>
where
    Ways<WAYS>: Width,
{
    Builder::new().hasher(SomeAlike { hashes, salt: 0, key: 0 }).build().expect("memory")
}

/// How many of the keys of each hash are in the map; those that are have their value, and no others are.
fn held_of_each<L: Storage<u64, u64>, const WAYS: usize>(
    map: &CuckooMap<u64, u64, SomeAlike, L, WAYS>,
    hashes: u64,
    tried: u64,
) -> Vec<usize>
where
    Ways<WAYS>: Width,
{
    let mut held = vec![0; hashes as usize];
    for at in 0..tried {
        if let Some(value) = map.get(&(ALIKE + at)) {
            assert_eq!(value, at);
            held[((ALIKE + at) % hashes) as usize] += 1;
        }
    }
    held
}

/// A growth stopped for good, and with it the map for every new key, when it found no place in the new segment for the last of
/// those keys of one hash that filled both buckets: another key of these buckets was there already.
fn keys_alike_do_not_stop_a_growth<L: Storage<u64, u64>, const WAYS: usize>(hashes: u64, others: u64)
where
    Ways<WAYS>: Width,
{
    let map = growing_with::<L, WAYS>(hashes);
    for key in 0..others {
        assert_eq!(map.upsert(key, !key), Ok(true), "another key, {WAYS} ways, {hashes} hashes");
        let _refused = map.upsert(ALIKE + key, key);
    }
    let held = held_of_each(&map, hashes, others);
    assert!(held.iter().all(|held| *held == WAYS / 2), "{held:?} with {WAYS} ways");
    assert_eq!(map.len(), others as usize + held.iter().sum::<usize>());
    assert!((0..others).all(|key| map.get(&key) == Some(!key)));
    assert_eq!(map.reserve(0), Ok(()), "a growth that has begun ends");
    assert!(map.capacity() as u64 <= others * 2, "{map:?}");
}

#[test]
fn keys_of_one_hash_do_not_stop_a_growth_for_the_others() {
    fn everywhere<L: Storage<u64, u64>>() {
        for (hashes, others) in [(1, 100_000), (2, 100_000), (16, 100_000), (1000, 300_000)] {
            keys_alike_do_not_stop_a_growth::<L, 4>(hashes, others);
            keys_alike_do_not_stop_a_growth::<L, 8>(hashes, others);
            keys_alike_do_not_stop_a_growth::<L, 16>(hashes, others);
        }
    }
    everywhere::<Auto>();
    everywhere::<Boxed>();
}

/// Every way of adding a key is refused at the same number, while other threads add others and the map grows beneath them.
fn keys_alike_are_as_many_whoever_adds_them<L: Storage<u64, u64>, const WAYS: usize>(hashes: u64)
where
    Ways<WAYS>: Width,
{
    const EACH: u64 = 20_000;
    let map = growing_with::<L, WAYS>(hashes);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let map = &map;
            scope.spawn(move || {
                for (alike, other) in (0..EACH).map(|at| (at, thread * EACH + at)) {
                    assert_eq!(map.upsert(other, !other), Ok(true));
                    let key = ALIKE + alike;
                    let _maybe_refused = match (alike + thread) % 5 {
                        0 => map.insert_if_absent(key, alike).is_ok(),
                        1 => map.try_compute(key, |_| Change::Put(alike)).is_ok(),
                        2 => map.insert_many([(key, alike)]).is_ok(),
                        3 => map.raw_upsert(map.hash_key(&key), key, alike).is_ok(),
                        _ => map.get_or_insert(key, alike).is_ok(),
                    };
                }
            });
        }
    });
    let held = held_of_each(&map, hashes, EACH);
    assert!(held.iter().all(|held| *held == WAYS / 2), "{held:?} with {WAYS} ways");
    assert_eq!(map.len(), 4 * EACH as usize + held.iter().sum::<usize>());
    assert_eq!(map.reserve(0), Ok(()), "a growth that has begun ends");
}

#[test]
fn keys_of_one_hash_find_no_more_room_than_that_while_the_map_grows() {
    fn everywhere<L: Storage<u64, u64>>() {
        for hashes in [1, 16, 1000] {
            keys_alike_are_as_many_whoever_adds_them::<L, 4>(hashes);
            keys_alike_are_as_many_whoever_adds_them::<L, 8>(hashes);
            keys_alike_are_as_many_whoever_adds_them::<L, 16>(hashes);
        }
    }
    everywhere::<Auto>();
    everywhere::<Boxed>();
}

/// A small map refused keys of good hashes when a few hashes with all their keys had filled the two buckets that they shared, and
/// so had a map that was far from full: every displacement led back into those two. Doubling tells the hashes apart.
#[test]
fn a_small_map_doubles_when_two_of_its_buckets_are_full_of_few_hashes() {
    fn with_salts<const WAYS: usize>()
    where
        Ways<WAYS>: Width,
    {
        for salt in 0..3_000 {
            let hasher = SomeAlike { hashes: 12, salt, key: 0 };
            let map: CuckooMap<u64, u64, SomeAlike, Auto, WAYS> =
                Builder::new().hasher(hasher).build().expect("memory");
            (0..12 * WAYS as u64 / 2).for_each(|at| assert_eq!(map.upsert(ALIKE + at, at), Ok(true), "salt {salt}"));
            (0..60).for_each(|key| assert_eq!(map.upsert(key, key), Ok(true), "salt {salt}, {WAYS} ways"));
        }
    }
    with_salts::<4>();
    with_salts::<8>();
    with_salts::<16>();
}

/// A hasher that knows few hashes fills a map with half a bucket of keys for each, and does not make it grow any further.
fn few_hashes<L: Storage<u64, u64>, const WAYS: usize>(hashes: u64)
where
    Ways<WAYS>: Width,
{
    let tried = 20 * hashes.max(10);
    let fill = |map: &CuckooMap<u64, u64, SomeAlike, L, WAYS>| {
        for at in 0..tried {
            let _refused = map.upsert(ALIKE + at, at);
        }
        let held = held_of_each(map, hashes, tried);
        assert_eq!(held.iter().sum::<usize>(), map.len());
        assert!(held.iter().all(|held| *held <= WAYS / 2), "{held:?} with {WAYS} ways");
        held
    };
    let map = growing_with::<L, WAYS>(hashes);
    assert_eq!(fill(&map), vec![WAYS / 2; hashes as usize]);
    assert!(map.capacity() <= 4 * map.len().max(16 * WAYS), "{map:?}");
    let builder = Builder::new().hasher(SomeAlike { hashes, salt: 0, key: 0 }).fixed();
    for capacity in [0, hashes as usize * WAYS, 100_000] {
        let held = fill(&builder.clone().capacity(capacity).build().expect("memory"));
        // Hashes that meet in a bucket of a small map may find it full.
        assert!(held.iter().sum::<usize>() >= WAYS / 2 * (hashes as usize).min(2), "{held:?} with {WAYS} ways");
    }
}

#[test]
fn few_hashes_fill_a_map_and_no_more() {
    for hashes in [1, 2, 16, 1000] {
        few_hashes::<Auto, 4>(hashes);
        few_hashes::<Auto, 8>(hashes);
        few_hashes::<Auto, 16>(hashes);
        few_hashes::<Boxed, 4>(hashes);
        few_hashes::<Boxed, 8>(hashes);
        few_hashes::<Boxed, 16>(hashes);
    }
}

fn filled<L: Storage<u64, u64>, const WAYS: usize>(keys: usize) -> CuckooMap<u64, u64, SomeAlike, L, WAYS>
where
    Ways<WAYS>: Width,
{
    let map = fixed::<L, WAYS>(keys);
    let refused = (0..).find(|key| map.upsert(*key, !*key).is_err()).expect("it is fixed");
    assert_eq!(map.upsert(refused, 3), Err(TableFull { key: refused, value: 3 }));
    assert_eq!(map.len() as u64, refused);
    assert!((0..refused).all(|key| map.get(&key) == Some(!key)) && map.get(&refused).is_none());
    map
}

#[test]
fn a_fixed_map_fills_to_95_percent_and_then_refuses() {
    fn everywhere<L: Storage<u64, u64>>() {
        for keys in [5_000, 30_000, 100_000] {
            let (eight, sixteen) = (filled::<L, 8>(keys), filled::<L, 16>(keys));
            assert!(eight.len() >= keys && eight.len() * 100 >= eight.capacity() * 95, "{} keys", eight.len());
            assert!(sixteen.len() >= keys && sixteen.len() * 100 >= sixteen.capacity() * 95, "{} keys", sixteen.len());
            assert!(eight.is_fixed());
        }
    }
    everywhere::<Auto>();
    everywhere::<Boxed>();
}

#[test]
fn a_fixed_map_has_room_for_the_keys_it_was_made_for() {
    for keys in (1..200).chain([500, 900, 1500, 3000, 6000, 13_000, 25_000, 40_000, 62_000]) {
        for turn in 0..3u64 {
            let (four, eight, sixteen) = (fixed::<Auto, 4>(keys), fixed::<Auto, 8>(keys), fixed::<Auto, 16>(keys));
            // Other keys each time.
            for key in (0..keys as u64).map(|key| key * 3 + turn) {
                assert_eq!(eight.upsert(key, key), Ok(true), "made for {keys}");
                assert_eq!(sixteen.upsert(key, key), Ok(true), "made for {keys}");
                if keys < 200 {
                    assert_eq!(four.upsert(key, key), Ok(true), "made for {keys}");
                }
            }
        }
    }
}

/// With buckets of four slots the fullest of some dozen segments has no room left before all are at 95 %, and room for so many
/// is all that a map was made with.
#[test]
fn a_fixed_map_of_four_ways_has_room_for_the_keys_it_was_made_for() {
    let keys = 64 * 4096 * 4 * 95 / 100;
    let map = fixed::<Auto, 4>(keys);
    let held = (0..keys as u64).take_while(|key| map.upsert(*key, *key).is_ok()).count();
    assert_eq!(held, keys);
}

#[test]
#[should_panic(expected = "no room for the key")]
fn insert_panics_where_try_insert_refuses() {
    let map = filled::<Boxed, 8>(10);
    map.insert(map.len() as u64, 1);
}

#[test]
fn capacities_that_no_machine_has_are_refused() {
    fn refused<L: Storage<u64, u64>, const WAYS: usize>()
    where
        Ways<WAYS>: Width,
    {
        for keys in [usize::MAX, usize::MAX / 100, usize::MAX / 100 + 1, 1 << 50, 1 << 60] {
            for builder in [Builder::new(), Builder::new().fixed(), Builder::new().huge_pages()] {
                assert!(matches!(builder.capacity(keys).build::<u64, u64, L, WAYS>(), Err(ReserveError)), "{keys}");
            }
        }
    }
    refused::<Auto, 4>();
    refused::<Auto, 8>();
    refused::<Auto, 16>();
    refused::<Boxed, 8>();
}

#[test]
fn any_number_of_stripes_will_do() {
    for stripes in [0, 1, 17, 4096, 5000, usize::MAX] {
        let map: CuckooMap<u64, u64> = Builder::new().stripes(stripes).build().expect("memory");
        (0..40_000).for_each(|key| assert_eq!(map.insert(key, key), None));
        assert_eq!(map.len(), 40_000);
    }
}

#[test]
fn reserve_of_nothing_asks_for_nothing() {
    let map = filled::<Auto, 8>(5_000);
    assert_eq!(map.reserve(0), Ok(()), "full, and fixed");
    assert_eq!(map.reserve(map.capacity()), Err(ReserveError));
    for keys in [110, 13_000, 29_800] {
        let map: CuckooMap<u64, u64> = CuckooMap::with_capacity(keys);
        (0..keys as u64).for_each(|key| assert_eq!(map.upsert(key, key), Ok(true)));
        let before = map.capacity();
        assert_eq!(map.reserve(0), Ok(()));
        assert_eq!(map.capacity(), before, "{keys} keys");
    }
}
