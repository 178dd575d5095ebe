//! The network of `--router openflow` and `--router xdp`: a host for each cache node and backend, and an Open vSwitch between them, or a router of ours.
//!
//! ```text
//! here: gateways, controller -- link --- port 1 \
//!                            \- link ------------ the router's namespace; it calls the controller by the second link
//! namespace of cache node 100 -- eth0 -- port 2 /
//! namespace of backend 1000 ---- eth0 -- port 3 ...
//! ```
//! Of several switches, in a ring, each in a namespace of its own, the first has the link to here; hosts of others are dealt out to all of them.
//! Always true: nobody else's links, routes or switches are touched; all of it is gone with this process, however that ends: namespaces with those who hold them, and links
//! with their namespaces.

mod running_router;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    process::Command,
};

use guira_networks::{Gets, Host, Namespace, OpenVswitch, host_lines, ip_all, may_have_networks, run};
use guira_openflow::{DatapathId, RulesOfKeys};
use guira_routing::{Encoding, Ipv6Plan, MacAddress, MacPlan, NodeId, Prefix};
use guira_switched::{JoinedSwitch, Link, Member, Network, Plug, Role, Router, StaticFile};

use self::running_router::Route;
pub(super) use self::running_router::RunningRouter;
use super::{At, CONTROLLER};
use crate::node::RouterArguments;

/// The port of each member.
const MEMBER_PORT: u16 = 7_000;

/// The port of gets: no member's, however many threads that has.
const GETS_PORT: u16 = 6_999;

/// OpenFlow's own.
const SWITCHES_PORT: u16 = 6_653;

/// The interface of a host.
const LINK: &str = "eth0";

/// Says whether this namespace does without IPv6.
const IPV6_IS_OFF: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";

/// The kind of addresses, behind a cluster's prefix, of the link between the switch and this namespace: no member's, and no get's.
const MANAGEMENT_KIND: u16 = 2;

/// The hosts of members, without those that are here.
pub(super) struct Hosts(BTreeMap<u16, Namespace>);

impl Hosts {
    /// The command as it runs on a member's host.
    pub(super) fn command(&self, id: u16, program: &Path) -> Command {
        self.0.get(&id).map_or_else(|| Command::new(program), |host| host.command(program))
    }
}

/// What routes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) router: Router,
    pub(super) headers: Headers,
    /// Switches, in a ring.
    pub(super) switches: u16,
    /// Which of them have the rules of keys, if there are several.
    pub(super) rules: RulesOfKeys,
}

/// How headers are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Headers {
    /// In IPv6 addresses.
    Ipv6,
    /// In MAC addresses.
    Mac,
}

/// Gives members addresses and ports of switches, and says what network that is.
pub(super) fn plan(members: &mut [Member], shape: Shape) -> Result<Network, String> {
    let Shape { router, headers, switches, rules } = shape;
    let drawn = |error| format!("cannot draw a prefix: {error}");
    let ipv6 = draw_ipv6_plan().map_err(drawn)?;
    let encoding = match headers {
        Headers::Ipv6 => Encoding::Ipv6(ipv6),
        Headers::Mac => Encoding::Mac(draw_mac_plan().map_err(drawn)?),
    };
    let is_joined = switches > 1;
    let mut port = PORT_HERE;
    // The second member elsewhere is at the second switch.
    let mut turns = (1..=switches).cycle();
    for member in members {
        let node = NodeId(member.id);
        let (host, switch_port, switch) = if is_here(&member.role) {
            (NodeId(CONTROLLER), PORT_HERE, 1)
        } else {
            port += 1;
            (node, port, turns.next().unwrap_or(1))
        };
        let (address, mac) = match encoding {
            Encoding::Ipv6(plan) => (plan.member(node).into(), mac(host)),
            Encoding::Mac(plan) => {
                let ip = plan.ip(node).ok_or_else(|| format!("member {}: no address", node.0))?;
                (ip.into(), MacAddress::of_member(host))
            }
        };
        member.address = SocketAddr::new(address, MEMBER_PORT);
        let switch = is_joined.then(|| datapath(switch));
        member.plug = Plug { mac: Some(mac), switch_port: Some(switch_port), switch };
    }
    let network = Network::new(router, encoding, GETS_PORT, SocketAddr::new(management(ipv6).into(), SWITCHES_PORT));
    let joined = if is_joined { in_a_ring(switches, port) } else { Vec::new() };
    Ok(Network { rules, joined, ..network })
}

