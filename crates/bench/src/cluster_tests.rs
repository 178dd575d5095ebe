//! That flags that make no sense are told. The experiments need the program, and run tiny in `cargo xtask test`.

use super::*;

#[test]
fn unknown_names_and_senseless_flags_are_refused_in_one_line() {
    let refused = |options: Options| run(options).expect_err("must fail").to_string();
    let error = refused(Options { only: vec!["typo".into()], ..Options::default() });
    assert!(error.contains("killed-cache") && !error.contains('\n'), "{error}");
    let error = refused(Options { seconds: Some(0.0), ..Options::default() });
    assert!(error.contains("--seconds 0") && !error.contains('\n'), "{error}");
    let placement = Placement { guira: Some("/nowhere/guira".into()), ..Placement::default() };
    let error = refused(Options { placement, ..Options::default() });
    assert!(error.contains("/nowhere/guira") && !error.contains('\n'), "{error}");
    let error = refused(Options { dir: Some("/proc/nowhere".into()), ..Options::default() });
    assert!(error.contains("/proc/nowhere") && !error.contains('\n'), "{error}");
}

#[test]
fn without_valgrind_trackers_are_left_out_unless_they_are_wanted() {
    let missing = || BenchError::PeerMissing { peer: "valgrind", program: "/nowhere".into(), remedy: "install it" };
    let left = |mut chosen: Vec<_>, is_wanted| {
        let left_out = leave_out_trackers(&mut chosen, is_wanted, Err(missing()));
        left_out.map(|left_out| (chosen.len(), left_out)).map_err(|error| error.to_string())
    };
    let all = || EXPERIMENTS.iter().collect::<Vec<_>>();
    assert_eq!(left(all(), false), Ok((EXPERIMENTS.len() - 1, vec![format!("trackers: {}", missing())])));
    assert_eq!(left(all(), true), Err(missing().to_string()));
    assert_eq!(left(vec![&EXPERIMENTS[0]], true), Ok((1, Vec::new())));
}
