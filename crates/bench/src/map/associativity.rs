//! Guira's map with buckets of 4, 8 and 16 slots, from half full to nearly full: lookups (Figure 3.9), and inserts alone and
//! mixed with lookups (Figure 3.10).

use super::{
    BenchError, ExperimentReport,
    bench::{MapBench, record},
    contender::Contender,
    peers::guira_map::{GuiraMap, GuiraOfWays},
    phase::{ABSENT, Outcome, Phase, Work},
    subject::{here, unexpected},
};
use crate::in_process::threads;

pub(super) const NAME: &str = "associativity";

/// The three widths; Guira's own is the peer of that name.
pub(super) const CONTENDERS: [Contender; 3] = [
    Contender::own("guira", "CuckooMap as it is, with buckets of eight slots", here::<[u64; 1], GuiraMap<_>>),
    Contender::own("4-way", "the same with buckets of four slots", here::<[u64; 1], GuiraOfWays<_, 4>>),
    Contender::own("16-way", "the same with buckets of sixteen slots", here::<[u64; 1], GuiraOfWays<_, 16>>),
];

/// Occupancies, percent of the slots.
const PERCENTS: [u64; 8] = [50, 60, 70, 75, 80, 85, 90, 95];

/// The last of them with four slots a bucket: beyond 92 % a segment of such a map may be full.
const FOUR_WAYS_PERCENT_MAX: u64 = 90;

/// Before an occupancy, thousandths of the slots: until when a mix of inserts and lookups lasts, its name, and its lookups for
/// each insert. What comes before has no name, and is not recorded.
const MIXES: [(u64, Option<&str>, u64); 4] =
    [(20, None, 0), (10, Some("100 % inserts"), 0), (3, Some("50 % inserts"), 1), (0, Some("10 % inserts"), 9)];

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "8 B keys and values, one operation at a time, {}, a table with room for some {}, which does not grow; lookups of random keys, all there (hits) or none (misses); inserts: the last two percent before an occupancy, without lookups \
         and with some; four slots a bucket up to {FOUR_WAYS_PERCENT_MAX} %",
        threads(bench.run.cores.len()),
        MapBench::in_words(bench.room)
    );
    let title = "Slots of a bucket (guira: 8), over occupancy (Figures 3.9, 3.10)";
    let mut report = ExperimentReport::new(NAME, title, words).over("occupancy (% of slots)");
    bench.alternate_among(&CONTENDERS, bench.run.rounds, |contender| measure(bench, &mut report, contender))?;
    Ok(report)
}

fn measure(bench: &MapBench, report: &mut ExperimentReport, contender: &Contender) -> Result<(), BenchError> {
    let mut map = contender.open(bench, Some(bench.room as usize), 8)?;
    let cores = bench.cores(bench.threads_max(contender));
    let ask = Phase::new(Work::Slots, 0..0, cores);
    let slots = match map.play(&ask)? {
        Outcome::Slots(slots) => slots,
        other => return Err(unexpected(&ask, &other)),
    };
    let percent_max = if contender.name == "4-way" { FOUR_WAYS_PERCENT_MAX } else { 100 };
    let mut filled = 0;
    for percent in PERCENTS.into_iter().filter(|percent| *percent <= percent_max) {
        for (before, mix, lookups) in MIXES {
            let to = slots * (percent * 10 - before) / 1_000;
            let rate = map.rate(&Phase::new(Work::Fill, filled..to, cores).with_lookups(lookups))?;
            mix.into_iter().for_each(|mix| record(report, &format!("{mix}, {percent} %"), contender.name, rate));
            filled = to;
        }
        for (what, work, first) in [("hits", Work::Hits, 0), ("misses", Work::Misses, ABSENT)] {
            let phase = Phase::new(work, first..first + filled, cores).lasting(bench.run.measure);
            record(report, &format!("{what}, {percent} %"), contender.name, map.rate(&phase)?);
        }
    }
    Ok(())
}
