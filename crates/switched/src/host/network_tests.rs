//! What switches are to have; that they have it is tested with real ones (`guira-openflow`, and the program's tests).

use std::net::Ipv4Addr;

use guira_cluster::{Opening, Seq};
use guira_openflow::{Actions, Port, Refusal};
use guira_routing::{Choices, Encoding, Load, MacAddress, PartitionId, PartitionMap};

use super::*;
use crate::{Body, Happened, Life, Message, Outbox, Revision, Shares, StaticFile};

const CACHE: NodeId = NodeId(100);
const BACKENDS: [NodeId; 2] = [NodeId(1_000), NodeId(1_001)];

fn file() -> StaticFile {
    let mut text = String::from(
        "secret = \"a secret that is long enough\"
        [network]
        router = \"openflow\"
        encoding = \"ipv6=fd5e:a1c0::/32\"
        gets_port = 7100
        switches = \"127.0.0.1:6653\"\n",
    );
    let roles = [
        (1, "controller", ""),
        (CACHE.0, "cache", "threads = 3"),
        (BACKENDS[0].0, "backend", "cache = 100"),
        (BACKENDS[1].0, "backend", "cache = 100"),
        (10_000, "gateway", "listen = \"127.0.0.1:11211\""),
    ];
    for (id, role, more) in roles {
        text += &format!(
            "[[member]]\nid = {id}\nrole = \"{role}\"\naddress = \"[fd5e:a1c0:0:{id:x}::1]:7000\"\nmac = \"{}\"\n{more}\n",
            mac(NodeId(id))
        );
    }
    StaticFile::parse(&text).unwrap()
}

fn mac(node: NodeId) -> MacAddress {
    let [high, low] = node.0.to_be_bytes();
    MacAddress([2, 0, 0, 0, high, low])
}

fn to(node: NodeId) -> Actions {
    Actions { set_eth_dst: Some(mac(node)), output: Some(Port::NORMAL), next_table: None }
}

fn rules() -> Rules {
    let encoding: Encoding = "ipv6=fd5e:a1c0::/32".parse().unwrap();
    Rules::new(encoding, 7_100)
}

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

fn network(view: &View) -> Network {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = NetworkConfig { rules: rules(), fabric: None, listener, told: Box::new(|_| {}) };
    Network::new(at(0), Span::from_s(1), config, view, |_| {}).unwrap()
}

/// Whether all switches are to have it.
fn has(network: &Network, key: FlowKey) -> bool {
    network.flows.contains_key(&key.into())
}

fn install(hash: KeyHash, part: NodeId) -> RuleUpdate {
    RuleUpdate::Install { hash, choices: Choices::from(part) }
}

#[test]
fn what_there_always_is_is_of_all_members_and_of_those_who_have_keys() {
    let file = file();
    let network = network(&file.view(file.shares().unwrap()));
    let rules = rules();
    let members = [NodeId(1), CACHE, BACKENDS[0], BACKENDS[1], NodeId(10_000)];
    let expected: Flows = members
        .map(|node| (rules.of_member(node).unwrap(), to(node)))
        .into_iter()
        .chain(BACKENDS.map(|node| (rules.of_backend(node).unwrap(), to(node))))
        .chain([rules.of_nobody(), rules.of_others()])
        .map(|(key, actions)| (key.into(), actions))
        .collect();
    assert_eq!(network.flows, expected);
}

#[test]
fn a_rule_leads_to_the_host_of_the_part_and_goes_along_when_its_key_moves() {
    let file = file();
    let shares = file.shares().unwrap();
    let mut network = network(&file.view(shares.clone()));
    let always = network.flows.clone();
    let (hash, other) = (KeyHash(7 << 40), KeyHash(u64::MAX));
    let owner = shares.map.owner_of(hash);
    network.update([install(hash, NodeId(CACHE.0 + 2)), install(other, CACHE)]);
    let flows = |network: &Network| -> Vec<(FlowKey, Actions)> {
        let of_hashes = network.flows.iter().filter(|(flow, _)| !always.contains_key(flow));
        of_hashes.map(|(flow, actions)| (flow.key, *actions)).collect()
    };
    let expected = |owner, hash| (rules().of_hash(owner, hash), to(CACHE));
    let its_owner = shares.map.owner_of(other);
    let mut both = vec![expected(owner, hash), expected(its_owner, other)];
    both.sort_by_key(|(key, _)| *key);
    assert_eq!(flows(&network), both);

    let taker = BACKENDS.into_iter().find(|backend| *backend != owner).unwrap();
    let map = Arc::new(shares.map.with_owner([PartitionId::of(hash)], taker));
    network.set_view(&file.view(Shares { map, revision: Revision(2), ..shares }));
    network.update([RuleUpdate::Delete { hash: other }]);
    assert_eq!(flows(&network), [expected(taker, hash)]);
    network.update([RuleUpdate::Delete { hash }, RuleUpdate::Delete { hash }, install(hash, NodeId(9))]);
    assert_eq!(network.flows, always, "a cache node that is none has no rules");
}

