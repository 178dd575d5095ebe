//! `bench`: the optimised binary's own benchmarks.

use crate::run::{Failed, Run};

/// Runs `guira bench` with the arguments given.
///
/// # Errors
/// It does not build or does not succeed.
pub fn bench(run: &mut Run, arguments: &[String]) -> Result<(), Failed> {
    let mut command = run.command("cargo run --release --package guira -- bench");
    command.args(arguments);
    run.step("bench", command)?;
    Ok(())
}
