//! `model`: loom runs the lock-free kernels through every interleaving of their threads within its bounds.

use crate::run::{Failed, Run};

/// Runs every test named `loom`.
///
/// # Errors
/// A model fails, or there is none: a check that checks nothing has failed.
pub fn model(run: &mut Run) -> Result<(), Failed> {
    let mut command =
        run.command("cargo test --release --locked --package guira-sync --package guira-cuckoo --lib loom");
    command
        .env("RUSTFLAGS", "--cfg loom")
        // A folder of its own: other flags would have everything built anew, twice.
        .env("CARGO_TARGET_DIR", run.target_dir().join("loom"))
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    let counts = run.step("models", command)?;
    if counts.passed == 0 {
        return Err(Failed("models: no test is named loom, so nothing was checked".into()));
    }
    Ok(())
}
