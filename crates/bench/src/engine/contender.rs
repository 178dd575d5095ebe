//! Caches that play the same draws: Guira's engine and the paper's combinations of index and eviction.
//!
//! A draw is a key's number, with [`WRITE`] set if it is a SET. A GET that misses is followed by a SET of the same key.

use guira_cphash::{Cphash, Lockhash};
use guira_item::{
    Answer, Engine, Expiry, Get, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode, Time,
    VALUE_SLACK_LEN,
};
use guira_loadgen::{scramble::Scramble, zipf::Zipf};
use guira_memc3::{Config, Eviction, Memc3};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::{BenchError, in_process::no_memory};
use crate::peers::{
    chained_clock::{self, ChainedClock},
    chained_lru::{self, ChainedLru, Value},
    key::{self, Draw},
};

/// The bit of a draw that makes it a SET.
pub(super) const WRITE: u32 = 1 << 31;
/// Keys asked for at a time where batches are played, as in the paper's multigets.
pub(super) const BATCH: usize = 100;

const NOW: Time = Time(10);
/// Requests after which the server's janitor would have come by.
const JANITOR_REQUESTS: usize = 500;

/// The paper's skew.
pub(super) const ZIPF: f64 = 0.99;

/// `count` draws over `keys` keys by a zipf distribution, a share of `writes` of them SETs.
pub(super) fn draws(keys: usize, count: usize, exponent: f64, writes: f64, seed: u64) -> Vec<u32> {
    assert!(keys < WRITE as usize, "numbers leave a bit free");
    let (zipf, scramble) = (Zipf::new(keys as u64, exponent), Scramble::new(keys as u64, 42));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = Draw::new(seed);
    let bound = (writes * 1e9) as usize;
    let number = |_| {
        let write = if draw.below(1_000_000_000) < bound { WRITE } else { 0 };
        scramble.apply(zipf.sample(&mut rng)) as u32 | write
    };
    (0..count).map(number).collect()
}

/// A cache.
pub(super) enum Contender {
    Memc3(Memc3),
    Cphash(Cphash),
    Lockhash(Lockhash),
    ChainedLru(ChainedLru),
    ChainedClock(ChainedClock),
}

/// Plays draws; returns how many GETs missed.
pub(super) type Player<'a> = Box<dyn FnMut(&[u32]) -> u64 + Send + 'a>;

impl Contender {
    /// Guira's engine of `bytes` bytes in all.
    pub fn memc3(bytes: usize, eviction: Eviction) -> Result<Self, BenchError> {
        let config = Config { eviction, huge_pages: true, hash_seed: 42, ..Config::new(bytes) };
        Memc3::new(config).map(Self::Memc3).map_err(|error| BenchError::Setting(error.to_string()))
    }

    /// CPHASH's engine of `bytes` bytes in all, by its own policy; clients serve its partitions.
    pub fn cphash(bytes: usize) -> Result<Self, BenchError> {
        let config = guira_cphash::Config { server_threads: Some(0), ..partitioned(bytes) };
        Cphash::new(config).map(Self::Cphash).map_err(|error| BenchError::Setting(error.to_string()))
    }

    /// LOCKHASH's, likewise.
    pub fn lockhash(bytes: usize) -> Result<Self, BenchError> {
        Lockhash::new(partitioned(bytes)).map(Self::Lockhash).map_err(|error| BenchError::Setting(error.to_string()))
    }

    /// memc3 without huge pages, whose first use would be the longest wait.
    pub fn memc3_on_small_pages(bytes: usize) -> Result<Self, BenchError> {
        let config = Config { hash_seed: 42, ..Config::new(bytes) };
        Memc3::new(config).map(Self::Memc3).map_err(|error| BenchError::Setting(error.to_string()))
    }

    /// memcached's combination, with as many items as `bytes` bytes hold.
    pub fn chained_lru(bytes: usize) -> Self {
        Self::ChainedLru(ChainedLru::new(bytes / chained_lru::ITEM_BYTES))
    }

    /// The paper's stronger baseline, likewise.
    pub fn chained_clock(bytes: usize) -> Result<Self, BenchError> {
        ChainedClock::new(bytes / chained_clock::ITEM_BYTES).map(Self::ChainedClock).map_err(no_memory)
    }

