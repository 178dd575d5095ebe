//! What one lock around everything does to tables of one writer (Figure 3.2).

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench},
    contender::{Contender, Users, cxx},
    inserts::Filled,
    peers::{
        guira_map::GuiraMap,
        locked::MutexLocked,
        step_cuckoo::{CUCKOO, StepCuckoo},
    },
    subject::here,
};

pub(super) const NAME: &str = "global-lock";

pub(super) const CONTENDERS: [Contender; 6] = [
    Contender::own("guira", "CuckooMap, which has no such lock", here::<[u64; 1], GuiraMap<_>>),
    Contender::own(
        "cuckoo",
        "MemC3's inserts, a mutex around each, into the dissertation's table",
        here::<[u64; 1], StepCuckoo<CUCKOO>>,
    ),
    Contender::own(
        "mutex",
        "crate hashbrown 0.17, std's HashMap, behind std's Mutex",
        here::<[u64; 1], MutexLocked<_>>,
    ),
    cxx("unordered", "C++'s std::unordered_map behind std::mutex", Users::Many),
    cxx("hopscotch", "tsl::hopscotch_map behind std::shared_mutex", Users::Many),
    cxx("tbb", "oneTBB's concurrent_hash_map, which has no such lock", Users::Many),
];

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let room = bench.room / 4;
    let words = format!(
        "new 8 B keys with 8 B values into a map that was made with room for {}, until {FULL_PERCENT} % of that are in, one at a time; \
         the clock stops when the slowest thread is done",
        MapBench::in_words(room)
    );
    let title = "Inserts behind one lock, over threads (Figure 3.2)";
    let mut report = ExperimentReport::new(NAME, title, words).over("threads");
    bench.alternate_among(&CONTENDERS, bench.run.rounds, |contender| {
        for count in bench.thread_counts(contender) {
            let mut map = contender.open(bench, Some(room as usize), 8)?;
            Filled::of(&mut *map, room, bench.cores(count), false)?.record(&mut report, contender.name, "", count);
        }
        Ok(())
    })?;
    Ok(report)
}
