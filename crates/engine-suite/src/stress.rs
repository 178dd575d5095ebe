//! All cores at once, values that carry their own checksum: nothing is torn, nothing of another key is read, and nothing is lost
//! that memory has room for.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use guira_item::{Answer, Delete, Engine, Expiry, Get, Key, Operation, Request, StoreMode, Time};

use crate::{
    Subject,
    caller::{Answers, NOW, Reply, get, run, set, store},
};

/// Eviction, growth and rebalancing going on.
pub fn no_value_is_torn_under_stress<E: Engine>(subject: &Subject<E>) {
    let seconds: u64 = std::env::var("GUIRA_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for eviction in subject.policies {
        stress(subject, eviction, std::time::Duration::from_secs(seconds));
    }
}

/// What a thread knows of its own keys while the index grows from its first segments to many: it finds each that it has stored, as
/// it was stored last, and none that it has deleted; of others' keys it never sees an older version than before.
pub fn no_key_is_lost_while_the_index_grows<E: Engine>(subject: &Subject<E>) {
    const KEYS: usize = 150_000;
    // A thread more than two cores have; many more would want gigabytes.
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(3, 8);
    for eviction in subject.policies {
        let engine = subject.engine_with(40 * threads, eviction);
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

fn stress<E: Engine>(subject: &Subject<E>, eviction: &'static str, duration: std::time::Duration) {
    let engine = subject.engine_with(6, eviction);
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
    (subject.check_busy)(&engine, eviction);
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
    (subject.check_empty)(&engine, eviction);
    let stats = engine.stats();
    assert_eq!((stats.curr_items, stats.bytes), (0, 0), "{eviction:?}: nothing is left over");
    assert_eq!(stats.classes.iter().map(|class| class.used_chunks).sum::<u64>(), 0, "{eviction:?}: no chunk is lost");
}

fn grow_and_look<E: Engine>(engine: &E, thread: usize, threads: usize, keys: usize) {
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
    let look = |worker: &mut E::Worker, thread: usize, key: usize| {
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
                assert_eq!(found, own[key] != 0, "{key}: {:?}", engine.stats());
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
                let expected = Some(own[key]).filter(|version| *version != 0);
                assert_eq!(look(&mut worker, thread, key), expected, "{key}: {:?}", engine.stats());
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

/// Batches on all cores: what a batch reads after it has written is what it wrote, unless another thread was there, and nothing
/// is torn, whatever is evicted meanwhile.
pub fn batches_of_many_threads_read_what_they_wrote<E: Engine>(subject: &Subject<E>) {
    const BATCHES: usize = 300;
    const KEYS: u64 = 3_000;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).max(3) as u64;
    for eviction in subject.policies {
        let engine = subject.engine_with(4, eviction);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let engine = &engine;
                scope.spawn(move || {
                    (0..BATCHES).fold(engine.worker(), |mut worker, batch| {
                        play_batch(engine, &mut worker, thread, batch as u64, KEYS);
                        worker
                    })
                });
            }
        });
        let stats = engine.stats();
        assert!(stats.total_malloced + stats.hash_bytes <= 4 << 20, "{eviction:?}: {stats:?}");
    }
}

fn play_batch<E: Engine>(engine: &E, worker: &mut E::Worker, thread: u64, batch: u64, keys: u64) {
    let mut random = ((thread + 1) << 32) + batch + 1;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random >> 8
    };
    let len = next() % 600 + 1;
    // A store, a read, another's read: by thread and key, with the value of a store.
    let plan: Vec<(u64, u64, Option<Vec<u8>>)> = (0..len)
        .map(|number| {
            let key = next() % keys;
            let value_len = if next() % 50 == 0 { next() % 40_000 } else { next() % 100 } as usize;
            let version = batch << 32 | number;
            match next() % 4 {
                0 => (thread, key, Some(checked_value(thread << 32 | key, version, value_len))),
                1 => (next() % 3, key, None),
                _ => (thread, key, None),
            }
        })
        .collect();
    let names: Vec<String> = plan.iter().map(|(thread, key, _)| format!("batch{thread:02}{key:08}")).collect();
    let requests: Vec<Request<'_>> = plan
        .iter()
        .zip(&names)
        .map(|((_, _, value), name)| Request {
            key: Key::new(name.as_bytes()).expect("a key"),
            operation: value.as_ref().map_or(Operation::Get(Get::PLAIN), |value| store(StoreMode::Set, value)),
        })
        .collect();
    let mut answers = Answers::default();
    engine.execute(worker, NOW, &requests, &mut answers);
    assert_eq!(answers.list.len(), requests.len());
    let mut written: HashMap<u64, &[u8]> = HashMap::new();
    for ((of, key, value), reply) in plan.iter().zip(&answers.list) {
        match (value, reply) {
            (Some(value), Reply::Other(Answer::Stored { .. })) => {
                written.insert(*key, value);
            }
            (Some(_), Reply::Other(Answer::OutOfMemory)) => {
                written.remove(key);
            }
            (None, Reply::Hit(_, found)) => {
                let version = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
                assert!(*found == checked_value(of << 32 | key, version, found.len() - 16), "torn: {key}");
                if let Some(value) = written.get(key).filter(|_| *of == thread) {
                    assert!(found == value, "{key}: something older than what the batch wrote");
                }
            }
            (None, Reply::Other(Answer::Miss)) => {}
            (_, reply) => panic!("{key}: {reply:?}"),
        }
    }
}

/// A value that shows whose it is, and that it is whole.
pub fn checked_value(key: u64, version: u64, len: usize) -> Vec<u8> {
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
