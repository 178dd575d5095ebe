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

/// Draws between two looks at the clock.
const TURN: usize = 500;
/// Bytes of key and value.
const ENTRY_BYTES: usize = 48;
/// Places in the draws at which an interval may begin, a prime.
const STARTS: usize = 17;
/// Working set over memory in the small cache.
const TIMES: usize = 10;

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let big_keys: usize = bench.extent.scaled(2_000_000, 10_000);
    let small_bytes: usize = bench.extent.scaled(48 << 20, 2 << 20);
    let small_keys = small_bytes * TIMES / ENTRY_BYTES;
    let draws: usize = bench.extent.scaled(8_000_000, 150_000);
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99, GET, a miss followed by a SET; big: {big_keys} keys, all stored; small: {} MB \
         for {small_keys} keys, {TIMES} times as much; one request at a time, but for guira batched (100)",
        small_bytes >> 20
    );
    let mut report =
        ExperimentReport::new(NAME, "Cache throughput over threads (MemC3's Figure 8)", words).over("threads");
    // Room for every contender to hold all keys: the roomiest item is memcached's, of 128 bytes.
    measure(bench, &mut report, "big", big_keys * 160, big_keys, draws)?;
    measure(bench, &mut report, "small", small_bytes, small_keys, draws)?;
    report.notes.push("guira is cuckoo+CLOCK; per CPU second shows what a shared machine took away".into());
    Ok(report)
}

fn measure(
    bench: &Bench,
    report: &mut ExperimentReport,
    setting: &str,
    bytes: usize,
    keys: usize,
    draws: usize,
) -> Result<(), BenchError> {
    let is_small = setting == "small";
    let contenders = [
        ("guira", Contender::memc3(bytes, Eviction::Clock)?),
        ("cuckoo+LRU", Contender::memc3(bytes, Eviction::Lru)?),
        ("chaining+CLOCK", Contender::chained_clock(bytes)?),
        ("chaining+LRU", Contender::chained_lru(bytes)),
    ];
    let draws = contender::draws(keys, draws, ZIPF, 0.0, 1);
    for (_, cache) in &contenders {
        if is_small {
            cache.play_with_janitor(draws.iter().copied());
        } else {
            cache.fill(keys);
        }
    }
    // Each interval begins elsewhere in the draws, so that what it asks for is not what the last one has just stored.
    let mut steps = 0..;
    let mut next_start = || steps.next().map_or(0, |step: usize| step * 5 % STARTS);
    for _ in 0..bench.rounds {
        for count in bench.thread_counts() {
            let starts = [next_start(), next_start()];
            let variant = format!("{setting}, {}", threads(count));
            for (name, cache) in &contenders {
                play(bench, report, (&variant, name), &draws, starts[0], (0..count).map(|_| cache.player()).collect())?;
            }
            let players = (0..count).map(|_| contenders[0].1.batch_player()).collect();
            play(bench, report, (&variant, "guira batched"), &draws, starts[1], players)?;
        }
    }
    Ok(())
}

/// One timed interval; each player begins elsewhere in the draws, the first one at the `start`th of [`STARTS`] places.
fn play(
    bench: &Bench,
    report: &mut ExperimentReport,
    (variant, name): (&str, &str),
    draws: &[u32],
    start: usize,
    players: Vec<Player<'_>>,
) -> Result<(), BenchError> {
    let asked = AtomicU64::new(0);
    let missed = AtomicU64::new(0);
    let (asked, missed) = (&asked, &missed);
    let (count, turns) = (players.len(), draws.len() / TURN);
    let workers = players.into_iter().enumerate().map(|(number, mut player)| {
        let mut turn = (number * turns / count + start * turns / STARTS) % turns;
        move || {
            turn = (turn + 1) % turns;
            let misses = player(&draws[turn * TURN..(turn + 1) * TURN]);
            if misses > 0 {
                missed.fetch_add(misses, Relaxed);
            }
            asked.fetch_add(TURN as u64, Relaxed);
            TURN as u64
        }
    });
    let rate = crew::run(&bench.cores, bench.measure, workers.collect())?;
    report.record(variant, name, metric::OPERATIONS, rate.per_s);
    report.record(variant, name, metric::PER_CPU, rate.per_cpu_s);
    let [asked, missed] = [asked, missed].map(|count| count.load(Relaxed) as f64);
    report.record(variant, name, metric::MISS_SHARE, missed / asked);
    Ok(())
}
