//! What experiments need of the machine, and what is said where that is not there.

use std::process::Command;

use guira_networks::{may_have_networks, run};
use guira_xdp::{Action, Frames, Links, Router, RouterConfig};

use super::packets;
use super::rule_set::{GETS_PORT, RuleSet};

/// Whether an experiment is possible here.
///
/// # Errors
/// What is missing, in one line.
pub(super) fn check(experiment: &str) -> Result<(), String> {
    may_have_networks().map_err(|told| format!("it needs network namespaces, which root may have ({told})"))?;
    guira_xdp::check(RuleSet::encoding()).map_err(|told| format!("it needs an XDP program: {told}"))?;
    if experiment == packets::NAME { live_frames() } else { open_vswitch().map(drop) }
}

/// Whether the kernel shows a program frames that leave.
///
/// # Errors
/// It does not.
fn live_frames() -> Result<(), String> {
    let links = Links::Between(Vec::new());
    let config = RouterConfig { encoding: RuleSet::encoding(), gets_port: GETS_PORT, rules_max: 1, links, mode: None };
    let router = Router::start_with(config, Action::Drop).map_err(|told| format!("it needs an XDP program: {told}"))?;
    let shown = router.try_frame(&[0; FRAME_LEN], 1, Frames::Live, &mut []);
    shown.map(drop).map_err(|error| format!("it needs trials whose frames leave, which Linux has since 5.18 ({error})"))
}

/// The shortest that Ethernet has, without its sum.
const FRAME_LEN: usize = 60;

/// Open vSwitch as it calls itself, with its version.
///
/// # Errors
/// It is not installed.
pub(super) fn open_vswitch() -> Result<String, String> {
    let told = run(Command::new("ovs-vswitchd").arg("--version"))?;
    Ok(told.lines().next().unwrap_or_default().replace("ovs-vswitchd (Open vSwitch)", "Open vSwitch"))
}
