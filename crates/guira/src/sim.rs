//! `guira sim`: the simulator of clusters.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use guira_sim::{
    Failed, RUN, Report, SCENARIOS, Scenario, Simulation, Summary, Together, campaign,
    load::{
        LoadScenario, Row,
        aims::verdicts,
        experiments,
        kept::{self, Kept},
    },
    symmetric::{self, load as symmetric_load},
};
use guira_switched::Mutant;

/// What to simulate.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// What goes wrong, and how often
    #[arg(long, default_value = "usual", value_parser = scenarios())]
    scenario: String,
    /// The first seed: the same one is the same run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cluster-hours of virtual time, a seed for each quarter
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// A fault to put into the protocol, which has to be found out: one of the kind of cluster that the scenario is of
    #[arg(long, value_parser = mutants())]
    mutant: Option<String>,
    /// Threads [default: as many as there are processors]
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Instead: experiments of the paper, with nodes, or networks, that do so much a second; rows are JSON lines
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', num_args = 0..)]
    load: Option<Vec<String>>,
    /// With --load: of which kind of cluster
    #[arg(long, value_enum, default_value_t = Topology::Switched)]
    topology: Topology,
    /// With --load: rates are divided by this [default: 20 switched, 500 symmetric]
    #[arg(long)]
    scale: Option<f64>,
    /// With --load: each run with so many seeds, from --seed on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// With --load: where NAME.jsonl and the figures are written, instead of rows to standard output
    #[arg(long, value_name = "FOLDER", requires = "load")]
    out: Option<PathBuf>,
    /// Instead: draw the figures again of the rows that --out has kept in a folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "load")]
    load_redraw: Option<PathBuf>,
}

/// A kind of cluster.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Topology {
    /// `SwitchKV`'s.
    Switched,
    /// ccKVS's.
    Symmetric,
}

/// Names of scenarios: of the switched cluster, and of the symmetric one.
fn scenarios() -> PossibleValuesParser {
    PossibleValuesParser::new(SCENARIOS.into_iter().chain(symmetric::SCENARIOS))
}

/// Names of faults.
fn mutants() -> PossibleValuesParser {
    PossibleValuesParser::new(
        Mutant::ALL.map(Mutant::name).into_iter().chain(symmetric::Mutant::all().map(symmetric::Mutant::name)),
    )
}

/// Runs the seeds; one line says what happened, and one line the seed of what went wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { scenario: name, seed, hours, mutant: fault, .. } = arguments;
    let threads = arguments.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZero::<usize>::MIN);
    if let Some(folder) = &arguments.load_redraw {
        return match arguments.topology {
            Topology::Switched => redraw::<Row>(folder),
            Topology::Symmetric => redraw::<symmetric_load::Row>(folder),
        };
    }
    if let Some(names) = &arguments.load {
        let (scale, seeds) = (arguments.scale()?, arguments.seeds);
        return match arguments.topology {
            Topology::Switched => {
                let base = LoadScenario { seed: *seed, scale, ..LoadScenario::default() };
                let all = experiments::experiments();
                load::<_, Row>(names, all, arguments.out.as_deref(), |experiment, each| {
                    experiments::run(experiment, &base, seeds, threads, each);
                })
            }
            Topology::Symmetric => {
                let usual = symmetric_load::LoadScenario::default();
                let base = symmetric_load::LoadScenario { seed: *seed, scale: scale.round() as u64, ..usual };
                let all = symmetric_load::experiments::experiments();
                load::<_, symmetric_load::Row>(names, all, arguments.out.as_deref(), |experiment, each| {
                    symmetric_load::experiments::run(experiment, &base, seeds, threads, each);
                })
            }
        };
    }
    if !(*hours > 0.0 && *hours <= 1e6) {
        return Err(format!("--hours {hours}: write a number above 0, up to a million"));
    }
    if let Some(scenario) = symmetric::Scenario::named(name) {
        let mutant = of_kind(fault.as_deref(), symmetric::Mutant::named)?;
        return simulate(arguments, &symmetric::Scenario { mutant, ..scenario }, threads, print_symmetric);
    }
    let mutant = of_kind(fault.as_deref(), Mutant::named)?;
    let scenario = Scenario { mutant, ..Scenario::named(name).ok_or("no such scenario")? };
    simulate(arguments, &scenario, threads, print)
}

/// The fault of a name, if one is to be put in.
fn of_kind<M>(name: Option<&str>, named: impl Fn(&str) -> Option<M>) -> Result<Option<M>, String> {
    let of =
        |name| named(name).ok_or_else(|| format!("--mutant {name}: the cluster of this scenario has no such fault"));
    name.map(of).transpose()
}

