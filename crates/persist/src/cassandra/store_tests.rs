//! The store before a Cassandra that runs: `GUIRA_CASSANDRA` says where (`scripts/cassandra start FOLDER`; `cargo xtask test` starts one).

use std::{
    env,
    ops::ControlFlow,
    sync::{
        Mutex,
        atomic::AtomicU32,
        mpsc::{self, Receiver},
    },
};

use guira_item::store::{Condition, Generation, HashPartition};
use guira_row::{Ask, Heard, Row, Stamp};

use super::*;

/// Longer than an operation is tried.
const LONG: Duration = Duration::from_secs(60);

/// What time it is, always.
const NOW_UNIX_S: u64 = 1_700_000_000;

/// An address with a keyspace that no other test has.
fn address() -> CassandraAddress {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nodes = env::var("GUIRA_CASSANDRA").expect("GUIRA_CASSANDRA says where a Cassandra is: see scripts/cassandra");
    let keyspace = format!("store_{}_{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    format!("{nodes}/{keyspace}").parse().expect("an address")
}

/// The part of a key: its first byte.
fn part_of(key: &[u8]) -> Part {
    Part(key[0].into())
}

fn options(address: &CassandraAddress) -> CassandraOptions {
    CassandraOptions { address: address.clone(), unix_now: Arc::new(|| NOW_UNIX_S), part_of }
}

fn try_open(address: &CassandraAddress) -> Result<CassandraStore, CassandraError> {
    let opened = CassandraStore::open(&options(address), || true);
    opened.map(|opened| opened.expect("it goes on"))
}

fn open(address: &CassandraAddress) -> CassandraStore {
    try_open(address).expect("a Cassandra that runs")
}

type Outcome<T> = Receiver<Result<T, StoreError>>;

fn later<T: Send + 'static>() -> (Done<T>, Outcome<T>) {
    let (sender, receiver) = mpsc::channel();
    (Box::new(move |outcome| sender.send(outcome).expect("somebody waits")), receiver)
}

fn wait<T>(outcome: &Outcome<T>) -> Result<T, StoreError> {
    outcome.recv_timeout(LONG).expect("everything is completed")
}

fn record(version: u64, value: &[u8]) -> Record<Arc<[u8]>> {
    Record {
        flags: 7,
        expires_unix_s: 0,
        version,
        generation: Generation(0),
        stale: false,
        win_sent: true,
        value: value.into(),
    }
}

fn put_if(store: &CassandraStore, key: &str, record: Record<Arc<[u8]>>, condition: Condition) -> Outcome<Written> {
    let (done, outcome) = later();
    store.write(vec![Write::Put { key: key.as_bytes().into(), record, condition }], done);
    outcome
}

fn put(store: &CassandraStore, key: &str, version: u64, value: &[u8]) -> Result<Written, StoreError> {
    wait(&put_if(store, key, record(version, value), Condition::Always))
}

fn delete_if(store: &CassandraStore, key: &str, condition: Condition) -> Result<Written, StoreError> {
    let (done, outcome) = later();
    store.write(vec![Write::Delete { key: key.as_bytes().into(), condition }], done);
    wait(&outcome)
}

fn get_later(store: &CassandraStore, key: &str) -> Outcome<Found> {
    let (done, outcome) = later();
    store.get(Key::new(key.as_bytes()).expect("a key"), done);
    outcome
}

fn get(store: &CassandraStore, key: &str) -> Result<Option<Record<Arc<[u8]>>>, StoreError> {
    wait(&get_later(store, key)).map(|found| found.record)
}

/// Whether what is read is news.
fn is_news(store: &CassandraStore, key: &str) -> bool {
    wait(&get_later(store, key)).expect("a Cassandra that runs").is_news
}

fn write_state(store: &CassandraStore, state: StoreState) -> Outcome<Written> {
    let (done, outcome) = later();
    store.write(vec![Write::State(state)], done);
    outcome
}

