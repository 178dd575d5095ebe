//! How fast an engine answers batches:
//! `cargo run --release -p guira-cphash --example speed -- cphash 16 30 1 2` (engine, megabytes of 8-byte values, % inserts, most
//! server threads, client threads, then partitions, requests in a batch, and `random` for that eviction, with LOCKHASH `buckets` for
//! the same with locks in buckets).
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use guira_cphash::{BucketLockhash, Config, Cphash, Eviction, Lockhash};
use guira_item::{
    Answer, Engine, Expiry, Get, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode, Time,
    VALUE_SLACK_LEN,
};

struct Answers([u8; 8 + 2 * VALUE_SLACK_LEN]);

impl Sink for Answers {
    fn reserve(&mut self, _: usize, _: &Hit) -> &mut [u8] {
        &mut self.0
    }

    fn commit(&mut self, _: usize, _: &Hit) {
        std::hint::black_box(&mut self.0);
    }

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {}

    fn metadata(&mut self, _: usize, _: &Hit) {}

    fn answer(&mut self, _: usize, _: Answer) {}
}

fn store(value: &[u8]) -> Operation<'_> {
    let (mode, flags, expiry, cas, vivify) = (StoreMode::Set, 0, Expiry::NEVER, None, None);
    Operation::Store(Store { mode, flags, expiry, cas, vivify, value })
}

fn play<E: Engine>(engine: &E, client: u64, [keys, percent, batch_len]: [u64; 3], tell: impl Fn(&E::Worker)) {
    let batch_len = batch_len as usize;
    let mut worker = engine.worker();
    let mut answers = Answers([0; 8 + 2 * VALUE_SLACK_LEN]);
    let mut batch = |worker: &mut E::Worker, numbers: &[(u64, bool)]| {
        let entries: Vec<[u8; 8]> = numbers.iter().map(|(number, _)| number.to_le_bytes()).collect();
        let request = |((_, is_insert), entry): (&(u64, bool), &'_ [u8; 8])| *is_insert || entry.is_empty();
        let requests: Vec<Request<'_>> = numbers
            .iter()
            .zip(&entries)
            .map(|(number, entry)| {
                let operation = if request((number, entry)) { store(entry) } else { Operation::Get(Get::PLAIN) };
                Request { key: Key::new(entry).expect("eight bytes"), operation }
            })
            .collect();
        engine.execute(worker, Time(2), &requests, &mut answers);
    };
    for from in (0..keys).step_by(batch_len) {
        batch(&mut worker, &(from..keys.min(from + batch_len as u64)).map(|number| (number, true)).collect::<Vec<_>>());
    }
    let mut random = 88_172_645_463_325_252u64 ^ client << 40;
    let draws: Vec<(u64, bool)> = (0..2_000_000)
        .map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            ((random >> 20) % keys, random % 100 < percent)
        })
        .collect();
    for _ in 0..3 {
        let (begin, mut operations) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_secs(1) {
            draws.chunks(batch_len).for_each(|numbers| batch(&mut worker, numbers));
            operations += draws.len();
        }
        println!("{:.2} million operations a second", operations as f64 / begin.elapsed().as_secs_f64() / 1e6);
        tell(&worker);
    }
}

fn clients(count: u64, play: impl Fn(u64) + Sync) {
    let play = &play;
    std::thread::scope(|scope| (0..count).for_each(|client| drop(scope.spawn(move || play(client)))));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |index: usize, default: u64| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default);
    let keys = (number(1, 16) << 20) / 8;
    let bucket_locks = arguments.get(7).is_some_and(|name| name == "buckets");
    let is_random = bucket_locks || arguments.get(7).is_some_and(|name| name == "random");
    let eviction = if is_random { Eviction::Random } else { Eviction::Lru };
    let config = Config { huge_pages: true, hash_seed: 42, eviction, ..Config::new(keys as usize * 144 + (4 << 20)) };
    let load = [keys, number(2, 30), number(6, 1_000)];
    match arguments.first().map(String::as_str) {
        Some("cphash") => {
            let partitions = Some(number(5, 8) as usize);
            let config = Config { partitions, server_threads: Some(number(3, 1) as usize), ..config };
            let engine = Cphash::new(config).expect("memory");
            clients(number(4, 1), |client| {
                play(&engine, client, load, |worker| {
                    let (cycles, served) = (worker.cycles(), engine.served());
                    println!("{cycles:?} {served:?}");
                });
            });
        }
        _ if bucket_locks => {
            let engine = BucketLockhash::new(config).expect("memory");
            clients(number(4, 1), |client| play(&engine, client, load, |_| ()));
        }
        _ => {
            let engine = Lockhash::new(config).expect("memory");
            clients(number(4, 1), |client| play(&engine, client, load, |_| ()));
        }
    }
}
