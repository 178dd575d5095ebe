//! A cluster behind an Open vSwitch, or several, or a router of ours: which hosts a read comes to, and that what clients see can have been so while members are killed, the switch has no power or the
//! router is killed, and the network lies.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::Command,
};

use guira_cluster::GetWay;
use guira_networks::{
    Frames, Gets, Host, Namespace, OpenVswitch, host_lines, in_a_namespace, ip_all, run, within_network_of,
};
use guira_openflow::{DatapathId, RulesOfKeys};
use guira_routing::{Encoding, MacAddress, NodeId};
use guira_switched::{JoinedSwitch, Link, Network, Plug, Router, StaticFile, hash_of};
use tempfile::TempDir;

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
    /// Of each switch, or of the router.
    management: Vec<String>,
    wire: Wire,
}

impl Switched {
    fn up(router: Router, encoding: &str, joined: &[&str]) -> Self {
        let modes = ["--cache-mode", "switched,look-through,look-aside"];
        let sizes = ["--backends", "3", "--store", "memory", "--lease-ms", "10000"];
        let what = ["--router", router.name(), "--encoding", encoding];
        let cluster = Cluster::up(&[&what[..], joined, &modes, &sizes].concat());
        let folder = cluster.folder.path().join("cluster");
        let text = fs::read_to_string(folder.join("cluster.toml")).expect("it is there");
        let file = StaticFile::parse(&text).expect("a cluster");
        let (said, processes) = cluster.status();
        let hosts = processes["cache"].iter().chain(&processes["backend"]).map(|pid| *pid as u32);
        let frames = |link: &str| Frames::of(link).expect("who is root may listen");
        let mut links: Vec<Frames> = hosts.map(|pid| within_network_of(pid, || frames("eth0"))).collect();
        assert_eq!(links.len(), HERE, "{said}");
        let all = run(Command::new("ip").args(["-o", "link"])).expect("there are links");
        let here =
            all.split([' ', '@']).find(|word| word.strip_prefix("guira").is_some_and(|rest| !rest.contains('s')));
        links.push(frames(here.expect("one leads to the switch")));
        let network = file.network.as_ref().expect("it routes");
        let management: Vec<String> = match router {
            Router::Openflow => {
                let others = (2..=network.joined.len()).map(|number| format!("switch{number}/switch.mgmt"));
                ["switch/switch.mgmt".to_owned()].into_iter().chain(others).collect()
            }
            Router::Xdp => vec!["router.mgmt".to_owned()],
        };
        let management = management.into_iter().map(|at| format!("unix:{}", folder.join(at).display())).collect();
        let gets_port = network.gets_port;
        Self { cluster, file, management, wire: Wire::listen(links, gets_port) }
    }

    fn way(&self) -> GetWay {
        self.file.network.as_ref().map(Network::get_way).expect("it routes")
    }

    /// Who has a key, and what a rule says of its reads, as `ovs-ofctl` writes it.
    fn rule_of(&self, key: &str) -> (NodeId, String) {
        let hash = hash_of(key.as_bytes());
        let owner = self.file.partitions().expect("backends").owner_of(hash);
        let to = match self.way().encoding {
            Encoding::Ipv6(plan) => format!("ipv6_dst={}", plan.get(owner, hash)),
            Encoding::Mac(_) => format!("dl_dst={}", MacAddress::of_get(hash)),
        };
        (owner, to)
    }

    /// The host of who has a key.
    fn at_owner(&self, key: &str) -> usize {
        let at = BACKENDS.iter().position(|backend| NodeId(*backend) == self.rule_of(key).0);
        AT_BACKENDS[at.expect("a backend has it")]
    }

    fn ofctl(management: &str, words: &[&str]) -> String {
        let command = &mut Command::new("ovs-ofctl");
        run(command.args(["-O", "OpenFlow13", words[0], management]).args(&words[1..])).expect("it is told")
    }

    /// The switches that are to have rules of a key: all, or the one at which its backend is.
    fn with_rules_of(&self, key: &str) -> Vec<bool> {
        let network = self.file.network.as_ref().expect("it routes");
        let owner = self.file.member(self.rule_of(key).0).expect("a backend has it");
        let has = |at: usize| {
            let is_there = network.joined.get(at).map(|switch| Some(switch.datapath)) == Some(owner.plug.switch);
            network.rules == RulesOfKeys::Replicated || is_there
        };
        (0..self.management.len()).map(has).collect()
    }

