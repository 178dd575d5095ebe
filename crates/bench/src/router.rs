//! `guira bench router`: what brings gets of cached keys to cache nodes (SwitchKV, NSDI 2016, sections 3.1.2 and 3.2.3): an eBPF program on links, beside one
//! that only forwards, and beside the gateway's own router; how fast its rules and those of Open vSwitch are changed, beside Open vSwitch's own tool; and how
//! long it takes until a switch has exactly the rules that are wanted.
//!
//! ```text
//! run ── bench (scale, core, folder) ── experiment (one file each) ── report (table, JSON, plots)
//!                                           ├── Wire: the program on links, whose far ends take frames and count them
//!                                           ├── Gateways: clusters of processes, as `guira bench cluster` has them
//!                                           └── Site: a switch that calls our controller, Open vSwitch or the program
//! ```
//! Always true: what is compared takes turns within each round; frames are counted where they arrive, and rules are read back from where they were made,
//! and a run ends where either is not what was meant; all networks are the run's own, and gone at its end.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

mod agreement;
mod bench;
mod controller;
mod gateways;
mod needs;
mod packets;
mod rule_set;
mod site;
mod updates;
mod wire;

use crate::error::BenchError;
use crate::experiment::{Experiment, Extent};
use crate::placement::Placement;
use crate::report::{self, Setting};

use bench::Bench;

const EXPERIMENTS: [Experiment<Bench>; 3] = [
    Experiment { name: packets::NAME, run: packets::run },
    Experiment { name: updates::NAME, run: updates::run },
    Experiment { name: agreement::NAME, run: agreement::run },
];

/// Flags of `guira bench router`.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Experiments to run, by name; all if there is none.
    #[arg(long, help = Experiment::help(&EXPERIMENTS), value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,
    /// Keys that are cached, with a rule each [default: 10000; 500 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub rules: Option<u64>,
    /// Rules beyond those, as a controller has them that takes them back later [default: a fifth as many]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub buffer: Option<u64>,
    /// Connections to the gateway, each of which reads one key at a time [default: 256; 16 with --tiny]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub connections: Option<u16>,
    /// Folder, on the disk that is to be used, for the data [default: that for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Length of an interval of `packets`, seconds; the gateway's is four times as long [default: 1; 0.05 with --tiny]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// How much to measure, and where the results go.
    #[command(flatten)]
    pub extent: Extent,
    /// Which Guira is started, and where; the program in the kernel runs on the first of the servers' cores.
    #[command(flatten)]
    pub placement: Placement,
}

/// A whole run.
pub type Report = report::Report<Routers>;

/// How many rules there were, and what they were compared on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Routers {
    /// Cached keys, with a rule each.
    pub rules: u64,
    /// Rules beyond those.
    pub buffer: u64,
    /// The core of the program in the kernel.
    pub core: usize,
    /// Cores of clusters' members.
    pub server_cores: Vec<usize>,
    /// Cores of the generator.
    pub generator_cores: Vec<usize>,
    /// The switch, as it calls itself; nothing if it is not there.
    pub open_vswitch: String,
}

impl Setting for Routers {
    const NAME: &'static str = "router";
}

impl fmt::Display for Routers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rules, buffer, core, server_cores, generator_cores, open_vswitch } = self;
        let switch = if open_vswitch.is_empty() { "no Open vSwitch" } else { open_vswitch };
        write!(
            f,
            "{rules} cached keys with a rule each, and {buffer} rules of a buffer; the program in the kernel on core {core}, members on cores \
             {server_cores:?}, generator on {generator_cores:?}; {switch}"
        )
    }
}

/// Runs the chosen experiments; saves JSON and plots if a folder is given. The caller prints the report.
///
/// # Errors
/// [`BenchError`]: a flag that makes no sense, something missing for an experiment that was asked for by name, a frame or a rule that is not where it was
/// meant to be.
pub fn run(options: Options) -> Result<Report, BenchError> {
    let chosen = Experiment::chosen(&EXPERIMENTS, &options.only)?;
    let (possible, left_out) = leave_out(chosen, !options.only.is_empty(), needs::check)?;
    let bench = Bench::new(&options)?;
    let mut report = Report::begin(bench.setting(), bench.rounds, bench.measure);
    report.left_out = left_out;
    let measured = possible.iter().try_for_each(|experiment| {
        report.add((experiment.run)(&bench)?);
        Ok(())
    });
    // One that fails does not take along what the others have found.
    if !report.experiments.is_empty() {
        report.keep(&options.extent)?;
    }
    measured.map(|()| report)
}

/// Leaves out what is not possible here: what is said of that. One that was asked for by name fails at once.
fn leave_out(
    chosen: Vec<&'static Experiment<Bench>>,
    is_wanted: bool,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<(Vec<&'static Experiment<Bench>>, Vec<String>), BenchError> {
    let (mut possible, mut left_out) = (Vec::new(), Vec::new());
    for experiment in chosen {
        match check(experiment.name) {
            Ok(()) => possible.push(experiment),
            Err(why) if is_wanted => return Err(BenchError::Setting(format!("{}: {why}", experiment.name))),
            Err(why) => left_out.push(format!("{}: {why}", experiment.name)),
        }
    }
    Ok((possible, left_out))
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
