//! What would be evicted next in an engine that was restarted, beside the one that was not.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use guira_item::{Clock, Engine, Expiry, Get, ItemInfo, Key, Operation, Request, ScanCursor, Time};
use guira_memc3::Eviction;

use super::{
    MemoryFile,
    tests::{Told, cphash_of, lockhash_of, memc3_of, set},
};

/// Megabytes of each engine.
const MEGABYTES: usize = 8;

/// Stores after which it is asked what is left.
const STEP: u32 = 256;

/// Many times the engine's memory.
const STORES_MAX: u32 = 1_000_000;

/// Lengths of values.
const ONE_LENGTH: [usize; 1] = [100];
const SEVERAL: [usize; 3] = [100, 100, 400];

/// The number of a key that was there at the restart.
fn number_of(key: &[u8]) -> Option<u32> {
    std::str::from_utf8(key).ok()?.strip_prefix("key")?.parse().ok()
}

/// What is there, by the numbers of keys.
fn there<E: Engine>(engine: &E, now: Time) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let mut cursor = Some(ScanCursor::default());
    while let Some(at) = cursor {
        cursor = engine.scan(at, 1_000, now, &mut |item| {
            numbers.extend(number_of(item.key));
        });
    }
    numbers
}

fn ask<E: Engine>(engine: &E, worker: &mut E::Worker, now: Time, key: &str, operation: Operation<'_>) {
    let request = Request { key: Key::new(key.as_bytes()).expect("a key"), operation };
    engine.execute(worker, now, &[request], &mut Told::default());
}

/// Several times the engine's memory, with reads of all ages between, more of them of what is new and of a few keys that are read over
/// and over.
fn fill<E: Engine>(engine: &E, lens: &[usize]) -> Time {
    let mean_len = lens.iter().sum::<usize>() / lens.len() + 64;
    let count = (3 * (MEGABYTES << 20) / mean_len) as u32;
    let mut random = 88_172_645_463_325_252u64;
    let mut now = Time(10);
    let mut worker = engine.worker();
    for i in 0..count {
        now = Time(10 + i / (count / 500).max(1));
        let value = vec![1; lens[i as usize % lens.len()]];
        ask(engine, &mut worker, now, &format!("key{i}"), set(&value, 0, Expiry::NEVER));
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let back = (random >> 32) as u32;
        let read = match back % 4 {
            0 => i - back / 4 % (i + 1),
            1 => i - back / 4 % (i / 8 + 1),
            2 => back / 4 % (count / 100),
            _ => continue,
        };
        ask(engine, &mut worker, now, &format!("key{read}"), Operation::Get(Get::PLAIN));
    }
    now
}

/// Which keys go, in turn, while what is new is stored, and half of it read, so that it is worth more than what is there under every
/// policy: until half of those that are there has gone of each length.
fn going<E: Engine>(engine: &E, mut now: Time, all: &BTreeSet<u32>, lens: &[usize]) -> Vec<u32> {
    let (gone, mut worker) = (Arc::new(Mutex::new(Vec::new())), engine.worker());
    let log = Arc::clone(&gone);
    engine.log_evictions(Some(Arc::new(move |item: &ItemInfo<'_>| {
        log.lock().expect("nobody panics").extend(number_of(item.key));
    })));
    for i in 0..STORES_MAX {
        let value = vec![1; lens[i as usize % lens.len()]];
        ask(engine, &mut worker, now, &format!("new{i}"), set(&value, 0, Expiry::NEVER));
        if i % 2 == 0 {
            ask(engine, &mut worker, now, &format!("new{i}"), Operation::Get(Get::PLAIN));
        }
        if i % STEP == 0 {
            now.0 += 1;
            let gone = gone.lock().expect("nobody panics");
            let is_half = |len| of_len(gone.iter(), len, lens).len() * 2 >= of_len(all, len, lens).len();
            if lens.iter().all(|len| is_half(*len)) {
                engine.log_evictions(None);
                return gone.clone();
            }
        }
    }
    panic!("{} of {} have gone", gone.lock().expect("nobody panics").len(), all.len())
}

/// Those of `numbers` whose values are so long.
fn of_len<'n>(numbers: impl IntoIterator<Item = &'n u32>, len: usize, lens: &[usize]) -> Vec<u32> {
    numbers.into_iter().copied().filter(|number| lens[*number as usize % lens.len()] == len).collect()
}

/// How many in a hundred of the half that goes first are the same after a restart: of each length of values, since each has an order
/// of its own, the fewest; or of all, if `is_one_order`.
fn overlap<E: Engine>(first: &E, second: &E, lens: &[usize], is_one_order: bool) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let now = fill(first, lens);
    let clock = Clock::starting_at(1_700_000_000);
    MemoryFile::claim(&path).expect("free").save(first, &clock, now).expect("disk");
    let restarted = Clock::starting_at(clock.to_unix_s(now) + 10);
    let file = MemoryFile::claim(&path).expect("free");
    let loaded = file.load(second, &restarted, Time(2), true).expect("sound").expect("there");
    let (all, back) = (there(first, now), there(second, Time(2)));
    assert!(back.is_subset(&all) && back.len() * 100 >= all.len() * 98, "{loaded:?} of {}", all.len());
    let (gone, gone_after) = (going(first, now, &all, lens), going(second, Time(2), &all, lens));
    let same = |first: Vec<u32>, second: Vec<u32>, half: usize| {
        let half = half.min(first.len()).min(second.len());
        let first: BTreeSet<u32> = first[..half].iter().copied().collect();
        100.0 * second[..half].iter().filter(|number| first.contains(number)).count() as f64 / half as f64
    };
    if is_one_order {
        return same(gone, gone_after, all.len() / 2);
    }
    let of_lens = lens.iter().map(|len| {
        same(of_len(&gone, *len, lens), of_len(&gone_after, *len, lens), of_len(&all, *len, lens).len() / 2)
    });
    of_lens.fold(100.0, f64::min)
}

#[test]
fn what_goes_next_is_the_same_after_a_restart() {
    for lens in [&ONE_LENGTH[..], &SEVERAL[..]] {
        let is_one_length = lens.len() == 1;
        let is_alike = |name: &str, found: f64, bound: f64| {
            println!("{name}, {} lengths: {found:.1} %", lens.len());
            assert!(found >= bound, "{name} with values of {lens:?} bytes: {found:.1} %");
        };
        for eviction in [Eviction::Clock, Eviction::Lru, Eviction::Sieve, Eviction::S3Fifo] {
            let found = overlap(&memc3_of(MEGABYTES, eviction, 1), &memc3_of(MEGABYTES, eviction, 2), lens, false);
            // A page that goes to another length leaves its place before the hand to the last page.
            let bound = match eviction {
                _ if is_one_length => 99.0,
                Eviction::Clock => 70.0,
                _ => 90.0,
            };
            is_alike(eviction.name(), found, bound);
        }
        for (seed, keys) in [(1, "in the same partitions"), (2, "in others")] {
            let found = overlap(&cphash_of(MEGABYTES, 1), &cphash_of(MEGABYTES, seed), lens, true);
            is_alike(&format!("cphash, {keys}"), found, 90.0);
            let found = overlap(&lockhash_of(MEGABYTES, 1), &lockhash_of(MEGABYTES, seed), lens, true);
            is_alike(&format!("lockhash, {keys}"), found, 90.0);
        }
    }
}
