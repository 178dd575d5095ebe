//! How long the engine takes for a key, in process: batched reads and stores of 16-byte keys and 32-byte values.

use std::time::Instant;

use guira_item::{
    Answer, Engine, Expiry, Get, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode, Time,
};
use guira_memc3::{Config, Memc3};

struct Count {
    room: Vec<u8>,
    hits: u64,
}

impl Sink for Count {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        &mut self.room[..16 + hit.value_len]
    }
    fn commit(&mut self, _: usize, _: &Hit) {
        self.hits += 1;
    }
    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {}
    fn metadata(&mut self, _: usize, _: &Hit) {}
    fn answer(&mut self, _: usize, _: Answer) {}
}

fn main() {
    let keys: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let mb: usize = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(1024);
    let batch_len: usize = std::env::args().nth(3).and_then(|a| a.parse().ok()).unwrap_or(100);
    let huge = std::env::args().nth(4).is_some();
    let engine = Memc3::new(Config { huge_pages: huge, ..Config::new(mb << 20) }).expect("memory");
    let mut worker = engine.worker();
    let mut sink = Count { room: vec![0; 64 << 10], hits: 0 };
    let names: Vec<[u8; 16]> = (0..keys)
        .map(|i| format!("{:016x}", i.wrapping_mul(0x9e3779b97f4a7c15)).into_bytes().try_into().expect("16 digits"))
        .collect();
    let set = Operation::Store(Store {
        mode: StoreMode::Set,
        flags: 0,
        expiry: Expiry::NEVER,
        cas: None,
        vivify: None,
        value: &[7; 32],
    });
    let time = |label: &str, count: u64, start: Instant| {
        let ns = start.elapsed().as_nanos() as f64 / count as f64;
        println!("{label}: {ns:.1} ns, {:.2} M/s", 1e3 / ns);
    };
    for round in 0..2 {
        let start = Instant::now();
        for batch in names.chunks(100) {
            let requests: Vec<_> =
                batch.iter().map(|name| Request { key: Key::new(name).expect("a key"), operation: set }).collect();
            engine.execute(&mut worker, Time(10), &requests, &mut sink);
            if round == 0 {
                engine.maintain(&mut worker, Time(10));
            }
        }
        time("set", keys, start);
    }
    let mut state = 1u64;
    let mut requests = Vec::new();
    let mut order: Vec<u32> = Vec::new();
    for _ in 0..4_000_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        order.push(((state >> 33) % keys) as u32);
    }
    for _ in 0..3 {
        sink.hits = 0;
        let start = Instant::now();
        for batch in order.chunks(batch_len) {
            requests.clear();
            requests.extend(batch.iter().map(|at| Request {
                key: Key::new(&names[*at as usize]).expect("a key"),
                operation: Operation::Get(Get::PLAIN),
            }));
            engine.execute(&mut worker, Time(10), &requests, &mut sink);
        }
        time(&format!("uniform get, batches of {batch_len}, {} hits", sink.hits), order.len() as u64, start);
    }
    let stats = engine.stats();
    println!(
        "items {} bytes/item {:.1}",
        stats.curr_items,
        (stats.total_malloced + stats.hash_bytes) as f64 / stats.curr_items as f64
    );
}
