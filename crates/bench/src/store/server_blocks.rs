//! Reads that the engine has no room for and the block cache has.

use super::bench::Bench;
use super::items::VALUE_LEN;
use super::served::{self, ASKED, IN_MEMORY};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::server::bench::{Contestant, ROOMY_MIB};

pub(super) const NAME: &str = "server-blocks";

const STORE_MIB: u64 = 512;

/// What the engine is left with once it serves.
const ENGINE_MIB: u64 = 8;

/// Share of the reads that may wait for the disk once the block cache is warm, and intervals that it has to get warm.
const WAITS_MAX: f64 = 0.0005;
const WARM_UPS_MAX: usize = 20;

const AIM: Aim = Aim { peer: "guira", variant: None, metric: metric::OVER_IN_MEMORY, bound: 0.5 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = served::reads(bench.extent.scaled(200_000, 20_000));
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, uniform over {} items; {}; one server thread; -m {ROOMY_MIB}, of which {STORE_MIB} are the \
         store's, all of whose blocks are in memory, and the engine is left {ENGINE_MIB} (cache_memlimit), so that it has next to \
         nothing of what is asked for; beside the same server without a store, which has everything in its engine",
        workload.keys,
        served::words()
    );
    let mut report = ExperimentReport::new(NAME, "Reads from the block cache, over the network", words);
    let flags = served::store_flags(&bench.workplace.place(NAME), STORE_MIB);
    let loaded = served::contestant(bench, "guira", served::start(bench, ROOMY_MIB, &flags)?);
    bench.processes.load(NAME, &loaded, &workload)?;
    // What it has in memory alone goes with it; the next one finds everything in files.
    drop(loaded);
    let mut contestants = [
        served::contestant(bench, "guira", served::start(bench, ROOMY_MIB, &flags)?),
        served::contestant(bench, IN_MEMORY, served::start(bench, ROOMY_MIB, &[])?),
    ];
    let [ours, theirs] = &mut contestants;
    bench.processes.load(NAME, theirs, &workload)?;
    served::tell(NAME, ours, &format!("cache_memlimit {ENGINE_MIB}"))?;
    served::script(NAME, bench, ours, &workload, &ASKED[1])?;
    warm_up(bench, ours)?;
    served::compare(NAME, bench, &mut contestants, &workload, &mut report)?;
    ASKED.iter().for_each(|asked| report.aim(&Aim { variant: Some(asked.name), ..AIM }));
    Ok(report)
}

/// Reads until next to nothing waits.
fn warm_up(bench: &Bench, contestant: &Contestant) -> Result<(), BenchError> {
    let number = |name| Ok(served::counters(NAME, contestant)?.number(name).unwrap_or(0));
    for _ in 0..WARM_UPS_MAX {
        let (waited, asked) = (number("store_reads_waited")?, number("cmd_get")?);
        served::ask(NAME, bench, contestant, &ASKED[1])?;
        let (waits, gets) = (number("store_reads_waited")? - waited, number("cmd_get")? - asked);
        if waits as f64 <= WAITS_MAX * gets as f64 {
            return Ok(());
        }
    }
    Err(BenchError::Invalid(format!("{NAME}: the block cache has not everything after {WARM_UPS_MAX} intervals")))
}
