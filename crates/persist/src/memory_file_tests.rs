//! Items of real engines, over a restart.

use std::sync::atomic::{AtomicBool, Ordering};

use guira_cphash::{Cphash, Lockhash};
use guira_item::{CasRule, Delete, Store, StoreMode};
use guira_memc3::Memc3;

use super::*;

/// When servers start that save, and that load, by Unix time.
const FIRST_UNIX_S: u64 = 1_700_000_000;
const SECOND_UNIX_S: u64 = FIRST_UNIX_S + 1_000;

const NOW: Time = Time(500);

fn clock(unix_s: u64) -> Clock {
    Clock::starting_at(unix_s)
}

/// Answers as text.
#[derive(Default)]
pub(super) struct Told {
    room: Vec<u8>,
    list: Vec<Result<(Hit, Vec<u8>), Answer>>,
}

impl Sink for Told {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.room = vec![0; VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN];
        &mut self.room
    }

    fn commit(&mut self, _: usize, hit: &Hit) {
        self.list.push(Ok((*hit, self.room[VALUE_SLACK_LEN..][..hit.value_len].to_vec())));
    }

    fn pinned(&mut self, _: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        let mut bytes = Vec::new();
        while bytes.len() < value.len() {
            bytes.extend_from_slice(value.piece(bytes.len()));
        }
        self.list.push(Ok((*hit, bytes)));
    }

    fn metadata(&mut self, _: usize, hit: &Hit) {
        self.list.push(Ok((*hit, Vec::new())));
    }

    fn answer(&mut self, _: usize, answer: Answer) {
        self.list.push(Err(answer));
    }
}

pub(super) fn ask<E: Engine>(
    engine: &E,
    now: Time,
    key: &str,
    operation: Operation<'_>,
) -> Result<(Hit, Vec<u8>), Answer> {
    let (mut worker, mut told) = (engine.worker(), Told::default());
    let request = Request { key: Key::new(key.as_bytes()).expect("a key"), operation };
    engine.execute(&mut worker, now, &[request], &mut told);
    told.list.pop().expect("an answer")
}

pub(super) fn set(value: &[u8], flags: u32, expiry: Expiry) -> Operation<'_> {
    Operation::Store(Store { mode: StoreMode::Set, flags, expiry, cas: None, vivify: None, value })
}

/// The version that a set gets.
fn stored<E: Engine>(engine: &E, now: Time, key: &str) -> u64 {
    match ask(engine, now, key, set(b"x", 0, Expiry::NEVER)) {
        Err(Answer::Stored { cas }) => cas,
        other => panic!("not stored: {other:?}"),
    }
}

/// All that is to be known of an item.
const LOOK: Operation<'static> = Operation::Get(Get { value: true, bump: false, wins: true, ..Get::PLAIN });

fn value(i: u32) -> Vec<u8> {
    (0..if i.is_multiple_of(50) { 200_000 + i } else { i % 900 }).map(|at| (at / 3 + i) as u8).collect()
}

/// A thousand items: every third expires a hundred seconds after the file was saved, every seventh long after.
fn fill<E: Engine>(engine: &E) {
    for i in 0..1_000u32 {
        let expiry = match i {
            i if i.is_multiple_of(3) => Expiry::at(Time(NOW.0 + 100)),
            i if i.is_multiple_of(7) => Expiry::at(Time(NOW.0 + 10_000)),
            _ => Expiry::NEVER,
        };
        let stored = ask(engine, NOW, &format!("key{i}"), set(&value(i), i, expiry));
        assert!(matches!(stored, Err(Answer::Stored { .. })), "{stored:?}");
        if i.is_multiple_of(4) {
            ask(engine, NOW, &format!("key{i}"), Operation::Get(Get::PLAIN)).expect("just stored");
        }
    }
}

