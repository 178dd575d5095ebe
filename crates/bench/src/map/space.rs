//! Memory for each key: of a map that was made with room, filled; and of one that grows, over one doubling of its keys.
//!
//! What counts is the resident memory of a process that holds nothing else, less what the same process has when its map is
//! empty: the only measure that an allocator, a table half as large as the machine and a map in another language share.

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench},
    contender::Contender,
    metric,
    phase::{Phase, Work},
    subject::Subject,
};

pub(super) const NAME: &str = "space";

/// Sizes looked at over a doubling.
const SAMPLES: u64 = 32;

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "8 B keys and values; resident memory of the map's process, less that of the same with an empty map; with room: made \
         for {room} keys, {FULL_PERCENT} % of them in; growing: made without room, the mean over {SAMPLES} sizes from {half} keys to \
         {room}; one filling (it is nearly deterministic)",
        room = bench.room,
        half = bench.room / 2
    );
    let mut report = ExperimentReport::new(NAME, "Memory for each key", words);
    bench.alternate(1, |contender| {
        let mut map = contender.open(bench, None, 8)?;
        let empty = map.resident_bytes()?;
        let bytes_per_key = |map: &mut dyn Subject, from: u64, to: u64| -> Result<f64, BenchError> {
            map.rate(&Phase::new(Work::Fill, from..to, bench.cores(1)))?;
            Ok(map.resident_bytes()?.saturating_sub(empty) as f64 / to as f64)
        };
        let (mut filled, mut sizes) = (0, Vec::new());
        for sample in 0..SAMPLES {
            let to = bench.room / 2 + bench.room * (sample + 1) / (2 * SAMPLES);
            sizes.push(bytes_per_key(&mut *map, filled, to)?);
            filled = to;
        }
        drop(map);
        let mut with_room = contender.open(bench, Some(bench.room as usize), 8)?;
        let full = bytes_per_key(&mut *with_room, 0, bench.keys_at(FULL_PERCENT))?;
        report.record("with room", contender.name, metric::BYTES_PER_KEY, full);
        record_sizes(&mut report, contender, &sizes);
        Ok(())
    })?;
    if bench.program.is_none() {
        report.notes.push("in one process for all of Rust's maps: these numbers mean nothing".into());
    }
    Ok(report)
}

fn record_sizes(report: &mut ExperimentReport, contender: &Contender, sizes: &[f64]) {
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let fold = |pick: fn(f64, f64) -> f64| sizes.iter().copied().fold(mean, pick);
    report.record("growing", contender.name, metric::BYTES_PER_KEY, mean);
    report.record("growing", contender.name, metric::LEAST_BYTES_PER_KEY, fold(f64::min));
    report.record("growing", contender.name, metric::MOST_BYTES_PER_KEY, fold(f64::max));
}
