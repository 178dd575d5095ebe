//! A cache node, its one backend and its controller: what it does not fetch again and again, and what it hands over to another.

use std::time::Duration;

use guira_cluster::{Incarnation, NodeClock, Opening, Seq, SessionId};
use guira_item::{Expiry, Moment, Span};
use guira_routing::{Load, NodeId};
use guira_switched::{
    Body, Happened, ItemCopy, KeyBytes, Life, Loaded, Member, Message, Outbox, Role, StaticFile, cache_node::CacheNode,
    hash_of,
};

const CONTROLLER: NodeId = NodeId(1);
const CACHE: NodeId = NodeId(2);
const BACKEND: NodeId = NodeId(3);
const OTHER: NodeId = NodeId(4);

/// A cache node with room for 1,000 bytes, and who it speaks with.
struct Setting {
    cache: CacheNode,
    /// With the backend, and with the controller.
    sessions: [SessionId; 2],
    now: Moment,
    last_seqs: [u64; 2],
    /// What the backend was told, by number.
    told: Vec<(Seq, Body)>,
}

/// The cluster with these backends.
fn file(backends: &[NodeId]) -> StaticFile {
    let member = |node: NodeId, role| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), role);
    let mut members = vec![member(CONTROLLER, Role::Controller), member(CACHE, Role::CACHE)];
    members.extend(backends.iter().map(|backend| member(*backend, Role::backend(Some(CACHE.0)))));
    StaticFile { secret: "a secret that is long enough".into(), members, ..StaticFile::default() }
}

impl Setting {
    fn new() -> Self {
        Self::with_items(usize::MAX)
    }

    /// With room for so many items, too.
    fn with_items(items_max: usize) -> Self {
        let now = Moment::from_ns(1_000_000_000);
        let file = file(&[BACKEND]);
        let shares = file.shares().expect("it has a backend");
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let mut config = file.cache_config(CACHE, &shares, Life { incarnation: Incarnation(7), clock, seed: 1 });
        (config.bytes_max, config.items_max) = (1_000, items_max);
        (config.segment, config.exchanges_per_s) = (Span::from_ms(100), 100.0);
        let (mut cache, mut out) = (CacheNode::new(config, now), Outbox::default());
        cache.step(now, Happened::Tick, &mut out);
        let begun = |with: NodeId| {
            let opening = out.sends().find_map(|(to, bytes)| match Message::decode(bytes) {
                Ok(Message::Open { opening, .. }) if to == with => Some(opening),
                _ => None,
            });
            SessionId { incarnation: Incarnation(9), opening: opening.expect("a session is begun") }
        };
        let sessions = [begun(BACKEND), begun(CONTROLLER)];
        let mut setting = Self { cache, sessions, now, last_seqs: [0; 2], told: Vec::new() };
        for (peer, session) in [BACKEND, CONTROLLER].into_iter().zip(sessions) {
            let opened = Message::Opened { session, at: now, lease: Span::from_s(600) };
            setting.step(Happened::Message(peer, opened));
        }
        setting
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.cache.step(self.now, happened, &mut out);
        for (_, bytes) in out.sends().filter(|(to, _)| *to == BACKEND) {
            if let Ok(Message::Told { seq, body: Some(body), .. }) = Message::decode(bytes)
                && self.told.iter().all(|(told, _)| *told < seq)
            {
                self.told.push((seq, body));
            }
        }
    }

    /// There are these backends now.
    fn view(&mut self, backends: &[NodeId]) {
        let file = file(backends);
        let view = file.view(file.shares().expect("it has a backend"));
        self.step(Happened::View(&view));
    }

    /// The session that the backend is asked for within a while, if it is.
    fn is_begun(&mut self) -> Option<Opening> {
        let mut out = Outbox::default();
        self.now = self.now + Span::from_s(1);
        self.cache.step(self.now, Happened::Tick, &mut out);
        out.sends().find_map(|(to, bytes)| match Message::decode(bytes) {
            Ok(Message::Open { opening, .. }) if to == BACKEND => Some(opening),
            _ => None,
        })
    }

    /// The backend says something.
    fn tell(&mut self, body: Body) {
        let ack = self.told.last().map_or(Seq(0), |(seq, _)| *seq);
        self.tell_as(0, ack, body);
    }

