//! The engine against a reference map, under a hard limit, with large items, expiry, flush, and several threads.

use std::collections::HashMap;

use guira_item::{
    Answer, Arithmetic, ArithmeticMode, CasRule, Change, Current, Delete, Engine, Expiry, Get, Hit, Invalidate, Key,
    Operation, PinnedValue, ReassignError, Request, ScanCursor, Sink, Store, StoreMode, Time, VALUE_SLACK_LEN, apply,
};
use proptest::prelude::*;

use crate::{Config, Eviction, Memc3, Worker};

pub(crate) const NOW: Time = Time(1_000);
pub(crate) const POLICIES: [Eviction; 5] =
    [Eviction::Clock, Eviction::S3Fifo, Eviction::Sieve, Eviction::Lru, Eviction::Random];

/// Keeps answers as they come.
#[derive(Default)]
struct Answers {
    room: Vec<u8>,
    list: Vec<Reply>,
    pins: Vec<Box<dyn PinnedValue>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Hit(Hit, Vec<u8>),
    Other(Answer),
}

impl Sink for Answers {
    fn reserve(&mut self, _index: usize, hit: &Hit) -> &mut [u8] {
        self.room.clear();
        self.room.resize(VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0xee);
        &mut self.room
    }

    fn commit(&mut self, index: usize, hit: &Hit) {
        assert_eq!(index, self.list.len());
        let value = self.room[VALUE_SLACK_LEN..][..hit.value_len].to_vec();
        self.list.push(Reply::Hit(*hit, value));
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        assert_eq!(index, self.list.len());
        self.list.push(Reply::Hit(*hit, bytes_of(&*value)));
        self.pins.push(value);
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        assert_eq!(index, self.list.len());
        self.list.push(Reply::Hit(*hit, Vec::new()));
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        assert_eq!(index, self.list.len());
        self.list.push(Reply::Other(answer));
    }
}

fn bytes_of(value: &dyn PinnedValue) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < value.len() {
        bytes.extend_from_slice(value.piece(bytes.len()));
    }
    bytes
}

pub(crate) fn engine(megabytes: usize, eviction: Eviction) -> Memc3 {
    Memc3::new(Config { eviction, hash_seed: 7, ..Config::new(megabytes << 20) }).expect("memory")
}

pub(crate) fn run(engine: &Memc3, worker: &mut Worker, now: Time, key: &[u8], operation: Operation<'_>) -> Reply {
    let mut answers = Answers::default();
    engine.execute(worker, now, &[Request { key: Key::new(key).expect("key"), operation }], &mut answers);
    answers.list.pop().expect("one answer")
}

pub(crate) fn store(mode: StoreMode, value: &[u8]) -> Operation<'_> {
    Operation::Store(Store { mode, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value })
}

pub(crate) fn set(engine: &Memc3, worker: &mut Worker, key: &[u8], value: &[u8]) -> bool {
    matches!(run(engine, worker, NOW, key, store(StoreMode::Set, value)), Reply::Other(Answer::Stored { .. }))
}

pub(crate) fn get(engine: &Memc3, worker: &mut Worker, key: &[u8]) -> Option<Vec<u8>> {
    match run(engine, worker, NOW, key, Operation::Get(Get::PLAIN)) {
        Reply::Hit(_, value) => Some(value),
        Reply::Other(answer) => {
            assert_eq!(answer, Answer::Miss);
            None
        }
    }
}

#[test]
fn values_of_every_length_come_back() {
    let engine = engine(64, Eviction::Clock);
    let mut worker = engine.worker();
    let lens = (0..300).chain([1_000, 4_095, 16_000, 16_383, 16_384, 20_000, 65_536, 300_000, 1_000_000]);
    for len in lens {
        let value: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        for key in [&b"k"[..], b"a key of sixteen", &[0xff; 250]] {
            assert!(set(&engine, &mut worker, key, &value), "{len}");
            assert_eq!(get(&engine, &mut worker, key).as_deref(), Some(&value[..]), "{len}");
        }
    }
    assert_eq!(engine.stats().curr_items, 3);
}

