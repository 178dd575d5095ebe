//! A switch of a few lines at the other end, which has room for so many flows, and loses some.

use proptest::prelude::*;

use super::*;
use crate::{
    DatapathId, Masked, Match, Port, TableId,
    message::{HEADER_LEN, VERSION},
    wire::Reader,
};

const COOKIE: Cookie = Cookie(7);
const DATAPATH: DatapathId = DatapathId(0x42);

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

fn config() -> SwitchConfig {
    SwitchConfig { cookie: COOKIE, batch_max: 4, ..SwitchConfig::default() }
}

/// Odd ones are in the second table.
fn key(number: u16) -> FlowKey {
    let [high, low] = number.to_be_bytes();
    let eth_dst = Some(Masked::exact([0x0a, 0, 0, 0, high, low]));
    FlowKey { table: TableId(low % 2), priority: 300, matched: Match { eth_dst, ..Match::default() } }
}

fn to(port: u32) -> Actions {
    Actions { output: Some(Port(port)), ..Actions::default() }
}

/// What a switch does, as the standard has it.
struct Fake {
    flows: BTreeMap<FlowKey, (Cookie, Actions)>,
    room: usize,
    incoming: Vec<u8>,
    /// Flows that it was told, in order.
    adds: Vec<FlowKey>,
    deletions: Vec<FlowKey>,
    /// What it hears of these kinds it passes over.
    deaf_to: Vec<u8>,
    /// It has one of our flows that takes packets by the port that they came by.
    has_a_foreign_one: bool,
    /// It takes no flow to this port.
    refuses: Option<Port>,
}

impl Fake {
    fn new(room: usize) -> Self {
        Self {
            flows: BTreeMap::new(),
            room,
            incoming: Vec::new(),
            adds: Vec::new(),
            deletions: Vec::new(),
            deaf_to: Vec::new(),
            has_a_foreign_one: false,
            refuses: None,
        }
    }

    fn with(flows: &[(FlowKey, Actions)]) -> Self {
        let flows = flows.iter().map(|(key, actions)| (*key, (COOKIE, *actions))).collect();
        Self { flows, ..Self::new(1_000) }
    }

    fn ours(&self) -> BTreeMap<FlowKey, Actions> {
        self.flows
            .iter()
            .filter(|(_, (cookie, _))| *cookie == COOKIE)
            .map(|(key, (_, actions))| (*key, *actions))
            .collect()
    }

