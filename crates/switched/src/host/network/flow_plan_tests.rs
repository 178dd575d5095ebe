//! Frames that are sent by any host, through switches of a few lines that know tables and nothing of what they are for.

use std::net::Ipv6Addr;

use guira_openflow::{Masked, Match, Port, TableId};
use guira_routing::{Encoding, Ipv6Plan, MacAddress, PartitionId};
use proptest::prelude::*;

use super::*;
use crate::{Shares, StaticFile};

const CACHES: [NodeId; 2] = [NodeId(100), NodeId(101)];
const BACKENDS: [NodeId; 3] = [NodeId(1_000), NodeId(1_001), NodeId(1_002)];
const HERE: [NodeId; 2] = [NodeId(1), NodeId(10_000)];
const GETS_PORT: u16 = 7_100;
/// Nobody's: senders have one neighbour for all.
const NOBODY: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xff]);

/// Ports to other switches begin here; hosts' are their numbers in [`members`].
const LINKS: u32 = 100;

fn members() -> impl Iterator<Item = NodeId> {
    HERE.into_iter().chain(CACHES).chain(BACKENDS)
}

fn mac(node: NodeId) -> MacAddress {
    // The controller and the gateway are on one host.
    let NodeId(host) = if HERE.contains(&node) { HERE[0] } else { node };
    let [high, low] = host.to_be_bytes();
    MacAddress([2, 0, 0, 0, high, low])
}

fn encoding() -> (Rules, Ipv6Plan) {
    let encoding = "ipv6=fd5e:a1c0::/32".parse().unwrap();
    let Encoding::Ipv6(plan) = encoding else { panic!("it is") };
    (Rules::new(encoding, GETS_PORT), plan)
}

/// A row of switches and links that make circles of it, each member at one of them.
#[derive(Clone, Debug)]
struct Network {
    links: BTreeMap<DatapathId, BTreeMap<Port, DatapathId>>,
    at: BTreeMap<NodeId, DatapathId>,
    of_keys: RulesOfKeys,
}

prop_compose! {
    fn networks(circles_max: usize)(
        len in 1..6_u64,
        more in prop::collection::vec((0..6_u64, 0..6_u64), 0..=circles_max),
        at in prop::array::uniform6(0..6_u64),
        is_parted: bool,
    ) -> Network {
        let mut links: BTreeMap<_, BTreeMap<_, _>> = (0..len).map(|at| (DatapathId(at), BTreeMap::new())).collect();
        let row = (1..len).map(|at| (at - 1, at));
        let more = more.into_iter().map(|(a, b)| (a % len, b % len)).filter(|(a, b)| a != b);
        for (a, b) in row.chain(more) {
            for (from, to) in [(a, b), (b, a)] {
                let its = links.get_mut(&DatapathId(from)).unwrap();
                its.insert(Port(LINKS + its.len() as u32), DatapathId(to));
            }
        }
        // Both who are here are at one place.
        let places = std::iter::once(at[0]).chain(at).map(|at| DatapathId(at % len));
        let of_keys = if is_parted { RulesOfKeys::Parted } else { RulesOfKeys::Replicated };
        Network { links, at: members().zip(places).collect(), of_keys }
    }
}

impl Network {
    fn port(node: NodeId) -> Port {
        let its = members().filter(|node| *node != HERE[1]).position(|its| mac(its) == mac(node));
        Port(its.unwrap() as u32 + 1)
    }

    fn plan(&self) -> FlowPlan {
        self.plan_of(&members().collect::<Vec<_>>(), &[])
    }

