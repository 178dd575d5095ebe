//! A cluster behind an Open vSwitch: which hosts a read comes to, and that what clients see can have been so while members are killed, the switch has no power, and the
//! network lies.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::Command,
};

use guira_cluster::GetWay;
use guira_networks::{
    Frames, Gets, Namespace, OpenVswitch, host_lines, in_a_namespace, ip_all, run, within_network_of,
};
use guira_routing::{Encoding, MacAddress, NodeId};
use guira_switched::{Network, Plug, Router, StaticFile, hash_of};

use super::{
    super::{
        Cluster,
        members::{ACTS, BACKENDS, CACHE, CONTROLLER, GATEWAY, IDS, Members, Patience, Place, place_of, seed, victim},
    },
    wire::{Came, Kind, Wire},
};
use crate::{
    book::{Book, CLIENTS},
    condition::wait_for,
    connection::Connection,
};

/// Hosts of a cluster on this machine: the cache node's, the backends', and the one that has the gateways.
const AT_CACHE: usize = 0;
const AT_BACKENDS: [usize; 3] = [1, 2, 3];
const HERE: usize = 4;

/// A cluster that is up behind a switch of its own, whose hosts are listened to.
struct Switched {
    cluster: Cluster,
    file: StaticFile,
    management: String,
    wire: Wire,
}

impl Switched {
    fn up() -> Self {
        let modes = ["--cache-mode", "switched,look-through,look-aside"];
        let sizes = ["--backends", "3", "--store", "memory", "--lease-ms", "10000"];
        let cluster = Cluster::up(&[&["--router", "openflow", "--encoding", "ipv6"][..], &modes, &sizes].concat());
        let folder = cluster.folder.path().join("cluster");
        let text = fs::read_to_string(folder.join("cluster.toml")).expect("it is there");
        let file = StaticFile::parse(&text).expect("a cluster");
        let (said, processes) = cluster.status();
        let hosts = processes["cache"].iter().chain(&processes["backend"]).map(|pid| *pid as u32);
        let frames = |link: &str| Frames::of(link).expect("who is root may listen");
        let mut links: Vec<Frames> = hosts.map(|pid| within_network_of(pid, || frames("eth0"))).collect();
        assert_eq!(links.len(), HERE, "{said}");
        let all = run(Command::new("ip").args(["-o", "link"])).expect("there are links");
        let here = all.split([' ', '@']).find(|word| word.starts_with("guira") && !word.ends_with('s'));
        links.push(frames(here.expect("one leads to the switch")));
        let management = format!("unix:{}", folder.join("switch/switch.mgmt").display());
        let gets_port = file.network.as_ref().expect("it routes").gets_port;
        Self { cluster, file, management, wire: Wire::listen(links, gets_port) }
    }

    fn way(&self) -> GetWay {
        self.file.network.as_ref().and_then(Network::get_way).expect("it routes")
    }

    /// Where a key's reads go to.
    fn address_of(&self, key: &str) -> (NodeId, Ipv6Addr) {
        let hash = hash_of(key.as_bytes());
        let owner = self.file.partitions().expect("backends").owner_of(hash);
        (owner, self.way().plan.get(owner, hash))
    }

    /// The host of who has a key.
    fn at_owner(&self, key: &str) -> usize {
        let at = BACKENDS.iter().position(|backend| NodeId(*backend) == self.address_of(key).0);
        AT_BACKENDS[at.expect("a backend has it")]
    }

    fn ofctl(&self, words: &[&str]) -> String {
        let command = &mut Command::new("ovs-ofctl");
        run(command.args(["-O", "OpenFlow13", words[0], &self.management]).args(&words[1..])).expect("it is told")
    }

    /// The addresses of which the switch has a rule of its own.
    fn rules(&self) -> BTreeSet<Ipv6Addr> {
        let said = self.ofctl(&["dump-flows"]);
        let of_hash = said.lines().filter(|line| line.contains("priority=400,"));
        of_hash.filter_map(|line| line.split_once("ipv6_dst=")?.1.split([',', ' ']).next()?.parse().ok()).collect()
    }

