//! `sanitize`: the tests of the crates with unsafe code under AddressSanitizer, which notices what is read after it was freed, or
//! beyond its end, and what is never freed. Miri, which knows more, does not come with the compilers that can be had everywhere.

use crate::{
    nightly::Compiler,
    run::{Failed, Run},
};

/// The crates, from the lowest layer up. guira-sync owns no memory, and its transactions do not survive the sanitizer's checks.
const PACKAGES: [&str; 5] = ["guira-item", "guira-arena", "guira-cuckoo", "guira-memc3", "guira-cphash"];

/// Of the map's other tests those in which memory is freed while others look, and in which it is by whom: others take minutes so.
const OF_THE_MAP: [&str; 4] = ["drops::", "panics::", "small_readers::", "stress::"];

/// Runs their tests.
///
/// # Errors
/// A test fails, or the sanitizer has something to say.
pub fn sanitize(run: &mut Run) -> Result<(), Failed> {
    let compiler = Compiler::with_unstable_flags(run);
    // With a target named, what runs while the tests are built is built without the sanitizer.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let packages = PACKAGES.map(|package| format!(" --package {package}")).concat();
    let filters = OF_THE_MAP.join(" ");
    for tests in [format!("--lib{packages}"), format!("--package guira-cuckoo --test map -- {filters}")] {
        let mut command = compiler.cargo(run, &format!("test --locked --target {target} {tests}"));
        command
            .env("RUSTFLAGS", "-Zsanitizer=address")
            // A folder of its own: other flags would have everything built anew, twice.
            .env("CARGO_TARGET_DIR", run.target_dir().join("sanitize"))
            .env("GUIRA_STRESS_SECONDS", "2");
        run.step("tests under AddressSanitizer", command)?;
    }
    Ok(())
}
