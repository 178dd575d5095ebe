//! `guira bench engine`: the evaluations of MemC3 (NSDI'13, section 5.2 and 5.3) and CPHASH (PPoPP'12, section 6) in process: index
//! and cache without a network, beside what the papers compare with.
//!
//! ```text
//! run ── bench (cores, rounds, scale) ── experiment (one file each) ── report (table, JSON, plots)
//!                                            ├── crew (pinned threads, timed)
//!                                            └── peers, and contenders that play draws against a cache
//! ```
//! Always true: the contenders of an experiment take turns within each round, so that what else the machine does hits all of
//! them; every number is a median over the rounds.

use std::fmt;

use clap::Args;
use serde::{Deserialize, Serialize};

mod cache_space;
mod cache_threads;
mod construction;
mod contender;
mod growth_pause;
mod index_threads;
mod insert_cost;
mod insert_share;
mod lookup_factors;
mod partitions;
mod rings;
mod scaling;
mod warm_restart;

use crate::error::BenchError;
use crate::event_count::EventCount;
use crate::experiment::{Experiment, Extent};
use crate::in_process::Bench;
use crate::report::{self, ExperimentReport, Setting};
use crate::{crew, in_process, memory_speed, metric};

pub use partitions::Parameters;

const EXPERIMENTS: [Experiment<Bench>; 19] = [
    Experiment { name: construction::NAME, run: construction::run },
    Experiment { name: cache_space::NAME, run: cache_space::run },
    Experiment { name: insert_cost::NAME, run: insert_cost::run },
    Experiment { name: lookup_factors::NAME, run: lookup_factors::run },
    Experiment { name: index_threads::NAME, run: index_threads::run },
    Experiment { name: insert_share::NAME, run: insert_share::run },
    Experiment { name: cache_threads::NAME, run: cache_threads::run },
    Experiment { name: scaling::NAME, run: scaling::run },
    Experiment { name: growth_pause::NAME, run: growth_pause::run },
    Experiment { name: partitions::WORKING_SETS.name, run: |bench| partitions::WORKING_SETS.run(bench) },
    Experiment { name: partitions::CAPACITIES.name, run: |bench| partitions::CAPACITIES.run(bench) },
    Experiment { name: partitions::INSERT_RATIOS.name, run: |bench| partitions::INSERT_RATIOS.run(bench) },
    Experiment { name: partitions::BATCHES.name, run: |bench| partitions::BATCHES.run(bench) },
    Experiment { name: partitions::PARTITIONS.name, run: |bench| partitions::PARTITIONS.run(bench) },
    Experiment { name: partitions::SERVER_THREADS.name, run: |bench| partitions::SERVER_THREADS.run(bench) },
    Experiment { name: partitions::CORES.name, run: |bench| partitions::CORES.run(bench) },
    Experiment { name: partitions::breakdown::NAME, run: partitions::breakdown::run },
    Experiment { name: rings::NAME, run: rings::run },
    Experiment { name: warm_restart::NAME, run: warm_restart::run },
];

/// Flags of `guira bench engine`.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Experiments to run, by name; all if there is none.
    #[arg(long, help = Experiment::help(&EXPERIMENTS), value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Most threads, each on a core of its own [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// How much to measure, and where the results go.
    #[command(flatten)]
    pub extent: Extent,
    /// What the partitioned engines are asked for.
    #[command(flatten)]
    pub parameters: Parameters,
}

/// A whole run.
pub type Report = report::Report<Threads>;

/// Where the threads ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Threads {
    /// Cores of the threads, in the order in which threads are added.
    pub cores: Vec<usize>,
}

impl Setting for Threads {
    const NAME: &'static str = "engine";
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "threads on cores {:?}", self.cores)
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, too little memory, a core that cannot be had, a folder not writable.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let chosen = Experiment::chosen(&EXPERIMENTS, &options.only)?;
    let bench = Bench { parameters: options.parameters, ..Bench::new(options.threads, &options.extent)? };
    bench.parameters.check(bench.cores.len())?;
    let mut report = Report::begin(Threads { cores: bench.cores.clone() }, bench.rounds, bench.measure);
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

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
