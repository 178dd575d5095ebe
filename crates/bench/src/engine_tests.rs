//! The experiments end to end, tiny, so that they cannot rot.

use super::*;

#[test]
fn a_tiny_run_measures_everything_and_draws_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let extent = Extent { tiny: true, out: Some(folder.path().into()), ..Extent::default() };
    let options = Options { extent, ..Options::default() };
    let report = run(options).expect("runs");
    assert_eq!(report.experiments.len(), EXPERIMENTS.len());
    for experiment in &report.experiments {
        let measured = experiment.rows.iter().flat_map(|row| &row.measurements);
        assert!(measured.clone().count() > 0, "{} measured nothing", experiment.name);
        for known in measured {
            assert!(known.median.is_finite(), "{}: {known:?}", experiment.name);
        }
    }
    let space = report.experiment(construction::NAME).expect("ran");
    let guira = space.row("", "guira").and_then(|row| row.median(metric::BYTES_PER_KEY)).expect("measured");
    let chaining = space.row("", "chaining").and_then(|row| row.median(metric::BYTES_PER_KEY)).expect("measured");
    assert!(guira < 6.5 && (chaining - 13.33).abs() < 0.01, "{guira}, {chaining}");
    let text = std::fs::read_to_string(folder.path().join("engine.json")).expect("JSON");
    let back: Report = serde_json::from_str(&text).expect("reads back");
    assert_eq!(back.experiments.len(), report.experiments.len());
    let plots = std::fs::read_dir(folder.path()).expect("a folder").count() - 1;
    assert!(plots >= 2 * EXPERIMENTS.len(), "{plots} plots");
}

#[test]
fn unknown_names_and_threads_without_cores_are_refused() {
    let error = run(Options { only: vec!["typo".into()], ..Options::default() }).expect_err("must fail").to_string();
    assert!(error.contains("cache-space") && !error.contains('\n'), "{error}");
    let error = run(Options { threads: Some(100_000), ..Options::default() }).expect_err("must fail").to_string();
    assert!(error.contains("--threads") && !error.contains('\n'), "{error}");
}
