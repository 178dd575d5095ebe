//! Rules of a cluster that is not there: how our controller says them, how Open vSwitch's tool does, and frames that go by them.
//!
//! ```text
//! key 0 1 2 ... | cached, or in the buffer: a rule of its hash each | not cached ...
//!               \------------------- keys -------------------------/
//! ```
//! Always true: a key has one hash, one backend and one cache node, so that two sets agree about every key that is in both.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::Range;

use guira_openflow::{Actions, FlowKey, Place, Port, Rules};
use guira_routing::{Encoding, Ipv6Plan, KeyHash, MacAddress, NodeId};

/// The port of gets.
pub(super) const GETS_PORT: u16 = 6_999;

const CACHES: [NodeId; 2] = [NodeId(100), NodeId(101)];
const BACKENDS: [NodeId; 2] = [NodeId(1_000), NodeId(1_001)];
const GATEWAY: NodeId = NodeId(10_000);

/// Members by their ports, from 1 on.
const NODES: [NodeId; 5] = [CACHES[0], CACHES[1], BACKENDS[0], BACKENDS[1], GATEWAY];

/// Ports of a router, from 1 on.
pub(super) const PORTS: u32 = NODES.len() as u32;

/// Bytes behind the headers: a key and what is said of it, sealed.
const PAYLOAD_LEN: u16 = 64;

/// The rules of some keys, beside those that there always are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleSet {
    keys: Range<u64>,
}

impl RuleSet {
    /// Those of keys by their numbers.
    pub fn of(keys: Range<u64>) -> Self {
        Self { keys }
    }

    /// How gets say what they are for.
    pub fn encoding() -> Encoding {
        Encoding::Ipv6(plan())
    }

    /// The keys.
    pub fn keys(&self) -> Range<u64> {
        self.keys.clone()
    }

    /// Rules of hashes.
    pub fn len(&self) -> u64 {
        self.keys.end - self.keys.start
    }

    /// As many, of which so many are of other keys: the ones that were there longest have gone.
    pub fn moved_on(&self, by: u64) -> Self {
        Self::of(self.keys.start + by..self.keys.end + by)
    }

    /// What there is without any cached key.
    pub fn base() -> Vec<(FlowKey, Actions)> {
        let rules = rules();
        let members = NODES.iter().filter_map(|node| Some((rules.of_member(*node)?, to(*node))));
        let backends = BACKENDS.iter().filter_map(|node| Some((rules.of_backend(*node)?, to(*node))));
        members.chain(backends).chain([rules.of_nobody(), rules.of_others()]).collect()
    }

    /// The rules of hashes.
    pub fn of_hashes(&self) -> impl Iterator<Item = (FlowKey, Actions)> {
        let rules = rules();
        self.keys().map(move |key| (rules.of_hash(backend(key), hash(key)), to(cache(key))))
    }

    /// All.
    pub fn all(&self) -> impl Iterator<Item = (FlowKey, Actions)> {
        Self::base().into_iter().chain(self.of_hashes())
    }

    /// What is to be told to who has these and is to have the others.
    pub fn changes_to(&self, other: &Self) -> Vec<(FlowKey, Option<Actions>)> {
        let rule = |key| Self::of(key..key + 1).of_hashes().next();
        let beyond = |these: &Self, those: &Self| {
            let those = those.keys();
            these.keys().filter(move |key| !those.contains(key)).filter_map(rule)
        };
        let gone = beyond(self, other).map(|(key, _)| (key, None));
        gone.chain(beyond(other, self).map(|(key, actions)| (key, Some(actions)))).collect()
    }

    /// The rules of hashes as lines for `ovs-ofctl`.
    pub fn lines(&self) -> String {
        let line = |key: u64| {
            let to = plan().get(backend(key), hash(key));
            format!("priority=400,udp6,tp_dst={GETS_PORT},ipv6_dst={to},actions={}\n", actions(cache(key)))
        };
        self.keys().map(line).collect()
    }

