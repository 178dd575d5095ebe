//! `test`: everything CI runs.

use std::{fs, process::Command};

use crate::{
    cassandra_nodes, check, deny, fuzz, model,
    program::{self, FEATURES},
    run::{Failed, Run},
    sanitize, sim,
};

/// A test of clusters among those of servers.
const CLUSTER_BESIDE_MEMCACHED: &str = "differential::a_cluster_answers";

/// The tests of the running program.
const COMPAT: &str = "compat";
/// All other files of tests: cargo takes patterns for their names, and none that says "but".
const OTHER_TESTS: [&str; 3] = ["[!c]*", "c[!o]*", "co[!m]*"];
/// Arguments of the test runner: leaves out what has either in its name, and so wants a Cassandra (`cassandra_nodes.rs`).
const NO_CASSANDRA: [&str; 5] = ["--", "--skip", "cassandra::", "--skip", "cassandra_three::"];
/// What an engine is seen by. The rest is about the server before it, and is run with CPHASH, whose partitions LOCKHASH's are.
const OF_LOCKHASH: [&str; 6] = ["differential::", "clients::", "crowd::", "cp::", "uploads::", "warm_restart::"];

/// What is about the engine's memory and what is said of it.
const NOT_WITH_A_STORE: [&str; 9] = [
    "crash::",
    "crowd::",
    "uploads::",
    "administration::",
    "startup::",
    "cluster::",
    CLUSTER_BESIDE_MEMCACHED,
    // They have one of their own.
    "power::",
    "hostile::who_leaves_in_the_middle_leaves_nothing_behind",
];

/// Checks, tests, models, sanitizer, tiny benchmarks, the simulator, fuzzing and licences.
///
/// # Errors
/// The first step that fails.
pub fn test(run: &mut Run) -> Result<(), Failed> {
    check::check(run)?;
    let build = run.command(&format!("cargo test --workspace {FEATURES} --locked --no-run"));
    run.step("tests, built", build)?;
    // What runs the program waits for it most of the time, and the other tests seldom.
    run.lanes(vec![("crates".into(), Box::new(crates)), ("program".into(), Box::new(programs))])?;
    model::model(run)?;
    sanitize::sanitize(run)?;
    // Benchmarks run tiny, so that they cannot rot.
    program::build(run)?;
    for bench in ["engine", "map", "server", "store", "cluster", "symmetric", "router"] {
        let command = program::guira(run, &format!("bench {bench} --tiny"));
        run.step(&format!("tiny {bench} benchmark"), command)?;
    }
    sim::sim(run, &[])?;
    fuzz::fuzz(run, &[])?;
    deny::deny(run)
}

/// Tests of the crates.
fn crates(run: &mut Run) -> Result<(), Failed> {
    let names = OTHER_TESTS.map(|pattern| format!(" --test {pattern}")).concat();
    let mut tests =
        run.command(&format!("cargo test --workspace {FEATURES} --locked --no-fail-fast --lib --bins{names}"));
    // More than a minute of stress over all engines' eviction policies.
    tests.args(NO_CASSANDRA).env("GUIRA_STRESS_SECONDS", "6");
    // Wider ones are gone through below (`model.rs`).
    tests.args(["--skip", "nothing_is_wrong_within_the_smallest_bounds"]);
    if !has_network_namespaces(run) {
        println!(
            "\n== not possible here, and left out: open_vswitch:: and networks::, which need network namespaces with a bridge"
        );
        tests.args(["--skip", "open_vswitch::", "--skip", "networks::"]);
    }
    if !may_load_programs() {
        println!("\n== not possible here, and left out: xdp::, which needs root's rights to load eBPF programs");
        tests.args(["--skip", "xdp::"]);
    }
    let outcome = run.step("tests of the crates", tests);
    let examples = run.command(&format!("cargo test --workspace {FEATURES} --locked --doc"));
    let examples = run.step("examples of the documentation", examples);
    outcome.and(examples).map(drop)
}

