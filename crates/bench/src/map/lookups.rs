//! Lookups in a full map: keys that are there and keys that are not, one at a time and in batches, beside how fast the
//! machine reads random cache lines.

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::{Contender, NO_MAP},
    metric,
    phase::{ABSENT, Phase, Work},
    play::BATCH,
};
use crate::in_process::threads;
use crate::memory_speed::Lines;

pub(super) const NAME: &str = "lookups";

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let keys = bench.keys_at(FULL_PERCENT);
    let words = format!(
        "8 B keys and values; {keys} keys in a map that was made with room for {}; random keys, all there or none; one at a \
         time, or {BATCH} a call where a map takes several (batched); threads pinned to cores; no-map: the same loop without a \
         map; memory: random cache lines, {BATCH} asked for at a time, or each address from the line before",
        bench.room
    );
    let mut report = ExperimentReport::new(NAME, "Lookups in a full map", words).over("threads");
    let no_map = Contender::called(NO_MAP);
    for _ in 0..bench.run.rounds {
        bench.alternate(1, |contender| measure(bench, &mut report, contender, keys))?;
        no_map.iter().try_for_each(|no_map| measure(bench, &mut report, no_map, keys))?;
        let lines = Lines::new(&bench.run)?;
        for count in bench.run.thread_counts() {
            for (what, rate) in [
                ("dependent reads", lines.dependent(&bench.run, count)?),
                ("prefetched reads", lines.prefetched(&bench.run, count)?),
            ] {
                let variant = format!("{what}, {}", threads(count));
                report.record(&variant, "memory", metric::OPERATIONS, rate.per_s);
                report.record(&variant, "memory", metric::PER_CPU, rate.per_cpu_s);
            }
        }
    }
    Ok(report)
}

fn measure(
    bench: &MapBench,
    report: &mut ExperimentReport,
    contender: &Contender,
    keys: u64,
) -> Result<(), BenchError> {
    let mut map = contender.open(bench, Some(bench.room as usize), 8)?;
    map.rate(&Phase::new(Work::Fill, 0..keys, bench.cores(bench.threads_max(contender))))?;
    for count in bench.thread_counts(contender) {
        for (what, work, first) in [("hits", Work::Hits, 0), ("misses", Work::Misses, ABSENT)] {
            let phase = Phase::new(work, first..first + keys, bench.cores(count)).lasting(bench.run.measure);
            if contender.name == NO_MAP && work == Work::Misses {
                continue;
            }
            record(report, &format!("{what}, {}", threads(count)), contender, map.rate(&phase)?);
            if contender.has_batches {
                record(
                    report,
                    &format!("{what} batched, {}", threads(count)),
                    contender,
                    map.rate(&phase.in_batches())?,
                );
            }
        }
    }
    Ok(())
}
