//! What a host needs in a cluster with headers in IPv6 addresses (`docs/design/0035`): addresses of its members, a route through the switch, and routes for the gets
//! that are its own.

use guira_routing::{Ipv6Plan, MacAddress, NodeId};

/// A neighbour that is nobody: what is sent through it has its address, and a switch says whose frame it is.
const NEIGHBOUR: &str = "fe80::ff";
const NEIGHBOUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xff]);

/// The gets that a host takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gets {
    /// None. A gateway's host has to be such a one, or what it asks would never leave it.
    None,
    /// Those of a backend's keys.
    Of(NodeId),
    /// All: it has a cache node.
    All,
}

/// Lines for `ip`, that make the host of these members of one that has a link to the switch.
pub fn host_lines(plan: Ipv6Plan, link: &str, mac: MacAddress, members: &[NodeId], gets: Gets) -> Vec<String> {
    let up = ["link set lo up".to_owned(), format!("link set {link} address {mac} up")];
    let addresses = members.iter().map(|node| format!("address add {} dev {link} nodad", plan.member_prefix(*node)));
    let through = [
        format!("neigh replace {NEIGHBOUR} lladdr {NEIGHBOUR_MAC} dev {link} nud permanent"),
        format!("route replace {} via {NEIGHBOUR} dev {link}", plan.prefix()),
    ];
    let owned = match gets {
        Gets::None => None,
        Gets::Of(backend) => Some(plan.gets_of_prefix(backend)),
        Gets::All => Some(plan.gets_prefix()),
    };
    let owned = owned.map(|prefix| format!("route add local {prefix} dev lo"));
    up.into_iter().chain(addresses).chain(through).chain(owned).collect()
}
