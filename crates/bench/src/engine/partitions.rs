//! CPHASH's microbenchmark (PPoPP'12, section 6): lookups and inserts of 8-byte keys and values, drawn at random from a working
//! set, in batches; the partitioned engines beside the shared cuckoo table, on the same cores.
//!
//! Always true: all contenders have the same keys, draws and cores: LOCKHASH, memc3 and dashmap have a thread that asks on
//! each core, CPHASH has clients on half of them and server threads on the others.

use std::num::NonZeroUsize;

use guira_cphash::{Config, Cphash, Eviction, Lockhash, Traffic};
use guira_item::{
    Answer, Engine, Expiry, Get, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode, Time,
    VALUE_SLACK_LEN,
};
use guira_memc3::Memc3;
use rapidhash::fast::RandomState;

use super::{
    BenchError, ExperimentReport,
    contender::{WRITE, draws},
    crew,
    in_process::Bench,
    metric,
};

/// Bytes of a value, which the paper counts a working set in.
const VALUE_BYTES: usize = 8;

/// Bytes that an element of either engine takes at most, with its buckets.
const ELEMENT_BYTES: usize = 144;

/// Draws that the threads go through again and again: more than any cache remembers the order of.
const DRAWS: usize = 4_000_000;

/// Partitions where clients serve each other: several for each of two, and few enough that each is served in batches.
const PARTITIONS_ALONE: usize = 8;

const NOW: Time = Time(2);

/// The paper's parameters.
#[derive(Clone, Copy)]
struct Load {
    /// Distinct keys.
    keys: usize,
    /// Keys there is room for.
    capacity: usize,
    /// Share of inserts.
    inserts: f64,
    /// Requests in a batch.
    batch: NonZeroUsize,
    eviction: Eviction,
}

impl Load {
    /// A working set of so many bytes of values, all of which there is room for, 30 % inserts, batches of 1,000, LRU.
    fn of(working_set_bytes: usize) -> Self {
        let keys = working_set_bytes / VALUE_BYTES;
        let batch = NonZeroUsize::new(1_000).expect("not zero");
        Self { keys, capacity: keys, inserts: 0.3, batch, eviction: Eviction::Lru }
    }

    fn memory(&self) -> usize {
        self.capacity * ELEMENT_BYTES + (4 << 20)
    }
}

pub(super) mod working_sets {
    use super::*;

    pub(in super::super) const NAME: &str = "working-sets";

    /// Figures 5 and 8.
    pub(in super::super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
        let sizes: &[usize] = bench.extent.scaled(&[1, 4, 16, 64, 128], &[1]);
        let mut report =
            report(bench, NAME, "Throughput over working sets (CPHASH's Figures 5 and 8)", "working set, MB");
        for _ in 0..bench.rounds {
            for eviction in [Eviction::Lru, Eviction::Random] {
                for size in sizes {
                    let load = Load { eviction, ..Load::of(bench.extent.scaled(size << 20, 16 << 10)) };
                    compare(bench, &mut report, &format!("{}, {size} MB", eviction.name()), &load)?;
                }
            }
        }
        Ok(report)
    }
}

pub(super) mod capacities {
    use super::*;

    pub(in super::super) const NAME: &str = "capacities";

    /// Figure 9.
    pub(in super::super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
        let mut report = report(bench, NAME, "Throughput over capacities (CPHASH's Figure 9)", "capacity");
        let load = Load::of(bench.extent.scaled(128 << 20, 64 << 10));
        for _ in 0..bench.rounds {
            for part in [8, 4, 2, 1] {
                let load = Load { capacity: load.keys / part, ..load };
                compare(bench, &mut report, &format!("1/{part} of the working set"), &load)?;
            }
        }
        Ok(report)
    }
}

pub(super) mod insert_ratios {
    use super::*;

    pub(in super::super) const NAME: &str = "insert-ratios";

    /// Figure 10.
    pub(in super::super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
        let mut report = report(bench, NAME, "Throughput over shares of inserts (CPHASH's Figure 10)", "inserts");
        let load = Load::of(bench.extent.scaled(16 << 20, 16 << 10));
        for _ in 0..bench.rounds {
            for percent in [0, 10, 30, 60, 100] {
                let load = Load { inserts: f64::from(percent) / 100.0, ..load };
                compare(bench, &mut report, &format!("{percent} %"), &load)?;
            }
        }
        Ok(report)
    }
}

pub(super) mod batches {
    use super::*;

    pub(in super::super) const NAME: &str = "batches";