    /// What it says to these bytes.
    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.incoming.extend(bytes);
        let mut said = Vec::new();
        while let Some(len) = message_len(&self.incoming).unwrap()
            && self.incoming.len() >= len
        {
            let message: Vec<u8> = self.incoming.drain(..len).collect();
            if !self.deaf_to.contains(&message[1]) {
                self.heed(&message, &mut said);
            }
        }
        said
    }

    fn heed(&mut self, message: &[u8], said: &mut Vec<u8>) {
        assert_eq!(message[0], VERSION);
        let xid: [u8; 4] = message[4..8].try_into().unwrap();
        let mut body = Reader::new(&message[HEADER_LEN..]);
        match message[1] {
            0 => say(said, 0, xid, &[]),
            2 => say(said, 3, xid, body.rest()),
            3 => {}
            5 => say(said, 6, xid, &[&DATAPATH.0.to_be_bytes()[..], &[0; 16]].concat()),
            14 => {
                let cookie = Cookie(body.u64().unwrap());
                let mask = body.u64().unwrap();
                let (table, command) = (body.u8().unwrap(), body.u8().unwrap());
                body.skip(4).unwrap();
                let priority = body.u16().unwrap();
                body.skip(16).unwrap();
                let matched = Match::take(&mut body).unwrap().unwrap();
                let key = FlowKey { table: TableId(table), priority, matched };
                let actions = Actions::take(body).unwrap().unwrap();
                assert_eq!(cookie, COOKIE);
                match command {
                    0 if actions.output.is_some() && actions.output == self.refuses => {
                        say(said, 1, xid, &[&[0, 2, 0, 4], &message[..message.len().min(64)]].concat());
                    }
                    0 => {
                        self.adds.push(key);
                        if self.flows.len() < self.room || self.flows.contains_key(&key) {
                            self.flows.insert(key, (cookie, actions));
                        } else {
                            let told = [&[0, 5, 0, 1], &message[..message.len().min(64)]].concat();
                            say(said, 1, xid, &told);
                        }
                    }
                    3 => {
                        assert_eq!((table, mask, key.matched), (0xff, !1, Match::default()));
                        self.flows.retain(|_, (cookie, _)| *cookie != COOKIE);
                        self.has_a_foreign_one = false;
                    }
                    4 => {
                        assert_eq!(mask, !1);
                        self.deletions.push(key);
                        self.flows.remove(&key);
                    }
                    other => panic!("command {other}"),
                }
            }
            18 => match body.u16().unwrap() {
                1 => self.say_flows(xid, said),
                kind => say(said, 19, xid, &[&kind.to_be_bytes()[..], &[0; 6]].concat()),
            },
            20 => say(said, 21, xid, &[]),
            other => panic!("a message of kind {other}"),
        }
    }

    /// In parts of a few flows.
    fn say_flows(&self, xid: [u8; 4], said: &mut Vec<u8>) {
        let flows: Vec<(FlowKey, Actions)> = self.ours().into_iter().collect();
        if self.has_a_foreign_one {
            let mut body = vec![0, 1, 0, 1, 0, 0, 0, 0, 0, 64];
            body.extend([0; 46]);
            // By where packets come from.
            body.extend([0, 1, 0, 12, 0x80, 0, 22, 4, 10, 0, 0, 7, 0, 0, 0, 0]);
            say(said, 19, xid, &body);
        }
        let parts: Vec<&[(FlowKey, Actions)]> = flows.chunks(3).collect();
        for part in &parts {
            let mut body = vec![0, 1, 0, 1, 0, 0, 0, 0];
            for (key, actions) in *part {
                let start = body.len();
                body.extend([0, 0, key.table.0]);
                body.extend([0; 9]);
                body.extend(key.priority.to_be_bytes());
                body.extend([0; 10]);
                body.extend(COOKIE.0.to_be_bytes());
                body.extend([0; 16]);
                key.matched.put(&mut body);
                actions.put(&mut body);
                let len = (body.len() - start) as u16;
                body[start..start + 2].copy_from_slice(&len.to_be_bytes());
            }
            say(said, 19, xid, &body);
        }
        say(said, 19, xid, &[0, 1, 0, 0, 0, 0, 0, 0]);
    }
}

fn say(said: &mut Vec<u8>, kind: u8, xid: [u8; 4], body: &[u8]) {
    let len = (HEADER_LEN + body.len()) as u16;
    said.extend([VERSION, kind]);
    said.extend(len.to_be_bytes());
    said.extend(xid);
    said.extend(body);
}

/// Brings what is said from one to the other until nobody says anything more.
fn talk(now: Moment, switch: &mut Switch, fake: &mut Fake) -> Result<Vec<Told>, Broken> {
    let mut told = Vec::new();
    switch.tick(now, &mut told)?;
    for _ in 0..10_000 {
        let said = switch.outgoing().to_vec();
        if said.is_empty() {
            return Ok(told);
        }
        switch.sent(said.len());
        let answer = fake.answer(&said);
        if !answer.is_empty() {
            switch.hear(now, &answer, &mut told)?;
            switch.admit(now, []);
        }
    }
    panic!("they talk for ever");
}

fn wanted(flows: &[(FlowKey, Actions)]) -> BTreeMap<FlowKey, Actions> {
    flows.iter().copied().collect()
}

