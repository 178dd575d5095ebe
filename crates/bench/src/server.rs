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

use std::path::PathBuf;

use clap::Args;

mod bench;
mod bulk_sets;
mod custom;
mod echo;
mod error;
mod eviction;
mod machine;
mod memory;
mod miss_ratio;
mod multiget;
pub mod peer;
pub mod process;
pub mod report;
mod single_gets;
mod threads;

pub use custom::CustomOptions;
pub use echo::{EchoArgs, echo_server_main};
pub use error::BenchError;
pub use machine::Machine;
pub(crate) use machine::utc_now;
pub use report::Report;

use bench::Bench;
use report::ExperimentReport;

/// An experiment of the table.
struct Experiment {
    name: &'static str,
    run: fn(&Bench) -> Result<ExperimentReport, BenchError>,
}

const EXPERIMENTS: [Experiment; 7] = [
    Experiment { name: "multiget", run: multiget::run },
    Experiment { name: "bulk-sets", run: bulk_sets::run },
    Experiment { name: "single-gets", run: single_gets::run },
    Experiment { name: "memory", run: memory::run },
    Experiment { name: "miss-ratio", run: miss_ratio::run },
    Experiment { name: "eviction", run: eviction::run },
    Experiment { name: "threads", run: threads::run },
];

/// Flags of `guira bench server`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Experiments to run: multiget, bulk-sets, single-gets, memory, miss-ratio, eviction, threads [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Servers to compare: guira, memcached, redis
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "guira,memcached,redis")]
    pub peers: Vec<String>,
    /// Alternating rounds over the peers [default: 5; 1 with --tiny]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Length of a measured interval, seconds [default: 2; 0.05 with --tiny]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Shrink everything: shows that the benchmark works, measures nothing
    #[arg(long)]
    pub tiny: bool,
    /// Folder for JSON and plots
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Guira's binary [default: this one]
    #[arg(long, value_name = "PATH")]
    pub guira: Option<PathBuf>,
    /// memcached's binary [default: from PATH]
    #[arg(long, value_name = "PATH")]
    pub memcached: Option<PathBuf>,
    /// redis-server's binary [default: from PATH]
    #[arg(long, value_name = "PATH")]
    pub redis: Option<PathBuf>,
    /// Cores for the servers [default: the first; half of them for `threads`]
    #[arg(long, value_delimiter = ',', value_name = "CORE,...")]
    pub server_cores: Vec<usize>,
    /// Cores for the generator [default: the last; the other half for `threads`]
    #[arg(long, value_delimiter = ',', value_name = "CORE,...")]
    pub generator_cores: Vec<usize>,
    /// A workload of your own, instead of the experiments
    #[command(flatten)]
    pub custom: CustomOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            peers: ["guira", "memcached", "redis"].map(String::from).to_vec(),
            rounds: None,
            seconds: None,
            tiny: false,
            out: None,
            guira: None,
            memcached: None,
            redis: None,
            server_cores: Vec::new(),
            generator_cores: Vec::new(),
            custom: CustomOptions::default(),
        }
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let chosen = chosen(&options)?;
    let bench = Bench::new(&options)?;
    let mut report = Report {
        date: utc_now(),
        machine: Machine::here(),
        server_cores: bench.server_cores(1),
        generator_cores: bench.generator_cores(1),
        rounds: bench.rounds,
        measure_s: bench.measure.as_secs_f64(),
        peers: bench.versions()?,
        experiments: Vec::new(),
    };
    let mut keep = |mut experiment: ExperimentReport| {
        experiment.compare();
        if !options.tiny {
            experiment.warn();
        }
        report.experiments.push(experiment);
    };
    if options.custom.is_given() {
        keep(custom::run(&bench, &options.custom)?);
    }
    for experiment in chosen {
        keep((experiment.run)(&bench)?);
    }
    if let Some(folder) = &options.out {
        report.save(folder)?;
    }
    Ok(report)
}

fn chosen(options: &Options) -> Result<Vec<&'static Experiment>, BenchError> {
    if options.only.is_empty() {
        return Ok(if options.custom.is_given() { Vec::new() } else { EXPERIMENTS.iter().collect() });
    }
    let named = |name: &String| {
        EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
            let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            BenchError::Setting(format!("there is no experiment '{name}'; choose from {}", names.join(", ")))
        })
    };
    options.only.iter().map(named).collect()
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