    /// The same by what they match alone: as `ovs-ofctl` wants it of what is to go.
    pub fn lines_to_delete(&self) -> String {
        let line = |key: u64| {
            let to = plan().get(backend(key), hash(key));
            format!("delete_strict priority=400,udp6,tp_dst={GETS_PORT},ipv6_dst={to}\n")
        };
        self.keys().map(line).collect()
    }

    /// All rules as lines.
    pub fn all_lines(&self) -> String {
        let plan = plan();
        let members =
            NODES.map(|node| format!("priority=100,ipv6,ipv6_dst={},actions={}\n", plan.member(node), actions(node)));
        let backends = BACKENDS.map(|node| {
            let prefix = plan.gets_of_prefix(node);
            format!("priority=300,udp6,tp_dst={GETS_PORT},ipv6_dst={prefix},actions={}\n", actions(node))
        });
        let nobody = format!("priority=200,ipv6,ipv6_dst={},actions=drop\n", plan.gets_prefix());
        [members.concat(), backends.concat(), nobody, "priority=0,actions=NORMAL\n".into(), self.lines()].concat()
    }

    /// Whether a switch that says this of its flows has these, and nothing else; if not, what differs first.
    ///
    /// # Errors
    /// What differs.
    pub fn is_told(&self, dump: &str) -> Result<(), String> {
        let (mut others, mut of_hashes) = (0, BTreeMap::new());
        for line in dump.lines().filter(|line| line.contains("priority=") || line.contains("actions=")) {
            if line.contains("priority=400,") {
                let (address, goes) =
                    of_hash_told(line).ok_or_else(|| format!("it has a flow that is none of ours: {line}"))?;
                of_hashes.insert(address, goes);
            } else {
                others += 1;
            }
        }
        let wanted = self.keys().map(|key| (plan().get(backend(key), hash(key)), actions(cache(key))));
        let wanted: BTreeMap<Ipv6Addr, String> = wanted.collect();
        let base = Self::base().len();
        if others != base {
            return Err(format!("it has {others} rules of nodes, and is to have {base}"));
        }
        let differs = |(address, goes): &(&Ipv6Addr, &String)| wanted.get(*address) != Some(goes);
        match of_hashes.iter().find(differs) {
            Some((address, goes)) => Err(format!("it has {address} go to {goes}")),
            None if of_hashes.len() == wanted.len() => Ok(()),
            None => Err(format!("it has {} rules of hashes, and is to have {}", of_hashes.len(), wanted.len())),
        }
    }

    /// How many flows of hashes a switch says it has.
    pub fn of_hashes_told(dump: &str) -> u64 {
        dump.lines().filter(|line| line.contains("priority=400,")).count() as u64
    }
}

/// A flow of a hash, as `dump-flows` tells it: of which address, and what becomes of it.
fn of_hash_told(line: &str) -> Option<(Ipv6Addr, String)> {
    let address = line.split_once("ipv6_dst=")?.1.split([',', ' ']).next()?.parse().ok()?;
    Some((address, line.split_once("actions=")?.1.trim().to_owned()))
}

fn plan() -> Ipv6Plan {
    "fd5e:a1c0::/32".parse().expect("a plan as it is to be")
}

fn rules() -> Rules {
    Rules::new(RuleSet::encoding(), GETS_PORT)
}

/// Like a hash, and no two alike.
fn hash(key: u64) -> KeyHash {
    KeyHash((key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn backend(key: u64) -> NodeId {
    BACKENDS[(key % 2) as usize]
}

fn cache(key: u64) -> NodeId {
    CACHES[(key / 2 % 2) as usize]
}

fn place(node: NodeId) -> Place {
    let port = (1..).zip(NODES).find_map(|(port, its)| (its == node).then_some(port)).unwrap_or(0);
    Place { mac: mac(port), port: Port(port), switch: None }
}

/// The address of the host on a port.
pub(super) fn mac(port: u32) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, port as u8])
}

fn to(node: NodeId) -> Actions {
    let Place { mac, port, .. } = place(node);
    Actions { set_eth_dst: Some(mac), output: Some(port), next_table: None }
}

