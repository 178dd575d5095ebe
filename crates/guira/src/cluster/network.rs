//! The network of `--router openflow`: an Open vSwitch of its own, and a host for each cache node and backend.
//!
//! ```text
//! here: gateways, controller -- link --- port 1 \
//!                            \- link ------------ the switch's namespace: Open vSwitch, which calls the controller by the second link
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
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use guira_networks::{Gets, Namespace, OpenVswitch, host_lines, ip_all, may_have_networks, run};
use guira_routing::{Encoding, Ipv6Plan, MacAddress, NodeId, Prefix};
use guira_switched::{Member, Network, Plug, Role, Router, StaticFile};

use super::{running::START_AGAIN_AFTER, tell};

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

/// The switch, which is started again when it ends.
pub(super) struct RunningSwitch {
    switch: OpenVswitch,
    ended_at: Option<Instant>,
    /// Here, taken away with it.
    links: [String; 2],
    /// Where its ports are: gone after it.
    _place: Namespace,
}

/// Namespaces go later than who has held them, and links with them: whoever comes next is to find none.
impl Drop for RunningSwitch {
    fn drop(&mut self) {
        take_away(&self.links);
    }
}

/// Takes links away that may be there.
fn take_away(links: &[String]) {
    links.iter().for_each(|link| drop(ip_all([format!("link delete {link}")])));
}

impl RunningSwitch {
    /// Where `ovs-ofctl` finds it.
    pub(super) fn management(&self) -> String {
        self.switch.management()
    }

    pub(super) fn look(&mut self) {
        if let Some(why) = self.switch.has_ended() {
            tell(&format!("the switch has ended ({why}), and is started again"));
            self.ended_at = Some(Instant::now());
        }
        if self.ended_at.is_some_and(|at| at.elapsed() >= START_AGAIN_AFTER) {
            self.ended_at = None;
            if let Err(told) = self.switch.power_on() {
                tell(&told);
                self.switch.power_off();
                self.ended_at = Some(Instant::now());
            }
        }
    }
}

/// Gives members addresses and ports of a switch, and says what network that is.
pub(super) fn plan(members: &mut [Member]) -> Result<Network, String> {
    let plan = draw_plan().map_err(|error| format!("cannot draw a prefix: {error}"))?;
    let mut port = PORT_HERE;
    for member in members {
        let node = NodeId(member.id);
        member.address = SocketAddr::new(plan.member(node).into(), MEMBER_PORT);
        member.plug = if is_here(&member.role) {
            Plug { mac: Some(mac(NodeId(0))), switch_port: Some(PORT_HERE) }
        } else {
            port += 1;
            Plug { mac: Some(mac(node)), switch_port: Some(port) }
        };
    }
    Ok(Network {
        router: Router::Openflow,
        encoding: Encoding::Ipv6(plan),
        gets_port: GETS_PORT,
        switches: SocketAddr::new(management(plan, 1).into(), SWITCHES_PORT),
    })
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
fn draw_plan() -> io::Result<Ipv6Plan> {
    let mut drawn = [0; 3];
    File::open("/dev/urandom")?.read_exact(&mut drawn)?;
    let [a, b, c] = drawn;
    let address = Ipv6Addr::from_bits(u128::from(u32::from_be_bytes([0xfd, a, b, c])) << 96);
    Ipv6Plan::new(Prefix { address, len: Ipv6Plan::PREFIX_LEN }).map_err(io::Error::other)
}

/// An end of the link between the switch and this namespace.
fn management(plan: Ipv6Plan, end: u16) -> Ipv6Addr {
    let prefix = plan.prefix().address.to_bits();
    Ipv6Addr::from_bits(prefix | u128::from(MANAGEMENT_KIND) << 80 | u128::from(end))
}

/// Makes the network of a cluster, in whose folder the switch writes.
pub(super) fn make(folder: &Path, file: &StaticFile) -> Result<(RunningSwitch, Hosts), String> {
    let without = "; --router gateway needs none of that";
    may_have_networks().map_err(|told| {
        format!("--router openflow: {told}: it takes root's rights, and the programs ip and unshare{without}")
    })?;
    if fs::read_to_string(IPV6_IS_OFF).is_ok_and(|is_off| is_off.trim() == "1") {
        return Err(format!(
            "--router openflow: IPv6 is off here: sysctl -w net.ipv6.conf.all.disable_ipv6=0{without}"
        ));
    }
    let Some((plan, controller)) =
        file.network.as_ref().and_then(|network| Some((plan_of(network)?, network.switches)))
    else {
        return Err("the cluster has no network".into());
    };
    let place = Namespace::new()?;
    let switch = OpenVswitch::start_in(&place, &folder.join("switch")).map_err(|told| format!("{told}{without}"))?;
    let links = link_names(folder);
    let (here, hosts): (Vec<_>, Vec<_>) = file.members.iter().partition(|member| is_here(&member.role));
    let here: Vec<NodeId> = here.iter().map(|member| NodeId(member.id)).collect();
    link_here(&links, plan, &here, &place)?;
    let mut ports = vec![(port_name(PORT_HERE), PORT_HERE)];
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
        host.ip_all(host_lines(plan, LINK, mac, &[node], gets))?;
        make_checksums(host.command("ethtool"), LINK)?;
        ports.push((name, port));
        made.insert(member.id, host);
    }
    switch.add_ports(ports)?;
    switch.set_controller(controller)?;
    Ok((RunningSwitch { switch, ended_at: None, links, _place: place }, Hosts(made)))
}

