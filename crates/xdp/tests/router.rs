//! The program in the kernel, on links of a network of its own. Left out where a process may not load one.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

mod reference;

mod xdp {
    use std::{
        collections::BTreeMap,
        net::{Ipv4Addr, Ipv6Addr, UdpSocket},
        time::Duration,
    };

    use guira_networks::{Gets, Host, Namespace, host_lines, in_a_namespace, ip_all, run};
    use guira_openflow::{Actions, FlowKey, Lookups, Masked, Match, Place, Port, Refusal, Rules};
    use guira_routing::{Encoding, KeyHash, MacAddress, NodeId};
    use guira_xdp::{Counts, Frames, Link, Links, Mode, Router, RouterConfig, RouterError, Verdict};
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    use super::reference::{Outcome, Reference};

    const GETS_PORT: u16 = 6_999;
    const RULES_MAX: u32 = 64;
    const ENCODINGS: [&str; 2] = ["ipv6=fd5e:a1c0::/32", "mac=10.77.0.0/16"];

    /// Links of a box, and ports of it: as many as there are hosts.
    const PORTS: u32 = 6;

    fn encoding(text: &str) -> Encoding {
        text.parse().unwrap()
    }

    fn link(port: u32) -> Link {
        Link { port: Port(port), name: format!("port{port}") }
    }

    fn config(encoding: Encoding, links: Links) -> RouterConfig {
        RouterConfig { encoding, gets_port: GETS_PORT, rules_max: RULES_MAX, links, mode: Some(Mode::Generic) }
    }

    /// A router on as many links as there are ports, whose other ends are nowhere.
    fn start(encoding: Encoding) -> Router {
        ip_all((1..=PORTS).flat_map(|port| {
            let far = format!("far{port}");
            [format!("link add port{port} type veth peer name {far}"), format!("link set port{port} up")]
        }))
        .unwrap();
        let links = Links::Between((1..=PORTS).map(link).collect());
        Router::start(config(encoding, links)).unwrap()
    }

    fn place(port: u32) -> Place {
        Place { mac: MacAddress([2, 0, 0, 0, 0, port as u8]), port: Port(port), switch: None }
    }

    const BACKENDS: [NodeId; 3] = [NodeId(1_000), NodeId(1_001), NodeId(0x0a00)];
    const CACHES: [NodeId; 2] = [NodeId(100), NodeId(101)];
    /// Of a backend that has no rule, and a member that has none.
    const NOBODY: NodeId = NodeId(1_002);

    /// The flows of a cluster, without those of hashes.
    fn flows(rules: Rules) -> Vec<(FlowKey, Actions)> {
        let members = (1..)
            .zip(CACHES.iter().chain(&BACKENDS))
            .map(|(port, node)| (rules.of_member(*node).unwrap(), rules.to(place(port)).unwrap()));
        let backends =
            (3..).zip(&BACKENDS).map(|(port, node)| (rules.of_backend(*node).unwrap(), rules.to(place(port)).unwrap()));
        members.chain(backends).chain([rules.of_nobody(), rules.of_others()]).collect()
    }

