//! Lookups in a full map: keys that are there and keys that are not, one at a time and in batches, beside how fast the
//! machine reads random cache lines.

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::{Contender, NO_MAP},
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
         time; batched: {BATCH} a call where a map takes several, one at a time where it does not; threads pinned to cores; no-map: \
         the same loop without a map; reads: random cache lines of the memory, {BATCH} asked for at a time (prefetched), or each \
         address from the line before (dependent)",
        bench.room
    );
    let mut report = ExperimentReport::new(NAME, "Lookups in a full map", words).over("threads");
    let no_map = Contender::called(NO_MAP);
    for _ in 0..bench.run.rounds {
        bench.alternate(1, |contender| measure(bench, &mut report, contender, keys))?;
        no_map.iter().try_for_each(|no_map| measure(bench, &mut report, no_map, keys))?;
        let lines = Lines::new(&bench.run)?;
        for count in bench.run.thread_counts() {
            for (name, rate) in [
                ("reads-dependent", lines.dependent(&bench.run, count)?),
                ("reads-prefetched", lines.prefetched(&bench.run, count)?),
            ] {
                for what in if bench.any_has_batches() { &["hits", "hits batched"][..] } else { &["hits"] } {
                    record(&mut report, &format!("{what}, {}", threads(count)), name, rate);
                }
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
            let one_by_one = map.rate(&phase)?;
            record(report, &format!("{what}, {}", threads(count)), contender.name, one_by_one);
            if bench.any_has_batches() {
                let batched = if contender.has_batches { map.rate(&phase.in_batches())? } else { one_by_one };
                record(report, &format!("{what} batched, {}", threads(count)), contender.name, batched);
            }
        }
    }
    Ok(())
}
