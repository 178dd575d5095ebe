//! `check`: formatting, clippy and documentation; a warning is an error.

use crate::run::{Failed, Run};

/// Runs all three.
///
/// # Errors
/// The first that finds something.
pub fn check(run: &mut Run) -> Result<(), Failed> {
    let fmt = run.command("cargo fmt --all --check");
    run.step("format", fmt)?;
    if run.workspace().join("fuzz/Cargo.toml").exists() {
        let fmt = run.command("cargo fmt --manifest-path fuzz/Cargo.toml --check");
        run.step("format of the fuzz targets", fmt)?;
    }
    let clippy = run.command("cargo clippy --workspace --all-targets --locked -- -D warnings");
    run.step("clippy", clippy)?;
    let mut doc = run.command("cargo doc --workspace --no-deps --document-private-items --locked");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run.step("documentation", doc)?;
    Ok(())
}