    /// How many requests at a time it takes for messages to pay (section 6.1).
    pub(in super::super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
        let mut report =
            report(bench, NAME, "Throughput over lengths of batches (CPHASH, section 6.1)", "requests a batch");
        let load = Load::of(bench.extent.scaled(16 << 20, 16 << 10));
        for _ in 0..bench.rounds {
            for len in [1, 16, 64, 256, 1_000, 4_000] {
                let load = Load { batch: NonZeroUsize::new(len).expect("not zero"), ..load };
                compare(bench, &mut report, &len.to_string(), &load)?;
            }
        }
        Ok(report)
    }
}

fn report(bench: &Bench, name: &str, title: &str, axis: &str) -> ExperimentReport {
    let (clients, servers) = split(bench);
    let words = format!(
        "8 B keys and values, uniform, all stored before; 30 % inserts, batches of 1,000, LRU and room for all unless told \
         otherwise; cphash has {} client and {} server threads, the others {} threads that ask (cphash, clients serve: the \
         same messages, and no server threads); dashmap one key at a time, with rapidhash like the engines",
        clients.len(),
        servers.len(),
        bench.cores.len()
    );
    ExperimentReport::new(name, title, words).over(axis)
}

/// The clients' cores and the server threads'; on a single core both share it.
fn split(bench: &Bench) -> (&[usize], &[usize]) {
    match bench.cores.len() {
        1 => (&bench.cores, &bench.cores),
        cores => bench.cores.split_at(cores / 2),
    }
}

fn compare(bench: &Bench, report: &mut ExperimentReport, variant: &str, load: &Load) -> Result<(), BenchError> {
    let (clients, servers) = split(bench);
    let count = bench.extent.scaled(DRAWS, 20_000);
    let draws = draws(load.keys, count, 0.0, load.inserts, 7);
    let mut record = |peer: &str, rate: crew::Rate| report.record(variant, peer, metric::OPERATIONS, rate.per_s);
    let config = Config { eviction: load.eviction, huge_pages: true, hash_seed: 42, ..Config::new(load.memory()) };
    let cores = servers.to_vec();
    let cphash = Cphash::new(Config { server_threads: Some(servers.len()), server_cores: cores, ..config.clone() });
    let cphash = cphash.map_err(|error| BenchError::Setting(error.to_string()))?;
    fill(&cphash, load.keys);
    let (rate, traffic) = play_cphash(bench, clients, &cphash, &draws, load)?;
    drop(cphash);
    record("cphash", rate);
    let cphash = Cphash::new(Config { server_threads: Some(0), partitions: Some(PARTITIONS_ALONE), ..config.clone() });
    let cphash = cphash.map_err(|error| BenchError::Setting(error.to_string()))?;
    fill(&cphash, load.keys);
    record("cphash, clients serve", play(bench, &bench.cores, &cphash, &draws, load)?);
    drop(cphash);
    let lockhash = Lockhash::new(config).map_err(|error| BenchError::Setting(error.to_string()))?;
    fill(&lockhash, load.keys);
    record("lockhash", play(bench, &bench.cores, &lockhash, &draws, load)?);
    drop(lockhash);
    let memc3 = guira_memc3::Config { huge_pages: true, hash_seed: 42, ..guira_memc3::Config::new(load.memory() / 2) };
    let memc3 = Memc3::new(memc3).map_err(|error| BenchError::Setting(error.to_string()))?;
    fill(&memc3, load.keys);
    record("memc3", play(bench, &bench.cores, &memc3, &draws, load)?);
    drop(memc3);
    if load.capacity == load.keys {
        record("dashmap", play_dashmap(bench, &draws, load)?);
    }
    if let Some((lines, words)) = traffic {
        report.record(variant, "cphash", metric::LINES_PER_OPERATION, lines);
        report.record(variant, "cphash", metric::WORDS_PER_LINE, words);
    }
    Ok(())
}

/// Stores every key once.
fn fill<E: Engine>(engine: &E, keys: usize) {
    let mut caller = Caller::new(engine);
    let all: Vec<u32> = (0..keys as u32).map(|number| number | WRITE).collect();
    all.chunks(1_000).for_each(|batch| caller.batch(batch));
}

fn play<E: Engine>(
    bench: &Bench,
    cores: &[usize],
    engine: &E,
    draws: &[u32],
    load: &Load,
) -> Result<crew::Rate, BenchError> {
    let workers = (0..cores.len()).map(|number| {
        let mut caller = Caller::new(engine);
        let mut batches = turns(draws, load.batch, number, cores.len());
        move || caller.turn(&mut batches)
    });
    crew::run(cores, bench.measure, workers.collect())
}

