//! A cache node does not fetch again and again what is larger than all that it may keep.

use std::{sync::Arc, time::Duration};

use guira_cluster::{Incarnation, NodeClock, Seq, SessionId};
use guira_item::{Expiry, Moment, Span};
use guira_routing::NodeId;
use guira_switched::{
    Body, Happened, ItemCopy, KeyBytes, Life, Loaded, Member, Message, Outbox, Role, StaticFile, cache_node::CacheNode,
};

const CACHE: NodeId = NodeId(2);
const BACKEND: NodeId = NodeId(3);

/// A cache node with room for 1,000 bytes, and its one backend.
struct Setting {
    cache: CacheNode,
    session: SessionId,
    now: Moment,
    last_seq: u64,
    /// What the backend was told, by number.
    told: Vec<(Seq, Body)>,
}

impl Setting {
    fn new() -> Self {
        let now = Moment::from_ns(1_000_000_000);
        let member = |node: NodeId, role| Member { id: node.0, address: ([127, 0, 0, 1], node.0).into(), role };
        let backend =
            Role::Backend { cache: Some(CACHE.0), store: "memory".into(), store_limit: None, request_limit: None };
        let members = vec![member(NodeId(1), Role::Controller), member(CACHE, Role::Cache), member(BACKEND, backend)];
        let file = StaticFile { secret: "a secret that is long enough".into(), members, ..StaticFile::default() };
        let partitions = Arc::new(file.partitions().expect("it has a backend"));
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let mut config = file.cache_config(CACHE, &partitions, Life { incarnation: Incarnation(7), clock, seed: 1 });
        (config.bytes_max, config.segment) = (1_000, Span::from_ms(100));
        let (mut cache, mut out) = (CacheNode::new(config, now), Outbox::default());
        cache.step(now, Happened::Tick, &mut out);
        let begun = out.sends().find_map(|(to, bytes)| match Message::decode(bytes) {
            Ok(Message::Open { opening, at, .. }) if to == BACKEND => Some((opening, at)),
            _ => None,
        });
        let (opening, at) = begun.expect("a session is begun");
        let session = SessionId { incarnation: Incarnation(9), opening };
        let mut setting = Self { cache, session, now, last_seq: 0, told: Vec::new() };
        setting.step(Happened::Message(BACKEND, Message::Opened { session, at, lease: Span::from_s(600) }));
        setting
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.cache.step(self.now, happened, &mut out);
        for (_, bytes) in out.sends() {
            if let Ok(Message::Told { seq, body: Some(body), .. }) = Message::decode(bytes)
                && self.told.iter().all(|(told, _)| *told < seq)
            {
                self.told.push((seq, body));
            }
        }
    }

    fn tell(&mut self, body: Body) {
        self.last_seq += 1;
        let (session, seq, body) = (self.session, Seq(self.last_seq), Some(body));
        let ack = self.told.last().map_or(Seq(0), |(seq, _)| *seq);
        self.step(Happened::Message(BACKEND, Message::Told { session, ack, seq, body }));
    }

    fn report(&mut self, key: &KeyBytes) {
        self.tell(Body::Report(vec![Loaded { key: key.clone(), per_s: 1_000.0 }]));
    }

    fn fetches(&self) -> usize {
        self.told.iter().filter(|(_, body)| matches!(body, Body::Fetch(_))).count()
    }
}

#[test]
fn what_is_too_large_is_fetched_again_only_after_a_time() {
    let mut setting = Setting::new();
    let key = KeyBytes(b"large".as_slice().into());
    setting.report(&key);
    assert_eq!(setting.fetches(), 1);
    let item = ItemCopy {
        flags: 0,
        version: 1,
        expiry: Expiry::NEVER,
        serve_until: None,
        stale: false,
        win_sent: false,
        value: vec![0; 2_000].into(),
    };
    setting.tell(Body::Value(key.clone(), Some(item)));
    assert!(matches!(setting.told.last(), Some((_, Body::Drop { .. }))), "it is not kept");
    setting.report(&key);
    assert_eq!((setting.fetches(), setting.cache.items()), (1, 0));
    for _ in 0..16 {
        setting.now = setting.now + Span::from_ms(100);
        setting.step(Happened::Tick);
    }
    setting.report(&key);
    assert_eq!(setting.fetches(), 2, "it may have become smaller");
}
