//! What is stored comes back, for as long as it should.

use guira_item::{
    Answer, CasRule, Delete, Engine, Expiry, Get, Hit, Key, Operation, Request, Restore, ScanCursor, Store, StoreMode,
    Time,
};

use crate::{
    Subject,
    caller::{Answers, NOW, Reply, bytes_of, get, run, set, store},
};

/// Small values, large ones, and those at the borders between.
pub fn values_of_every_length_come_back<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(64);
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

/// The largest item is a megabyte by default.
pub fn an_item_above_the_largest_is_refused<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(64);
    let mut worker = engine.worker();
    let reply = run(&engine, &mut worker, NOW, b"k", store(StoreMode::Set, &vec![0; 2 << 20]));
    assert_eq!(reply, Reply::Other(Answer::TooLarge));
}

/// What has expired is not found, and its memory comes back.
pub fn items_expire_and_the_crawler_takes_their_memory_back<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(4);
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
    let left: u64 = (1u64..1_000).step_by(2).map(|i| subject.header_len + format!("k{i}").len() as u64 + 1).sum();
    assert_eq!(stats.bytes, left);
}

/// At once, and at a later second.
pub fn a_flush_takes_what_was_there_and_nothing_else<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(4);
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

/// What a read creates for it is there for that read, however short it is to live and whatever is tidied up meanwhile.
pub fn a_read_finds_what_it_has_created_already_expired<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(64);
    let mut worker = engine.worker();
    let (flushed, created) = (2_000, 100_000);
    assert!((0..flushed).all(|i| set(&engine, &mut worker, format!("flushed{i}").as_bytes(), b"x")));
    engine.flush_all(NOW, NOW);
    let get = Operation::Get(Get { wins: true, vivify: Some(Expiry::AT_ONCE), ..Get::PLAIN });
    for i in 0..created {
        let reply = run(&engine, &mut worker, NOW, format!("created{i}").as_bytes(), get);
        assert!(
            matches!(reply, Reply::Hit(Hit { created: true, .. }, ref value) if value.is_empty()),
            "{i}: {reply:?}"
        );
    }
}

/// What is put back is as it was: its value, its marks, its version, which no later store gives again.
pub fn what_is_restored_is_as_it_was<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(64);
    let mut worker = engine.worker();
    let key = |i: u64| format!("key{i}").into_bytes();
    let (count, versions) = (2_000u64, 5_000_000);
    let value = |i: u64| vec![i as u8; if i.is_multiple_of(100) { 100_000 } else { i as usize % 300 }];
    for i in 0..count {
        let expiry = if i.is_multiple_of(2) { Expiry::NEVER } else { Expiry::at(Time(NOW.0 + 100)) };
        let (flags, version, value) = (i as u32, versions - i, &value(i)[..]);
        let (fetched, stale, win_sent) = (i.is_multiple_of(3), i.is_multiple_of(5), i.is_multiple_of(7));
        let idle_s = (count - i) as u32;
        let item = Operation::Restore(Restore {
            replaces: false,
            flags,
            expiry,
            version,
            fetched,
            stale,
            win_sent,
            idle_s,
            recent: false,
            spared: false,
            value,
        });
        let stored = run(&engine, &mut worker, NOW, &key(i), item);
        assert_eq!(stored, Reply::Other(Answer::Stored { cas: version }));
        assert_eq!(run(&engine, &mut worker, NOW, &key(i), item), Reply::Other(Answer::NotStored), "it is there");
    }
    let mut seen = 0;
    let mut cursor = Some(ScanCursor::default());
    while let Some(at) = cursor {
        cursor = engine.scan(at, 1_000, NOW, &mut |item| {
            let i = u64::from(item.flags);
            let marks = (item.fetched, item.stale, item.win_sent);
            assert_eq!(
                (item.key, item.cas, marks),
                (&key(i)[..], versions - i, (i.is_multiple_of(3), i.is_multiple_of(5), i.is_multiple_of(7)))
            );
            // As coarsely as the engine knows: as long as some item near it.
            assert!((1..=count as u32).contains(&item.idle_s), "{}", item.idle_s);
            seen += 1;
        });
    }
    assert_eq!(seen, count);
    for i in 0..count {
        assert_eq!(get(&engine, &mut worker, &key(i)), Some(value(i)));
        let rule = |expected| Some(CasRule { expected, or_stale: false });
        let cas = |expected| {
            Operation::Store(Store {
                mode: StoreMode::Set,
                flags: 0,
                expiry: Expiry::NEVER,
                cas: rule(expected),
                vivify: None,
                value: b"new",
            })
        };
        let stored = run(&engine, &mut worker, NOW, &key(i), cas(versions - i));
        let Reply::Other(Answer::Stored { cas: version }) = stored else { panic!("{stored:?}") };
        assert!(version > versions - i, "{version} may have been handed out before");
        assert_eq!(run(&engine, &mut worker, NOW, &key(i), cas(versions - i)), Reply::Other(Answer::Exists));
    }
    // Nor is one given again that was skipped.
    let last = engine.last_version();
    assert!(last >= versions, "{last}");
    engine.skip_versions(last + 1_000);
    for i in 0..100 {
        let stored = run(&engine, &mut worker, NOW, format!("new{i}").as_bytes(), store(StoreMode::Set, b"x"));
        assert!(matches!(stored, Reply::Other(Answer::Stored { cas }) if cas > last + 1_000), "{stored:?}");
    }
    engine.skip_versions(1);
    // A version that no engine can have is a new one.
    for version in [0, u64::MAX] {
        let (flags, expiry, value) = (0, Expiry::NEVER, &b"x"[..]);
        let (fetched, stale, win_sent) = (false, false, false);
        let item = Operation::Restore(Restore {
            replaces: false,
            flags,
            expiry,
            version,
            fetched,
            stale,
            win_sent,
            idle_s: 0,
            recent: false,
            spared: false,
            value,
        });
        let stored = run(&engine, &mut worker, NOW, format!("odd{version}").as_bytes(), item);
        assert!(matches!(stored, Reply::Other(Answer::Stored { cas }) if cas != version), "{stored:?}");
    }
}

/// Whoever sends a large value keeps it from being freed.
pub fn a_value_being_sent_survives_its_own_replacement<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(16);
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

/// Every item, and none twice.
pub fn a_scan_shows_every_item_once<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(4);
    let mut worker = engine.worker();
    (0..20_000).for_each(|i| assert!(set(&engine, &mut worker, format!("k{i}").as_bytes(), b"v")));
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = Some(ScanCursor::default());
    while let Some(at) = cursor {
        cursor = engine.scan(at, 100, NOW, &mut |info| assert!(seen.insert(info.key.to_vec())));
    }
    assert_eq!(seen.len(), 20_000);
}

/// A plain read derives the class from the item's length; the others ask the page.
pub fn every_read_tells_the_class_that_the_item_lies_in<E: Engine>(subject: &Subject<E>) {
    let engine = subject.engine(64);
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
