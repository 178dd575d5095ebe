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
    // What nobody gets who does not ask for it.
    let clippy = run.command(
        "cargo clippy --package guira --package guira-persist --all-targets --features cassandra --locked -- -D warnings",
    );
    run.step("clippy with Cassandra", clippy)?;
    // What somebody gets who does without etcd.
    let clippy =
        run.command("cargo clippy --package guira-client --no-default-features --all-targets --locked -- -D warnings");
    run.step("clippy of the client without etcd", clippy)?;
    let mut doc =
        run.command("cargo doc --workspace --no-deps --document-private-items --features guira/cassandra --locked");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run.step("documentation", doc)?;
    Ok(())
}
