//! The program as the tests have it.

use std::process::Command;

use crate::run::{Failed, Run};

/// With what is in it only for who asks: built once, it serves all steps. Without, clippy sees it, and `cargo test` without features tests what it
/// says then.
pub const FEATURES: &str = "--features guira/cassandra";

/// Builds it. With a test named it is the same as the tests', what only they depend on included, and nothing is built twice.
///
/// # Errors
/// It does not build.
pub fn build(run: &mut Run) -> Result<(), Failed> {
    let build = run.command(&format!("cargo build --locked --package guira {FEATURES} --bin guira --test compat"));
    run.step("guira, built", build).map(drop)
}

/// `guira`, which was built. Its cores are optimised in the profile of the tests, and what they assert is asserted.
pub fn guira(run: &Run, arguments: &str) -> Command {
    let mut command = Command::new(run.target_dir().join("debug/guira"));
    command.args(arguments.split_whitespace()).current_dir(run.workspace());
    command
}
