//! `guira bench symmetric`: a symmetric cluster of real processes, beside itself without what ccKVS (EuroSys 2018) is made of: hot keys that all nodes have,
//! messages that share packets, linearizable writes, a shard that all threads of a node share.
//!
//! ```text
//! run ── bench (scale, cores, folder) ── experiment (one file each) ── report (table, JSON, plots)
//!                                            ├── contest: clusters that are compared, by workloads, in turns
//!                                            ├── Nodes: `guira cluster up --topology symmetric`, asked what it has counted
//!                                            └── askers, of which each waits for its key
//! ```
//! Always true: what is compared takes turns within each round; a key that is not there and a write that is refused end a run, but where a node is killed. What is counted is what nodes say
//! of themselves, before and after.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

pub(crate) mod bench;
mod coalescing;
mod consistency;
mod contest;
mod counted;
mod failover;
mod messages;
pub(crate) mod nodes;
mod shard;
mod skew;

use crate::error::BenchError;
use crate::experiment::{Experiment, Extent};
use crate::placement::Placement;
use crate::report::{self, Setting};

use bench::Bench;

const EXPERIMENTS: [Experiment<Bench>; 6] = [
    Experiment { name: messages::NAME, run: messages::run },
    Experiment { name: coalescing::NAME, run: coalescing::run },
    Experiment { name: consistency::NAME, run: consistency::run },
    Experiment { name: skew::NAME, run: skew::run },
    Experiment { name: failover::NAME, run: failover::run },
    Experiment { name: shard::NAME, run: shard::run },
];

/// Flags of `guira bench symmetric`.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Experiments to run, by name; all if there is none.
    #[arg(long, help = Experiment::help(&EXPERIMENTS), value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Nodes; two more for `failover` [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=64))]
    pub nodes: Option<u16>,
    /// Items [default: 10000; 1000 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(200..=10_000_000))]
    pub keys: Option<u64>,
    /// Share of the requests that are to be for hot keys, percent: as many are hot as that takes [default: 65]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub hot_percent: Option<u8>,
    /// Connections, shared out over the nodes [default: 48; 6 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub connections: Option<u16>,
    /// Requests on their way on each connection [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depth: Option<u32>,
    /// Folder for the clusters' files [default: that for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Length of an interval, seconds; those of `failover` are as long as they need [default: 2; 0.2 with --tiny]
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
pub type Report = report::Report<SymmetricClusters>;

/// What was started, and who ran where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SymmetricClusters {
    /// Nodes.
    pub nodes: u16,
    /// Items.
    pub keys: u64,
    /// Of these that all nodes have, at most.
    pub hot_keys: u64,
    /// Connections to all nodes together.
    pub connections: usize,
    /// Requests on their way on each.
    pub depth: u32,
    /// Cores of all members.
    pub server_cores: Vec<usize>,
    /// Cores of the generator.
    pub generator_cores: Vec<usize>,
}

impl Setting for SymmetricClusters {
    const NAME: &'static str = "symmetric";
}

impl fmt::Display for SymmetricClusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, keys, hot_keys, connections, depth, server_cores, generator_cores } = self;
        write!(
            f,
            "{nodes} nodes with {keys} items, of which all have up to {hot_keys}; {connections} connections with {depth} requests on their way on each; members on cores {server_cores:?}, \
             generator on {generator_cores:?}"
        )
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, a cluster that fails, a key that is lost, counts that cannot be. One that the binary cannot do is left out, unless it was asked for by name or
/// all only show that they work.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let chosen = Experiment::chosen(&EXPERIMENTS, &options.only)?;
    let is_wanted = !options.only.is_empty() || options.extent.tiny;
    let bench = Bench::new(&options)?;
    let mut report = Report::begin(bench.setting(), bench.rounds, bench.measure);
    let measured = chosen.iter().try_for_each(|experiment| match (experiment.run)(&bench) {
        Err(BenchError::Lacking(what)) if !is_wanted => {
            report.left_out.push(format!("{}: {}", experiment.name, BenchError::Lacking(what)));
            Ok(())
        }
        measured => measured.map(|measured| report.add(measured)),
    });
    // One that fails does not take along what the others have found.
    if !report.experiments.is_empty() {
        report.keep(&options.extent)?;
    }
    measured.map(|()| report)
}

#[cfg(test)]
#[path = "symmetric_tests.rs"]
mod tests;
