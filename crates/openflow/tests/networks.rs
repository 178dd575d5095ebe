//! Rules in a real switch: Open vSwitch, with hosts in network namespaces that send and receive by ordinary sockets.
//!
//! ```text
//! gateway ---port 1\           / the controller, a thread of the test
//! cache   ---port 2-- switch -<
//! backend ---port 3/           \ rules: of a hash to the cache, of backends to them
//! backend ---port 4/
//! ```

#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

mod open_vswitch {
    use std::{
        collections::BTreeSet,
        io::{ErrorKind, IoSliceMut},
        net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
        os::fd::{AsRawFd, OwnedFd},
        sync::mpsc::{self, Receiver},
        thread,
        time::{Duration, Instant},
    };

    use guira_item::Span;
    use guira_networks::{self as networks, Gets, Namespace, OpenVswitch, host_lines, in_a_namespace, ip, run};
    use guira_openflow::{
        Actions, FlowKey, Place, Port, Refusal, Rules, SwitchConfig, SwitchStatus, Switches, SwitchesConfig,
        SwitchesTold, Told,
    };
    use guira_routing::{
        Destination, Encoding, Frame, FrameReader, FrameWriter, Header, HeaderHash, Ipv6Plan, KeyHash, MacAddress,
        MacPlan, NodeId, Source,
    };
    use nix::{
        ifaddrs::getifaddrs,
        sys::socket::{
            AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, bind, recv,
            recvmsg, send, setsockopt, socket, sockopt::Ipv6RecvPacketInfo,
        },
    };

    const PORT: u16 = 7_100;
    const GATEWAY: NodeId = NodeId(10_000);
    const CACHE: NodeId = NodeId(100);
    const BACKEND: NodeId = NodeId(1_000);
    const OTHER: NodeId = NodeId(1_001);
    /// In the order of their ports, from 1 on.
    const NODES: [NodeId; 4] = [GATEWAY, CACHE, BACKEND, OTHER];

    /// Far longer than a loaded machine needs.
    const DEADLINE: Duration = Duration::from_secs(30);

    fn plan() -> Ipv6Plan {
        "fd5e:a1c0::/32".parse().unwrap()
    }

    fn rules() -> Rules {
        Rules::new(Encoding::Ipv6(plan()), PORT)
    }

    fn mac_plan() -> MacPlan {
        "10.77.0.0/16".parse().unwrap()
    }

    fn mac_rules() -> Rules {
        Rules::new(Encoding::Mac(mac_plan()), PORT)
    }

    fn mac(node: NodeId) -> MacAddress {
        let [high, low] = node.0.to_be_bytes();
        MacAddress([2, 0, 0, 0, high, low])
    }

    fn place(node: NodeId) -> Place {
        let at = NODES.iter().position(|its| *its == node).unwrap();
        Place { mac: mac(node), port: Port(at as u32 + 1), switch: None }
    }

    fn to(node: NodeId) -> Actions {
        rules().to(place(node)).unwrap()
    }

    /// The rules that there always are.
    fn base(rules: Rules) -> Vec<(FlowKey, Option<Actions>)> {
        let to = |node| rules.to(place(node)).unwrap();
        let backends = [BACKEND, OTHER].map(|node| (rules.of_backend(node).unwrap(), to(node)));
        let members = NODES.map(|node| (rules.of_member(node).unwrap(), to(node)));
        let all = backends.into_iter().chain(members).chain([rules.of_nobody(), rules.of_others()]);
        all.map(|(key, actions)| (key, Some(actions))).collect()
    }

    /// A host on the switch.
    struct Host {
        namespace: Namespace,
        socket: UdpSocket,
    }

    impl Host {
        fn new(node: NodeId, switch: &OpenVswitch) -> Self {
            let (namespace, port) = (Namespace::new().unwrap(), place(node).port.0);
            ip(&format!("link add port{port} type veth peer name eth netns {}", namespace.holder())).unwrap();
            ip(&format!("link set port{port} up")).unwrap();
            switch.add_ports([(format!("port{port}"), port)]).unwrap();
            // Checksums would be left to hardware that is not there.
            run(namespace.command("ethtool").args(["-K", "eth", "tx", "off"])).unwrap();
            let gets = match node {
                GATEWAY => Gets::None,
                CACHE => Gets::All,
                _ => Gets::Of(node),
            };
            let host = networks::Host { link: "eth", mac: mac(node), members: &[node], gets };
            namespace.ip_all(host_lines(Encoding::Ipv6(plan()), host, &[])).unwrap();
            namespace.ip(&format!("address add 10.1.0.{port}/24 dev eth")).unwrap();
            let socket = namespace.within(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap());
            socket.set_nonblocking(true).unwrap();
            setsockopt(&socket, Ipv6RecvPacketInfo, &true).unwrap();
            Self { namespace, socket }
        }

