//! What a switch says to a controller of ours, and a controller to a switch of ours: any bytes; and any bytes behind a greeting, in any pieces, as
//! messages whose lengths are right. What is kept of them is bounded, and a table has the flows that are looked up.
#![no_main]

use std::collections::BTreeMap;

use guira_item::{Moment, Span};
use guira_openflow::{
    Actions, Asked, Datapath, DatapathConfig, DatapathId, FlowKey, FlowTable, HEADER_LEN, Heard, Lookups, PortStatus,
    Refusal, Switch, SwitchConfig, TableStats, message_len,
};

const FLOWS_MAX: usize = 20;

/// What a switch says that calls and has no flows: a hello, its features, no flows, no tables and no ports.
const GREETING: [&[u8]; 5] = [
    &[4, 0, 0, 8, 0, 0, 0, 1],
    &[4, 6, 0, 32, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[4, 19, 0, 16, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0, 0],
    &[4, 19, 0, 16, 0, 0, 0, 4, 0, 3, 0, 0, 0, 0, 0, 0],
    &[4, 19, 0, 16, 0, 0, 0, 5, 0, 4, 0, 0, 0, 0, 0, 0],
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [piece, stage, rest @ ..] = data else { return };
    let _ = Heard::take(rest);
    let _ = Asked::take(rest);
    let _ = message_len(rest);
    ask(*piece, rest);

    let config = SwitchConfig { flows_max: 100, read_again_after: Span::from_ms(1), ..SwitchConfig::default() };
    let mut switch = Switch::new(Moment::from_ns(0), config, BTreeMap::new());
    let mut told = Vec::new();
    let stage = usize::from(*stage) % (GREETING.len() + 1);
    for said in &GREETING[..stage] {
        switch.hear(Moment::from_ns(0), said, &mut told).expect("as a switch does");
        switch.admit(Moment::from_ns(0), []);
    }
    let said = messages(rest);
    for (at, bytes) in (1..).zip(said.chunks(usize::from(*piece) + 1)) {
        let now = Moment::from_ns(at * 1_000_000);
        if switch.hear(now, bytes, &mut told).and_then(|()| switch.tick(now, &mut told)).is_err() {
            return;
        }
        switch.admit(now, []);
        let status = switch.status();
        assert!(status.made <= 100 && status.waiting <= 100, "{status:?}");
        switch.sent(switch.outgoing().len() / 2);
    }
});

/// What looks packets up in a map, and takes no flow of an odd priority.
#[derive(Default)]
struct InAMap(BTreeMap<FlowKey, Actions>);

impl Lookups for InAMap {
    fn make(&mut self, key: FlowKey, actions: Actions) -> Result<(), Refusal> {
        if key.priority % 2 == 1 {
            return Err(Refusal::BAD_FIELD);
        }
        self.0.insert(key, actions);
        Ok(())
    }

    fn take_back(&mut self, key: &FlowKey) {
        self.0.remove(key).expect("what is taken back is there");
    }

    fn table(&self) -> TableStats {
        TableStats::default()
    }

    fn ports(&self) -> Vec<PortStatus> {
        Vec::new()
    }
}

/// A switch of ours is asked this.
fn ask(piece: u8, asked: &[u8]) {
    let start = Moment::from_ns(0);
    let mut flows = FlowTable::new(InAMap::default(), FLOWS_MAX);
    let config = DatapathConfig::new(DatapathId(7));
    let _ = Datapath::new(start, config).hear(start, asked, &mut flows);
    let mut datapath = Datapath::new(start, config);
    datapath.hear(start, GREETING[0], &mut flows).expect("as a controller does");
    let said = messages(asked);
    for (at, bytes) in (1..).zip(said.chunks(usize::from(piece) + 1)) {
        let now = Moment::from_ns(at * 1_000_000);
        datapath.hear(now, bytes, &mut flows).expect("what is not known is answered");
        while !datapath.may_hear() {
            datapath.sent(now, usize::MAX);
            datapath.tick(now, &mut flows).expect("what is sent is read");
        }
        datapath.sent(now, datapath.outgoing().len() / 2);
        assert!(datapath.outgoing().len() < 256 << 10);
        assert!(flows.len() <= FLOWS_MAX);
        assert!(flows.flows(None).map(|(key, _, actions)| (key, actions)).eq(&flows.lookups().0));
    }
}

/// Of bytes messages, each of which has a kind, a number and a length that is right; the first byte of each says how long it is.
fn messages(mut bytes: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let (body, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let [kind, xid, body @ ..] = body else { return said };
        let len = (HEADER_LEN + body.len()) as u16;
        said.extend([4, kind % 32, (len >> 8) as u8, len as u8, 0, 0, 0, *xid]);
        said.extend(body);
    }
    said
}
