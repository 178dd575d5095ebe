//! What a store does with requests, while it is open and over a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    path::Path,
    sync::mpsc::{self, Receiver, Sender},
    time::{Duration, Instant},
};

use guira_item::{
    KEY_LEN_MAX,
    store::{Condition, HashPartition},
};
use tempfile::{TempDir, tempdir};

use super::*;

/// After which a test has failed that waits for something.
const DEADLINE: Duration = Duration::from_secs(60);

/// What time it is until a test sets its clock.
const NOW_UNIX_S: u64 = 1_700_000_000;

/// Options with little memory, and the clock in them.
pub(super) fn options(durability: Durability) -> (RocksOptions, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(NOW_UNIX_S));
    let unix_now = {
        let clock = Arc::clone(&clock);
        Arc::new(move || clock.load(Relaxed))
    };
    (RocksOptions { readers: 2, ..RocksOptions::with_memory(16 << 20, durability, unix_now) }, clock)
}

pub(super) fn open(path: &Path) -> RocksStore {
    RocksStore::open(path, &options(Durability::Os).0).expect("opens")
}

/// A new store, and its folder.
fn new_store() -> (TempDir, RocksStore) {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    (folder, store)
}

/// A new store and its folder; the clock can be set.
fn new_store_with_clock() -> (TempDir, RocksStore, Arc<AtomicU64>) {
    let folder = tempdir().expect("a folder");
    let (options, clock) = options(Durability::Os);
    let store = RocksStore::open(folder.path(), &options).expect("opens");
    (folder, store, clock)
}

/// What comes of something that is completed later.
type Later<T> = Receiver<Result<T, StoreError>>;

fn done<T: Send + 'static>() -> (Done<T>, Later<T>) {
    let (sender, receiver) = mpsc::channel();
    // Who no longer waits has failed already.
    (Box::new(move |outcome| drop(sender.send(outcome))), receiver)
}

/// Asks, and waits for what comes of it.
pub(super) fn wait<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> Result<T, StoreError> {
    let (done, later) = done();
    ask(done);
    later.recv_timeout(DEADLINE).expect("it is completed")
}

pub(super) fn key(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).expect("a key")
}

pub(super) fn get(store: &RocksStore, name: &[u8]) -> Result<Option<Record<Arc<[u8]>>>, StoreError> {
    wait(|done| store.get(key(name), done)).map(|found| found.record)
}

pub(super) fn write(store: &RocksStore, batch: Vec<Write>) -> Result<Written, StoreError> {
    wait(|done| store.write(batch, done))
}

/// Which keys a scan shows, in its order.
pub(super) fn keys(store: &RocksStore, what: Scan) -> Result<Vec<Vec<u8>>, StoreError> {
    let (sender, receiver) = mpsc::channel();
    let visit: Visit = Box::new(move |key, _| {
        sender.send(key.as_bytes().to_vec()).expect("somebody waits");
        ControlFlow::Continue(())
    });
    wait(|done| store.scan(what, visit, done))?;
    Ok(receiver.iter().collect())
}

pub(super) fn record(value: &[u8]) -> Record<Arc<[u8]>> {
    Record {
        flags: 0,
        expires_unix_s: 0,
        version: 1,
        generation: Generation(0),
        stale: false,
        win_sent: false,
        value: value.into(),
    }
}

fn put_if(condition: Condition, key: &[u8], record: Record<Arc<[u8]>>) -> Write {
    Write::Put { key: key.into(), record, condition }
}

pub(super) fn put(key: &[u8], value: &[u8]) -> Write {
    put_if(Condition::Always, key, record(value))
}

fn delete(key: &[u8]) -> Write {
    Write::Delete { key: key.into(), condition: Condition::Always }
}

/// The value under a key.
pub(super) fn value(store: &RocksStore, key: &[u8]) -> Option<Vec<u8>> {
    get(store, key).expect("sound").map(|record| record.value.to_vec())
}

/// Waits until something holds.
fn until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "it never holds");
        thread::yield_now();
    }
}

fn assert_all_written(written: &Result<Written, StoreError>) {
    assert_eq!(*written, Ok(Written::All));
}

/// Holds the writer from the moment this returns until something is sent.
fn hold_writer(store: &RocksStore) -> Sender<()> {
    let ((go, held), (sender, receiver)) = (mpsc::channel(), mpsc::channel());
    let done: Done<Written> = Box::new(move |written| {
        sender.send(written).expect("somebody waits");
        held.recv_timeout(DEADLINE).expect("it is let go");
    });
    store.write(vec![put(b"holds the writer", b"")], done);
    assert_all_written(&receiver.recv_timeout(DEADLINE).expect("it is completed"));
    go
}

