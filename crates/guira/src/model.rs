//! `guira model`: exhaustive checks of the switched cluster.

use std::num::NonZero;
use std::thread::available_parallelism;

use guira_model::{Bounds, Found, MODELS, Report, Scenario, check, models};
use guira_switched::Mutant;

/// What to check.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Which models [default: all]
    #[arg(value_parser = MODELS)]
    names: Vec<String>,
    /// How far to go: seconds, minutes, or as far as memory goes
    #[arg(long, default_value = "ci", value_parser = Bounds::ALL.map(|(name, _)| name))]
    bounds: String,
    /// A fault to put into the protocol, which has to be found out
    #[arg(long, value_parser = Mutant::ALL.map(Mutant::name))]
    mutant: Option<String>,
    /// Threads [default: as many as there are processors]
    #[arg(long)]
    threads: Option<usize>,
}

/// Goes through the models; two lines for each, and what has led to what should not be.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { names, bounds, mutant, threads } = arguments;
    let bounds = Bounds::ALL.into_iter().find(|(name, _)| name == bounds).map(|(_, bounds)| bounds);
    let mutant = mutant.as_deref().and_then(Mutant::named);
    let threads = threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
    let all = models(bounds.ok_or("no such bounds")?);
    let mut states = 0;
    for model in all.into_iter().filter(|model| names.is_empty() || names.iter().any(|name| name == model.name)) {
        let model = Scenario { mutant, ..model };
        println!("{}: {}\n  {model}", model.name, model.about);
        let Report { states: count, come_to, depth, elapsed, found, missing } = check(&model, threads);
        states += count;
        print!("  {count} states, {come_to} ways to them, {depth} deep, {:.1} s: ", elapsed.as_secs_f64());
        if let Some(Found { promise, trace }) = found {
            println!("not so that {promise}");
            trace.iter().for_each(|line| println!("  - {line}"));
            return Err(format!("{}: not so that {promise}", model.name));
        }
        println!("exhausted");
        if !missing.is_empty() {
            return Err(format!("{} never shows that {}: it checks nothing", model.name, missing.join(", ")));
        }
    }
    println!("{states} states in all");
    Ok(())
}
