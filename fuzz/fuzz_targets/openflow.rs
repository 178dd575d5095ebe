//! What a switch says: any bytes; and any bytes behind a greeting, in any pieces, as messages whose lengths are right. What is kept of them is
//! bounded.
#![no_main]

use std::collections::BTreeMap;

use guira_item::{Moment, Span};
use guira_openflow::{HEADER_LEN, Heard, Switch, SwitchConfig, message_len};

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
    let _ = message_len(rest);

    let config = SwitchConfig { flows_max: 100, read_again_after: Span::from_ms(1), ..SwitchConfig::default() };
    let mut switch = Switch::new(Moment::from_ns(0), config, BTreeMap::new());
    let mut told = Vec::new();
    let stage = usize::from(*stage) % (GREETING.len() + 1);
    for said in &GREETING[..stage] {
        switch.hear(Moment::from_ns(0), said, &mut told).expect("as a switch does");
    }
    let said = messages(rest);
    for (at, bytes) in (1..).zip(said.chunks(usize::from(*piece) + 1)) {
        let now = Moment::from_ns(at * 1_000_000);
        if switch.hear(now, bytes, &mut told).and_then(|()| switch.tick(now, &mut told)).is_err() {
            return;
        }
        let status = switch.status();
        assert!(status.made <= 100 && status.waiting <= 100, "{status:?}");
        switch.sent(switch.outgoing().len() / 2);
    }
});

/// Of bytes messages, each of which has a kind, a number and a length that is right; the first byte of each says how long it is.
fn messages(mut bytes: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let (body, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let [kind, xid, body @ ..] = body else { return said };
        let len = (HEADER_LEN + body.len()) as u16;
        said.extend([4, kind % 24, (len >> 8) as u8, len as u8, 0, 0, 0, *xid]);
        said.extend(body);
    }
    said
}
