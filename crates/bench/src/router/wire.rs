//! The program in the kernel on links of a box, whose other ends are a host's that takes all frames in and counts them.
//!
//! ```text
//! box: program on port1 .. port5 ==== far1 .. far5 :host
//! ```
//! Always true: nobody else sends anything there, so that what arrives is what the program has sent.

use std::time::{Duration, Instant};

use guira_networks::Namespace;
use guira_openflow::Port;
use guira_xdp::{Action, Link, Links, Mode, Router, RouterConfig};

use super::bench::namespace;
use super::rule_set::{GETS_PORT, PORTS, RuleSet, mac};
use crate::error::BenchError;

/// Until what was sent has arrived, far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// The box and the host, and the links between them.
pub(super) struct Wire {
    near: Namespace,
    far: Namespace,
}

impl Wire {
    /// Links that are up.
    pub fn new() -> Result<Self, BenchError> {
        let (near, far) = (namespace()?, namespace()?);
        for end in [&near, &far] {
            // A link that comes up would say something by itself.
            end.within(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"))
                .map_err(|source| BenchError::System { doing: "having links of a namespace without IPv6", source })?;
        }
        let holder = far.holder();
        let make = (1..=PORTS).flat_map(|port| {
            [
                format!("link add port{port} type veth peer name far{port} address {} netns {holder}", mac(port)),
                format!("link set port{port} up"),
            ]
        });
        near.ip_all(["link set lo up".to_owned()].into_iter().chain(make)).map_err(BenchError::Invalid)?;
        far.ip_all((1..=PORTS).map(|port| format!("link set far{port} up"))).map_err(BenchError::Invalid)?;
        Ok(Self { near, far })
    }

    /// The program on the box's ends.
    pub fn router(&self, rules_max: u64, action: Action, mode: Option<Mode>) -> Result<Router, BenchError> {
        start(&self.near, "port", rules_max, action, mode)
    }

    /// Has frames taken in at the host's ends as soon as they arrive, for as long as what is returned is there.
    pub fn drops(&self) -> Result<Router, BenchError> {
        start(&self.far, "far", 1, Action::Drop, Some(Mode::Driver))
    }

    /// What is done on the box.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.near.within(act)
    }

    /// Frames that have arrived by each link.
    pub fn arrived(&self) -> Result<Vec<u64>, BenchError> {
        let told = self.far.within(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        let told = told.map_err(|source| BenchError::System { doing: "asking links how many frames came", source })?;
        Ok((1..=PORTS).map(|port| packets_received(&told, &format!("far{port}")).unwrap_or(0)).collect())
    }

    /// Waits until so many more frames have arrived than `before`.
    pub fn expect_arrived(&self, before: &[u64], frames: u64) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let arrived: u64 = self.arrived()?.iter().zip(before).map(|(now, then)| now - then).sum();
            if arrived == frames {
                return Ok(());
            }
            if Instant::now() > deadline || arrived > frames {
                return Err(BenchError::Invalid(format!("of {frames} frames that were sent {arrived} have arrived")));
            }
            std::thread::yield_now();
        }
    }
}

fn start(
    namespace: &Namespace,
    links: &str,
    rules_max: u64,
    action: Action,
    mode: Option<Mode>,
) -> Result<Router, BenchError> {
    let link = |port| Link { port: Port(port), name: format!("{links}{port}") };
    let config = RouterConfig {
        encoding: RuleSet::encoding(),
        gets_port: GETS_PORT,
        rules_max: u32::try_from(rules_max).unwrap_or(u32::MAX),
        links: Links::Between((1..=PORTS).map(link).collect()),
        mode,
    };
    let started = namespace.within(|| Router::start_with(config, action));
    started.map_err(|error| BenchError::Invalid(error.to_string()))
}

/// Of a link, as `/proc/net/dev` tells it.
fn packets_received(told: &str, link: &str) -> Option<u64> {
    let of_link = |line: &str| Some(line.trim_start().strip_prefix(link)?.strip_prefix(':')?.to_owned());
    told.lines().find_map(of_link)?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_has_received_is_told_behind_its_name() {
        let told = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n    \
                    lo: 1 2 0 0 0 0 0 0 3 4 0\n  far1: 17640 180 0 0 0 0 0 0 98 1 0\n far12:5 6 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(packets_received(told, "far1"), Some(180));
        assert_eq!(packets_received(told, "far12"), Some(6));
        assert_eq!(packets_received(told, "far2"), None);
    }
}