#[test]
fn what_was_put_is_read_with_all_that_belongs_to_it() {
    let (folder, store) = new_store();
    let all = Record {
        flags: u32::MAX,
        expires_unix_s: 1 << 40,
        version: u64::MAX - 1,
        generation: Generation(7),
        stale: true,
        win_sent: true,
        value: Arc::from(&b"some value"[..]),
    };
    let plain = record(b"");
    let written =
        write(&store, vec![put_if(Condition::Always, b"all", all.clone()), put_if(Condition::Always, b"plain", plain)]);
    assert_all_written(&written);
    let is_there = |store: &RocksStore| {
        assert_eq!(get(store, b"all"), Ok(Some(all.clone())));
        assert_eq!(get(store, b"plain"), Ok(Some(record(b""))));
        assert_eq!(get(store, b"nothing"), Ok(None));
    };
    is_there(&store);
    store.shut().expect("disk");
    drop(store);
    is_there(&open(folder.path()));
}

#[test]
fn what_is_in_memory_is_read_at_once() {
    let (_folder, store) = new_store();
    assert_all_written(&write(&store, vec![put(b"key", b"value")]));
    let read = |name: &[u8]| store.get_now(key(name), |found| found.map(|record| record.value.to_vec()));
    assert_eq!(read(b"key"), Some(Some(b"value".to_vec())));
    assert_eq!(read(b"nothing"), Some(None));
    assert_eq!(store.stats().reads_at_once, 2);
}

/// After a restart, when RocksDB has nothing in memory.
#[test]
fn what_the_system_has_in_memory_is_read_at_once_if_all_files_may_be_open() {
    for descriptors in [DESCRIPTORS_MIN, DESCRIPTORS_MAX] {
        let (folder, store) = new_store();
        assert_all_written(&write(&store, vec![put(b"key", b"value")]));
        store.merge();
        drop(store);
        let store =
            RocksStore::open(folder.path(), &RocksOptions { descriptors, ..options(Durability::Os).0 }).expect("opens");
        let reads_at_once = store.reads_at_once();
        let has_them = guira_nowait::has_reads_that_do_not_wait(&folder.path().join("CURRENT")).expect("there");
        assert_eq!(reads_at_once.is_ok(), descriptors == DESCRIPTORS_MAX && has_them, "{reads_at_once:?}");
        // It has just been written.
        let found = store.get_now(key(b"key"), |found| found.is_some());
        assert_eq!(found, reads_at_once.is_ok().then_some(true));
        assert_eq!(value(&store, b"key").as_deref(), Some(&b"value"[..]));
        // Now its block is in RocksDB's own memory.
        assert_eq!(store.get_now(key(b"key"), |found| found.is_some()), Some(true));
        let stats = store.stats();
        assert_eq!((stats.reads_at_once, stats.reads_waited), (1 + u64::from(reads_at_once.is_ok()), 1));
    }
}

/// Each that cannot be read at once is begun by the system on the caller's thread, and that waits once the device has no place for it.
#[test]
fn while_many_reads_are_on_their_way_no_more_are_begun_by_who_may_not_wait() {
    let (folder, store) = new_store();
    assert_all_written(&write(&store, vec![put(b"key", b"value")]));
    store.merge();
    drop(store);
    let store =
        RocksStore::open(folder.path(), &RocksOptions { descriptors: DESCRIPTORS_MAX, ..options(Durability::Os).0 })
            .expect("opens");
    let counters = &store.inside.counters;
    counters.reads_waited.fetch_add(READS_BEGUN_MAX, Relaxed);
    assert_eq!(store.get_now(key(b"key"), |_| ()), None, "only RocksDB's own memory is looked at");
    counters.reads_done.fetch_add(1, Relaxed);
    assert_eq!(store.get_now(key(b"key"), |_| ()).is_some(), store.reads_at_once().is_ok());
    assert_eq!(value(&store, b"key").as_deref(), Some(&b"value"[..]));
    assert_eq!(
        counters.reads_waited.load(Relaxed) - counters.reads_done.load(Relaxed),
        READS_BEGUN_MAX - 1,
        "all are counted"
    );
}