/// Runs the seeds of a scenario, and has what came of them printed.
fn simulate<S: Simulation>(
    arguments: &Arguments,
    scenario: &S,
    threads: NonZero<usize>,
    print: impl Fn(&Summary<S::Report>),
) -> Result<(), String> {
    let Arguments { scenario: name, seed, hours, mutant, .. } = arguments;
    let runs = (hours * 3_600.0 / RUN.as_s()).ceil() as u64;
    let started = Instant::now();
    match campaign(scenario, *seed, runs, threads) {
        Ok(summary) => {
            print(&summary);
            println!("{} events in {:.1} s", summary.report.events(), started.elapsed().as_secs_f64());
            println!("trace {:016x}", summary.report.trace());
            Ok(())
        }
        Err(Failed { seed, failure }) => {
            let flag = mutant.as_ref().map(|mutant| format!(" --mutant {mutant}")).unwrap_or_default();
            let told = failure.map_or_else(
                || "the same seed was another run the second time".to_owned(),
                |failure| failure.to_string(),
            );
            eprintln!("{told}");
            Err(format!("seed {seed} shows it again: guira sim --scenario {name} --seed {seed} --hours 0.25{flag}"))
        }
    }
}

impl Arguments {
    /// What rates are divided by.
    fn scale(&self) -> Result<f64, String> {
        let usual = match self.topology {
            Topology::Switched => 20.0,
            Topology::Symmetric => 500.0,
        };
        let scale = self.scale.unwrap_or(usual);
        if !(1.0..=1_000.0).contains(&scale) {
            return Err(format!("--scale {scale}: from 1 to 1000"));
        }
        Ok(scale)
    }
}

/// Draws figures again, and says what came of aims.
fn redraw<R: Kept>(folder: &Path) -> Result<(), String> {
    judge(&kept::redraw::<R>(folder).map_err(|error| error.to_string())?);
    Ok(())
}

/// Runs experiments, all of them if none is named; what came of their aims, and how long each has taken, goes to standard error.
fn load<E, R: Kept>(
    names: &[String],
    all: Vec<(&'static str, E)>,
    out: Option<&Path>,
    run: impl Fn((&'static str, E), &mut dyn FnMut(R)),
) -> Result<(), String> {
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("--load {name}: no such experiment, use some of {}", known.join(", ")));
    }
    for experiment in all.into_iter().filter(|(name, _)| names.is_empty() || names.iter().any(|one| one == name)) {
        let (name, started) = (experiment.0, Instant::now());
        let mut rows = Vec::new();
        run(experiment, &mut |row| {
            if out.is_none() {
                println!("{}", serde_json::to_string(&row).expect("a row is JSON"));
            }
            rows.push(row);
        });
        if let Some(folder) = out {
            kept::keep(folder, name, &rows).map_err(|error| error.to_string())?;
        }
        judge(&rows);
        eprintln!("{name}: {:.1} s", started.elapsed().as_secs_f64());
    }
    Ok(())
}

/// What came of the aims that some rows tell of.
fn judge<R: Kept>(rows: &[R]) {
    verdicts(rows).iter().for_each(|verdict| eprintln!("{verdict}"));
}

fn print(summary: &Summary<Report>) {
    let Summary { report, runs, repeated } = summary;
    let hours = *runs as f64 * RUN.as_s() / 3_600.0;
    println!(
        "{hours} cluster-hours, {} faults, {} operations ({} failed, {} of unknown outcome), all linearizable",
        report.faults, report.operations, report.failed, report.unknown
    );
    println!(
        "{} reads answered by cache nodes, {} updates of cached items, {} waits for a lease; {repeated} of {runs} runs repeated",
        report.cache_hits, report.cache_updates, report.lease_waits
    );
    println!(
        "{} changes in two phases, of keys that several cache nodes had; {} changes of who is in charge, {} of who is there",
        report.two_phased, report.charges, report.members_changed
    );
    println!(
        "{} times that a backend gave partitions away, {} times that one took over what another had",
        report.given, report.taken_over
    );
    println!("{} requests refused at once, since their backend was away; {} reads hedged", report.away, report.hedged);
    if report.rules_waited + report.rules_refused > 0 {
        println!(
            "{} updates of rules waited at switches, {} of them in the place of others; {} rules found no room",
            report.rules_waited, report.rules_replaced, report.rules_refused
        );
    }
}

fn print_symmetric(summary: &Summary<symmetric::Report>) {
    let Summary { report, runs, repeated } = summary;
    let symmetric::Report { tally, counts, flow, .. } = report;
    let hours = *runs as f64 * RUN.as_s() / 3_600.0;
    println!(
        "{hours} cluster-hours, {} faults, {} operations ({} answered, {} failed, {} of unknown outcome), all linearizable",
        report.faults, tally.asked, tally.answered, tally.failed, tally.unknown
    );
    println!(
        "{} hot reads, {} hot writes; {} asked at home, {} forwarded, {} of them again; {repeated} of {runs} runs repeated",
        counts.hot_reads, counts.hot_writes, counts.at_home, counts.forwarded, counts.resent
    );
    println!(
        "{} promotions, {} evictions; {} views, {} times that a key may have been lost with its home",
        counts.promotions, counts.evictions, report.views, report.may_be_lost
    );
    println!("{} refused, since too much was under way; {} had no answer in time", counts.busy, counts.away);
    println!(
        "{} requests and {} messages waited for credits, which were asked for {} times; {} messages found no room to wait",
        flow.requests_waited, flow.messages_waited, flow.asked, flow.messages_dropped
    );
}
