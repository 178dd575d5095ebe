//! A controller of ours at the other end, or one of a few lines, over what looks packets up in a map, has room for so many flows and refuses some.

use std::collections::{BTreeMap, BTreeSet};

use guira_routing::MacAddress;
use proptest::prelude::*;

use super::*;
use crate::{
    Actions, Cookie, Heard, IPV6, IsLast, Masked, Match, PortStats, PortStatus, Switch, SwitchConfig, TableStats, Told,
    UDP,
    flow::tests::{actions, matches},
    message::{HEADER_LEN, put},
};

const COOKIE: Cookie = Cookie(7);
const DATAPATH: DatapathId = DatapathId(0x42);
/// No flow may lead there.
const REFUSED: Port = Port(9);

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

fn key(number: u32) -> FlowKey {
    let [a, b, c, d] = number.to_be_bytes();
    FlowKey {
        priority: 300,
        matched: Match { eth_dst: Some(Masked::exact([2, 0, a, b, c, d])), ..Match::default() },
        ..FlowKey::default()
    }
}

fn to(port: u32) -> Actions {
    Actions { output: Some(Port(port)), ..Actions::default() }
}

#[derive(Debug)]
struct InAMap {
    flows: BTreeMap<FlowKey, Actions>,
    room: usize,
}

impl Lookups for InAMap {
    fn make(&mut self, key: FlowKey, actions: Actions) -> Result<(), Refusal> {
        if actions.output == Some(REFUSED) {
            return Err(Refusal::BAD_OUTPUT);
        }
        if self.flows.len() >= self.room && !self.flows.contains_key(&key) {
            return Err(Refusal::TABLE_FULL);
        }
        self.flows.insert(key, actions);
        Ok(())
    }

    fn take_back(&mut self, key: &FlowKey) {
        self.flows.remove(key).expect("what is taken back is there");
    }

    fn table(&self) -> TableStats {
        TableStats { table: 0, flows: 0, lookups: 30, matches: 20 }
    }

    fn ports(&self) -> Vec<PortStatus> {
        let port = |number, name: &str| PortStatus {
            stats: PortStats { port: Port(number), packets_in: 10, packets_out: 5, dropped: 2 },
            mac: MacAddress([2, 0, 0, 0, 1, number as u8]),
            name: name.into(),
        };
        vec![port(1, "eth0"), port(2, "a name of more than fifteen bytes")]
    }
}

fn table(room: usize, flows_max: usize) -> FlowTable<InAMap> {
    FlowTable::new(InAMap { flows: BTreeMap::new(), room }, flows_max)
}

/// The flows, which are the same in the table and in what looks packets up.
fn flows_of(table: &FlowTable<InAMap>) -> BTreeMap<FlowKey, Actions> {
    let flows: BTreeMap<FlowKey, Actions> = table.flows(None).map(|(key, _, actions)| (*key, *actions)).collect();
    assert_eq!(flows, table.lookups().flows);
    flows
}

fn new(now: Moment) -> Datapath {
    Datapath::new(now, DatapathConfig::new(DATAPATH))
}

/// One that has been greeted, and has said so.
fn greeted(flows: &mut FlowTable<InAMap>) -> Datapath {
    let mut datapath = new(at(0));
    datapath.hear(at(0), &said(&[Said::Hello]), flows).unwrap();
    datapath.sent(at(0), usize::MAX);
    datapath
}

/// Messages, numbered from 1 on.
fn said(all: &[Said<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    (1..).zip(all).for_each(|(xid, said)| said.put(Xid(xid), &mut bytes));
    bytes
}

fn message(kind: u8, xid: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(kind, Xid(xid), &mut bytes, |into| into.extend(body));
    bytes
}

fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some(len) = message_len(bytes).unwrap() {
        let (message, rest) = bytes.split_at(len);
        messages.push(message);
        bytes = rest;
    }
    assert!(bytes.is_empty());
    messages
}

fn heard(bytes: &[u8]) -> Vec<(Xid, Heard<'_>)> {
    split(bytes).into_iter().map(|message| Heard::take(message).unwrap()).collect()
}

/// What it says to these bytes, all of which is sent as it comes.
fn ask(datapath: &mut Datapath, flows: &mut FlowTable<InAMap>, bytes: &[u8]) -> Vec<u8> {
    datapath.hear(at(0), bytes, flows).unwrap();
    let mut answers = Vec::new();
    for _ in 0..10_000 {
        answers.extend(datapath.outgoing());
        datapath.sent(at(0), usize::MAX);
        if datapath.may_hear() {
            return answers;
        }
        datapath.tick(at(0), flows).unwrap();
    }
    panic!("it talks for ever");
}

/// A flow mod as it is mostly, of which a test says what is otherwise.
#[derive(Clone, Copy)]
struct Mod {
    cookie: u64,
    mask: u64,
    table: u8,
    command: u8,
    timeout: u16,
    priority: u16,
    buffer: u32,
    port: u32,
    group: u32,
    flags: u16,
    matched: Match,
    actions: Option<Actions>,
}

