//! Two threads that grow the index until memory runs out.

use guira_engine_suite::{
    caller::{NOW, Reply, get, run, set},
    stress::checked_value,
};
use guira_item::{Answer, Delete, Engine, Operation};

use crate::{Config, Memc3, Worker};

/// Two threads fill a memory in which nothing is evicted, and take from it for the index that they help to grow, until there is none
/// left: what was stored is there, and what goes makes room for as many others.
#[test]
fn no_key_is_lost_when_two_that_grow_the_index_run_out_of_memory() {
    const REFUSALS: usize = 500;
    // Some 48 bytes each, and their share of the index.
    const STORED_MIN: usize = 300_000;
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
    let stored: usize = both.iter().map(Vec::len).sum();
    assert!(stored > STORED_MIN, "{stored} items found room: {stats:?}");
    assert!(stats.hash_slots >= 4 * slots, "the index has grown from {slots} slots to {}", stats.hash_slots);
}
