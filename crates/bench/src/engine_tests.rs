//! The experiments end to end, tiny, so that they cannot rot.

use super::*;
use crate::experiment::check::everything_was_measured_and_drawn;

#[test]
fn a_tiny_run_measures_everything_and_draws_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let extent = Extent { tiny: true, out: Some(folder.path().into()), ..Extent::default() };
    let options = Options { extent, ..Options::default() };
    let report = run(options).expect("runs");
    everything_was_measured_and_drawn(&report, &EXPERIMENTS, folder.path());
    let space = report.experiment(construction::NAME).expect("ran");
    let guira = space.row("", "guira").and_then(|row| row.median(metric::BYTES_PER_KEY)).expect("measured");
    let chaining = space.row("", "chaining").and_then(|row| row.median(metric::BYTES_PER_KEY)).expect("measured");
    assert!(guira < 6.5 && (chaining - 13.33).abs() < 0.01, "{guira}, {chaining}");
}

#[test]
fn unknown_names_and_threads_without_cores_are_refused() {
    let error = run(Options { only: vec!["typo".into()], ..Options::default() }).expect_err("must fail").to_string();
    assert!(error.contains("cache-space") && !error.contains('\n'), "{error}");
    let error = run(Options { threads: Some(100_000), ..Options::default() }).expect_err("must fail").to_string();
    assert!(error.contains("--threads") && !error.contains('\n'), "{error}");
}