/// Tests of the running program, from outside: the same real clients, memcached beside it, crowds, kill -9.
fn programs(run: &mut Run) -> Result<(), Failed> {
    let mut tests = compat(run);
    if !has_network_namespaces(run) {
        println!(
            "\n== not possible here, and left out: cluster::networks::, which needs network namespaces with a bridge"
        );
        tests.args(["--skip", "cluster::networks::"]);
    }
    if !may_load_programs() {
        println!(
            "\n== not possible here, and left out: cluster::networks::routed::xdp::, which needs root's rights to load eBPF programs"
        );
        tests.args(["--skip", "routed::xdp::"]);
    }
    // As many as CI promises.
    tests.env("GUIRA_DIFFERENTIAL_COMMANDS", "1000000");
    run.step("the running program", tests)?;
    for (engine, only) in [("cphash", &[][..]), ("lockhash", &OF_LOCKHASH)] {
        let mut tests = compat(run);
        tests.args(only);
        // A cluster has no engine.
        tests.args(["--skip", "cluster::", "--skip", CLUSTER_BESIDE_MEMCACHED]);
        tests.env("GUIRA_ENGINE", engine).env("GUIRA_DIFFERENTIAL_COMMANDS", "100000");
        run.step(&format!("the running program with --engine {engine}"), tests)?;
    }
    // And with a store behind every server.
    for engine in ["memc3", "lockhash"] {
        let mut tests = compat(run);
        tests.args(NOT_WITH_A_STORE.iter().flat_map(|name| ["--skip", name]));
        tests.env("GUIRA_ENGINE", engine).env("GUIRA_TEST_STORE", "rocksdb");
        tests.env("GUIRA_DIFFERENTIAL_COMMANDS", "100000").env("GUIRA_KILL_CYCLES", "100");
        run.step(&format!("the running program with --engine {engine} --store rocksdb"), tests)?;
    }
    cassandra_nodes::test(run, cassandra_nodes::Suite::One)
}

/// The tests of the running program, but for those of Cassandra.
fn compat(run: &Run) -> Command {
    let mut tests = run.command(&format!("cargo test --locked --package guira {FEATURES} --test {COMPAT}"));
    tests.args(NO_CASSANDRA);
    tests
}

/// Whether this process has what it takes to have a program on a link (capabilities(7)): as root has.
fn may_load_programs() -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    const BPF: u64 = 1 << 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // In a user namespace they are of that alone.
    let ids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_outermost = ids.split_whitespace().eq(["0", "0", "4294967295"]);
    is_outermost && effective & NET_ADMIN != 0 && effective & BPF != 0
}

/// Whether there is a way to networks of one's own, as the tests look for one (`guira_networks`).
fn has_network_namespaces(run: &Run) -> bool {
    ["--net", "--user --map-root-user --net"].into_iter().any(|way| {
        let output = run.command(&format!("unshare {way} ip link add probe type bridge")).output();
        output.is_ok_and(|output| output.status.success())
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ffi::OsStr};

    use super::*;

    /// A file of tests whose name no pattern matches would never be run.
    #[test]
    fn only_the_tests_of_the_program_begin_as_no_pattern_does() {
        let mut names = BTreeSet::new();
        let crates = Run::in_workspace().workspace().join("crates");
        for folder in
            fs::read_dir(crates).unwrap().filter_map(|member| fs::read_dir(member.unwrap().path().join("tests")).ok())
        {
            names.extend(folder.filter_map(|entry| Some(entry.unwrap().path().file_stem()?.to_owned())));
        }
        let unmatched = |name: &&OsStr| name.to_string_lossy().starts_with("com");
        assert!(names.contains(OsStr::new("map")), "{names:?}");
        assert_eq!(names.iter().map(|name| &**name).filter(unmatched).collect::<Vec<_>>(), [COMPAT]);
    }
}