    /// Has the switch bring a key's reads to the cache node, whatever the controller says.
    fn lead_to_the_cache_node(&self, key: &str) {
        let cache = self.file.member(NodeId(CACHE)).expect("there is one");
        let Plug { mac: Some(mac), switch_port: Some(port) } = cache.plug else { panic!("it is on the switch") };
        let (address, gets_port) = (self.address_of(key).1, self.way().port);
        let flow = format!(
            "priority=500,udp6,ipv6_dst={address},tp_dst={gets_port},actions=set_field:{mac}->eth_dst,output:{port}"
        );
        self.ofctl(&["add-flow", &flow]);
    }
}

/// Waits until something has been so for as many times in a row. Each time has a number of its own.
fn in_a_row(what: &str, times: usize, mut is_so: impl FnMut(usize) -> bool) {
    let mut at = 0;
    wait_for(what, || {
        let mut next = || {
            at += 1;
            is_so(at)
        };
        (0..times).all(|_| next()).then_some(())
    });
}

/// A client of one gateway, the only one.
struct Reader<'s> {
    connection: Connection,
    wire: &'s Wire,
    gateway: NodeId,
    /// What was asked of each key.
    requests: BTreeMap<String, usize>,
}

impl<'s> Reader<'s> {
    /// Of the gateway of that number.
    fn of(switched: &'s Switched, gateway: u16) -> Self {
        let mut address = switched.cluster.address();
        address.set_port(address.port() + gateway);
        let (connection, gateway) = (Connection::open(address), NodeId(GATEWAY + gateway));
        Self { connection, wire: &switched.wire, gateway, requests: BTreeMap::new() }
    }

    fn ask(&mut self, key: &str, line: &str, answer: &[u8]) {
        self.connection.expect(line.as_bytes(), answer);
        *self.requests.entry(key.to_owned()).or_default() += 1;
    }

    /// Reads a key: of each message that has come about that its kind and the host, in the order of these.
    fn get(&mut self, key: &str, found: &[u8]) -> Vec<(Kind, usize)> {
        self.ask(key, &format!("get {key}\r\n"), found);
        let (requests, key) = (self.requests[key], key.as_bytes());
        let came = wait_for("its answer has come", || self.wire.about_the_last(requests, self.gateway, key));
        let mut seen: Vec<(Kind, usize)> = came.into_iter().map(|Came { kind, at, .. }| (kind, at)).collect();
        seen.sort_unstable();
        seen
    }
}

/// A read that its backend or its cache node answers takes one transit, as the paper has it (SwitchKV, section 2.2); with a rule that is wrong it takes two. Where the cache
/// is looked through what is not there takes two, and where it is looked at aside three.
#[test]
fn a_hot_key_is_a_transit_from_the_cache_node_and_a_cold_one_from_its_backend() {
    in_a_namespace(
        module_path!(),
        "a_hot_key_is_a_transit_from_the_cache_node_and_a_cold_one_from_its_backend",
        || {
            let switched = Switched::up();
            let [mut client, mut through, mut aside] = [0, 1, 2].map(|gateway| Reader::of(&switched, gateway));
            client.ask("hot", "set hot 0 0 3\r\nabc\r\n", b"STORED\r\n");
            let found = b"VALUE hot 0 3\r\nabc\r\nEND\r\n";
            wait_for("the switch has a rule for the hot key", || {
                client.get("hot", found);
                switched.rules().contains(&switched.address_of("hot").1).then_some(())
            });
            // Some packets go by the old rule yet; and on a busy machine one that takes long is asked again of the backend itself.
            let hit = [(Kind::Get, AT_CACHE), (Kind::Reply, HERE)];
            in_a_row("it is brought to the cache node", 20, |_| client.get("hot", found) == hit);
            in_a_row("a cold key is brought to its backend", 20, |at| {
                let cold = format!("cold{at}");
                client.get(&cold, b"END\r\n") == [(Kind::Get, switched.at_owner(&cold)), (Kind::Reply, HERE)]
            });

            let two = |first, key: &str| {
                let mut seen = [(first, AT_CACHE), (Kind::Request, switched.at_owner(key)), (Kind::Reply, HERE)];
                seen.sort_unstable();
                seen
            };
            // A rule that should not be there: of a key that has left, or of another one with its hash.
            in_a_row("a stale rule is a detour", 3, |at| {
                let stale = format!("stale{at}");
                switched.lead_to_the_cache_node(&stale);
                client.get(&stale, b"END\r\n") == two(Kind::Get, &stale)
            });
            in_a_row("the cache is looked through", 3, |at| {
                let missed = format!("through{at}");
                through.get("hot", found) == [(Kind::Request, AT_CACHE), (Kind::Reply, HERE)]
                    && through.get(&missed, b"END\r\n") == two(Kind::Request, &missed)
            });
            in_a_row("the cache is looked at aside", 3, |at| {
                let missed = format!("aside{at}");
                let at_owner = (Kind::Request, switched.at_owner(&missed));
                let three = [at_owner, (Kind::Probe, AT_CACHE), (Kind::Absent, HERE), (Kind::Reply, HERE)];
                aside.get("hot", found) == [(Kind::Probe, AT_CACHE), (Kind::Reply, HERE)]
                    && aside.get(&missed, b"END\r\n") == three
            });
            switched.cluster.down();
        },
    );
}