#[test]
fn a_rule_that_another_hash_has_taken_over_stays_when_the_first_is_taken_back() {
    let file = file();
    let mut view = file.view(file.shares().unwrap());
    view.places.values_mut().for_each(|place| place.port = Port(7));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Of a hash a MAC address carries a part.
    let rules = Rules::new("mac=10.77.0.0/16".parse().unwrap(), 7_100);
    let config = NetworkConfig { rules, fabric: None, listener, told: Box::new(|_| {}) };
    let mut network = Network::new(at(0), Span::from_s(1), config, &view, |_| {}).unwrap();
    let (one, other) = (KeyHash(5 << 40), KeyHash(5 << 40 | 1));
    let key = rules.of_hash(view.shares.map.owner_of(one), one);
    network.update([install(one, CACHE), install(other, CACHE), RuleUpdate::Delete { hash: one }]);
    assert!(has(&network, key));
    network.update([RuleUpdate::Delete { hash: one }, RuleUpdate::Delete { hash: other }]);
    assert!(!has(&network, key));
}

#[test]
fn earlier_rules_are_left_for_as_long_as_cache_nodes_may_take() {
    let file = file();
    let mut network = network(&file.view(file.shares().unwrap()));
    network.tick(at(2_999));
    assert_eq!(network.wake_at(), Some(at(3_000)));
    network.tick(at(3_000));
    assert_eq!(network.wake_at(), None);
    assert_eq!((status_of(Some(network.switches())), status_of(None)), (vec![], vec![]));
}

#[test]
fn what_a_switch_refuses_has_no_rule_and_its_cache_node_does_without() {
    let file = file();
    let view = file.view(file.shares().unwrap());
    let mut network = network(&view);
    let mut controller = Controller::new(file.controller_config(Life::begin(None).unwrap())).unwrap();
    let mut out = Outbox::default();
    let (now, hash) = (at(1), KeyHash(7 << 40));
    let open = Message::Open { opening: Opening(1), at: now, in_charge: false };
    controller.step(now, Happened::Message(CACHE, open), &mut out);
    let session = said(&out).find_map(|message| match message {
        Message::Opened { session, .. } => Some(session),
        _ => None,
    });
    let session = session.expect("it is there");
    out.clear();
    let body = Some(Body::Rules(vec![(hash, Some(Load(5)))]));
    let told = Message::Told { session, ack: Seq(0), seq: Seq(1), body };
    controller.step(now, Happened::Message(CACHE, told), &mut out);
    network.update(out.rules.drain(..));
    let key = rules().of_hash(view.shares.map.owner_of(hash), hash);
    assert!(has(&network, key) && controller.rule(hash).is_some());

    let refused = |key| SwitchesTold::Of(Some(DatapathId(1)), Told::Refused(key, Refusal::TABLE_FULL));
    network.on_told(now, refused(key), &mut controller);
    assert!(!has(&network, key) && controller.rule(hash).is_none());
    out.clear();
    controller.step(now, Happened::Tick, &mut out);
    let no_room = said(&out).find_map(|message| match message {
        Message::Told { body: Some(Body::NoRoom(hashes)), .. } => Some(hashes),
        _ => None,
    });
    assert_eq!(no_room, Some(vec![hash]));
    assert_eq!(out.rules, [], "it has none already");

    // What there has to be takes the place of rules, and is told again.
    network.tick(at(5_000));
    network.update([install(hash, CACHE)]);
    let always = rules().of_member(CACHE).unwrap();
    network.on_told(at(5_000), refused(always), &mut controller);
    assert!(!has(&network, key) && has(&network, always));
    network.on_told(at(5_000), refused(always), &mut controller);
    assert!(has(&network, always), "and it stays wanted");
}

#[test]
fn the_slowest_switch_says_how_fast_rules_are_made_as_long_as_it_is_there() {
    let file = file();
    let mut network = network(&file.view(file.shares().unwrap()));
    let mut controller = Controller::new(file.controller_config(Life::begin(None).unwrap())).unwrap();
    let takes = |switch, updates_per_s| SwitchesTold::Of(Some(DatapathId(switch)), Told::Takes { updates_per_s });
    let mut hear = |told| {
        network.on_told(at(1), told, &mut controller);
        controller.budget().updates_per_s
    };
    assert_eq!([hear(takes(1, 20_000)), hear(takes(2, 100)), hear(takes(1, 30_000))], [40_000, 200, 200]);
    let gone = |switch| SwitchesTold::Gone(Some(DatapathId(switch)), None);
    assert_eq!([hear(gone(2)), hear(gone(1))], [60_000, file.rules_per_s]);
}

