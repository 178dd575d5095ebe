//! Cuckoo beside hopscotch hashing, from half full to nearly full: lookups, and what the inserts just before cost. For maps
//! that say how many slots they have.

use super::{
    BenchError, ExperimentReport,
    bench::MapBench,
    contender::Contender,
    metric,
    phase::{ABSENT, Outcome, Phase, Work},
    subject::unexpected,
};

pub(super) const NAME: &str = "occupancy";

/// Occupancies, percent of the slots. An insert's cost is that of the last percent before.
const PERCENTS: [u64; 10] = [50, 55, 60, 65, 70, 75, 80, 85, 90, 95];

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "8 B keys and values, one thread, one operation at a time, a table of some {} slots that does not grow; lookups of \
         random keys, all there (hits) or none (misses); inserts: the last percent before an occupancy",
        bench.room
    );
    let mut report =
        ExperimentReport::new(NAME, "Lookups and inserts over occupancy", words).over("occupancy (% of slots)");
    bench.alternate(bench.run.rounds, |contender| measure(bench, &mut report, contender))?;
    Ok(report)
}

fn measure(bench: &MapBench, report: &mut ExperimentReport, contender: &Contender) -> Result<(), BenchError> {
    let mut map = contender.open(bench, Some(bench.room as usize), 8)?;
    let core = bench.cores(1);
    let ask = Phase::new(Work::Slots, 0..0, core);
    let slots = match map.play(&ask)? {
        Outcome::Slots(0) => return Ok(()),
        Outcome::Slots(slots) => slots,
        other => return Err(unexpected(&ask, &other)),
    };
    let mut filled = 0;
    for percent in PERCENTS {
        for to in [slots * (percent - 1) / 100, slots * percent / 100] {
            let rate = map.rate(&Phase::new(Work::Fill, filled..to, core))?;
            filled = to;
            if to == slots * percent / 100 {
                report.record(&format!("inserts, {percent} %"), contender.name, metric::OPERATIONS, rate.per_cpu_s);
            }
        }
        for (what, work, first) in [("hits", Work::Hits, 0), ("misses", Work::Misses, ABSENT)] {
            let phase = Phase::new(work, first..first + filled, core).lasting(bench.run.measure);
            let rate = map.rate(&phase)?;
            report.record(&format!("{what}, {percent} %"), contender.name, metric::OPERATIONS, rate.per_s);
        }
    }
    match map.play(&ask)? {
        Outcome::Slots(now) if now == slots => Ok(()),
        other => Err(BenchError::Invalid(format!("it grew while it was filled, from {slots} slots to '{other}'"))),
    }
}