/// A plain read derives the class from the item's length; the others ask the page.
#[test]
fn every_read_tells_the_class_that_the_item_lies_in() {
    let engine = engine(64, Eviction::Clock);
    let mut worker = engine.worker();
    let mut class_of = |len: usize, flags: u32, get: Get| {
        let value = vec![1; len];
        let set = Store { mode: StoreMode::Set, flags, expiry: Expiry::NEVER, cas: None, vivify: None, value: &value };
        run(&engine, &mut worker, NOW, b"key", Operation::Store(set));
        match run(&engine, &mut worker, NOW, b"key", Operation::Get(get)) {
            Reply::Hit(hit, _) => hit.class,
            other => panic!("{len}: {other:?}"),
        }
    };
    for len in (0..600).chain((600..20_000).step_by(97)) {
        for flags in [0, 1] {
            let plain = class_of(len, flags, Get::PLAIN);
            assert_eq!(plain, class_of(len, flags, Get { value: false, ..Get::PLAIN }), "{len}");
            assert_ne!(plain, 0, "{len}");
        }
    }
}

#[test]
fn a_page_is_reassigned_but_for_no_item_that_must_stay() {
    let config = Config { evictions_enabled: false, hash_seed: 7, ..Config::new(8 << 20) };
    let engine = Memc3::new(config).expect("memory");
    let mut worker = engine.worker();
    let key = |i: u32| format!("key{i:09}").into_bytes();
    let stored = (0..100_000).take_while(|i| set(&engine, &mut worker, &key(*i), &[7; 100])).count() as u32;
    let classes = engine.stats().classes;
    let full = classes.iter().max_by_key(|class| class.total_pages).expect("a class").class;
    let mut reassign = |from, to| engine.reassign_page(&mut worker, NOW, from, to);
    assert_eq!(reassign(Some(full), full + 1), Err(ReassignError::NoSpare));
    assert_eq!(reassign(None, full + 1), Err(ReassignError::BadClass));
    assert_eq!(reassign(Some(200), full), Err(ReassignError::BadClass));
    assert_eq!(reassign(Some(full), 200), Err(ReassignError::BadClass));
    assert!((0..stored).all(|i| get(&engine, &mut worker, &key(i)).is_some()));
    // Once there is nothing in them any more, pages may go: to the pool, and from there.
    for i in 0..stored {
        run(&engine, &mut worker, NOW, &key(i), Operation::Delete(Delete { cas: None, invalidate: None }));
    }
    let mut reassign = |from, to| engine.reassign_page(&mut worker, NOW, from, to);
    assert_eq!((reassign(Some(full), 0), reassign(Some(0), full + 1)), (Ok(()), Ok(())));
    let classes = engine.stats().classes;
    assert!(classes.iter().any(|class| class.class == full + 1 && class.total_pages == 1), "{classes:?}");
}

#[test]
fn an_item_above_the_largest_is_refused() {
    let engine = engine(64, Eviction::Clock);
    let mut worker = engine.worker();
    let reply = run(&engine, &mut worker, NOW, b"k", store(StoreMode::Set, &vec![0; 2 << 20]));
    assert_eq!(reply, Reply::Other(Answer::TooLarge));
}

