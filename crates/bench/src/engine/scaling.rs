//! How the engine's throughput grows with threads, beside the memory's: read-only, 95 % GET (and the same without
//! skew, which tells hot keys from shared structures), and everybody the same key,
//! where a GET that wrote to a shared cache line would stand still.

use guira_memc3::Eviction;

use super::{
    BenchError, ExperimentReport,
    contender::{BATCH, Contender, WRITE, ZIPF, draws},
    crew::{self, Rate},
    in_process::{Bench, threads},
    memory_speed::Lines,
    metric,
};

pub(super) const NAME: &str = "scaling";

/// Batches between two looks at the clock.
const TURN: usize = 10 * BATCH;

/// A mix: a name and its draws.
struct Mix {
    name: &'static str,
    draws: Vec<u32>,
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let keys: usize = bench.extent.scaled(1_000_000, 10_000);
    let count: usize = bench.extent.scaled(4_000_000, 20_000);
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {keys} keys, all stored; batches of {BATCH} keys; threads pinned to cores; \
         memory: random cache lines, each address from the line before, or {} asked for at a time, \
         and a line for each key, read and written as the mix says",
        Lines::AT_ONCE
    );
    let mut report = ExperimentReport::new(NAME, "Throughput over threads, in process", words).over("threads");
    let mixes = [
        Mix { name: "read-only", draws: draws(keys, count, ZIPF, 0.0, 1) },
        Mix { name: "95/5", draws: draws(keys, count, ZIPF, 0.05, 2) },
        Mix { name: "95/5 uniform", draws: draws(keys, count, 0.0, 0.05, 3) },
        Mix { name: "one key", draws: vec![7; TURN * 4] },
    ];
    let cache = Contender::memc3(keys * 160 + (8 << 20), Eviction::Clock)?;
    cache.fill(keys);
    cache.player()(&mixes[0].draws);
    let lines = Lines::new(bench)?;
    let counts = bench.thread_counts();
    for _ in 0..bench.rounds {
        for mix in &mixes {
            compare(&mut report, &counts, ("guira", mix.name), |count| engine(bench, &cache, mix, count))?;
        }
        for mix in mixes.iter().filter(|mix| mix.draws.iter().any(|draw| draw & WRITE != 0)) {
            let what = format!("{}, a line each", mix.name);
            compare(&mut report, &counts, ("memory", &what), |count| lines.shared(bench, count, &mix.draws, WRITE))?;
        }
        compare(&mut report, &counts, ("memory", "dependent reads"), |count| lines.dependent(bench, count))?;
        compare(&mut report, &counts, ("memory", "prefetched reads"), |count| lines.prefetched(bench, count))?;
    }
    Ok(report)
}

/// Measures every thread count and its ratio to the first one of this round, which is one thread.
fn compare(
    report: &mut ExperimentReport,
    counts: &[usize],
    (peer, what): (&str, &str),
    mut measure: impl FnMut(usize) -> Result<Rate, BenchError>,
) -> Result<(), BenchError> {
    let mut alone = None;
    for count in counts {
        let rate = measure(*count)?;
        let variant = format!("{what}, {}", threads(*count));
        report.record(&variant, peer, metric::OPERATIONS, rate.per_s);
        report.record(&variant, peer, metric::PER_CPU, rate.per_cpu_s);
        let alone = *alone.get_or_insert(rate);
        report.record(&variant, peer, metric::SPEEDUP, rate.per_s / alone.per_s);
        report.record(&variant, peer, metric::SPEEDUP_CPU, rate.per_cpu_s / alone.per_cpu_s);
    }
    Ok(())
}

fn engine(bench: &Bench, cache: &Contender, mix: &Mix, count: usize) -> Result<Rate, BenchError> {
    let turns = mix.draws.len() / TURN;
    let worker = |number: usize| {
        let mut player = cache.batch_player();
        let mut turn = number * turns / count;
        move || {
            turn = (turn + 1) % turns;
            player(&mix.draws[turn * TURN..(turn + 1) * TURN]);
            TURN as u64
        }
    };
    crew::run(&bench.cores, bench.measure, (0..count).map(worker).collect())
}