#[test]
fn what_is_put_is_read_until_it_is_deleted_over_owners_too() {
    let address = address();
    let store = open(&address);
    assert!(store.may_serve());
    assert_eq!(get(&store, "a"), Ok(None));
    assert_eq!(put(&store, "a", 1, b"one"), Ok(Written::All));
    assert_eq!(put(&store, "gone", 2, b"two"), Ok(Written::All));
    assert_eq!(get(&store, "a"), Ok(Some(record(1, b"one"))));
    assert_eq!(put(&store, "a", 3, b"three"), Ok(Written::All));
    assert_eq!(delete_if(&store, "gone", Condition::Always), Ok(Written::All));
    assert_eq!(delete_if(&store, "never", Condition::Always), Ok(Written::All));
    assert_eq!((get(&store, "gone"), get(&store, "never")), (Ok(None), Ok(None)));
    // As long as an item may be.
    let long = vec![b'x'; 1 << 20];
    assert_eq!(put(&store, "long", 4, &long), Ok(Written::All));
    store.shut().expect("given up");
    assert!(put(&store, "a", 9, b"closed").expect_err("it is closed").told.contains("closed"));
    let store = open(&address);
    assert_eq!(get(&store, "a"), Ok(Some(record(3, b"three"))));
    assert_eq!((get(&store, "gone"), get(&store, "long")), (Ok(None), Ok(Some(record(4, &long)))));
    // Without having read what an earlier owner has left.
    assert_eq!(put(&store, "gone", 5, b"back"), Ok(Written::All));
    assert_eq!(get(&store, "gone"), Ok(Some(record(5, b"back"))));
    let stats = store.stats();
    assert_eq!((stats.store, stats.writes, stats.failures), ("cassandra", 1, 0));
}

#[test]
fn conditions_are_looked_at_where_the_row_is() {
    let store = open(&address());
    let if_version = Condition::Version;
    let put = |version, condition| wait(&put_if(&store, "k", record(version, b"v"), condition));
    assert_eq!(put(1, if_version(1)), Ok(Written::Refused { at: 0 }));
    assert_eq!(put(1, Condition::Absent), Ok(Written::All));
    assert_eq!(put(2, Condition::Absent), Ok(Written::Refused { at: 0 }));
    assert_eq!(put(2, if_version(7)), Ok(Written::Refused { at: 0 }));
    assert_eq!(put(2, if_version(1)), Ok(Written::All));
    assert_eq!(delete_if(&store, "k", if_version(1)), Ok(Written::Refused { at: 0 }));
    assert_eq!(get(&store, "k"), Ok(Some(record(2, b"v"))));
    assert_eq!(delete_if(&store, "k", if_version(2)), Ok(Written::All));
    assert_eq!(put(3, Condition::Absent), Ok(Written::All));
    // What has expired or was flushed is not there.
    let dead = Record { expires_unix_s: NOW_UNIX_S - 1, ..record(4, b"v") };
    assert_eq!(wait(&put_if(&store, "k", dead, Condition::Always)), Ok(Written::All));
    assert_eq!(put(5, Condition::Absent), Ok(Written::All));
    let next = StoreState { generation: Generation(1), ..StoreState::default() };
    assert_eq!(wait(&write_state(&store, next)), Ok(Written::All));
    assert_eq!(put(6, if_version(5)), Ok(Written::Refused { at: 0 }));
}

#[test]
fn operations_of_a_key_keep_their_order_and_a_flush_waits_for_them() {
    let store = open(&address());
    let mut outcomes = Vec::new();
    let mut reads = Vec::new();
    for at in 0..40_u64 {
        let key = format!("key{}", at % 4);
        outcomes.push(put_if(&store, &key, record(at + 1, b"v"), Condition::Always));
        reads.push(get_later(&store, &key));
    }
    let (done, flushed) = later();
    store.flush(done);
    assert_eq!(wait(&flushed), Ok(()));
    for outcome in outcomes {
        assert_eq!(outcome.try_recv().expect("it was waited for"), Ok(Written::All));
    }
    for (at, read) in reads.iter().enumerate() {
        let found = read.try_recv().expect("it was waited for").expect("a Cassandra that runs");
        assert_eq!(found.record, Some(record(at as u64 + 1, b"v")));
    }
}

