//! Gets that the network routes, through sockets in a network of their own: its only host has the addresses of all nodes, and
//! owns gets, or has a link that they leave by and come back.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

mod networks {
    use std::{
        collections::BTreeMap,
        net::{SocketAddr, SocketAddrV6, UdpSocket},
        num::NonZero,
        os::fd::AsRawFd,
        sync::{
            Arc,
            mpsc::{self, Receiver, Sender},
        },
        time::Duration,
    };

    use guira_cluster::{
        Bundle, Core, Counts, DriverHandle, Epoch, GetWay, GetsOf, Members, Sealer, Secret, Transport,
    };
    use guira_item::Moment;
    use guira_networks::{in_a_namespace, ip, ip_all};
    use guira_routing::{
        CacheNodes, Encoding, FrameWriter, Header, Ipv6Plan, KeyHash, MTU, MacPlan, NodeId, Source, Steering,
    };
    use nix::{
        ifaddrs::getifaddrs,
        sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendto, socket},
    };

    const GATEWAY: NodeId = NodeId(10_000);
    const BACKEND: NodeId = NodeId(1_000);
    const OTHER: NodeId = NodeId(1_001);
    const CACHE: NodeId = NodeId(100);
    const PARTS: u16 = 5;
    const PORT: u16 = 7_000;

    /// Far longer than a loaded machine needs.
    const DEADLINE: Duration = Duration::from_secs(30);

    fn ipv6() -> Ipv6Plan {
        "fd5e:a1c0::/32".parse().unwrap()
    }

    fn mac() -> MacPlan {
        "10.77.0.0/16".parse().unwrap()
    }

    fn encodings() -> [Encoding; 2] {
        [Encoding::Ipv6(ipv6()), Encoding::Mac(mac())]
    }

    fn way(encoding: Encoding) -> GetWay {
        GetWay { encoding, port: 7_100 }
    }

    fn address(encoding: Encoding, node: NodeId) -> SocketAddr {
        let at = if (CACHE.0..CACHE.0 + PARTS).contains(&node.0) { CACHE } else { node };
        let ip = match encoding {
            Encoding::Ipv6(plan) => plan.member(at).into(),
            Encoding::Mac(plan) => plan.ip(at).unwrap().into(),
        };
        SocketAddr::new(ip, PORT + node.0 - at.0)
    }

    fn members(encoding: Encoding) -> Arc<Members> {
        let nodes = (CACHE.0..CACHE.0 + PARTS).map(NodeId).chain([GATEWAY, BACKEND, OTHER]);
        Arc::new(Members::new(Epoch(1), nodes.map(|node| (node, address(encoding, node)))).unwrap())
    }

    fn secret() -> Secret {
        Secret::derive("test", b"secret")
    }

    /// A host that is all nodes, and owns gets or not; or one whose gateway has a link to all others.
    fn make_host(encoding: Encoding, owns_gets: bool) {
        ip("link set lo up").unwrap();
        if let Encoding::Mac(_) = encoding {
            ip_all(["link add out type veth peer name in", "link set out up", "link set in up"]).unwrap();
        }
        for node in [GATEWAY, BACKEND, OTHER, CACHE] {
            match encoding {
                Encoding::Ipv6(plan) => {
                    ip(&format!("-6 address add {} dev lo nodad", plan.member_prefix(node))).unwrap()
                }
                Encoding::Mac(plan) => {
                    let link = if node == GATEWAY { "out" } else { "in" };
                    ip(&format!("address add {}/16 dev {link}", plan.ip(node).unwrap())).unwrap();
                }
            }
        }
        if let Encoding::Ipv6(plan) = encoding
            && owns_gets
        {
            ip(&format!("-6 route add local {} dev lo", plan.gets_prefix())).unwrap();
        }
    }

    #[derive(PartialEq, Eq, Debug)]
    enum Heard {
        Message(NodeId, Vec<u8>),
        Get(NodeId, Header, Vec<u8>),
        Counts(Counts),
    }

    /// Tells what it hears.
    struct Ear(Sender<Heard>);

    enum Told {
        SendGet(NodeId, KeyHash, Vec<u8>),
        Count,
    }

    impl Core for Ear {
        type Local = Told;

        fn on_message(&mut self, _: Moment, from: NodeId, message: &[u8], _: &mut Transport) {
            self.0.send(Heard::Message(from, message.to_vec())).unwrap();
        }

        fn on_get(&mut self, _: Moment, from: NodeId, header: Header, message: &[u8], _: &mut Transport) {
            self.0.send(Heard::Get(from, header, message.to_vec())).unwrap();
        }

        fn on_local(&mut self, _: Moment, told: Told, transport: &mut Transport) {
            match told {
                Told::SendGet(backend, hash, message) => transport.send_get(backend, hash, &message),
                Told::Count => self.0.send(Heard::Counts(transport.counts())).unwrap(),
            }
        }

        fn on_tick(&mut self, _: Moment, _: &mut Transport) {}

        fn wake_at(&self, _: Moment) -> Option<Moment> {
            None
        }
    }

    type Node = (DriverHandle<Told>, Receiver<Heard>);

    fn bind(encoding: Encoding, node: NodeId) -> Transport {
        Transport::bind(address(encoding, node), Sealer::new(&secret(), node), members(encoding)).unwrap()
    }

    fn start(transport: Transport) -> Node {
        let (heard, hear) = mpsc::channel();
        (DriverHandle::start("test", transport, |_| Ear(heard)).unwrap(), hear)
    }

    fn hear(node: &Node) -> Heard {
        node.1.recv_timeout(DEADLINE).expect("it is heard")
    }

    fn counts(node: &Node) -> Counts {
        node.0.post(Told::Count).ok().unwrap();
        match hear(node) {
            Heard::Counts(counts) => counts,
            heard => panic!("{heard:?}"),
        }
    }

    fn get(encoding: Encoding, backend: NodeId, hash: KeyHash) -> Header {
        Header::Get { backend, hash: encoding.carried(hash) }
    }

    fn hashes() -> impl Iterator<Item = KeyHash> {
        (1u64..=500).map(|number| KeyHash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn parts(steering: Steering) -> impl Iterator<Item = GetsOf> {
        (0..PARTS).map(move |part| GetsOf::Part { steering, part })
    }

    fn come_to_who_owns_their_addresses(encoding: Encoding) {
        make_host(encoding, true);
        let way = way(encoding);
        let caches: CacheNodes = [(CACHE, NonZero::new(PARTS).unwrap())].into_iter().collect();
        let take = parts(caches.steering(CACHE).unwrap());
        let start_part = |(part, takes)| (part, start(bind(encoding, part).taking_gets(way, takes).unwrap()));
        let parts: BTreeMap<NodeId, Node> = caches.parts().zip(take).map(start_part).collect();
        let gateway = start(bind(encoding, GATEWAY).with_routed_gets(way).unwrap());
        for hash in hashes() {
            let backend = if hash.0 % 3 == 0 { OTHER } else { BACKEND };
            let message = hash.0.to_string().into_bytes();
            gateway.0.post(Told::SendGet(backend, hash, message.clone())).ok().unwrap();
            let part = &parts[&caches.part_for(CACHE, hash).unwrap()];
            assert_eq!(hear(part), Heard::Get(GATEWAY, get(encoding, backend, hash), message));
        }
        assert!(parts.values().all(|part| counts(part).datagrams_in > 50), "all have some");
        let seen: u64 = parts.values().map(|part| counts(part).datagrams_in).sum();
        assert_eq!(seen, hashes().count() as u64, "each comes once");
    }

    #[test]
    fn gets_come_to_who_owns_their_addresses_and_each_to_its_part() {
        in_a_namespace(module_path!(), "gets_come_to_who_owns_their_addresses_and_each_to_its_part", || {
            come_to_who_owns_their_addresses(encodings()[0]);
        });
    }

    #[test]
    fn frames_come_to_who_listens_and_each_to_its_part() {
        in_a_namespace(module_path!(), "frames_come_to_who_listens_and_each_to_its_part", || {
            come_to_who_owns_their_addresses(encodings()[1]);
        });
    }

    fn sealed(to: NodeId) -> Vec<u8> {
        let (mut datagram, mut bundle) = (Vec::new(), Bundle::new());
        assert!(bundle.append(b"message"));
        Sealer::new(&secret(), GATEWAY).seal(Epoch(1), to, bundle.body(), &mut datagram);
        datagram
    }

    /// What a gateway sends is heard, and nothing before it was.
    fn hears_its_own_next(encoding: Encoding, backend: &Node, hash: KeyHash) -> Counts {
        let gateway = start(bind(encoding, GATEWAY).with_routed_gets(way(encoding)).unwrap());
        gateway.0.post(Told::SendGet(OTHER, hash, b"another's".to_vec())).ok().unwrap();
        gateway.0.post(Told::SendGet(BACKEND, hash, b"its own".to_vec())).ok().unwrap();
        assert_eq!(hear(backend), Heard::Get(GATEWAY, get(encoding, BACKEND, hash), b"its own".to_vec()));
        counts(backend)
    }

    #[test]
    fn a_backend_is_shown_no_gets_but_its_own() {
        in_a_namespace(module_path!(), "a_backend_is_shown_no_gets_but_its_own", || {
            let [encoding, _] = encodings();
            make_host(encoding, true);
            let (way, plan) = (way(encoding), ipv6());
            let backend = start(bind(encoding, BACKEND).taking_gets(way, GetsOf::Own).unwrap());
            let raw = UdpSocket::bind(address(encoding, GATEWAY)).unwrap();
            let hash = KeyHash(0x0123_4567_89ab_cdef);
            let send = |datagram: &[u8], to| {
                let to = SocketAddrV6::new(to, way.port, 0, 0);
                assert_eq!(raw.send_to(datagram, to).unwrap(), datagram.len());
            };
            // For another; to a member's own address; sealed as other datagrams are; nothing at all.
            send(&sealed(OTHER), plan.get(OTHER, hash));
            send(&sealed(BACKEND), plan.member(BACKEND));
            send(&sealed(BACKEND), plan.get(BACKEND, hash));
            send(b"", plan.get(BACKEND, hash));
            drop(raw);
            let told = hears_its_own_next(encoding, &backend, hash);
            let Counts { datagrams_in, in_misrouted, in_version, in_too_short, .. } = told;
            assert_eq!((datagrams_in, in_misrouted, in_version, in_too_short), (6, 3, 1, 1));
        });
    }

    #[test]
    fn a_backend_is_shown_no_frames_but_its_own() {
        in_a_namespace(module_path!(), "a_backend_is_shown_no_frames_but_its_own", || {
            let [_, encoding] = encodings();
            make_host(encoding, true);
            let (way, plan) = (way(encoding), mac());
            let backend = start(bind(encoding, BACKEND).taking_gets(way, GetsOf::Own).unwrap());
            let raw = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).unwrap();
            let links = getifaddrs().unwrap().filter(|its| its.interface_name == "out");
            let link: LinkAddr = links.filter_map(|its| its.address?.as_link_addr().copied()).next().unwrap();
            let send = |frame: &[u8]| {
                assert_eq!(sendto(raw.as_raw_fd(), frame, &link, MsgFlags::empty()).unwrap(), frame.len());
            };
            let hash = KeyHash(0x0123_4567_89ab_cdef);
            let frame = |port, to, payload: &[u8]| {
                let writer = FrameWriter::new(&plan, Source { node: GATEWAY, port: PORT }, port, MTU).unwrap();
                let mut frame = Vec::new();
                writer.write(to, payload, &mut frame).unwrap();
                frame
            };
            let (its, others) = (plan.get(BACKEND, hash).unwrap(), plan.get(OTHER, hash).unwrap());
            // For another; sealed as other datagrams are; nothing at all.
            send(&frame(way.port, others, &sealed(OTHER)));
            send(&frame(way.port, its, &sealed(BACKEND)));
            send(&frame(way.port, its, b""));
            // With a bit changed; cut off; a fragment, with the checksum that it would have.
            let whole = frame(way.port, its, &sealed(BACKEND));
            let mut changed = whole.clone();
            *changed.last_mut().unwrap() ^= 1;
            send(&changed);
            send(&whole[..whole.len() - 1]);
            let mut fragment = whole.clone();
            (fragment[20], fragment[24]) = (fragment[20] ^ 0x60, fragment[24].wrapping_add(0x20));
            send(&fragment);
            // The address of no node of ours, from a node of another network.
            let elsewhere: MacPlan = "10.78.0.0/16".parse().unwrap();
            let writer = FrameWriter::new(&elsewhere, Source { node: GATEWAY, port: PORT }, way.port, MTU).unwrap();
            let mut nobody = Vec::new();
            writer.write(elsewhere.get(BACKEND, hash).unwrap(), &sealed(BACKEND), &mut nobody).unwrap();
            send(&nobody);
            // What the filter leaves out is not even counted: to another port, to a member itself, of another protocol.
            send(&frame(way.port + 1, its, &sealed(BACKEND)));
            send(&frame(way.port, plan.member(BACKEND).unwrap(), &sealed(BACKEND)));
            let mut of_others = frame(way.port, its, &sealed(BACKEND));
            of_others[14 + 9] = 6;
            send(&of_others);

            let Counts { datagrams_in, in_misrouted, in_version, in_too_short, in_damaged, .. } =
                hears_its_own_next(encoding, &backend, hash);
            assert_eq!((datagrams_in, in_misrouted, in_version, in_too_short, in_damaged), (9, 3, 1, 1, 3));
        });
    }

    #[test]
    fn a_gateway_whose_address_is_on_no_link_says_so() {
        in_a_namespace(module_path!(), "a_gateway_whose_address_is_on_no_link_says_so", || {
            let [_, encoding] = encodings();
            make_host(encoding, true);
            let transport = bind(encoding, GATEWAY);
            ip("link delete out").unwrap();
            let error = transport.with_routed_gets(way(encoding)).err().unwrap();
            assert!(error.to_string().contains("no link of this host has the address 10.77.39.16"), "{error}");
        });
    }

    #[test]
    fn without_a_network_that_routes_gets_go_to_their_backends() {
        in_a_namespace(module_path!(), "without_a_network_that_routes_gets_go_to_their_backends", || {
            let [encoding, _] = encodings();
            make_host(encoding, false);
            let (backend, gateway) = (start(bind(encoding, BACKEND)), start(bind(encoding, GATEWAY)));
            gateway.0.post(Told::SendGet(BACKEND, KeyHash(7), b"message".to_vec())).ok().unwrap();
            assert_eq!(hear(&backend), Heard::Message(GATEWAY, b"message".to_vec()));
        });
    }
}