/// What `first` has is what `second` has after a restart, but for what expired meanwhile.
fn items_survive<A: Engine, B: Engine>(first: &A, second: &B) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let file = || MemoryFile::claim(&path).expect("nobody has it");
    fill(first);
    // Many times, and deleted in the end.
    let seen = (0..3_000).map(|_| stored(first, NOW, "deleted")).max();
    ask(first, NOW, "deleted", Operation::Delete(Delete { cas: None, invalidate: None })).expect_err("deleted");
    assert_eq!(file().load(first, &clock(FIRST_UNIX_S), NOW, true).expect("nothing there"), None);
    let saved = file().save(first, &clock(FIRST_UNIX_S), NOW).expect("disk");
    assert_eq!((saved.items, saved.bytes), (1_000, fs::metadata(&path).expect("there").len()));
    // Five hundred seconds later.
    let now = Time(2);
    let loaded = file().load(second, &clock(SECOND_UNIX_S), now, true).expect("sound").expect("there");
    assert_eq!(loaded, Loaded { items: 666, expired: 334, ..Loaded::default() });
    for i in 0..1_000u32 {
        let key = format!("key{i}");
        let found = ask(second, now, &key, LOOK);
        if i.is_multiple_of(3) {
            assert_eq!(found, Err(Answer::Miss), "{key}");
            continue;
        }
        let (hit, bytes) = found.expect("it is there");
        assert!(bytes == value(i), "{key}");
        let (before, _) = ask(first, NOW, &key, LOOK).expect("it was there");
        assert_eq!((hit.flags, hit.cas, hit.fetched), (i, before.cas, i.is_multiple_of(4)), "{key}");
        let expected = i.is_multiple_of(7).then_some(10_000 - 500);
        let left = (hit.expiry != Expiry::NEVER).then(|| hit.expiry.to_raw() - now.0);
        // A clock begins two seconds before its server.
        assert!(
            left.zip(expected).map_or(left == expected, |(left, told)| left.abs_diff(told) <= 2),
            "{key}: {left:?}"
        );
        // The version that a client has still fits, once.
        let rule = Some(CasRule { expected: before.cas, or_stale: false });
        let (mode, flags, expiry, vivify, value) = (StoreMode::Set, 0, Expiry::NEVER, None, &b"new"[..]);
        let cas = Operation::Store(Store { mode, flags, expiry, cas: rule, vivify, value });
        assert!(matches!(ask(second, now, &key, cas), Err(Answer::Stored { .. })), "{key}");
        assert_eq!(ask(second, now, &key, cas), Err(Answer::Exists), "{key}");
    }
    assert!(Some(stored(second, now, "deleted")) > seen, "a client may have that version still");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
}

fn memc3(megabytes: usize) -> Memc3 {
    memc3_of(megabytes, guira_memc3::Eviction::default(), 7)
}

pub(super) fn memc3_of(megabytes: usize, eviction: guira_memc3::Eviction, hash_seed: u64) -> Memc3 {
    Memc3::new(guira_memc3::Config { eviction, hash_seed, ..guira_memc3::Config::new(megabytes << 20) })
        .expect("memory")
}

fn cphash(megabytes: usize) -> Cphash {
    Cphash::new(guira_cphash::Config::new(megabytes << 20)).expect("memory")
}

pub(super) fn cphash_of(megabytes: usize, hash_seed: u64) -> Cphash {
    let config = guira_cphash::Config::new(megabytes << 20);
    Cphash::new(guira_cphash::Config { partitions: Some(4), hash_seed, ..config }).expect("memory")
}

pub(super) fn lockhash_of(megabytes: usize, hash_seed: u64) -> Lockhash {
    let config = guira_cphash::Config::new(megabytes << 20);
    Lockhash::new(guira_cphash::Config { partitions: Some(64), hash_seed, ..config }).expect("memory")
}

fn lockhash(megabytes: usize) -> Lockhash {
    Lockhash::new(guira_cphash::Config { partitions: Some(1), ..guira_cphash::Config::new(megabytes << 20) })
        .expect("memory")
}

#[test]
fn items_survive_in_every_engine_and_from_each_to_the_next() {
    items_survive(&memc3(64), &memc3(64));
    items_survive(&memc3(64), &cphash(64));
    items_survive(&cphash(64), &lockhash(64));
    items_survive(&lockhash(64), &memc3(64));
}

/// The wall clock decides, wherever it has been set to.
#[test]
fn a_clock_that_was_set_moves_the_end_of_items() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let first = memc3(64);
    // Half an hour.
    ask(&first, NOW, "key", set(b"x", 0, Expiry::at(Time(NOW.0 + 1_800)))).expect_err("stored");
    ask(&first, NOW, "forever", set(b"x", 0, Expiry::NEVER)).expect_err("stored");
    MemoryFile::claim(&path).expect("free").save(&first, &clock(FIRST_UNIX_S), NOW).expect("disk");
    let saved_unix_s = clock(FIRST_UNIX_S).to_unix_s(NOW);
    for (started_unix_s, left_s) in [
        (saved_unix_s - 3_600, Some(5_400)),
        (saved_unix_s + 600, Some(1_200)),
        (saved_unix_s + 3_600, None),
        (0, None),
    ] {
        let (second, now) = (memc3(64), Time(2));
        let file = MemoryFile::claim(&path).expect("free");
        file.load(&second, &clock(started_unix_s), now, true).expect("sound").expect("there");
        let found = ask(&second, now, "key", LOOK);
        let left = found.map(|(hit, _)| hit.expiry.to_raw() - now.0).ok();
        if started_unix_s == 0 {
            // Before all time: it lasts as long as an item can.
            assert_eq!(left, Some(Expiry::MAX.to_raw() - now.0));
        } else {
            assert!(left.zip(left_s).map_or(left == left_s, |(left, told)| left.abs_diff(told) <= 2), "{left:?}");
        }
        assert!(ask(&second, now, "forever", LOOK).is_ok());
    }
}