/// Two switches, of which each has the rules of the backend that is plugged into it; the cache node is at the first.
const SWITCHES: [DatapathId; 2] = [DatapathId(1), DatapathId(2)];

fn parted_view(file: &StaticFile, shares: Shares) -> View {
    let mut view = file.view(shares);
    for (node, place) in &mut view.places {
        let at = usize::from(*node == BACKENDS[1]);
        (place.switch, place.port) = (Some(SWITCHES[at]), Port(node.0.into()));
    }
    view
}

fn parted_network(view: &View) -> Network {
    let link = |to| vec![(Port(9), to)];
    let fabric = Fabric::new([(SWITCHES[0], link(SWITCHES[1])), (SWITCHES[1], link(SWITCHES[0]))]).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let fabric = Some((fabric, RulesOfKeys::Parted));
    let config = NetworkConfig { rules: rules(), fabric, listener, told: Box::new(|_| {}) };
    Network::new(at(0), Span::from_s(1), config, view, |_| {}).unwrap()
}

/// The switches that have a hash's rule.
fn with_rule_of(network: &Network, map: &PartitionMap, hash: KeyHash) -> Vec<Option<DatapathId>> {
    let key = rules().of_hash(map.owner_of(hash), hash);
    network.flows.keys().filter(|flow| flow.key == key).map(|flow| flow.switch).collect()
}

/// A hash that a backend owns.
fn owned_by(map: &PartitionMap, backend: NodeId, nth: usize) -> KeyHash {
    let mut its = (0..).map(|at: u64| KeyHash(at << 50 | at)).filter(|hash| map.owner_of(*hash) == backend);
    its.nth(nth).unwrap()
}

#[test]
fn where_rules_are_parted_one_moves_to_another_switch_with_its_key() {
    let file = file();
    let shares = file.shares().unwrap();
    let mut network = parted_network(&parted_view(&file, shares.clone()));
    let always = network.flows.clone();
    let hash = owned_by(&shares.map, BACKENDS[0], 0);
    network.update([install(hash, CACHE)]);
    assert_eq!(with_rule_of(&network, &shares.map, hash), [Some(SWITCHES[0])]);
    let map = Arc::new(shares.map.with_owner([PartitionId::of(hash)], BACKENDS[1]));
    network.set_view(&parted_view(&file, Shares { map: Arc::clone(&map), revision: Revision(2), ..shares.clone() }));
    assert_eq!(with_rule_of(&network, &map, hash), [Some(SWITCHES[1])]);
    assert_eq!(with_rule_of(&network, &shares.map, hash), []);
    network.update([RuleUpdate::Delete { hash }]);
    assert_eq!(network.flows, always);
}

#[test]
fn a_full_switch_of_several_takes_room_from_its_own_keys_alone() {
    let file = file();
    let shares = file.shares().unwrap();
    let mut network = parted_network(&parted_view(&file, shares.clone()));
    let mut controller = Controller::new(file.controller_config(Life::begin(None).unwrap())).unwrap();
    network.tick(at(5_000));
    let of = |backend| [0, 1].map(|nth| owned_by(&shares.map, backend, nth));
    let (at_first, at_second) = (of(BACKENDS[0]), of(BACKENDS[1]));
    network.update(at_first.into_iter().chain(at_second).map(|hash| install(hash, CACHE)));
    let has =
        |network: &Network, hashes: [KeyHash; 2]| hashes.map(|hash| with_rule_of(network, &shares.map, hash).len());
    let room = controller.budget().table_len_max;
    let refused = |key| SwitchesTold::Of(Some(SWITCHES[1]), Told::Refused(key, Refusal::TABLE_FULL));

    // A table of ways that is full is none of keys.
    let (way, _) = Rules::way(mac(CACHE), Port(9));
    network.on_told(at(5_000), refused(way), &mut controller);
    assert_eq!((has(&network, at_first), has(&network, at_second)), ([1, 1], [1, 1]));
    let key = rules().of_hash(BACKENDS[1], at_second[0]);
    network.on_told(at(5_000), refused(key), &mut controller);
    assert_eq!((has(&network, at_first), has(&network, at_second)), ([1, 1], [0, 1]));
    // What all have, and what it alone has.
    network.on_told(at(5_000), refused(rules().of_member(CACHE).unwrap()), &mut controller);
    assert_eq!((has(&network, at_first), has(&network, at_second)), ([1, 1], [0, 0]));
    network.on_told(at(5_000), refused(rules().of_member(CACHE).unwrap()), &mut controller);
    assert_eq!(has(&network, at_first), [1, 1]);
    assert_eq!(controller.budget().table_len_max, room, "one says nothing of how many all have room for");
}

fn said(out: &Outbox) -> impl Iterator<Item = Message<'_>> {
    out.sends().filter(|(to, _)| *to == CACHE).map(|(_, bytes)| Message::decode(bytes).unwrap())
}