#[test]
fn a_switch_that_calls_is_told_what_it_has_not() {
    let flows: Vec<(FlowKey, Actions)> = (0..10).map(|number| (key(number), to(number.into()))).collect();
    let mut fake = Fake::with(&flows[..4]);
    fake.flows.insert(key(2), (COOKIE, to(99)));
    fake.flows.insert(key(50), (COOKIE, to(1)));
    fake.flows.insert(key(51), (Cookie(8), to(1)));
    let mut switch = Switch::new(at(0), config(), wanted(&flows));
    let told = talk(at(0), &mut switch, &mut fake).unwrap();
    // Six that are missing, one that does something else, and one too many.
    assert_eq!(told, [Told::Known(DATAPATH), Told::Read { flows: 5, differing: 8 }, Told::Settled]);
    assert_eq!(fake.ours(), wanted(&flows));
    assert_eq!((fake.adds.len(), fake.deletions.len()), (7, 1));
    assert!(fake.flows.contains_key(&key(51)), "another's is left alone");
    let SwitchStatus { wanted, made, waiting, counts, .. } = switch.status();
    assert_eq!((wanted, made, waiting, counts.batches), (10, 10, 0, 2));
}

#[test]
fn a_flow_that_is_overtaken_is_not_told() {
    let mut fake = Fake::new(1_000);
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    talk(at(0), &mut switch, &mut fake).unwrap();
    switch.want(key(1), to(1));
    switch.unwant(key(1));
    switch.want(key(2), to(1));
    switch.want(key(2), to(2));
    assert_eq!(talk(at(1), &mut switch, &mut fake), Ok(vec![Told::Settled]));
    assert_eq!((fake.adds, fake.deletions), (vec![key(2)], vec![]));
    assert_eq!(fake.flows[&key(2)].1, to(2));
}

#[test]
fn what_a_switch_has_no_room_for_is_told_and_not_wanted_any_more() {
    let mut fake = Fake::new(6);
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    talk(at(0), &mut switch, &mut fake).unwrap();
    (0..8).for_each(|number| switch.want(key(number), to(1)));
    let told = talk(at(1), &mut switch, &mut fake).unwrap();
    let refused = |number| Told::Refused(key(number), Refusal::TABLE_FULL);
    assert_eq!(told, [refused(6), refused(7), Told::Settled]);
    assert_eq!((switch.status().wanted, switch.status().made), (6, 6));
    switch.unwant(key(0));
    switch.want(key(7), to(1));
    assert_eq!(talk(at(2), &mut switch, &mut fake), Ok(vec![Told::Settled]));
    assert!(fake.flows.contains_key(&key(7)) && !fake.flows.contains_key(&key(0)));
}

#[test]
fn what_a_switch_has_for_nothing_makes_room_before_it_is_told_more() {
    let strays: Vec<(FlowKey, Actions)> = (50..56).map(|number| (key(number), to(1))).collect();
    let mut fake = Fake { room: 6, ..Fake::with(&strays) };
    let all: Vec<(FlowKey, Actions)> = (0..6).map(|number| (key(number), to(1))).collect();
    let mut switch = Switch::new(at(0), config(), wanted(&all));
    let told = talk(at(0), &mut switch, &mut fake).unwrap();
    assert_eq!(told, [Told::Known(DATAPATH), Told::Read { flows: 6, differing: 12 }, Told::Settled]);
    assert_eq!(fake.ours(), wanted(&all));
}

#[test]
fn what_is_wanted_for_moments_while_a_switch_is_slow_is_not_kept() {
    let mut fake = Fake::new(1_000);
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    talk(at(0), &mut switch, &mut fake).unwrap();
    switch.want(key(0), to(1));
    // It has been told this one, and does not say that it has it.
    switch.tick(at(1), &mut Vec::new()).unwrap();
    for number in 1..20_000 {
        switch.want(key(number), to(1));
        switch.unwant(key(number));
    }
    switch.unwant(key(0));
    assert!(switch.status().waiting <= WAITING_IN_VAIN_MAX + 3, "{}", switch.status().waiting);
    talk(at(2), &mut switch, &mut fake).unwrap();
    assert!(fake.ours().is_empty(), "what was told is taken back");
}

