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

/// A parameter that was chosen holds for all sweeps, and the one that varies it has that one step.
#[test]
fn chosen_parameters_hold_for_every_sweep() {
    let folder = tempfile::tempdir().expect("a folder");
    let extent = Extent { tiny: true, out: Some(folder.path().into()), ..Extent::default() };
    let (working_set, capacity, inserts) = (Some(2), Some(40), Some(10));
    let (eviction, partitions, server_threads) = (Some(guira_cphash::Eviction::Random), Some(64), Some(1));
    let chosen = Parameters { working_set, capacity, inserts, batch: Some(50), eviction, partitions, server_threads };
    let cores = Bench::new(None, &extent).expect("cores");
    let of_all: Vec<String> =
        cores.thread_counts().iter().map(|count| format!("{count} of {} cores", cores.cores.len())).collect();
    let sweeps = [
        ("working-sets", vec!["random, 2 MB"]),
        ("capacities", vec!["40 % of the working set"]),
        ("insert-ratios", vec!["10 %"]),
        ("batches", vec!["50"]),
        ("partitions", vec!["64"]),
        ("server-threads", vec!["1"]),
        ("cores", of_all.iter().map(String::as_str).collect()),
    ];
    let only = sweeps.iter().map(|(name, _)| (*name).to_owned()).collect();
    let report = run(Options { only, extent: extent.clone(), parameters: chosen, ..Options::default() }).expect("runs");
    for (name, variants) in sweeps {
        let experiment = report.experiment(name).expect("ran");
        assert!(experiment.workload.contains("10 % inserts, batches of 50, random eviction, room for 40 %"), "{name}");
        let mut found: Vec<&str> = experiment.rows.iter().map(|row| row.variant.as_str()).collect();
        found.dedup();
        assert_eq!(found, variants, "{name}");
        assert!(experiment.rows.iter().all(|row| row.peer != "dashmap"), "{name}: it evicts nothing");
    }
    for (flag, chosen) in [
        ("--working-set 0", Parameters { working_set: Some(0), ..Parameters::default() }),
        ("--capacity 101", Parameters { capacity: Some(101), ..Parameters::default() }),
        ("--inserts 200", Parameters { inserts: Some(200), ..Parameters::default() }),
        ("--batch 0", Parameters { batch: Some(0), ..Parameters::default() }),
        ("--server-threads 9999", Parameters { server_threads: Some(9_999), ..Parameters::default() }),
        ("--partitions 3", Parameters { partitions: Some(3), ..Parameters::default() }),
        ("--partitions 65536", Parameters { partitions: Some(1 << 16), ..Parameters::default() }),
    ] {
        let options = Options { extent: extent.clone(), parameters: chosen, ..Options::default() };
        let error = run(options).expect_err("must fail").to_string();
        assert!(error.contains(flag) && !error.contains('\n'), "{error}");
    }
}

/// A chosen parameter that only one experiment's memory turns out too small for.
#[test]
fn what_was_measured_is_kept_when_a_later_experiment_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let extent = Extent { tiny: true, out: Some(folder.path().into()), ..Extent::default() };
    let parameters = Parameters { partitions: Some(1 << 15), ..Parameters::default() };
    let only = vec!["rings".to_owned(), "partitions".to_owned()];
    let error = run(Options { only, extent, parameters, ..Options::default() }).expect_err("too many").to_string();
    assert!(error.contains("partitions") && !error.contains('\n'), "{error}");
    let kept = std::fs::read_to_string(folder.path().join("engine.json")).expect("kept");
    assert!(kept.contains("\"rings\""), "{kept}");
}