fn plan_of(network: &Network) -> Option<Ipv6Plan> {
    match network.encoding {
        Encoding::Ipv6(plan) => Some(plan),
        Encoding::Mac(_) => None,
    }
}

fn port_name(port: u32) -> String {
    format!("port{port}")
}

/// Joins this namespace to the switch's: by a link for members, and one for the switch itself.
fn link_here(links: &[String; 2], plan: Ipv6Plan, here: &[NodeId], place: &Namespace) -> Result<(), String> {
    let [link, management_link] = links;
    // Of one that was killed: nobody else is up in this folder.
    take_away(links);
    let (port, holder) = (port_name(PORT_HERE), place.holder());
    ip_all([
        format!("link add {link} type veth peer name {port} netns {holder}"),
        format!("link add {management_link} type veth peer name {LINK} netns {holder}"),
        format!("address add {}/64 dev {management_link} nodad", management(plan, 1)),
        format!("link set {management_link} up"),
    ])?;
    ip_all(host_lines(plan, link, mac(NodeId(0)), here, Gets::None))?;
    make_checksums(Command::new("ethtool"), link)?;
    place.ip_all([
        "link set lo up".to_owned(),
        format!("address add {}/64 dev {LINK} nodad", management(plan, 2)),
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

/// Has a link's sender make its checksums: they would be left to hardware that is not there, and dropped for it.
fn make_checksums(mut ethtool: Command, link: &str) -> Result<(), String> {
    run(ethtool.args(["-K", link, "tx", "off"])).map(drop)
}

/// What to look at, to see what goes where.
pub(super) fn hints(folder: &Path, switch: &RunningSwitch) -> [String; 2] {
    let log: PathBuf = folder.join("switch/ovs-vswitchd.log");
    [
        format!(
            "its switch is an Open vSwitch ({}): ovs-ofctl -O OpenFlow13 dump-flows {}",
            log.display(),
            switch.management()
        ),
        format!("what the host of a cache node or a backend sees: nsenter --net=/proc/PID/ns/net tcpdump -ni {LINK}"),
    ]
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
        let network = plan(&mut members).unwrap();
        let plan = plan_of(&network).unwrap();
        assert_eq!(plan.header(management(plan, 1)), None, "it is no member's");
        let file =
            StaticFile { secret: "0123456789abcdef".into(), network: Some(network), members, ..StaticFile::default() };
        file.check().unwrap();
        let ports: Vec<Option<u32>> = file.members.iter().map(|member| member.plug.switch_port).collect();
        assert_eq!(ports, [Some(1), Some(2), Some(3), Some(1)]);
        assert_ne!(draw_plan().unwrap(), plan);
    }

    #[test]
    fn links_have_names_that_the_kernel_takes() {
        let ([one, its_second], [other, _]) = (link_names(Path::new("/a")), link_names(Path::new("/b")));
        assert!(one.len() <= 15 && its_second.len() <= 15 && one != its_second && one != other);
    }
}