/// Each joined to the next, and the last to the first, by ports behind that one.
fn in_a_ring(switches: u16, last_port: u32) -> Vec<JoinedSwitch> {
    // To the one before, and to the one behind.
    let ports = |switch: u16| [1, 2].map(|at| last_port + 2 * u32::from(switch) + at);
    let joined = |switch: u16| {
        let [before, behind] = ports(switch);
        let (last, next) = (if switch == 1 { switches } else { switch - 1 }, switch % switches + 1);
        let to = |port, to| Link { port, to: datapath(to) };
        let mut links = vec![to(before, last), to(behind, next)];
        // Two make no ring: they have one link.
        if switches == 2 {
            links.retain(|link| (link.port == behind) == (switch == 1));
        }
        JoinedSwitch { datapath: datapath(switch), links }
    };
    (1..=switches).map(joined).collect()
}

/// Of the switch of that number.
fn datapath(switch: u16) -> DatapathId {
    DatapathId(switch.into())
}

/// The switch's port that leads here.
const PORT_HERE: u32 = 1;

/// Whoever clients or operators speak to.
fn is_here(role: &Role) -> bool {
    matches!(role, Role::Controller | Role::Gateway { .. })
}

fn mac(NodeId(node): NodeId) -> MacAddress {
    let [high, low] = node.to_be_bytes();
    // Locally given, and of none of the kinds that headers in MAC addresses are of.
    MacAddress([2, 0, 0, 0, high, low])
}

/// A prefix that no other cluster has, or hardly ever.
fn draw_ipv6_plan() -> io::Result<Ipv6Plan> {
    let [a, b, c] = draw()?;
    let address = Ipv6Addr::from_bits(u128::from(u32::from_be_bytes([0xfd, a, b, c])) << 96);
    Ipv6Plan::new(Prefix { address, len: Ipv6Plan::PREFIX_LEN }).map_err(io::Error::other)
}

/// A prefix into which nothing leads from here: of so few another cluster may have it.
fn draw_mac_plan() -> io::Result<MacPlan> {
    let routes = fs::read_to_string("/proc/net/route")?;
    for _ in 0..PREFIXES_DRAWN {
        let [drawn] = draw()?;
        let address = Ipv4Addr::new(10, drawn, 0, 0);
        if !leads_into(&routes, address) {
            return MacPlan::new(Prefix { address, len: MacPlan::PREFIX_LEN }).map_err(io::Error::other);
        }
    }
    Err(io::Error::other("routes lead into all of 10.0.0.0/8 that was tried; --encoding ipv6 needs none of that"))
}

/// How many prefixes are tried: with half of 10.0.0.0/8 in use one is free all but surely.
const PREFIXES_DRAWN: usize = 64;

/// Whether a route (as `/proc/net/route` has them) leads into a /16, or is one for more than that and not for all.
fn leads_into(routes: &str, prefix: Ipv4Addr) -> bool {
    // Written as numbers of this machine, of bytes that are in the network's order.
    let address = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::from_be);
    routes.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace();
        let (to, mask) = (fields.nth(1).and_then(address), fields.nth(5).and_then(address));
        let (Some(to), Some(mask)) = (to, mask) else { return false };
        let common = mask & 0xffff_0000;
        mask != 0 && (to ^ prefix.to_bits()) & common == 0
    })
}

fn draw<const N: usize>() -> io::Result<[u8; N]> {
    let mut drawn = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut drawn)?;
    Ok(drawn)
}

