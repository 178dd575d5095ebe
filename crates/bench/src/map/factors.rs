//! What each step from MemC3's cuckoo table to the dissertation's, and to Guira's, does for inserts (Figure 3.6).

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench},
    contender::Contender,
    inserts::Filled,
    metric,
    peers::{
        guira_map::GuiraMap,
        step_cuckoo::{BREADTH_FIRST, CUCKOO, LOCK_LATER, PREFETCH, STRIPED, StepCuckoo},
    },
    phase::{Phase, Work},
    subject::here,
};
use crate::in_process::threads;

pub(super) const NAME: &str = "factors";

/// The steps, each with those before it.
pub(super) const CONTENDERS: [Contender; 6] = [
    Contender::own(
        "cuckoo",
        "the dissertation's table with MemC3's inserts: eight slots a bucket, keys in one cache line and values in the next, \
         no tags; a mutex around each insert, two random walks to a free slot",
        here::<[u64; 1], StepCuckoo<CUCKOO>>,
    ),
    Contender::own(
        "+lock-later",
        "the same, walking before the mutex is taken; each move looks again whether it may",
        here::<[u64; 1], StepCuckoo<LOCK_LATER>>,
    ),
    Contender::own("+BFS", "the same, searching breadth first", here::<[u64; 1], StepCuckoo<BREADTH_FIRST>>),
    Contender::own(
        "+prefetch",
        "the same, the search asking for the next bucket's keys ahead",
        here::<[u64; 1], StepCuckoo<PREFETCH>>,
    ),
    Contender::own(
        "+stripes",
        "the same without the mutex: spinlocks in 2,048 stripes, two at a time",
        here::<[u64; 1], StepCuckoo<STRIPED>>,
    ),
    Contender::own("guira", "CuckooMap: tags, too, and keys beside their values", here::<[u64; 1], GuiraMap<_>>),
];

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let room = bench.room / 4;
    let words = format!(
        "8 B keys and values into a table with room for {}, until {FULL_PERCENT} % of that are in, one at a time; each row adds to \
         the one before; then lookups of random keys, all there",
        MapBench::in_words(room)
    );
    let mut report = ExperimentReport::new(NAME, "Inserts, factor by factor (Figure 3.6)", words);
    bench.alternate_among(&CONTENDERS, bench.run.rounds, |contender| {
        for count in bench.one_and_all() {
            let mut map = contender.open(bench, Some(room as usize), 8)?;
            Filled::of(&mut *map, room, bench.cores(count), false)?.record(&mut report, contender.name, "", count);
            let keys = 0..room * FULL_PERCENT / 100;
            let hits = Phase::new(Work::Hits, keys, bench.cores(count)).lasting(bench.run.measure);
            // A metric of its own, so that inserts are not drawn on the scale of lookups.
            report.record(
                &format!("hits, {}", threads(count)),
                contender.name,
                metric::LOOKUPS,
                map.rate(&hits)?.per_s,
            );
        }
        Ok(())
    })?;
    report.notes.push("all are on huge pages, and count versions in 2,048 stripes, which readers look at".into());
    report.notes.push(
        "with one thread the locks are taken all the same; the dissertation's Figure 3.6a is without them".into(),
    );
    report.notes.push(
        "under the mutex a writer takes the stripes too, which costs it an exchange each that nobody contends".into(),
    );
    report.notes.push("the lookups of all steps are the same code; Guira's are its own".into());
    Ok(report)
}
