//! The network of `--router openflow` and `--router xdp`: a host for each cache node and backend, and an Open vSwitch between them, or a router of ours.
//!
//! ```text
//! here: gateways, controller -- link --- port 1 \
//!                            \- link ------------ the router's namespace; it calls the controller by the second link
//! namespace of cache node 100 -- eth0 -- port 2 /
//! namespace of backend 1000 ---- eth0 -- port 3 ...
//! ```
//! Always true: nobody else's links, routes or switches are touched; all of it is gone with this process, however that ends: namespaces with those who hold them, and links
//! with their namespaces.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command},
    time::Instant,
};

use guira_networks::{Gets, Host, Namespace, OpenVswitch, host_lines, ip_all, may_have_networks, run};
use guira_routing::{Encoding, Ipv6Plan, MacAddress, MacPlan, NodeId, Prefix};
use guira_switched::{Member, Network, Plug, Role, Router, StaticFile};

use super::{
    At, CONTROLLER, ROUTER_ID,
    running::{START_AGAIN_AFTER, end_process},
    tell,
};
use crate::node::{ROUTER, RouterArguments};

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

/// What routes, which is started again when it ends.
pub(super) struct RunningRouter {
    routes: Routes,
    ended_at: Option<Instant>,
    restarts: u64,
    /// Here, taken away with it.
    links: [String; 2],
    /// Where its ports are: gone after it.
    place: Namespace,
    at: At,
}

enum Routes {
    /// A switch.
    Openflow(OpenVswitch),
    /// A process of this program, once it was begun, and what it is told.
    Xdp(Option<Child>, RouterArguments),
}

/// Namespaces go later than who has held them, and links with them: whoever comes next is to find none.
impl Drop for RunningRouter {
    fn drop(&mut self) {
        if let Routes::Xdp(Some(child), _) = &mut self.routes {
            end_process(child);
        }
        take_away(&self.links);
    }
}

/// Takes links away that may be there.
fn take_away(links: &[String]) {
    links.iter().for_each(|link| drop(ip_all([format!("link delete {link}")])));
}

impl RunningRouter {
    /// Where a router of ours is looked at, in the cluster's folder.
    const MANAGEMENT: &str = "router.mgmt";

    /// Begins what is no switch: members are known by then.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        let Routes::Xdp(child, arguments) = &mut self.routes else { return Ok(()) };
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = self.place.command(program);
        // What is typed at the terminal is for this process.
        command.process_group(0);
        command.args(["node", "--role", ROUTER, "--id"]).arg(ROUTER_ID.to_string());
        command.arg("--coordinator").arg(format!("static:{}", self.at.file().display()));
        command.arg("--status-socket").arg(self.at.node_socket(ROUTER_ID));
        command.arg("--management-socket").arg(self.at.folder.join(Self::MANAGEMENT));
        command.arg("--with-parent").arg(std::process::id().to_string()).args(arguments.words());
        *child = Some(command.spawn().map_err(|error| format!("cannot start the router: {error}"))?);
        Ok(())
    }

    /// Starts it again if it has ended, after a while.
    pub(super) fn look(&mut self) {
        let (what, ended) = match &mut self.routes {
            Routes::Openflow(switch) => ("the switch", switch.has_ended()),
            Routes::Xdp(child, _) => {
                let ended = child.as_mut().and_then(|child| child.try_wait().ok().flatten());
                if ended.is_some() {
                    *child = None;
                }
                ("the router", ended)
            }
        };
        if let Some(why) = ended {
            tell(&format!("{what} has ended ({why}), and is started again"));
            self.ended_at = Some(Instant::now());
        }
        if self.ended_at.is_some_and(|at| at.elapsed() >= START_AGAIN_AFTER) {
            self.ended_at = None;
            self.restarts += 1;
            if let Err(told) = self.start_again() {
                tell(&told);
                self.ended_at = Some(Instant::now());
            }
        }
    }

    fn start_again(&mut self) -> Result<(), String> {
        let Routes::Openflow(switch) = &mut self.routes else { return self.begin() };
        let started = switch.power_on();
        if started.is_err() {
            switch.power_off();
        }
        started
    }

    /// Its number, its process and how often it was started again, if it is one of ours.
    pub(super) fn process(&self) -> Option<(u16, Option<u32>, u64)> {
        match &self.routes {
            Routes::Openflow(_) => None,
            Routes::Xdp(child, _) => Some((ROUTER_ID, child.as_ref().map(Child::id), self.restarts)),
        }
    }

    /// What to look at, to see what goes where.
    pub(super) fn hints(&self) -> [String; 2] {
        let folder = &self.at.folder;
        let which = match &self.routes {
            Routes::Openflow(switch) => format!(
                "its switch is an Open vSwitch ({}): ovs-ofctl -O OpenFlow13 dump-flows {}",
                folder.join("switch/ovs-vswitchd.log").display(),
                switch.management()
            ),
            Routes::Xdp(..) => format!(
                "its router is an eBPF program on links: guira cluster status --folder {} says how many reads go by rules of keys, and how many to backends; ovs-ofctl -O OpenFlow13 dump-flows unix:{} (of Open vSwitch's tools) shows its rules",
                folder.display(),
                folder.join(Self::MANAGEMENT).display()
            ),
        };
        [
            which,
            format!(
                "what the host of a cache node or a backend sees: nsenter --net=/proc/PID/ns/net tcpdump -ni {LINK}"
            ),
        ]
    }
}

