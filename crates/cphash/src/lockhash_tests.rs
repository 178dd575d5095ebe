//! What every engine has to pass.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use guira_engine_suite::{
    Setup, Subject,
    caller::{NOW, get, run, set},
    engine_suite,
};
use guira_item::{Delete, Engine, ItemInfo, Operation};

use crate::{BucketLockhash, Config, Eviction, LockedPartitions, Lockhash, lockhash::tests_only};

fn policy(name: &str) -> Eviction {
    [Eviction::Lru, Eviction::Random].into_iter().find(|policy| policy.name() == name).expect("a policy")
}

fn subject<const BUCKET_LOCKS: bool>(setup: &Setup) -> LockedPartitions<BUCKET_LOCKS> {
    let (eviction, evictions_enabled) = (policy(setup.eviction), setup.evictions_enabled);
    // Few enough that each has an order of use worth the name in a cache of a few megabytes.
    let (partitions, hash_seed) = (Some(64), 7);
    let config = Config { eviction, evictions_enabled, ..Config::new(setup.memory_limit) };
    LockedPartitions::new(Config { partitions, hash_seed, ..config }).expect("memory")
}

engine_suite!(Subject {
    policies: &["lru", "random"],
    make: |setup: &Setup| subject::<false>(setup),
    bytes_per_item_max: |_| 145.0,
    header_len: 80,
    check_busy: |_, _| {},
    check_empty: |_, _| {},
});

mod with_bucket_locks {
    use super::*;

    engine_suite!(Subject {
        policies: &["random"],
        make: |setup: &Setup| subject::<true>(setup),
        bytes_per_item_max: |_| 145.0,
        header_len: 80,
        check_busy: |_, _| {},
        check_empty: |_, _| {},
    });
}

/// A full cache has no page for more buckets, and small items need many more of them than large ones did.
#[test]
fn buckets_take_memory_from_elements_when_small_ones_replace_large_ones() {
    let engine = Lockhash::new(Config { partitions: Some(64), hash_seed: 7, ..Config::new(8 << 20) }).expect("memory");
    let mut worker = engine.worker();
    (0..2_000).for_each(|i| assert!(set(&engine, &mut worker, format!("large{i}").as_bytes(), &[1; 15_000])));
    (0..60_000).for_each(|i| assert!(set(&engine, &mut worker, format!("small{i}").as_bytes(), &[1; 64])));
    while engine.maintain(&mut worker, NOW) {}
    let stats = engine.stats();
    assert!(stats.curr_items > 30_000 && stats.hash_slots * 2 >= stats.curr_items, "{stats:?}");
    assert!(stats.total_malloced + stats.hash_bytes <= 8 << 20, "{stats:?}");
}

/// Long values make what a group needs vary: they are counted as a whole, for as long as they are there or once they are evicted.
#[test]
fn what_is_needed_is_counted_by_element_and_forgotten_with_it() {
    let engine = Lockhash::new(Config { partitions: Some(64), hash_seed: 7, ..Config::new(32 << 20) }).expect("memory");
    let mut worker = engine.worker();
    let lens = [40usize, 20_000, 64 << 10, 512 << 10];
    let name = |len: usize| format!("key{len}").into_bytes();
    let mut squares = 0;
    for len in lens {
        // The second time it is put in the first one's place.
        (0..2).for_each(|_| assert!(set(&engine, &mut worker, &name(len), &vec![1; len])));
        squares += (len as u64 / 64).pow(2);
        let need = tests_only::need(&engine);
        assert!(need.squares >= squares && need.squares < 2 * squares + 100, "{len}: {need:?}");
    }
    let delete = Operation::Delete(Delete { cas: None, invalidate: None });
    for len in lens {
        run(&engine, &mut worker, NOW, &name(len), delete);
    }
    let need = tests_only::need(&engine);
    assert_eq!((need.lines, need.squares, need.evictions), (0, 0, 0));
    // More than fits.
    (0..200).for_each(|i| assert!(set(&engine, &mut worker, format!("long{i}").as_bytes(), &[1; 512 << 10])));
    let need = tests_only::need(&engine);
    assert!(need.evictions > 100 && need.squares > 200 * (8u64 << 10).pow(2), "{need:?}");
}

/// Buckets with locks, and room for all that the tests below store.
fn bucket_locks(partitions: usize) -> BucketLockhash {
    let config = Config::new(64 << 20);
    let config = Config { eviction: Eviction::Random, partitions: Some(partitions), hash_seed: 7, ..config };
    BucketLockhash::new(config).expect("memory")
}

