//! A map whose writes run as the processor's transactions, or, where it has none, the same map under its locks.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use guira_cuckoo::{Boxed, Builder, Change, Changed, CuckooMap, RandomState, Storage, Ways, Width};

const THREADS: u64 = 4;

/// The outcome is not what it is about.
fn ignore<T>(_: T) {}

/// A map that is to elide, of few stripes, so that threads meet.
fn eliding<V, L: Storage<u64, V>, const WAYS: usize>(stripes: usize) -> CuckooMap<u64, V, RandomState, L, WAYS>
where
    Ways<WAYS>: Width,
{
    let map = Builder::new().stripes(stripes).elide_locks().build().expect("memory");
    println!("locks are {}", if map.elides_locks() { "elided" } else { "taken: this processor has no transactions" });
    map
}

fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ mixed >> 32) % below
    }
}

/// All threads count what they do to keys of which there are `keys`; the map grows meanwhile if they are many.
fn counts_are_exact<L: Storage<u64, u64>, const WAYS: usize>(stripes: usize, keys: u64, turns: u64)
where
    Ways<WAYS>: Width,
{
    let map = eliding::<u64, L, WAYS>(stripes);
    let (inserted, removed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let taken_out = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (map, inserted, removed, taken_out) = (&map, &inserted, &removed, &taken_out);
            scope.spawn(move || {
                let mut number = numbers(thread);
                for turn in 0..turns {
                    let key = number(keys);
                    if turn % 8 == 7 {
                        if let Some(value) = map.remove(&key) {
                            taken_out.fetch_add(value, Ordering::Relaxed);
                            removed.fetch_add(1, Ordering::Relaxed);
                        }
                        continue;
                    }
                    let changed = map.compute(key, |value| Change::Put(value.copied().unwrap_or(0) + 1));
                    inserted.fetch_add(usize::from(changed == Changed::Inserted), Ordering::Relaxed);
                }
            });
        }
    });
    let sum: u64 = (0..keys).filter_map(|key| map.get(&key)).sum();
    let computes = (0..turns).filter(|turn| turn % 8 != 7).count() as u64 * THREADS;
    assert_eq!(sum + taken_out.into_inner(), computes, "each was counted once");
    assert_eq!(map.len(), inserted.into_inner() - removed.into_inner());
}

#[test]
fn counts_are_exact_on_a_few_keys() {
    counts_are_exact::<guira_cuckoo::Auto, 8>(16, 40, 40_000);
    counts_are_exact::<Boxed, 8>(16, 40, 20_000);
}

#[test]
fn counts_are_exact_while_the_map_grows() {
    counts_are_exact::<guira_cuckoo::Auto, 8>(16, 100_000, 80_000);
    counts_are_exact::<guira_cuckoo::Auto, 4>(2048, 100_000, 80_000);
    counts_are_exact::<Boxed, 8>(64, 50_000, 40_000);
}

#[test]
fn what_a_closure_does_to_memory_is_seen_once() {
    const TURNS: u64 = 40_000;
    let map = eliding::<u64, guira_cuckoo::Auto, 8>(16);
    (0..8).for_each(|key| assert_eq!(map.insert(key, 0), None));
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (map, calls) = (&map, &calls);
            scope.spawn(move || {
                let mut number = numbers(thread);
                for _ in 0..TURNS {
                    let changed = map.compute(number(8), |value| {
                        calls.fetch_add(1, Ordering::Relaxed);
                        value.map_or(Change::Keep, |value| Change::Put(value + 1))
                    });
                    assert_eq!(changed, Changed::Updated);
                }
            });
        }
    });
    assert_eq!(calls.into_inner(), THREADS * TURNS);
    assert_eq!((0..8).filter_map(|key| map.get(&key)).sum::<u64>(), THREADS * TURNS);
}

