//! The experiments end to end, tiny, so that they cannot rot.

use super::*;
use crate::metric;

fn extent() -> Extent {
    Extent { tiny: true, ..Extent::default() }
}

fn tiny(only: &str) -> Options {
    Options { only: vec![only.into()], peers: vec!["memcached".into()], extent: extent(), ..Options::default() }
}

#[test]
fn a_tiny_multiget_run_measures_memcached() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = run(Options { extent: Extent { out: Some(folder.path().into()), ..extent() }, ..tiny("multiget") })
        .expect("runs");
    let row = report.experiment("multiget").and_then(|one| one.row("", "memcached")).expect("measured");
    assert!(row.median(metric::THROUGHPUT).expect("throughput") > 10_000.0);
    assert_eq!(row.median(metric::HIT_RATIO), Some(1.0));
    assert!(folder.path().join("server.json").is_file());
    assert!(folder.path().join("multiget-throughput.png").is_file());
    assert!(report.setting.peers[0].1.starts_with("memcached 1."), "{:?}", report.setting.peers);
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let error = run(tiny("multiget-typo")).expect_err("must fail").to_string();
    assert!(error.contains("bulk-sets"), "{error}");
    let options = Options { peers: vec!["mysql".into()], ..tiny("multiget") };
    assert!(run(options).expect_err("must fail").to_string().contains("memcached"));
}

#[test]
fn a_missing_peer_names_its_package() {
    let options = Options { memcached: Some("/nowhere/memcached".into()), ..tiny("multiget") };
    let error = run(options).expect_err("must fail").to_string();
    assert!(error.contains("apt-get install memcached") && !error.contains('\n'), "{error}");
}

#[test]
fn every_experiment_runs_tiny_against_memcached() {
    for name in [
        "bulk-sets",
        "single-gets",
        "memory",
        "miss-ratio",
        "eviction",
        "threads",
        "hostile",
        "cp-working-sets",
        "cp-cores",
    ] {
        let report = run(tiny(name)).expect(name);
        let rows = &report.experiment(name).expect(name).rows;
        assert!(rows.iter().any(|row| row.peer == "memcached" && !row.measurements.is_empty()), "{name}");
    }
}

#[test]
fn redis_is_measured_over_its_own_protocol() {
    let report = run(Options { peers: vec!["redis".into()], ..tiny("eviction") }).expect("runs");
    let row = report.experiment("eviction").and_then(|one| one.row("-m 2, values of 32 B", "redis")).expect("measured");
    assert!(row.median(metric::MISS_RATIO).is_some_and(|ratio| ratio > 0.0 && ratio < 1.0));
}

/// A tiny run of a workload of one's own.
fn own(custom: CustomOptions) -> Result<Report, BenchError> {
    let custom = CustomOptions { keys: 1_000, connections: 4, memory: 64, ..custom };
    run(Options { custom, peers: vec!["memcached".into()], extent: extent(), ..Options::default() })
}

#[test]
fn workloads_of_ones_own_run_in_every_form() {
    let table = tempfile::NamedTempFile::new().expect("a file");
    let rows = "cluster,key_size_bytes,value_size_bytes,common_ttl,operations,zipf_alpha\n\
                23,35,224,\"120s:0.93, 2700s:0.05\",set:0.31 get:0.36 incr:0.30 delete:0.02,0.274\n";
    std::fs::write(table.path(), rows).expect("writes");
    let trace = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(trace.path(), "0,a,1,3,1,set,60\n0,a,1,3,1,get,0\nbad\n0,b,1,3,1,gets,0\n").expect("writes");
    let none = CustomOptions::default;
    let forms = [
        CustomOptions { ycsb: Some('F'), ..none() },
        CustomOptions { ycsb: Some('D'), rate: Some(5_000.0), ..none() },
        CustomOptions { workload_file: Some(table.path().into()), cluster: Some(23), ..none() },
        CustomOptions { trace: Some(trace.path().into()), multiget: 10, ..none() },
        CustomOptions { get_share: Some(0.9), read_through: true, verify: true, multiget: 10, ..none() },
        CustomOptions { get_share: Some(1.0), value_size: "10-3000".parse().ok(), multiget: 7, ..none() },
    ];
    for form in forms {
        let report = own(form.clone()).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        let row = report.experiment("workload").and_then(|one| one.row("", "memcached")).expect("measured");
        assert!(row.median(metric::THROUGHPUT).is_some_and(|keys| keys > 0.0), "{form:?}");
        assert_eq!(report.experiments[0].notes.len(), usize::from(form.trace.is_some()), "a bad line is reported");
    }
}

#[test]
fn a_rate_is_found_for_a_target() {
    // Any machine at any load does that; how the search closes in is `rate_search`'s own test.
    let goal = "p50=10s".parse().ok();
    let report = own(CustomOptions { get_share: Some(1.0), target: goal, ..CustomOptions::default() }).expect("runs");
    let row = report.experiment("workload").and_then(|one| one.row("", "memcached")).expect("measured");
    assert!(row.median(metric::RATE).is_some_and(|rate| rate > 0.0), "{row:?}");
}