/// Reads go on while somebody has the partition, but for those that it has to be asked for.
#[test]
fn with_bucket_locks_a_read_of_a_short_value_takes_its_bucket_alone() {
    let engine = bucket_locks(1);
    let mut worker = engine.worker();
    for i in 0..1_000 {
        assert!(set(&engine, &mut worker, format!("key{i}").as_bytes(), format!("value{i}").as_bytes()));
    }
    let read_all = |worker: &mut _| {
        tests_only::holding_all(&engine, || {
            (0..1_000)
                .filter_map(|i| get(&engine, worker, format!("key{i}").as_bytes()).map(|value| (i, value)))
                .inspect(|(i, value)| assert_eq!(value, format!("value{i}").as_bytes()))
                .count()
        })
    };
    assert_eq!(read_all(&mut worker), 1_000);
    engine.flush_all(NOW, NOW);
    // The partition is asked while there may be something that was flushed.
    assert!((0..1_000).all(|i| get(&engine, &mut worker, format!("key{i}").as_bytes()).is_none()));
    while engine.maintain(&mut worker, NOW) {}
    assert!(set(&engine, &mut worker, b"key7", b"value7"));
    assert_eq!(read_all(&mut worker), 1);
}

/// What empties a page has all partitions, and waits for who reads one of their buckets all the same.
#[test]
fn with_bucket_locks_a_page_is_emptied_behind_no_readers_back() {
    let engine = bucket_locks(1);
    let mut worker = engine.worker();
    let name = |number: usize| format!("key{number:04}").into_bytes();
    const KEYS: usize = 2_000;
    assert!((0..KEYS).all(|number| set(&engine, &mut worker, &name(number), b"value")));
    // The page that is given up is the one with room, where the newest is.
    let newest = name(KEYS - 1);
    let shut = tests_only::shut_to_read(&engine, &newest);
    let first = shut.first();
    let is_evicting = Arc::new(AtomicBool::new(false));
    let (heard, watched) = (Arc::clone(&is_evicting), newest.clone());
    engine.log_evictions(Some(Arc::new(move |item: &ItemInfo<'_>| {
        if item.key == watched {
            heard.store(true, Ordering::Relaxed);
        }
    })));
    let class = engine.stats().classes[0].class;
    std::thread::scope(|scope| {
        let emptying =
            scope.spawn(|| engine.reassign_page(&mut engine.worker(), NOW, Some(class), 0).expect("it has several"));
        while !is_evicting.load(Ordering::Relaxed) {
            assert!(!emptying.is_finished(), "another page was emptied");
            std::thread::yield_now();
        }
        for _ in 0..1_000 {
            assert_eq!(shut.first(), first, "it changes under a reader");
            std::thread::yield_now();
        }
        drop(shut);
    });
    assert_eq!(get(&engine, &mut worker, &newest), None);
}

/// A set puts the new element where the old one was at one moment, and a table that grows hides nothing.
#[test]
fn with_bucket_locks_a_key_that_is_there_is_always_found() {
    const KEYS: usize = 64;
    const ROUNDS: usize = 1_500;
    let engine = bucket_locks(2);
    let lens = [10, 100, 400];
    let mut writer = engine.worker();
    let name = |key: usize| format!("steady{key}");
    let write = |worker: &mut _, round: usize| {
        for key in 0..KEYS {
            let value = vec![b'a' + (round % 26) as u8; lens[(round + key) % lens.len()]];
            assert!(set(&engine, worker, name(key).as_bytes(), &value));
        }
    };
    write(&mut writer, 0);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(|| {
                let (mut worker, mut read) = (engine.worker(), 0);
                while !is_done.load(Ordering::Relaxed) {
                    for key in 0..KEYS {
                        let value = get(&engine, &mut worker, name(key).as_bytes()).expect("it is always there");
                        assert!(value.iter().all(|byte| *byte == value[0]) && lens.contains(&value.len()), "{value:?}");
                        read += 1;
                    }
                }
                read
            })
        });
        for round in 1..ROUNDS {
            write(&mut writer, round);
            (0..40).for_each(|i| assert!(set(&engine, &mut writer, format!("new{round}-{i}").as_bytes(), b"x")));
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().expect("reads") > 0));
    });
}

/// What was flushed and had moved to a bucket behind the crawler's back stayed until somebody looked for its key.
#[test]
fn the_crawler_finds_what_was_flushed_in_buckets_that_are_divided_meanwhile() {
    let engine = Lockhash::new(Config { partitions: Some(1), hash_seed: 7, ..Config::new(64 << 20) }).expect("memory");
    let mut worker = engine.worker();
    let (old, new) = (100_000, 70_000);
    assert!((0..old).all(|i| set(&engine, &mut worker, format!("old{i}").as_bytes(), b"x")));
    // From the middle past the end, so that the buckets that are divided next are still to come and new ones are not.
    let mut crawl = |slices: usize| (0..slices).filter(|_| engine.maintain(&mut worker, NOW)).count();
    crawl(12);
    engine.flush_all(NOW, NOW);
    assert_eq!(crawl(14), 14, "there is more to do");
    let left = engine.stats().curr_items;
    assert!(left > old - new && left < old, "{left}");
    assert!((0..new).all(|i| set(&engine, &mut worker, format!("new{i}").as_bytes(), b"x")));
    while engine.maintain(&mut worker, NOW) {}
    assert_eq!(engine.stats().curr_items, new);
}
