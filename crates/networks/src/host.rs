//! What a host needs in a cluster whose network routes (`docs/design/0035`): addresses of its members, ways through the switch, and, with headers in IPv6 addresses,
//! routes for the gets that are its own.

use guira_routing::{Encoding, Ipv6Plan, MacAddress, MacPlan, NodeId};

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

/// A host, and its link to the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host<'h> {
    /// The interface.
    pub link: &'h str,
    /// The address that it is to have.
    pub mac: MacAddress,
    /// Who is on it.
    pub members: &'h [NodeId],
    /// What it takes.
    pub gets: Gets,
}

/// Lines for `ip`, that make a host. With headers in MAC addresses it has to know all members, and the interface of each one's host; those that have no address are
/// left out.
pub fn host_lines(encoding: Encoding, host: Host<'_>, all: &[(NodeId, MacAddress)]) -> Vec<String> {
    match encoding {
        Encoding::Ipv6(plan) => with_ipv6(plan, host),
        Encoding::Mac(plan) => with_mac(plan, host, all),
    }
}

fn with_ipv6(plan: Ipv6Plan, Host { link, mac, members, gets }: Host<'_>) -> Vec<String> {
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

fn with_mac(plan: MacPlan, Host { link, mac, members, gets }: Host<'_>, all: &[(NodeId, MacAddress)]) -> Vec<String> {
    // Gets are to no interface's address.
    let promiscuous = if gets == Gets::None { "off" } else { "on" };
    let up = ["link set lo up".to_owned(), format!("link set {link} address {mac} promisc {promiscuous} up")];
    let ip = |node: &NodeId| plan.ip(*node);
    let addresses =
        members.iter().filter_map(ip).map(|ip| format!("address add {ip}/{} dev {link}", MacPlan::PREFIX_LEN));
    let others = all.iter().filter(|(node, _)| !members.contains(node));
    let others = others.filter_map(|(node, mac)| Some((plan.ip(*node)?, mac)));
    let neighbours = others.map(|(ip, mac)| format!("neigh replace {ip} lladdr {mac} dev {link} nud permanent"));
    up.into_iter().chain(addresses).chain(neighbours).collect()
}