#[test]
fn what_comes_after_a_state_waits_for_it() {
    let address = address();
    let store = open(&address);
    let state = |versions_reserved| StoreState { generation: Generation(3), flush_at_unix_s: 9, versions_reserved };
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut outcomes = Vec::new();
    for at in 0..6_u64 {
        let (sender, receiver) = mpsc::channel();
        let order = Arc::clone(&order);
        let done: Done<Written> = Box::new(move |outcome| {
            order.lock().expect("no panic").push(at);
            sender.send(outcome).expect("somebody waits");
        });
        // A state, an item, a state, an item...
        let write = match at % 2 {
            0 => Write::State(state(at)),
            _ => Write::Put {
                key: format!("key{at}").into_bytes().into(),
                record: record(at, b"v"),
                condition: Condition::Always,
            },
        };
        store.write(vec![write], done);
        outcomes.push(receiver);
    }
    outcomes.iter().for_each(|outcome| assert_eq!(wait(outcome), Ok(Written::All)));
    let order = order.lock().expect("no panic").clone();
    let place = |at: u64| order.iter().position(|other| *other == at).expect("it is there");
    assert!((1..6).step_by(2).all(|item| place(item) > place(item - 1)), "{order:?}");
    store.shut().expect("given up");
    assert_eq!(open(&address).state(), state(4));
}

#[test]
fn a_second_owner_is_refused_while_the_first_lives_and_fences_it_once_it_has_been_silent() {
    let address = address();
    let first = open(&address);
    assert_eq!((put(&first, "a", 1, b"old"), put(&first, "b", 1, b"old")), (Ok(Written::All), Ok(Written::All)));
    let refused = try_open(&address).expect_err("the first lives").to_string();
    assert!(refused.contains("is in use by process") && refused.contains("choose another keyspace"), "{refused}");
    // It goes on as if it had not heard that it gave the keyspace up: as one that was stopped, and whose lease has ended.
    let claim =
        first.handle.block_on(first.inside.tables.read_owner()).expect("a Cassandra that runs").expect("it is there").1;
    let given_up = first.inside.tables.renew(claim.epoch, claim.renewals, "");
    assert!(first.handle.block_on(given_up).expect("a Cassandra that runs"));
    let second = open(&address);
    assert_eq!(get(&second, "a"), Ok(Some(record(1, b"old"))));
    assert_eq!(put(&second, "b", 2, b"new"), Ok(Written::All));
    // Rows that the second has served or written are out of the first's reach.
    for key in ["a", "b"] {
        let error = put(&first, key, 9, b"late").expect_err("it is fenced");
        assert!(!error.unknown && error.told.contains("taken over"), "{error:?}");
    }
    assert!(!first.may_serve() && second.may_serve());
    assert!(get(&first, "c").is_err() && first.stats().read_only.is_some());
    assert_eq!((get(&second, "a"), get(&second, "b")), (Ok(Some(record(1, b"old"))), Ok(Some(record(2, b"new")))));
}

#[test]
fn what_an_owner_has_not_served_before_is_news() {
    let address = address();
    let store = open(&address);
    assert_eq!((is_news(&store, "a"), is_news(&store, "a")), (true, false), "an earlier owner may have it on its way");
    assert_eq!(put(&store, "b", 1, b"its own"), Ok(Written::All));
    assert!(!is_news(&store, "b"));
    store.shut().expect("given up");
    let store = open(&address);
    assert_eq!((is_news(&store, "b"), is_news(&store, "b")), (true, false));
}

