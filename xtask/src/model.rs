//! `model`: both clusters in every order of what can happen, within the bounds of CI; and the lock-free code under schedules that a checker chooses: loom runs the kernels through every interleaving of
//! their threads within its bounds, shuttle the whole table, the whole map and the whole of CPHASH through random schedules.

use crate::{
    program,
    run::{Failed, Run},
};

/// The checkers, each the name of a `cfg`, of a word in its tests' names, and of a folder; and the packages that it checks.
const CHECKERS: [(&str, &[&str]); 2] = [
    ("loom", &["guira-sync", "guira-cuckoo", "guira-symmetric-cache"]),
    ("shuttle", &["guira-cuckoo", "guira-cphash"]),
];

/// Runs every test named `loom`, then every test named `shuttle`, then `guira model`.
///
/// # Errors
/// A model fails, or a checker has none: a check that checks nothing has failed.
pub fn model(run: &mut Run) -> Result<(), Failed> {
    for (checker, packages) in CHECKERS {
        let mut command = run.command("cargo test --release --locked --lib");
        command
            .args(packages.iter().flat_map(|package| ["--package", package]))
            .arg(checker)
            .env("RUSTFLAGS", format!("--cfg {checker}"))
            // A folder of its own: other flags would have everything built anew, twice.
            .env("CARGO_TARGET_DIR", run.target_dir().join(checker))
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
            .env("CARGO_PROFILE_RELEASE_LTO", "off");
        let counts = run.step(&format!("models under {checker}"), command)?;
        if counts.passed == 0 {
            return Err(Failed(format!("models: no test is named {checker}, so nothing was checked")));
        }
    }
    program::build(run)?;
    let command = program::guira(run, "model --bounds ci");
    run.step("models of both clusters", command).map(drop)
}
