//! `sanitize`: the tests of the crates with unsafe code under AddressSanitizer, which notices what is read after it was freed, or
//! beyond its end, and what is never freed. Miri, which knows more, does not come with the compilers that can be had everywhere.

use crate::{
    nightly::Compiler,
    run::{Failed, Run},
};

/// The crates, from the lowest layer up. guira-sync owns no memory, and its transactions do not survive the sanitizer's checks.
const PACKAGES: [&str; 5] = ["guira-item", "guira-arena", "guira-cuckoo", "guira-memc3", "guira-cphash"];

/// Tests that fill an engine's memory with hundreds of thousands of items, one after the other: minutes, in which nobody else looks at what is freed. And all of
/// LOCKHASH's, whose partitions are CPHASH's.
const NOT_OF_THE_ENGINES: [&str; 7] = [
    "by_load::",
    "what_is_read_outlives_what_is_not",
    "touched_items_are_evicted_like_others",
    "a_full_cache_that_is_looked_after_keeps_its_items",
    "background_work_leaves_a_balanced_cache_alone",
    "memory_stays_under_the_limit_and_answers_stay_right",
    "memory_is_never_stuck_in_the_wrong_class",
];

/// Runs their tests.
///
/// # Errors
/// A test fails, or the sanitizer has something to say.
pub fn sanitize(run: &mut Run) -> Result<(), Failed> {
    let compiler = Compiler::with_unstable_flags(run);
    // With a target named, what runs while the tests are built is built without the sanitizer.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = compiler.cargo(run, &format!("test --locked --target {target} --lib --test map_memory"));
    command
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .arg("--")
        .args(NOT_OF_THE_ENGINES.iter().flat_map(|test| ["--skip", test]))
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // A folder of its own: other flags would have everything built anew, twice.
        .env("CARGO_TARGET_DIR", run.target_dir().join("sanitize"))
        .env("GUIRA_STRESS_SECONDS", "2");
    run.step("tests under AddressSanitizer", command)?;
    Ok(())
}