/// A flush that was still to come at the stop comes at its second, or came while nobody ran.
fn a_flush_comes_when_it_is_due<A: Engine, B: Engine>(first: &A, make_second: impl Fn() -> B) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    for i in 0..100 {
        stored(first, NOW, &format!("key{i}"));
    }
    let flush_at = Time(NOW.0 + 60);
    first.flush_all(flush_at, NOW);
    MemoryFile::claim(&path).expect("free").save(first, &clock(FIRST_UNIX_S), NOW).expect("disk");
    let flush_unix_s = clock(FIRST_UNIX_S).to_unix_s(flush_at);
    for (loaded_unix_s, left_s) in [
        (clock(FIRST_UNIX_S).to_unix_s(NOW), 60),
        (flush_unix_s - 20, 20),
        (flush_unix_s - 1, 1),
        (flush_unix_s, 0),
        (flush_unix_s + 1_000, 0),
        // Set back by an hour.
        (flush_unix_s - 3_600, 3_600),
    ] {
        let (second, now) = (make_second(), Time(2));
        let file = MemoryFile::claim(&path).expect("free");
        let loaded = file.load(&second, &clock(loaded_unix_s), now, true).expect("sound").expect("there");
        assert_eq!((loaded.items, loaded.flushed), if left_s > 0 { (100, 0) } else { (0, 100) }, "{left_s} s");
        let due = Time(now.0 + left_s);
        assert_eq!(second.flush_due(), (left_s > 0).then_some(due));
        let there = |now| (0..100).filter(|i| ask(&second, now, &format!("key{i}"), LOOK).is_ok()).count();
        if left_s > 0 {
            assert_eq!(there(Time(due.0 - 1)), 100, "{left_s} s");
        }
        // What is stored at that second stays.
        stored(&second, due, "new");
        assert_eq!(there(due), 0, "{left_s} s");
        assert_eq!(second.flush_due(), None);
        assert!(ask(&second, due, "new", LOOK).is_ok());
    }
    // One that has been is not kept.
    let second = make_second();
    second.flush_all(NOW, NOW);
    stored(&second, NOW, "new");
    MemoryFile::claim(&path).expect("free").save(&second, &clock(FIRST_UNIX_S), NOW).expect("disk");
    let third = make_second();
    let file = MemoryFile::claim(&path).expect("free");
    let loaded = file.load(&third, &clock(SECOND_UNIX_S), Time(2), true).expect("sound").expect("there");
    assert_eq!((loaded.items, third.flush_due()), (1, None));
}

#[test]
fn a_flush_that_was_to_come_comes_in_every_engine() {
    a_flush_comes_when_it_is_due(&memc3(64), || memc3(64));
    a_flush_comes_when_it_is_due(&memc3(64), || cphash(64));
    a_flush_comes_when_it_is_due(&cphash(64), || lockhash(64));
    a_flush_comes_when_it_is_due(&lockhash(64), || memc3(64));
}

/// In a smaller memory those stay that were used last.
#[test]
fn the_oldest_go_where_there_is_less_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let first = lockhash(32);
    let value = vec![7; 1_000];
    let count = 20_000u32;
    let at = |i: u32| Time(10 + i / 100);
    for i in 0..count {
        ask(&first, at(i), &format!("key{i}"), set(&value, 0, Expiry::NEVER)).expect_err("stored");
    }
    let now = at(count);
    // The first thousand are used again at the end.
    (0..1_000).for_each(|i| drop(ask(&first, now, &format!("key{i}"), Operation::Get(Get::PLAIN)).expect("there")));
    MemoryFile::claim(&path).expect("free").save(&first, &clock(FIRST_UNIX_S), now).expect("disk");
    let second = lockhash(8);
    let file = MemoryFile::claim(&path).expect("free");
    let loaded = file.load(&second, &clock(SECOND_UNIX_S), Time(2), true).expect("sound").expect("there");
    assert_eq!(loaded.items + loaded.no_room, u64::from(count));
    assert_eq!(second.stats().curr_items, loaded.items);
    assert!((5_000..8_000).contains(&loaded.items), "{loaded:?}");
    let is_there = |i: u32| ask(&second, Time(2), &format!("key{i}"), LOOK).is_ok();
    assert!((0..1_000).all(is_there), "used last");
    assert!((count - 2_000..count).all(is_there), "stored last");
    assert!(!(1_000..10_000).any(is_there), "the oldest");
    // Where nothing may be evicted all of it must fit.
    let config = guira_cphash::Config { evictions_enabled: false, ..guira_cphash::Config::new(8 << 20) };
    let strict = Lockhash::new(config).expect("memory");
    let refused = file.load(&strict, &clock(SECOND_UNIX_S), Time(2), false).expect_err("no room");
    assert!(refused.to_string().contains("raise -m"), "{refused}");
    assert!(path.exists());
}

