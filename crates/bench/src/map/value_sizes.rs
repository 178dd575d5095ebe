//! Throughput over the size of values (Figure 3.11).

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::Contender,
    phase::{Phase, Work},
};

pub(super) const NAME: &str = "value-sizes";

/// Most bytes of keys and values at a time: far more than the caches, and twice that still fits into a small machine.
const BYTES_MAX: u64 = 1 << 30;

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "8 B keys; a map with room for {}, or as many as make {} MiB with their values; inserts until it is {FULL_PERCENT} % full, \
         one insert in ten operations over the last 5 %, then lookups; all threads; every byte of a value is read",
        bench.room,
        BYTES_MAX >> 20
    );
    let mut report =
        ExperimentReport::new(NAME, "Throughput over the size of values (Figure 3.11)", words).over("value (B)");
    bench.alternate(bench.run.rounds, |contender| {
        contender.value_bytes.iter().try_for_each(|bytes| measure(bench, &mut report, contender, *bytes))
    })?;
    Ok(report)
}

fn measure(
    bench: &MapBench,
    report: &mut ExperimentReport,
    contender: &Contender,
    value_bytes: usize,
) -> Result<(), BenchError> {
    let room = bench.room.min(BYTES_MAX / (8 + value_bytes as u64));
    let mut map = contender.open(bench, Some(room as usize), value_bytes)?;
    let cores = bench.cores(bench.threads_max(contender));
    let (nearly, full) = (room * (FULL_PERCENT - 5) / 100, room * FULL_PERCENT / 100);
    let phases = [
        ("100 % inserts", Phase::new(Work::Fill, 0..nearly, cores)),
        ("10 % inserts", Phase::new(Work::Fill, nearly..full, cores).with_lookups(9)),
        ("lookups", Phase::new(Work::Hits, 0..full, cores).lasting(bench.run.measure)),
    ];
    for (what, phase) in phases {
        record(report, &format!("{what}, {value_bytes} B"), contender.name, map.rate(&phase)?);
    }
    Ok(())
}
