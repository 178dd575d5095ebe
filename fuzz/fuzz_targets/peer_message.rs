//! What members say: any bytes as messages, to each core in turn. Nothing ends a core, and what is read of a message is written as it was.
//! Of two backends the one that is asked has something to give to the other, and may be given something by it.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use guira_cluster::messages;
use guira_cluster::{Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::store::{Found, Written};
use guira_item::{Moment, Span, store::StoreState};
use guira_routing::{NodeId, PartitionId};
use guira_switched::{
    Body, CacheMode, Committed, Happened, Life, Member, Message, Outbox, Role, Scanned, Shares, StaticFile, StoreCall,
    backend::{self, Backend},
    cache_node::CacheNode,
    controller::Controller,
    gateway::{self, Gateway},
};

const CONTROLLER: NodeId = NodeId(1);
const CACHE: NodeId = NodeId(2);
const BACKEND: NodeId = NodeId(3);
const GATEWAY: NodeId = NodeId(4);
const OTHER_BACKEND: NodeId = NodeId(5);

/// In which the other backend gives something.
const SESSION: SessionId = SessionId { incarnation: Incarnation(7), opening: Opening(1) };

/// Partitions that the backend is to give away, and that it is given.
const GIVEN: usize = 10;

static CLUSTER: LazyLock<(StaticFile, Shares)> = LazyLock::new(|| {
    let here = |port: u16| ([127, 0, 0, 1], port).into();
    let member = |node: NodeId, role| Member::new(node.0, here(node.0), role);
    let file = StaticFile {
        secret: "a secret that is long enough".into(),
        items_max: 4,
        burst_load_min: 0.0,
        members: vec![
            member(CONTROLLER, Role::Controller),
            member(CACHE, Role::CACHE),
            member(BACKEND, Role::backend(Some(CACHE.0))),
            member(OTHER_BACKEND, Role::backend(Some(CACHE.0))),
            member(GATEWAY, Role::Gateway { listen: here(11211), cache_mode: CacheMode::default() }),
        ],
        ..StaticFile::default()
    };
    file.check().expect("it is a cluster");
    let shares = file.shares().expect("of two backends");
    let wanted = shares.map.with_owner(shares.map.partitions_of(BACKEND).take(GIVEN), OTHER_BACKEND);
    (file, Shares { wanted: wanted.into(), ..shares })
});

/// Those that it is given.
static TAKEN: LazyLock<Vec<PartitionId>> =
    LazyLock::new(|| CLUSTER.1.map.partitions_of(OTHER_BACKEND).take(GIVEN).collect());

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (file, shares) = &*CLUSTER;
    let mut now = Moment::from_ns(1_000_000_000);
    let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
    let life = Life { incarnation: Incarnation(7), clock, seed: 1 };
    let mut backend = Backend::new(file.backend_config(BACKEND, shares, life), StoreState::default(), now);
    let mut cache = CacheNode::new(file.cache_config(CACHE, shares, life), now);
    let mut controller = Controller::new(file.controller_config(life)).expect("its budget is sound");
    let mut gateway = Gateway::new(file.gateway_config(GATEWAY, shares, life));
    let mut out = Outbox::default();
    backend.step(now, backend::Happened::Tick, &mut out);
    settle(&mut backend, now, &mut out);
    let Some((timing, data)) = data.split_first() else { return };
    // Nobody guesses a session: in half the inputs the other backend has begun to give something, and what is said of that is in its session, in order.
    let mut given = (timing % 2 == 0).then(|| begin_to_give(&mut backend, &mut now, shares, &mut out));
    for (number, bytes) in messages(data).map_while(Result::ok).enumerate() {
        let Ok(message) = Message::decode(bytes) else { continue };
        let written = encoded(&message);
        let again = Message::decode(&written).expect("what was written can be read");
        assert_eq!(encoded(&again), written);
        let from = [CACHE, BACKEND, GATEWAY, CONTROLLER, OTHER_BACKEND][number % 5];
        let (from, again) = match (again, &mut given) {
            (Message::Given { ack, body: Some(body), .. }, Some(last)) => {
                *last += 1;
                (OTHER_BACKEND, Message::Given { session: SESSION, ack, seq: Seq(*last), body: Some(body) })
            }
            (again, _) => (from, again),
        };
        now = now + Span::from_ms(u64::from(*timing));
        backend.step(now, backend::Happened::Message(from, again.clone()), &mut out);
        settle(&mut backend, now, &mut out);
        if out.commit.take().is_some() {
            // Every other time it is known at once that nothing has come of it, and otherwise never.
            let known = (number % 2 == 0).then_some(Committed::Not);
            known.into_iter().for_each(|known| backend.step(now, backend::Happened::Committed(known), &mut out));
            settle(&mut backend, now, &mut out);
        }
        cache.step(now, Happened::Message(from, again.clone()), &mut out);
        controller.step(now, Happened::Message(from, again.clone()), &mut out);
        gateway.step(now, gateway::Happened::Message(from, again), &mut out);
        cache.step(now, Happened::Tick, &mut out);
        controller.step(now, Happened::Tick, &mut out);
        gateway.step(now, gateway::Happened::Tick, &mut out);
        // What they say can be read.
        assert!(out.sends().all(|(_, bytes)| Message::decode(bytes).is_ok()));
        out.clear();
    }
});

/// The other backend begins to give partitions, for which there is room; the number of what it has said last.
fn begin_to_give(backend: &mut Backend, now: &mut Moment, shares: &Shares, out: &mut Outbox) -> u64 {
    // It has begun to serve by then.
    *now = *now + Span::from_s(60);
    backend.step(*now, backend::Happened::Tick, out);
    settle(backend, *now, out);
    let open = Message::Open { opening: SESSION.opening, at: *now, in_charge: false };
    let partitions = TAKEN.clone();
    let begin = Body::Begin { partitions, revision: shares.revision, flush_at_unix_s: 0 };
    let begin = Message::Given { session: SESSION, ack: Seq(0), seq: Seq(1), body: Some(begin) };
    out.clear();
    for message in [open, begin] {
        backend.step(*now, backend::Happened::Message(OTHER_BACKEND, message), out);
        settle(backend, *now, out);
    }
    let is_ready = |bytes| matches!(Message::decode(bytes), Ok(Message::Told { body: Some(Body::Ready), .. }));
    assert!(out.sends().any(|(to, bytes)| to == OTHER_BACKEND && is_ready(bytes)), "there is room");
    out.clear();
    1
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// A store that has nothing, and writes all it is asked to.
fn settle(backend: &mut Backend, now: Moment, out: &mut Outbox) {
    while !out.store.is_empty() {
        for call in std::mem::take(&mut out.store) {
            let happened = match call {
                StoreCall::Read(key) => backend::Happened::Read(key, Ok(Found::default())),
                StoreCall::Write(key, _) => backend::Happened::Written(key, Ok(Written::All)),
                StoreCall::Scan(scan) => backend::Happened::Scanned(scan.number, Ok(Scanned::default())),
                StoreCall::Fence(_) => backend::Happened::Fenced(Ok(())),
                StoreCall::Flush => backend::Happened::Flushed(Ok(())),
                StoreCall::State(_) => backend::Happened::StateWritten(Ok(Written::All)),
            };
            backend.step(now, happened, out);
        }
    }
}
