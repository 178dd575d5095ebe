//! `guira bench map`: concurrent maps of eight-byte keys, as the evaluation of Li's dissertation has them (chapter 3), far
//! larger than the caches.
//!
//! ```text
//! run ── bench (contenders, room, cores, rounds) ── experiment (one file each) ── report (table, JSON, plots)
//!                                                        └── contender ── subject: in a process of its own, Rust or C++
//!                                                                            └── play: a phase on a ConcurrentMap, by a crew
//! ```
//! Always true: a subject is asked for phases, which are data, so that a map in C++ does the same as one in Rust; subjects take
//! turns within each round, one at a time; every answer of a map is looked at.

use std::fmt;
use std::io;

use clap::Args;
use serde::{Deserialize, Serialize};

mod associativity;
mod bench;
mod concurrent_map;
mod contender;
mod cxx;
mod entry;
mod factors;
mod global_lock;
mod hashers;
mod insert_tail;
mod inserts;
mod lookups;
mod mixes;
mod occupancy;
mod peers;
mod phase;
mod play;
mod process;
mod space;
mod stripes;
mod subject;
mod value_sizes;

use crate::error::BenchError;
use crate::experiment::{Experiment, Extent};
use crate::metric;
use crate::report::{self, ExperimentReport, Setting};

use bench::MapBench;
use contender::Contender;

const EXPERIMENTS: [Experiment<MapBench>; 12] = [
    Experiment { name: space::NAME, run: space::run },
    Experiment { name: lookups::NAME, run: lookups::run },
    Experiment { name: inserts::NAME, run: inserts::run },
    Experiment { name: mixes::NAME, run: mixes::run },
    Experiment { name: hashers::NAME, run: hashers::run },
    Experiment { name: occupancy::NAME, run: occupancy::run },
    Experiment { name: value_sizes::NAME, run: value_sizes::run },
    Experiment { name: insert_tail::NAME, run: insert_tail::run },
    Experiment { name: global_lock::NAME, run: global_lock::run },
    Experiment { name: factors::NAME, run: factors::run },
    Experiment { name: associativity::NAME, run: associativity::run },
    Experiment { name: stripes::NAME, run: stripes::run },
];

/// Flags of `guira bench map`.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Experiments to run, by name; all if there is none.
    #[arg(long, help = Experiment::help(&EXPERIMENTS), value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Maps to compare where all are, by name; all if there is none. What one experiment alone compares is its own.
    #[arg(long, help = Contender::help(), value_delimiter = ',', value_name = "NAME,...")]
    pub peers: Vec<String>,
    /// Keys that a map has room for [default: 16777216; 4096 with --tiny]
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,
    /// Most threads, each on a core of its own [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Let the allocators of all contenders ask for huge pages
    #[arg(long)]
    pub huge_pages: bool,
    /// Keep Rust's maps in this process, for a profiler or a debugger
    #[arg(long, hide = true)]
    pub in_this_process: bool,
    /// How much to measure, and where the results go.
    #[command(flatten)]
    pub extent: Extent,
}

/// A whole run.
pub type Report = report::Report<Maps>;

/// What was compared, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Maps {
    /// Cores of the threads, in the order in which threads are added.
    pub cores: Vec<usize>,
    /// Keys that a map has room for.
    pub room: u64,
    /// Whether allocators asked for huge pages.
    pub huge_pages: bool,
    /// The maps, and what they are.
    pub contenders: Vec<(String, String)>,
    /// What a reader must know of them.
    pub notes: Vec<String>,
}

impl Setting for Maps {
    const NAME: &'static str = "map";
}

impl fmt::Display for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.contenders.iter().try_for_each(|(name, is)| writeln!(f, "{name}: {is}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        let pages =
            if self.huge_pages { "huge pages where an allocator has them" } else { "pages as allocators take them" };
        write!(f, "threads on cores {:?}; room for {} keys; {pages}", self.cores, self.room)
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, a map that gives a wrong answer, a core that cannot be had, a folder not
/// writable.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let chosen = Experiment::chosen(&EXPERIMENTS, &options.only)?;
    let names: Vec<&str> = chosen.iter().map(|experiment| experiment.name).collect();
    let bench = MapBench::new(&options, &names)?;
    let setting = Maps {
        cores: bench.run.cores.clone(),
        room: bench.room,
        huge_pages: bench.huge_pages,
        contenders: bench.contenders(),
        notes: bench.notes.clone(),
    };
    let mut report = Report::begin(setting, bench.run.rounds, bench.run.measure);
    for experiment in chosen {
        report.add((experiment.run)(&bench)?);
    }
    report.keep(&options.extent)?;
    Ok(report)
}

/// What `guira bench map-contender` does: makes a map and plays phases on it, as standard input says.
///
/// # Errors
/// [`BenchError`]: a line that makes no sense, a core that cannot be had.
pub fn contender_main() -> Result<(), BenchError> {
    process::serve(io::stdin().lock(), io::stdout().lock())
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