/// Every policy, ten times more items than fit: what is found is right, the limit holds, and the newest is there.
#[test]
fn memory_stays_under_the_limit_and_answers_stay_right() {
    for eviction in POLICIES {
        let engine = engine(4, eviction);
        let mut worker = engine.worker();
        let count = 600_000u32;
        for i in 0..count {
            let key = format!("key{i:012}");
            assert!(set(&engine, &mut worker, key.as_bytes(), key.repeat(2).as_bytes()), "{eviction:?}");
            assert!(get(&engine, &mut worker, key.as_bytes()).is_some(), "{eviction:?}");
        }
        let found = (0..count)
            .filter(|i| {
                let key = format!("key{i:012}");
                let value = get(&engine, &mut worker, key.as_bytes());
                assert!(value.as_ref().is_none_or(|value| *value == key.repeat(2).into_bytes()));
                value.is_some()
            })
            .count();
        let stats = engine.stats();
        assert_eq!(stats.curr_items as usize, found, "{eviction:?}");
        assert_eq!(stats.evictions as usize, count as usize - found, "{eviction:?}");
        assert!(stats.total_malloced + stats.hash_bytes <= 4 << 20, "{eviction:?} {stats:?}");
        let per_item = (4 << 20) as f64 / found as f64;
        let most = if crate::policy::node_len(eviction) == 0 { 75.0 } else { 84.0 };
        assert!(per_item < most, "{eviction:?}: {per_item} bytes an item");
    }
}

/// Pages taken, the index's and those of classes included.
fn pages_taken(engine: &Memc3) -> usize {
    engine.shared().arena.usage().0
}

#[test]
fn memory_is_lent_up_to_a_half_and_comes_back() {
    for eviction in POLICIES {
        let engine = engine(8, eviction);
        let mut worker = engine.worker();
        let fill = |worker: &mut Worker| {
            (0..100_000u32).for_each(|i| assert!(set(&engine, worker, format!("key{i:012}").as_bytes(), &[1; 64])));
        };
        fill(&mut worker);
        let (full, evicted) = (pages_taken(&engine), engine.stats().evictions);
        assert!(engine.lend(&mut worker, NOW, (4 << 20) + 1).is_none(), "{eviction:?}: more than a half");
        let first = engine.lend(&mut worker, NOW, 3 << 20).expect("three megabytes");
        assert!(engine.lend(&mut worker, NOW, 2 << 20).is_none(), "{eviction:?}: more than a half in all");
        let second = engine.lend(&mut worker, NOW, 1 << 20).expect("the rest of the half");
        assert!(engine.stats().evictions > evicted, "{eviction:?}");
        fill(&mut worker);
        let stats = engine.stats();
        assert!(stats.total_malloced + stats.hash_bytes <= 4 << 20, "{eviction:?}: items have the other half");
        assert!(get(&engine, &mut worker, b"key000000099999").is_some(), "{eviction:?}");
        drop((first, second));
        assert!(pages_taken(&engine) <= full - (4 << 20) / (64 << 10), "{eviction:?}: all pages come back");
        fill(&mut worker);
        assert_eq!(pages_taken(&engine), full, "{eviction:?}: and are used again");
        assert!(engine.lend(&mut worker, NOW, 4 << 20).is_some(), "{eviction:?}: nothing is still counted as lent");
    }
}

#[test]
fn what_is_lent_follows_a_lowered_limit() {
    let engine = engine(16, Eviction::Clock);
    let mut worker = engine.worker();
    engine.set_memory_limit(8 << 20).expect("half");
    assert!(engine.lend(&mut worker, NOW, (4 << 20) + 1).is_none());
    assert!(engine.lend(&mut worker, NOW, 4 << 20).is_some());
}

#[test]
fn without_eviction_only_free_memory_is_lent() {
    let engine = Memc3::new(Config { evictions_enabled: false, ..Config::new(4 << 20) }).expect("memory");
    let mut worker = engine.worker();
    let loan = engine.lend(&mut worker, NOW, 1 << 20).expect("all is free");
    let mut stored = 0;
    while set(&engine, &mut worker, format!("key{stored:012}").as_bytes(), &[1; 32]) {
        stored += 1;
    }
    assert!(engine.lend(&mut worker, NOW, 1 << 20).is_none());
    drop(loan);
    assert!(set(&engine, &mut worker, b"one more", &[1; 32]));
    assert!((0..stored).all(|i| get(&engine, &mut worker, format!("key{i:012}").as_bytes()).is_some()));
}