/// A copy that a backend had on its way when it died came to be there once its successor had removed all that it found, and had the key deleted by then.
#[test]
fn what_was_written_before_a_fence_counts_for_nothing_whenever_it_comes() {
    let address = address();
    /// Has a write come now that an owner sent long ago.
    fn come_late(store: &CassandraStore, key: &str, epoch: i64) {
        let mut content = Vec::new();
        record::encode(&record(1, b"late").borrowed(), &mut content);
        let row = Row { stamp: Stamp { epoch: Epoch(epoch), serial: 0 }, content: Some(Content::from(content)) };
        let Inside { tables, .. } = &*store.inside;
        let asked = tables.ask(&tables.items, key.as_bytes(), Ask::Write { expected: None, row }, 0);
        assert_eq!(store.handle.block_on(asked).0, Heard::Applied, "{key}");
    }
    let store = open(&address);
    for key in ["a1", "b1"] {
        assert_eq!(put(&store, key, 1, b"old"), Ok(Written::All));
    }
    store.shut().expect("given up");
    let store = open(&address);
    let (done, fenced) = later();
    store.fence(vec![part_of(b"a"), part_of(b"c")], done);
    assert_eq!(wait(&fenced), Ok(()));
    // Of the owner before, and of this one.
    come_late(&store, "a2", 1);
    come_late(&store, "a3", 2);
    come_late(&store, "b2", 1);
    assert_eq!(put(&store, "a4", 2, b"new"), Ok(Written::All));
    assert_eq!(sorted(found(&store, Scan::ALL, usize::MAX)), ["a4", "b1", "b2"]);
    for key in ["a1", "a2", "a3"] {
        assert_eq!(get(&store, key), Ok(None), "{key}");
    }
    assert_eq!(get(&store, "b2"), Ok(Some(record(1, b"late"))));
    assert_eq!(put(&store, "a1", 3, b"new"), Ok(Written::All));
    store.shut().expect("given up");
    // The next owner heeds it, too.
    let store = open(&address);
    come_late(&store, "c1", 2);
    assert_eq!((get(&store, "c1"), get(&store, "a2")), (Ok(None), Ok(None)));
    assert_eq!((get(&store, "a1"), get(&store, "a4")), (Ok(Some(record(3, b"new"))), Ok(Some(record(2, b"new")))));
    assert_eq!(sorted(found(&store, Scan::ALL, usize::MAX)), ["a1", "a4", "b1", "b2"]);
    store.shut().expect("given up");
    let (done, refused) = later();
    store.fence(vec![part_of(b"a")], done);
    assert!(wait(&refused).expect_err("it is closed").told.contains("closed"));
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

#[test]
fn a_row_is_absent_once_its_end_has_come() {
    let store = open(&address());
    let table = &store.inside.tables.items;
    let ask = |ask, ttl_s| store.handle.block_on(store.inside.tables.ask(table, b"k", ask, ttl_s)).0;
    let row = |serial| Row { stamp: Stamp { epoch: Epoch(1), serial }, content: Some(Content::from(&b"c"[..])) };
    let write = |expected: Option<i64>, serial| Ask::Write {
        expected: expected.map(|serial| Stamp { epoch: Epoch(1), serial }),
        row: row(serial),
    };
    // For ever at first, then for a second: nothing of the first stays.
    assert_eq!(ask(write(None, 1), 0), Heard::Applied);
    assert_eq!(ask(write(None, 2), 0), Heard::NotApplied);
    assert_eq!(ask(write(Some(7), 2), 0), Heard::NotApplied);
    assert_eq!(ask(Ask::Read, 0), Heard::Row(Some(row(1))));
    assert_eq!(ask(write(Some(1), 2), 1), Heard::Applied);
    let give_up_at = Instant::now() + LONG;
    while ask(Ask::Read, 0) != Heard::Row(None) {
        assert!(Instant::now() < give_up_at, "it should have ended");
    }
    assert_eq!(ask(write(Some(2), 3), 0), Heard::NotApplied);
    assert_eq!(ask(write(None, 3), 0), Heard::Applied);
}

#[test]
fn a_scan_visits_all_that_is_asked_for() {
    let store = open(&address());
    // More than a page.
    let outcomes: Vec<_> =
        (0..600).map(|at| put_if(&store, &format!("key{at:03}"), record(at + 1, b"v"), Condition::Always)).collect();
    outcomes.iter().for_each(|outcome| assert_eq!(wait(outcome), Ok(Written::All)));
    assert_eq!(delete_if(&store, "key599", Condition::Always), Ok(Written::All));
    let scan = |what, len_max| {
        let mut found = found(&store, what, len_max);
        found.sort_unstable();
        found
    };
    assert_eq!(scan(Scan::ALL, usize::MAX), (0..599).map(|at| format!("key{at:03}")).collect::<Vec<_>>());
    assert_eq!(scan(Scan::ALL, 300).len(), 300);
    let range = Scan::Range { from: b"key100".to_vec(), to: Some(b"key103".to_vec()) };
    assert_eq!(scan(range, usize::MAX), ["key100", "key101", "key102"]);
    let all: usize = (0..=255).map(|at| scan_len(&store, HashPartition(at))).sum();
    assert_eq!(all, 599);
    let (pages_of_100, mut all) = (pages(&store, 100), pages(&store, 7));
    assert_eq!(pages_of_100, all, "the same order each time");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 599);
    // What is behind a key does not depend on whether that is there.
    let [after, next] = [300, 301].map(|at| &pages_of_100[at]);
    assert_eq!(delete_if(&store, after, Condition::Always), Ok(Written::All));
    assert_eq!(found(&store, behind(Some(after)), 1), [next.as_str()]);
}

fn behind(key: Option<&String>) -> Scan {
    Scan::Behind(key.map(|key| key.as_bytes().into()))
}