/// What was used when stays known over several restarts, one soon after the other: each item as long ago as it was, the time
/// between them included, and in the order of use.
fn ages_survive_restarts<E: Engine>(make: impl Fn(usize) -> E) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let (count, value) = (6_000u32, vec![7; 1_000]);
    let last = Time(10 + 8 * count);
    let first = make(16);
    // Eight seconds after one another; at the end every tenth is used again.
    let mut idle_s: Vec<u32> = (0..count).map(|i| last.0 - (10 + 8 * i)).collect();
    for i in 0..count {
        ask(&first, Time(10 + 8 * i), &format!("key{i}"), set(&value, 0, Expiry::NEVER)).expect_err("stored");
    }
    for i in (0..count).step_by(10) {
        idle_s[i as usize] = i / 100;
        let used = Time(last.0 - i / 100);
        ask(&first, used, &format!("key{i}"), Operation::Get(Get::PLAIN)).expect("there");
    }
    let mut engine = first;
    let (mut unix_s, mut now, mut since_s) = (FIRST_UNIX_S, last, 0);
    for down_s in [0, 3, 700] {
        let file = MemoryFile::claim(&path).expect("free");
        file.save(&engine, &clock(unix_s), now).expect("disk");
        let saved_unix_s = clock(unix_s).to_unix_s(now);
        (engine, unix_s, now) = (make(16), saved_unix_s + down_s, Time(2));
        let file = MemoryFile::claim(&path).expect("free");
        let loaded = file.load(&engine, &clock(unix_s), now, true).expect("sound").expect("there");
        assert_eq!(loaded.items, u64::from(count));
        since_s += down_s as u32;
        for (i, idle_s) in idle_s.iter().enumerate() {
            let (hit, _) = ask(&engine, now, &format!("key{i}"), LOOK).expect("there");
            assert_eq!(hit.idle_s, idle_s + since_s, "key{i} after {down_s} s");
        }
        // It serves for some seconds.
        now.0 += 5;
        since_s += 5;
    }
    // Those that were used last stay in a smaller memory.
    let file = MemoryFile::claim(&path).expect("free");
    file.save(&engine, &clock(unix_s), now).expect("disk");
    let small = make(4);
    let file = MemoryFile::claim(&path).expect("free");
    let loaded = file.load(&small, &clock(unix_s), Time(2), true).expect("sound").expect("there");
    let mut by_use: Vec<u32> = (0..count).collect();
    by_use.sort_by_key(|i| idle_s[*i as usize]);
    let stayed = by_use.iter().take(loaded.items as usize);
    let stayed = stayed.filter(|i| ask(&small, Time(2), &format!("key{i}"), LOOK).is_ok()).count() as u64;
    assert!(stayed * 10 > loaded.items * 9, "{stayed} of {}", loaded.items);
}

#[test]
fn ages_survive_several_restarts() {
    ages_survive_restarts(cphash);
    ages_survive_restarts(lockhash);
}

#[test]
fn a_file_that_is_damaged_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let first = memc3(64);
    fill(&first);
    let file = || MemoryFile::claim(&path).expect("free");
    file().save(&first, &clock(FIRST_UNIX_S), NOW).expect("disk");
    let mut bytes = fs::read(&path).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).expect("disk");
    let refused = file().load(&memc3(64), &clock(SECOND_UNIX_S), NOW, true).expect_err("damaged");
    assert_eq!(refused.to_string(), "is cut short or damaged (items)");
    assert!(fs::read(&path).expect("there") == bytes);
}

