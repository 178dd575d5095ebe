//! Which flows a cluster's switches are to have: gets go by their hash's rule, if there is one, and else to their backend (SwitchKV, section 3.1.2).
//!
//! ```text
//! priority  of which packets                             what becomes of them
//!   400     gets of a hash                               to the cache node that has it        exact
//!   300     gets of a backend                            to the backend                       wildcard
//!   200     gets of nobody, and what is no get there     dropped, and counted by the switch
//!   100     what goes to a member itself                 to the member
//!     0     all else                                     as if there were no controller
//! ```
//! Where there are several switches ([`Fabric`](crate::Fabric)), this says to which host a packet goes, and other tables by which way:
//!
//! ```text
//! table  priority    of which packets                            what becomes of them
//!   0    500 or 350  gets that come from another switch          by table 1: it has decided
//!   0    400...      as above, but that hosts' addresses take    by table 1; what a hash's rule says, where others
//!                    ports' place                                may lead back, by table 2
//!   0      1         all else, by a link that is no tree's       dropped: it comes by another
//!   1    100         to a host                                   by the port that leads there
//!   2    200         to a host, by the port by which it came     back by that port
//!   2    100         to a host                                   by the port that leads there
//! ```
//! With headers in IPv6 addresses the frame's destination becomes that of the host, which takes no other. With those in MAC addresses nothing is
//! changed, since the hash is in there, and hosts take any.
//! Always true: a get is a datagram to the cluster's port. What has a get's address and is something else (another protocol or port, or a fragment
//! behind the first, which has no port) comes to nobody.

use guira_routing::{Encoding, Header, HeaderHash, KeyHash, MacAddress, MacKind, NodeId};

use crate::{Actions, DatapathId, FlowKey, IPV4, IPV6, Masked, Match, Port, RulesOfKeys, TableId, UDP};

const DECIDED: u16 = 500;
const OF_A_HASH: u16 = 400;
/// Where those that come from other switches may have to be looked up by hash.
const DECIDED_BUT_FOR_HASHES: u16 = 350;
const OF_A_BACKEND: u16 = 300;
const OF_NOBODY: u16 = 200;
const OF_A_MEMBER: u16 = 100;
const OF_OTHERS_BY_A_LINK: u16 = 1;
const OF_OTHERS: u16 = 0;

/// Say by which way a frame comes to a host: one that goes on, and one that may turn round.
const WAYS: TableId = TableId(1);
const TURNS: TableId = TableId(2);
const WAY_BACK: u16 = 200;
const WAY: u16 = 100;

/// Bits of a MAC address that say that it is of a get.
const MAC_KIND_BITS: usize = 8;

/// Where a node is for a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its host's address.
    pub mac: MacAddress,
    /// The port by which it is reached; with [`Port::NORMAL`] the switch finds that out by the address, which only headers in IPv6 addresses leave to it.
    pub port: Port,
    /// The switch that has that port, where there are several.
    pub switch: Option<DatapathId>,
}

/// Which packets a rule is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RuleOf {
    /// Gets of keys with a hash; whose they are, if the header says both in one.
    Hash(Option<NodeId>, HeaderHash),
    /// Gets of a backend.
    Backend(NodeId),
    /// Gets of nobody, and what is no get.
    Nobody,
    /// What goes to a member.
    Member(NodeId),
    /// All else.
    Others,
}

/// The rules of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    encoding: Encoding,
    port: u16,
}

impl Rules {
    /// The priority of the rules of backends, which no other rule has.
    pub const OF_A_BACKEND: u16 = OF_A_BACKEND;

    /// The priority of the rules of hashes, which no other rule has.
    pub const OF_A_HASH: u16 = OF_A_HASH;

    /// Those of a cluster whose gets have headers of this encoding, and go to this port of UDP.
    pub fn new(encoding: Encoding, port: u16) -> Self {
        Self { encoding, port }
    }

    /// Gets of keys with a hash, which a backend owns.
    pub fn of_hash(&self, backend: NodeId, hash: KeyHash) -> FlowKey {
        let to = match self.encoding {
            Encoding::Ipv6(plan) => {
                Match { ipv6_dst: Some(Masked::exact(plan.get(backend, hash).octets())), ..Match::default() }
            }
            // Whosever they are: a MAC address has no room for that.
            Encoding::Mac(_) => Match { eth_dst: Some(Masked::exact(MacAddress::of_get(hash).0)), ..Match::default() },
        };
        FlowKey { table: TableId::FIRST, priority: OF_A_HASH, matched: self.datagrams(to) }
    }

