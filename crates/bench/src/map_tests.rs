//! The experiments end to end, tiny, so that they cannot rot.

use super::*;
use crate::experiment::check::everything_was_measured_and_drawn;

fn tiny() -> Options {
    let extent = Extent { tiny: true, ..Extent::default() };
    Options { extent, in_this_process: true, ..Options::default() }
}

#[test]
fn a_tiny_run_measures_everything_and_draws_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let extent = Extent { tiny: true, out: Some(folder.path().into()), ..Extent::default() };
    let report = run(Options { extent, ..tiny() }).expect("runs");
    everything_was_measured_and_drawn(&report, &EXPERIMENTS, folder.path());
    let lookups = report.experiment(lookups::NAME).expect("ran");
    for peer in ["dashmap", "scc", "papaya", "rwlock", "mutex", "tbb", "hopscotch", "hopscotch-alone", "no-map"] {
        let rate = lookups.row("hits, 1 thread", peer).and_then(|row| row.median(metric::OPERATIONS));
        assert!(rate.is_some_and(|rate| rate > 0.0), "{peer}: {:?}", report.setting.notes);
    }
    let highest = report.experiment(mixes::NAME).and_then(|mixes| mixes.row("half inserts", "guira"));
    assert!(highest.and_then(|row| row.median(metric::HIGHEST)).is_some_and(|rate| rate > 0.0));
    let mixes = report.experiment(mixes::NAME).expect("ran");
    let elided = mixes.row("50 % updates, 1 thread", contender::ELIDED);
    let is_left_out = report.setting.notes.iter().any(|note| note.contains("elided"));
    assert_ne!(elided.is_some(), is_left_out, "{:?}", report.setting.notes);
    let occupancy = report.experiment(occupancy::NAME).expect("ran");
    assert!(occupancy.row("misses, 95 %", "hopscotch-alone").is_some());
}

#[test]
fn unknown_names_and_sizes_out_of_range_are_refused() {
    let refused = |options: Options| run(options).expect_err("must fail").to_string();
    let error = refused(Options { only: vec!["typo".into()], ..tiny() });
    assert!(error.contains("insert-tail") && !error.contains('\n'), "{error}");
    let error = refused(Options { peers: vec!["typo".into()], ..tiny() });
    assert!(error.contains("papaya") && !error.contains('\n'), "{error}");
    let error = refused(Options { peers: vec!["stripes-16".into()], ..tiny() });
    assert!(error.contains("papaya"), "an experiment's own map: {error}");
    let error = refused(Options { keys: Some(3), ..tiny() });
    assert!(error.contains("--keys") && !error.contains('\n'), "{error}");
    let error = refused(Options { threads: Some(100_000), ..tiny() });
    assert!(error.contains("--threads") && !error.contains('\n'), "{error}");
}