#[test]
fn keys_are_any_bytes_of_any_length_there_is() {
    let (folder, store) = new_store();
    let mut names: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    names.extend((0..=255).map(|byte| vec![byte; KEY_LEN_MAX]));
    names.extend([b"a\0b".to_vec(), b"a\r\n b".to_vec(), (0..250).collect()]);
    assert_all_written(&write(&store, names.iter().map(|name| put(name, name)).collect()));
    store.merge();
    drop(store);
    let store = open(folder.path());
    for name in &names {
        assert_eq!(value(&store, name).as_ref(), Some(name));
    }
}

#[test]
fn values_are_as_long_as_they_may_be() {
    let (folder, store) = new_store();
    let values: Vec<Vec<u8>> =
        [0, 1, 4_096, 1 << 20, 8 << 20].map(|len| (0..len).map(|at: u32| (at / 7 + len) as u8).collect()).into();
    let name = |value: &Vec<u8>| value.len().to_string();
    for value in &values {
        assert_all_written(&write(&store, vec![put(name(value).as_bytes(), value)]));
    }
    let are_there = |store: &RocksStore| {
        assert!(values.iter().all(|expected| value(store, name(expected).as_bytes()).as_ref() == Some(expected)));
    };
    are_there(&store);
    drop(store);
    are_there(&open(folder.path()));
}

#[test]
fn what_was_deleted_is_gone_also_after_a_restart() {
    let (folder, store) = new_store();
    assert_all_written(&write(&store, vec![put(b"key", b"value"), put(b"other", b"value")]));
    store.merge();
    assert_all_written(&write(&store, vec![delete(b"key"), delete(b"never there")]));
    assert_eq!(value(&store, b"key"), None);
    drop(store);
    let store = open(folder.path());
    assert_eq!(value(&store, b"key"), None);
    assert!(value(&store, b"other").is_some());
}

#[test]
fn an_empty_batch_is_written() {
    let (_folder, store) = new_store();
    assert_all_written(&write(&store, vec![]));
}

#[test]
fn a_batch_that_is_refused_changes_nothing() {
    let (folder, store) = new_store();
    assert_all_written(&write(&store, vec![put(b"there", b"old")]));
    let state = StoreState { generation: Generation(1), ..StoreState::default() };
    let batch = vec![
        put(b"new", b"value"),
        delete(b"there"),
        Write::State(state),
        put_if(Condition::Absent, b"newer", record(b"value")),
        put_if(Condition::Version(99), b"there", record(b"new")),
        put(b"newest", b"value"),
    ];
    assert_eq!(write(&store, batch), Ok(Written::Refused { at: 4 }));
    assert_eq!(keys(&store, Scan::ALL), Ok(vec![b"there".to_vec()]));
    assert_eq!(value(&store, b"there").as_deref(), Some(&b"old"[..]));
    assert_eq!(store.stats().writes, 1);
    drop(store);
    assert_eq!(open(folder.path()).state(), StoreState::default());
}

#[test]
fn absent_is_what_is_missing_or_dead() {
    let (_folder, store, clock) = new_store_with_clock();
    let absent = |name: &[u8], expires_unix_s, generation| {
        let record = Record { expires_unix_s, generation: Generation(generation), ..record(b"") };
        write(&store, vec![put_if(Condition::Absent, name, record)])
    };
    let refused = Ok(Written::Refused { at: 0 });
    assert_all_written(&absent(b"expires", NOW_UNIX_S + 10, 0));
    assert_all_written(&absent(b"stays", 0, 0));
    clock.fetch_add(9, Relaxed);
    assert_eq!(absent(b"expires", 0, 0), refused);
    clock.fetch_add(1, Relaxed);
    assert_all_written(&absent(b"expires", 0, 0));
    assert_eq!(absent(b"expires", 0, 0), refused, "it does not expire any more");
    assert_eq!(absent(b"stays", 0, 0), refused);
    let state = StoreState { generation: Generation(1), ..StoreState::default() };
    assert_all_written(&write(&store, vec![Write::State(state)]));
    assert_all_written(&absent(b"stays", 0, 1));
    assert_eq!(absent(b"stays", 0, 1), refused, "it is of this generation");
}