impl Default for Mod {
    fn default() -> Self {
        Self {
            cookie: COOKIE.0,
            mask: 0,
            table: 0,
            command: 0,
            timeout: 0,
            priority: 300,
            buffer: u32::MAX,
            port: u32::MAX,
            group: u32::MAX,
            flags: 0,
            matched: Match::default(),
            actions: None,
        }
    }
}

impl Mod {
    fn add(key: FlowKey, actions: Actions) -> Self {
        Self { priority: key.priority, matched: key.matched, actions: Some(actions), ..Self::default() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut body = [self.cookie.to_be_bytes(), self.mask.to_be_bytes()].concat();
        body.extend([self.table, self.command]);
        body.extend(self.timeout.to_be_bytes());
        body.extend([0; 2]);
        body.extend(self.priority.to_be_bytes());
        [self.buffer, self.port, self.group].into_iter().for_each(|word| body.extend(word.to_be_bytes()));
        body.extend(self.flags.to_be_bytes());
        body.extend([0; 2]);
        self.matched.put(&mut body);
        self.actions.into_iter().for_each(|actions| actions.put(&mut body));
        message(14, 5, &body)
    }

    /// What is answered.
    fn tell(&self, flows: &mut FlowTable<InAMap>) -> Result<(), Refusal> {
        let mut datapath = greeted(flows);
        match heard(&ask(&mut datapath, flows, &self.bytes()))[..] {
            [] => Ok(()),
            [(Xid(5), Heard::Error(refusal))] => Err(refusal),
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn answers_come_in_the_order_of_what_was_asked() {
    let mut flows = table(10, 10);
    flows.add(COOKIE, key(1), to(1)).unwrap();
    let mut datapath = new(at(0));
    let asked = said(&[
        Said::Hello,
        Said::FeaturesRequest,
        Said::EchoRequest,
        Said::AskFlows(COOKIE),
        Said::AskTables,
        Said::AskPorts,
        Said::Add(COOKIE, key(2), to(2)),
        Said::AskFlows(COOKIE),
        Said::Barrier,
    ]);
    let answers = ask(&mut datapath, &mut flows, &asked);
    let stats = |port| PortStats { port: Port(port), packets_in: 10, packets_out: 5, dropped: 2 };
    let last = IsLast(true);
    assert_eq!(
        heard(&answers),
        [
            (Xid(1), Heard::Hello { speaks_ours: true }),
            (Xid(2), Heard::Features { datapath: DATAPATH, is_main: true }),
            (Xid(3), Heard::EchoReply),
            (Xid(4), Heard::Flows(vec![Some((key(1), to(1)))], last)),
            (Xid(5), Heard::Tables(vec![TableStats { table: 0, flows: 1, lookups: 30, matches: 20 }], last)),
            (Xid(6), Heard::Ports(vec![stats(1), stats(2)], last)),
            (Xid(8), Heard::Flows(vec![Some((key(1), to(1))), Some((key(2), to(2)))], last)),
            (Xid(9), Heard::Barrier),
        ]
    );
}

#[test]
fn what_our_controllers_do_not_ask_is_answered_as_the_standard_has_it() {
    let mut flows = table(10, 10);
    let mut datapath = greeted(&mut flows);
    let mut ask = |kind, body: &[u8]| ask(&mut datapath, &mut flows, &message(kind, 3, body));
    assert_eq!(ask(7, &[]), [4, 8, 0, 12, 0, 0, 0, 3, 0, 0, 0, 128]);
    assert_eq!(ask(9, &[0, 0, 1, 2]), []);
    assert_eq!(ask(7, &[]), [4, 8, 0, 12, 0, 0, 0, 3, 0, 0, 1, 2]);
    assert_eq!(ask(9, &[0, 1, 1, 2])[..12], [4, 1, 0, 24, 0, 0, 0, 3, 0, 10, 0, 0], "fragments are as they are");
    assert_eq!(ask(2, b"here?"), [4, 3, 0, 13, 0, 0, 0, 3, b'h', b'e', b'r', b'e', b'?']);

    let role = |role| [&[0, 0, 0, role, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 8]].concat();
    for (asked, answered) in [(0, 1), (2, 2), (0, 2), (1, 1)] {
        let answer = ask(24, &role(asked));
        assert_eq!((answer[1], &answer[HEADER_LEN..]), (25, &role(answered)[..]), "role {asked}");
    }
    assert_eq!(ask(24, &role(3))[8..12], [0, 11, 0, 1]);
    assert_eq!(ask(24, &role(4))[8..12], [0, 11, 0, 2]);

    let described = ask(18, &[0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((described.len(), &described[16..22]), (HEADER_LEN + 8 + 1_056, &b"Guira\0"[..]));
    let ports = ask(18, &[0, 13, 0, 0, 0, 0, 0, 0]);
    let [first, second] = ports[16..].as_chunks::<64>().0 else { panic!("{} bytes", ports.len()) };
    assert_eq!(first[..22], *b"\0\0\0\x01\0\0\0\0\x02\0\0\0\x01\x01\0\0eth0\0\0");
    assert_eq!(second[16..32], *b"a name of more \0");

    let one = ask(18, &[0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!((one.len(), &one[16..20]), (16 + 112, &[0, 0, 0, 2][..]));
    assert_eq!(ask(18, &[0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0])[8..12], [0, 1, 0, 11]);
}

#[test]
fn what_is_not_known_or_not_whole_is_answered_with_an_error_and_nothing_is_lost() {
    let known = [0, 1, 2, 3, 5, 7, 9, 14, 18, 20, 24];
    let mut flows = table(10, 10);
    for kind in (0..=255).filter(|kind| !known.contains(kind)) {
        let mut datapath = greeted(&mut flows);
        let refused = message(kind, 6, &[kind; 100]);
        let answers = ask(&mut datapath, &mut flows, &[&refused[..], &message(20, 7, &[])].concat());
        let error = [&[0, 1, 0, 1], &refused[..64]].concat();
        assert_eq!(split(&answers), [message(1, 6, &error), message(21, 7, &[])], "kind {kind}");
    }
    let mut datapath = greeted(&mut flows);
    let mut of_another_version = message(20, 8, &[]);
    of_another_version[0] = 1;
    for (refused, code) in [
        (of_another_version, 0),
        (message(18, 8, &[0, 99, 0, 0, 0, 0, 0, 0]), 2),
        // More is to come, which is only so where much is told; a table is to be another than it is.
        (message(18, 8, &[0, 12, 0, 0, 0, 0, 0, 0, 0]), 2),
        (message(18, 8, &[0, 3, 0, 1, 0, 0, 0, 0]), 2),
        (message(18, 8, &[0, 1, 0, 0]), 6),
        (message(14, 8, &[0; 10]), 6),
        (message(24, 8, &[0; 15]), 6),
    ] {
        let answers = ask(&mut datapath, &mut flows, &refused);
        assert_eq!(split(&answers), [message(1, 8, &[&[0, 1, 0, code], &refused[..]].concat())]);
    }
    // An error is never answered, however it is.
    assert_eq!(ask(&mut datapath, &mut flows, &message(1, 8, &[0])), []);
    assert_eq!(ask(&mut datapath, &mut flows, &message(1, 8, &[0, 5, 0, 1])), []);
}

#[test]
fn a_flow_that_cannot_be_as_it_is_asked_for_is_refused_and_what_was_there_stays() {
    let good = Mod::add(key(1), to(1));
    let udp = Match { udp_dst: Some(7_100), ..Match::default() };
    let (ipv4, ipv6) = (Some(Masked::exact([10, 0, 0, 1])), Some(Masked::exact([0xfd; 16])));
    let mut flows = table(10, 10);
    assert_eq!(good.tell(&mut flows), Ok(()));
    let before = flows_of(&flows);
    assert_eq!(before, BTreeMap::from([(key(1), to(1))]));
    let lacks = |matched| (Mod { matched, ..good }, Refusal { kind: 4, code: 9 });
    for (asked, refusal) in [
        (Mod { command: 5, ..good }, Refusal { kind: 5, code: 6 }),
        (Mod { table: 1, ..good }, Refusal { kind: 5, code: 2 }),
        (Mod { table: 0xff, ..good }, Refusal { kind: 5, code: 2 }),
        (Mod { table: 1, command: 3, ..good }, Refusal { kind: 5, code: 2 }),
        (Mod { timeout: 10, ..good }, Refusal { kind: 5, code: 5 }),
        (Mod { flags: 1, ..good }, Refusal { kind: 5, code: 7 }),
        (Mod { flags: 2, ..good }, Refusal { kind: 5, code: 7 }),
        (Mod { buffer: 1, ..good }, Refusal { kind: 1, code: 8 }),
        (Mod { actions: Some(to(REFUSED.0)), ..good }, Refusal { kind: 2, code: 4 }),
        (Mod { actions: Some(to(REFUSED.0)), command: 1, ..good }, Refusal { kind: 2, code: 4 }),
        (Mod { actions: Some(to(REFUSED.0)), command: 2, ..good }, Refusal { kind: 2, code: 4 }),
        (
            Mod { actions: Some(Actions { next_table: Some(TableId(1)), ..to(1) }), ..good },
            Refusal { kind: 3, code: 2 },
        ),
        (Mod { matched: Match { in_port: Some(Port(7)), ..good.matched }, ..good }, Refusal { kind: 4, code: 6 }),
        lacks(udp),
        lacks(Match { eth_type: Some(IPV6), ..udp }),
        lacks(Match { ip_proto: Some(UDP), ..udp }),
        lacks(Match { ipv4_dst: ipv4, ..Match::default() }),
        lacks(Match { ipv4_dst: ipv4, eth_type: Some(IPV6), ..Match::default() }),
        lacks(Match { ipv6_dst: ipv6, eth_type: Some(crate::IPV4), ..Match::default() }),
    ] {
        assert_eq!(asked.tell(&mut flows), Err(refusal));
        assert_eq!(flows_of(&flows), before);
    }
    // By where packets come from; and to two ports.
    let ipv4_src = [0, 1, 0, 12, 0x80, 0, 22, 4, 10, 0, 0, 7, 0, 0, 0, 0];
    let two_ports =
        [&[0, 4, 0, 40, 0, 0, 0, 0][..], &[0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0].repeat(2)].concat();
    let any = Mod::default().bytes();
    let (head, any_match) = any.split_at(any.len() - 8);
    for (matched, actions, code) in [(&ipv4_src[..], &[][..], [0, 4, 0, 6]), (any_match, &two_ports, [0, 2, 0, 0])] {
        let asked = message(14, 5, &[&head[HEADER_LEN..], matched, actions].concat());
        let mut datapath = greeted(&mut flows);
        assert_eq!(ask(&mut datapath, &mut flows, &asked)[8..12], code);
        assert_eq!(flows_of(&flows), before);
    }
    // All that they want is there.
    let whole = Match { eth_type: Some(IPV6), ip_proto: Some(UDP), ipv6_dst: ipv6, ..udp };
    assert_eq!(Mod { matched: whole, ..good }.tell(&mut flows), Ok(()));
    assert_eq!(flows.len(), 2);
}

#[test]
fn there_are_no_more_flows_than_there_may_be_and_one_takes_the_place_of_another_even_then() {
    for (room, flows_max) in [(10, 2), (2, 10)] {
        let mut flows = table(room, flows_max);
        for number in 0..2 {
            assert_eq!(Mod::add(key(number), to(1)).tell(&mut flows), Ok(()));
        }
        assert_eq!(Mod::add(key(2), to(1)).tell(&mut flows), Err(Refusal::TABLE_FULL));
        assert_eq!(Mod { cookie: 8, ..Mod::add(key(1), to(2)) }.tell(&mut flows), Ok(()));
        assert_eq!(flows_of(&flows), BTreeMap::from([(key(0), to(1)), (key(1), to(2))]));
        assert_eq!(flows.flows(Some(key(0))).map(|(_, cookie, _)| cookie).collect::<Vec<_>>(), [Cookie(8)]);
        assert_eq!(flows.counts(), crate::FlowCounts { made: 3, taken_back: 0, refused: 1 });
    }
}

/// Flows by number: what they match, their priority and cookie, and where they lead.
fn varied() -> FlowTable<InAMap> {
    let of = |ipv6_dst, udp_dst| Match {
        eth_type: Some(IPV6),
        ip_proto: Some(UDP),
        ipv6_dst: Some(ipv6_dst),
        udp_dst,
        ..Match::default()
    };
    let address = |last| std::array::from_fn(|at| if at == 15 { last } else { 0xfd });
    let mut flows = table(10, 10);
    for (priority, cookie, matched, port) in [
        (400, 0x1001, of(Masked::exact(address(1)), Some(7_100)), 1),
        (400, 0x1002, of(Masked::exact(address(2)), Some(7_100)), 2),
        (300, 0x2001, of(Masked::prefix(address(0), 64), Some(7_100)), 1),
        (200, 0x2002, of(Masked::prefix(address(0), 32), None), 2),
        (0, 0x3001, Match::default(), 3),
    ] {
        flows.add(Cookie(cookie), FlowKey { priority, matched, ..FlowKey::default() }, to(port)).unwrap();
    }
    flows
}

fn cookies(flows: &FlowTable<InAMap>) -> BTreeSet<u64> {
    flows_of(flows);
    flows.flows(None).map(|(_, Cookie(cookie), _)| cookie).collect()
}

#[test]
fn flows_are_deleted_and_changed_and_said_by_what_they_have_in_common() {
    let all = cookies(&varied());
    let address: [u8; 16] = [0xfd; 16];
    let ipv6 = Match { eth_type: Some(IPV6), ..Match::default() };
    let udp = Match { ip_proto: Some(UDP), udp_dst: Some(7_100), ..ipv6 };
    let by = |bits| Match { ipv6_dst: Some(Masked::prefix(address, bits)), ..ipv6 };
    let exact =
        Match { ipv6_dst: Some(Masked::exact(std::array::from_fn(|at| if at == 15 { 1 } else { 0xfd }))), ..udp };
    let loose = Mod { command: 3, cookie: 0, priority: 7, table: 0xff, ..Mod::default() };
    let strict = Mod { command: 4, ..loose };
    for (asked, selected) in [
        (loose, &[0x1001, 0x1002, 0x2001, 0x2002, 0x3001][..]),
        (Mod { cookie: 0x2000, mask: 0xf000, ..loose }, &[0x2001, 0x2002]),
        (Mod { cookie: 0x1001, mask: u64::MAX, ..loose }, &[0x1001]),
        (Mod { cookie: 0x9001, mask: 0xf, ..loose }, &[0x1001, 0x2001, 0x3001]),
        (Mod { port: 2, ..loose }, &[0x1002, 0x2002]),
        (Mod { group: 2, ..loose }, &[]),
        (Mod { matched: ipv6, ..loose }, &[0x1001, 0x1002, 0x2001, 0x2002]),
        (Mod { matched: udp, ..loose }, &[0x1001, 0x1002, 0x2001]),
        (Mod { matched: by(16), ..loose }, &[0x1001, 0x1002, 0x2001, 0x2002]),
        (Mod { matched: by(33), ..loose }, &[0x1001, 0x1002, 0x2001]),
        (Mod { matched: by(65), ..loose }, &[0x1001, 0x1002]),
        (Mod { matched: by(0), ..loose }, &[0x1001, 0x1002, 0x2001, 0x2002]),
        (Mod { matched: exact, ..loose }, &[0x1001]),
        (Mod { matched: exact, cookie: 2, mask: 0xf, ..loose }, &[]),
        (strict, &[]),
        (Mod { priority: 0, ..strict }, &[0x3001]),
        (Mod { priority: 400, matched: exact, ..strict }, &[0x1001]),
        (Mod { priority: 400, matched: exact, port: 2, ..strict }, &[]),
        (Mod { priority: 400, matched: exact, cookie: 2, mask: 0xf, ..strict }, &[]),
        (Mod { priority: 300, matched: exact, ..strict }, &[]),
    ] {
        let selected: BTreeSet<u64> = selected.iter().copied().collect();
        let mut flows = varied();
        assert_eq!(asked.tell(&mut flows), Ok(()));
        assert_eq!(cookies(&flows), &all - &selected);
        // What is changed is selected in the same way, but for where it leads.
        if asked.port == u32::MAX && asked.group == u32::MAX {
            let mut flows = varied();
            let changed = Mod { command: asked.command - 2, table: 0, actions: Some(to(77)), ..asked };
            assert_eq!(changed.tell(&mut flows), Ok(()));
            let led = flows.flows(None).filter(|(.., actions)| **actions == to(77)).map(|(_, cookie, _)| cookie.0);
            assert_eq!(led.collect::<BTreeSet<u64>>(), selected);
            assert_eq!(cookies(&flows), all);
        }
        // And what is said.
        if asked.command == 3 {
            let mut body = vec![0, 1, 0, 0, 0, 0, 0, 0, asked.table, 0, 0, 0];
            [asked.port, asked.group, 0].into_iter().for_each(|word| body.extend(word.to_be_bytes()));
            [asked.cookie, asked.mask].into_iter().for_each(|word| body.extend(word.to_be_bytes()));
            asked.matched.put(&mut body);
            let mut flows = varied();
            let mut datapath = greeted(&mut flows);
            let answers = ask(&mut datapath, &mut flows, &message(18, 4, &body));
            let [(Xid(4), Heard::Flows(said, IsLast(true)))] = &heard(&answers)[..] else { panic!("{answers:?}") };
            let said = said.iter().map(|flow| flow.unwrap().0).collect::<BTreeSet<FlowKey>>();
            let expected = flows.flows(None).filter(|(_, cookie, _)| selected.contains(&cookie.0));
            assert_eq!(said, expected.map(|(key, ..)| *key).collect());
        }
    }
}

#[test]
fn of_flows_that_are_changed_one_that_cannot_stays_as_it_is() {
    struct Picky(BTreeMap<FlowKey, Actions>);
    impl Lookups for Picky {
        fn make(&mut self, key: FlowKey, actions: Actions) -> Result<(), Refusal> {
            if key == super::tests::key(1) && actions == to(2) {
                return Err(Refusal::UNSUPPORTED_ACTION);
            }
            self.0.insert(key, actions);
            Ok(())
        }
        fn take_back(&mut self, _: &FlowKey) {}
        fn table(&self) -> TableStats {
            TableStats::default()
        }
        fn ports(&self) -> Vec<PortStatus> {
            Vec::new()
        }
    }
    let mut flows = FlowTable::new(Picky(BTreeMap::new()), 10);
    (0..3).for_each(|number| flows.add(COOKIE, key(number), to(1)).unwrap());
    let any = Selection { cookies: Masked::prefix([0; 8], 0), matched: Match::default(), to: None, to_group: false };
    assert_eq!(flows.modify(&any, None, to(2)), Err(Refusal::UNSUPPORTED_ACTION));
    let expected = BTreeMap::from([(key(0), to(2)), (key(1), to(1)), (key(2), to(2))]);
    assert_eq!(flows.lookups().0, expected);
    assert_eq!(flows.flows(None).map(|(key, _, actions)| (*key, *actions)).collect::<BTreeMap<_, _>>(), expected);
}

#[test]
fn a_match_of_which_no_bit_is_wanted_is_the_one_without_it() {
    let mut flows = table(10, 10);
    let idle = Some(Masked::prefix([0; 6], 0));
    let asked = Mod::add(
        FlowKey { priority: 1, matched: Match { eth_dst: idle, ..Match::default() }, ..FlowKey::default() },
        to(1),
    );
    assert_eq!(asked.tell(&mut flows), Ok(()));
    assert_eq!(flows_of(&flows), BTreeMap::from([(FlowKey { priority: 1, ..FlowKey::default() }, to(1))]));
}

#[test]
fn however_many_flows_are_read_little_is_kept_unsent_and_what_is_asked_meanwhile_waits() {
    const FLOWS: u32 = 100_000;
    let mut flows = table(FLOWS as usize, FLOWS as usize);
    (0..FLOWS).for_each(|number| flows.add(COOKIE, key(number), to(number % 9)).unwrap());
    let mut datapath = greeted(&mut flows);
    let mut asked = said(&[Said::AskFlows(COOKIE), Said::AskFlows(COOKIE), Said::Barrier]);
    asked.extend(&message(2, 9, &[0; 60_000])[..1_000]);
    datapath.hear(at(0), &asked, &mut flows).unwrap();
    let (mut read, mut parts, mut ends) = (Vec::new(), 0, Vec::new());
    let mut bytes = Vec::new();
    let mut now = at(0);
    for _ in 0..1_000_000 {
        assert!(datapath.outgoing().len() < 256 << 10, "{} bytes", datapath.outgoing().len());
        if datapath.outgoing().is_empty() && datapath.may_hear() {
            break;
        }
        bytes.extend(&datapath.outgoing()[..datapath.outgoing().len().min(50_000)]);
        // A slow reader, which cannot say that it is there, is not given up.
        now = now + Span::from_ms(1_000);
        datapath.sent(now, 50_000);
        if ends.is_empty() {
            assert!(!datapath.may_hear());
        }
        if !datapath.may_hear() {
            datapath.tick(now, &mut flows).unwrap();
        }
        while let Some(len) = message_len(&bytes).unwrap().filter(|len| bytes.len() >= *len) {
            let message: Vec<u8> = bytes.drain(..len).collect();
            match Heard::take(&message).unwrap() {
                (xid, Heard::Flows(said, is_last)) => {
                    assert_eq!(xid, Xid(ends.len() as u32 + 1));
                    read.extend(said.into_iter().flatten());
                    parts += 1;
                    if is_last.0 {
                        assert_eq!(read.len(), FLOWS as usize);
                        assert_eq!(read.drain(..).collect::<BTreeMap<_, _>>(), flows.lookups().flows);
                        ends.push("flows");
                    }
                }
                (Xid(3), Heard::Barrier) => ends.push("barrier"),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(ends, ["flows", "flows", "barrier"]);
    assert!(parts > 100, "{parts} parts");
    // What came behind is kept, and goes on.
    let answers = ask(&mut datapath, &mut flows, &message(2, 9, &[0; 60_000])[1_000..]);
    assert_eq!(answers.len(), HEADER_LEN + 60_000);
}

#[test]
fn who_asks_and_does_not_read_is_given_up() {
    let mut flows = table(10_000, 10_000);
    (0..10_000).for_each(|number| flows.add(COOKIE, key(number), to(number % 9)).unwrap());
    let mut datapath = greeted(&mut flows);
    datapath.hear(at(0), &said(&[Said::AskFlows(COOKIE)]), &mut flows).unwrap();
    assert!(!datapath.may_hear());
    datapath.sent(at(1_000), 1);
    assert_eq!(datapath.wake_at(), at(7_000));
    assert_eq!(datapath.tick(at(6_999), &mut flows), Ok(()));
    assert_eq!(datapath.tick(at(7_000), &mut flows), Err(Broken::Deaf));
}

#[test]
fn what_takes_long_is_done_in_several_turns() {
    const FLOWS: u32 = 50_000;
    let mut flows = table(FLOWS as usize, FLOWS as usize);
    (0..FLOWS).for_each(|number| flows.add(COOKIE, key(number), to(1)).unwrap());
    let mut datapath = greeted(&mut flows);
    let mut asked = said(&[Said::DeleteAll(Cookie(8)); 100]);
    asked.extend(said(&[Said::DeleteAll(COOKIE), Said::Barrier]));
    datapath.hear(at(0), &asked, &mut flows).unwrap();
    let mut turns = 0;
    while !datapath.may_hear() {
        assert_eq!(datapath.wake_at(), Moment::from_ns(0));
        assert_eq!((datapath.outgoing().len(), flows.len()), (0, FLOWS as usize));
        datapath.tick(at(0), &mut flows).unwrap();
        turns += 1;
    }
    assert!((10..101).contains(&turns), "{turns} turns");
    assert_eq!(heard(datapath.outgoing()), [(Xid(2), Heard::Barrier)]);
    assert!(flows_of(&flows).is_empty());
}

#[test]
fn a_controller_that_falls_silent_is_asked_and_then_given_up() {
    let mut flows = table(10, 10);
    let mut datapath = greeted(&mut flows);
    assert_eq!(datapath.wake_at(), at(2_000));
    datapath.tick(at(1_999), &mut flows).unwrap();
    assert!(datapath.outgoing().is_empty());
    datapath.tick(at(2_000), &mut flows).unwrap();
    assert!(matches!(heard(datapath.outgoing())[..], [(_, Heard::EchoRequest(_))]));
    datapath.hear(at(3_000), &message(3, 2, &[]), &mut flows).unwrap();
    assert_eq!(datapath.wake_at(), at(5_000));
    datapath.tick(at(5_000), &mut flows).unwrap();
    assert_eq!(datapath.wake_at(), at(9_000));
    datapath.tick(at(8_999), &mut flows).unwrap();
    assert_eq!(datapath.tick(at(9_000), &mut flows), Err(Broken::Silent));
    // So is one that never said anything.
    let mut datapath = new(at(0));
    datapath.tick(at(2_000), &mut flows).unwrap();
    assert_eq!(datapath.tick(at(6_000), &mut flows), Err(Broken::Silent));
}

#[test]
fn a_hello_comes_first_and_of_our_version() {
    let mut hello = message(0, 0, &[]);
    hello[0] = 1;
    for (bytes, broken) in [
        (said(&[Said::Barrier]), Broken::OutOfTurn),
        (hello, Broken::Version),
        (said(&[Said::HelloFailed]), Broken::Version),
        (message(14, 0, &[0; 3]), Broken::Malformed),
        (vec![4, 0, 0, 7, 0, 0, 0, 0], Broken::Malformed),
    ] {
        let (mut datapath, mut flows) = (new(at(0)), table(10, 10));
        datapath.sent(at(0), usize::MAX);
        assert_eq!(datapath.hear(at(0), &bytes, &mut flows), Err(broken));
        let answers = heard(datapath.outgoing()).into_iter().map(|(_, heard)| heard).collect::<Vec<_>>();
        // It is told why, if it may not know.
        let told = (bytes[..2] == [1, 0]).then_some(Heard::Error(Refusal { kind: 0, code: 0 }));
        assert_eq!(answers, Vec::from_iter(told));
    }
}

#[test]
fn flows_of_others_are_left_and_flows_outlive_the_connection() {
    let mut flows = table(100, 100);
    flows.add(Cookie(8), key(50), to(5)).unwrap();
    flows.add(COOKIE, key(51), to(5)).unwrap();
    let wanted: BTreeMap<FlowKey, Actions> = (0..9).map(|number| (key(number), to(number))).collect();
    for (expected, now) in [(Told::Read { flows: 1, differing: 10 }, 0), (Told::Read { flows: 9, differing: 0 }, 1)] {
        let mut switch = Switch::new(at(now), config(), wanted.clone());
        let told = talk(at(now), &mut switch, &mut new(at(now)), &mut flows);
        assert_eq!(told, [Told::Known(DATAPATH), expected, Told::Settled]);
        let mut expected = wanted.clone();
        expected.insert(key(50), to(5));
        assert_eq!(flows_of(&flows), expected);
    }
}

fn config() -> SwitchConfig {
    SwitchConfig { cookie: COOKIE, batch_max: 4, ..SwitchConfig::default() }
}

/// Brings what is said from one to the other until nobody says anything more.
fn talk(now: Moment, switch: &mut Switch, datapath: &mut Datapath, flows: &mut FlowTable<InAMap>) -> Vec<Told> {
    let mut told = Vec::new();
    for _ in 0..10_000 {
        switch.tick(now, &mut told).unwrap();
        datapath.tick(now, flows).unwrap();
        let (asked, answers) = (switch.outgoing().to_vec(), datapath.outgoing().to_vec());
        if asked.is_empty() && answers.is_empty() {
            return told;
        }
        switch.sent(asked.len());
        datapath.sent(now, answers.len());
        datapath.hear(now, &asked, flows).unwrap();
        switch.hear(now, &answers, &mut told).unwrap();
        switch.admit(now, []);
    }
    panic!("they talk for ever");
}

#[derive(Clone, Debug)]
enum Act {
    Want(u32, u32),
    Unwant(u32),
    /// So many bytes go there and back.
    Carry(usize, usize),
    /// Another puts a flow in, with his cookie.
    Other(u32),
    /// The connection breaks, and the switch calls again.
    Reconnect,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        // One port in ten is refused.
        6 => (0_u32..30, 0_u32..10).prop_map(|(number, port)| Act::Want(number, port)),
        4 => (0_u32..30).prop_map(Act::Unwant),
        8 => (0_usize..600, 0_usize..600).prop_map(|(out, back)| Act::Carry(out, back)),
        1 => (30_u32..34).prop_map(Act::Other),
        1 => Just(Act::Reconnect),
    ];
    prop::collection::vec(act, 0..200)
}

proptest! {
    /// Whatever is wanted, refused and cut off meanwhile: in the end the switch has what is wanted and was not refused, and what is of others.
    #[test]
    fn a_switch_of_ours_has_what_our_controller_wants_in_the_end(
        acts in acts(),
        room in prop_oneof![Just(1_000_usize), 5_usize..25],
        flows_max in prop_oneof![Just(1_000_usize), 5_usize..25],
    ) {
        let (mut flows, mut all, mut others) = (table(room, flows_max), BTreeMap::new(), BTreeMap::new());
        let (mut switch, mut datapath) = (Switch::new(at(0), config(), BTreeMap::new()), new(at(0)));
        let (mut there, mut back_again, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for act in acts {
            match act {
                Act::Want(number, port) => {
                    all.insert(key(number), to(port));
                    switch.want(key(number), to(port));
                }
                Act::Unwant(number) => {
                    all.remove(&key(number));
                    switch.unwant(key(number));
                }
                Act::Carry(out, back) => {
                    switch.tick(at(0), &mut told).unwrap();
                    there.extend(switch.outgoing().to_vec());
                    switch.sent(usize::MAX);
                    let asked: Vec<u8> = there.drain(..out.min(there.len())).collect();
                    datapath.hear(at(0), &asked, &mut flows).unwrap();
                    back_again.extend(datapath.outgoing().to_vec());
                    datapath.sent(at(0), usize::MAX);
                    let answers: Vec<u8> = back_again.drain(..back.min(back_again.len())).collect();
                    switch.hear(at(0), &answers, &mut told).unwrap();
                    switch.admit(at(0), []);
                    // At every moment both have the same.
                    flows_of(&flows);
                }
                Act::Other(number) => {
                    if flows.add(Cookie(8), key(number), to(1)).is_ok() {
                        others.insert(key(number), to(1));
                    }
                }
                Act::Reconnect => {
                    there.clear();
                    back_again.clear();
                    (switch, datapath) = (Switch::new(at(0), config(), all.clone()), new(at(0)));
                }
            }
            for told in told.drain(..) {
                if let Told::Refused(key, _) = told {
                    all.remove(&key);
                }
            }
        }
        // What is under way arrives.
        datapath.hear(at(0), &there, &mut flows).unwrap();
        back_again.extend(datapath.outgoing());
        datapath.sent(at(0), usize::MAX);
        switch.hear(at(0), &back_again, &mut told).unwrap();
        switch.admit(at(0), []);
        told.extend(talk(at(0), &mut switch, &mut datapath, &mut flows));
        for told in told {
            if let Told::Refused(key, _) = told {
                all.remove(&key);
            }
        }
        prop_assert_eq!(switch.status().made, all.len());
        prop_assert_eq!(switch.status().waiting, 0);
        all.extend(others);
        prop_assert_eq!(flows_of(&flows), all);
    }

    #[test]
    fn any_bytes_are_survived(
        said in prop::collection::vec((0_u8..30, prop::collection::vec(any::<u8>(), 0..120)), 0..20),
        piece in 1_usize..100,
    ) {
        let said: Vec<u8> = said.iter().flat_map(|(kind, body)| message(*kind, 1, body)).collect();
        let mut flows = table(5, 5);
        let mut datapath = greeted(&mut flows);
        for piece in said.chunks(piece) {
            // The lengths are right, and the version: whatever else is not, is answered.
            datapath.hear(at(0), piece, &mut flows).unwrap();
            flows_of(&flows);
            datapath.sent(at(0), usize::MAX);
            prop_assert!(datapath.may_hear());
        }
        let answers = ask(&mut datapath, &mut flows, &message(20, 77, &[]));
        prop_assert_eq!(heard(&answers), [(Xid(77), Heard::Barrier)]);
    }

    /// What a controller of ours says comes to a switch of ours as it was meant.
    #[test]
    fn what_is_said_is_what_is_asked(matched in matches(), table: u8, priority: u16, actions in actions(), cookie: u64) {
        let key = FlowKey { table: TableId(table), priority, matched };
        let mut bytes = Vec::new();
        Said::Add(Cookie(cookie), key, actions).put(Xid(1), &mut bytes);
        let Ok((Xid(1), Asked::Flow(asked))) = Asked::take(&bytes) else { panic!("{bytes:?}") };
        prop_assert_eq!((asked.command, asked.table, asked.priority), (Some(Command::Add), key.table, priority));
        prop_assert_eq!((asked.cookie, asked.actions), (Cookie(cookie), Some(actions)));
        prop_assert_eq!(asked.which.map(|which| which.matched), Some(matched.without_idle_fields()));
        let bits = [asked.is_temporary, asked.has_buffer, asked.tells_removal, asked.checks_overlap];
        prop_assert_eq!(bits, [false; 4]);

        bytes.clear();
        Said::Delete(Cookie(cookie), key).put(Xid(2), &mut bytes);
        let Ok((Xid(2), Asked::Flow(asked))) = Asked::take(&bytes) else { panic!("{bytes:?}") };
        prop_assert_eq!((asked.command, asked.table, asked.priority), (Some(Command::DeleteStrict), key.table, priority));
        // But for one bit.
        let cookies = Masked::new(cookie.to_be_bytes(), (!1_u64).to_be_bytes());
        let matched = matched.without_idle_fields();
        prop_assert_eq!(asked.which, Some(Selection { cookies, matched, to: None, to_group: false }));
    }

    #[test]
    fn a_match_includes_those_whose_packets_it_takes(ours in matches(), others in matches(), is_narrowed: bool) {
        // As they come, few include each other: so one is made of the other by leaving fields away.
        let wider = Match {
            in_port: ours.in_port.filter(|_| others.in_port.is_some()),
            eth_dst: ours.eth_dst.filter(|_| others.eth_dst.is_some()),
            eth_type: ours.eth_type.filter(|_| others.eth_type.is_some()),
            ip_proto: ours.ip_proto.filter(|_| others.ip_proto.is_some()),
            ipv4_dst: ours.ipv4_dst.filter(|_| others.ipv4_dst.is_some()),
            ipv6_dst: ours.ipv6_dst.filter(|_| others.ipv6_dst.is_some()),
            udp_dst: ours.udp_dst.filter(|_| others.udp_dst.is_some()),
        };
        prop_assert!(wider.includes(&ours) && ours.includes(&ours));
        prop_assert_eq!(ours.includes(&wider), ours == wider);
        if is_narrowed {
            let narrower = Match { udp_dst: Some(ours.udp_dst.map_or(1, |port| port.wrapping_add(1))), ..ours };
            prop_assert_eq!(ours.includes(&narrower), ours.udp_dst.is_none());
        }
    }
}