#[test]
fn flows_that_are_lost_are_found_missing_and_told_again() {
    let mut fake = Fake::new(1_000);
    let mut switch = Switch::new(at(0), config(), wanted(&[(key(1), to(1)), (key(2), to(2))]));
    talk(at(0), &mut switch, &mut fake).unwrap();
    fake.flows.remove(&key(1));
    fake.flows.insert(key(3), (COOKIE, to(3)));
    let read_at = config().read_again_after;
    // It is not silent meanwhile.
    for ms in (1_000..read_at.ns() / 1_000_000).step_by(1_000) {
        assert_eq!(talk(at(ms), &mut switch, &mut fake), Ok(vec![]));
    }
    let told = talk(at(0) + read_at, &mut switch, &mut fake).unwrap();
    assert_eq!(told, [Told::Read { flows: 2, differing: 2 }, Told::Settled]);
    assert_eq!(fake.ours(), wanted(&[(key(1), to(1)), (key(2), to(2))]));
    assert_eq!(switch.status().counts.differing, 2);
}

#[test]
fn flows_of_ours_that_we_could_not_have_made_are_taken_back_and_all_others_told_again() {
    let mut fake = Fake { has_a_foreign_one: true, ..Fake::with(&[(key(1), to(1)), (key(3), to(3))]) };
    fake.flows.insert(key(51), (Cookie(8), to(1)));
    let mut switch = Switch::new(at(0), config(), wanted(&[(key(1), to(1)), (key(2), to(2))]));
    let told = talk(at(0), &mut switch, &mut fake).unwrap();
    assert_eq!(told, [Told::Known(DATAPATH), Told::Read { flows: 3, differing: 3 }, Told::Settled]);
    assert!(!fake.has_a_foreign_one && fake.flows.contains_key(&key(51)), "another's is left alone");
    assert_eq!(fake.ours(), wanted(&[(key(1), to(1)), (key(2), to(2))]));
    assert_eq!(switch.status().made, 2);
}

#[test]
fn a_flow_that_may_not_be_changed_as_it_is_wanted_is_taken_back() {
    let mut fake = Fake { refuses: Some(Port(9)), ..Fake::new(1_000) };
    let mut switch = Switch::new(at(0), config(), wanted(&[(key(1), to(1))]));
    talk(at(0), &mut switch, &mut fake).unwrap();
    switch.want(key(1), to(9));
    let told = talk(at(1), &mut switch, &mut fake).unwrap();
    assert_eq!(told, [Told::Refused(key(1), Refusal { kind: 2, code: 4 }), Told::Settled]);
    assert!(fake.ours().is_empty() && switch.status().made == 0, "what it did before is not wanted, either");
}

#[test]
fn a_switch_that_falls_silent_is_asked_and_then_given_up() {
    let mut fake = Fake::new(1_000);
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    talk(at(0), &mut switch, &mut fake).unwrap();
    assert_eq!(switch.wake_at(), at(2_000));
    assert_eq!(talk(at(2_000), &mut switch, &mut fake), Ok(vec![]), "it answers");
    assert_eq!(switch.wake_at(), at(4_000));
    fake.deaf_to.push(2);
    assert_eq!(talk(at(4_000), &mut switch, &mut fake), Ok(vec![]));
    assert_eq!(switch.wake_at(), at(8_000));
    assert_eq!(talk(at(7_999), &mut switch, &mut fake), Ok(vec![]));
    assert_eq!(talk(at(8_000), &mut switch, &mut fake), Err(Broken::Silent));
}

#[test]
fn a_switch_that_gets_nothing_done_is_given_up() {
    let mut fake = Fake::new(1_000);
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    talk(at(0), &mut switch, &mut fake).unwrap();
    fake.deaf_to.push(20);
    switch.want(key(1), to(1));
    let gave_up = (0..200).map(|s| at(s * 1_000)).find(|now| talk(*now, &mut switch, &mut fake) == Err(Broken::Stuck));
    assert_eq!(gave_up, Some(at(60_000)));
}

#[test]
fn who_was_asleep_asks_before_a_switch_is_given_up() {
    let mut fake = Fake::new(1_000);
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    talk(at(0), &mut switch, &mut fake).unwrap();
    assert_eq!(talk(at(100_000), &mut switch, &mut fake), Ok(vec![Told::Read { flows: 0, differing: 0 }]));
}