    /// The controller does, of which nobody looks whether it hears anything.
    fn order(&mut self, body: Body) {
        self.tell_as(1, Seq(0), body);
    }

    fn tell_as(&mut self, at: usize, ack: Seq, body: Body) {
        self.last_seqs[at] += 1;
        let (session, seq, body) = (self.sessions[at], Seq(self.last_seqs[at]), Some(body));
        self.step(Happened::Message([BACKEND, CONTROLLER][at], Message::Told { session, ack, seq, body }));
    }

    /// A segment goes by; what the backend was told in it.
    fn segment(&mut self) -> Vec<Body> {
        self.now = self.now + Span::from_ms(100);
        self.told_in(|setting| setting.step(Happened::Tick))
    }

    /// What the backend was told while something happens, and once all that waits is sent.
    fn told_in(&mut self, happens: impl FnOnce(&mut Self)) -> Vec<Body> {
        let before = self.told.len();
        happens(self);
        self.step(Happened::Tick);
        self.told[before..].iter().map(|(_, body)| body.clone()).collect()
    }

    fn report(&mut self, key: &KeyBytes) {
        self.report_load(key, 1_000.0);
    }

    fn report_load(&mut self, key: &KeyBytes, per_s: f32) {
        self.tell(Body::Report(vec![Loaded { key: key.clone(), per_s }]));
    }

    fn fetches(&self) -> usize {
        self.told.iter().filter(|(_, body)| matches!(body, Body::Fetch(_))).count()
    }
}

fn item(len: usize) -> ItemCopy {
    ItemCopy {
        flags: 0,
        version: 1,
        expiry: Expiry::NEVER,
        serve_until: None,
        stale: false,
        win_sent: false,
        value: vec![0; len].into(),
    }
}

#[test]
fn what_is_too_large_is_fetched_again_only_after_a_time() {
    let mut setting = Setting::new();
    let key = KeyBytes(b"large".as_slice().into());
    setting.report(&key);
    assert_eq!(setting.fetches(), 1);
    setting.tell(Body::Value(key.clone(), Some(item(2_000))));
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

fn name(name: &str) -> KeyBytes {
    KeyBytes(name.as_bytes().into())
}

/// The keys that were fetched, of what was told.
fn fetched(told: Vec<Body>) -> Vec<KeyBytes> {
    let fetched = told.into_iter().filter_map(|body| if let Body::Fetch(key) = body { Some(key) } else { None });
    fetched.collect()
}

/// A full cache node, and twenty keys that are reported, which are somewhat hotter than they have to be: so many of them wait for leave.
fn with_keys_that_wait() -> (Setting, Vec<KeyBytes>) {
    let mut setting = Setting::with_items(2);
    for old in ["old 1", "old 2"] {
        setting.tell(Body::Burst(Loaded { key: name(old), per_s: 400.0 }, item(10)));
    }
    // Half of that is left.
    setting.segment();
    let keys: Vec<KeyBytes> = (0..20).map(|at| name(&format!("new {at}"))).collect();
    let at_once = fetched(setting.told_in(|setting| keys.iter().for_each(|key| setting.report_load(key, 300.0))));
    assert!((1..3).contains(&at_once.len()), "leave is hardly saved up: {at_once:?}");
    (setting, keys.into_iter().filter(|key| !at_once.contains(key)).collect())
}

#[test]
fn a_place_that_becomes_free_is_for_one_of_those_that_wait_and_for_no_more() {
    let (mut setting, _) = with_keys_that_wait();
    let gone = |setting: &mut Setting, key| setting.tell(Body::Update(name(key), None));
    let told = setting.told_in(|setting| ["old 1", "old 2"].into_iter().for_each(|key| gone(setting, key)));
    assert_eq!((setting.cache.items(), fetched(told)), (0, vec![]), "both places are for what is asked for already");
    let told = setting.told_in(|setting| {
        ["new 0", "new 1"].into_iter().for_each(|key| setting.tell(Body::Value(name(key), Some(item(10)))));
    });
    assert_eq!((setting.cache.items(), fetched(told)), (2, vec![]));
    let told = setting.told_in(|setting| gone(setting, "new 0"));
    assert_eq!((setting.cache.items(), fetched(told).len()), (1, 1));
}

#[test]
fn what_waits_is_not_fetched_of_a_backend_that_reports_to_another_now() {
    let (mut setting, _) = with_keys_that_wait();
    setting.order(Body::Charge(Vec::new()));
    let later = (0..50).flat_map(|_| {
        setting.now = setting.now + Span::from_ms(10);
        fetched(setting.told_in(|setting| setting.step(Happened::Tick)))
    });
    assert_eq!(later.collect::<Vec<_>>(), []);
}

#[test]
fn what_has_moved_is_not_fetched_of_who_had_it() {
    let (mut setting, waiting) = with_keys_that_wait();
    setting.view(&[BACKEND, OTHER]);
    let map = file(&[BACKEND, OTHER]).shares().expect("it has backends").map;
    let (stays, moved): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|key| map.owner_of(hash_of(&key.0)) == BACKEND);
    assert!(!stays.is_empty() && !moved.is_empty());
    // The places of both items are free: so there is leave in the end, for whatever is to be had.
    let mut told = setting.told_in(|setting| {
        ["old 1", "old 2"].iter().for_each(|key| setting.tell(Body::Update(name(key), None)));
    });
    for _ in 0..5 {
        told.extend(setting.segment());
        stays.iter().for_each(|key| setting.report_load(key, 300.0));
        moved.iter().for_each(|key| setting.report_load(key, 300.0));
    }
    let fetched = fetched(told);
    assert!(!fetched.is_empty() && fetched.iter().all(|key| stays.contains(key)), "{fetched:?}");
}