/// The end here of the link between the router and this namespace; the other one's address is the next.
fn management(plan: Ipv6Plan) -> Ipv6Addr {
    let prefix = plan.prefix().address.to_bits();
    Ipv6Addr::from_bits(prefix | u128::from(MANAGEMENT_KIND) << 80 | 1)
}

/// Makes the network of a cluster, in whose folder a switch writes. A router that is none is still to be begun.
pub(super) fn make(at: &At, file: &StaticFile) -> Result<(RunningRouter, Hosts), String> {
    let network = file.network.as_ref().ok_or("the cluster has no network")?;
    let (encoding, which) = (network.encoding, network.router);
    let (name, without) = (which.name(), "; --router gateway needs none of that");
    may_have_networks().map_err(|told| {
        format!("--router {name}: {told}: it takes root's rights, and the programs ip and unshare{without}")
    })?;
    if fs::read_to_string(IPV6_IS_OFF).is_ok_and(|is_off| is_off.trim() == "1") {
        return Err(format!("--router {name}: IPv6 is off here: sysctl -w net.ipv6.conf.all.disable_ipv6=0{without}"));
    }
    if which == Router::Xdp {
        guira_xdp::check(encoding).map_err(|error| format!("--router {name}: {error}{without}"))?;
    }
    let count = network.joined.len().max(1);
    let places: Vec<Namespace> = (0..count).map(|_| Namespace::new()).collect::<Result<_, _>>()?;
    let start = |(number, place): (usize, &Namespace)| {
        let switch = OpenVswitch::start_in(place, &at.folder.join(switch_name(number)));
        switch.map_err(|told| format!("{told}{without}"))
    };
    let switches = if which == Router::Openflow { &places[..] } else { &[] };
    let switches: Vec<OpenVswitch> = (1..).zip(switches).map(start).collect::<Result<_, _>>()?;
    let links = Links::of(&at.folder, count);
    let all = file.members.iter().filter_map(|member| Some((NodeId(member.id), member.plug.mac?)));
    let all: Vec<(NodeId, MacAddress)> = all.collect();
    let (here, hosts): (Vec<_>, Vec<_>) = file.members.iter().partition(|member| is_here(&member.role));
    link_here(&links, network.switches, &places)?;
    let members: Vec<NodeId> = here.iter().map(|member| NodeId(member.id)).collect();
    if let Some(mac) = here.iter().find_map(|member| member.plug.mac) {
        let host = Host { link: &links.members, mac, members: &members, gets: Gets::None };
        ip_all(host_lines(encoding, host, &all))?;
    }
    set_up_end(|| Command::new("ethtool"), &links.members)?;
    let at_switch = |datapath: Option<DatapathId>| {
        network.joined.iter().position(|switch| Some(switch.datapath) == datapath).unwrap_or(0)
    };
    // Of each switch, or of what is none.
    let mut ports: Vec<Vec<(u32, String)>> = vec![Vec::new(); count];
    ports[0].push((PORT_HERE, port_name(PORT_HERE)));
    for (at, switch) in network.joined.iter().enumerate() {
        ports[at].extend(switch.links.iter().map(|link| (link.port, port_name(link.port))));
        join_to_those_behind(&network.joined, at, &places)?;
    }
    let mut made = BTreeMap::new();
    for member in hosts {
        let (Some(port), Some(mac)) = (member.plug.switch_port, member.plug.mac) else { continue };
        let host = Namespace::new()?;
        let name = port_name(port);
        let at = at_switch(member.plug.switch);
        places[at].ip_all([
            format!("link add {name} type veth peer name {LINK} netns {}", host.holder()),
            format!("link set {name} up"),
        ])?;
        let node = NodeId(member.id);
        let gets = if matches!(member.role, Role::Backend(_)) { Gets::Of(node) } else { Gets::All };
        host.ip_all(host_lines(encoding, Host { link: LINK, mac, members: &[node], gets }, &all))?;
        set_up_end(|| host.command("ethtool"), LINK)?;
        ports[at].push((port, name));
        made.insert(member.id, host);
    }
    let mut routes = Vec::new();
    for (at, (switch, ports)) in switches.into_iter().zip(&ports).enumerate() {
        if let Some(joined) = network.joined.get(at) {
            switch.set_datapath_id(joined.datapath.0)?;
        }
        switch.add_ports(ports.iter().map(|(port, name)| (name, *port)))?;
        switch.set_controller(network.switches)?;
        routes.push(Route::switch(switch));
    }
    if routes.is_empty() {
        routes.push(Route::router(RouterArguments::between(ports.concat())));
    }
    let at = At { folder: at.folder.clone() };
    Ok((RunningRouter::new(routes, links, places, at), Hosts(made)))
}