#[test]
fn a_switch_of_another_version_is_told_so() {
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    let len = switch.outgoing().len();
    switch.sent(len);
    let mut hello = Vec::new();
    say(&mut hello, 0, [0; 4], &[]);
    hello[0] = 1;
    assert_eq!(switch.hear(at(0), &hello, &mut Vec::new()), Err(Broken::Version));
    assert_eq!(switch.outgoing()[..2], [VERSION, 1], "an error");
    // With a bitmap in which 1.0 and 1.3 are, and in one in which 1.3 is not.
    for (bits, speaks_ours) in [(0b1_0010_u32, true), (0b10_0010, false)] {
        let mut hello = Vec::new();
        say(&mut hello, 0, [0; 4], &[&[0, 1, 0, 8], &bits.to_be_bytes()[..]].concat());
        hello[0] = 6;
        let heard = Heard::take(&hello).unwrap().1;
        assert_eq!(heard, Heard::Hello { speaks_ours });
    }
}

#[test]
fn what_was_not_asked_for_breaks_the_connection() {
    for kind in [0, 6, 19, 21] {
        let mut fake = Fake::new(1_000);
        let mut switch = Switch::new(at(0), config(), BTreeMap::new());
        talk(at(0), &mut switch, &mut fake).unwrap();
        let mut said = Vec::new();
        let body: &[u8] = if kind == 19 { &[0, 1, 0, 0, 0, 0, 0, 0] } else { &[0; 24] };
        say(&mut said, kind, [9; 4], if kind == 0 { &[] } else { body });
        assert_eq!(switch.hear(at(0), &said, &mut Vec::new()), Err(Broken::OutOfTurn), "kind {kind}");
    }
}

#[test]
fn a_switch_that_has_too_many_flows_is_not_one_of_ours() {
    let flows: Vec<(FlowKey, Actions)> = (0..20).map(|number| (key(number), to(1))).collect();
    let mut fake = Fake::with(&flows);
    let mut switch = Switch::new(at(0), SwitchConfig { flows_max: 10, ..config() }, BTreeMap::new());
    assert_eq!(talk(at(0), &mut switch, &mut fake), Err(Broken::TooManyFlows));
}

#[test]
fn who_reads_nothing_is_given_up_before_much_is_kept_for_it() {
    let mut switch = Switch::new(at(0), config(), BTreeMap::new());
    let mut echo = Vec::new();
    say(&mut echo, 2, [0; 4], &[1; 60_000]);
    let given_up = (0..1_000).find(|_| switch.hear(at(0), &echo, &mut Vec::new()) == Err(Broken::Deaf));
    assert!(given_up.is_some_and(|after| after < 20));
    assert!(switch.outgoing().len() < UNREAD_MAX + 65_536);
}

#[derive(Clone, Debug)]
enum Act {
    Want(u16, u32),
    Unwant(u16),
    /// So many bytes go from the controller to the switch and back.
    Carry(usize, usize),
    /// Somebody takes a flow out of the switch, or puts one in.
    Lose(u16),
    Put(u16),
    /// The connection breaks, and the switch calls again; with its flows, or as it is when its power comes back.
    Reconnect(bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0_u16..30, 0_u32..3).prop_map(|(number, port)| Act::Want(number, port)),
        4 => (0_u16..30).prop_map(Act::Unwant),
        6 => (0_usize..400, 0_usize..400).prop_map(|(out, back)| Act::Carry(out, back)),
        1 => (0_u16..30).prop_map(Act::Lose),
        1 => (30_u16..40).prop_map(Act::Put),
        1 => any::<bool>().prop_map(Act::Reconnect),
    ];
    prop::collection::vec(act, 0..200)
}