#[test]
fn once_it_is_full_the_hottest_of_what_all_reported_is_fetched_first() {
    let mut setting = Setting::new();
    // Nearly all of its bytes; a segment later half of its load.
    setting.tell(Body::Burst(Loaded { key: name("old"), per_s: 400.0 }, item(950)));
    setting.segment();
    // None of them is many times hotter than it. What was saved up is soon spent, on the first that are reported.
    let saved = fetched(setting.told_in(|setting| {
        (0..20).for_each(|at| setting.report_load(&name(&format!("first {at}")), 300.0));
    }));
    assert!((1..10).contains(&saved.len()), "{saved:?}");
    for per_s in [310.0, 600.0, 320.0] {
        setting.report_load(&name(&format!("at {per_s}")), per_s);
    }
    let mut order = Vec::new();
    for _ in 0..20 {
        if order.len() == 3 {
            break;
        }
        setting.now = setting.cache.wake_at().expect("there is always something to do").max(setting.now);
        order.extend(fetched(setting.told_in(|setting| setting.step(Happened::Tick))));
    }
    assert_eq!(order, ["at 600", "at 320", "at 310"].map(name));
    // Two segments later nobody has reported the others again: they are not wanted any more.
    let later: Vec<usize> = (0..5).map(|_| fetched(setting.segment()).len()).collect();
    assert!(later[..2].iter().all(|len| *len <= 2), "leave is hardly saved up: {later:?}");
    assert_eq!(later[2..], [0; 3]);
}

/// Three keys are here, the second one the hottest; then the backend is in another's charge.
fn with_three_keys_and_no_charge() -> (Setting, [KeyBytes; 3]) {
    let mut setting = Setting::new();
    let keys = ["cold", "hot", "warm"].map(|key| KeyBytes(key.as_bytes().into()));
    for (key, per_s) in keys.iter().zip([100.0, 300.0, 200.0]) {
        setting.report_load(key, per_s);
        setting.tell(Body::Value(key.clone(), Some(item(10))));
    }
    assert_eq!((setting.cache.items(), setting.cache.charge()), (3, 1));
    let told = setting.told_in(|setting| setting.order(Body::Charge(Vec::new())));
    assert_eq!((told, setting.cache.charge()), (vec![Body::InCharge(false)], 0));
    (setting, keys)
}