    /// Gets of a backend's keys; `None`: the encoding has no address for a node of this number.
    pub fn of_backend(&self, backend: NodeId) -> Option<FlowKey> {
        let to = match self.encoding {
            Encoding::Ipv6(plan) => {
                let prefix = plan.gets_of_prefix(backend);
                let ipv6_dst = Some(Masked::prefix(prefix.address.octets(), prefix.len.into()));
                Match { ipv6_dst, ..Match::default() }
            }
            Encoding::Mac(plan) => Match { ipv4_dst: Some(Masked::exact(plan.ip(backend)?.octets())), ..self.gets() },
        };
        Some(FlowKey { table: TableId::FIRST, priority: OF_A_BACKEND, matched: self.datagrams(to) })
    }

    /// Gets that are nobody's, and what has their addresses and is no get.
    pub fn of_nobody(&self) -> (FlowKey, Actions) {
        let key = FlowKey { table: TableId::FIRST, priority: OF_NOBODY, matched: self.gets() };
        (key, Actions::default())
    }

    /// Whatever goes to a member itself; `None` as for [`of_backend`](Self::of_backend).
    pub fn of_member(&self, node: NodeId) -> Option<FlowKey> {
        let matched = match self.encoding {
            Encoding::Ipv6(plan) => {
                let ipv6_dst = Some(Masked::exact(plan.member(node).octets()));
                Match { eth_type: Some(IPV6), ipv6_dst, ..Match::default() }
            }
            Encoding::Mac(plan) => {
                let eth_dst = plan.member(node)?.mac();
                Match { eth_dst: Some(Masked::exact(eth_dst.0)), ..Match::default() }
            }
        };
        Some(FlowKey { table: TableId::FIRST, priority: OF_A_MEMBER, matched })
    }

    /// All else: what is not the cluster's passes as ever.
    pub fn of_others(&self) -> (FlowKey, Actions) {
        let key = FlowKey { table: TableId::FIRST, priority: OF_OTHERS, matched: Match::default() };
        (key, Actions { output: Some(Port::NORMAL), ..Actions::default() })
    }

    /// Gets that come from another switch by this port, which has said to which host they go.
    pub fn decided(&self, port: Port, of_keys: RulesOfKeys) -> (FlowKey, Actions) {
        let matched = self.datagrams(Match { in_port: Some(port), ..self.gets() });
        let priority = match of_keys {
            RulesOfKeys::Replicated => DECIDED,
            RulesOfKeys::Parted => DECIDED_BUT_FOR_HASHES,
        };
        let actions = Actions { next_table: Some(WAYS), ..Actions::default() };
        (FlowKey { table: TableId::FIRST, priority, matched }, actions)
    }

    /// All else that comes by this port: by another it comes, too.
    pub fn of_others_by(port: Port) -> (FlowKey, Actions) {
        let matched = Match { in_port: Some(port), ..Match::default() };
        (FlowKey { table: TableId::FIRST, priority: OF_OTHERS_BY_A_LINK, matched }, Actions::default())
    }

    /// What sends packets on their way to a host, where there are several switches.
    pub fn to_host(host: MacAddress) -> Actions {
        Actions { set_eth_dst: Some(host), output: None, next_table: Some(WAYS) }
    }

    /// The same, for packets that may have come from where that host is.
    pub fn to_host_or_back(host: MacAddress) -> Actions {
        Actions { next_table: Some(TURNS), ..Self::to_host(host) }
    }

    /// What goes to a host leaves by this port.
    pub fn way(host: MacAddress, port: Port) -> (FlowKey, Actions) {
        let matched = Match { eth_dst: Some(Masked::exact(host.0)), ..Match::default() };
        (FlowKey { table: WAYS, priority: WAY, matched }, Actions { output: Some(port), ..Actions::default() })
    }

    /// The same of packets that may have come by it: a switch sends back only what is said to go back.
    pub fn way_or_back(host: MacAddress, port: Port) -> [(FlowKey, Actions); 2] {
        let (key, on) = Self::way(host, port);
        let key = FlowKey { table: TURNS, ..key };
        let matched = Match { in_port: Some(port), ..key.matched };
        let back = Actions { output: Some(Port::IN_PORT), ..Actions::default() };
        [(key, on), (FlowKey { priority: WAY_BACK, matched, ..key }, back)]
    }

    /// What a flow is of; `None`: these rules have no such flow.
    pub fn of(&self, key: &FlowKey) -> Option<RuleOf> {
        let fits = |rule: &RuleOf| self.key(*rule).as_ref() == Some(key);
        self.read(&key.matched).into_iter().chain([RuleOf::Nobody, RuleOf::Others]).find(fits)
    }