#[test]
fn without_eviction_a_full_cache_refuses_and_loses_nothing() {
    let engine = Memc3::new(Config { evictions_enabled: false, ..Config::new(2 << 20) }).expect("memory");
    let mut worker = engine.worker();
    let mut stored = 0;
    while set(&engine, &mut worker, format!("key{stored:012}").as_bytes(), &[1; 32]) {
        stored += 1;
    }
    assert!(stored > 20_000, "{stored}");
    assert!((0..stored).all(|i| get(&engine, &mut worker, format!("key{i:012}").as_bytes()).is_some()));
    assert_eq!(engine.stats().evictions, 0);
}

#[test]
fn a_worker_takes_the_place_of_one_that_has_gone() {
    let engine = engine(4, Eviction::Clock);
    for i in 0..100 {
        assert!(set(&engine, &mut engine.worker(), format!("{i}").as_bytes(), &[1; 32]));
    }
    assert_eq!(engine.shared().stations().len(), 1);
    assert_eq!(engine.stats().total_items, 100);
    let _both = (engine.worker(), engine.worker());
    assert_eq!(engine.shared().stations().len(), 2);
}

#[test]
fn items_expire_and_the_crawler_takes_their_memory_back() {
    let engine = engine(4, Eviction::Clock);
    let mut worker = engine.worker();
    for i in 0..1_000 {
        let expiry = Expiry::at(Time(NOW.0 + 5 + i % 2 * 1_000));
        let operation =
            Operation::Store(Store { mode: StoreMode::Set, flags: 3, expiry, cas: None, vivify: None, value: b"v" });
        run(&engine, &mut worker, NOW, format!("k{i}").as_bytes(), operation);
    }
    let later = Time(NOW.0 + 5);
    assert_eq!(run(&engine, &mut worker, later, b"k0", Operation::Get(Get::PLAIN)), Reply::Other(Answer::Miss));
    assert!(
        matches!(run(&engine, &mut worker, later, b"k1", Operation::Get(Get::PLAIN)), Reply::Hit(hit, _) if hit.flags == 3)
    );
    while engine.maintain(&mut worker, later) {}
    let stats = engine.stats();
    assert_eq!((stats.curr_items, stats.reclaimed, stats.crawler_reclaimed), (500, 500, 499));
    let left: u64 = (1u64..1_000).step_by(2).map(|i| 16 + format!("k{i}").len() as u64 + 1).sum();
    assert_eq!(stats.bytes, left);
}

#[test]
fn a_flush_takes_what_was_there_and_nothing_else() {
    let engine = engine(4, Eviction::Clock);
    let mut worker = engine.worker();
    assert!(set(&engine, &mut worker, b"before", b"1"));
    engine.flush_all(NOW, NOW);
    assert_eq!(get(&engine, &mut worker, b"before"), None);
    assert!(set(&engine, &mut worker, b"before", b"2") && set(&engine, &mut worker, b"after", b"3"));
    assert_eq!(get(&engine, &mut worker, b"before").as_deref(), Some(&b"2"[..]));
    engine.flush_all(Time(NOW.0 + 10), NOW);
    assert!(get(&engine, &mut worker, b"after").is_some());
    let then = Time(NOW.0 + 10);
    assert_eq!(run(&engine, &mut worker, then, b"after", Operation::Get(Get::PLAIN)), Reply::Other(Answer::Miss));
    let add = run(&engine, &mut worker, then, b"after", store(StoreMode::Add, b"4"));
    assert!(matches!(add, Reply::Other(Answer::Stored { .. })), "{add:?}");
}