/// What a switch is called, and its folder.
fn switch_name(number: usize) -> String {
    if number == 1 { "switch".to_owned() } else { format!("switch{number}") }
}

/// Makes the links that lead from a switch to those behind it.
fn join_to_those_behind(joined: &[JoinedSwitch], at: usize, places: &[Namespace]) -> Result<(), String> {
    let JoinedSwitch { datapath, links } = &joined[at];
    for link in links {
        let other = (at + 1..joined.len()).find(|other| joined[*other].datapath == link.to);
        let Some((other, back)) =
            other.and_then(|other| Some((other, joined[other].links.iter().find(|back| back.to == *datapath)?)))
        else {
            continue;
        };
        let ([port, peer], there) = ([link, back].map(|link| port_name(link.port)), &places[other]);
        let add = format!("link add {port} type veth peer name {peer} netns {}", there.holder());
        places[at].ip_all([add, format!("link set {port} up")])?;
        there.ip_all([format!("link set {peer} up")])?;
    }
    Ok(())
}

fn port_name(port: u32) -> String {
    format!("port{port}")
}

/// Joins this namespace to the switches': to the first by a link for members, and to each by one for itself.
fn link_here(links: &Links, controller: SocketAddr, places: &[Namespace]) -> Result<(), String> {
    let IpAddr::V6(controller) = controller.ip() else {
        return Err("the controller is not at the end of a link".into());
    };
    // Of one that was killed: nobody else is up in this folder.
    links.take_away();
    let (port, holder) = (port_name(PORT_HERE), places[0].holder());
    ip_all([format!("link add {} type veth peer name {port} netns {holder}", links.members)])?;
    places[0].ip_all([format!("link set {port} up")])?;
    for (at, (link, place)) in (0_u32..).zip(links.management.iter().zip(places)) {
        // Each a prefix of its own; the controller is at the first one's end.
        let here = Ipv6Addr::from_bits(controller.to_bits() | u128::from(at) << 64);
        let there = Ipv6Addr::from_bits(here.to_bits() + 1);
        ip_all([
            format!("link add {link} type veth peer name {LINK} netns {}", place.holder()),
            format!("address add {here}/64 dev {link} nodad"),
            format!("link set {link} up"),
        ])?;
        let way = (at > 0).then(|| format!("route add {controller} via {here}"));
        let lines = [
            "link set lo up".to_owned(),
            format!("address add {there}/64 dev {LINK} nodad"),
            format!("link set {LINK} up"),
        ];
        place.ip_all(lines.into_iter().chain(way))?;
    }
    Ok(())
}

/// Links that are here: their other ends are in switches' namespaces.
pub(super) struct Links {
    /// Of members that are here.
    members: String,
    /// Of each switch, or of the router: by which it calls the controller.
    management: Vec<String>,
}

impl Links {
    /// Names: of a folder the same, and of other folders others, or hardly ever the same.
    fn of(folder: &Path, switches: usize) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(folder) as u32;
        // Fifteen characters at most.
        let members = format!("guira{hash:08x}");
        let management = (1..=switches)
            .map(|number| if number == 1 { format!("{members}s") } else { format!("{members}s{number}") });
        Self { management: management.collect(), members }
    }

    /// Takes those away that are there.
    fn take_away(&self) {
        for link in self.management.iter().chain([&self.members]) {
            drop(ip_all([format!("link delete {link}")]));
        }
    }
}

