//! Cassandra for the tests of `--store cassandra:`: nodes of its own, on loopback, and the tests that need them.
//!
//! Always true: nodes that were started are stopped when the tests are over, however they ended; what a chore that was killed has
//! left behind is stopped by the next one.

use std::{env, fs, path::Path};

use crate::{
    program,
    run::{Failed, Run},
};

/// How many nodes, and which tests want so many: the name of their module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// One node, which tests kill and start again.
    One,
    /// Three, of which tests kill one.
    Three,
}

impl Suite {
    fn nodes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Three => 3,
        }
    }

    /// Where clients find them (`scripts/cassandra`).
    fn hosts(self) -> String {
        let port = env::var("GUIRA_CASSANDRA_PORT").unwrap_or_else(|_| "19042".into());
        (1..=self.nodes()).map(|node| format!("127.0.0.{node}:{port}")).collect::<Vec<_>>().join(",")
    }

    /// What the names of its tests begin with.
    fn module(self) -> &'static str {
        match self {
            Self::One => "cassandra::",
            Self::Three => "cassandra_three::",
        }
    }
}

/// The store's own tests, and those of the running program.
const TESTS: &str = "--package guira-persist --lib --package guira --test compat";

/// Starts the nodes, runs the tests, stops the nodes.
///
/// # Errors
/// The nodes do not start, a test fails, or there is none: a check that checks nothing has failed.
pub fn test(run: &mut Run, suite: Suite) -> Result<(), Failed> {
    let folder = run.target_dir().join("cassandra");
    // Left behind by a run that was killed.
    stop(run, &folder)?;
    let tests = start(run, &folder, suite).and_then(|()| run_tests(run, &folder, suite));
    let stopped = stop(run, &folder);
    // Why tests fail stands in the nodes' logs.
    if tests.is_ok() && stopped.is_ok() {
        fs::remove_dir_all(&folder).map_err(|error| Failed(format!("{}: {error}", folder.display())))?;
    }
    tests.and(stopped)
}

fn start(run: &mut Run, folder: &Path, suite: Suite) -> Result<(), Failed> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| Failed(format!("{}: {error}", folder.display())))?;
    }
    let mut command = run.command("scripts/cassandra start");
    command.arg(folder).arg(suite.nodes().to_string());
    run.step(&format!("Cassandra, nodes: {}", suite.nodes()), command)?;
    Ok(())
}

fn run_tests(run: &mut Run, folder: &Path, suite: Suite) -> Result<(), Failed> {
    let mut command = run.command(&format!("cargo test --locked {} {TESTS} {}", program::FEATURES, suite.module()));
    command.env("GUIRA_CASSANDRA", suite.hosts()).env("GUIRA_CASSANDRA_FOLDER", folder);
    let counts = run.step(&format!("tests with Cassandra, nodes: {}", suite.nodes()), command)?;
    if counts.passed == 0 {
        return Err(Failed(format!("no test is named {}, so nothing was checked", suite.module())));
    }
    Ok(())
}

fn stop(run: &mut Run, folder: &Path) -> Result<(), Failed> {
    if !folder.exists() {
        return Ok(());
    }
    let mut command = run.command("scripts/cassandra stop");
    command.arg(folder);
    run.step("Cassandra, stopped", command)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_finds_its_nodes_and_only_its_tests() {
        assert!(!Suite::One.hosts().contains(','));
        assert!(Suite::Three.hosts().contains(",127.0.0.3:"));
        assert!(!Suite::Three.module().contains(Suite::One.module()));
    }
}