/// The versions of a stripe begin again after some 2^38 stores: what a flush sweeps away, before or after, does not come back, and
/// what is stored afterwards is not taken for it.
#[test]
fn a_flush_parts_old_from_new_when_versions_begin_again() {
    let engine = engine(4, Eviction::Clock);
    let (mut worker, shared) = (engine.worker(), engine.shared());
    let to_the_turn = || (0..shared.index.stripes()).for_each(|stripe| shared.index.stripe_data(stripe).skip_to_turn());
    let version_of = |worker: &mut Worker, key: &[u8]| match run(&engine, worker, NOW, key, Operation::Get(Get::PLAIN))
    {
        Reply::Hit(hit, _) => Some(hit.cas),
        Reply::Other(_) => None,
    };
    let keys: Vec<String> = (0..2_000).map(|number| format!("key {number}")).collect();
    let store_all = |worker: &mut Worker| keys.iter().all(|key| set(&engine, worker, key.as_bytes(), b"1"));
    let versions = |worker: &mut Worker| -> Vec<u64> {
        keys.iter().filter_map(|key| version_of(worker, key.as_bytes())).collect()
    };
    assert!(store_all(&mut worker));
    to_the_turn();
    assert!(set(&engine, &mut worker, keys[0].as_bytes(), b"2"));
    assert_eq!(version_of(&mut worker, keys[0].as_bytes()), Some(1), "without a flush they begin again at once");
    assert_eq!(versions(&mut worker).len(), keys.len());

    to_the_turn();
    engine.flush_all(NOW, NOW);
    assert_eq!(versions(&mut worker), [], "of both rounds");
    assert!(store_all(&mut worker));
    let stored = versions(&mut worker);
    assert!(stored.len() == keys.len() && stored.iter().all(|version| *version > 1 << 37), "above what is swept away");
    while engine.maintain(&mut worker, NOW) {}
    assert!(set(&engine, &mut worker, keys[0].as_bytes(), b"3"));
    assert_eq!(version_of(&mut worker, keys[0].as_bytes()), Some(1), "nothing is left of it");
    assert_eq!(versions(&mut worker).len(), keys.len());
    engine.flush_all(NOW, NOW);
    assert_eq!(versions(&mut worker), [], "those of the round before as well");
}

#[test]
fn a_value_being_sent_survives_its_own_replacement() {
    let engine = engine(16, Eviction::Clock);
    let mut worker = engine.worker();
    let old: Vec<u8> = (0..200_000u32).map(|i| (i / 7) as u8).collect();
    assert!(set(&engine, &mut worker, b"large", &old));
    let mut answers = Answers::default();
    let request = Request { key: Key::new(b"large").expect("key"), operation: Operation::Get(Get::PLAIN) };
    engine.execute(&mut worker, NOW, &[request], &mut answers);
    assert!(set(&engine, &mut worker, b"large", &[9; 100_000]));
    for i in 0..200 {
        assert!(set(&engine, &mut worker, format!("other{i}").as_bytes(), &vec![3; 150_000]));
    }
    let pin = answers.pins.pop().expect("pinned");
    assert_eq!(bytes_of(&*pin), old);
    assert_eq!(pin.piece(old.len()), b"");
    drop(pin);
    run(&engine, &mut worker, NOW, b"large", Operation::Delete(Delete { cas: None, invalidate: None }));
    for i in 0..200 {
        run(
            &engine,
            &mut worker,
            NOW,
            format!("other{i}").as_bytes(),
            Operation::Delete(Delete { cas: None, invalidate: None }),
        );
    }
    let stats = engine.stats();
    assert_eq!((stats.curr_items, stats.bytes), (0, 0));
    assert_eq!(stats.classes.iter().map(|class| class.used_chunks).sum::<u64>(), 0, "every chunk is free again");
}

#[test]
fn a_scan_shows_every_item_once() {
    let engine = engine(4, Eviction::Clock);
    let mut worker = engine.worker();
    (0..20_000).for_each(|i| assert!(set(&engine, &mut worker, format!("k{i}").as_bytes(), b"v")));
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = Some(ScanCursor::default());
    while let Some(at) = cursor {
        cursor = engine.scan(at, 100, NOW, &mut |info| assert!(seen.insert(info.key.to_vec())));
    }
    assert_eq!(seen.len(), 20_000);
}

