//! The experiments end to end, tiny, so that they cannot rot.

use super::*;

fn tiny() -> Options {
    let extent = Extent { tiny: true, ..Extent::default() };
    Options { extent, in_this_process: true, ..Options::default() }
}

#[test]
fn a_tiny_run_measures_everything_and_draws_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let extent = Extent { tiny: true, out: Some(folder.path().into()), ..Extent::default() };
    let report = run(Options { extent, ..tiny() }).expect("runs");
    assert_eq!(report.experiments.len(), EXPERIMENTS.len());
    for experiment in &report.experiments {
        let measured = experiment.rows.iter().flat_map(|row| &row.measurements);
        assert!(measured.clone().count() > 0, "{} measured nothing", experiment.name);
        for known in measured {
            assert!(known.median.is_finite(), "{}: {known:?}", experiment.name);
        }
    }
    let lookups = report.experiment(lookups::NAME).expect("ran");
    for peer in ["dashmap", "scc", "papaya", "rwlock", "mutex", "tbb", "hopscotch", "hopscotch-alone", "no-map"] {
        let rate = lookups.row("hits, 1 thread", peer).and_then(|row| row.median(metric::OPERATIONS));
        assert!(rate.is_some_and(|rate| rate > 0.0), "{peer}: {:?}", report.setting.notes);
    }
    let mixes = report.experiment(mixes::NAME).expect("ran");
    let elided = mixes.row("50 % updates, 1 thread", contender::ELIDED);
    let is_left_out = report.setting.notes.iter().any(|note| note.contains(contender::ELIDED));
    assert_ne!(elided.is_some(), is_left_out, "{:?}", report.setting.notes);
    let occupancy = report.experiment(occupancy::NAME).expect("ran");
    assert!(occupancy.row("misses, 95 %", "hopscotch-alone").is_some());
    let text = std::fs::read_to_string(folder.path().join("map.json")).expect("JSON");
    let back: Report = serde_json::from_str(&text).expect("reads back");
    assert_eq!(back.experiments.len(), report.experiments.len());
    let plots = std::fs::read_dir(folder.path()).expect("a folder").count() - 1;
    assert!(plots >= 2 * EXPERIMENTS.len(), "{plots} plots");
}

#[test]
fn unknown_names_and_sizes_out_of_range_are_refused() {
    let refused = |options: Options| run(options).expect_err("must fail").to_string();
    let error = refused(Options { only: vec!["typo".into()], ..tiny() });
    assert!(error.contains("insert-tail") && !error.contains('\n'), "{error}");
    let error = refused(Options { peers: vec!["typo".into()], ..tiny() });
    assert!(error.contains("papaya") && !error.contains('\n'), "{error}");
    let error = refused(Options { keys: Some(3), ..tiny() });
    assert!(error.contains("--keys") && !error.contains('\n'), "{error}");
    let error = refused(Options { threads: Some(100_000), ..tiny() });
    assert!(error.contains("--threads") && !error.contains('\n'), "{error}");
}
