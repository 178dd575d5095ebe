//! `guira bench server`: Guira and its peers as processes, measured over the loopback network in alternating rounds.
//!
//! Every server is pinned to its cores and the generator to others; a server's CPU time is read over the very
//! interval its throughput is counted in, so that a slow generator cannot hide a fast server. Keys are loaded before
//! the clock starts and hits are counted, so that a miss answered fast is not taken for a hit.
//!
//! ```text
//! run ── bench (peers, cores, scale) ── experiment (one file each) ── report (table, JSON, plots)
//!                                           └── process (start, usage, kill)  └── guira-loadgen (drive, count)
//! ```

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

mod assault;
pub(crate) mod bench;
pub(crate) mod bottleneck;
mod bulk_sets;
mod custom;
mod echo;
mod eviction;
mod flood_keys;
mod hostile;
pub mod listening;
mod memory;
mod miss_ratio;
mod multiget;
mod partitioned;
pub mod peer;
pub mod process;
mod single_gets;
mod threads;

use crate::error::BenchError;
use crate::experiment::{Experiment, Extent};
use crate::placement::Placement;
use crate::report::{self, ExperimentReport, Setting};
pub use custom::CustomOptions;
pub use echo::{EchoArgs, echo_server_main};

use bench::Bench;

const EXPERIMENTS: [Experiment<Bench>; 10] = [
    Experiment { name: "multiget", run: multiget::run },
    Experiment { name: "bulk-sets", run: bulk_sets::run },
    Experiment { name: "single-gets", run: single_gets::run },
    Experiment { name: "memory", run: memory::run },
    Experiment { name: "miss-ratio", run: miss_ratio::run },
    Experiment { name: "eviction", run: eviction::run },
    Experiment { name: "threads", run: threads::run },
    Experiment { name: "hostile", run: hostile::run },
    Experiment { name: partitioned::working_sets::NAME, run: partitioned::working_sets::run },
    Experiment { name: partitioned::cores::NAME, run: partitioned::cores::run },
];

/// `threads` has more cores than the other experiments.
const SERVER_CORES_HELP: &str = "Cores for the servers [default: the first; half of them for `threads`]";
const GENERATOR_CORES_HELP: &str = "Cores for the generator [default: the last; the other half for `threads`]";

/// Flags of `guira bench server`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("server_cores", |cores| cores.help(SERVER_CORES_HELP)))]
#[command(mut_arg("generator_cores", |cores| cores.help(GENERATOR_CORES_HELP)))]
pub struct Options {
    /// Experiments to run, by name; all if there is none.
    #[arg(long, help = Experiment::help(&EXPERIMENTS), value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Servers to compare: guira, memcached, redis; over CPSERVER's protocol: cpserver, lockserver, guira-cp
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "guira,memcached,redis")]
    pub peers: Vec<String>,
    /// Length of a measured interval, seconds [default: 2; 0.05 with --tiny]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// How much to measure, and where the results go.
    #[command(flatten)]
    pub extent: Extent,
    /// Which Guira is started, and where.
    #[command(flatten)]
    pub placement: Placement,
    /// memcached's binary [default: from PATH]
    #[arg(long, value_name = "PATH")]
    pub memcached: Option<PathBuf>,
    /// redis-server's binary [default: from PATH]
    #[arg(long, value_name = "PATH")]
    pub redis: Option<PathBuf>,
    /// A workload of your own, instead of the experiments
    #[command(flatten)]
    pub custom: CustomOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            peers: ["guira", "memcached", "redis"].map(String::from).to_vec(),
            seconds: None,
            extent: Extent::default(),
            placement: Placement::default(),
            memcached: None,
            redis: None,
            custom: CustomOptions::default(),
        }
    }
}

/// A whole run.
pub type Report = report::Report<Servers>;

/// What was measured, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Servers {
    /// Cores of the servers.
    pub server_cores: Vec<usize>,
    /// Cores of the generator.
    pub generator_cores: Vec<usize>,
    /// Peers and their versions.
    pub peers: Vec<(String, String)>,
}

impl Setting for Servers {
    const NAME: &'static str = "server";
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers: Vec<String> = self.peers.iter().map(|(name, version)| format!("{name} ({version})")).collect();
        let Self { server_cores, generator_cores, .. } = self;
        write!(f, "{}; servers on cores {server_cores:?}, generator on {generator_cores:?}", peers.join(", "))
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, a peer that is not there or fails, a folder not writable.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let Options { custom, extent, .. } = &options;
    let is_custom_alone = custom.is_given() && options.only.is_empty();
    let chosen = if is_custom_alone { Vec::new() } else { Experiment::chosen(&EXPERIMENTS, &options.only)? };
    let bench = Bench::new(&options)?;
    let (server_cores, generator_cores) = (bench.server_cores(1), bench.generator_cores(1));
    let setting = Servers { server_cores, generator_cores, peers: bench.versions()? };
    let mut report = Report::begin(setting, bench.rounds, bench.measure);
    let mut keep = |mut experiment: ExperimentReport| {
        if !extent.tiny {
            bottleneck::note(&mut experiment);
        }
        report.add(experiment);
    };
    if custom.is_given() {
        keep(custom::run(&bench, custom)?);
    }
    for experiment in chosen {
        keep((experiment.run)(&bench)?);
    }
    report.keep(extent)?;
    Ok(report)
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
