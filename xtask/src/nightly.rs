//! Compiler flags that only a nightly compiler takes. Where none can be had, the stable one takes them unlocked; the run says so.

use std::process::Command;

use crate::{run::Run, tool};

/// A compiler that takes such flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// The nightly one.
    Nightly,
    /// The stable one, unlocked.
    Unlocked,
}

impl Compiler {
    /// The nightly one, after trying to install it, or else the other.
    pub fn with_unstable_flags(run: &mut Run) -> Self {
        let there = |run: &Run| tool::answers(run, "rustup run nightly rustc --version");
        if there(run) {
            return Self::Nightly;
        }
        let install = run.command("rustup toolchain install nightly --profile minimal");
        if run.step("installing a nightly compiler", install).is_ok() && there(run) {
            return Self::Nightly;
        }
        println!("== no nightly compiler can be had; the stable one stands in (RUSTC_BOOTSTRAP=1)");
        Self::Unlocked
    }

    /// `cargo` with this command line.
    pub fn cargo(self, run: &Run, command_line: &str) -> Command {
        match self {
            Self::Nightly => run.command(&format!("rustup run nightly cargo {command_line}")),
            Self::Unlocked => {
                let mut command = run.command(&format!("cargo {command_line}"));
                command.env("RUSTC_BOOTSTRAP", "1");
                command
            }
        }
    }
}
