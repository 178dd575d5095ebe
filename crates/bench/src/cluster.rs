//! `guira bench cluster`: a switched cluster of real processes whose backends do so many operations a second, as SwitchKV's evaluation has it
//! (NSDI 2016, section 4): with its cache, beside itself with gateways that ask no cache node, or ask one for everything.
//!
//! ```text
//! run ── bench (scale, cores, folder) ── experiment (one file each) ── report (table, JSON, plots)
//!                                            ├── Processes: `guira cluster up`, asked how it is, its members killed
//!                                            └── readers, which check every value
//! ```
//! Always true: what is compared takes turns within each round; a wrong or lost value ends a run; data lies in a folder of its own that is gone at the end, however that comes about, but for `kill -9`.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

pub(crate) mod bench;
mod core_reads;
mod hot_in;
mod killed_cache;
mod modes;
pub(crate) mod processes;
mod trackers;

use crate::error::BenchError;
use crate::experiment::{Experiment, Extent};
use crate::placement::Placement;
use crate::report::{self, Setting};

pub use core_reads::{CoreReadsArgs, core_reads_main};

use bench::Bench;

const EXPERIMENTS: [Experiment<Bench>; 4] = [
    Experiment { name: modes::NAME, run: modes::run },
    Experiment { name: hot_in::NAME, run: hot_in::run },
    Experiment { name: killed_cache::NAME, run: killed_cache::run },
    Experiment { name: trackers::NAME, run: trackers::run },
];

/// Flags of `guira bench cluster`.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Experiments to run, by name; all if there is none.
    #[arg(long, help = Experiment::help(&EXPERIMENTS), value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Backends [default: 32; 2 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub backends: Option<u16>,
    /// Requests a second that each backend takes [default: 500]
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u64).range(1..=1_000_000), conflicts_with = "store_limit")]
    pub request_limit: Option<u64>,
    /// Instead: operations a second that the store of each backend does, of which reads of one key that wait together take one
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub store_limit: Option<u64>,
    /// Items [default: 1000000; 500 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub keys: Option<u64>,
    /// Items in the cache at most [default: 10000; 50 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub cached: Option<u64>,
    /// Connections, each of which reads one key at a time [default: 512; 16 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub connections: Option<u16>,
    /// Folder, on the disk that is to be used, for the data [default: that for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Length of an interval of `modes`, seconds; those of the others are as long as they need [default: 4; 0.3 with --tiny]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// How much to measure, and where the results go.
    #[command(flatten)]
    pub extent: Extent,
    /// Which Guira is started, and where.
    #[command(flatten)]
    pub placement: Placement,
}

/// What a backend can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limited {
    /// It takes so many requests a second.
    Requests(u64),
    /// Its store does so many operations a second.
    Store(u64),
}

impl Limited {
    /// So many a second.
    pub fn per_s(self) -> u64 {
        let (Self::Requests(per_s) | Self::Store(per_s)) = self;
        per_s
    }

    /// The flag of `guira cluster up`.
    fn flag(self) -> [String; 2] {
        let name = match self {
            Self::Requests(_) => "--request-limit",
            Self::Store(_) => "--store-limit",
        };
        [name.to_owned(), self.per_s().to_string()]
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(per_s) => write!(f, "that take {per_s} requests a second"),
            Self::Store(per_s) => write!(f, "whose stores do {per_s} operations a second"),
        }
    }
}

/// A whole run.
pub type Report = report::Report<Clusters>;

/// What was started, and who ran where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clusters {
    /// Backends.
    pub backends: u16,
    /// What each of them can do, a second.
    pub limit: Option<Limited>,
    /// Items.
    pub keys: u64,
    /// Items in the cache at most.
    pub cached: u64,
    /// Cores of all members.
    pub server_cores: Vec<usize>,
    /// Cores of the generator.
    pub generator_cores: Vec<usize>,
    /// What the data lay on.
    pub file_system: String,
}

impl Setting for Clusters {
    const NAME: &'static str = "cluster";
}

impl fmt::Display for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backends, limit, keys, cached, server_cores, generator_cores, file_system } = self;
        let limit = limit.map_or_else(|| "without a limit".to_owned(), |limit| limit.to_string());
        write!(
            f,
            "{backends} backends {limit} each, with {keys} items, of which up to {cached} are at a cache node; members \
             on cores {server_cores:?}, generator on {generator_cores:?}; data on {file_system}"
        )
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, a folder or disk that does not do, a cluster that fails, a value that is wrong or lost.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let mut chosen = Experiment::chosen(&EXPERIMENTS, &options.only)?;
    let is_wanted = !options.only.is_empty() || options.extent.tiny;
    let left_out = leave_out_trackers(&mut chosen, is_wanted, trackers::valgrind())?;
    let bench = Bench::new(&options)?;
    let mut report = Report::begin(bench.setting(), bench.rounds, bench.measure);
    report.left_out = left_out;
    let measured = chosen.iter().try_for_each(|experiment| {
        report.add((experiment.run)(&bench)?);
        Ok(())
    });
    // One that fails does not take along what the others have found.
    if !report.experiments.is_empty() {
        report.keep(&options.extent)?;
    }
    measured.map(|()| report)
}

/// Without valgrind `trackers` is left out of a run of all experiments: what is said of that. One that was asked for, or that only shows that all of them
/// work, fails at once, and not when its turn comes.
fn leave_out_trackers(
    chosen: &mut Vec<&Experiment<Bench>>,
    is_wanted: bool,
    valgrind: Result<PathBuf, BenchError>,
) -> Result<Vec<String>, BenchError> {
    let Err(error) = valgrind else { return Ok(Vec::new()) };
    let Some(at) = chosen.iter().position(|experiment| experiment.name == trackers::NAME) else {
        return Ok(Vec::new());
    };
    if is_wanted {
        return Err(error);
    }
    chosen.remove(at);
    Ok(vec![format!("{}: {error}", trackers::NAME)])
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