    /// The flow of that.
    fn key(&self, rule: RuleOf) -> Option<FlowKey> {
        match rule {
            RuleOf::Hash(backend, hash) => Some(self.of_hash(backend.unwrap_or(NodeId(0)), hash.lowest())),
            RuleOf::Backend(backend) => self.of_backend(backend),
            RuleOf::Nobody => Some(self.of_nobody().0),
            RuleOf::Member(node) => self.of_member(node),
            RuleOf::Others => Some(self.of_others().0),
        }
    }

    /// What the addresses may be of that a match wants.
    fn read(&self, matched: &Match) -> Vec<RuleOf> {
        match self.encoding {
            Encoding::Ipv6(plan) => match matched.ipv6_dst.and_then(|to| plan.header(to.value().into())) {
                Some(Header::Get { backend, hash }) => {
                    vec![RuleOf::Hash(Some(backend), hash), RuleOf::Backend(backend)]
                }
                Some(Header::Member(node)) => vec![RuleOf::Member(node)],
                None => Vec::new(),
            },
            Encoding::Mac(plan) => {
                let by_mac = matched.eth_dst.and_then(|to| MacAddress(to.value()).kind()).map(|kind| match kind {
                    MacKind::Get(hash) => RuleOf::Hash(None, hash),
                    MacKind::Member(node) => RuleOf::Member(node),
                });
                let by_ip = matched.ipv4_dst.and_then(|to| plan.node(to.value().into())).map(RuleOf::Backend);
                by_mac.into_iter().chain(by_ip).collect()
            }
        }
    }

    /// What brings packets there. `None`: with headers in MAC addresses a switch has to be told its port.
    pub fn to(&self, place: Place) -> Option<Actions> {
        match self.encoding {
            Encoding::Ipv6(_) => {
                Some(Actions { set_eth_dst: Some(place.mac), output: Some(place.port), next_table: None })
            }
            Encoding::Mac(_) if place.port == Port::NORMAL => None,
            Encoding::Mac(_) => Some(Actions { output: Some(place.port), ..Actions::default() }),
        }
    }

    /// All that has the address of a get.
    fn gets(&self) -> Match {
        match self.encoding {
            Encoding::Ipv6(plan) => {
                let prefix = plan.gets_prefix();
                let ipv6_dst = Some(Masked::prefix(prefix.address.octets(), prefix.len.into()));
                Match { eth_type: Some(IPV6), ipv6_dst, ..Match::default() }
            }
            Encoding::Mac(_) => {
                let any = MacAddress::of_get(KeyHash(0));
                Match { eth_dst: Some(Masked::prefix(any.0, MAC_KIND_BITS)), ..Match::default() }
            }
        }
    }