    /// Whether there is a rule for a key's reads wherever it is to be, and nowhere else.
    fn has_a_rule_of(&self, key: &str) -> bool {
        let rule = self.rule_of(key).1;
        let has_it = |management: &String| {
            let said = Self::ofctl(management, &["dump-flows"]);
            let mut of_hash = said.lines().filter(|line| line.contains("priority=400,"));
            of_hash.any(|line| line.split([',', ' ']).any(|word| word == rule))
        };
        self.management.iter().map(has_it).eq(self.with_rules_of(key))
    }

    /// Has a switch bring a key's reads to the cache node, whatever the controller says.
    fn lead_to_the_cache_node(&self, key: &str) {
        let cache = self.file.member(NodeId(CACHE)).expect("there is one");
        let Plug { mac: Some(mac), switch_port: Some(port), switch } = cache.plug else { panic!("it is plugged in") };
        let (rule, gets_port) = (self.rule_of(key).1, self.way().port);
        let (kind, action) = match self.way().encoding {
            Encoding::Ipv6(_) if switch.is_some() => ("udp6", format!("set_field:{mac}->eth_dst,goto_table:1")),
            Encoding::Ipv6(_) => ("udp6", format!("set_field:{mac}->eth_dst,output:{port}")),
            Encoding::Mac(_) => ("udp", format!("output:{port}")),
        };
        let at = self.with_rules_of(key).into_iter().position(|has_it| has_it).expect("one has");
        // As the controller would make it.
        let flow = format!("priority=400,{kind},{rule},tp_dst={gets_port},actions={action}");
        Self::ofctl(&self.management[at], &["add-flow", &flow]);
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
fn hot_keys_and_cold_ones(router: Router, encoding: &str, joined: &[&str]) {
    let switched = Switched::up(router, encoding, joined);
    let [mut client, mut through, mut aside] = [0, 1, 2].map(|gateway| Reader::of(&switched, gateway));
    client.ask("hot", "set hot 0 0 3\r\nabc\r\n", b"STORED\r\n");
    let found = b"VALUE hot 0 3\r\nabc\r\nEND\r\n";
    wait_for("there is a rule for the hot key", || {
        client.get("hot", found);
        switched.has_a_rule_of("hot").then_some(())
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
}

/// Members on hosts of their own, but for those that clients and the router speak to, joined by what is the test's: a switch, or two, or links that a router of ours is on.
struct Plugged {
    switch: Option<OpenVswitch>,
    second: Option<Second>,
    encoding: Encoding,
    /// By their places, where there are any.
    hosts: Vec<Option<Namespace>>,
}

/// Another switch, and where that is; which of both have the rules of keys.
struct Second {
    // Ends before its place and its folder do.
    switch: OpenVswitch,
    place: Namespace,
    _folder: TempDir,
    rules: RulesOfKeys,
}

/// Where the controller listens, if not all that calls it is here.
const MANAGEMENT_HERE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const MANAGEMENT_THERE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// The port of each of two switches that leads to the other one.
const LINK_PORT: u32 = 100;

/// The datapath ids of both.
const FIRST_SWITCH: DatapathId = DatapathId(1);
const SECOND_SWITCH: DatapathId = DatapathId(2);

/// Whose hosts are at the second switch: two of three backends, and not the cache node.
fn is_at_second(id: u16) -> bool {
    BACKENDS[1..].contains(&id)
}

impl Second {
    fn new(first: &OpenVswitch, rules: RulesOfKeys) -> Self {
        let (place, folder) = (Namespace::new().expect("a place"), tempfile::tempdir().expect("a folder"));
        let holder = place.holder();
        let here = [
            format!("link add link1 type veth peer name link2 netns {holder}"),
            "link set link1 up".to_owned(),
            format!("link add manage1 type veth peer name manage2 netns {holder}"),
            format!("address add {MANAGEMENT_HERE}/64 dev manage1 nodad"),
            "link set manage1 up".to_owned(),
        ];
        ip_all(here).expect("links");
        let there = [
            "link set link2 up".to_owned(),
            format!("address add {MANAGEMENT_THERE}/64 dev manage2 nodad"),
            "link set manage2 up".to_owned(),
        ];
        place.ip_all(there).expect("links");
        let switch = OpenVswitch::start_in(&place, folder.path()).expect("a switch");
        for (switch, id, link) in [(first, FIRST_SWITCH, "link1"), (&switch, SECOND_SWITCH, "link2")] {
            switch.set_datapath_id(id.0).expect("it is told");
            switch.add_ports([(link, LINK_PORT)]).expect("a port");
            switch.set_controller((MANAGEMENT_HERE, SWITCHES_PORT).into()).expect("a controller");
        }
        Self { switch, place, _folder: folder, rules }
    }
}

/// The port of UDP of gets, and the one of members.
const GETS_PORT: u16 = 7_100;
const MEMBER_PORT: u16 = 7_000;

/// OpenFlow's own.
const SWITCHES_PORT: u16 = 6_653;

/// The switch's port that leads here.
const PORT_HERE: u32 = 1;
const LINK_HERE: &str = "here";

/// Headers in IPv6 addresses, and in MAC addresses.
const IPV6: &str = "ipv6=fd5e:a1c0::/32";
const MAC: &str = "mac=10.77.0.0/16";

fn is_here(id: u16) -> bool {
    [CONTROLLER, GATEWAY].contains(&id)
}

fn mac(encoding: Encoding, id: u16) -> MacAddress {
    let host = if is_here(id) { CONTROLLER } else { id };
    let [high, low] = host.to_be_bytes();
    match encoding {
        Encoding::Ipv6(_) => MacAddress([2, 0, 0, 0, high, low]),
        Encoding::Mac(_) => MacAddress::of_member(NodeId(host)),
    }
}

fn member_ip(encoding: Encoding, id: u16) -> IpAddr {
    match encoding {
        Encoding::Ipv6(plan) => plan.member(NodeId(id)).into(),
        Encoding::Mac(plan) => plan.ip(NodeId(id)).expect("it has one").into(),
    }
}

fn switch_port(id: u16) -> u32 {
    if is_here(id) { PORT_HERE } else { PORT_HERE + 1 + place_of(id) as u32 }
}

/// A router's number, which is no member.
const ROUTER: u16 = 2;

impl Plugged {
    fn new(router: Router, encoding: &str) -> Self {
        Self::with(router, encoding, None)
    }

    /// At two switches, if it is said which of them have the rules of keys.
    fn with(router: Router, encoding: &str, joined: Option<RulesOfKeys>) -> Self {
        let encoding: Encoding = encoding.parse().expect("an encoding");
        let all = IDS.map(|id| (NodeId(id), mac(encoding, id)));
        let here = [CONTROLLER, GATEWAY].map(NodeId);
        ip_all([format!("link add {LINK_HERE} type veth peer name port{PORT_HERE}")]).expect("a link");
        let host = Host { link: LINK_HERE, mac: mac(encoding, GATEWAY), members: &here, gets: Gets::None };
        ip_all(host_lines(encoding, host, &all)).expect("addresses");
        ip_all([format!("link set port{PORT_HERE} up")]).expect("a link");
        set_up_end(Command::new("ethtool"), LINK_HERE);
        let switch = (router == Router::Openflow).then(|| {
            let switch = OpenVswitch::start().expect("a switch");
            switch.set_controller(switches()).expect("a controller");
            switch
        });
        let second = joined.zip(switch.as_ref()).map(|(rules, first)| Second::new(first, rules));
        let hosts = IDS.map(|id| {
            let (host, port) = ((!is_here(id)).then(|| Namespace::new().expect("a host"))?, switch_port(id));
            let lines = [
                format!("link add port{port} type veth peer name eth0 netns {}", host.holder()),
                format!("link set port{port} up"),
            ];
            match &second {
                Some(second) if is_at_second(id) => second.place.ip_all(lines),
                _ => ip_all(lines),
            }
            .expect("a link");
            let gets = if id == CACHE { Gets::All } else { Gets::Of(NodeId(id)) };
            let its = Host { link: "eth0", mac: mac(encoding, id), members: &[NodeId(id)], gets };
            host.ip_all(host_lines(encoding, its, &all)).expect("addresses");
            set_up_end(host.command("ethtool"), "eth0");
            Some(host)
        });
        let links = |of_second: bool| {
            let its = IDS.into_iter().filter(move |id| (joined.is_some() && is_at_second(*id)) == of_second);
            BTreeSet::from_iter(its.map(switch_port)).into_iter().map(|port| (format!("port{port}"), port))
        };
        switch.iter().for_each(|switch| switch.add_ports(links(false)).expect("ports"));
        second.iter().for_each(|second| second.switch.add_ports(links(true)).expect("ports"));
        Self { switch, second, encoding, hosts: hosts.into() }
    }

    fn switch(&mut self) -> &mut OpenVswitch {
        self.switch.as_mut().expect("a switch")
    }

    /// Has all packets of a kind go to a host, or to nobody, whatever the controller says.
    fn lie(&mut self, packets: &str, to: Option<u16>) {
        let output = |id| format!("output:{}", switch_port(id));
        let action = match (to, self.encoding) {
            (None, _) => "drop".to_owned(),
            (Some(id), Encoding::Ipv6(_)) => format!("set_field:{}->eth_dst,{}", mac(self.encoding, id), output(id)),
            (Some(id), Encoding::Mac(_)) => output(id),
        };
        let flow = format!("priority=1000,{packets},actions={action}");
        self.switch().ofctl("add-flow", &[&flow]).expect("it is told");
    }

    /// All gets.
    fn gets(&self) -> String {
        match self.encoding {
            Encoding::Ipv6(plan) => format!("ipv6,ipv6_dst={}", plan.gets_prefix()),
            Encoding::Mac(_) => "ip,dl_dst=0a:00:00:00:00:00/ff:00:00:00:00:00".to_owned(),
        }
    }

    /// From now on these do not hear of each other; everybody else hears both.
    fn part(&mut self, one: u16, other: u16) {
        let (protocol, field) = match self.encoding {
            Encoding::Ipv6(_) => ("ipv6", "ipv6"),
            Encoding::Mac(_) => ("ip", "nw"),
        };
        let [one, other] = [one, other].map(|id| member_ip(self.encoding, id));
        self.lie(&format!("{protocol},{field}_src={one},{field}_dst={other}"), None);
        self.lie(&format!("{protocol},{field}_src={other},{field}_dst={one}"), None);
    }

    /// It goes by what the controller has said, and by nothing else.
    fn be_honest(&mut self) {
        self.switch().ofctl("del-flows", &["cookie=0/-1"]).expect("it is told");
    }
}

/// The ports, each once.
fn ports() -> impl Iterator<Item = u32> {
    BTreeSet::from(IDS.map(switch_port)).into_iter()
}

/// Has a sender make its checksums, and a receiver take frames as a driver sends them on.
fn set_up_end(mut ethtool: Command, link: &str) {
    run(ethtool.args(["-K", link, "tx", "off", "gro", "on"])).expect("a link that can do that");
}

/// Where the switch calls.
fn switches() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], SWITCHES_PORT))
}

