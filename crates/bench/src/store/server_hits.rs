//! Hits of a server with a store: everything is in the engine, so that the store need not be asked.

use super::bench::Bench;
use super::items::VALUE_LEN;
use super::served::{self, ASKED, IN_MEMORY};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::server::bench::ROOMY_MIB;

pub(super) const NAME: &str = "server-hits";

const STORE_MIB: u64 = 128;

const AIM: Aim = Aim { peer: "guira", variant: None, metric: metric::OVER_IN_MEMORY, bound: 0.95 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = served::reads(bench.extent.scaled(200_000, 2_000));
    let words = format!(
        "16 B keys, values of {VALUE_LEN} B, uniform over {} items, all of them in the engine; {}; one server thread; -m {ROOMY_MIB}, of \
         which {STORE_MIB} are the store's, beside the same server without a store",
        workload.keys,
        served::words()
    );
    let mut report = ExperimentReport::new(NAME, "Hits with a store behind the engine", words);
    let flags = served::store_flags(&bench.workplace.place(NAME), STORE_MIB);
    let mut contestants = [
        served::contestant(bench, "guira", served::start(bench, ROOMY_MIB, &flags)?),
        served::contestant(bench, IN_MEMORY, served::start(bench, ROOMY_MIB, &[])?),
    ];
    for contestant in &contestants {
        bench.processes.load(NAME, contestant, &workload)?;
    }
    served::compare(NAME, bench, &mut contestants, &workload, &mut report)?;
    ASKED.iter().for_each(|asked| report.aim(&Aim { variant: Some(asked.name), ..AIM }));
    Ok(report)
}
