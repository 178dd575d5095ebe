//! Maps with the hashers that they come with, as most of their users have them: elsewhere all hash alike, so that the tables are
//! compared and not the hashes.

use super::{
    BenchError, ExperimentReport,
    bench::{FULL_PERCENT, MapBench, record},
    contender::Contender,
    peers::{SipHash, dashmap::DashMap, guira_map::GuiraMap, papaya::PapayaMap, scc::SccMap},
    phase::{ABSENT, Phase, Work},
    play::BATCH,
    subject::here,
};
use crate::in_process::threads;

pub(super) const NAME: &str = "hashers";

pub(super) const CONTENDERS: [Contender; 4] = [
    Contender::own("guira", "CuckooMap, which comes with rapidhash", here::<[u64; 1], GuiraMap<_>>).with_batches(),
    Contender::own(
        "dashmap-siphash",
        "crate dashmap 6.2, which comes with SipHash",
        here::<[u64; 1], DashMap<_, SipHash>>,
    ),
    Contender::own("scc-siphash", "crate scc 3.8, which comes with SipHash", here::<[u64; 1], SccMap<_, SipHash>>),
    Contender::own(
        "papaya-siphash",
        "crate papaya 0.2, which comes with SipHash",
        here::<[u64; 1], PapayaMap<_, SipHash>>,
    ),
];

pub(super) fn run(bench: &MapBench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "8 B keys and values; inserts into a map that was made with room for {}, until {FULL_PERCENT} % of that are in; then random \
         keys: lookups of such as are there (hits) or not (misses), one lookup for each update, or for each removal or insert of \
         a tenth of the keys; batched: {BATCH} a call where a map takes several, one at a time where it does not; SipHash is slower because it keeps those who choose keys from \
         making many of one hash, which rapidhash with its random seed makes hard but does not promise to keep them from",
        bench.room
    );
    let mut report = ExperimentReport::new(NAME, "Maps with the hashers that they come with", words).over("threads");
    bench.alternate_among(&CONTENDERS, bench.run.rounds, |contender| {
        bench.thread_counts(contender).into_iter().try_for_each(|count| measure(bench, &mut report, contender, count))
    })?;
    Ok(report)
}

fn measure(
    bench: &MapBench,
    report: &mut ExperimentReport,
    contender: &Contender,
    count: usize,
) -> Result<(), BenchError> {
    let open = || contender.open(bench, Some(bench.room as usize), 8);
    let (keys, cores) = (bench.keys_at(FULL_PERCENT), bench.cores(count));
    let lasting = |work, first| Phase::new(work, first..first + keys, cores).lasting(bench.run.measure);
    let fill = Phase::new(Work::Fill, 0..keys, cores);
    let batched_fill = match contender.has_batches {
        true => Some(open()?.rate(&fill.clone().in_batches())?),
        false => None,
    };
    let mut map = open()?;
    let phases = [
        ("inserts", fill),
        ("hits", lasting(Work::Hits, 0)),
        ("misses", lasting(Work::Misses, ABSENT)),
        ("50 % updates", lasting(Work::Update, 0).with_lookups(1)),
        ("50 % removals and inserts", Phase::new(Work::Replace, 0..keys, cores).replacing(keys / 10).with_lookups(1)),
    ];
    for (what, phase) in phases {
        let one_by_one = map.rate(&phase)?;
        record(report, &format!("{what}, {}", threads(count)), contender.name, one_by_one);
        let batched = match phase.work {
            Work::Fill => batched_fill.unwrap_or(one_by_one),
            Work::Hits | Work::Misses if contender.has_batches => map.rate(&phase.in_batches())?,
            Work::Hits | Work::Misses => one_by_one,
            _ => continue,
        };
        record(report, &format!("{what} batched, {}", threads(count)), contender.name, batched);
    }
    Ok(())
}
