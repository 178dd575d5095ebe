//! All cores at once, values that carry their own checksum: nothing is torn, nothing of another key is read, and nothing is lost
//! that memory has room for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guira_item::{Answer, Delete, Engine, Expiry, Operation, StoreMode, Time};

use crate::{
    Config, Eviction, Memc3, Worker,
    arena::PageId,
    engine_tests::{NOW, POLICIES, Reply, engine, get, run, set, store},
    eviction_tests::check_nodes,
};

/// Eviction, growth and rebalancing going on.
#[test]
fn no_value_is_torn_under_stress() {
    let seconds: u64 = std::env::var("GUIRA_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for eviction in POLICIES {
        stress(eviction, std::time::Duration::from_secs(seconds));
    }
}

fn checked_value(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 16);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    let mut state = key ^ version.rotate_left(32);
    while value.len() < len + 16 {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(len + 16);
    value
}

fn stress(eviction: Eviction, duration: std::time::Duration) {
    let engine = engine(6, eviction);
    let stop = AtomicBool::new(false);
    let checked = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from).max(3) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (engine, stop, checked) = (&engine, &stop, &checked);
            scope.spawn(move || {
                let mut worker = engine.worker();
                let mut random = thread + 1;
                let mut version = 0;
                while !stop.load(Ordering::Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let key = random % 60_000 * (random >> 60) % 60_000;
                    let name = format!("stress{key:010}");
                    version += 1;
                    match random >> 32 & 15 {
                        0..=4 => {
                            let len = match random >> 40 & 255 {
                                0 => 20_000 + (random >> 50) as usize,
                                1..=7 => 2_000,
                                other => other as usize % 90,
                            };
                            let value = checked_value(key, version, len);
                            let reply = run(engine, &mut worker, NOW, name.as_bytes(), store(StoreMode::Set, &value));
                            let is_stored = matches!(reply, Reply::Other(Answer::Stored { .. }));
                            assert!(is_stored, "{eviction:?}: {reply:?} {:#?}", engine.stats());
                        }
                        5 => {
                            run(
                                engine,
                                &mut worker,
                                NOW,
                                name.as_bytes(),
                                Operation::Delete(Delete { cas: None, invalidate: None }),
                            );
                        }
                        6 => {
                            run(engine, &mut worker, NOW, name.as_bytes(), Operation::Touch(Expiry::at(Time(5_000))));
                        }
                        7 if thread == 0 => {
                            engine.maintain(&mut worker, NOW);
                        }
                        7 if thread == 1 => {
                            drop(engine.lend(&mut worker, NOW, (random >> 44) as usize & 0xf_ffff));
                        }
                        _ => {
                            if let Some(value) = get(engine, &mut worker, name.as_bytes()) {
                                let stored_version = u64::from_le_bytes(value[8..16].try_into().expect("eight bytes"));
                                assert!(
                                    value == checked_value(key, stored_version, value.len() - 16),
                                    "torn: {key} {value:?}"
                                );
                                checked.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
        let end = std::time::Instant::now() + duration;
        while std::time::Instant::now() < end {
            std::thread::park_timeout(end - std::time::Instant::now());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(checked.load(Ordering::Relaxed) > 1_000);
    let stats = engine.stats();
    assert!(stats.evictions > 0 && stats.total_malloced + stats.hash_bytes <= 6 << 20);
    let mut worker = engine.worker();
    if !matches!(eviction, Eviction::Clock | Eviction::Random) {
        check_nodes(&engine);
    }
    for key in 0..60_000u64 {
        run(
            &engine,
            &mut worker,
            NOW,
            format!("stress{key:010}").as_bytes(),
            Operation::Delete(Delete { cas: None, invalidate: None }),
        );
    }
    while engine.maintain(&mut worker, NOW) {}
    let shared = engine.shared();
    let draining = (0..shared.arena.pages() as u32).filter(|page| shared.slabs.is_draining(PageId(*page))).count();
    assert_eq!(draining, 0, "{eviction:?}: pages wait for a chunk");
    let stats = engine.stats();
    assert_eq!((stats.curr_items, stats.bytes), (0, 0), "{eviction:?}: nothing is left over");
    assert_eq!(stats.classes.iter().map(|class| class.used_chunks).sum::<u64>(), 0, "{eviction:?}: no chunk is lost");
}

/// What a thread knows of its own keys while the index grows from its first segments to many: it finds each that it has stored, as
/// it was stored last, and none that it has deleted; of others' keys it never sees an older version than before.
#[test]
fn no_key_is_lost_while_the_index_grows() {
    const KEYS: usize = 150_000;
    // A thread more than two cores have; many more would want gigabytes.
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(3, 8);
    for eviction in POLICIES {
        let engine = engine(40 * threads, eviction);
        let segments = engine.stats().hash_slots;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let engine = &engine;
                scope.spawn(move || grow_and_look(engine, thread, threads, KEYS));
            }
        });
        let stats = engine.stats();
        assert_eq!((stats.evictions, stats.out_of_memory), (0, 0), "{eviction:?}");
        assert!(stats.hash_slots > 4 * segments, "{eviction:?}: the index has grown");
    }
}

/// Two threads fill a memory in which nothing is evicted, and take from it for the index that they help to grow, until there is none
/// left: what was stored is there, and what goes makes room for as many others.
#[test]
fn no_key_is_lost_when_two_that_grow_the_index_run_out_of_memory() {
    const REFUSALS: usize = 500;
    let engine =
        Memc3::new(Config { evictions_enabled: false, hash_seed: 7, ..Config::new(24 << 20) }).expect("memory");
    let slots = engine.stats().hash_slots;
    let name = |thread: u64, number: u64| format!("full{thread}{number:010}");
    let value = |thread: u64, number: u64| checked_value(thread << 32 | number, 1, 8);
    let store = |worker: &mut Worker, thread: u64, number: u64| {
        set(&engine, worker, name(thread, number).as_bytes(), &value(thread, number))
    };
    let is_there = |worker: &mut Worker, thread: u64, number: u64| {
        let found = get(&engine, worker, name(thread, number).as_bytes());
        assert!(found.is_none() || found == Some(value(thread, number)), "{number} of {thread} is another's");
        found.is_some()
    };
    let fill = |thread: u64| {
        let mut worker = engine.worker();
        let mut stored = Vec::new();
        for number in 0.. {
            if store(&mut worker, thread, number) {
                stored.push(number);
            } else if number as usize - stored.len() == REFUSALS {
                break;
            }
        }
        assert!(stored.iter().all(|number| is_there(&mut worker, thread, *number)), "{thread} misses what it stored");
        stored
    };
    let replace_half = |thread: u64, stored: &[u64]| {
        let mut worker = engine.worker();
        let (go, stay) = stored.split_at(stored.len() / 2);
        for number in go {
            let delete = Operation::Delete(Delete { cas: None, invalidate: None });
            let reply = run(&engine, &mut worker, NOW, name(thread, *number).as_bytes(), delete);
            assert_ne!(reply, Reply::Other(Answer::NotFound), "{number}");
        }
        let first = stored.last().map_or(0, |last| last + 1 + REFUSALS as u64);
        let new = first..first + go.len() as u64;
        let again: Vec<u64> = new.filter(|number| store(&mut worker, thread, *number)).collect();
        assert!(again.len() * 10 > go.len() * 9, "{} of {} found room again", again.len(), go.len());
        assert!(stay.iter().chain(&again).all(|number| is_there(&mut worker, thread, *number)), "{thread} misses some");
        assert!(!go.iter().any(|number| is_there(&mut worker, thread, *number)), "what was deleted is there");
    };
    let both: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| scope.spawn(move || fill(thread)));
        threads.map(|thread| thread.join().expect("a full memory")).into()
    });
    std::thread::scope(|scope| {
        for (thread, stored) in (0..).zip(&both) {
            scope.spawn(move || replace_half(thread, stored));
        }
    });
    let stats = engine.stats();
    assert_eq!(stats.evictions, 0);
    assert!(stats.out_of_memory >= 2 * REFUSALS as u64, "{} refusals", stats.out_of_memory);
    assert!(stats.hash_slots > 4 * slots, "the index has grown from {slots} slots to {}", stats.hash_slots);
}