impl Place for Plugged {
    fn seen(&self, _: u16, whom: u16) -> SocketAddr {
        SocketAddr::new(member_ip(self.encoding, whom), MEMBER_PORT)
    }

    fn for_clients(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 11_211))
    }

    fn network(&self) -> Option<Network> {
        let router = if self.switch.is_some() { Router::Openflow } else { Router::Xdp };
        let Some(second) = &self.second else {
            return Some(Network::new(router, self.encoding, GETS_PORT, switches()));
        };
        let to = |datapath, to| JoinedSwitch { datapath, links: vec![Link { port: LINK_PORT, to }] };
        let joined = vec![to(FIRST_SWITCH, SECOND_SWITCH), to(SECOND_SWITCH, FIRST_SWITCH)];
        let at = (MANAGEMENT_HERE, SWITCHES_PORT).into();
        Some(Network { rules: second.rules, joined, ..Network::new(router, self.encoding, GETS_PORT, at) })
    }

    fn plug(&self, id: u16) -> Plug {
        let at = if is_at_second(id) { SECOND_SWITCH } else { FIRST_SWITCH };
        let switch = self.second.as_ref().map(|_| at);
        Plug { mac: Some(mac(self.encoding, id)), switch_port: Some(switch_port(id)), switch }
    }

    fn router(&self) -> Option<(u16, Vec<String>)> {
        let links = || ports().flat_map(|port| ["--link".to_owned(), format!("{port}=port{port}")]).collect();
        self.switch.is_none().then(|| (ROUTER, links()))
    }

    fn command(&self, id: u16, program: PathBuf) -> Command {
        if id == ROUTER {
            return Command::new(program);
        }
        self.hosts[place_of(id)].as_ref().map_or_else(|| Command::new(&program), |host| host.command(&program))
    }
}

