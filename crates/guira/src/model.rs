//! `guira model`: exhaustive checks of both clusters.

use std::num::NonZero;
use std::thread::available_parallelism;

use clap::builder::PossibleValuesParser;
use guira_model::{Bounds, Checked, Found, Mutant, Report, Topology, models, names};

/// What to check.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Which models [default: all]
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    names: Vec<String>,
    /// Those of one cluster [default: of both]
    #[arg(long, value_parser = Topology::ALL.map(|(name, _)| name))]
    topology: Option<String>,
    /// How far to go: seconds, minutes, or as far as memory goes
    #[arg(long, default_value = "ci", value_parser = Bounds::ALL.map(|(name, _)| name))]
    bounds: String,
    /// A fault to put into the protocol, which has to be found out: only the models of its cluster are gone through
    #[arg(long, value_parser = PossibleValuesParser::new(Mutant::names()))]
    mutant: Option<String>,
    /// Threads [default: as many as there are processors]
    #[arg(long)]
    threads: Option<usize>,
}

/// Goes through the models; two lines for each, and what has led to what should not be.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { names, topology, bounds, mutant, threads } = arguments;
    let bounds = Bounds::ALL.into_iter().find(|(name, _)| name == bounds).map(|(_, bounds)| bounds);
    let bounds = bounds.ok_or("no such bounds")?;
    let mutant = mutant.as_deref().and_then(Mutant::named);
    let threads = threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
    let is_asked_for = |name: &str| names.is_empty() || names.iter().any(|asked| asked == name);
    let mut sums = Vec::new();
    for (of, each) in Topology::ALL {
        if topology.as_deref().is_some_and(|topology| topology != of) || mutant.is_some_and(|it| it.topology() != each)
        {
            continue;
        }
        let all = models(each, bounds, mutant).into_iter().filter(|model| is_asked_for(model.name()));
        let counts = all.map(|model| go_through(&*model, threads)).collect::<Result<Vec<_>, _>>()?;
        if !counts.is_empty() {
            sums.push((of, counts.iter().sum::<usize>()));
        }
    }
    if sums.is_empty() {
        return Err("none of these models is of that cluster".to_owned());
    }
    sums.iter().for_each(|(of, states)| println!("{states} states of the {of} cluster"));
    println!("{} states in all", sums.iter().map(|(_, states)| states).sum::<usize>());
    Ok(())
}

/// How many states a model has, of which none is as it should not be.
fn go_through(model: &dyn Checked, threads: usize) -> Result<usize, String> {
    let name = model.name();
    println!("{name}: {}\n  {model}", model.about());
    let Report { states, come_to, depth, elapsed, is_exhausted, found, missing } = model.check(threads);
    print!("  {states} states, {come_to} ways to them, {depth} deep, {:.1} s: ", elapsed.as_secs_f64());
    if let Some(Found { promise, trace }) = found {
        println!("not so that {promise}");
        trace.iter().for_each(|line| println!("  - {line}"));
        return Err(format!("{name}: not so that {promise}"));
    }
    if !is_exhausted {
        println!("there are more");
        return Err(format!("{name} has more states than may be gone through"));
    }
    println!("exhausted");
    if !missing.is_empty() {
        return Err(format!("{name} never shows that {}: it checks nothing", missing.join(", ")));
    }
    Ok(states)
}