        /// What has come: whose it is, what it says, and where it came from.
        fn receive(&self) -> Option<(Header, Vec<u8>, IpAddr)> {
            let mut bytes = [0; 2_048];
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let mut about = nix::cmsg_space!(nix::libc::in6_pktinfo);
            let received =
                recvmsg::<SockaddrIn6>(self.socket.as_raw_fd(), &mut slices, Some(&mut about), MsgFlags::empty());
            let received = match received {
                Ok(received) => received,
                Err(nix::errno::Errno::EAGAIN) => return None,
                Err(error) => panic!("{error}"),
            };
            let address = received.cmsgs().unwrap().find_map(|told| match told {
                ControlMessageOwned::Ipv6PacketInfo(info) => Some(Ipv6Addr::from(info.ipi6_addr.s6_addr)),
                _ => None,
            });
            let header = plan().header(address.expect("it was asked for")).expect("an address of the plan");
            let (len, from) = (received.bytes, received.address.expect("who has sent it"));
            Some((header, bytes[..len].to_vec(), IpAddr::V6(from.ip())))
        }

        fn send(&self, address: Ipv6Addr, port: u16, said: &[u8]) {
            assert_eq!(self.socket.send_to(said, (address, port)).unwrap(), said.len());
        }
    }

    /// A switch, hosts on it, and who makes its rules.
    struct Network {
        switch: OpenVswitch,
        hosts: Vec<Host>,
        switches: Switches,
        told: Receiver<SwitchesTold>,
    }

    impl Network {
        fn new(config: SwitchConfig) -> Self {
            Self::with(rules(), config)
        }

        fn with(rules: Rules, config: SwitchConfig) -> Self {
            ip("link set lo up").unwrap();
            let switch = OpenVswitch::start().unwrap();
            let hosts = NODES.map(|node| Host::new(node, &switch)).into();
            let (tell, told) = mpsc::channel();
            let config = SwitchesConfig { switch: config, ..SwitchesConfig::default() };
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let switches = Switches::listen(address, config, move |told| drop(tell.send(told))).unwrap();
            switches.update(base(rules)).unwrap();
            switch.set_controller(switches.address()).unwrap();
            let network = Self { switch, hosts, switches, told };
            network.wait_until_settled();
            network
        }

        fn host(&self, node: NodeId) -> &Host {
            &self.hosts[place(node).port.0 as usize - 1]
        }

        /// What is told until all switches have what they are to have.
        fn wait_until_settled(&self) -> Vec<SwitchesTold> {
            let mut all = Vec::new();
            loop {
                let told = self.told.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("not settled: {all:?}"));
                let is_settled = matches!(told, SwitchesTold::Of(_, Told::Settled));
                all.push(told);
                if is_settled {
                    return all;
                }
            }
        }

        fn update(&self, flows: impl IntoIterator<Item = (FlowKey, Option<Actions>)>) {
            self.switches.update(flows).unwrap();
            self.wait_until_settled();
        }

        fn status(&self) -> SwitchStatus {
            self.switches.status().unwrap().pop().expect("it has called")
        }

        /// What the gateway sends there comes to this node, and to no other. A switch says that it has a rule somewhat before all packets go by it.
        fn expect(&self, address: Ipv6Addr, header: Header, expected: NodeId) {
            let send = |said: u32| self.host(GATEWAY).send(address, PORT, &said.to_be_bytes());
            let receive = || {
                let (node, got) = NODES.into_iter().find_map(|node| Some((node, self.host(node).receive()?)))?;
                assert_eq!((got.0, got.2), (header, IpAddr::V6(plan().member(GATEWAY))));
                Some((node, got.1))
            };
            expect_there(expected, send, receive);
            assert!(self.hosts.iter().all(|host| host.receive().is_none()), "one has it");
        }

        /// The addresses of keys' rules that the switch has, as it says itself.
        fn rules(&self) -> BTreeSet<Ipv6Addr> {
            let said = self.switch.ofctl("dump-flows", &[]).unwrap();
            let of_hash = said.lines().filter(|line| line.contains("priority=400,"));
            let address = |line: &str| line.split_once("ipv6_dst=")?.1.split([',', ' ']).next()?.parse().ok();
            of_hash.filter_map(address).collect()
        }