/// The same in the tool's words.
fn actions(node: NodeId) -> String {
    let Place { mac, port: Port(port), .. } = place(node);
    format!("set_field:{mac}->eth_dst,output:{port}")
}

/// A get of a key as a gateway's host sends it.
pub(super) fn get_frame(key: u64) -> Vec<u8> {
    frame(plan().get(backend(key), hash(key)), key)
}

/// An answer to a gateway.
pub(super) fn answer_frame(number: u64) -> Vec<u8> {
    frame(plan().member(GATEWAY), number)
}

fn frame(to: Ipv6Addr, number: u64) -> Vec<u8> {
    let len = (8 + PAYLOAD_LEN).to_be_bytes();
    let udp = [&[0x1f, 0x90], &GETS_PORT.to_be_bytes()[..], &len, &[0, 0]].concat();
    let ip = [&[0x60, 0, 0, 0][..], &len, &[17, 64], &plan().member(GATEWAY).octets(), &to.octets()].concat();
    let payload: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(PAYLOAD_LEN.into()).collect();
    // To nobody's address, through which all goes that a router is to route.
    [&[2, 0, 0, 0, 0, 0xff][..], &[2, 0, 0, 0, 0, PORTS as u8], &[0x86, 0xdd], &ip, &udp, &payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_moved_on_is_told_by_what_goes_and_what_comes() {
        let before = RuleSet::of(0..100);
        let after = before.moved_on(7);
        assert_eq!((after.keys(), after.len()), (7..107, 100));
        let count = |changes: &[(FlowKey, Option<Actions>)]| {
            let made = changes.iter().filter(|(_, actions)| actions.is_some()).count();
            (made, changes.len() - made)
        };
        assert_eq!(count(&before.changes_to(&after)), (7, 7));
        assert_eq!(count(&after.changes_to(&before)), (7, 7));
        assert_eq!(count(&before.changes_to(&before.moved_on(1_000))), (100, 100));
        assert_eq!(count(&before.changes_to(&before)), (0, 0));
        assert_eq!(count(&before.changes_to(&RuleSet::of(0..0))), (0, 100));
        assert_eq!(count(&RuleSet::of(0..0).changes_to(&before)), (100, 0));
        let mut table: BTreeMap<FlowKey, Actions> = before.all().collect();
        for (key, actions) in before.changes_to(&after) {
            match actions {
                Some(actions) => table.insert(key, actions),
                None => table.remove(&key),
            };
        }
        assert_eq!(table, after.all().collect());
    }

    #[test]
    fn what_a_switch_tells_is_compared_flow_by_flow() {
        let set = RuleSet::of(3..5);
        // As Open vSwitch tells what it was told.
        let told = |lines: String| {
            let line = |line: &str| {
                format!(" cookie=0x0, duration=1.5s, table=0, n_packets=0, {}\n", line.replace(",actions", " actions"))
            };
            format!("OFPST_FLOW reply (OF1.3) (xid=0x2):\n{}", lines.lines().map(line).collect::<String>())
        };
        let dump = told(set.all_lines());
        assert_eq!((set.is_told(&dump), RuleSet::of_hashes_told(&dump)), (Ok(()), 2));
        assert!(set.is_told(&told(set.lines())).is_err(), "without those of nodes");
        for other in [RuleSet::of(3..4), RuleSet::of(3..6), RuleSet::of(4..6)] {
            assert!(other.is_told(&dump).is_err(), "{other:?}");
        }
        let elsewhere = set.lines().replace("output:2", "output:3");
        assert!(set.is_told(&told(set.all_lines().replace(&set.lines(), &elsewhere))).is_err());
    }

    #[test]
    fn frames_are_of_the_length_that_they_say() {
        let frame = get_frame(7);
        assert_eq!(frame.len(), 14 + 40 + 8 + usize::from(PAYLOAD_LEN));
        assert_eq!(u16::from_be_bytes([frame[18], frame[19]]), 8 + PAYLOAD_LEN);
        assert_ne!(get_frame(7), get_frame(8));
        assert_eq!(answer_frame(7)[38..54], plan().member(GATEWAY).octets());
    }
}
