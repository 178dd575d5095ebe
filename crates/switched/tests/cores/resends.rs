//! When a gateway asks again: a long request is not sent a second time while what stands in front of it may still be on its way.

use std::time::Duration;

use guira_cluster::{Incarnation, NodeClock, SessionId};
use guira_item::{Expiry, Get, Key, Moment, Operation, Span, Store, StoreMode};
use guira_routing::NodeId;
use guira_switched::{
    AskId, CacheMode, Life, Member, Message, Outbox, Role, StaticFile,
    gateway::{Gateway, Happened},
};

const BACKEND: NodeId = NodeId(2);
const GATEWAY: NodeId = NodeId(3);
const VALUE_LEN: usize = 1_000_000;

/// Beyond what a gateway waits for a short answer.
const PATIENCE: Span = Span::from_ms(500);

fn gateway(now: Moment) -> Gateway {
    let member = |node: NodeId, role| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role);
    let file = StaticFile {
        secret: "a secret that is long enough".into(),
        members: vec![
            member(NodeId(1), Role::Controller),
            member(BACKEND, Role::backend(None)),
            member(GATEWAY, Role::Gateway { listen: ([127, 0, 0, 1], 9).into(), cache_mode: CacheMode::default() }),
        ],
        ..StaticFile::default()
    };
    file.check().expect("it is a cluster");
    let shares = file.shares().expect("it has a backend");
    let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
    Gateway::new(file.gateway_config(GATEWAY, &shares, Life { incarnation: Incarnation(7), clock, seed: 1 }))
}

#[test]
fn long_requests_are_sent_again_only_when_all_in_front_could_have_come() {
    let now = Moment::from_ns(1_000_000_000);
    let (mut gateway, mut out) = (gateway(now), Outbox::default());
    let value = vec![7; VALUE_LEN];
    let set = Store { mode: StoreMode::Set, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value: &value };
    for number in 0..20 {
        let name = format!("key{number}");
        let key = Key::new(name.as_bytes()).expect("a key");
        gateway.step(now, Happened::Ask(AskId(number), key, Operation::Store(set)), &mut out);
    }
    let opening = out.sends().find_map(|(_, bytes)| match Message::decode(bytes) {
        Ok(Message::Join { opening }) => Some(opening),
        _ => None,
    });
    let session = SessionId { incarnation: Incarnation(9), opening: opening.expect("a session is begun") };
    gateway.step(now, Happened::Message(BACKEND, Message::Joined { session }), &mut out);
    gateway.step(
        now,
        Happened::Ask(AskId(20), Key::new(b"short").expect("a key"), Operation::Get(Get::PLAIN)),
        &mut out,
    );
    // Ten megabytes a second: the first may have come, and the last not.
    let alone = now + PATIENCE + Span::from_ns(100 * VALUE_LEN as u64);
    gateway.step(alone, Happened::Tick, &mut out);
    assert_eq!(gateway.counts().resent, 1, "the short one, which goes in a datagram");
    let all = now + PATIENCE + Span::from_ns(100 * 20 * VALUE_LEN as u64);
    gateway.step(all, Happened::Tick, &mut out);
    assert_eq!(gateway.counts().resent, 22);
}
