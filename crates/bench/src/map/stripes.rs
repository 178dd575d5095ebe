//! How many stripes Guira's map should have: threads meet at one more rarely the more there are, and the more caches they
//! take (section 3.3.4 has 2,048, MemC3 8,192).

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::{Contender, ELIDED, GUIRA},
    metric,
    peers::guira_map::{Elided, GuiraElided, GuiraOfStripes, HugePages, STRIPES, Setting},
    phase::{Phase, Work},
    subject::here,
};
use crate::crew::Rate;
use crate::in_process::threads;

pub(super) const NAME: &str = "stripes";

/// From few to the most that a map can have, and of few and of the default also with elided locks, which few stripes gain by.
const SHAPES: [(usize, &str); 7] =
    [(16, GUIRA), (16, ELIDED), (256, GUIRA), (1024, GUIRA), (STRIPES, GUIRA), (STRIPES, ELIDED), (4096, GUIRA)];

/// The maps of these shapes, in their order.
pub(super) const CONTENDERS: [Contender; 7] = [
    striped::<HugePages, { SHAPES[0].0 }>("stripes-16"),
    striped::<Elided, { SHAPES[1].0 }>("stripes-16-elided"),
    striped::<HugePages, { SHAPES[2].0 }>("stripes-256"),
    striped::<HugePages, { SHAPES[3].0 }>("stripes-1024"),
    striped::<HugePages, { SHAPES[4].0 }>("stripes-2048"),
    striped::<Elided, { SHAPES[5].0 }>("stripes-2048-elided"),
    striped::<HugePages, { SHAPES[6].0 }>("stripes-4096"),
];

const fn striped<S: Setting, const COUNT: usize>(name: &'static str) -> Contender {
    Contender::own(name, "CuckooMap with so many stripes (locks)", here::<[u64; 1], GuiraOfStripes<[u64; 1], S, COUNT>>)
}

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let room = bench.room / 2;
    let words = format!(
        "8 B keys and values, a map made with room for {}, filled to {FULL_PERCENT} % with a lookup for each insert, then updates of random \
         keys with a lookup for each; all keys are there, one operation at a time; over default: over {STRIPES} stripes, in \
         the same round",
        MapBench::in_words(room)
    );
    let mut report = ExperimentReport::new(NAME, "Throughput over the number of stripes", words).over("stripes");
    for _ in 0..bench.run.rounds {
        for count in bench.one_and_all() {
            let mut rates = Vec::new();
            bench.alternate_among(&CONTENDERS, 1, |contender| {
                let shapes = CONTENDERS.iter().zip(SHAPES);
                let shape = shapes.filter(|(one, _)| one.name == contender.name).map(|(_, shape)| shape);
                for (stripes, map) in shape.filter(|(_, map)| *map != ELIDED || GuiraElided::is_there()) {
                    rates.push((stripes, map, measure(bench, contender, room, count)?));
                }
                Ok(())
            })?;
            record_all(&mut report, count, &rates);
        }
    }
    report
        .notes
        .push("4,096 stripes are the most: as many as a segment has buckets, each of which belongs to one".into());
    Ok(report)
}

/// The mixes, in the order in which [`measure`] returns their speeds.
const MIXES: [&str; 2] = ["50 % inserts", "50 % updates"];

fn measure(bench: &MapBench, contender: &Contender, room: u64, count: usize) -> Result<[Rate; 2], BenchError> {
    let mut map = contender.open(bench, Some(room as usize), 8)?;
    let numbers = 0..room * FULL_PERCENT / 100;
    let inserts = Phase::new(Work::Fill, numbers.clone(), bench.cores(count)).with_lookups(1);
    let updates = Phase::new(Work::Update, numbers, bench.cores(count)).with_lookups(1).lasting(bench.run.measure);
    Ok([map.rate(&inserts)?, map.rate(&updates)?])
}

fn record_all(report: &mut ExperimentReport, count: usize, rates: &[(usize, &str, [Rate; 2])]) {
    let by_default = rates.iter().find(|(stripes, map, _)| (*stripes, *map) == (STRIPES, GUIRA));
    for (stripes, map, rates) in rates {
        for (at, mix) in MIXES.into_iter().enumerate() {
            let variant = format!("{mix} by {}, {stripes} stripes", threads(count));
            record(report, &variant, map, rates[at]);
            if let Some((_, _, by_default)) = by_default {
                report.record(&variant, map, metric::OVER_DEFAULT, rates[at].per_s / by_default[at].per_s);
            }
        }
    }
}
