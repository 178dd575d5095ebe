//! `guira bench`: the experiments of crate `guira-bench`.

use std::ffi::OsString;

/// What follows `bench` on the command line.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs an experiment.
pub(crate) fn run(arguments: Arguments) -> Result<(), String> {
    let _ = arguments.arguments;
    Err("bench is not built into this program yet".into())
}
