//! Memory stays under its limit, and goes where it is needed.

use guira_item::{
    Answer, CasRule, Delete, Engine, Expiry, Get, Key, Operation, ReassignError, Request, Store, StoreMode, Time,
};

use crate::{
    Subject,
    caller::{Answers, NOW, Reply, get, run, set, store},
};

/// Every policy, ten times more items than fit: what is found is right, the limit holds, and the newest is there.
pub fn memory_stays_under_the_limit_and_answers_stay_right<E: Engine>(subject: &Subject<E>) {
    for eviction in subject.policies {
        let engine = subject.engine_with(4, eviction);
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
        let most = (subject.bytes_per_item_max)(eviction);
        assert!(per_item < most, "{eviction:?}: {per_item} bytes an item");
    }
}

/// Background work evicts nothing once it has come to its end: a full cache that nobody stores to keeps what it has.
pub fn a_full_cache_that_is_looked_after_keeps_its_items<E: Engine>(subject: &Subject<E>) {
    for eviction in subject.policies {
        let engine = subject.engine_with(8, eviction);
        let mut worker = engine.worker();
        for i in 0..200_000u32 {
            let value = vec![1; if i % 500 == 0 { 20_000 } else { 40 }];
            assert!(set(&engine, &mut worker, format!("key{i:012}").as_bytes(), &value), "{eviction:?}");
        }
        let full = engine.stats().curr_items;
        while engine.maintain(&mut worker, NOW) {}
        let items = engine.stats().curr_items;
        assert!(items * 10 >= full * 8, "{eviction:?}: {items} of {full} are left");
        for _ in 0..1_000 {
            engine.maintain(&mut worker, NOW);
        }
        assert_eq!(engine.stats().curr_items, items, "{eviction:?}");
    }
}

/// Where all items are alike, no page is needed elsewhere: background work empties none, since the items in it may be in use.
pub fn background_work_leaves_a_balanced_cache_alone<E: Engine>(subject: &Subject<E>) {
    for eviction in subject.policies {
        let engine = subject.engine_with(16, eviction);
        let mut worker = engine.worker();
        let mut store_new = |numbers: std::ops::Range<u32>| {
            for i in numbers {
                assert!(set(&engine, &mut worker, format!("key{i:012}").as_bytes(), &[1; 40]), "{eviction:?}");
                if i % 100 == 0 {
                    engine.maintain(&mut worker, NOW);
                }
            }
            engine.stats()
        };
        let before = store_new(0..300_000);
        let after = store_new(300_000..600_000);
        assert_eq!(after.slabs_moved - before.slabs_moved, 0, "{eviction:?}");
    }
}

/// `slabs reassign` moves pages that are not needed, and no others where nothing may be evicted.
pub fn a_page_is_reassigned_but_for_no_item_that_must_stay<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine_that_refuses(8);
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
    // An engine may have given them to the pool by itself.
    assert!(matches!(reassign(Some(full), 0), Ok(()) | Err(ReassignError::NoSpare)));
    assert_eq!(reassign(Some(0), full + 1), Ok(()));
    let classes = engine.stats().classes;
    assert!(classes.iter().any(|class| class.class == full + 1 && class.total_pages == 1), "{classes:?}");
}

/// What is still arriving takes memory from items, up to a half, and gives it back.
pub fn memory_is_lent_up_to_a_half_and_comes_back<E: Engine>(subject: &Subject<E>) {
    for eviction in subject.policies {
        let engine = subject.engine_with(8, eviction);
        let mut worker = engine.worker();
        let fill = |worker: &mut E::Worker| {
            (0..100_000u32).for_each(|i| assert!(set(&engine, worker, format!("key{i:012}").as_bytes(), &[1; 64])));
        };
        fill(&mut worker);
        let (full, evicted) = (engine.stats().total_malloced, engine.stats().evictions);
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
        assert!(engine.stats().total_malloced <= full - (4 << 20), "{eviction:?}: all pages come back");
        fill(&mut worker);
        assert_eq!(engine.stats().total_malloced, full, "{eviction:?}: and are used again");
        assert!(engine.lend(&mut worker, NOW, 4 << 20).is_some(), "{eviction:?}: nothing is still counted as lent");
    }
}

/// The half is that of the present limit.
pub fn what_is_lent_follows_a_lowered_limit<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(16);
    let mut worker = engine.worker();
    engine.set_memory_limit(8 << 20).expect("half");
    assert!(engine.lend(&mut worker, NOW, (4 << 20) + 1).is_none());
    assert!(engine.lend(&mut worker, NOW, 4 << 20).is_some());
}

/// Where nothing may be evicted, nothing is for a loan.
pub fn without_eviction_only_free_memory_is_lent<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine_that_refuses(4);
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

/// A full cache that may not evict refuses, and keeps what it has.
pub fn without_eviction_a_full_cache_refuses_and_loses_nothing<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine_that_refuses(2);
    let mut worker = engine.worker();
    let mut stored = 0u32;
    while set(&engine, &mut worker, format!("key{stored:012}").as_bytes(), &[1; 32]) {
        stored += 1;
    }
    let least = (2 << 20) as f64 / (subject.bytes_per_item_max)(subject.policies[0]);
    assert!(f64::from(stored) > 0.9 * least, "{stored}");
    assert!((0..stored).all(|i| get(&engine, &mut worker, format!("key{i:012}").as_bytes()).is_some()));
    assert_eq!(engine.stats().evictions, 0);
}

