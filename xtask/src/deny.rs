//! `deny`: licences, bans and sources of the dependencies, always; known advisories where their database can be fetched.

use crate::{
    run::{Failed, Run},
    tool,
};

/// Runs cargo-deny.
///
/// # Errors
/// It finds something, or is missing and cannot be installed.
pub fn deny(run: &mut Run) -> Result<(), Failed> {
    tool::cargo_subcommand(run, "deny")?;
    let check = run.command("cargo deny --locked check licenses bans sources");
    run.step("licences, bans, sources", check)?;

    if tool::answers(run, "timeout 60 cargo deny --locked fetch db") {
        let advisories = run.command("cargo deny --locked check --disable-fetch advisories");
        run.step("advisories", advisories)?;
    } else {
        println!(
            "== advisories: NOT CHECKED, their database (github.com/rustsec/advisory-db) cannot be fetched from here"
        );
    }
    Ok(())
}
