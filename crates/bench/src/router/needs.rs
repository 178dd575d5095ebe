//! What experiments need of the machine, and what is said where that is not there.

use std::process::Command;

use guira_networks::{may_have_networks, run};

use super::packets;
use super::rule_set::RuleSet;

/// Whether an experiment is possible here.
///
/// # Errors
/// What is missing, in one line.
pub(super) fn check(experiment: &str) -> Result<(), String> {
    may_have_networks().map_err(|told| format!("it needs network namespaces, which root may have ({told})"))?;
    guira_xdp::check(RuleSet::encoding()).map_err(|told| format!("it needs an XDP program: {told}"))?;
    if experiment == packets::NAME { Ok(()) } else { open_vswitch().map(drop) }
}

/// Open vSwitch as it calls itself, with its version.
///
/// # Errors
/// It is not installed.
pub(super) fn open_vswitch() -> Result<String, String> {
    let told = run(Command::new("ovs-vswitchd").arg("--version"))?;
    Ok(told.lines().next().unwrap_or_default().replace("ovs-vswitchd (Open vSwitch)", "Open vSwitch"))
}
