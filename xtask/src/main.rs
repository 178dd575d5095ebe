//! Guira's chores: `cargo xtask check | test | model | sanitize | sim | fuzz | deny | bench`.
//!
//! Always true: a chore stops at its first failing step, or once what runs beside it has ended, with a non-zero exit; every step prints what it runs and how long
//! it took, and the last line sums what the test runner counted: `N passed, N failed`.
#![forbid(unsafe_code)]

mod bench;
mod cassandra_nodes;
mod check;
mod deny;
mod fuzz;
mod model;
mod nightly;
mod program;
mod run;
mod sanitize;
mod sim;
mod test;
mod tool;

use std::process::ExitCode;

use run::{Failed, Run};

const USAGE: &str = "\
usage: cargo xtask CHORE

  check                          formatting, clippy and documentation, warnings being errors
  test                           everything CI runs: check, the tests, model, sanitize, sim, fuzz, deny, tiny benchmarks
  test --cassandra               the tests with three nodes of Cassandra, one of which is killed
  model                          loom's exhaustive interleavings of the kernels, shuttle's random schedules of table, map and CPHASH, the cluster's models
  sanitize                       the tests of the crates with unsafe code under AddressSanitizer
  sim [ARGUMENTS...]             `guira sim ARGUMENTS...`; without any: the hours of CI
  fuzz [--runs N] [TARGET...]    each fuzz target for N runs (default: CI's number)
  deny                           licences, bans and sources of the dependencies; advisories where the network allows
  bench ARGUMENTS...             `guira bench ARGUMENTS...`, optimised (see `cargo xtask bench --help`)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => ("", arguments.as_slice()),
    };
    let mut run = Run::in_workspace();
    let outcome = match chore {
        "bench" => return exit_code(&bench::bench(&mut run, rest)),
        "fuzz" => fuzz::fuzz(&mut run, rest),
        "sim" => sim::sim(&mut run, rest),
        "test" if rest == ["--cassandra"] => cassandra_nodes::test(&mut run, cassandra_nodes::Suite::Three),
        "check" | "test" | "model" | "sanitize" | "deny" if !rest.is_empty() => Err(Failed::usage(USAGE)),
        "check" => check::check(&mut run),
        "test" => test::test(&mut run),
        "model" => model::model(&mut run),
        "sanitize" => sanitize::sanitize(&mut run),
        "deny" => deny::deny(&mut run),
        _ => Err(Failed::usage(USAGE)),
    };
    let code = exit_code(&outcome);
    println!("{}", run.closing_line(&outcome));
    code
}

fn exit_code(outcome: &Result<(), Failed>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("xtask: {failed}");
            ExitCode::FAILURE
        }
    }
}