/// A first expiry moves an item to a chunk that has room for it; it must not get lost to the policy.
#[test]
fn touched_items_are_evicted_like_others() {
    for eviction in POLICIES {
        let engine = engine(2, eviction);
        let mut worker = engine.worker();
        let mut touched = 0;
        for i in 0..100_000 {
            let key = format!("key{i:012}");
            assert!(set(&engine, &mut worker, key.as_bytes(), &[1; 32]), "{eviction:?}");
            // The chunk for the touched item may cost a page, and now and then it is the item's own.
            let touch = run(&engine, &mut worker, NOW, key.as_bytes(), Operation::Touch(Expiry::at(Time(9_000))));
            touched += usize::from(touch == Reply::Other(Answer::Touched));
        }
        assert!(touched > 99_000, "{eviction:?}: {touched}");
        let newest =
            (90_000..100_000).filter(|i| get(&engine, &mut worker, format!("key{i:012}").as_bytes()).is_some());
        let newest = newest.count();
        assert!(newest > if eviction == Eviction::Random { 5_000 } else { 9_900 }, "{eviction:?} kept {newest}");
    }
}

/// What is dead makes room even where nothing may be evicted: flushed items, expired ones, and pages of another size.
#[test]
fn without_eviction_what_is_dead_makes_room() {
    let engine = Memc3::new(Config { evictions_enabled: false, ..Config::new(2 << 20) }).expect("memory");
    let mut worker = engine.worker();
    let fill = |worker: &mut Worker, name: &str, len: usize| {
        (0..).take_while(|i| set(&engine, worker, format!("{name}{i:012}").as_bytes(), &vec![1; len])).count()
    };
    let first = fill(&mut worker, "a", 100);
    assert!(first > 10_000, "{first}");
    engine.flush_all(NOW, NOW);
    while engine.maintain(&mut worker, NOW) {}
    assert_eq!(engine.stats().curr_items, 0);
    let second = fill(&mut worker, "b", 1_000);
    assert!(second * 1_000 > 1 << 20, "{second} items of another size");
}

#[test]
fn a_cas_without_memory_leaves_the_item() {
    let engine = Memc3::new(Config { evictions_enabled: false, ..Config::new(2 << 20) }).expect("memory");
    let mut worker = engine.worker();
    assert!(set(&engine, &mut worker, b"kept", b"v"));
    let Reply::Hit(hit, _) = run(&engine, &mut worker, NOW, b"kept", Operation::Get(Get::PLAIN)) else { panic!() };
    (0..).take_while(|i| set(&engine, &mut worker, format!("k{i:012}").as_bytes(), &[1; 900])).count();
    let cas = Some(CasRule { expected: hit.cas, or_stale: false });
    let value = vec![2; 5_000];
    let operation = Operation::Store(Store {
        mode: StoreMode::Set,
        flags: 0,
        expiry: Expiry::NEVER,
        cas,
        vivify: None,
        value: &value,
    });
    assert_eq!(run(&engine, &mut worker, NOW, b"kept", operation), Reply::Other(Answer::OutOfMemory));
    assert_eq!(get(&engine, &mut worker, b"kept").as_deref(), Some(&b"v"[..]));
}