/// Members are killed and started again one after the other, and what routes last, by this.
fn members_that_are_killed_cost_answers_and_nothing_else(
    place: Plugged,
    mut cut_power: impl FnMut(&mut Members<Plugged>, &Book),
) {
    let (seed, book) = (seed(), Book::of_a_cluster());
    Members::up(place, Patience::Short).survive(&book, seed, |members| {
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

        // What routes goes by the rules that it has.
        members.kill(CONTROLLER);
        book.wait_for_acts(ACTS);
        members.wait_until_the_cache_serves();
        members.start(CONTROLLER);
        book.wait_for_acts(ACTS);
        members.wait_for_more(CONTROLLER, "switches", 0);
        members.wait_until_the_cache_serves();

        // It has none any more, and nobody hears of anybody.
        cut_power(members, &book);
        members.wait_until_all_is_answered();
        members.wait_until_the_cache_serves();
        book.wait_for_acts(ACTS);
    });
}

fn members_that_are_killed_and_a_switch_without_power(encoding: &str) {
    let place = Plugged::new(Router::Openflow, encoding);
    members_that_are_killed_cost_answers_and_nothing_else(place, |members, book| {
        members.place.switch().power_off();
        book.wait_for_refusals(CLIENTS as u64);
        members.place.switch().power_on().expect("it starts");
    });
}