proptest! {
    /// Whatever is wanted, lost, refused and cut off meanwhile: once all is said and read again, the switch has what is wanted and was not refused.
    #[test]
    fn a_switch_has_what_it_is_to_have_in_the_end(acts in acts(), room in prop_oneof![Just(1_000_usize), 5_usize..25]) {
        let (mut fake, mut all) = (Fake::new(room), BTreeMap::new());
        let mut switch = Switch::new(at(0), config(), BTreeMap::new());
        let (mut to_fake, mut to_switch, mut told) = (Vec::new(), Vec::new(), Vec::new());
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
                    to_fake.extend(switch.outgoing().to_vec());
                    switch.sent(usize::MAX);
                    let out: Vec<u8> = to_fake.drain(..out.min(to_fake.len())).collect();
                    to_switch.extend(fake.answer(&out));
                    let back: Vec<u8> = to_switch.drain(..back.min(to_switch.len())).collect();
                    switch.hear(at(0), &back, &mut told).unwrap();
                    switch.admit(at(0), []);
                }
                Act::Lose(number) => _ = fake.flows.remove(&key(number)),
                Act::Put(number) if fake.flows.len() < room => _ = fake.flows.insert(key(number), (COOKIE, to(1))),
                Act::Put(_) => {}
                Act::Reconnect(keeps) => {
                    if !keeps {
                        fake.flows.clear();
                    }
                    fake.incoming.clear();
                    to_fake.clear();
                    to_switch.clear();
                    switch = Switch::new(at(0), config(), all.clone());
                }
            }
            for told in told.drain(..) {
                if let Told::Refused(key, _) = told {
                    all.remove(&key);
                }
            }
        }
        // What is under way comes to its end, and then all is read again, twice: the second time nothing is found.
        for _ in 0..10_000 {
            to_fake.extend(switch.outgoing().to_vec());
            switch.sent(usize::MAX);
            to_switch.extend(fake.answer(&std::mem::take(&mut to_fake)));
            if to_switch.is_empty() {
                break;
            }
            switch.hear(at(0), &std::mem::take(&mut to_switch), &mut told).unwrap();
            switch.admit(at(0), []);
        }
        prop_assert!(to_switch.is_empty() && switch.outgoing().is_empty(), "they talk for ever");
        let again = config().read_again_after;
        for round in 1..4 {
            switch.hear(at(0) + again.times(round), &[], &mut told).unwrap();
            told.extend(talk(at(0) + again.times(round), &mut switch, &mut fake).unwrap());
        }
        let last = told.iter().rev().find(|told| matches!(told, Told::Read { .. }));
        prop_assert!(matches!(last, Some(Told::Read { differing: 0, .. })), "{last:?}");
        for told in &told {
            if let Told::Refused(key, _) = told {
                all.remove(key);
            }
        }
        prop_assert_eq!(fake.ours(), all);
        prop_assert_eq!(switch.status().waiting, 0);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..23) {
        let mut message = Vec::new();
        say(&mut message, kind, [0; 4], &bytes);
        let _ = Heard::take(&message);
        let mut switch = Switch::new(at(0), config(), BTreeMap::new());
        let mut told = Vec::new();
        talk(at(0), &mut switch, &mut Fake::new(9)).unwrap();
        let _ = switch.hear(at(0), &message, &mut told);
        switch.admit(at(0), []);
    }
}

#[test]
fn how_many_updates_a_switch_takes_is_told_when_it_has_become_another_number() {
    let config = SwitchConfig { batch_max: 16, ..config() };
    let (mut fake, mut switch) = (Fake::new(1_000), Switch::new(at(0), config, BTreeMap::new()));
    talk(at(0), &mut switch, &mut fake).unwrap();
    let mut now = at(0);
    let mut takes = |took_ms: u64| {
        (0..16).for_each(|number| switch.want(key(number), to(now.ns() as u32)));
        let mut told = Vec::new();
        switch.tick(now, &mut told).unwrap();
        now = now + Span::from_ms(took_ms);
        told.extend(talk(now, &mut switch, &mut fake).unwrap());
        told.into_iter().find(|told| matches!(told, Told::Takes { .. }))
    };
    assert_eq!(takes(16), Some(Told::Takes { updates_per_s: 1_000 }));
    assert_eq!(takes(15), None);
    let slower: Vec<Told> = (0..60).filter_map(|_| takes(160)).collect();
    assert!(matches!(slower[..], [.., Told::Takes { updates_per_s: 100..120 }]), "{slower:?}");
    assert!(slower.len() < 30, "{slower:?}");
}