    /// Of a cluster of these members, in which these partitions have moved to the last backend.
    fn plan_of(&self, of: &[NodeId], moved: &[PartitionId]) -> FlowPlan {
        let mut text = String::from("secret = \"a secret that is long enough\"\n");
        for node in of {
            let (role, more) = match *node {
                NodeId(1) => ("controller", ""),
                NodeId(10_000) => ("gateway", "listen = \"127.0.0.1:11211\""),
                node if CACHES.contains(&node) => ("cache", ""),
                _ => ("backend", ""),
            };
            text += &format!("[[member]]\nid = {0}\nrole = \"{role}\"\naddress = \"127.0.0.1:{0}\"\n{more}\n", node.0);
        }
        let file = StaticFile::parse(&text).unwrap();
        let shares = file.shares().unwrap();
        let map = Arc::new(shares.map.with_owner(moved.iter().copied(), BACKENDS[2]));
        let mut view = file.view(Shares { map, ..shares });
        let place = |node| Place { mac: mac(node), port: Self::port(node), switch: Some(self.at[&node]) };
        view.places = of.iter().map(|node| (*node, place(*node))).collect();
        let fabric = Fabric::new(self.links.clone()).unwrap();
        FlowPlan::new(encoding().0, Some((fabric, self.of_keys)), &view)
    }

    /// Where a frame comes to that a host has sent: to which switches on its way, and out of which port of the last one, unless it is dropped. Of each switch its flows.
    fn send<'f>(
        &self,
        flows: impl Fn(DatapathId) -> &'f Flows,
        from: NodeId,
        to: Ipv6Addr,
    ) -> (Vec<DatapathId>, Option<(Port, MacAddress)>) {
        let (mut at, mut eth_dst, mut in_port) = (self.at[&from], NOBODY, Self::port(from));
        let mut seen: Vec<DatapathId> = Vec::new();
        loop {
            seen.push(at);
            let times = seen.iter().filter(|its| **its == at).count();
            assert!(times <= 2, "it goes in circles: {seen:?}");
            let (mut table, mut output) = (Some(TableId::FIRST), None);
            while let Some(in_table) = table {
                let actions = look_up(flows(at), at, in_table, in_port, eth_dst, to);
                eth_dst = actions.set_eth_dst.unwrap_or(eth_dst);
                (table, output) = (actions.next_table, output.or(actions.output));
            }
            // By the port by which it came nothing leaves that is not said to go back.
            let port = match output.filter(|port| *port != in_port) {
                Some(Port::IN_PORT) => in_port,
                Some(port) => port,
                None => return (seen, None),
            };
            let Some(there) = self.other_end(at, port) else { return (seen, Some((port, eth_dst))) };
            (at, in_port) = there;
        }
    }

    /// Which hosts a frame comes to that is sent to everybody, and how often.
    fn send_to_all(&self, flows: &Flows, from: NodeId) -> BTreeMap<MacAddress, usize> {
        let everybody = MacAddress([0xff; 6]);
        let mut under_way = vec![(self.at[&from], Self::port(from))];
        let (mut came, mut steps) = (BTreeMap::new(), 0);
        while let Some((at, in_port)) = under_way.pop() {
            steps += 1;
            assert!(steps <= 1_000, "a storm");
            let actions = look_up(flows, at, TableId::FIRST, in_port, everybody, Ipv6Addr::UNSPECIFIED);
            if actions.output != Some(Port::NORMAL) {
                continue;
            }
            let hosts =
                members().filter(|node| *node != HERE[1] && self.at[node] == at && Self::port(*node) != in_port);
            hosts.for_each(|node| *came.entry(mac(node)).or_default() += 1);
            let links = self.links[&at].keys().filter(|port| **port != in_port);
            under_way.extend(links.filter_map(|port| self.other_end(at, *port)));
        }
        came
    }

    /// Of links between the same two the other end is that of the same turn.
    fn other_end(&self, at: DatapathId, port: Port) -> Option<(DatapathId, Port)> {
        let next = *self.links[&at].get(&port)?;
        let turn = self.between(at, next).position(|its| its == port)?;
        Some((next, self.between(next, at).nth(turn)?))
    }

    fn between(&self, from: DatapathId, to: DatapathId) -> impl Iterator<Item = Port> {
        self.links[&from].iter().filter(move |(_, its)| **its == to).map(|(port, _)| *port)
    }

    /// Where a member's host is plugged in, as a frame to it has it in the end.
    fn host(&self, node: NodeId) -> (DatapathId, Option<(Port, MacAddress)>) {
        (self.at[&node], Some((Self::port(node), mac(node))))
    }
}