fn members_that_are_killed_and_two_switches_without_power(rules: RulesOfKeys) {
    let place = Plugged::with(Router::Openflow, IPV6, Some(rules));
    members_that_are_killed_cost_answers_and_nothing_else(place, |members, book| {
        // Whoever asks is at the first one: of who is at the second nobody hears.
        let second = &mut members.place.second.as_mut().expect("it is there").switch;
        second.power_off();
        book.wait_for_refusals(1);
        second.power_on().expect("it starts");
        members.wait_until_all_is_answered();
        members.wait_until_the_cache_serves();
        members.place.switch().power_off();
        book.wait_for_refusals(CLIENTS as u64);
        members.place.switch().power_on().expect("it starts");
    });
}

fn members_and_a_router_that_are_killed(encoding: &str) {
    let place = Plugged::new(Router::Xdp, encoding);
    members_that_are_killed_cost_answers_and_nothing_else(place, |members, book| {
        members.kill(ROUTER);
        book.wait_for_refusals(CLIENTS as u64);
        members.start(ROUTER);
    });
}

fn a_network_that_lies(encoding: &str) {
    let (seed, book) = (seed(), Book::of_a_cluster());
    Members::up(Plugged::new(Router::Openflow, encoding), Patience::Long).survive(&book, seed, |members| {
        book.wait_for_acts(ACTS);
        members.wait_until_the_cache_serves();
        let (victim, gets) = (victim(members), members.place.gets());
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
}

/// Of one router and one encoding each what is above.
macro_rules! tests {
    ($($name:ident: $test:expr;)*) => {
        use super::*;

        $(
            #[test]
            fn $name() {
                in_a_namespace(module_path!(), stringify!($name), || $test);
            }
        )*
    };
}

mod openflow {
    tests! {
        a_hot_key_is_a_transit_from_the_cache_node: hot_keys_and_cold_ones(Router::Openflow, "ipv6", &[]);
        a_hot_key_is_a_transit_from_the_cache_node_by_frames: hot_keys_and_cold_ones(Router::Openflow, "mac", &[]);
        members_that_are_killed_cost_answers_and_nothing_else: members_that_are_killed_and_a_switch_without_power(IPV6);
        members_that_are_killed_cost_answers_and_nothing_else_by_frames: members_that_are_killed_and_a_switch_without_power(MAC);
        a_network_that_lies_costs_time_and_nothing_else: a_network_that_lies(IPV6);
        a_network_that_lies_costs_time_and_nothing_else_by_frames: a_network_that_lies(MAC);
    }
}

mod joined {
    tests! {
        a_hot_key_is_a_transit_whichever_switches_have_its_rule: hot_keys_and_cold_ones(Router::Openflow, "ipv6", &["--switches", "3"]);
        a_hot_key_is_a_transit_by_the_switch_at_which_its_backend_is:
            hot_keys_and_cold_ones(Router::Openflow, "ipv6", &["--switches", "3", "--rules", "parted"]);
        members_that_are_killed_cost_answers_and_nothing_else:
            members_that_are_killed_and_two_switches_without_power(RulesOfKeys::Replicated);
        members_that_are_killed_cost_answers_and_nothing_else_where_rules_are_parted:
            members_that_are_killed_and_two_switches_without_power(RulesOfKeys::Parted);
    }
}

mod xdp {
    tests! {
        a_hot_key_is_a_transit_from_the_cache_node: hot_keys_and_cold_ones(Router::Xdp, "ipv6", &[]);
        a_hot_key_is_a_transit_from_the_cache_node_by_frames: hot_keys_and_cold_ones(Router::Xdp, "mac", &[]);
        members_that_are_killed_cost_answers_and_nothing_else: members_and_a_router_that_are_killed(IPV6);
        members_that_are_killed_cost_answers_and_nothing_else_by_frames: members_and_a_router_that_are_killed(MAC);
    }
}
