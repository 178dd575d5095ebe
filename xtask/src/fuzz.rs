//! `fuzz`: every target of `fuzz/` for a bounded number of runs.
//!
//! libFuzzer wants compiler flags that only a nightly compiler takes.

use std::{path::PathBuf, process::Command};

use crate::{
    nightly::Compiler,
    run::{Failed, Run},
    tool,
};

/// Executions in CI of the targets that talk to a session, whose parser is the largest and the one with a memory: two thousand a second.
const SESSION_RUNS: u64 = 100_000;
const SESSION_TARGETS: [&str; 2] = ["parse_text", "parse_meta"];
/// Executions of those that have cores of a cluster begin for each input: some hundreds a second.
const CORES_RUNS: u64 = 10_000;
const CORES_TARGETS: [&str; 2] = ["peer_message", "symmetric_message"];
/// Executions of each other one: together they take a minute.
const RUNS: u64 = 50_000;
/// CI repeats itself: what it found yesterday it finds today. A longer search takes `--runs` and grows `fuzz/corpus`.
const SEED: u32 = 1;

/// Runs the targets named, or all.
///
/// # Errors
/// A target fails, or there is none, or the tools are missing and cannot be installed.
pub fn fuzz(run: &mut Run, arguments: &[String]) -> Result<(), Failed> {
    let (runs, mut targets) = parse(arguments)?;
    tool::cargo_subcommand(run, "fuzz")?;
    if targets.is_empty() {
        targets = all_targets(run)?;
    }
    let compiler = Compiler::with_unstable_flags(run);
    let build = match &targets[..] {
        [target] => format!("fuzz build {target}"),
        _ => "fuzz build".to_owned(),
    };
    let mut build = compiler.cargo(run, &build);
    build.arg("--target-dir").arg(target_dir(run));
    run.step("fuzz targets, built", build)?;
    let step = |target: &String| {
        let runs = runs.unwrap_or_else(|| runs_in_ci(target));
        (format!("fuzz {target}"), command(run, compiler, target, runs))
    };
    let steps = targets.iter().map(step).collect();
    run.steps_together(steps)
}

fn target_dir(run: &Run) -> PathBuf {
    run.target_dir().join("fuzz")
}

fn runs_in_ci(target: &str) -> u64 {
    match target {
        _ if CORES_TARGETS.contains(&target) => CORES_RUNS,
        _ if SESSION_TARGETS.contains(&target) => SESSION_RUNS,
        _ => RUNS,
    }
}

/// The number of runs, if one is given, and the targets named.
fn parse(arguments: &[String]) -> Result<(Option<u64>, Vec<String>), Failed> {
    let mut runs = None;
    let mut targets = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--runs" {
            let number = arguments.next().and_then(|number| number.parse().ok());
            runs = Some(number.ok_or_else(|| Failed("fuzz: --runs takes a number".into()))?);
        } else {
            targets.push(argument.clone());
        }
    }
    Ok((runs, targets))
}

/// What `fuzz/Cargo.toml` declares.
fn all_targets(run: &Run) -> Result<Vec<String>, Failed> {
    let list = run.command("cargo fuzz list").output().map_err(|error| Failed(format!("fuzz: {error}")))?;
    let targets: Vec<String> = String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect();
    if list.status.success() && !targets.is_empty() {
        Ok(targets)
    } else {
        Err(Failed(format!("fuzz: no targets: {}", String::from_utf8_lossy(&list.stderr).trim())))
    }
}

fn command(run: &Run, compiler: Compiler, target: &str, runs: u64) -> Command {
    let mut command = compiler.cargo(run, &format!("fuzz run {target}"));
    command.arg("--target-dir").arg(target_dir(run));
    command.arg("--").arg(format!("-runs={runs}")).arg(format!("-seed={SEED}"));
    let dictionary = run.workspace().join(format!("fuzz/dictionaries/{target}.dict"));
    if dictionary.exists() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_runs_and_targets_are_told_apart() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&[]).unwrap(), (None, vec![]));
        assert_eq!(parse(&words("text --runs 5 meta")).unwrap(), (Some(5), words("text meta")));
        assert!(parse(&words("--runs many")).is_err());
    }
}