    /// Of these packets, datagrams to the cluster's port.
    fn datagrams(&self, of: Match) -> Match {
        let eth_type = match self.encoding {
            Encoding::Ipv6(_) => IPV6,
            Encoding::Mac(_) => IPV4,
        };
        Match { eth_type: Some(eth_type), ip_proto: Some(UDP), udp_dst: Some(self.port), ..of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 7_100;
    const BACKEND: NodeId = NodeId(1_000);
    const OTHER: NodeId = NodeId(1_001);
    const HASH: KeyHash = KeyHash(0x0123_4567_89ab_cdef);

    fn rules(encoding: &str) -> Rules {
        Rules::new(encoding.parse().unwrap(), PORT)
    }

    /// Whether a flow takes a datagram with these addresses, to this port.
    fn takes(key: FlowKey, mac: [u8; 6], ip: &[u8], udp_dst: u16) -> bool {
        let Match { eth_dst, eth_type, ip_proto, ipv4_dst, ipv6_dst, udp_dst: wanted, in_port: _ } = key.matched;
        let is_there = |kind: Option<u16>, len| kind.is_none_or(|kind| (kind == IPV6) == (len == 16));
        eth_dst.is_none_or(|masked| masked.takes(mac))
            && is_there(eth_type, ip.len())
            && ip_proto.is_none_or(|kind| kind == UDP)
            && ipv4_dst.is_none_or(|masked| ip.try_into().is_ok_and(|ip| masked.takes(ip)))
            && ipv6_dst.is_none_or(|masked| ip.try_into().is_ok_and(|ip| masked.takes(ip)))
            && wanted.is_none_or(|port| port == udp_dst)
    }

    /// The flow of the highest priority that takes it.
    fn first(flows: &[FlowKey], mac: [u8; 6], ip: &[u8], udp_dst: u16) -> u16 {
        flows.iter().filter(|key| takes(**key, mac, ip, udp_dst)).map(|key| key.priority).max().unwrap()
    }

    fn flows(rules: Rules) -> Vec<FlowKey> {
        let some = [rules.of_backend(BACKEND), rules.of_member(BACKEND), rules.of_member(OTHER)];
        let all = [rules.of_hash(BACKEND, HASH), rules.of_nobody().0, rules.of_others().0];
        some.into_iter().map(Option::unwrap).chain(all).collect()
    }

    #[test]
    fn gets_in_ipv6_addresses_go_by_hash_then_by_backend_and_else_to_nobody() {
        let rules = rules("ipv6=fd5e:a1c0::/32");
        let Encoding::Ipv6(plan) = rules.encoding else { panic!() };
        let flows = flows(rules);
        let first = |address: std::net::Ipv6Addr, port| first(&flows, [2, 0, 0, 0, 0, 0xff], &address.octets(), port);
        assert_eq!(first(plan.get(BACKEND, HASH), PORT), OF_A_HASH);
        assert_eq!(first(plan.get(BACKEND, KeyHash(HASH.0 ^ 1)), PORT), OF_A_BACKEND);
        assert_eq!(first(plan.get(OTHER, HASH), PORT), OF_NOBODY);
        assert_eq!(first(plan.get(BACKEND, HASH), PORT + 1), OF_NOBODY);
        assert_eq!(first(plan.member(BACKEND), PORT), OF_A_MEMBER);
        assert_eq!(first(plan.member(BACKEND), 9), OF_A_MEMBER);
        assert_eq!(first("fd5e:a1c1:1:3e8::1".parse().unwrap(), PORT), OF_OTHERS);
    }

    #[test]
    fn gets_in_mac_addresses_go_by_hash_then_by_backend_and_else_to_nobody() {
        let rules = rules("mac=10.77.0.0/16");
        let Encoding::Mac(plan) = rules.encoding else { panic!() };
        let flows = flows(rules);
        let first = |mac: MacAddress, node, port| first(&flows, mac.0, &plan.ip(node).unwrap().octets(), port);
        assert_eq!(first(MacAddress::of_get(HASH), BACKEND, PORT), OF_A_HASH);
        assert_eq!(first(MacAddress::of_get(HASH), OTHER, PORT), OF_A_HASH, "whosever it is");
        let other = MacAddress::of_get(KeyHash(HASH.0 ^ 1 << 24));
        assert_eq!(first(other, BACKEND, PORT), OF_A_BACKEND);
        assert_eq!(first(other, OTHER, PORT), OF_NOBODY);
        assert_eq!(first(other, BACKEND, PORT + 1), OF_NOBODY);
        assert_eq!(first(MacAddress::of_member(BACKEND), BACKEND, PORT), OF_A_MEMBER);
        assert_eq!(first(MacAddress([2, 0, 0, 0, 0, 1]), BACKEND, PORT), OF_OTHERS);
    }

    #[test]
    fn a_flow_says_what_it_is_of_and_others_are_none() {
        for (encoding, backend) in [("ipv6=fd5e:a1c0::/32", Some(BACKEND)), ("mac=10.77.0.0/16", None)] {
            let rules = rules(encoding);
            let hash = if backend.is_some() { HeaderHash::Whole(HASH) } else { HeaderHash::high(HASH) };
            let expected = [
                RuleOf::Backend(BACKEND),
                RuleOf::Member(BACKEND),
                RuleOf::Member(OTHER),
                RuleOf::Hash(backend, hash),
                RuleOf::Nobody,
                RuleOf::Others,
            ];
            for (key, expected) in flows(rules).into_iter().zip(expected) {
                assert_eq!(rules.of(&key), Some(expected), "{encoding}");
                let other = Match { udp_dst: Some(PORT + 1), ..key.matched };
                assert_eq!(
                    rules.of(&FlowKey { matched: other, ..key }),
                    None,
                    "{encoding}: {expected:?}, to another port"
                );
                assert_eq!(
                    rules.of(&FlowKey { priority: 7, ..key }),
                    None,
                    "{encoding}: {expected:?}, of another priority"
                );
            }
        }
    }

    #[test]
    fn a_switch_has_to_be_told_the_port_only_where_the_hash_is_in_the_mac_address() {
        let place = Place { mac: MacAddress([2, 0, 0, 0, 0, 1]), port: Port::NORMAL, switch: None };
        let (ipv6, mac) = (rules("ipv6=fd5e:a1c0::/32"), rules("mac=10.77.0.0/16"));
        assert_eq!(
            ipv6.to(place),
            Some(Actions { set_eth_dst: Some(place.mac), output: Some(Port::NORMAL), next_table: None })
        );
        assert_eq!(mac.to(place), None);
        let third = Some(Port(3));
        assert_eq!(mac.to(Place { port: Port(3), ..place }), Some(Actions { output: third, ..Actions::default() }));
        assert_eq!(mac.of_backend(NodeId(0)), None, "the network's own address");
    }
}