/// Members on hosts of their own, but for those that clients and the switch speak to, joined by a switch that is the test's.
struct Plugged {
    switch: OpenVswitch,
    /// By their places, where there are any.
    hosts: Vec<Option<Namespace>>,
}

/// The port of UDP of gets, and the one of members.
const GETS_PORT: u16 = 7_100;
const MEMBER_PORT: u16 = 7_000;

/// The switch's port that leads here.
const PORT_HERE: u32 = 1;
const LINK_HERE: &str = "here";

fn plan() -> guira_routing::Ipv6Plan {
    "fd5e:a1c0::/32".parse().expect("a plan")
}

fn is_here(id: u16) -> bool {
    [CONTROLLER, GATEWAY].contains(&id)
}

fn mac(id: u16) -> MacAddress {
    let [high, low] = if is_here(id) { [0; 2] } else { id.to_be_bytes() };
    MacAddress([2, 0, 0, 0, high, low])
}

fn switch_port(id: u16) -> u32 {
    if is_here(id) { PORT_HERE } else { PORT_HERE + 1 + place_of(id) as u32 }
}

impl Plugged {
    fn new() -> Self {
        let here = [CONTROLLER, GATEWAY].map(NodeId);
        ip_all([format!("link add {LINK_HERE} type veth peer name port{PORT_HERE}")]).expect("a link");
        ip_all(host_lines(plan(), LINK_HERE, mac(GATEWAY), &here, Gets::None)).expect("addresses");
        ip_all([format!("link set port{PORT_HERE} up")]).expect("a link");
        run(Command::new("ethtool").args(["-K", LINK_HERE, "tx", "off"])).expect("checksums");
        let switch = OpenVswitch::start().expect("a switch");
        let hosts = IDS.map(|id| {
            let (host, port) = ((!is_here(id)).then(|| Namespace::new().expect("a host"))?, switch_port(id));
            let link = format!("link add port{port} type veth peer name eth0 netns {}", host.holder());
            ip_all([link, format!("link set port{port} up")]).expect("a link");
            let gets = if id == CACHE { Gets::All } else { Gets::Of(NodeId(id)) };
            host.ip_all(host_lines(plan(), "eth0", mac(id), &[NodeId(id)], gets)).expect("addresses");
            run(host.command("ethtool").args(["-K", "eth0", "tx", "off"])).expect("checksums");
            Some(host)
        });
        let ports: BTreeSet<u32> = IDS.map(switch_port).into();
        switch.add_ports(ports.into_iter().map(|port| (format!("port{port}"), port))).expect("ports");
        switch.set_controller(switches()).expect("a controller");
        Self { switch, hosts: hosts.into() }
    }

    /// Has all packets of a kind go to a host, or to nobody, whatever the controller says.
    fn lie(&self, packets: &str, to: Option<u16>) {
        let action =
            to.map_or("drop".to_owned(), |id| format!("set_field:{}->eth_dst,output:{}", mac(id), switch_port(id)));
        let flow = format!("priority=1000,{packets},actions={action}");
        self.switch.ofctl("add-flow", &[&flow]).expect("it is told");
    }