/// In a batch each operation that finds no memory is refused, and counted once, in all and in its class; what comes after it is
/// carried out.
pub fn what_finds_no_memory_is_counted_once<E: Engine>(subject: &Subject<E>) {
    const BATCH_LEN: usize = 600;
    let engine = subject.engine_that_refuses(2);
    let mut worker = engine.worker();
    let old = |i: usize| format!("old{i:09}").into_bytes();
    // One part of an engine may be full before the others are.
    let (mut stored, mut refused) = (Vec::new(), 0);
    for i in 0.. {
        if refused == 200 {
            break;
        }
        if set(&engine, &mut worker, &old(i), &[1; 100]) {
            stored.push(i);
            refused = 0;
        } else {
            refused += 1;
        }
    }
    assert!(stored.len() > BATCH_LEN, "{}", stored.len());
    let counted = |engine: &E| {
        let stats = engine.stats();
        (stats.out_of_memory, stats.classes.iter().map(|class| class.out_of_memory).sum::<u64>())
    };
    let (all, by_class) = counted(&engine);
    // A new key that finds no memory, an old one that is read, and so on.
    let (new, plain) = (store(StoreMode::Set, &[2; 100]), Operation::Get(Get::PLAIN));
    let keys: Vec<[Vec<u8>; 2]> =
        stored[..BATCH_LEN / 2].iter().map(|i| [format!("new{i:09}").into_bytes(), old(*i)]).collect();
    let request =
        |key, operation: &Operation<'static>| Request { key: Key::new(key).expect("key"), operation: *operation };
    let batch: Vec<Request<'_>> =
        keys.iter().flat_map(|[first, second]| [request(first, &new), request(second, &plain)]).collect();
    let mut answers = Answers::default();
    engine.execute(&mut worker, NOW, &batch, &mut answers);
    assert_eq!(answers.list.len(), BATCH_LEN);
    for pair in answers.list.chunks(2) {
        assert_eq!(pair[0], Reply::Other(Answer::OutOfMemory));
        assert!(matches!(&pair[1], Reply::Hit(_, value) if value == &[1; 100]), "{:?}", pair[1]);
    }
    let refused = (BATCH_LEN / 2) as u64;
    assert_eq!(counted(&engine), (all + refused, by_class + refused));
    // A value of many pieces counts once as well, for the piece that there was no room for.
    assert!(!set(&engine, &mut worker, b"large", &[3; 300_000]));
    assert_eq!(counted(&engine), (all + refused + 1, by_class + refused + 1));
}

/// What is there while nothing may be evicted keeps a long value from its pieces, not from its head: that class is short.
pub fn a_long_value_is_counted_where_memory_is_short<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine_that_refuses(2);
    let mut worker = engine.worker();
    // Room for heads, which are as long as a short value's item.
    let small = |i: usize| format!("small{i:07}").into_bytes();
    assert!((0..200).all(|i| set(&engine, &mut worker, &small(i), &[1; 16])));
    let delete = Operation::Delete(Delete { cas: None, invalidate: None });
    (0..200).for_each(|i| assert_eq!(run(&engine, &mut worker, NOW, &small(i), delete), Reply::Other(Answer::Deleted)));
    let mut stored = 0;
    while set(&engine, &mut worker, format!("long{stored:08}").as_bytes(), &[2; 300_000]) {
        stored += 1;
    }
    let stats = engine.stats();
    let short: Vec<_> = stats.classes.iter().filter(|class| class.out_of_memory > 0).collect();
    assert_eq!((short.len(), stats.out_of_memory), (1, 1));
    assert!(short[0].chunk_size > 1_000, "{:?}", short[0]);
}

/// What is dead makes room even where nothing may be evicted: flushed items, expired ones, and pages of another size.
pub fn without_eviction_what_is_dead_makes_room<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine_that_refuses(2);
    let mut worker = engine.worker();
    let fill = |worker: &mut E::Worker, name: &str, len: usize| {
        (0..).take_while(|i| set(&engine, worker, format!("{name}{i:012}").as_bytes(), &vec![1; len])).count()
    };
    let first = fill(&mut worker, "a", 100);
    assert!(first > 5_000, "{first}");
    engine.flush_all(NOW, NOW);
    while engine.maintain(&mut worker, NOW) {}
    assert_eq!(engine.stats().curr_items, 0);
    let second = fill(&mut worker, "b", 1_000);
    assert!(second * 1_000 > 1 << 20, "{second} items of another size");
}

/// Only what a plain set would have replaced goes when there is no memory for it.
pub fn a_cas_without_memory_leaves_the_item<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine_that_refuses(2);
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

/// A first expiry may move an item to a chunk that has room for it; it must not get lost to the policy.
pub fn touched_items_are_evicted_like_others<E: Engine>(subject: &Subject<E>) {
    for eviction in subject.policies {
        let engine = subject.engine_with(2, eviction);
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
        assert!(newest > if *eviction == "random" { 5_000 } else { 9_900 }, "{eviction:?} kept {newest}");
    }
}
