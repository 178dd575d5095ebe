//! Throughput over threads of inserts mixed with lookups while a map fills (Figures 3.1, 3.7 and 3.8), of lookups alone, and
//! of a full map whose keys are updated or come and go, at first and after all of them have.
//!
//! ```text
//! 0 %                                               90 %      95 %
//! |a|bb|cccccccc|a|bb|cccccccc|  ...   |a|bb|cccccccc|         each stretch of 5 %: some inserts with nine lookups each (a),
//!                                                              some with one (b), the others alone (c)
//! ```
//! So one filling measures each mix at every occupancy, in a fraction of the lookups that a filling a mix would take.

use std::collections::HashMap;

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::Contender,
    metric,
    phase::{ABSENT, Phase, Work},
    subject::Subject,
};
use crate::crew::Rate;
use crate::in_process::threads;

pub(super) const NAME: &str = "mixes";

/// Percent of the room that is filled between two changes of the mix.
const STRETCH_PERCENT: u64 = 5;

/// A mix: lookups for each write, its name for inserts, and its share of a stretch's inserts in percent; the
/// last takes what is left.
const MIXES: [(u64, &str, u64); 3] = [(9, "10 % inserts", 8), (1, "50 % inserts", 22), (0, "100 % inserts", 70)];

/// Writes on a full map beside lookups: lookups for each write, and the mix' name.
const STEADY: [(u64, &str); 2] = [(1, "50 %"), (9, "10 %")];

/// Keys replaced on a full map, percent of its room; the map is full again after each.
const REPLACED_PERCENT: u64 = 3;

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "8 B keys and values, a map made with room for {}, filled to {FULL_PERCENT} % with each mix of inserts and lookups in \
         every {STRETCH_PERCENT} %; then, full: lookups alone; updates of random keys; removals of the oldest keys and inserts of \
         new ones, in turn, each counted; lookups are of random keys that are there; aged: every key has \
         been replaced once, then half of these, and lookups of keys that are there or not; one operation at a time; threads pinned to cores",
        bench.room
    );
    let mut report =
        ExperimentReport::new(NAME, "Mixes of reads and writes over threads (Figures 3.1, 3.7, 3.8)", words)
            .over("threads");
    bench.alternate(bench.run.rounds, |contender| {
        for count in bench.thread_counts(contender) {
            let mut map = contender.open(bench, Some(bench.room as usize), 8)?;
            fill(bench, &mut report, contender, &mut *map, count)?;
            keep_full(bench, &mut report, contender, &mut *map, count)?;
        }
        Ok(())
    })?;
    record_highest(&mut report);
    Ok(report)
}

/// Adds the best that each map did in a whole filling with any number of threads (Figure 3.1). Their names have no number in
/// them, which would be taken for a quantity that they run over.
fn record_highest(report: &mut ExperimentReport) {
    for (mix, in_words) in [("10 %", "a tenth inserts"), ("50 %", "half inserts"), ("100 %", "inserts alone")] {
        let filling = format!("{mix} inserts from 0 to {FULL_PERCENT} %, ");
        let mut highest: Vec<(String, Vec<f64>)> = Vec::new();
        for row in report.rows.iter().filter(|row| row.variant.starts_with(&filling)) {
            let measured = row.measurements.iter().filter(|known| known.metric == metric::OPERATIONS.name);
            for rounds in measured.map(|known| &known.rounds) {
                match highest.iter_mut().find(|(peer, _)| *peer == row.peer) {
                    Some((_, best)) => best.iter_mut().zip(rounds).for_each(|(best, rate)| *best = best.max(*rate)),
                    None => highest.push((row.peer.clone(), rounds.clone())),
                }
            }
        }
        for (peer, rounds) in highest {
            rounds.into_iter().for_each(|rate| report.record(in_words, &peer, metric::HIGHEST, rate));
        }
    }
}

/// Operations and the time they took.
#[derive(Clone, Copy, Default)]
struct Sum {
    operations: f64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Sum {
    fn add(&mut self, operations: u64, rate: Rate) {
        let operations = operations as f64;
        self.operations += operations;
        self.seconds += operations / rate.per_s;
        self.cpu_seconds += operations / rate.per_cpu_s;
    }

    fn rate(self) -> Rate {
        Rate { per_s: self.operations / self.seconds, per_cpu_s: self.operations / self.cpu_seconds }
    }
}

fn fill(
    bench: &MapBench,
    report: &mut ExperimentReport,
    contender: &Contender,
    map: &mut dyn Subject,
    count: usize,
) -> Result<(), BenchError> {
    let mut sums: HashMap<u64, Sum> = HashMap::new();
    for begin in (0..FULL_PERCENT).step_by(STRETCH_PERCENT as usize) {
        let (mut from, end) = (bench.keys_at(begin), bench.keys_at(begin + STRETCH_PERCENT));
        let stretch = end - from;
        for (lookups, name, share) in MIXES {
            let to = if lookups == 0 { end } else { from + stretch * share / 100 };
            let rate = map.rate(&Phase::new(Work::Fill, from..to, bench.cores(count)).with_lookups(lookups))?;
            sums.entry(lookups).or_default().add((to - from) * (1 + lookups), rate);
            from = to;
            if begin + STRETCH_PERCENT == FULL_PERCENT {
                let variant = format!("{name} from {begin} to {FULL_PERCENT} %, {}", threads(count));
                record(report, &variant, contender.name, rate);
            }
        }
    }
    for (lookups, name, _) in MIXES {
        let variant = format!("{name} from 0 to {FULL_PERCENT} %, {}", threads(count));
        record(report, &variant, contender.name, sums[&lookups].rate());
    }
    Ok(())
}

fn keep_full(
    bench: &MapBench,
    report: &mut ExperimentReport,
    contender: &Contender,
    map: &mut dyn Subject,
    count: usize,
) -> Result<(), BenchError> {
    let (keys, replaced) = (bench.keys_at(FULL_PERCENT), bench.keys_at(REPLACED_PERCENT));
    let (cores, threads) = (bench.cores(count), threads(count));
    let mut first = 0;
    let hits = Phase::new(Work::Hits, 0..keys, cores).lasting(bench.run.measure);
    record(report, &format!("lookups, {threads}"), contender.name, map.rate(&hits)?);
    for (lookups, name) in STEADY {
        let updates = Phase::new(Work::Update, first..first + keys, cores).lasting(bench.run.measure);
        record(
            report,
            &format!("{name} updates, {threads}"),
            contender.name,
            map.rate(&updates.with_lookups(lookups))?,
        );
        let replace = Phase::new(Work::Replace, first..first + keys, cores).replacing(replaced);
        let rate = map.rate(&replace.with_lookups(lookups))?;
        record(report, &format!("{name} removals and inserts, {threads}"), contender.name, rate);
        first += replaced;
    }
    let _rate = map.rate(&Phase::new(Work::Replace, first..first + keys, cores).replacing(keys))?;
    first += keys;
    let replace = Phase::new(Work::Replace, first..first + keys, cores).replacing(replaced).with_lookups(1);
    let rate = map.rate(&replace)?;
    record(report, &format!("50 % removals and inserts, aged, {threads}"), contender.name, rate);
    first += replaced;
    for (what, work, first) in [("lookups", Work::Hits, first), ("misses", Work::Misses, ABSENT)] {
        let looks = Phase::new(work, first..first + keys, cores).lasting(bench.run.measure);
        record(report, &format!("{what}, aged, {threads}"), contender.name, map.rate(&looks)?);
    }
    Ok(())
}