#[test]
fn one_server_at_a_time_has_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let file = MemoryFile::claim(&path).expect("free");
    assert!(matches!(MemoryFile::claim(&path), Err(MemoryFileError::InUse)));
    drop(file);
    let file = MemoryFile::claim(&path).expect("free again");
    file.forget().expect("nothing there is no error");
    let engine = memc3(64);
    file.save(&engine, &clock(FIRST_UNIX_S), NOW).expect("disk");
    let file = MemoryFile::claim(&path).expect("free again");
    let loaded = file.load(&engine, &clock(SECOND_UNIX_S), NOW, true).expect("sound");
    assert_eq!(loaded, Some(Loaded::default()));
    file.forget().expect("removed");
    assert_eq!(file.load(&engine, &clock(SECOND_UNIX_S), NOW, true).expect("gone"), None);
    let own = MemoryFile::claim(folder.path()).expect("beside it");
    let refused = own.load(&engine, &clock(SECOND_UNIX_S), NOW, true).expect_err("a folder");
    assert_eq!(refused.to_string(), "is no memory file of guira's");
    let nowhere = MemoryFile::claim(&folder.path().join("no/such/folder"));
    assert!(matches!(nowhere, Err(MemoryFileError::Format(FormatError::Io(_)))));
}

/// Whoever may write to the folder chooses neither what is written over nor who may read it.
#[test]
fn what_others_have_put_in_its_place_is_not_written_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, next) = (folder.path().join("items"), folder.path().join("items.next"));
    let precious = folder.path().join("precious");
    let is_refused = || {
        let refused = MemoryFile::claim(&path).expect_err("not its own");
        assert!(matches!(&refused, MemoryFileError::Foreign(what) if *what == next), "{refused}");
        fs::remove_file(&next).or_else(|_| fs::remove_dir(&next)).expect("still there");
    };
    fs::write(&precious, "kept").expect("disk");
    std::os::unix::fs::symlink(&precious, &next).expect("a link");
    is_refused();
    std::os::unix::fs::symlink(folder.path().join("nothing"), &next).expect("a link");
    is_refused();
    assert!(!folder.path().join("nothing").exists());
    fs::hard_link(&precious, &next).expect("another name");
    is_refused();
    fs::create_dir(&next).expect("a folder");
    is_refused();
    assert_eq!(fs::read(&precious).expect("there"), b"kept");
    // One that a server left is taken over, and nobody else's to read.
    fs::write(&next, "left").expect("disk");
    fs::set_permissions(&next, Permissions::from_mode(0o666)).expect("its own");
    MemoryFile::claim(&path).expect("free").save(&memc3(64), &clock(FIRST_UNIX_S), NOW).expect("disk");
    assert_eq!(fs::metadata(&path).expect("saved").permissions().mode() & 0o777, 0o600);
}

/// What a link names is replaced, not the link.
#[test]
fn a_link_stays_one() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (path, step, file) = (folder.path().join("items"), folder.path().join("step"), other.path().join("file"));
    std::os::unix::fs::symlink("step", &path).expect("a link");
    std::os::unix::fs::symlink(&file, &step).expect("a link");
    let engine = memc3(64);
    stored(&engine, NOW, "key");
    // What is linked to need not be there, and is afterwards.
    for _ in 0..2 {
        let claimed = MemoryFile::claim(&path).expect("free");
        assert!(matches!(MemoryFile::claim(&file), Err(MemoryFileError::InUse)), "by its other name too");
        claimed.save(&engine, &clock(FIRST_UNIX_S), NOW).expect("disk");
        assert!(fs::symlink_metadata(&path).expect("there").is_symlink());
        assert!(fs::symlink_metadata(&file).expect("saved").is_file());
    }
    let again = MemoryFile::claim(&path).expect("free");
    let loaded = again.load(&memc3(64), &clock(SECOND_UNIX_S), NOW, true).expect("sound").expect("there");
    assert_eq!(loaded.items, 1);
    again.forget().expect("removed");
    assert!(!file.exists());
    drop(again);
    fs::remove_file(&step).expect("there");
    std::os::unix::fs::symlink("items", &step).expect("a link");
    MemoryFile::claim(&path).expect_err("round and round");
}

/// Many claim, save and let go at the same time: whoever has the file is alone with it.
#[test]
fn claims_do_not_overlap() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("items");
    let (is_held, engine) = (AtomicBool::new(false), memc3(64));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (is_held, engine, path) = (&is_held, &engine, &path);
            scope.spawn(move || {
                let mut claimed = 0;
                while claimed < 50 {
                    let Ok(file) = MemoryFile::claim(path) else { continue };
                    claimed += 1;
                    assert!(!is_held.swap(true, Ordering::SeqCst), "another has it");
                    is_held.store(false, Ordering::SeqCst);
                    if (claimed + number) % 2 == 0 {
                        file.save(engine, &clock(FIRST_UNIX_S), NOW).expect("disk");
                    }
                }
            });
        }
    });
}