    /// A frame that may be of the cluster, with something changed.
    fn draw_frame(draw: &mut SmallRng, encoding: Encoding, hashes: &[(NodeId, KeyHash)]) -> Vec<u8> {
        let (backend, hash) = hashes[draw.random_range(0..hashes.len())];
        let node = [BACKENDS[0], BACKENDS[1], BACKENDS[2], CACHES[0], NOBODY][draw.random_range(0..5)];
        let other = KeyHash(draw.random());
        let is_get = draw.random_ratio(3, 4);
        let (whose, hash) = match draw.random_range(0..4) {
            0 | 1 => (backend, hash),
            2 => (node, hash),
            _ => (node, other),
        };
        let port: u16 = if draw.random_ratio(7, 8) { GETS_PORT } else { draw.random() };
        let udp = [&[0x1f, 0x90], &port.to_be_bytes()[..], &[0, 16, 0, 0]].concat();
        let mut mac = [2, 0, 0, 0, 0, 0xff];
        let (kind, ip) = match encoding {
            Encoding::Ipv6(plan) => {
                let to = if is_get { plan.get(whose, hash) } else { plan.member(node) };
                let next = if draw.random_ratio(7, 8) { 17 } else { [0, 6, 44, 58][draw.random_range(0..4)] };
                let head = [0x60, 0, 0, 0, 0, 16, next, 64];
                ([0x86, 0xdd], [&head, &plan.member(CACHES[0]).octets()[..], &to.octets()].concat())
            }
            Encoding::Mac(plan) => {
                let to = if is_get { plan.get(whose, hash) } else { plan.member(node) }.unwrap();
                mac = to.mac().0;
                let length = if draw.random_ratio(15, 16) { 0x45 } else { 0x46 };
                let fragment = if draw.random_ratio(15, 16) { 0x40 } else { [0x20, 0x01][draw.random_range(0..2)] };
                let protocol = if draw.random_ratio(7, 8) { 17 } else { 6 };
                let head = [length, 0, 0, 36, 0, 0, fragment, 0, 64, protocol, 0, 0];
                ([8, 0], [&head, &[10, 77, 0, 100][..], &to.ip().octets()].concat())
            }
        };
        let mut frame = [&mac[..], &[2, 0, 0, 0, 0, 1], &kind, &ip, &udp, &[7; 8]].concat();
        for _ in 0..[0, 0, 0, 1, 2][draw.random_range(0..5)] {
            let bit = draw.random_range(0..frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        if draw.random_ratio(1, 16) {
            frame.truncate(draw.random_range(14..frame.len()));
        }
        frame
    }

    /// What is told of frames that had these outcomes.
    fn note(counts: &mut Counts, sent: &mut BTreeMap<Port, u64>, outcome: Outcome) {
        let count = match outcome {
            Outcome::Dropped => &mut counts.of_nobody,
            Outcome::Others => &mut counts.of_others,
            Outcome::Went { priority: Rules::OF_A_HASH, .. } => &mut counts.by_hash,
            Outcome::Went { priority: Rules::OF_A_BACKEND, .. } => &mut counts.by_backend,
            Outcome::Went { .. } => &mut counts.to_member,
        };
        *count += 1;
        if let Outcome::Went { port, .. } = outcome {
            *sent.entry(port).or_default() += 1;
        }
    }

    fn goes_as_a_switch_has_it(text: &str, packets: u32) {
        let encoding = encoding(text);
        let rules = Rules::new(encoding, GETS_PORT);
        let (mut router, mut reference) = (start(encoding), Reference::default());
        for (key, actions) in flows(rules) {
            assert_eq!(router.make(key, actions), Ok(()));
            reference.make(key, actions);
        }
        let mut draw = SmallRng::seed_from_u64(7);
        let mut hashes: Vec<(NodeId, KeyHash)> =
            (0..RULES_MAX).map(|at| (BACKENDS[at as usize % 3], KeyHash(draw.random()))).collect();
        // One that differs in what a MAC address has no room for, and a whole address of a backend's prefix.
        hashes[1] = (hashes[0].0, KeyHash(hashes[0].1.0 ^ 1));
        hashes[2] = (BACKENDS[2], KeyHash(0));
        let (mut counts, mut sent) = (Counts::default(), BTreeMap::new());
        let mut left = [0; 256];
        for number in 0..packets {
            // Rules come and go; the next packet goes by them.
            if number % 16 == 0 {
                let (backend, hash) = hashes[draw.random_range(0..hashes.len())];
                let key = rules.of_hash(backend, hash);
                if draw.random() {
                    let actions = rules.to(place(draw.random_range(1..=PORTS))).unwrap();
                    assert_eq!(router.make(key, actions), Ok(()));
                    reference.make(key, actions);
                } else {
                    router.take_back(&key);
                    reference.take_back(&key);
                }
            }
            let frame = draw_frame(&mut draw, encoding, &hashes);
            let (outcome, expected) = reference.route(&frame);
            let trial = router.try_frame(&frame, 1, Frames::Dry, &mut left).unwrap();
            let verdict = match outcome {
                Outcome::Dropped => Verdict::Drop,
                Outcome::Others => Verdict::Pass,
                Outcome::Went { .. } => Verdict::Redirect,
            };
            assert_eq!((trial.verdict, &left[..trial.len]), (verdict, &expected[..]), "{outcome:?}: {frame:02x?}");
            note(&mut counts, &mut sent, outcome);
            if number % 16 == 15 {
                assert_eq!(router.counts(), counts, "of the last 16: {outcome:?}");
                let told = router.links().into_iter().map(|link| (link.port.unwrap(), link.sent));
                let told: BTreeMap<Port, u64> = told.filter(|(_, sent)| *sent > 0).collect();
                assert_eq!(told, sent);
            }
        }
        let Counts { by_hash, by_backend, of_nobody, to_member, of_others } = counts;
        for count in [by_hash, by_backend, of_nobody, to_member, of_others] {
            assert!(count > u64::from(packets) / 100, "all that can be has been: {counts:?}");
        }
    }

    #[test]
    fn ipv6_headers_go_as_a_switch_has_it() {
        in_a_namespace(module_path!(), "ipv6_headers_go_as_a_switch_has_it", || {
            goes_as_a_switch_has_it(ENCODINGS[0], 500_000);
        });
    }

    #[test]
    fn mac_headers_go_as_a_switch_has_it() {
        in_a_namespace(module_path!(), "mac_headers_go_as_a_switch_has_it", || {
            goes_as_a_switch_has_it(ENCODINGS[1], 500_000);
        });
    }

    #[test]
    fn what_the_program_cannot_do_is_refused_and_what_was_there_stays() {
        in_a_namespace(module_path!(), "what_the_program_cannot_do_is_refused_and_what_was_there_stays", || {
            let encoding = encoding(ENCODINGS[0]);
            let (rules, mut router) = (Rules::new(encoding, GETS_PORT), start(encoding));
            let key = rules.of_hash(BACKENDS[0], KeyHash(7));
            let to = |port| rules.to(place(port)).unwrap();
            assert_eq!(router.make(key, to(1)), Ok(()));
            let frame = get(encoding, BACKENDS[0], KeyHash(7));
            let mut left = [0; 128];
            let mut goes_to = |router: &Router| {
                let trial = router.try_frame(&frame, 1, Frames::Dry, &mut left).unwrap();
                (trial.verdict, MacAddress(*left.first_chunk().unwrap()))
            };
            let expected = (Verdict::Redirect, place(1).mac);
            assert_eq!(goes_to(&router), expected);

            assert_eq!(router.make(key, to(PORTS + 1)), Err(Refusal::BAD_OUTPUT), "no such port");
            assert_eq!(router.make(key, rules.of_nobody().1), Err(Refusal::BAD_OUTPUT), "a key's gets are not dropped");
            assert_eq!(router.make(key, rules.of_others().1), Err(Refusal::BAD_OUTPUT), "nor left to a host");
            let narrower = Match { udp_dst: None, ..key.matched };
            assert_eq!(router.make(FlowKey { matched: narrower, ..key }, to(2)), Err(Refusal::BAD_FIELD));
            assert_eq!(router.make(FlowKey { priority: 7, ..key }, to(2)), Err(Refusal::BAD_FIELD));
            let from_elsewhere = Match { eth_dst: Some(Masked::exact([2; 6])), ..key.matched };
            assert_eq!(router.make(FlowKey { matched: from_elsewhere, ..key }, to(2)), Err(Refusal::BAD_FIELD));
            router.take_back(&FlowKey { priority: 7, ..key });
            assert_eq!(goes_to(&router), expected);

            router.take_back(&key);
            assert_eq!(goes_to(&router).0, Verdict::Drop);
        });
    }

    #[test]
    fn rules_without_room_are_refused_until_there_is_some() {
        in_a_namespace(module_path!(), "rules_without_room_are_refused_until_there_is_some", || {
            let encoding = encoding(ENCODINGS[1]);
            let (rules, mut router) = (Rules::new(encoding, GETS_PORT), start(encoding));
            // In a MAC address a hash has its 40 highest bits.
            let key = |number: u32| rules.of_hash(BACKENDS[0], KeyHash(u64::from(number) << 32));
            let to = rules.to(place(1)).unwrap();
            let made = (0..1_000).take_while(|number| router.make(key(*number), to).is_ok()).count() as u32;
            // The kernel lets each of its processors have some in hand.
            assert!((RULES_MAX..1_000).contains(&made), "{made}");
            assert_eq!(router.make(key(made), to), Err(Refusal::TABLE_FULL));
            assert_eq!(router.make(key(0), rules.to(place(2)).unwrap()), Ok(()), "one that is there is made anew");
            (0..made).for_each(|number| router.take_back(&key(number)));
            assert_eq!(router.make(key(made), to), Ok(()));
        });
    }

    /// A get as a host sends it.
    fn get(encoding: Encoding, backend: NodeId, hash: KeyHash) -> Vec<u8> {
        let Encoding::Ipv6(plan) = encoding else { panic!("headers in MAC addresses") };
        let udp = [&[0x1f, 0x90], &GETS_PORT.to_be_bytes()[..], &[0, 16, 0, 0], &[7; 8]].concat();
        let head = [0x60, 0, 0, 0, 0, 16, 17, 64];
        let ip = [&head, &plan.member(CACHES[0]).octets()[..], &plan.get(backend, hash).octets()].concat();
        [&[2, 0, 0, 0, 0, 0xff][..], &[2, 0, 0, 0, 0, 9], &[0x86, 0xdd], &ip, &udp].concat()
    }

    #[test]
    fn on_a_hosts_own_link_what_is_the_hosts_comes_up_and_all_else_goes_back() {
        in_a_namespace(module_path!(), "on_a_hosts_own_link_what_is_the_hosts_comes_up_and_all_else_goes_back", || {
            ip_all(["link add own type veth peer name far", "link set own address 02:00:00:00:00:07 up"]).unwrap();
            let encoding = encoding(ENCODINGS[0]);
            let rules = Rules::new(encoding, GETS_PORT);
            let mut router = Router::start(config(encoding, Links::Own("own".into()))).unwrap();
            let at = |mac| {
                rules.to(Place { mac: MacAddress([2, 0, 0, 0, 0, mac]), port: Port::NORMAL, switch: None }).unwrap()
            };
            assert_eq!(router.make(rules.of_backend(BACKENDS[0]).unwrap(), at(7)), Ok(()));
            assert_eq!(router.make(rules.of_hash(BACKENDS[0], KeyHash(7)), at(8)), Ok(()));
            assert_eq!(
                router.make(rules.of_hash(BACKENDS[0], KeyHash(8)), rules.to(place(1)).unwrap()),
                Err(Refusal::BAD_OUTPUT),
                "it has no ports"
            );
            let mut left = [0; 128];
            let mut seen = |hash| {
                let frame = get(encoding, BACKENDS[0], KeyHash(hash));
                let trial = router.try_frame(&frame, 1, Frames::Dry, &mut left).unwrap();
                let mac = |at| MacAddress(*left[at..].first_chunk().unwrap());
                (trial.verdict, mac(0), mac(6))
            };
            let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
            // It was sent to nobody's address, by the host with the ninth; a host takes what is to its own.
            assert_eq!(seen(8), (Verdict::Pass, mac(7), mac(9)));
            assert_eq!(seen(7), (Verdict::Back, mac(8), mac(7)));
            assert_eq!(
                router.try_frame(&get(encoding, BACKENDS[0], KeyHash(8)), 1, Frames::Dry, &mut []).unwrap().verdict,
                Verdict::Pass
            );
        });
    }

    #[test]
    fn a_router_that_cannot_be_says_why_and_leaves_nothing_behind() {
        in_a_namespace(module_path!(), "a_router_that_cannot_be_says_why_and_leaves_nothing_behind", || {
            ip_all(["link add one type veth peer name other", "link set one up"]).unwrap();
            let encoding = encoding(ENCODINGS[0]);
            let start = |links: &[(u32, &str)]| {
                let link = |(port, name): &(u32, &str)| Link { port: Port(*port), name: (*name).into() };
                Router::start(config(encoding, Links::Between(links.iter().map(link).collect())))
            };
            assert!(
                matches!(start(&[(1, "one"), (2, "nothing")]), Err(RouterError::NoLink(name)) if name == "nothing")
            );
            for links in [&[(0, "one")][..], &[(4_096, "one")], &[(1, "one"), (1, "other")]] {
                assert!(matches!(start(links), Err(RouterError::Port(_))), "{links:?}");
            }
            assert!(matches!(start(&[(1, "one"), (2, "one")]), Err(RouterError::Twice(_))));
            let first = start(&[(1, "one")]).unwrap();
            let second = start(&[(1, "other"), (2, "one")]).unwrap_err();
            assert!(matches!(&second, RouterError::Taken(name) if name == "one"), "{second}");
            // It is on the other link no more.
            drop(start(&[(1, "other")]).unwrap());
            drop(first);
            start(&[(1, "one")]).unwrap();
        });
    }

    /// Where gets come to, and what a host is called that has them.
    fn receiver(host: &Namespace) -> UdpSocket {
        let socket = host.within(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, GETS_PORT)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Far longer than a loaded machine needs.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn heard(socket: &UdpSocket) -> Vec<u8> {
        let mut buffer = [0; 64];
        let len = socket.recv(&mut buffer).unwrap();
        buffer[..len].to_vec()
    }

    /// Three hosts, each on a port of the router.
    fn frames_arrive(mode: Mode) {
        let encoding = encoding(ENCODINGS[0]);
        let Encoding::Ipv6(plan) = encoding else { panic!("headers in MAC addresses") };
        let (sender, cache, backend) = (NodeId(10_000), CACHES[0], BACKENDS[0]);
        let gets = [Gets::None, Gets::All, Gets::Of(backend)];
        let hosts = [sender, cache, backend].into_iter().zip(gets).zip(1..).map(|((node, gets), port)| {
            let host = Namespace::new().unwrap();
            ip_all([
                format!("link add port{port} type veth peer name eth0 netns {}", host.holder()),
                format!("address add 10.0.{port}.1/24 dev port{port}"),
                format!("link set port{port} up"),
            ])
            .unwrap();
            let its = Host { link: "eth0", mac: place(port).mac, members: &[node], gets };
            host.ip_all(host_lines(encoding, its, &[])).unwrap();
            host.ip(&format!("address add 10.0.{port}.2/24 dev eth0")).unwrap();
            // A driver sends on to who takes frames as drivers do, and no hardware makes checksums.
            run(host.command("ethtool").args(["-K", "eth0", "tx", "off", "gro", "on"])).unwrap();
            host
        });
        let hosts: Vec<Namespace> = hosts.collect();
        let links = Links::Between((1..=3).map(link).collect());
        let mut router = Router::start(RouterConfig { mode: Some(mode), ..config(encoding, links) }).unwrap();
        assert!(router.links().iter().all(|link| link.mode == mode));
        let rules = Rules::new(encoding, GETS_PORT);
        for (node, port) in [(sender, 1), (cache, 2), (backend, 3)] {
            router.make(rules.of_member(node).unwrap(), rules.to(place(port)).unwrap()).unwrap();
        }
        router.make(rules.of_backend(backend).unwrap(), rules.to(place(3)).unwrap()).unwrap();
        router.make(rules.of_hash(backend, KeyHash(7)), rules.to(place(2)).unwrap()).unwrap();

        let (at_cache, at_backend) = (receiver(&hosts[1]), receiver(&hosts[2]));
        let from = hosts[0].within(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap());
        let send = |to: Ipv6Addr, what: &[u8]| assert_eq!(from.send_to(what, (to, GETS_PORT)).unwrap(), what.len());
        send(plan.get(backend, KeyHash(7)), b"hot");
        send(plan.get(backend, KeyHash(8)), b"cold");
        send(plan.member(cache), b"to the cache node itself");
        send(plan.get(NOBODY, KeyHash(7)), b"of nobody");
        assert_eq!(heard(&at_cache), b"hot");
        assert_eq!(heard(&at_cache), b"to the cache node itself");
        assert_eq!(heard(&at_backend), b"cold");

        // What is not the cluster's comes to this host.
        let here = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9)).unwrap();
        here.set_read_timeout(Some(PATIENCE)).unwrap();
        let other = hosts[0].within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        other.send_to(b"other", (Ipv4Addr::new(10, 0, 1, 1), 9)).unwrap();
        assert_eq!(heard(&here), b"other");

        let Counts { by_hash, by_backend, of_nobody, to_member, of_others } = router.counts();
        assert_eq!((by_hash, by_backend, of_nobody, to_member), (1, 1, 1, 1));
        assert!(of_others > 0);
        let sent: Vec<u64> = router.links().iter().map(|link| link.sent).collect();
        assert_eq!(sent, [0, 2, 1]);
    }

    #[test]
    fn frames_arrive_as_drivers_send_them_on() {
        in_a_namespace(module_path!(), "frames_arrive_as_drivers_send_them_on", || frames_arrive(Mode::Driver));
    }

    #[test]
    fn frames_arrive_as_the_kernel_sends_them_on() {
        in_a_namespace(module_path!(), "frames_arrive_as_the_kernel_sends_them_on", || frames_arrive(Mode::Generic));
    }

    /// A host that has the router on its own link, and one that sends to it.
    fn comes_up(mode: Mode) {
        let encoding = encoding(ENCODINGS[0]);
        let (sender, backend) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        sender.ip(&format!("link add eth0 type veth peer name eth0 netns {}", backend.holder())).unwrap();
        let hosts = [(&sender, 9, NodeId(10_000), Gets::None), (&backend, 7, BACKENDS[0], Gets::Of(BACKENDS[0]))];
        for (host, mac, node, gets) in hosts {
            let mac = MacAddress([2, 0, 0, 0, 0, mac]);
            host.ip_all(host_lines(encoding, Host { link: "eth0", mac, members: &[node], gets }, &[])).unwrap();
            run(host.command("ethtool").args(["-K", "eth0", "tx", "off", "gro", "on"])).unwrap();
        }
        // No switch puts a host's address there.
        sender.ip("neigh replace fe80::ff lladdr 02:00:00:00:00:07 dev eth0 nud permanent").unwrap();
        let links = Links::Own("eth0".into());
        let config = RouterConfig { mode: Some(mode), ..config(encoding, links) };
        let mut router = backend.within(|| Router::start(config)).unwrap();
        let rules = Rules::new(encoding, GETS_PORT);
        let here = Place { mac: MacAddress([2, 0, 0, 0, 0, 7]), port: Port::NORMAL, switch: None };
        router.make(rules.of_backend(BACKENDS[0]).unwrap(), rules.to(here).unwrap()).unwrap();
        router.make(rules.of_member(BACKENDS[0]).unwrap(), rules.to(here).unwrap()).unwrap();
        let (Encoding::Ipv6(plan), at_backend) = (encoding, receiver(&backend)) else { panic!("other headers") };
        let from = sender.within(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap());
        for (to, what) in [(plan.get(BACKENDS[0], KeyHash(8)), &b"cold"[..]), (plan.member(BACKENDS[0]), b"itself")] {
            from.send_to(what, (to, GETS_PORT)).unwrap();
            assert_eq!(heard(&at_backend), what);
        }
    }

    #[test]
    fn what_is_a_hosts_own_comes_to_its_sockets() {
        in_a_namespace(module_path!(), "what_is_a_hosts_own_comes_to_its_sockets", || {
            comes_up(Mode::Driver);
            comes_up(Mode::Generic);
        });
    }
}