/// The keys of what was told, which is all to be had by another too.
fn spread(told: Vec<Body>) -> Vec<KeyBytes> {
    let key = |body| match body {
        Body::Spread(Loaded { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    told.into_iter().map(key).collect()
}

#[test]
fn what_another_is_in_charge_of_now_is_offered_hottest_first_and_dropped_two_segments_later() {
    let (mut setting, keys) = with_three_keys_and_no_charge();
    let [cold, hot, warm] = keys;
    assert_eq!(spread(setting.segment()), [hot, warm, cold]);
    assert_eq!((setting.segment(), setting.cache.items()), (vec![], 3), "they are served until then");
    let told = setting.segment();
    assert!(told.iter().all(|body| matches!(body, Body::Drop { .. })), "{told:?}");
    assert_eq!((told.len(), setting.cache.items()), (3, 0));
}

#[test]
fn what_comes_back_before_it_is_dropped_stays() {
    let (mut setting, _) = with_three_keys_and_no_charge();
    assert_eq!(setting.segment().len(), 3);
    let told = setting.told_in(|setting| setting.order(Body::Charge(vec![BACKEND])));
    assert_eq!(told, [Body::InCharge(true)]);
    for _ in 0..4 {
        assert_eq!(setting.segment(), []);
    }
    assert_eq!((setting.cache.items(), setting.cache.charge()), (3, 1));
}

#[test]
fn a_backend_that_is_none_any_more_is_asked_for_nothing_until_it_is_one_again() {
    let mut setting = Setting::new();
    let key = KeyBytes(b"key".as_slice().into());
    setting.report(&key);
    setting.tell(Body::Value(key, Some(item(10))));
    assert_eq!((setting.cache.items(), setting.cache.charge()), (1, 1));
    let first = setting.sessions[0].opening;

    setting.order(Body::Charge(Vec::new()));
    setting.view(&[OTHER]);
    assert_eq!((setting.cache.items(), setting.cache.charge(), setting.is_begun()), (0, 0, None));

    setting.view(&[OTHER, BACKEND]);
    assert!(setting.is_begun().is_some_and(|opening| opening > first), "no session is there twice");
}

#[test]
fn what_is_too_much_is_spread_of_the_hottest_and_no_more_than_that_while_it_is_not_seen_yet() {
    let mut setting = Setting::new();
    let keys: Vec<KeyBytes> = ["hot", "warm", "cold"].map(|name| KeyBytes(name.as_bytes().into())).into();
    for (key, per_s) in keys.iter().zip([2_000.0, 800.0, 20.0]) {
        setting.tell(Body::Burst(Loaded { key: key.clone(), per_s }, item(10)));
    }
    // Nobody reads them: their loads are halved, and told.
    setting.segment();
    let mut with_mean = |mean| spread(setting.told_in(|setting| setting.order(Body::MeanLoad(Load(mean)))));
    assert_eq!(with_mean(1_300), [], "1,410 are within a tenth of that");
    assert_eq!(with_mean(1_000), keys[..1], "a half of the hottest is more than 410");
    assert_eq!(with_mean(1_000), [], "and is yet to go");
    assert_eq!(with_mean(500), keys[1..2], "another 410");
    assert_eq!(with_mean(400), [], "10 are less than a 32nd of that");
    assert_eq!(with_mean(310), keys[2..]);
    // After a segment the hottest has half its load, which is as much as what is too much; it is named again, if nobody wanted it.
    setting.now = setting.now + Span::from_s(9);
    setting.segment();
    let mut with_mean = |mean| spread(setting.told_in(|setting| setting.order(Body::MeanLoad(Load(mean)))));
    assert_eq!(with_mean(500), keys[..1]);
    assert_eq!(with_mean(500), keys[1..2], "and does not count as on its way any more");
}

#[test]
fn what_there_is_no_room_to_route_makes_room_and_no_more_comes_for_a_while() {
    let mut setting = Setting::with_items(10);
    let burst = |setting: &mut Setting, key: &str, per_s| {
        setting.tell(Body::Burst(Loaded { key: name(key), per_s }, item(10)));
    };
    ["a", "b", "c"].into_iter().for_each(|key| burst(&mut setting, key, 100.0));
    let told = setting.told_in(|setting| setting.order(Body::NoRoom(vec![hash_of(b"b"), hash_of(b"unknown")])));
    assert!(matches!(&told[..], [Body::Drop { key, .. }] if *key == name("b")), "{told:?}");
    // What is hotter takes the place of one that is there.
    ["d", "e", "f"].into_iter().for_each(|key| burst(&mut setting, key, 900.0));
    assert_eq!((setting.cache.items(), setting.cache.counts().evicted), (2, 3));
    for _ in 0..64 {
        setting.segment();
    }
    ["g", "h", "i"].into_iter().for_each(|key| burst(&mut setting, key, 1.0));
    assert_eq!(setting.cache.items(), 5);
}
