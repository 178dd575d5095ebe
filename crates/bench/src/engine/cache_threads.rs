//! Figure 8: throughput of whole caches over threads, big enough for every key, and a tenth of the working set.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use guira_memc3::Eviction;

use super::{
    BenchError, ExperimentReport,
    contender::{self, Contender, Player, ZIPF},
    crew,
    in_process::{Bench, threads},
    metric,
};

pub(super) const NAME: &str = "cache-threads";

const BATCHED: &str = "guira batched";

/// Draws between two looks at the clock.
const TURN: usize = 500;
/// Bytes of key and value.
const ENTRY_BYTES: usize = 48;
/// Draws that a thread has for each second it plays, more than any gets through: draws that come again would find what they
/// have just left.
const DRAWS_PER_S: f64 = 16e6;
/// The most, 80 MB: longer intervals get them again, which the report tells.
const DRAWS_MAX: usize = 20_000_000;
/// Working set over memory in the small cache.
const TIMES: usize = 10;

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let big_keys: usize = bench.extent.scaled(2_000_000, 10_000);
    let small_bytes: usize = bench.extent.scaled(48 << 20, 2 << 20);
    let small_keys = small_bytes * TIMES / ENTRY_BYTES;
    let warm_up: usize = bench.extent.scaled(8_000_000, 150_000);
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99, GET, a miss followed by a SET; big: {big_keys} keys, all stored; small: {} MB \
         for {small_keys} keys, {TIMES} times as much; one request at a time, but for guira batched (100)",
        small_bytes >> 20
    );
    let mut report =
        ExperimentReport::new(NAME, "Cache throughput over threads (MemC3's Figure 8)", words).over("threads");
    // Room for every contender to hold all keys: the roomiest item is memcached's, of 128 bytes.
    measure(bench, &mut report, "big", big_keys * 160, big_keys, warm_up)?;
    measure(bench, &mut report, "small", small_bytes, small_keys, warm_up)?;
    report.notes.push("guira is cuckoo+CLOCK; per CPU second shows what a shared machine took away".into());
    Ok(report)
}

fn measure(
    bench: &Bench,
    report: &mut ExperimentReport,
    setting: &str,
    bytes: usize,
    keys: usize,
    warm_up: usize,
) -> Result<(), BenchError> {
    // Batches have an engine of their own: what one at a time have just stored is no miss of theirs.
    let contenders = [
        ("guira", Contender::memc3(bytes, Eviction::Clock)?),
        (BATCHED, Contender::memc3(bytes, Eviction::Clock)?),
        ("cuckoo+LRU", Contender::memc3(bytes, Eviction::Lru)?),
        ("chaining+CLOCK", Contender::chained_clock(bytes)?),
        ("chaining+LRU", Contender::chained_lru(bytes)),
    ];
    let mut seeds = 1..;
    let mut draw = |count| contender::draws(keys, count, ZIPF, 0.0, seeds.next().expect("endless"));
    let first = draw(warm_up);
    for (_, cache) in &contenders {
        if setting == "small" {
            cache.play_with_janitor(first.iter().copied());
        } else {
            cache.fill(keys);
        }
    }
    let count = (DRAWS_PER_S * crew::whole(bench.measure).as_secs_f64()) as usize;
    let turns = count.min(DRAWS_MAX).div_ceil(TURN);
    for _ in 0..bench.rounds {
        for count in bench.thread_counts() {
            let variant = format!("{setting}, {}", threads(count));
            let draws: Vec<Vec<u32>> = (0..count).map(|_| draw(turns * TURN)).collect();
            for (name, cache) in &contenders {
                let player = || if *name == BATCHED { cache.batch_player() } else { cache.player() };
                play(bench, report, (&variant, name), &draws, (0..count).map(|_| player()).collect())?;
            }
        }
    }
    Ok(())
}

/// One timed interval; each player has draws of its own.
fn play(
    bench: &Bench,
    report: &mut ExperimentReport,
    (variant, name): (&str, &str),
    draws: &[Vec<u32>],
    players: Vec<Player<'_>>,
) -> Result<(), BenchError> {
    let [asked, missed, restarts] = [const { AtomicU64::new(0) }; 3];
    let (asked, missed, restarts) = (&asked, &missed, &restarts);
    let workers = players.into_iter().zip(draws).map(|(mut player, draws)| {
        let mut turns = draws.chunks(TURN);
        move || {
            let turn = turns.next().unwrap_or_else(|| {
                restarts.fetch_add(1, Relaxed);
                turns = draws.chunks(TURN);
                turns.next().expect("there are draws")
            });
            let misses = player(turn);
            if misses > 0 {
                missed.fetch_add(misses, Relaxed);
            }
            asked.fetch_add(turn.len() as u64, Relaxed);
            turn.len() as u64
        }
    });
    let rate = crew::run(&bench.cores, bench.measure, workers.collect())?;
    report.record(variant, name, metric::OPERATIONS, rate.per_s);
    report.record(variant, name, metric::PER_CPU, rate.per_cpu_s);
    let [asked, missed, restarts] = [asked, missed, restarts].map(|count| count.load(Relaxed));
    report.record(variant, name, metric::MISS_SHARE, missed as f64 / asked as f64);
    if restarts > 0 && missed > 0 {
        report.notes.push(format!("{variant}, {name}: draws came again {restarts} times, so misses are too few"));
    }
    Ok(())
}