/// Steady state: an engine whose whole arena may not be written any more still answers every GET.
#[test]
fn a_get_writes_no_shared_memory() {
    let engine = engine(8, Eviction::Clock);
    let mut worker = engine.worker();
    let keys: Vec<String> = (0..50_000).map(|i| format!("key{i:012}")).collect();
    keys.iter().for_each(|key| assert!(set(&engine, &mut worker, key.as_bytes(), key.as_bytes())));
    keys.iter().for_each(|key| assert!(get(&engine, &mut worker, key.as_bytes()).is_some()));
    let (start, len) = engine.shared().arena.span();
    let protect = |access| {
        // SAFETY: the span is the arena's own mapping; a forbidden write would end the test by a signal, as it should.
        assert_eq!(unsafe { libc::mprotect(start.cast(), len, access) }, 0);
    };
    protect(libc::PROT_READ);
    // Nor does it take a lock: every stripe is held meanwhile.
    engine.shared().index.with_all_stripes(|| {
        for key in &keys {
            assert_eq!(get(&engine, &mut worker, key.as_bytes()).as_deref(), Some(key.as_bytes()));
        }
        assert_eq!(get(&engine, &mut worker, b"missing"), None);
    });
    protect(libc::PROT_READ | libc::PROT_WRITE);
    assert!(set(&engine, &mut worker, b"writable again", b"v"));
}

fn any_operation() -> impl Strategy<Value = OwnedOperation> {
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0u64..1_000).prop_map(|number| number.to_string().into_bytes()),
        (16_000usize..40_000).prop_map(|len| vec![b'x'; len]),
    ];
    let mode = prop::sample::select(vec![
        StoreMode::Set,
        StoreMode::Set,
        StoreMode::Add,
        StoreMode::Replace,
        StoreMode::Append,
        StoreMode::Prepend,
    ]);
    let expiry = prop_oneof![Just(Expiry::NEVER), (0u32..40).prop_map(|s| Expiry::at(Time(NOW.0 + s)))];
    let get = (any::<[bool; 3]>(), prop::option::of(expiry.clone()), prop::option::of(expiry.clone())).prop_map(
        |([wins, value, bump], touch, vivify)| {
            OwnedOperation::Get(Get { value, bump, wins, touch, vivify, ..Get::PLAIN })
        },
    );
    prop_oneof![
        4 => get,
        6 => (mode, 0u32..3, expiry.clone(), 0u8..4, value).prop_map(|(mode, flags, expiry, cas, value)| OwnedOperation::Store {
            mode, flags, expiry, cas, value
        }),
        2 => (0u8..3, any::<bool>()).prop_map(|(cas, stale)| OwnedOperation::Delete { cas, stale }),
        2 => (any::<bool>(), 0u64..50, any::<bool>()).prop_map(|(up, delta, create)| OwnedOperation::Arithmetic { up, delta, create }),
        1 => expiry.prop_map(OwnedOperation::Touch),
    ]
}

/// An operation whose versions are still to be filled in: 0 none, 1 the right one, others wrong.
#[derive(Clone, Debug)]
enum OwnedOperation {
    Get(Get),
    Store { mode: StoreMode, flags: u32, expiry: Expiry, cas: u8, value: Vec<u8> },
    Delete { cas: u8, stale: bool },
    Arithmetic { up: bool, delta: u64, create: bool },
    Touch(Expiry),
}

impl OwnedOperation {
    fn with_version(&self, version: u64) -> Operation<'_> {
        match self {
            Self::Get(get) => Operation::Get(*get),
            Self::Store { mode, flags, expiry, cas, value } => Operation::Store(Store {
                mode: *mode,
                flags: *flags,
                expiry: *expiry,
                cas: (*cas > 0).then(|| CasRule { expected: version + u64::from(*cas) - 1, or_stale: *cas == 3 }),
                vivify: None,
                value,
            }),
            Self::Delete { cas, stale } => Operation::Delete(Delete {
                cas: (*cas > 0).then(|| version + u64::from(*cas) - 1),
                invalidate: stale.then_some(Invalidate { touch: None }),
            }),
            Self::Arithmetic { up, delta, create } => Operation::Arithmetic(Arithmetic {
                mode: if *up { ArithmeticMode::Increment } else { ArithmeticMode::Decrement },
                delta: *delta,
                cas: None,
                touch: None,
                create: create.then_some((5, Expiry::NEVER)),
            }),
            Self::Touch(expiry) => Operation::Touch(*expiry),
        }
    }
}