#[test]
fn what_is_spared_is_left_until_it_is_known_what_is_wanted() {
    let with = |number, priority| FlowKey { priority, ..key(number) };
    let mut fake = Fake::with(&[(key(1), to(1)), (with(2, 400), to(2)), (with(3, 400), to(3)), (with(4, 400), to(4))]);
    let config = SwitchConfig { spares: Some(400), ..config() };
    let mut switch = Switch::new(at(0), config, BTreeMap::new());
    talk(at(0), &mut switch, &mut fake).unwrap();
    assert_eq!(fake.deletions, [key(1)]);
    switch.want(with(3, 400), to(3));
    switch.want(with(4, 400), to(5));
    talk(at(1), &mut switch, &mut fake).unwrap();
    assert_eq!(fake.adds, [with(4, 400)], "one is there already");
    switch.spare_none();
    talk(at(2), &mut switch, &mut fake).unwrap();
    assert_eq!(fake.deletions, [key(1), with(2, 400)]);
    assert_eq!(fake.ours(), wanted(&[(with(3, 400), to(3)), (with(4, 400), to(5))]));
}

#[test]
fn a_switch_is_asked_for_its_flows_once_it_is_admitted_and_then_told_what_was_wanted_of_it_alone() {
    let mut fake = Fake::with(&[(key(2), to(2))]);
    let mut switch = Switch::new(at(0), config(), wanted(&[(key(1), to(1))]));
    let mut told = Vec::new();
    for _ in 0..2 {
        let answer = fake.answer(switch.outgoing());
        switch.sent(switch.outgoing().len());
        switch.hear(at(0), &answer, &mut told).unwrap();
    }
    assert_eq!((&told[..], switch.outgoing()), (&[Told::Known(DATAPATH)][..], &[][..]));
    switch.tick(at(1), &mut told).unwrap();
    assert_eq!(switch.outgoing(), []);
    switch.admit(at(1), [(key(2), to(2)), (key(3), to(3))]);
    let told = talk(at(1), &mut switch, &mut fake).unwrap();
    assert_eq!(told, [Told::Read { flows: 1, differing: 2 }, Told::Settled]);
    assert_eq!(fake.ours(), wanted(&[(key(1), to(1)), (key(2), to(2)), (key(3), to(3))]));
    // It is one already.
    switch.admit(at(2), [(key(4), to(4))]);
    assert_eq!(talk(at(2), &mut switch, &mut fake).unwrap(), []);
    // Nobody decides.
    let mut forgotten = Switch::new(at(0), config(), BTreeMap::new());
    for _ in 0..2 {
        let answer = fake.answer(forgotten.outgoing());
        forgotten.sent(forgotten.outgoing().len());
        forgotten.hear(at(0), &answer, &mut Vec::new()).unwrap();
    }
    let mut echo = Vec::new();
    say(&mut echo, 3, [0; 4], &[]);
    forgotten.hear(at(59_000), &echo, &mut Vec::new()).unwrap();
    forgotten.tick(at(59_000), &mut Vec::new()).unwrap();
    assert_eq!(forgotten.tick(at(60_000), &mut Vec::new()), Err(Broken::Stuck));
}

#[test]
fn a_switch_that_calls_is_told_what_it_can_do_without_last_and_before_that_what_is_led_to_and_what_comes_first() {
    let of = |table, priority| FlowKey { table: TableId(table), priority, ..FlowKey::default() };
    let (mut fake, flows) = (Fake::new(1_000), [of(0, 100), of(0, 400), of(0, 500), of(1, 100), of(2, 400), of(2, 1)]);
    let flows = flows.map(|key| (key, to(1)));
    let mut switch = Switch::new(at(0), SwitchConfig { last: Some(400), ..config() }, wanted(&flows));
    talk(at(0), &mut switch, &mut fake).unwrap();
    assert_eq!(fake.adds, [of(2, 1), of(1, 100), of(0, 500), of(0, 100), of(2, 400), of(0, 400)]);
}