/// A writer at work until this is dropped, also if it panics: readers do not wait for it then.
struct AtWork<'a>(&'a AtomicUsize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn readers_see_no_half_of_a_transaction() {
    type Pair = [u64; 4];
    let map = eliding::<Pair, guira_cuckoo::Auto, 8>(16);
    let keys = 30;
    (0..keys).for_each(|key| assert_eq!(map.insert(key, [0; 4]), None));
    let at_work = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (map, at_work) = (&map, AtWork(&at_work));
            scope.spawn(move || {
                let _until_the_end = at_work;
                let mut number = numbers(thread);
                for turn in 0..60_000 {
                    let key = number(keys);
                    let next = map.update(&key, |seen| {
                        assert!(seen.iter().all(|word| *word == seen[0]), "torn: {seen:?}");
                        [seen[0] + 1; 4]
                    });
                    assert!(next.is_some());
                    // Others come and go beside them.
                    if turn % 16 == 0 {
                        assert_eq!(map.insert(1000 + thread, [turn; 4]), None);
                        assert_eq!(map.remove(&(1000 + thread)), Some([turn; 4]));
                    }
                }
            });
        }
        for thread in 2..4 {
            let (map, at_work) = (&map, &at_work);
            scope.spawn(move || {
                let mut last = [0; 30];
                let mut number = numbers(thread);
                while at_work.load(Ordering::Relaxed) > 0 {
                    let key = number(keys);
                    let seen = map.get(&key).expect("never removed");
                    assert!(seen.iter().all(|word| *word == seen[0]), "torn: {seen:?}");
                    assert!(seen[0] >= last[key as usize], "back in time");
                    last[key as usize] = seen[0];
                }
            });
        }
    });
    let sum: u64 = (0..keys).filter_map(|key| map.get(&key)).map(|seen| seen[0]).sum();
    assert_eq!(sum, 2 * 60_000);
}

#[test]
fn a_closure_that_panics_leaves_the_map_usable() {
    let map = eliding::<u64, guira_cuckoo::Auto, 8>(16);
    (0..100).for_each(|key| assert_eq!(map.insert(key, key), None));
    let is_usable = || {
        let touch = || (0..100).for_each(|key| assert_eq!(map.update(&key, |value| *value), Some(key)));
        touch();
        std::thread::scope(|scope| assert!(scope.spawn(touch).join().is_ok(), "from another thread"));
    };
    let panics = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
    // With a message, which is a system call, and without.
    assert!(panics(&|| ignore(map.update(&7, |_| panic!("as planned")))));
    is_usable();
    for _ in 0..100 {
        assert!(panics(&|| ignore(map.update(&7, |_| resume_unwind(Box::new("as planned"))))));
        assert!(panics(&|| ignore(map.compute(1000, |_| resume_unwind(Box::new("as planned"))))));
    }
    is_usable();
    assert_eq!((map.len(), map.get(&1000)), (100, None));
}

#[test]
fn a_closure_may_call_the_system_and_allocate() {
    let map = eliding::<u64, guira_cuckoo::Auto, 8>(16);
    let calls = AtomicU64::new(0);
    for turn in 0..50 {
        map.compute(1, |value| {
            calls.fetch_add(1, Ordering::Relaxed);
            // A file descriptor is the kernel's: had a transaction that was undone opened one, it would stay open.
            let exe = std::fs::metadata("/").map(|meta| meta.is_dir());
            let large = vec![turn; 1 << 16];
            Change::Put(value.copied().unwrap_or(0) + u64::from(exe.is_ok_and(|is| is)) + large[turn as usize] - turn)
        });
    }
    assert_eq!((map.get(&1), calls.into_inner()), (Some(50), 50), "once each, for all that can be seen");
}

#[test]
fn a_map_elides_only_if_it_is_asked_to_and_keeps_to_it() {
    let map: CuckooMap<u64, u64> = CuckooMap::new();
    assert!(!map.elides_locks());
    let mut map = eliding::<u64, guira_cuckoo::Auto, 8>(2048);
    let elides = map.elides_locks();
    (0..50_000).for_each(|key| assert_eq!(map.insert(key, key), None));
    map.retain(|key, _| *key < 10);
    map.shrink_to_fit();
    assert_eq!((map.len(), map.elides_locks()), (10, elides));
    map.clear();
    assert!(map.is_empty());
}