    /// From now on these do not hear of each other; everybody else hears both.
    fn part(&self, one: u16, other: u16) {
        let [one, other] = [one, other].map(|id| plan().member(NodeId(id)));
        self.lie(&format!("ipv6,ipv6_src={one},ipv6_dst={other}"), None);
        self.lie(&format!("ipv6,ipv6_src={other},ipv6_dst={one}"), None);
    }

    /// It goes by what the controller has said, and by nothing else.
    fn be_honest(&self) {
        self.switch.ofctl("del-flows", &["cookie=0/-1"]).expect("it is told");
    }
}

/// Where the switch calls.
fn switches() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 6_653))
}

impl Place for Plugged {
    fn seen(&self, _: u16, whom: u16) -> SocketAddr {
        SocketAddr::new(plan().member(NodeId(whom)).into(), MEMBER_PORT)
    }

    fn for_clients(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 11_211))
    }

    fn network(&self) -> Option<Network> {
        let encoding = Encoding::Ipv6(plan());
        Some(Network { router: Router::Openflow, encoding, gets_port: GETS_PORT, switches: switches() })
    }

    fn plug(&self, id: u16) -> Plug {
        Plug { mac: Some(mac(id)), switch_port: Some(switch_port(id)) }
    }

    fn command(&self, id: u16, program: PathBuf) -> Command {
        self.hosts[place_of(id)].as_ref().map_or_else(|| Command::new(&program), |host| host.command(&program))
    }
}

#[test]
fn members_that_are_killed_and_a_switch_without_power_cost_answers_and_nothing_else() {
    in_a_namespace(
        module_path!(),
        "members_that_are_killed_and_a_switch_without_power_cost_answers_and_nothing_else",
        || {
            let (seed, book) = (seed(), Book::of_a_cluster());
            Members::up(Plugged::new(), Patience::Short).survive(&book, seed, |members| {
                book.wait_for_acts(ACTS);
                members.wait_until_the_cache_serves();
                let routed = members.number(GATEWAY, "routed");
                members.wait_for_more(GATEWAY, "routed", routed);

                members.kill(CACHE);
                book.wait_for_acts(ACTS);
                members.start(CACHE);
                members.wait_until_the_cache_serves();

                let victim = victim(members);
                members.kill(victim);
                book.wait_for_refusals(1);
                members.start(victim);
                members.wait_until_all_is_answered();
                members.wait_until_the_cache_serves();

                // A switch goes by the rules that it has.
                members.kill(CONTROLLER);
                book.wait_for_acts(ACTS);
                members.wait_until_the_cache_serves();
                members.start(CONTROLLER);
                book.wait_for_acts(ACTS);
                members.wait_for_more(CONTROLLER, "switches", 0);
                members.wait_until_the_cache_serves();

                // It has none any more, and nobody hears of anybody.
                members.place.switch.power_off();
                book.wait_for_refusals(CLIENTS as u64);
                members.place.switch.power_on().expect("it starts");
                members.wait_until_all_is_answered();
                members.wait_until_the_cache_serves();
                book.wait_for_acts(ACTS);
            });
        },
    );
}

#[test]
fn a_network_that_lies_costs_time_and_nothing_else() {
    in_a_namespace(module_path!(), "a_network_that_lies_costs_time_and_nothing_else", || {
        let (seed, book) = (seed(), Book::of_a_cluster());
        Members::up(Plugged::new(), Patience::Long).survive(&book, seed, |members| {
            book.wait_for_acts(ACTS);
            members.wait_until_the_cache_serves();
            let (victim, gets) = (victim(members), format!("ipv6,ipv6_dst={}", plan().gets_prefix()));
            for to in [Some(CACHE), Some(victim), Some(GATEWAY), None] {
                members.place.lie(&gets, to);
                book.wait_for_acts(ACTS);
                members.place.be_honest();
                members.wait_until_the_cache_serves();
            }

            // The gateway hears both: what the cache node has is served until its lease is over, and a change waits for that.
            members.wait_for_more(victim, "cached_keys", 0);
            let waits = members.number(victim, "lease_waits");
            members.place.part(CACHE, victim);
            members.wait_for_more(victim, "lease_waits", waits);
            book.wait_for_acts(ACTS);
            members.place.be_honest();
            members.wait_for_more(victim, "cached_keys", 0);
            book.wait_for_acts(ACTS);
        });
    });
}