#[test]
fn a_version_fits_what_is_there_and_alive() {
    let (_folder, store, clock) = new_store_with_clock();
    let versioned = |version| Record { version, expires_unix_s: NOW_UNIX_S + 10, ..record(b"") };
    let if_version = |expected, new| write(&store, vec![put_if(Condition::Version(expected), b"key", versioned(new))]);
    let refused = Ok(Written::Refused { at: 0 });
    assert_eq!(if_version(1, 2), refused, "nothing is there");
    assert_all_written(&write(&store, vec![put_if(Condition::Always, b"key", versioned(1))]));
    assert_all_written(&if_version(1, 2));
    assert_eq!(if_version(1, 3), refused, "it is another one by now");
    let delete_if =
        |version| write(&store, vec![Write::Delete { key: (*b"key").into(), condition: Condition::Version(version) }]);
    assert_eq!(delete_if(1), refused);
    assert_all_written(&delete_if(2));
    assert_all_written(&write(&store, vec![put_if(Condition::Always, b"key", versioned(4))]));
    clock.fetch_add(10, Relaxed);
    assert_eq!(if_version(4, 5), refused, "it has expired");
}

/// None of them waits for the one before.
#[test]
fn batches_of_a_thread_take_effect_in_order() {
    let (_folder, store) = new_store();
    let (sender, receiver) = mpsc::channel();
    let count = 3_000u64;
    for number in 0..count {
        let sender = sender.clone();
        // Some see what the one before has done.
        let condition = match number {
            number if number % 3 == 1 => Condition::Version(number - 1),
            _ => Condition::Always,
        };
        let record = Record { version: number, ..record(b"") };
        let done: Done<Written> = Box::new(move |written| sender.send((number, written)).expect("somebody waits"));
        store.write(vec![put_if(condition, b"key", record)], done);
    }
    for number in 0..count {
        let completed = receiver.recv_timeout(DEADLINE).expect("it is completed");
        assert_eq!(completed, (number, Ok(Written::All)));
    }
    assert_eq!(get(&store, b"key").map(|found| found.map(|record| record.version)), Ok(Some(count - 1)));
}

#[test]
fn what_waits_together_is_written_and_synced_once() {
    let folder = tempdir().expect("a folder");
    let store = RocksStore::open(folder.path(), &options(Durability::Always).0).expect("opens");
    let go = hold_writer(&store);
    let before = store.stats();
    let threads = 64;
    thread::scope(|scope| {
        for number in 0..threads {
            let store = &store;
            scope.spawn(move || assert_all_written(&write(store, vec![put(format!("{number}").as_bytes(), b"")])));
        }
        // Pending they are before they are in the queue.
        until(|| store.inside.writes.len() as u64 == threads);
        go.send(()).expect("it is held");
    });
    let after = store.stats();
    assert_eq!(after.writes - before.writes, threads);
    assert_eq!((after.write_batches - before.write_batches, after.syncs - before.syncs), (1, 1));
    assert_eq!(after.pending, 0);
}

