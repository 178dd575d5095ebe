//! Table 2: bytes per key, load factor and speed of filling an index until the first insert fails.

use guira_bench_memory::Pages;
use guira_cuckoo::{Probe, SEGMENT_BYTES, SEGMENT_SLOTS};

use super::{
    BenchError, ExperimentReport,
    crew::cpu_time,
    in_process::{Bench, no_memory},
    metric,
};
use crate::peers::{guira_index, key::mix, paper_cuckoo::PaperCuckoo, random_walk::WAYS};

pub(super) const NAME: &str = "construction";

/// memcached doubles its table from here on.
const CHAIN_LOAD: f64 = 1.5;

/// A full index.
struct Full {
    keys: usize,
    bytes: usize,
    /// None where there are no slots.
    load_factor: Option<f64>,
    seconds: f64,
    largest_bucket: usize,
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let slots: usize = bench.extent.scaled(1 << 23, 1 << 15);
    let words = format!(
        "unique keys into an empty index of {slots} slots (guira: as many bytes), one thread, timed by its CPU time, until an insert fails; \
         chaining: half as many buckets, to {CHAIN_LOAD} keys a bucket"
    );
    let mut report = ExperimentReport::new(NAME, "Space and construction speed (MemC3's Table 2)", words);
    for _ in 0..bench.rounds {
        let contenders = [
            ("chaining", chaining(slots / 2)),
            ("cuckoo 1 path", cuckoo(slots, 1)),
            ("cuckoo 2 paths", cuckoo(slots, 2)),
            ("cuckoo 3 paths", cuckoo(slots, 3)),
            ("guira", guira((slots * 9).div_ceil(SEGMENT_BYTES))?),
        ];
        for (name, full) in contenders {
            report.record("", name, metric::BYTES_PER_KEY, full.bytes as f64 / full.keys as f64);
            full.load_factor.into_iter().for_each(|load| report.record("", name, metric::LOAD_FACTOR, load));
            report.record("", name, metric::INSERTS, full.keys as f64 / full.seconds);
            report.record("", name, metric::LARGEST_BUCKET, full.largest_bucket as f64);
            report.record("", name, metric::KEYS, full.keys as f64);
            report.record("", name, metric::INDEX_BYTES, full.bytes as f64);
        }
    }
    for (peer, metric, value) in [
        ("chaining", metric::BYTES_PER_KEY, 13.33),
        ("chaining", metric::INSERTS, 14.4e6),
        ("cuckoo", metric::BYTES_PER_KEY, 9.49),
        ("cuckoo", metric::LOAD_FACTOR, 0.948),
        ("cuckoo, slowest", metric::INSERTS, 6.2e6),
        ("cuckoo, fastest", metric::INSERTS, 7.4e6),
    ] {
        report.publish("", peer, metric, value);
    }
    Ok(report)
}

fn chaining(buckets: usize) -> Full {
    let keys = (buckets as f64 * CHAIN_LOAD) as usize;
    let (mut heads, mut nexts) = (vec![1u64; buckets], vec![1u64; keys]);
    heads.fill(0);
    let begin = cpu_time();
    for (number, next) in (0u64..).zip(&mut nexts) {
        *next = std::mem::replace(&mut heads[mix(number) as usize & (buckets - 1)], number + 1);
    }
    let seconds = (cpu_time() - begin).as_secs_f64();
    let pointer = |value: u64| (value != 0).then_some(value);
    let length =
        |head: &u64| std::iter::successors(pointer(*head), |item| pointer(nexts[(*item - 1) as usize])).count();
    let largest_bucket = heads.iter().map(length).max().unwrap_or(0);
    Full { keys, bytes: (buckets + keys) * size_of::<u64>(), load_factor: None, seconds, largest_bucket }
}

fn cuckoo(slots: usize, paths: usize) -> Full {
    let mut table = PaperCuckoo::new(slots / WAYS, paths);
    let begin = cpu_time();
    let mut number = 0;
    while table.insert(mix(number), number + 1).is_ok() {
        number += 1;
    }
    let seconds = (cpu_time() - begin).as_secs_f64();
    let load_factor = Some(table.len() as f64 / table.slots() as f64);
    Full { keys: table.len(), bytes: table.bytes(), load_factor, seconds, largest_bucket: WAYS }
}

fn guira(segments: usize) -> Result<Full, BenchError> {
    let index = guira_index::empty(segments, Pages::Small).map_err(no_memory)?;
    let begin = cpu_time();
    let mut number = 0;
    while guira_index::insert(&index, &Probe::new(mix(number)), number as u32).is_ok() {
        number += 1;
    }
    let seconds = (cpu_time() - begin).as_secs_f64();
    let keys = index.len();
    let load_factor = Some(keys as f64 / (segments * SEGMENT_SLOTS) as f64);
    Ok(Full { keys, bytes: index.bytes(), load_factor, seconds, largest_bucket: guira_cuckoo::BUCKET_SLOTS })
}
