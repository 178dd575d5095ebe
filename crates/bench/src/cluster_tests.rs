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
