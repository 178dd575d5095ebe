//! The experiments in process end to end, tiny, so that they cannot rot. Those that start servers need the program:
//! `cargo xtask test` runs them with it.

use super::*;
use crate::metric::{self, Metric};

/// Experiments that start no server.
const IN_PROCESS: [&str; 4] = [cached_reads::NAME, larger_set::NAME, group_commit::NAME, durabilities::NAME];

fn tiny(only: &[&str], parent: &std::path::Path) -> Options {
    let only = only.iter().map(|name| (*name).to_string()).collect();
    let extent = Extent { tiny: true, out: Some(parent.join("out")), ..Extent::default() };
    Options { only, extent, dir: Some(parent.join("data")), ..Options::default() }
}

#[test]
fn a_tiny_run_measures_everything_in_process_and_leaves_nothing_behind() {
    let parent = tempfile::tempdir().expect("a folder");
    let report = run(tiny(&IN_PROCESS, parent.path())).expect("runs");
    assert_eq!(report.experiments.len(), IN_PROCESS.len());
    let median = |experiment, variant, peer, metric: Metric| {
        let row = report.experiment(experiment).and_then(|one| one.row(variant, peer));
        row.and_then(|row| row.median(metric)).unwrap_or_else(|| panic!("{experiment}: {variant} {peer}"))
    };
    assert_eq!(median(cached_reads::NAME, "1 thread", "guira", metric::AT_ONCE), 1.0);
    assert!(median(cached_reads::NAME, "1 thread", "guira", metric::OVER_ROCKSDB) > 0.0);
    let at_once = |variant| median(larger_set::NAME, variant, "guira", metric::AT_ONCE);
    // What was forgotten is not read at once; some of it is in the block cache.
    assert!(at_once("disk, 8 on their way") <= at_once("page cache, 8 on their way") + 0.05);
    assert!(median(larger_set::NAME, "disk, 64 on their way", "rocksdb", metric::OPERATIONS) > 0.0);
    // However the machine is loaded, one client's write shares its sync with nobody, and many share theirs.
    assert_eq!(median(group_commit::NAME, "1 writer", "guira", metric::WRITES_PER_SYNC), 1.0);
    assert!(median(group_commit::NAME, "64 writers", "guira", metric::WRITES_PER_SYNC) > 1.0);
    assert!(median(durabilities::NAME, "", "interval", metric::OVER_OS) > 0.0);
    let data = std::fs::read_dir(parent.path().join("data")).expect("a folder");
    assert_eq!(data.count(), 0, "what was measured is gone");
    let out = parent.path().join("out");
    assert!(out.join("store.json").is_file() && out.join("group-commit-writes-per-sync.svg").is_file());
    assert!(!crate::redraw(&out).expect("draws").is_empty());
}

#[test]
fn unknown_names_and_senseless_flags_are_refused_in_one_line() {
    let parent = tempfile::tempdir().expect("a folder");
    let refused = |options: Options| run(options).expect_err("must fail").to_string();
    let error = refused(tiny(&["typo"], parent.path()));
    assert!(error.contains("group-commit") && !error.contains('\n'), "{error}");
    for (flag, options) in [
        ("--memory 3", Options { memory: Some(3), ..tiny(&[], parent.path()) }),
        ("--start-gb 0", Options { start_gb: Some(0.0), ..tiny(&[], parent.path()) }),
        ("interval:0", Options { interval: Some(0), ..tiny(&[], parent.path()) }),
        ("/proc/nowhere", Options { dir: Some("/proc/nowhere".into()), ..tiny(&[], parent.path()) }),
    ] {
        let error = refused(options);
        assert!(error.contains(flag) && !error.contains('\n'), "{error}");
    }
}