/// The keys that a scan shows, so many at most.
fn found(store: &CassandraStore, what: Scan, len_max: usize) -> Vec<String> {
    let (found, (done, outcome)) = (Arc::new(Mutex::new(Vec::new())), later());
    let to = Arc::clone(&found);
    let visit: Visit = Box::new(move |key, _| {
        let mut found = to.lock().expect("no panic");
        found.push(String::from_utf8(key.as_bytes().to_vec()).expect("text"));
        if found.len() < len_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    store.scan(what, visit, done);
    assert_eq!(wait(&outcome), Ok(()));
    found.lock().expect("no panic").clone()
}

/// All keys, as scans of so many show them, each behind the last one.
fn pages(store: &CassandraStore, len_max: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let more = found(store, behind(all.last()), len_max);
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

#[test]
fn one_that_waits_has_a_keyspace_once_its_owner_gives_it_up_or_is_not_to_wait_any_more() {
    let address = address();
    let options = options(&address);
    let asked = AtomicU32::new(0);
    // Nobody has ever had it: that one is to begin.
    let wait_a_little = || asked.fetch_add(1, Relaxed) < 3;
    assert!(CassandraStore::open_after(&options, wait_a_little).expect("a Cassandra that runs").is_none());
    let first = open(&address);
    assert_eq!(put(&first, "a", 1, b"old"), Ok(Written::All));
    asked.store(0, Relaxed);
    assert!(CassandraStore::open_after(&options, wait_a_little).expect("a Cassandra that runs").is_none());
    assert!(first.may_serve() && !first.was_followed());
    // It lives for longer than who may not wait waits.
    asked.store(0, Relaxed);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let count = || {
                asked.fetch_add(1, Relaxed);
                true
            };
            CassandraStore::open_after(&options, count).expect("a Cassandra that runs").expect("it waits")
        });
        let give_up_at = Instant::now() + LONG;
        while asked.load(Relaxed) < 12 {
            assert!(!second.is_finished() && Instant::now() < give_up_at, "it waits");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        first.shut().expect("given up");
        assert_eq!(get(&second.join().expect("it is there"), "a"), Ok(Some(record(1, b"old"))));
    });
}

fn scan_len(store: &CassandraStore, partition: HashPartition) -> usize {
    let (count, (done, outcome)) = (Arc::new(AtomicU32::new(0)), later());
    let to = Arc::clone(&count);
    let visit: Visit = Box::new(move |key, _| {
        assert_eq!(crate::hash_partition(key.as_bytes()), partition);
        to.fetch_add(1, Relaxed);
        ControlFlow::Continue(())
    });
    store.scan(Scan::Partition(partition), visit, done);
    assert_eq!(wait(&outcome), Ok(()));
    count.load(Relaxed) as usize
}

#[test]
fn what_it_cannot_do_is_refused_in_words() {
    let store = open(&address());
    let put = |key: &[u8]| Write::Put { key: key.into(), record: record(1, b"v"), condition: Condition::Always };
    let (done, outcome) = later();
    store.write(vec![put(b"a"), put(b"b")], done);
    assert!(wait(&outcome).expect_err("two rows").told.contains("one record at a time"));
    let (done, outcome) = later();
    store.write(Vec::new(), done);
    assert_eq!(wait(&outcome), Ok(Written::All));
    let huge = record(1, &vec![0; RECORD_LEN_MAX]);
    assert!(wait(&put_if(&store, "huge", huge, Condition::Always)).expect_err("too large").told.contains("larger"));
    let (done, outcome) = later();
    store.snapshot("/nowhere".into(), done);
    assert!(wait(&outcome).expect_err("it has none").told.contains("nodetool snapshot"));
}

#[test]
fn one_that_cannot_be_reached_or_is_not_ours_is_told() {
    let nowhere: CassandraAddress = "127.0.0.1:1".parse().expect("an address");
    assert!(try_open(&nowhere).expect_err("nobody listens").to_string().contains("cannot be reached"));
    let address = address();
    let store = open(&address);
    let keyspace = &address.keyspace;
    store.shut().expect("given up");
    let runtime = Builder::new_current_thread().enable_all().build().expect("threads");
    runtime.block_on(async {
        let tables = Tables::open(&address).await.expect("a Cassandra that runs");
        tables.say(&format!("UPDATE {keyspace}.owner SET format = 9 WHERE id = 0 IF EXISTS")).await;
    });
    let told = try_open(&address).expect_err("of the future").to_string();
    assert!(told.contains("is of format 9"), "{told}");
}