fn grow_and_look(engine: &Memc3, thread: usize, threads: usize, keys: usize) {
    let name = |thread: usize, key: usize| format!("grow{thread:04}{key:010}");
    let mut worker = engine.worker();
    let mut random = 2 * thread as u64 + 1;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize >> 8
    };
    // The version of each own key, 0 if it was deleted; and what was last seen of others'.
    let mut own: Vec<u64> = Vec::with_capacity(keys);
    let mut seen = vec![0; keys];
    let mut version = 0;
    let look = |worker: &mut Worker, thread: usize, key: usize| {
        let value = get(engine, worker, name(thread, key).as_bytes())?;
        let number = ((thread * keys) + key) as u64;
        let version = u64::from_le_bytes(value[8..16].try_into().expect("eight bytes"));
        assert_eq!(value, checked_value(number, version, value.len() - 16), "torn");
        Some(version)
    };
    while own.len() < keys {
        let action = next() % 8;
        let key = if action < 4 || own.is_empty() { own.len() } else { next() % own.len() };
        match action {
            _ if key == own.len() => own.push(0),
            4 => {}
            5 if next() % 4 == 0 => {
                let delete = Operation::Delete(Delete { cas: None, invalidate: None });
                let found = run(engine, &mut worker, NOW, name(thread, key).as_bytes(), delete)
                    != Reply::Other(Answer::NotFound);
                assert_eq!(found, own[key] != 0, "{key}");
                own[key] = 0;
                continue;
            }
            6 if threads > 1 => {
                // Always the same neighbour's, so that what was seen can be remembered.
                let key = next() % keys;
                let last = look(&mut worker, (thread + 1) % threads, key).unwrap_or(seen[key]);
                assert!(last >= seen[key], "an older version came back");
                seen[key] = last;
                continue;
            }
            _ => {
                assert_eq!(look(&mut worker, thread, key), Some(own[key]).filter(|version| *version != 0), "{key}");
                continue;
            }
        }
        version += 1;
        own[key] = version;
        let value = checked_value((thread * keys + key) as u64, version, next() % 60);
        assert!(set(engine, &mut worker, name(thread, key).as_bytes(), &value), "{key}: no memory");
        if version % 500 == 0 && thread == 0 {
            engine.maintain(&mut worker, NOW);
        }
    }
    for (key, version) in own.iter().enumerate() {
        assert_eq!(look(&mut worker, thread, key), Some(*version).filter(|version| *version != 0), "{key}");
    }
}