/// What a switch does with a frame in one of its tables.
fn look_up(flows: &Flows, at: DatapathId, table: TableId, in_port: Port, eth_dst: MacAddress, to: Ipv6Addr) -> Actions {
    let takes = |key: &FlowKey| {
        let Match { in_port: wanted, eth_dst: mac, ipv6_dst, udp_dst, ipv4_dst, .. } = key.matched;
        key.table == table
            && wanted.is_none_or(|wanted| wanted == in_port)
            && mac.is_none_or(|mac: Masked<6>| mac.takes(eth_dst.0))
            && ipv6_dst.is_none_or(|wanted: Masked<16>| wanted.takes(to.octets()))
            && udp_dst.is_none_or(|port| port == GETS_PORT)
            && ipv4_dst.is_none()
    };
    let its = flows.iter().filter(|(flow, _)| flow.switch.is_none_or(|switch| switch == at));
    let best = its.filter(|(flow, _)| takes(&flow.key)).max_by_key(|(flow, _)| flow.key.priority);
    best.map(|(_, actions)| *actions).unwrap_or_default()
}

/// Where it comes to in the end.
fn end((seen, out): (Vec<DatapathId>, Option<(Port, MacAddress)>)) -> (DatapathId, Option<(Port, MacAddress)>) {
    (*seen.last().unwrap(), out)
}