/// What the reference keeps of an item.
#[derive(Clone, Debug)]
struct Reference {
    current: Current<'static>,
    value: Vec<u8>,
}

/// Carries `operation` out on the reference; versions come from the engine, so they are compared by their effect.
fn reference_step(
    map: &mut HashMap<u8, Reference>,
    key: u8,
    operation: &Operation<'_>,
    now: Time,
    cas: u64,
) -> Result<Hit, Answer> {
    if map.get(&key).is_some_and(|item| item.current.expiry.is_past(now)) {
        map.remove(&key);
    }
    let old = map.get(&key).cloned();
    let current = old.as_ref().map(|item| Current { value: Some(&item.value[..]), ..item.current });
    let (change, answer) = apply(operation, current.as_ref(), now, cas);
    let present = old.as_ref().map(|item| item.value.clone()).unwrap_or_default();
    match change {
        Change::Keep => {}
        Change::Remove => {
            map.remove(&key);
        }
        Change::Mark { expiry, stale, win_sent, new_version } => {
            let current = &mut map.get_mut(&key).expect("there").current;
            (current.expiry, current.stale, current.win_sent) = (expiry, stale, win_sent);
            if new_version {
                current.cas = cas;
            }
        }
        Change::Rewrite { value, flags, expiry, stale, win_sent } => {
            let value = value.bytes_with(&present);
            let current = Current {
                flags,
                cas,
                expiry,
                value_len: value.len(),
                value: None,
                fetched: false,
                stale,
                win_sent,
                idle_s: 0,
                class: 0,
                total_len: 0,
            };
            map.insert(key, Reference { current, value });
        }
    }
    answer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn behaves_as_the_operations_say(
        eviction in prop::sample::select(POLICIES.to_vec()),
        operations in prop::collection::vec((0u8..12, any_operation(), 0u32..2), 1..4_000),
    ) {
        let engine = engine(64, eviction);
        let mut worker = engine.worker();
        let mut map = HashMap::new();
        let mut now = NOW;
        for (key, operation, seconds) in operations {
            now.0 += seconds * u32::from(key == 0);
            let name = format!("a key with a name of its own {key}");
            let version = map.get(&key).map_or(0, |item: &Reference| item.current.cas);
            let operation = operation.with_version(version);
            let reply = run(&engine, &mut worker, now, name.as_bytes(), operation);
            let cas = match &reply {
                Reply::Hit(hit, _) => hit.cas,
                Reply::Other(Answer::Stored { cas } | Answer::Number { cas, .. }) => *cas,
                Reply::Other(Answer::Invalidated) => version + 1_000_000,
                Reply::Other(_) => 0,
            };
            let expected = reference_step(&mut map, key, &operation, now, cas);
            match (&reply, expected) {
                (Reply::Other(answer), Err(expected)) => prop_assert_eq!(*answer, expected),
                (Reply::Hit(hit, value), Ok(expected)) => {
                    let visible = |hit: &Hit| (hit.flags, hit.value_len, hit.expiry_before, hit.expiry, hit.stale, hit.win_sent, hit.won, hit.created);
                    prop_assert_eq!(visible(hit), visible(&expected));
                    let wants_value = matches!(operation, Operation::Get(Get { value: true, .. }));
                    if let (Some(item), true) = (map.get(&key), wants_value) {
                        prop_assert_eq!(value, &item.value);
                    }
                }
                (reply, expected) => prop_assert!(false, "{reply:?} but {expected:?}"),
            }
            // A new version is learnt from a read when the answer does not tell it.
            if let Some(item) = map.get_mut(&key)
                && let Reply::Hit(hit, _) = run(&engine, &mut worker, now, name.as_bytes(), Operation::Get(Get { bump: false, ..Get::PLAIN }))
            {
                item.current.cas = hit.cas;
            }
        }
    }
}
