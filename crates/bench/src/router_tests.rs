//! That flags that make no sense are told, and that what is not possible is left out. The experiments need the program and root's rights, and run tiny in
//! `cargo xtask test`.

use super::*;

#[test]
fn unknown_names_and_senseless_flags_are_refused_in_one_line() {
    let refused = |options: Options| run(options).expect_err("must fail").to_string();
    let error = refused(Options { only: vec!["typo".into()], ..Options::default() });
    assert!(error.contains("agreement") && !error.contains('\n'), "{error}");
    let error = refused(Options { seconds: Some(0.0), ..Options::default() });
    assert!(error.contains("--seconds 0") && !error.contains('\n'), "{error}");
    let placement = Placement { guira: Some("/nowhere/guira".into()), ..Placement::default() };
    let error = refused(Options { placement, ..Options::default() });
    assert!(error.contains("/nowhere/guira") && !error.contains('\n'), "{error}");
}

#[test]
fn what_is_not_possible_here_is_left_out_unless_it_is_asked_for_by_name() {
    let check = |name: &str| if name == packets::NAME { Ok(()) } else { Err("there is no switch".to_owned()) };
    let all = || EXPERIMENTS.iter().collect::<Vec<_>>();
    let (possible, left_out) = leave_out(all(), false, check).expect("none was asked for");
    assert_eq!(possible.iter().map(|experiment| experiment.name).collect::<Vec<_>>(), [packets::NAME]);
    assert_eq!(left_out, ["updates: there is no switch", "agreement: there is no switch"]);
    let error = leave_out(all(), true, check).map(|_| ()).expect_err("all were").to_string();
    assert_eq!(error, "updates: there is no switch");
}