/// The same, and lines of messages for each operation, and words in a line of requests.
fn play_cphash(
    bench: &Bench,
    clients: &[usize],
    engine: &Cphash,
    draws: &[u32],
    load: &Load,
) -> Result<(crew::Rate, Option<(f64, f64)>), BenchError> {
    let sum = std::sync::Mutex::new((0u64, Traffic::default()));
    let workers = (0..clients.len()).map(|number| {
        let mut counted = Counted { caller: Caller::new(engine), operations: 0, sum: &sum };
        let mut batches = turns(draws, load.batch, number, clients.len());
        move || {
            let operations = counted.caller.turn(&mut batches);
            counted.operations += operations;
            operations
        }
    });
    let rate = crew::run(clients, bench.measure, workers.collect())?;
    let (operations, traffic) = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lines = (traffic.request_lines + traffic.reply_lines) as f64 / operations as f64;
    let words = traffic.request_words as f64 / traffic.request_lines as f64;
    Ok((rate, (traffic.request_lines > 0).then_some((lines, words))))
}

/// A caller whose messages are counted when it is done.
struct Counted<'a> {
    caller: Caller<'a, Cphash>,
    operations: u64,
    sum: &'a std::sync::Mutex<(u64, Traffic)>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let own = self.caller.worker.traffic();
        let mut sum = self.sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sum.0 += self.operations;
        sum.1.request_lines += own.request_lines;
        sum.1.request_words += own.request_words;
        sum.1.reply_lines += own.reply_lines;
        sum.1.reply_words += own.reply_words;
    }
}

fn play_dashmap(bench: &Bench, draws: &[u32], load: &Load) -> Result<crew::Rate, BenchError> {
    let map = dashmap::DashMap::with_capacity_and_hasher(load.keys, RandomState::default());
    (0..load.keys as u64).for_each(|key| assert!(map.insert(key, key).is_none()));
    let threads = bench.cores.len();
    let workers = (0..threads).map(|number| {
        let map = &map;
        let mut batches = turns(draws, load.batch, number, threads);
        move || {
            let mut operations = 0;
            while operations < TURN {
                let batch = batches.next().expect("endless");
                for draw in batch {
                    let key = u64::from(draw & !WRITE);
                    if draw & WRITE != 0 {
                        std::hint::black_box(map.insert(key, key));
                    } else {
                        std::hint::black_box(map.get(&key).map(|value| *value));
                    }
                }
                operations += batch.len();
            }
            operations as u64
        }
    });
    crew::run(&bench.cores, bench.measure, workers.collect())
}

/// Operations between two looks at the clock, or a batch.
const TURN: usize = 2_000;

/// A thread's batches, again and again, from a place of its own on.
fn turns(draws: &[u32], batch: NonZeroUsize, number: usize, threads: usize) -> impl Iterator<Item = &[u32]> + Clone {
    let batches = draws.len() / batch;
    draws.chunks(batch.get()).take(batches).cycle().skip(number * batches / threads)
}

/// A thread that calls an engine.
struct Caller<'a, E: Engine> {
    engine: &'a E,
    worker: E::Worker,
    entries: Vec<[u8; 8]>,
    answers: Answers,
}

struct Answers([u8; VALUE_BYTES + 2 * VALUE_SLACK_LEN]);

impl Sink for Answers {
    #[inline]
    fn reserve(&mut self, _: usize, _: &Hit) -> &mut [u8] {
        &mut self.0
    }

    #[inline]
    fn commit(&mut self, _: usize, _: &Hit) {
        std::hint::black_box(&mut self.0);
    }

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {}

    fn metadata(&mut self, _: usize, _: &Hit) {}

    #[inline]
    fn answer(&mut self, _: usize, _: Answer) {}
}

impl<'a, E: Engine> Caller<'a, E> {
    fn new(engine: &'a E) -> Self {
        let answers = Answers([0; VALUE_BYTES + 2 * VALUE_SLACK_LEN]);
        Self { engine, worker: engine.worker(), entries: Vec::new(), answers }
    }

    fn turn<'d>(&mut self, batches: &mut impl Iterator<Item = &'d [u32]>) -> u64 {
        let mut operations = 0;
        while operations < TURN {
            let batch = batches.next().expect("endless");
            self.batch(batch);
            operations += batch.len();
        }
        operations as u64
    }

    fn batch(&mut self, draws: &[u32]) {
        self.entries.clear();
        self.entries.extend(draws.iter().map(|draw| u64::from(draw & !WRITE).to_le_bytes()));
        let requests: Vec<Request<'_>> =
            draws.iter().zip(&self.entries).map(|(draw, entry)| request(*draw, entry)).collect();
        self.engine.execute(&mut self.worker, NOW, &requests, &mut self.answers);
    }
}

#[inline]
fn request(draw: u32, entry: &[u8; 8]) -> Request<'_> {
    let key = Key::new(entry).expect("eight bytes");
    if draw & WRITE == 0 {
        return Request { key, operation: Operation::Get(Get::PLAIN) };
    }
    let (mode, flags, expiry, cas, vivify) = (StoreMode::Set, 0, Expiry::NEVER, None, None);
    Request { key, operation: Operation::Store(Store { mode, flags, expiry, cas, vivify, value: entry }) }
}
