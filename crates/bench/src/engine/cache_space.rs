//! Table 3: how many small items a cache holds, and what share of requests it misses, for every eviction policy.
//!
//! Nothing is timed here, so caches are played side by side, one a core.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use guira_memc3::Eviction;

use super::{
    BenchError, ExperimentReport,
    contender::{Contender, WRITE, ZIPF, draws},
    in_process::Bench,
    metric,
};

pub(super) const NAME: &str = "cache-space";

const WRITES: f64 = 0.05;

/// Name in the report, and a cache of so many bytes.
const CONTENDERS: [(&str, Make); 8] = [
    ("guira", |bytes| Contender::memc3(bytes, Eviction::Clock)),
    ("guira s3fifo", |bytes| Contender::memc3(bytes, Eviction::S3Fifo)),
    ("guira sieve", |bytes| Contender::memc3(bytes, Eviction::Sieve)),
    ("guira lru", |bytes| Contender::memc3(bytes, Eviction::Lru)),
    ("guira random", |bytes| Contender::memc3(bytes, Eviction::Random)),
    ("cphash", Contender::cphash),
    ("lockhash", Contender::lockhash),
    ("chaining+LRU", |bytes| Ok(Contender::chained_lru(bytes))),
];

type Make = fn(usize) -> Result<Contender, BenchError>;

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let keys: usize = bench.extent.scaled(10_000_000, 200_000);
    let requests: usize = bench.extent.scaled(16_000_000, 150_000);
    let sizes: Vec<usize> = bench.extent.scaled(vec![64, 128, 256], vec![2]);
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {keys} keys, {requests} requests, 95 % GET, a miss followed by a SET, from \
         an empty cache; each round draws other requests; guira is memc3 with its default policy, clock, cphash and lockhash are by LRU, all with their index; chaining+LRU \
         takes 128 B an item, as memcached does with its index"
    );
    let mut report =
        ExperimentReport::new(NAME, "Items stored and miss ratio (MemC3's Table 3, scaled)", words).over("memory (MB)");
    for round in 0..bench.rounds {
        let draws = draws(keys, requests, ZIPF, WRITES, round as u64);
        let gets = draws.iter().filter(|draw| **draw & WRITE == 0).count() as f64;
        let jobs: Vec<Job<'_>> =
            sizes.iter().flat_map(|size| CONTENDERS.iter().map(|(name, make)| (*size, *name, *make))).collect();
        for (job, (items, misses)) in side_by_side(bench.cores.len(), &jobs, &draws)? {
            let (variant, name) = (format!("{} MB", job.0), job.1);
            report.record(&variant, name, metric::ITEMS, items as f64);
            report.record(&variant, name, metric::MISS_RATIO, misses as f64 / gets);
        }
    }
    for (variant, chaining, cuckoo) in [("64 MB", 0.6e6, 0.84e6), ("128 MB", 1.2e6, 1.68e6), ("256 MB", 2.4e6, 3.35e6)]
    {
        report.publish(variant, "chaining+LRU", metric::ITEMS, chaining);
        report.publish(variant, "cuckoo+CLOCK", metric::ITEMS, cuckoo);
    }
    let note = "the paper's memory is for items alone, its index comes on top; its miss ratios are for 10 GB of keys";
    report.notes.push(note.into());
    Ok(report)
}

/// Megabytes, name, and how it is made.
type Job<'a> = (usize, &'a str, Make);
/// Items and misses.
type Outcome = (u64, u64);

/// Items and misses of every job, in order.
fn side_by_side<'a>(threads: usize, jobs: &[Job<'a>], draws: &[u32]) -> Result<Vec<(Job<'a>, Outcome)>, BenchError> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, job)) =
                    Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, jobs.get(at)?)))
                {
                    let result = play(job, draws);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(number, result)| Ok((jobs[number], result?))).collect()
}

fn play(job: &Job<'_>, draws: &[u32]) -> Result<Outcome, BenchError> {
    let cache = job.2(job.0 << 20)?;
    let misses = cache.play_with_janitor(draws.iter().copied());
    Ok((cache.items(), misses))
}
