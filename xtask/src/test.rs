//! `test`: everything CI runs.

use crate::{
    check, deny, fuzz, model,
    run::{Failed, Run},
};

/// Checks, tests, models, fuzzing, licences and tiny benchmarks, cheapest first.
///
/// # Errors
/// The first step that fails.
pub fn test(run: &mut Run) -> Result<(), Failed> {
    check::check(run)?;
    let tests = run.command("cargo test --workspace --locked --no-fail-fast");
    run.step("tests", tests)?;
    model::model(run)?;
    // Benchmarks run tiny, so that they cannot rot.
    for bench in ["engine", "server"] {
        let command = run.command(&format!("cargo run --release --locked --package guira -- bench {bench} --tiny"));
        run.step(&format!("tiny {bench} benchmark"), command)?;
    }
    fuzz::fuzz(run, &[])?;
    deny::deny(run)
}