#[test]
fn many_threads_write_and_read_what_they_wrote() {
    let folder = tempdir().expect("a folder");
    let store = RocksStore::open(folder.path(), &options(Durability::Always).0).expect("opens");
    thread::scope(|scope| {
        for number in 0..64 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..16 {
                    let name = format!("{number}:{}", round % 4);
                    let bytes = format!("{round}").into_bytes();
                    assert_all_written(&write(store, vec![put(name.as_bytes(), &bytes)]));
                    assert_eq!(value(store, name.as_bytes()), Some(bytes));
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!((stats.writes, stats.failures, stats.pending), (64 * 16, 0, 0));
    assert_eq!(stats.syncs, stats.write_batches);
    drop(store);
    assert_eq!(keys(&open(folder.path()), Scan::ALL).map(|keys| keys.len()), Ok(64 * 4));
}

#[test]
fn with_an_interval_writes_are_synced_before_long() {
    let folder = tempdir().expect("a folder");
    let every = Durability::Interval(Duration::from_millis(1));
    let store = RocksStore::open(folder.path(), &options(every).0).expect("opens");
    assert_all_written(&write(&store, vec![put(b"key", b"value")]));
    until(|| store.stats().syncs > 0);
}

#[test]
fn a_flush_syncs_what_was_written() {
    let (_folder, store) = new_store();
    assert_all_written(&write(&store, vec![put(b"key", b"value")]));
    assert_eq!(store.stats().syncs, 0, "nobody has asked for it");
    assert_eq!(wait(|done| store.flush(done)), Ok(()));
    assert_eq!(store.stats().syncs, 1);
}

/// Keys in all partitions, some of them in files and some not; some the beginning of others.
fn fill(store: &RocksStore) -> BTreeSet<Vec<u8>> {
    let all: BTreeSet<Vec<u8>> = (0..3_000u32)
        .map(|number| match number % 3 {
            0 => format!("user:{number}").into_bytes(),
            1 => number.to_be_bytes().to_vec(),
            _ => vec![number as u8; 1 + number as usize % 250],
        })
        .collect();
    let (first, second): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    for half in [first, second] {
        store.inside.db.flush().expect("disk");
        assert_all_written(&write(store, half.iter().map(|(_, name)| put(name, b"value")).collect()));
    }
    all
}

#[test]
fn a_range_shows_all_partitions_in_the_order_of_keys() {
    let (_folder, store) = new_store();
    let all = fill(&store);
    store.merge();
    assert_eq!(keys(&store, Scan::ALL), Ok(all.iter().cloned().collect()));
    let longest = vec![b'k'; KEY_LEN_MAX];
    assert_all_written(&write(&store, vec![put(&longest, b"value")]));
    let all: BTreeSet<_> = all.into_iter().chain([longest.clone()]).collect();
    let beyond_longest = [&longest[..], b"\0"].concat();
    let bounds: [(&[u8], Option<&[u8]>); 10] = [
        (b"user:", Some(b"user;")),
        (b"user:1", Some(b"user:10")),
        (b"user:300", Some(b"user:300")),
        (b"user:300", Some(b"user:3000")),
        (b"z", Some(b"a")),
        (b"", Some(b"")),
        (&[255; 251], None),
        (&longest, Some(&beyond_longest)),
        (&beyond_longest, None),
        (b"\0", Some(&longest)),
    ];
    for (from, to) in bounds {
        let expected: Vec<_> =
            all.iter().filter(|key| &key[..] >= from && to.is_none_or(|to| &key[..] < to)).cloned().collect();
        let range = Scan::Range { from: from.to_vec(), to: to.map(<[u8]>::to_vec) };
        assert_eq!(keys(&store, range).as_ref(), Ok(&expected), "{from:?} to {to:?}");
    }
}

#[test]
fn what_is_behind_a_key_is_shown_whether_that_is_there_or_not() {
    let (_folder, store) = new_store();
    let all = fill(&store);
    let memory = crate::MemoryStore::default();
    for key in &all {
        memory.write(vec![put(key, b"value")], Box::new(|written| assert_eq!(written, Ok(Written::All))));
    }
    let shown_by_memory = |after: Option<&[u8]>| {
        let (sender, receiver) = mpsc::channel();
        let visit: Visit = Box::new(move |key, _| {
            sender.send(key.as_bytes().to_vec()).expect("somebody waits");
            ControlFlow::Continue(())
        });
        memory.scan(Scan::Behind(after.map(Box::from)), visit, Box::new(|done| assert_eq!(done, Ok(()))));
        receiver.into_iter().collect::<Vec<_>>()
    };
    for after in [None, Some(&b""[..]), Some(b"user:300"), Some(b"user:300\0"), Some(b"user:3"), Some(&[255; 250])] {
        let expected: Vec<_> = all.iter().filter(|key| after.is_none_or(|after| &key[..] > after)).cloned().collect();
        assert_eq!(keys(&store, Scan::Behind(after.map(Box::from))).as_ref(), Ok(&expected), "{after:?}");
        assert_eq!(shown_by_memory(after), expected, "{after:?}");
    }
}

#[test]
fn a_partition_shows_the_keys_that_hash_to_it() {
    let (_folder, store) = new_store();
    let mut left = fill(&store);
    for partition in 0..=255 {
        let shown = keys(&store, Scan::Partition(HashPartition(partition))).expect("sound");
        assert!(shown.is_sorted());
        for key in shown {
            // As the format has it.
            assert_eq!(crc32fast::hash(&key) >> 24, u32::from(partition), "{key:?}");
            assert!(left.remove(&key), "{key:?} is shown once");
        }
    }
    assert_eq!(left.len(), 0, "all are shown");
}

#[test]
fn a_scan_shows_dead_records_too_with_all_that_belongs_to_them() {
    let (_folder, store) = new_store();
    let dead = Record { expires_unix_s: NOW_UNIX_S - 1, flags: 3, win_sent: true, ..record(b"value") };
    assert_all_written(&write(&store, vec![put_if(Condition::Always, b"key", dead.clone())]));
    let (sender, receiver) = mpsc::channel();
    let visit: Visit = Box::new(move |key, record| {
        sender.send((key.as_bytes().to_vec(), record.map(Arc::from))).expect("somebody waits");
        ControlFlow::Continue(())
    });
    assert_eq!(wait(|done| store.scan(Scan::ALL, visit, done)), Ok(()));
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [(b"key".to_vec(), dead)]);
}

/// A scan that stands at its first record until something is sent; what it has shown comes with its end.
fn held_scan(store: &RocksStore, what: Scan) -> (Sender<()>, impl FnOnce() -> BTreeMap<Vec<u8>, Vec<u8>>) {
    let ((go, held), (stands, standing), (sender, shown)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let mut is_first = true;
    let visit: Visit = Box::new(move |key, record| {
        if std::mem::take(&mut is_first) {
            stands.send(()).expect("somebody waits");
            held.recv_timeout(DEADLINE).expect("it is let go");
        }
        sender.send((key.as_bytes().to_vec(), record.value.to_vec())).expect("somebody waits");
        ControlFlow::Continue(())
    });
    let (done, later) = done();
    store.scan(what, visit, done);
    standing.recv_timeout(DEADLINE).expect("there is a record");
    let ended = move || {
        assert_eq!(later.recv_timeout(DEADLINE).expect("it is completed"), Ok(()));
        shown.iter().collect()
    };
    (go, ended)
}

#[test]
fn a_scan_shows_one_moment_though_writes_go_on() {
    let (_folder, store) = new_store();
    let all = fill(&store);
    for what in [Scan::ALL, Scan::Partition(HashPartition(3))] {
        let shown_before = keys(&store, what.clone()).expect("sound");
        let (go, ended) = held_scan(&store, what);
        let changed: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(at, name)| if at % 2 == 0 { put(name, b"changed") } else { delete(name) })
            .chain((0..2_000).map(|number| put(format!("new:{number}").as_bytes(), b"new")))
            .collect();
        assert_all_written(&write(&store, changed));
        store.merge();
        go.send(()).expect("it is held");
        let shown = ended();
        assert_eq!(shown.keys().cloned().collect::<Vec<_>>(), shown_before);
        assert!(shown.values().all(|value| value == b"value"));
        let news = (0..2_000).map(|number| delete(format!("new:{number}").as_bytes()));
        let back = all.iter().map(|name| put(name, b"value"));
        assert_all_written(&write(&store, news.chain(back).collect()));
    }
}

#[test]
fn a_visit_that_breaks_ends_a_scan() {
    let (_folder, store) = new_store();
    let all = fill(&store);
    for what in [Scan::ALL, Scan::Partition(HashPartition(crc32fast::hash(b"user:0").to_be_bytes()[0]))] {
        let (sender, receiver) = mpsc::channel();
        let visit: Visit = Box::new(move |key, _| {
            sender.send(key.as_bytes().to_vec()).expect("somebody waits");
            ControlFlow::Break(())
        });
        assert_eq!(wait(|done| store.scan(what, visit, done)), Ok(()));
        let shown: Vec<_> = receiver.iter().collect();
        assert!(shown.len() == 1 && all.contains(&shown[0]));
    }
}

#[test]
fn a_copy_is_a_store_of_its_own() {
    let (folder, store) = new_store();
    let all = fill(&store);
    store.merge();
    assert_all_written(&write(&store, vec![put(b"in the log", b"value")]));
    let copy = folder.path().join("copy");
    assert_eq!(wait(|done| store.snapshot(copy.clone(), done)), Ok(()));
    assert_all_written(&write(&store, vec![put(b"in the log", b"changed"), put(b"later", b"value")]));
    let copied = open(&copy);
    let expected: Vec<_> =
        all.iter().cloned().chain([b"in the log".to_vec()]).collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(keys(&copied, Scan::ALL), Ok(expected));
    assert_eq!(value(&copied, b"in the log").as_deref(), Some(&b"value"[..]));
    assert_all_written(&write(&copied, vec![delete(b"in the log")]));
    assert_eq!(value(&store, b"in the log").as_deref(), Some(&b"changed"[..]));
}

#[test]
fn there_is_no_copy_where_something_is_or_can_not_be() {
    let (folder, store) = new_store();
    let full = folder.path().join("full");
    std::fs::create_dir(&full).expect("disk");
    std::fs::write(full.join("file"), "something").expect("disk");
    for to in [full.clone(), folder.path().join("no/such/folder"), full.join("file/below")] {
        let failed = wait(|done| store.snapshot(to, done)).expect_err("there is something");
        assert!(!failed.unknown && failed.kind == StoreErrorKind::Unavailable);
        assert!(failed.told.starts_with("no copy in /") && !failed.told.contains('\n'), "{failed}");
    }
    assert_eq!(std::fs::read_dir(&full).expect("as it was").count(), 1);
    assert_all_written(&write(&store, vec![put(b"key", b"value")]));
}

#[test]
fn merging_throws_away_what_is_dead_and_nothing_else() {
    let (_folder, store, clock) = new_store_with_clock();
    let state = StoreState { generation: Generation(2), ..StoreState::default() };
    assert_all_written(&write(&store, vec![Write::State(state)]));
    let of = |expires_unix_s, generation| Record { expires_unix_s, generation: Generation(generation), ..record(b"") };
    let batch = [
        (&b"stays"[..], of(0, 2)),
        (b"expires later", of(NOW_UNIX_S + 101, 2)),
        (b"of the next generation", of(0, 3)),
        (b"expires now", of(NOW_UNIX_S + 100, 2)),
        (b"has expired", of(NOW_UNIX_S - 1, 2)),
        (b"was flushed", of(0, 1)),
    ];
    let batch = batch.map(|(name, record)| put_if(Condition::Always, name, record));
    assert_all_written(&write(&store, batch.into()));
    clock.fetch_add(100, Relaxed);
    assert_eq!(keys(&store, Scan::ALL).map(|all| all.len()), Ok(6));
    store.merge();
    let left = [&b"expires later"[..], b"of the next generation", b"stays"];
    assert_eq!(keys(&store, Scan::ALL), Ok(left.map(<[u8]>::to_vec).into()));
}

#[test]
fn what_is_thrown_away_does_not_uncover_what_it_had_replaced() {
    let (folder, store, clock) = new_store_with_clock();
    assert_all_written(&write(&store, vec![put(b"key", b"old")]));
    store.merge();
    // This one sees it still, so that no merge may drop it.
    let (go, ended) = held_scan(&store, Scan::ALL);
    let soon = Record { expires_unix_s: NOW_UNIX_S + 1, ..record(b"new") };
    assert_all_written(&write(&store, vec![put_if(Condition::Always, b"key", soon)]));
    clock.fetch_add(1, Relaxed);
    store.merge();
    assert_eq!(value(&store, b"key"), None);
    go.send(()).expect("it is held");
    assert_eq!(ended(), BTreeMap::from([(b"key".to_vec(), b"old".to_vec())]));
    store.merge();
    assert_eq!(value(&store, b"key"), None);
    drop(store);
    assert_eq!(value(&open(folder.path()), b"key"), None);
}

/// With a clock that goes back, too, and after each of many changes.
#[test]
fn merges_show_the_last_version_or_none() {
    let (_folder, store, clock) = new_store_with_clock();
    for round in 0..30u64 {
        let expires_unix_s = if round % 3 == 0 { NOW_UNIX_S + round } else { 0 };
        let record = Record { version: round, expires_unix_s, ..record(&[7; 1_000]) };
        assert_all_written(&write(&store, vec![put_if(Condition::Always, b"key", record)]));
        if round % 2 == 0 {
            store.inside.db.flush().expect("disk");
        }
        clock.store(NOW_UNIX_S + round * 7 % 5 * 10, Relaxed);
        if round % 5 == 4 {
            store.merge();
        }
        let found = get(&store, b"key").expect("sound").map(|record| record.version);
        assert!(found.is_none_or(|version| version == round), "{found:?} in round {round}");
        assert!(found.is_some() || expires_unix_s != 0, "round {round} is thrown away");
    }
}

#[test]
fn the_state_is_what_was_written_last() {
    let (folder, store) = new_store();
    assert_eq!(store.state(), StoreState::default());
    let state =
        |generation| StoreState { generation: Generation(generation), flush_at_unix_s: 1 << 33, versions_reserved: 9 };
    assert_all_written(&write(&store, vec![Write::State(state(1)), Write::State(state(2))]));
    assert_eq!(store.state(), StoreState::default(), "as it was when it was opened");
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.state(), state(2));
    let no_state: Vec<Vec<u8>> = Vec::new();
    assert_eq!(keys(&store, Scan::ALL), Ok(no_state), "it is no record");
}

#[test]
fn conditions_heed_a_generation_that_was_written_before() {
    let (folder, store) = new_store();
    let absent =
        |generation| put_if(Condition::Absent, b"key", Record { generation: Generation(generation), ..record(b"") });
    let state = |generation| Write::State(StoreState { generation: Generation(generation), ..StoreState::default() });
    assert_all_written(&write(&store, vec![absent(0)]));
    assert_eq!(write(&store, vec![state(1), absent(1)]), Ok(Written::Refused { at: 1 }), "not written yet");
    assert_eq!(write(&store, vec![absent(1)]), Ok(Written::Refused { at: 0 }), "it was refused");
    // The second does not wait for the first.
    store.write(vec![state(1)], Box::new(|_| ()));
    assert_all_written(&write(&store, vec![absent(1)]));
    assert_all_written(&write(&store, vec![state(2)]));
    drop(store);
    assert_all_written(&write(&open(folder.path()), vec![absent(2)]));
}

#[test]
fn what_was_asked_for_is_completed_when_a_store_is_shut() {
    let (folder, store) = new_store();
    let go = hold_writer(&store);
    let (written, read, scanned) = (mpsc::channel(), mpsc::channel(), done());
    for number in 0..1_000 {
        let name = format!("{number}");
        let sender = written.0.clone();
        store.write(vec![put(name.as_bytes(), b"value")], Box::new(move |outcome| drop(sender.send(outcome))));
        let sender = read.0.clone();
        store.get(key(name.as_bytes()), Box::new(move |found| drop(sender.send(found))));
    }
    store.scan(Scan::ALL, Box::new(|_, _| ControlFlow::Continue(())), scanned.0);
    go.send(()).expect("it is held");
    store.shut().expect("disk");
    assert_eq!(written.1.try_iter().filter(|outcome| *outcome == Ok(Written::All)).count(), 1_000);
    assert_eq!(read.1.try_iter().filter(Result::is_ok).count(), 1_000);
    assert_eq!(scanned.1.try_recv().expect("it is completed"), Ok(()));
    assert_eq!(store.stats().pending, 0);
    drop(store);
    assert_eq!(keys(&open(folder.path()), Scan::ALL).map(|all| all.len()), Ok(1_001));
}

#[test]
fn a_store_that_is_shut_refuses_and_does_not_hang() {
    let (folder, store) = new_store();
    assert_all_written(&write(&store, vec![put(b"key", b"value")]));
    store.shut().expect("disk");
    let copy = folder.path().join("copy");
    let failures = [
        get(&store, b"key").expect_err("shut"),
        write(&store, vec![put(b"key", b"new")]).expect_err("shut"),
        wait(|done| store.flush(done)).expect_err("shut"),
        keys(&store, Scan::ALL).expect_err("shut"),
        wait(|done| store.snapshot(copy.clone(), done)).expect_err("shut"),
    ];
    for failure in failures {
        assert_eq!(failure, StoreError::refused(StoreErrorKind::Unavailable, "the store is closed"));
    }
    assert!(!copy.exists());
    assert_eq!(store.shut(), Ok(()), "once more does no harm");
    let stats = store.stats();
    assert_eq!((stats.failures, stats.pending), (5, 0));
}

/// Somebody else has written into it; or another version of guira.
#[test]
fn what_is_no_record_is_told_and_not_overwritten_unseen() {
    let (_folder, store) = new_store();
    assert_all_written(&write(&store, vec![put(b"key", b"value"), put(b"sound", b"value")]));
    store.inside.db.put(keys::StoredKey::of(key(b"key")).as_bytes(), b"no record").expect("disk");
    let damaged = |told: StoreError| assert!(told.kind == StoreErrorKind::Damaged && !told.unknown, "{told:?}");
    assert!(store.get_now(key(b"key"), |_| ()).is_none());
    damaged(get(&store, b"key").expect_err("no record"));
    damaged(self::keys(&store, Scan::ALL).expect_err("no record"));
    damaged(write(&store, vec![put_if(Condition::Absent, b"key", record(b""))]).expect_err("no record"));
    assert!(value(&store, b"sound").is_some());
    assert_all_written(&write(&store, vec![put(b"key", b"new")]));
    assert!(value(&store, b"key").is_some());
}

#[test]
fn what_has_no_key_is_told() {
    let (_folder, store) = new_store();
    store.inside.db.put([7], b"no record").expect("disk");
    for what in [Scan::ALL, Scan::Partition(HashPartition(7))] {
        assert_eq!(keys(&store, what).map_err(|error| error.kind), Err(StoreErrorKind::Damaged));
    }
}
