//! Gets that the network routes, through sockets in a network of their own: its only host owns the addresses of all nodes, and gets.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

mod networks {
    use std::{
        collections::BTreeMap,
        net::{SocketAddr, SocketAddrV6, UdpSocket},
        num::NonZero,
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
    use guira_networks::{in_a_namespace, ip};
    use guira_routing::{CacheNodes, Header, HeaderHash, KeyHash, NodeId};

    const GATEWAY: NodeId = NodeId(10_000);
    const BACKEND: NodeId = NodeId(1_000);
    const OTHER: NodeId = NodeId(1_001);
    const CACHE: NodeId = NodeId(100);
    const PARTS: u16 = 5;
    const PORT: u16 = 7_000;

    /// Far longer than a loaded machine needs.
    const DEADLINE: Duration = Duration::from_secs(30);

    fn way() -> GetWay {
        GetWay { plan: "fd5e:a1c0::/32".parse().unwrap(), port: 7_100 }
    }

    fn address(node: NodeId) -> SocketAddr {
        let at = if (CACHE.0..CACHE.0 + PARTS).contains(&node.0) { CACHE } else { node };
        SocketAddrV6::new(way().plan.member(at), PORT + node.0 - at.0, 0, 0).into()
    }

    fn members() -> Arc<Members> {
        let nodes = (CACHE.0..CACHE.0 + PARTS).map(NodeId).chain([GATEWAY, BACKEND, OTHER]);
        Arc::new(Members::new(Epoch(1), nodes.map(|node| (node, address(node)))).unwrap())
    }

    fn secret() -> Secret {
        Secret::derive("test", b"secret")
    }

    /// A host that is all nodes, and owns gets or not.
    fn make_host(owns_gets: bool) {
        ip("link set lo up").unwrap();
        for node in [GATEWAY, BACKEND, OTHER, CACHE] {
            ip(&format!("-6 address add {} dev lo nodad", way().plan.member_prefix(node))).unwrap();
        }
        if owns_gets {
            ip(&format!("-6 route add local {} dev lo", way().plan.gets_prefix())).unwrap();
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

    fn bind(node: NodeId) -> Transport {
        Transport::bind(address(node), Sealer::new(&secret(), node), members()).unwrap()
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

    fn get(backend: NodeId, hash: KeyHash) -> Header {
        Header::Get { backend, hash: HeaderHash::Whole(hash) }
    }

    fn hashes() -> impl Iterator<Item = KeyHash> {
        (1u64..=500).map(|number| KeyHash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    #[test]
    fn gets_come_to_who_owns_their_addresses_and_each_to_its_part() {
        in_a_namespace(module_path!(), "gets_come_to_who_owns_their_addresses_and_each_to_its_part", || {
            make_host(true);
            let caches: CacheNodes = [(CACHE, NonZero::new(PARTS).unwrap())].into_iter().collect();
            let takes = GetsOf::All(caches.steering(CACHE).unwrap());
            let start_part = |part| (part, start(bind(part).taking_gets(way(), takes).unwrap()));
            let parts: BTreeMap<NodeId, Node> = caches.parts().map(start_part).collect();
            let gateway = start(bind(GATEWAY).with_routed_gets(way()));
            for hash in hashes() {
                let backend = if hash.0 % 3 == 0 { OTHER } else { BACKEND };
                let message = hash.0.to_string().into_bytes();
                gateway.0.post(Told::SendGet(backend, hash, message.clone())).ok().unwrap();
                let part = &parts[&caches.part_for(CACHE, hash).unwrap()];
                assert_eq!(hear(part), Heard::Get(GATEWAY, get(backend, hash), message));
            }
            assert!(parts.values().all(|part| counts(part).datagrams_in > 50), "all have some");
        });
    }

    #[test]
    fn a_backend_is_shown_no_gets_but_its_own() {
        in_a_namespace(module_path!(), "a_backend_is_shown_no_gets_but_its_own", || {
            make_host(true);
            let backend = start(bind(BACKEND).taking_gets(way(), GetsOf::Own).unwrap());
            let (raw, hash) = (UdpSocket::bind(address(GATEWAY)).unwrap(), KeyHash(0x0123_4567_89ab_cdef));
            let sealed = |to| {
                let (mut datagram, mut bundle) = (Vec::new(), Bundle::new());
                assert!(bundle.append(b"message"));
                Sealer::new(&secret(), GATEWAY).seal(Epoch(1), to, bundle.body(), &mut datagram);
                datagram
            };
            let send = |datagram: &[u8], to: SocketAddr| assert_eq!(raw.send_to(datagram, to).unwrap(), datagram.len());
            // For another; to a member's own address; sealed as other datagrams are; nothing at all.
            send(&sealed(OTHER), way().address(OTHER, hash));
            send(&sealed(BACKEND), SocketAddrV6::new(way().plan.member(BACKEND), way().port, 0, 0).into());
            send(&sealed(BACKEND), way().address(BACKEND, hash));
            send(b"", way().address(BACKEND, hash));
            drop(raw);
            // What comes behind that is heard, and nothing before it was.
            let gateway = start(bind(GATEWAY).with_routed_gets(way()));
            gateway.0.post(Told::SendGet(OTHER, hash, b"another's".to_vec())).ok().unwrap();
            gateway.0.post(Told::SendGet(BACKEND, hash, b"its own".to_vec())).ok().unwrap();
            assert_eq!(hear(&backend), Heard::Get(GATEWAY, get(BACKEND, hash), b"its own".to_vec()));
            let Counts { datagrams_in, in_misrouted, in_version, in_too_short, .. } = counts(&backend);
            assert_eq!((datagrams_in, in_misrouted, in_version, in_too_short), (6, 3, 1, 1));
        });
    }

    #[test]
    fn without_a_network_that_routes_gets_go_to_their_backends() {
        in_a_namespace(module_path!(), "without_a_network_that_routes_gets_go_to_their_backends", || {
            make_host(false);
            let (backend, gateway) = (start(bind(BACKEND)), start(bind(GATEWAY)));
            gateway.0.post(Told::SendGet(BACKEND, KeyHash(7), b"message".to_vec())).ok().unwrap();
            assert_eq!(hear(&backend), Heard::Message(GATEWAY, b"message".to_vec()));
        });
    }
}
