//! `guira bench store`: what a RocksDB behind the engine costs: the store in process, beside RocksDB called directly on the very same
//! database, and `guira serve --store` as a process, beside the same server without a store.
//!
//! ```text
//! run ── bench (cores, rounds, scale, folder) ── experiment (one file each) ── report (table, JSON, plots)
//!                                                    ├── crew, with readers and writers in closed loops
//!                                                    └── servers as `guira bench server` has them
//! ```
//! Always true: what is compared takes turns within each round; data lies in a folder of its own that is gone at the end, however
//! that comes about, but for `kill -9`.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

mod bench;
mod cached_reads;
mod delayed;
mod durabilities;
mod group_commit;
mod items;
mod larger_set;
mod memory;
mod reads;
mod served;
mod server_blocks;
mod server_hits;
mod slow_reads;
mod start;
mod writes;

use crate::error::BenchError;
use crate::experiment::{Experiment, Extent};
use crate::placement::Placement;
use crate::report::{self, Setting};
use crate::server::bottleneck;
pub use delayed::{DelayedArgs, delayed_store_server_main};

use bench::Bench;

const EXPERIMENTS: [Experiment<Bench>; 9] = [
    Experiment { name: cached_reads::NAME, run: cached_reads::run },
    Experiment { name: larger_set::NAME, run: larger_set::run },
    Experiment { name: group_commit::NAME, run: group_commit::run },
    Experiment { name: durabilities::NAME, run: durabilities::run },
    Experiment { name: server_hits::NAME, run: server_hits::run },
    Experiment { name: server_blocks::NAME, run: server_blocks::run },
    Experiment { name: slow_reads::NAME, run: slow_reads::run },
    Experiment { name: memory::NAME, run: memory::run },
    Experiment { name: start::NAME, run: start::run },
];

/// Flags of `guira bench store`.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Experiments to run, by name; all if there is none.
    #[arg(long, help = Experiment::help(&EXPERIMENTS), value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Folder, on the disk that is to be measured, for the data [default: that for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Memory of the store where it is measured in process, MiB [default: 256; 16 with --tiny]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<usize>,
    /// Data in the store that is started, GB [default: 10; 0.01 with --tiny]
    #[arg(long, value_name = "GB")]
    pub start_gb: Option<f64>,
    /// Time between the syncs of `interval`, ms [default: 100]
    #[arg(long, value_name = "MS")]
    pub interval: Option<u64>,
    /// Length of a measured interval, seconds [default: 1; 0.05 with --tiny]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// How much to measure, and where the results go.
    #[command(flatten)]
    pub extent: Extent,
    /// Which Guira is started, and where.
    #[command(flatten)]
    pub placement: Placement,
}

/// A whole run.
pub type Report = report::Report<Stores>;

/// Where the data lay, and who ran where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stores {
    /// Cores of the threads in process.
    pub cores: Vec<usize>,
    /// Cores of the servers.
    pub server_cores: Vec<usize>,
    /// Cores of the generator.
    pub generator_cores: Vec<usize>,
    /// What the data lay on.
    pub file_system: String,
    /// Memory of the store in process, MiB.
    pub memory_mib: usize,
}

impl Setting for Stores {
    const NAME: &'static str = "store";
}

impl fmt::Display for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, server_cores, generator_cores, file_system, memory_mib } = self;
        write!(
            f,
            "in process: cores {cores:?}, a store with {memory_mib} MiB; servers on cores {server_cores:?}, generator on \
             {generator_cores:?}; data on {file_system}"
        )
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, a folder or disk that does not do, a server that fails.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let chosen = Experiment::chosen(&EXPERIMENTS, &options.only)?;
    let bench = Bench::new(&options)?;
    let mut report = Report::begin(bench.setting(), bench.rounds, bench.measure);
    let measured = chosen.iter().try_for_each(|experiment| {
        let mut experiment = (experiment.run)(&bench)?;
        if !bench.extent.tiny {
            bottleneck::note(&mut experiment);
        }
        report.add(experiment);
        Ok(())
    });
    // One that fails does not take along what the others have found.
    if !report.experiments.is_empty() {
        report.keep(&options.extent)?;
    }
    measured.map(|()| report)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