        fn packets(&self, priority: &str) -> u64 {
            let said = self.switch.ofctl("dump-flows", &[]).unwrap();
            let line = said.lines().find(|line| line.contains(priority)).unwrap_or_else(|| panic!("{said}"));
            let packets = line.split_once("n_packets=").and_then(|(_, rest)| rest.split(',').next());
            packets.and_then(|packets| packets.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        }
    }

    fn wait_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// What is sent comes to this node, and to no other: the first of it may go by what the switch knew before. What comes late is passed over.
    fn expect_there(expected: NodeId, send: impl Fn(u32), mut receive: impl FnMut() -> Option<(NodeId, Vec<u8>)>) {
        let mut comes_to = |said: u32, patience| {
            send(said);
            wait_for(patience, || receive().filter(|(_, got)| *got == said.to_be_bytes()).map(|(node, _)| node))
        };
        let mut tries = 0..100;
        assert!(tries.any(|said| comes_to(said, DEADLINE / 100) == Some(expected)), "it never comes to {expected:?}");
        for said in 1_000..1_050 {
            assert_eq!(comes_to(said, DEADLINE), Some(expected));
        }
    }

    fn get(backend: NodeId, hash: u64) -> (Ipv6Addr, Header) {
        let header = Header::Get { backend, hash: HeaderHash::Whole(KeyHash(hash)) };
        (plan().get(backend, KeyHash(hash)), header)
    }

    #[test]
    fn gets_of_a_rule_go_to_the_cache_node_and_all_others_straight_to_their_backend() {
        in_a_namespace(
            module_path!(),
            "gets_of_a_rule_go_to_the_cache_node_and_all_others_straight_to_their_backend",
            || {
                let network = Network::new(SwitchConfig::default());
                let (hot, cold, theirs) = (get(BACKEND, 7), get(BACKEND, 8), get(OTHER, 7));
                let expect = |(address, header), node| network.expect(address, header, node);
                expect(hot, BACKEND);
                network.update([(rules().of_hash(BACKEND, KeyHash(7)), Some(to(CACHE)))]);
                expect(hot, CACHE);
                expect(cold, BACKEND);
                // The same hash, of another backend.
                expect(theirs, OTHER);
                for node in NODES {
                    expect((plan().member(node), Header::Member(node)), node);
                }
                network.update([(rules().of_hash(BACKEND, KeyHash(7)), None)]);
                expect(hot, BACKEND);
            },
        );
    }

    /// A socket that has whole frames of a host's link, whomever they are for.
    struct FrameSocket(OwnedFd);

    impl FrameSocket {
        fn of(host: &Host) -> Self {
            Self(host.namespace.within(|| {
                let kind = (AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll);
                let socket = socket(kind.0, kind.1, kind.2, kind.3).unwrap();
                let link = getifaddrs().unwrap().filter(|link| link.interface_name == "eth");
                let link = link.filter_map(|link| link.address?.as_link_addr().copied()).next().unwrap();
                bind(socket.as_raw_fd(), &link).unwrap();
                socket
            }))
        }