/// How headers are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Headers {
    /// In IPv6 addresses.
    Ipv6,
    /// In MAC addresses.
    Mac,
}

/// Gives members addresses and ports of a switch, and says what network that is.
pub(super) fn plan(members: &mut [Member], router: Router, headers: Headers) -> Result<Network, String> {
    let drawn = |error| format!("cannot draw a prefix: {error}");
    let ipv6 = draw_ipv6_plan().map_err(drawn)?;
    let encoding = match headers {
        Headers::Ipv6 => Encoding::Ipv6(ipv6),
        Headers::Mac => Encoding::Mac(draw_mac_plan().map_err(drawn)?),
    };
    let mut port = PORT_HERE;
    for member in members {
        let node = NodeId(member.id);
        let (host, switch_port) = if is_here(&member.role) {
            (NodeId(CONTROLLER), PORT_HERE)
        } else {
            port += 1;
            (node, port)
        };
        let (address, mac) = match encoding {
            Encoding::Ipv6(plan) => (plan.member(node).into(), mac(host)),
            Encoding::Mac(plan) => {
                let ip = plan.ip(node).ok_or_else(|| format!("member {}: no address", node.0))?;
                (ip.into(), MacAddress::of_member(host))
            }
        };
        member.address = SocketAddr::new(address, MEMBER_PORT);
        member.plug = Plug { mac: Some(mac), switch_port: Some(switch_port) };
    }
    let switches = SocketAddr::new(management(ipv6).into(), SWITCHES_PORT);
    Ok(Network { router, encoding, gets_port: GETS_PORT, switches })
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
    let place = Namespace::new()?;
    let switch = (which == Router::Openflow)
        .then(|| OpenVswitch::start_in(&place, &at.folder.join("switch")).map_err(|told| format!("{told}{without}")));
    let switch = switch.transpose()?;
    let links = link_names(&at.folder);
    let all = file.members.iter().filter_map(|member| Some((NodeId(member.id), member.plug.mac?)));
    let all: Vec<(NodeId, MacAddress)> = all.collect();
    let (here, hosts): (Vec<_>, Vec<_>) = file.members.iter().partition(|member| is_here(&member.role));
    link_here(&links, network.switches, &place)?;
    let members: Vec<NodeId> = here.iter().map(|member| NodeId(member.id)).collect();
    if let Some(mac) = here.iter().find_map(|member| member.plug.mac) {
        let host = Host { link: &links[0], mac, members: &members, gets: Gets::None };
        ip_all(host_lines(encoding, host, &all))?;
    }
    set_up_end(|| Command::new("ethtool"), &links[0])?;
    let mut ports = vec![(PORT_HERE, port_name(PORT_HERE))];
    let mut made = BTreeMap::new();
    for member in hosts {
        let (Some(port), Some(mac)) = (member.plug.switch_port, member.plug.mac) else { continue };
        let host = Namespace::new()?;
        let name = port_name(port);
        place.ip_all([
            format!("link add {name} type veth peer name {LINK} netns {}", host.holder()),
            format!("link set {name} up"),
        ])?;
        let node = NodeId(member.id);
        let gets = if matches!(member.role, Role::Backend(_)) { Gets::Of(node) } else { Gets::All };
        host.ip_all(host_lines(encoding, Host { link: LINK, mac, members: &[node], gets }, &all))?;
        set_up_end(|| host.command("ethtool"), LINK)?;
        ports.push((port, name));
        made.insert(member.id, host);
    }
    let routes = match switch {
        Some(switch) => {
            switch.add_ports(ports.into_iter().map(|(port, name)| (name, port)))?;
            switch.set_controller(network.switches)?;
            Routes::Openflow(switch)
        }
        None => Routes::Xdp(None, RouterArguments::between(ports)),
    };
    let at = At { folder: at.folder.clone() };
    Ok((RunningRouter { routes, ended_at: None, restarts: 0, links, place, at }, Hosts(made)))
}

