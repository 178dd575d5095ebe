//! Cargo's subcommands that chores need and `rustup` does not bring.

use std::process::Stdio;

use crate::run::{Failed, Run};

/// Installs `cargo-NAME` unless it is there.
///
/// # Errors
/// It is missing and cannot be installed.
pub fn cargo_subcommand(run: &mut Run, name: &str) -> Result<(), Failed> {
    if answers(run, &format!("cargo-{name} --version")) || answers(run, &format!("cargo {name} --version")) {
        return Ok(());
    }
    let mut install = run.command(&format!("cargo install cargo-{name} --locked"));
    // It runs for seconds and is compiled for minutes.
    install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
    install.env("CARGO_TARGET_DIR", run.target_dir().join("tools"));
    run.step(&format!("installing cargo-{name}"), install)?;
    Ok(())
}

/// Whether a command starts and succeeds; what it says is dropped.
pub fn answers(run: &Run, command_line: &str) -> bool {
    let mut command = run.command(command_line);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