        /// The next frame of the plan.
        fn receive(&self) -> Option<(Header, NodeId, Vec<u8>)> {
            let mut bytes = [0; 2_048];
            loop {
                let len = match recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                    Ok(len) => len,
                    Err(nix::errno::Errno::EAGAIN) => return None,
                    Err(error) => panic!("{error}"),
                };
                if let Ok(Frame { header, from, payload }) = FrameReader::new(mac_plan(), PORT).read(&bytes[..len]) {
                    return Some((header, from.node, payload.to_vec()));
                }
            }
        }
    }

    #[test]
    fn frames_with_the_hash_in_the_mac_address_go_the_same_ways() {
        in_a_namespace(module_path!(), "frames_with_the_hash_in_the_mac_address_go_the_same_ways", || {
            let network = Network::with(mac_rules(), SwitchConfig::default());
            let sockets = NODES.map(|node| FrameSocket::of(network.host(node)));
            let [gateway, receivers @ ..] = &sockets;
            let from = Source { node: GATEWAY, port: PORT };
            let writer = FrameWriter::new(&mac_plan(), from, PORT, 1_500).unwrap();
            let sent = |to: Destination, said: u32| {
                let mut frame = Vec::new();
                writer.write(to, &said.to_be_bytes(), &mut frame).unwrap();
                send(gateway.0.as_raw_fd(), &frame, MsgFlags::empty()).unwrap();
            };
            let receive = || {
                let found =
                    receivers.iter().zip(&NODES[1..]).find_map(|(socket, node)| Some((*node, socket.receive()?)));
                let (node, (header, sender, payload)) = found?;
                assert_eq!(sender, GATEWAY);
                Some((node, header, payload))
            };
            let expect = |to: Destination, expected| {
                let header = mac_plan().header(to.mac(), to.ip()).unwrap();
                let receive = || {
                    let (node, got, payload) = receive()?;
                    assert_eq!(got, header);
                    Some((node, payload))
                };
                expect_there(expected, |said| sent(to, said), receive);
            };
            let (hot, cold) = (KeyHash(7 << 60), KeyHash(8 << 60));
            let get = |backend, hash| mac_plan().get(backend, hash).unwrap();
            let of_hash = mac_rules().of_hash(BACKEND, hot);
            expect(get(BACKEND, hot), BACKEND);
            network.update([(of_hash, mac_rules().to(place(CACHE)))]);
            expect(get(BACKEND, hot), CACHE);
            expect(get(BACKEND, cold), BACKEND);
            expect(get(OTHER, cold), OTHER);
            expect(mac_plan().member(BACKEND).unwrap(), BACKEND);
            assert_eq!(network.packets("priority=200"), 0);
            // Of a backend that is not there.
            sent(get(NodeId(9_999), cold), 1);
            let is_dropped = wait_for(DEADLINE, || (network.packets("priority=200") == 1).then_some(()));
            assert!(is_dropped.is_some() && receive().is_none());
            network.update([(of_hash, None)]);
            expect(get(BACKEND, hot), BACKEND);
        });
    }

    #[test]
    fn what_is_no_get_comes_to_nobody_and_what_is_not_the_clusters_passes() {
        in_a_namespace(module_path!(), "what_is_no_get_comes_to_nobody_and_what_is_not_the_clusters_passes", || {
            let network = Network::new(SwitchConfig::default());
            network.update([(rules().of_hash(BACKEND, KeyHash(7)), Some(to(CACHE)))]);
            let gateway = network.host(GATEWAY);
            let (address, _) = get(BACKEND, 7);
            assert_eq!(network.packets("priority=200"), 0);
            gateway.send(get(NodeId(9_999), 7).0, PORT, b"of a backend that is not there");
            gateway.send(address, PORT + 1, b"to another port");
            // In three fragments: the first has a port, and alone it is nothing.
            gateway.send(address, PORT, &[1; 4_000]);
            gateway.namespace.within(|| {
                let connected = TcpStream::connect_timeout(&(address, PORT).into(), Duration::from_millis(100));
                assert_eq!(connected.unwrap_err().kind(), ErrorKind::TimedOut);
            });
            let dropped = wait_for(DEADLINE, || Some(network.packets("priority=200")).filter(|dropped| *dropped >= 5));
            assert!(dropped.is_some(), "one, one, two fragments and a connection's beginning");
            assert!(network.hosts.iter().all(|host| host.receive().is_none()));
            // Others' packets, which the cluster has nothing to do with.
            let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9_000)).unwrap();
            let other = network.host(BACKEND).namespace.within(bind);
            other.set_read_timeout(Some(DEADLINE)).unwrap();
            gateway.namespace.within(bind).send_to(b"others'", ("10.1.0.3", 9_000)).unwrap();
            let mut said = [0; 16];
            assert_eq!(other.recv(&mut said).unwrap(), 7);
        });
    }

    #[test]
    fn a_switch_that_has_lost_its_rules_has_them_again() {
        in_a_namespace(module_path!(), "a_switch_that_has_lost_its_rules_has_them_again", || {
            let read_again_after = Span::from_ms(300);
            let mut network = Network::new(SwitchConfig { read_again_after, ..SwitchConfig::default() });
            let of_hash = |hash| rules().of_hash(BACKEND, KeyHash(hash));
            network.update((0..1_000).map(|hash| (of_hash(hash), Some(to(CACHE)))));
            let wanted: BTreeSet<Ipv6Addr> = (0..1_000).map(|hash| get(BACKEND, hash).0).collect();
            assert_eq!(network.rules(), wanted);

            // Somebody takes some away, and puts others in.
            let one = format!("cookie=0x6775697261000001/-1,udp6,ipv6_dst={}", get(BACKEND, 3).0);
            network.switch.ofctl("del-flows", &[&one]).unwrap();
            let stray = format!(
                "cookie=0x6775697261000001,priority=400,udp6,tp_dst={PORT},ipv6_dst={},actions=drop",
                get(BACKEND, 5_000).0
            );
            network.switch.ofctl("add-flow", &[&stray]).unwrap();
            assert!(wait_for(DEADLINE, || (network.rules() == wanted).then_some(())).is_some(), "it is read again");
            assert!(network.status().counts.differing >= 2);
            let all = 1_000 + base(rules()).len() as u32;
            let is_told = |status: SwitchStatus| {
                let ports: BTreeSet<Port> = status.ports.iter().map(|stats| stats.port).collect();
                (status.tables.first()?.flows == all && (1..5).all(|port| ports.contains(&Port(port)))).then_some(())
            };
            assert!(wait_for(DEADLINE, || is_told(network.status())).is_some(), "{:?}", network.status());

            // All of them, with its power; some are wanted no more when it comes back, and others are.
            network.switch.power_off();
            network.switches.update((0..500).map(|hash| (of_hash(hash), None))).unwrap();
            network.switches.update((1_000..1_200).map(|hash| (of_hash(hash), Some(to(CACHE))))).unwrap();
            network.switch.power_on().unwrap();
            let wanted: BTreeSet<Ipv6Addr> = (500..1_200).map(|hash| get(BACKEND, hash).0).collect();
            assert!(wait_for(DEADLINE, || (network.rules() == wanted).then_some(())).is_some(), "it has called again");
            let expect = |(address, header), node| network.expect(address, header, node);
            expect(get(BACKEND, 1_100), CACHE);
            expect(get(BACKEND, 100), BACKEND);
        });
    }

    #[test]
    fn a_rule_for_which_a_table_has_no_room_is_refused_and_its_key_goes_to_the_backend() {
        in_a_namespace(
            module_path!(),
            "a_rule_for_which_a_table_has_no_room_is_refused_and_its_key_goes_to_the_backend",
            || {
                let network = Network::new(SwitchConfig::default());
                let room = base(rules()).len() + 100;
                network.switch.vsctl(&format!(
                    "--id=@table create Flow_Table flow_limit={room} overflow_policy=refuse -- set bridge switch flow_tables=0=@table"
                )).unwrap();
                let of_hash = |hash| rules().of_hash(BACKEND, KeyHash(hash));
                network.switches.update((0..150).map(|hash| (of_hash(hash), Some(to(CACHE))))).unwrap();
                let told = network.wait_until_settled();
                let refused = |told: &SwitchesTold| match told {
                    SwitchesTold::Of(_, Told::Refused(key, Refusal::TABLE_FULL)) => Some(*key),
                    _ => None,
                };
                let refused: BTreeSet<FlowKey> = told.iter().filter_map(refused).collect();
                assert_eq!(refused, (100..150).map(of_hash).collect());
                assert_eq!(network.rules().len(), 100);
                let expect = |(address, header), node| network.expect(address, header, node);
                expect(get(BACKEND, 99), CACHE);
                expect(get(BACKEND, 100), BACKEND);
                let status = network.status();
                assert_eq!((status.wanted, status.made, status.counts.refused), (room, room, 50));
            },
        );
    }

    #[test]
    fn ten_thousand_rules_are_as_they_are_wanted_after_a_storm_of_changes() {
        in_a_namespace(module_path!(), "ten_thousand_rules_are_as_they_are_wanted_after_a_storm_of_changes", || {
            let network = Network::new(SwitchConfig::default());
            let of_hash = |hash| rules().of_hash(BACKEND, KeyHash(hash));
            network.switches.update((0..10_000).map(|hash| (of_hash(hash), Some(to(CACHE))))).unwrap();
            // Half of them are replaced while they are still being made, and some come back.
            network.switches.update((0..5_000).map(|hash| (of_hash(hash), None))).unwrap();
            network.switches.update((10_000..14_000).map(|hash| (of_hash(hash), Some(to(CACHE))))).unwrap();
            network.switches.update((0..1_000).map(|hash| (of_hash(hash), Some(to(CACHE))))).unwrap();
            let wanted: BTreeSet<Ipv6Addr> = (0..1_000).chain(5_000..14_000).map(|hash| get(BACKEND, hash).0).collect();
            let are_there = wait_for(DEADLINE, || (network.rules() == wanted).then_some(()));
            assert!(are_there.is_some(), "ten thousand rules, and no other");
            let status = network.status();
            let seen = status.updates_per_s.expect("many were told at a time");
            eprintln!("{seen:.0} updates a second, {} batches", status.counts.batches);
        });
    }
}