fn port_name(port: u32) -> String {
    format!("port{port}")
}

/// Joins this namespace to the switch's: by a link for members, and one for the switch itself.
fn link_here(links: &[String; 2], controller: SocketAddr, place: &Namespace) -> Result<(), String> {
    let [link, management_link] = links;
    let IpAddr::V6(here) = controller.ip() else { return Err("the controller is not at the end of a link".into()) };
    let there = Ipv6Addr::from_bits(here.to_bits() + 1);
    // Of one that was killed: nobody else is up in this folder.
    take_away(links);
    let (port, holder) = (port_name(PORT_HERE), place.holder());
    ip_all([
        format!("link add {link} type veth peer name {port} netns {holder}"),
        format!("link add {management_link} type veth peer name {LINK} netns {holder}"),
        format!("address add {here}/64 dev {management_link} nodad"),
        format!("link set {management_link} up"),
    ])?;
    place.ip_all([
        "link set lo up".to_owned(),
        format!("address add {there}/64 dev {LINK} nodad"),
        format!("link set {LINK} up"),
        format!("link set {port} up"),
    ])
}

/// Names of the two links here: of a folder the same, and of other folders others, or hardly ever the same.
fn link_names(folder: &Path) -> [String; 2] {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(folder) as u32;
    // Fifteen characters at most.
    [format!("guira{hash:08x}"), format!("guira{hash:08x}s")]
}

/// Has a link's sender make its checksums, which would be left to hardware that is not there, and its receiver take frames that a driver sends on.
fn set_up_end(ethtool: impl Fn() -> Command, link: &str) -> Result<(), String> {
    run(ethtool().args(["-K", link, "tx", "off", "gro", "on"])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_the_addresses_and_ports_of_their_network() {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let gateway =
            |port| Role::Gateway { listen: ([127, 0, 0, 1], port).into(), cache_mode: guira_switched::CacheMode::None };
        let roles =
            [(1, Role::Controller), (100, Role::CACHE), (1_000, Role::backend(Some(100))), (10_000, gateway(1))];
        let mut members: Vec<Member> = roles.map(|(id, role)| Member::new(id, nowhere, role)).into();
        for headers in [Headers::Ipv6, Headers::Mac] {
            let network = plan(&mut members, Router::Openflow, headers).unwrap();
            if let (Encoding::Ipv6(plan), IpAddr::V6(management)) = (network.encoding, network.switches.ip()) {
                assert_eq!(plan.header(management), None, "it is no member's");
            }
            let members = members.clone();
            let secret = "0123456789abcdef".into();
            let file = StaticFile { secret, network: Some(network), members, ..StaticFile::default() };
            file.check().unwrap();
            let ports: Vec<Option<u32>> = file.members.iter().map(|member| member.plug.switch_port).collect();
            assert_eq!(ports, [Some(1), Some(2), Some(3), Some(1)]);
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
        let ([one, its_second], [other, _]) = (link_names(Path::new("/a")), link_names(Path::new("/b")));
        assert!(one.len() <= 15 && its_second.len() <= 15 && one != its_second && one != other);
    }
}
