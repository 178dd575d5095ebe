//! `test`: everything CI runs.

use crate::{
    cassandra, check, deny, fuzz, model,
    run::{Failed, Run},
    sanitize, sim,
};

/// Checks, tests, models, sanitizer, tiny benchmarks, the simulator, fuzzing and licences.
///
/// # Errors
/// The first step that fails.
pub fn test(run: &mut Run) -> Result<(), Failed> {
    check::check(run)?;
    let mut tests = run.command("cargo test --workspace --locked --no-fail-fast");
    if !has_network_namespaces(run) {
        println!(
            "\n== not possible here, and left out: cluster::networks::, which needs network namespaces with a bridge"
        );
        tests.args(["--", "--skip", "cluster::networks::"]);
    }
    // The lengths that CI promises: a million commands beside memcached, a minute of stress over the eviction policies.
    tests.env("GUIRA_DIFFERENTIAL_COMMANDS", "1000000").env("GUIRA_STRESS_SECONDS", "12");
    run.step("tests", tests)?;
    // The program once more with each other engine: the same real clients, memcached beside it, crowds, kill -9.
    for engine in ["cphash", "lockhash"] {
        // A cluster has no engine.
        let mut tests = run.command("cargo test --locked --package guira --test compat -- --skip cluster::");
        tests.env("GUIRA_ENGINE", engine).env("GUIRA_DIFFERENTIAL_COMMANDS", "400000");
        run.step(&format!("the running program with --engine {engine}"), tests)?;
    }
    // And with a store behind every server. What is left out is about the engine's memory and what is said of it.
    let left_out = [
        "crash::",
        "crowd::",
        "uploads::",
        "administration::",
        "startup::",
        "cluster::",
        // They have one of their own.
        "power::",
        "hostile::who_leaves_in_the_middle_leaves_nothing_behind",
    ];
    let skipped: String = left_out.iter().map(|name| format!(" --skip {name}")).collect();
    for engine in ["memc3", "lockhash"] {
        let mut tests = run.command(&format!("cargo test --locked --package guira --test compat --{skipped}"));
        tests.env("GUIRA_ENGINE", engine).env("GUIRA_TEST_STORE", "rocksdb");
        tests.env("GUIRA_DIFFERENTIAL_COMMANDS", "200000").env("GUIRA_KILL_CYCLES", "100");
        run.step(&format!("the running program with --engine {engine} --store rocksdb"), tests)?;
    }
    cassandra::test(run, cassandra::Suite::One)?;
    model::model(run)?;
    sanitize::sanitize(run)?;
    // Benchmarks run tiny, so that they cannot rot.
    for bench in ["engine", "map", "server", "store", "cluster"] {
        let command = run.command(&format!("cargo run --profile ci --locked --package guira -- bench {bench} --tiny"));
        run.step(&format!("tiny {bench} benchmark"), command)?;
    }
    sim::sim(run, &[])?;
    fuzz::fuzz(run, &[])?;
    deny::deny(run)
}

/// Whether there is a way to networks of one's own, as the tests look for one (`cluster/networks.rs`).
fn has_network_namespaces(run: &Run) -> bool {
    ["--net", "--user --map-root-user --net"].into_iter().any(|way| {
        let output = run.command(&format!("unshare {way} ip link add probe type bridge")).output();
        output.is_ok_and(|output| output.status.success())
    })
}