/// They would go with the namespaces of their other ends, which go later than who has held them: whoever comes next is to find none.
impl Drop for Links {
    fn drop(&mut self) {
        self.take_away();
    }
}

/// Has a link's sender make its checksums, which would be left to hardware that is not there, and its receiver take frames that a driver sends on.
fn set_up_end(ethtool: impl Fn() -> Command, link: &str) -> Result<(), String> {
    run(ethtool().args(["-K", link, "tx", "off", "gro", "on"])).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn members_have_the_addresses_and_ports_of_their_network() {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let gateway =
            |port| Role::Gateway { listen: ([127, 0, 0, 1], port).into(), cache_mode: guira_switched::CacheMode::None };
        let roles =
            [(1, Role::Controller), (100, Role::CACHE), (1_000, Role::backend(Some(100))), (10_000, gateway(1))];
        let mut members: Vec<Member> = roles.map(|(id, role)| Member::new(id, nowhere, role)).into();
        let one = |headers| Shape { router: Router::Openflow, headers, switches: 1, rules: RulesOfKeys::Replicated };
        let parted = |switches| Shape { switches, rules: RulesOfKeys::Parted, ..one(Headers::Ipv6) };
        for shape in [one(Headers::Ipv6), one(Headers::Mac), parted(2), parted(8)] {
            let network = plan(&mut members, shape).unwrap();
            if let (Encoding::Ipv6(plan), IpAddr::V6(management)) = (network.encoding, network.switches.ip()) {
                assert_eq!(plan.header(management), None, "it is no member's");
            }
            let members = members.clone();
            let secret = "0123456789abcdef".into();
            let file = StaticFile { secret, network: Some(network), members, ..StaticFile::default() };
            file.check().unwrap();
            let ports: Vec<Option<u32>> = file.members.iter().map(|member| member.plug.switch_port).collect();
            assert_eq!(ports, [Some(1), Some(2), Some(3), Some(1)]);
            let at = file.members.iter().map(|member| member.plug.switch.map(|switch| switch.0));
            let expected = if shape.switches > 1 { [1, 1, 2, 1].map(Some) } else { [None; 4] };
            assert_eq!(at.collect::<Vec<_>>(), expected);
            let joined = &file.network.as_ref().unwrap().joined;
            assert_eq!(joined.len(), if shape.switches > 1 { shape.switches.into() } else { 0 });
        }
        assert_ne!(draw_ipv6_plan().unwrap(), draw_ipv6_plan().unwrap());
    }

    #[test]
    fn a_prefix_is_free_if_nothing_but_the_default_route_leads_there() {
        let routes = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
            eth0 00000000 0100070A 0003 0 0 0 00000000 0 0 0\n\
            eth0 0002070A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
            eth1 00004D0A 00000000 0001 0 0 0 0000FFFF 0 0 0\n\
            eth2 0000400A 00000000 0001 0 0 0 0000F0FF 0 0 0\n";
        for (second, is_taken) in [(7, true), (77, true), (78, true), (63, false), (64, true), (79, true), (80, false)]
        {
            assert_eq!(leads_into(routes, Ipv4Addr::new(10, second, 0, 0)), is_taken, "10.{second}");
        }
    }

    #[test]
    fn links_have_names_that_the_kernel_takes() {
        let [one, other] = ["/a", "/b"].map(|folder| Links::of(Path::new(folder), 8));
        let names = [one, other].map(|links| [vec![links.members.clone()], links.management.clone()].concat());
        let names: BTreeSet<String> = names.concat().into_iter().collect();
        assert_eq!(names.len(), 2 * 9);
        assert!(names.iter().all(|name| name.len() <= 15));
    }
}