    /// Items held.
    pub fn items(&self) -> u64 {
        match self {
            Self::Memc3(engine) => engine.stats().curr_items,
            Self::Cphash(engine) => engine.stats().curr_items,
            Self::Lockhash(engine) => engine.stats().curr_items,
            Self::ChainedLru(cache) => cache.len() as u64,
            Self::ChainedClock(cache) => cache.len() as u64,
        }
    }

    /// One request at a time.
    pub fn player(&self) -> Player<'_> {
        match self {
            Self::Memc3(engine) => one_by_one(engine),
            Self::Cphash(engine) => one_by_one(engine),
            Self::Lockhash(engine) => one_by_one(engine),
            Self::ChainedLru(cache) => Box::new(|draws| {
                play(
                    draws,
                    |number| cache.get(&key::numbered(number)),
                    |number, value| {
                        cache.set(&key::numbered(number), value);
                    },
                )
            }),
            Self::ChainedClock(cache) => Box::new(|draws| {
                play(
                    draws,
                    |number| cache.get(&key::numbered(number)),
                    |number, value| {
                        cache.set(&key::numbered(number), value);
                    },
                )
            }),
        }
    }

    /// A hundred requests at a time, for the engines that take batches.
    pub fn batch_player(&self) -> Player<'_> {
        match self {
            Self::Memc3(engine) => in_batches(engine),
            Self::Cphash(engine) => in_batches(engine),
            Self::Lockhash(engine) => in_batches(engine),
            _ => self.player(),
        }
    }

    /// Plays draws with the background work that a server would do meanwhile, as often.
    pub fn play_with_janitor(&self, draws: impl Iterator<Item = u32>) -> u64 {
        let mut player = self.player();
        let mut janitor = self.janitor();
        let (mut misses, mut requests) = (0, 0);
        for draw in draws {
            misses += player(&[draw]);
            requests += 1;
            if requests % JANITOR_REQUESTS == 0 {
                janitor();
            }
        }
        misses
    }

    /// Stores every key once.
    pub fn fill(&self, keys: usize) {
        self.play_with_janitor((0..keys as u32).map(|number| number | WRITE));
    }

    fn janitor(&self) -> Box<dyn FnMut() + '_> {
        match self {
            Self::Memc3(engine) => maintenance(engine),
            Self::Cphash(engine) => maintenance(engine),
            Self::Lockhash(engine) => maintenance(engine),
            _ => Box::new(|| ()),
        }
    }
}

/// Settings of both partitioned engines.
fn partitioned(bytes: usize) -> guira_cphash::Config {
    guira_cphash::Config { huge_pages: true, hash_seed: 42, ..guira_cphash::Config::new(bytes) }
}

fn one_by_one<E: Engine>(engine: &E) -> Player<'_> {
    let mut caller = Caller::new(engine);
    Box::new(move |draws| draws.iter().map(|draw| caller.one(*draw)).sum())
}

fn in_batches<E: Engine>(engine: &E) -> Player<'_> {
    let mut caller = Caller::new(engine);
    Box::new(move |draws| draws.chunks(BATCH).map(|batch| caller.batch(batch)).sum())
}

fn maintenance<E: Engine>(engine: &E) -> Box<dyn FnMut() + '_> {
    let mut worker = engine.worker();
    Box::new(move || {
        engine.maintain(&mut worker, NOW);
    })
}

/// The value of a key's number.
fn value(number: u64) -> Value {
    [number; 4]
}

fn play(draws: &[u32], get: impl Fn(u64) -> Option<Value>, set: impl Fn(u64, &Value)) -> u64 {
    let mut misses = 0;
    for draw in draws {
        let number = u64::from(draw & !WRITE);
        if draw & WRITE == 0 {
            if let Some(found) = get(number) {
                std::hint::black_box(found);
                continue;
            }
            misses += 1;
        }
        set(number, &value(number));
    }
    misses
}

/// Where the engine's answers go: copied like a server would, and only misses remembered.
struct Answers {
    room: [u8; 64 + 2 * VALUE_SLACK_LEN],
    missed: Vec<usize>,
}

