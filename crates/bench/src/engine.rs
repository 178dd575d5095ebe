//! `guira bench engine`: MemC3's evaluation in process (NSDI'13, section 5.2 and 5.3): index and cache without a network,
//! beside what the paper compares with.
//!
//! ```text
//! run ── bench (cores, rounds, scale) ── experiment (one file each) ── report (table, JSON, plots)
//!                                            ├── crew (pinned threads, timed)
//!                                            └── peers, and contenders that play draws against a cache
//! ```
//! Always true: the contenders of an experiment take turns within each round, so that what else the machine does hits all of
//! them; every number is a median over the rounds.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

mod bench;
mod cache_space;
mod cache_threads;
mod construction;
mod contender;
mod crew;
mod index_threads;
mod insert_cost;
mod insert_share;
mod lookup_factors;
mod memory_speed;
pub mod metric;
mod ratio_table;
mod scaling;

pub use crate::server::BenchError;
use crate::server::{
    Machine,
    report::{self, ExperimentReport},
    utc_now,
};

use bench::Bench;
use ratio_table::RatioTable;

/// An experiment of the table.
struct Experiment {
    name: &'static str,
    run: fn(&Bench) -> Result<ExperimentReport, BenchError>,
}

const EXPERIMENTS: [Experiment; 8] = [
    Experiment { name: construction::NAME, run: construction::run },
    Experiment { name: cache_space::NAME, run: cache_space::run },
    Experiment { name: insert_cost::NAME, run: insert_cost::run },
    Experiment { name: lookup_factors::NAME, run: lookup_factors::run },
    Experiment { name: index_threads::NAME, run: index_threads::run },
    Experiment { name: insert_share::NAME, run: insert_share::run },
    Experiment { name: cache_threads::NAME, run: cache_threads::run },
    Experiment { name: scaling::NAME, run: scaling::run },
];

/// Flags of `guira bench engine`.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Experiments to run: construction, cache-space, insert-cost, lookup-factors, index-threads, insert-share,
    /// cache-threads, scaling [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Most threads, each on a core of its own [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Alternating rounds over the contenders [default: 5; 1 with --tiny]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Shrink everything: shows that the benchmark works, measures nothing
    #[arg(long)]
    pub tiny: bool,
    /// Folder for JSON and plots
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// When it began, UTC.
    pub date: String,
    /// Where it ran.
    pub machine: Machine,
    /// Cores of the threads, in the order in which threads are added.
    pub cores: Vec<usize>,
    /// Rounds of every measurement.
    pub rounds: usize,
    /// Length of a timed interval, seconds.
    pub measure_s: f64,
    /// Results.
    pub experiments: Vec<ExperimentReport>,
}

impl Report {
    /// Experiment `name`.
    pub fn experiment(&self, name: &str) -> Option<&ExperimentReport> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }

    /// Writes `engine.json` and one SVG and PNG a chart into `folder`; returns what was written.
    ///
    /// # Errors
    /// [`BenchError::Output`], or a plot that cannot be drawn.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
        report::save(folder, "engine.json", self, &self.experiments)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", self.date, self.machine)?;
        let Self { cores, rounds, measure_s, .. } = self;
        writeln!(f, "threads on cores {cores:?}; medians of {rounds} rounds; timed intervals of {measure_s} s")?;
        self.experiments.iter().try_for_each(|experiment| {
            let plain = ExperimentReport { ratios: Vec::new(), ..experiment.clone() };
            write!(f, "\n{plain}{}", RatioTable(&experiment.ratios))
        })
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, too little memory, a core that cannot be had, a folder not writable.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let chosen = chosen(&options)?;
    let bench = Bench::new(&options)?;
    let mut report = Report {
        date: utc_now(),
        machine: Machine::here(),
        cores: bench.cores.clone(),
        rounds: bench.rounds,
        measure_s: bench.measure.as_secs_f64(),
        experiments: Vec::new(),
    };
    for experiment in chosen {
        let mut done = (experiment.run)(&bench)?;
        done.compare();
        // Guira beside itself, with another policy or in batches, is in the rows.
        done.ratios.retain(|ratio| !ratio.over.starts_with("guira"));
        report.experiments.push(done);
    }
    if let Some(folder) = &options.out {
        report.save(folder)?;
    }
    Ok(report)
}

fn chosen(options: &Options) -> Result<Vec<&'static Experiment>, BenchError> {
    if options.only.is_empty() {
        return Ok(EXPERIMENTS.iter().collect());
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
#[path = "engine_tests.rs"]
mod tests;
