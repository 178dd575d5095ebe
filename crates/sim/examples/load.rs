//! The paper's experiments, as JSON lines: `load [--scale N] [--measure-ms N] [EXPERIMENT ...]`; all of them if none is named.
//!
//! How long a run has taken goes to standard error, with the steps of cores a second.

use std::io::Write;
use std::str::FromStr;
use std::time::Instant;

use guira_item::Span;
use guira_sim::load::{
    LoadScenario,
    experiments::{Experiment, experiments},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let mut base = LoadScenario::default();
    if let Some(scale) = take_option(&mut names, "--scale") {
        base.scale = scale?;
    }
    if let Some(measure_ms) = take_option(&mut names, "--measure-ms") {
        base.measure = Span::from_ms(measure_ms?);
    }
    let all = experiments();
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no experiment {name}: {}", known.join(", ")).into());
    }
    let is_wanted = |(name, _): &Experiment| names.is_empty() || names.iter().any(|wanted| wanted == name);
    for (name, experiment) in all.into_iter().filter(is_wanted) {
        let begun = Instant::now();
        let rows = experiment(&base);
        let (steps, took_s) = (rows.iter().map(|row| row.report.steps).sum::<u64>(), begun.elapsed().as_secs_f64());
        eprintln!("{name}: {took_s:.1} s, {:.0} steps a second", steps as f64 / took_s);
        let mut out = std::io::stdout().lock();
        for row in rows {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        }
    }
    Ok(())
}

/// Takes an option with its value out of the arguments.
fn take_option<T: FromStr>(arguments: &mut Vec<String>, name: &str) -> Option<Result<T, String>> {
    let at = arguments.iter().position(|argument| argument == name)?;
    let given: Vec<String> = arguments.drain(at..(at + 2).min(arguments.len())).collect();
    Some(given.get(1).and_then(|value| value.parse().ok()).ok_or_else(|| format!("{name} takes a number")))
}