impl Sink for Answers {
    #[inline]
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        &mut self.room[..hit.value_len + 2 * VALUE_SLACK_LEN]
    }

    #[inline]
    fn commit(&mut self, _: usize, _: &Hit) {
        std::hint::black_box(&mut self.room);
    }

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {}

    fn metadata(&mut self, _: usize, _: &Hit) {}

    #[inline]
    fn answer(&mut self, index: usize, answer: Answer) {
        if answer == Answer::Miss {
            self.missed.push(index);
        }
    }
}

/// A thread that calls the engine.
struct Caller<'a, E: Engine> {
    engine: &'a E,
    worker: E::Worker,
    answers: Answers,
    names: Vec<([u8; 16], [u8; 32])>,
}

impl<'a, E: Engine> Caller<'a, E> {
    fn new(engine: &'a E) -> Self {
        let answers = Answers { room: [0; 64 + 2 * VALUE_SLACK_LEN], missed: Vec::with_capacity(BATCH) };
        Self { engine, worker: engine.worker(), answers, names: Vec::with_capacity(BATCH) }
    }

    #[inline]
    fn one(&mut self, draw: u32) -> u64 {
        let entry = entry(draw);
        self.answers.missed.clear();
        self.engine.execute(&mut self.worker, NOW, &[request(draw, &entry)], &mut self.answers);
        let missed = self.answers.missed.len() as u64;
        if missed > 0 {
            self.engine.execute(&mut self.worker, NOW, &[request(WRITE, &entry)], &mut self.answers);
        }
        missed
    }

    fn batch(&mut self, draws: &[u32]) -> u64 {
        let Self { engine, worker, answers, names } = self;
        names.clear();
        names.extend(draws.iter().map(|draw| entry(*draw)));
        answers.missed.clear();
        let requests: Vec<Request<'_>> =
            draws.iter().zip(names.iter()).map(|(draw, entry)| request(*draw, entry)).collect();
        engine.execute(worker, NOW, &requests, answers);
        let missed = std::mem::take(&mut answers.missed);
        if !missed.is_empty() {
            let sets: Vec<Request<'_>> = missed.iter().map(|index| request(WRITE, &names[*index])).collect();
            engine.execute(worker, NOW, &sets, answers);
        }
        let count = missed.len() as u64;
        answers.missed = missed;
        count
    }
}

/// Key and value of a draw.
#[inline]
fn entry(draw: u32) -> ([u8; 16], [u8; 32]) {
    let number = u64::from(draw & !WRITE);
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    (key::bytes(&key::numbered(number)), bytes)
}

#[inline]
fn request(draw: u32, entry: &([u8; 16], [u8; 32])) -> Request<'_> {
    let key = Key::new(&entry.0).expect("sixteen bytes");
    if draw & WRITE == 0 {
        return Request { key, operation: Operation::Get(Get::PLAIN) };
    }
    let (mode, flags, expiry, cas, vivify) = (StoreMode::Set, 0, Expiry::NEVER, None, None);
    Request { key, operation: Operation::Store(Store { mode, flags, expiry, cas, vivify, value: &entry.1 }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_misses_once_and_then_hits() {
        let megabytes = 8 << 20;
        let contenders = [
            Contender::memc3(megabytes, Eviction::Clock).expect("memory"),
            Contender::cphash(megabytes).expect("memory"),
            Contender::lockhash(megabytes).expect("memory"),
            Contender::chained_lru(megabytes),
            Contender::chained_clock(megabytes).expect("memory"),
        ];
        let draws: Vec<u32> = (0..1_000).collect();
        for contender in contenders {
            assert_eq!(contender.player()(&draws), 1_000);
            assert_eq!(contender.batch_player()(&draws), 0);
            assert_eq!(contender.items(), 1_000);
            contender.fill(2_000);
            assert_eq!(contender.items(), 2_000);
        }
    }

    #[test]
    fn draws_have_the_asked_share_of_writes() {
        let draws = draws(1_000, 20_000, ZIPF, 0.05, 1);
        let writes = draws.iter().filter(|draw| **draw & WRITE != 0).count();
        assert!((800..1_200).contains(&writes), "{writes}");
        assert!(draws.iter().all(|draw| draw & !WRITE < 1_000));
    }
}
