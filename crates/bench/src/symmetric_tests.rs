//! That flags that make no sense are told. The experiments need the program, and run tiny in `cargo xtask test`.

use super::*;

#[test]
fn unknown_names_and_senseless_flags_are_refused_in_one_line() {
    let refused = |options: Options| run(options).expect_err("must fail").to_string();
    let error = refused(Options { only: vec!["typo".into()], ..Options::default() });
    assert!(error.contains("failover") && !error.contains('\n'), "{error}");
    let error = refused(Options { seconds: Some(0.0), ..Options::default() });
    assert!(error.contains("--seconds 0") && !error.contains('\n'), "{error}");
    let placement = Placement { guira: Some("/nowhere/guira".into()), ..Placement::default() };
    let error = refused(Options { placement, ..Options::default() });
    assert!(error.contains("/nowhere/guira") && !error.contains('\n'), "{error}");
    let error = refused(Options { dir: Some("/proc/nowhere".into()), ..Options::default() });
    assert!(error.contains("/proc/nowhere") && !error.contains('\n'), "{error}");
}

#[test]
fn what_a_binary_of_another_build_lacks_is_told_if_it_was_asked_for_and_left_out_if_not() {
    // It is a program, and knows of no cluster.
    let placement = Placement { guira: Some("/bin/true".into()), ..Placement::default() };
    let options = Options { placement, ..Options::default() };
    let report = run(options.clone()).expect("nothing was asked for by name");
    assert!(report.experiments.is_empty());
    assert_eq!(report.left_out.len(), EXPERIMENTS.len(), "{:?}", report.left_out);
    assert!(report.left_out.iter().all(|why| why.contains("--guira")), "{:?}", report.left_out);
    let error = run(Options { only: vec![shard::NAME.into()], ..options }).expect_err("it was").to_string();
    assert!(
        error.contains("cluster up --topology symmetric") && error.contains("--guira") && !error.contains('\n'),
        "{error}"
    );
}