proptest! {
    #[test]
    fn frames_come_to_whom_they_are_for_whatever_switches_have_been_told_of_keys(
        network in networks(5),
        hash: u64,
        cache in prop::sample::select(&CACHES[..]),
        // For each switch whether it has been told yet.
        has_it in prop::array::uniform6(any::<bool>()),
    ) {
        let (plan, hash) = (network.plan(), KeyHash(hash));
        let owner = plan.map.owner_of(hash);
        let (cold, (_, addresses)) = (plan.always(), encoding());
        let (rule, actions) = plan.to_part(hash, cache).unwrap();
        let mut hot = cold.clone();
        hot.insert(rule, actions);
        let some = network.links.keys().filter(|switch| has_it[switch.0 as usize]);
        let of_some = some.filter(|switch| rule.switch.is_none_or(|its| its == **switch));
        let mut told = cold.clone();
        told.extend(of_some.map(|switch| (FlowAt { switch: Some(*switch), key: rule.key }, actions)));
        for from in members() {
            for to in members().filter(|to| mac(*to) != mac(from)) {
                prop_assert_eq!(end(network.send(|_| &hot, from, addresses.member(to))), network.host(to));
            }
            let all = members().map(mac).filter(|to| *to != mac(from)).map(|to| (to, 1)).collect();
            prop_assert_eq!(network.send_to_all(&hot, from), all);
            if mac(from) == mac(owner) || CACHES.contains(&from) {
                // What a cache node says to a backend is to itself, and no get.
                continue;
            }
            let get = addresses.get(owner, hash);
            prop_assert_eq!(end(network.send(|_| &cold, from, get)), network.host(owner));
            prop_assert_eq!(end(network.send(|_| &hot, from, get)), network.host(cache));
            let reached = end(network.send(|_| &told, from, get));
            prop_assert!(reached == network.host(cache) || reached == network.host(owner), "{:?}", reached);
            // Another of its backend's keys, and a backend that is none.
            let other = addresses.get(owner, KeyHash(!hash.0));
            prop_assert_eq!(end(network.send(|_| &hot, from, other)), network.host(owner));
            prop_assert_eq!(network.send(|_| &hot, from, addresses.get(NodeId(9), hash)), (vec![network.at[&from]], None));
        }
    }

    #[test]
    fn while_some_switches_know_of_members_and_moves_and_others_do_not_nothing_goes_in_circles(
        network in networks(5),
        hash: u64,
        // For each switch what it has been told: of which members and partitions, and whether of the rule.
        has_heard in prop::array::uniform6((any::<bool>(), any::<bool>())),
        is_removed: bool,
    ) {
        let (hash, addresses) = (KeyHash(hash), encoding().1);
        let all = network.plan();
        let fewer: Vec<NodeId> = members().filter(|node| ![CACHES[0], BACKENDS[0]].contains(node)).collect();
        let moved = [PartitionId::of(hash)];
        let of = if is_removed { fewer } else { members().collect() };
        let other = network.plan_of(&of, &moved);
        let flows: BTreeMap<DatapathId, Flows> = network.links.keys().map(|at| {
            let (has_the_other, has_rule) = has_heard[at.0 as usize];
            let plan = if has_the_other { &other } else { &all };
            let rule = plan.to_part(hash, CACHES[0]).filter(|_| has_rule);
            let flows = plan.always().into_iter().chain(rule).collect();
            (*at, flows)
        }).collect();
        for from in HERE.into_iter().chain([BACKENDS[1]]) {
            for plan in [&all, &other] {
                let owner = plan.map.owner_of(hash);
                let (seen, out) = network.send(|at| &flows[&at], from, addresses.get(owner, hash));
                let reached = (*seen.last().unwrap(), out);
                let whose = [CACHES[0], owner].map(|node| network.host(node));
                prop_assert!(out.is_none() || whose.contains(&reached), "{:?}", reached);
            }
        }
    }

    #[test]
    fn while_a_cache_node_is_plugged_in_elsewhere_nothing_goes_to_and_fro_in_a_tree(
        network in networks(0),
        hash: u64,
        has_heard in prop::array::uniform6(any::<bool>()),
        elsewhere in 0..6_u64,
    ) {
        let (hash, addresses) = (KeyHash(hash), encoding().1);
        let mut after = network.clone();
        after.at.insert(CACHES[0], DatapathId(elsewhere % network.links.len() as u64));
        let flows = |network: &Network| {
            let plan = network.plan();
            plan.always().into_iter().chain(plan.to_part(hash, CACHES[0])).collect::<Flows>()
        };
        let (before, then) = (flows(&network), flows(&after));
        let owner = network.plan().map.owner_of(hash);
        network.send(|at| if has_heard[at.0 as usize] { &then } else { &before }, HERE[0], addresses.get(owner, hash));
    }

    #[test]
    fn a_switch_has_rules_of_keys_whose_backends_are_there_or_of_all(network in networks(5), hash: u64) {
        let (plan, hash) = (network.plan(), KeyHash(hash));
        let at_owner = network.at[&plan.map.owner_of(hash)];
        let expected = (network.of_keys == RulesOfKeys::Parted).then_some(at_owner);
        prop_assert_eq!(plan.of_hash(hash).switch, expected);
        let always = plan.always();
        let (seen, _) = network.send(|_| &always, HERE[0], encoding().1.get(plan.map.owner_of(hash), hash));
        prop_assert!(seen.contains(&at_owner));
        // The shortest way: no switch twice.
        prop_assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
    }
}

#[test]
fn what_a_switch_has_of_its_own_comes_before_what_all_have() {
    let (key, own) = (encoding().0.of_others().0, Some(DatapathId(7)));
    let [to_one, to_all] = [1, 2].map(|port| Actions { output: Some(Port(port)), ..Actions::default() });
    let flows: Flows = [(FlowAt { switch: own, key }, to_one), (key.into(), to_all)].into();
    assert_eq!(FlowPlan::find(&flows, own, key), Some((FlowAt { switch: own, key }, &to_one)));
    assert_eq!(FlowPlan::find(&flows, None, key), Some((key.into(), &to_all)));
    assert_eq!(FlowPlan::find(&flows, Some(DatapathId(8)), key), Some((key.into(), &to_all)));
    assert_eq!(FlowPlan::find(&flows, own, encoding().0.of_nobody().0), None);
}
