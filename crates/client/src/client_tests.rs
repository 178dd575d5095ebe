//! A whole cluster over sockets and threads, asked by clients.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use guira_item::{KeyError, Span};
use guira_persist::{Fault, MemoryStore};
use guira_switched::{
    backend::HotConfig,
    hash_of,
    host::{GatewayHost, GatewayStatus, LocalCluster, LocalConfig},
};

use super::*;

/// Long enough for a busy machine: it ends a test that would fail anyway.
const PATIENCE: Duration = Duration::from_secs(60);

const MINUTE: Duration = Duration::from_secs(60);

/// How long an answer is waited for where a test has to wait for the end of it.
const SHORT_MS: u64 = 1_000;

fn status(client: &Client) -> GatewayStatus {
    client.0.running.with(GatewayHost::status).flatten().expect("it runs")
}

fn value(item: Result<Option<Item>, Error>) -> Option<Vec<u8>> {
    item.expect("an answer").map(|item| item.value.to_vec())
}

/// Waits for what another thread brings about.
fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come about");
        thread::yield_now();
    }
}

type Cluster = LocalCluster<MemoryStore>;

/// A cluster with a backend for each store, whose only gateways are clients; who waits for an answer waits for so long.
fn start(answer_within_ms: u64, stores: &[Arc<MemoryStore>]) -> Cluster {
    let config = LocalConfig {
        backends: stores.len(),
        gateways: 0,
        clients: 2,
        // Keys become hot soon.
        hot: HotConfig { segment: Span::from_ms(100), ..HotConfig::default() },
        answer_within: Span::from_ms(answer_within_ms),
        ..LocalConfig::default()
    };
    LocalCluster::start(config, |at| Arc::clone(&stores[at])).expect("a cluster")
}

/// One as it is for most tests: two backends that answer at once.
fn quick() -> Cluster {
    start(30_000, &[Arc::default(), Arc::default()])
}

fn next_client(cluster: &mut Cluster) -> Client {
    let (me, transport) = cluster.next_client().expect("few are wanted");
    Client::on(transport, cluster.file(), me, &ClientOptions::default()).expect("a client")
}

/// Gives up the sockets of the next client: which that is.
fn freed(cluster: &mut Cluster) -> NodeId {
    cluster.next_client().expect("few are wanted").0
}

/// A cluster of one backend, which holds what its store is asked from now on.
fn holding(answer_within_ms: u64) -> (Cluster, Arc<MemoryStore>) {
    let held = Arc::new(MemoryStore::holding());
    let cluster = start(answer_within_ms, &[Arc::clone(&held)]);
    // It reserves versions first.
    until(|| held.held().1 == 1);
    held.complete_write(Fault::None);
    (cluster, held)
}

/// Completes what a store holds, and what it comes to hold, until `is_over`.
fn serve(held: &MemoryStore, is_over: impl Fn() -> bool) {
    until(|| {
        match held.held() {
            (0, 0) => thread::yield_now(),
            (0, _) => held.complete_write(Fault::None),
            (_, _) => held.complete_read(0, Fault::None),
        }
        is_over()
    });
}

#[test]
fn every_operation_does_what_it_says() {
    let mut cluster = quick();
    let client = next_client(&mut cluster);
    assert_eq!(client.get("k"), Ok(None));
    assert_eq!(client.replace("k", "x"), Ok(None));
    assert_eq!(client.append("k", "x"), Ok(None));
    assert_eq!(client.compare_and_set("k", Version(1), "x"), Ok(Compared::NotFound));
    let first = client.add("k", Value::of("one").with_flags(7)).expect("an answer").expect("it is added");
    assert_eq!(client.add("k", "x"), Ok(None));
    let item = client.get("k").expect("an answer").expect("it is there");
    assert_eq!((&*item.value, item.flags, item.version), (&b"one"[..], 7, first));
    client.append("k", " two").expect("an answer").expect("it is appended");
    client.prepend("k", b"zero ").expect("an answer").expect("it is prepended");
    let item = client.get("k").expect("an answer").expect("it is there");
    assert_eq!((&*item.value, item.flags), (&b"zero one two"[..], 7));
    assert!(item.version > first);
    assert_eq!(client.compare_and_set("k", first, "x"), Ok(Compared::Changed));
    let Ok(Compared::Stored(second)) = client.compare_and_set("k", item.version, "three") else {
        panic!("nobody has changed it");
    };
    assert_eq!(client.compare_and_set("k", item.version, "x"), Ok(Compared::Changed));
    assert!(client.replace("k", "four").expect("an answer").expect("it is replaced") > second);
    assert_eq!(value(client.get("k")).as_deref(), Some(&b"four"[..]));
    assert_eq!((client.delete("k"), client.delete("k"), client.get("k")), (Ok(true), Ok(false), Ok(None)));

    assert_eq!((client.increment("n", 1), client.decrement("n", 1)), (Ok(None), Ok(None)));
    client.set("n", "10").expect("it is stored");
    assert_eq!((client.increment("n", 5), client.decrement("n", 20)), (Ok(Some(15)), Ok(Some(0))));
    client.set("n", u64::MAX.to_string().as_str()).expect("it is stored");
    assert_eq!(client.increment("n", 2), Ok(Some(1)));
    client.set("text", "ten").expect("it is stored");
    assert_eq!(client.increment("text", 1), Err(Error::NotANumber));

    client.set("empty", "").expect("it is stored");
    assert_eq!(value(client.get("empty")), Some(Vec::new()));
    let any: Vec<u8> = (0..=249).collect();
    client.set(&any, &any).expect("it is stored");
    assert_eq!(value(client.get(&any)), Some(any));
    assert_eq!(client.flush_all(), Ok(()));
    assert_eq!((client.get("n"), client.get("empty")), (Ok(None), Ok(None)));
    assert!(client.set("n", "1").is_ok());
}

#[test]
fn items_end_when_they_were_told_to() {
    let store = Arc::new(MemoryStore::default());
    let mut cluster = start(30_000, &[Arc::clone(&store)]);
    let client = next_client(&mut cluster);
    let ends_in = |key: &str| {
        let end = store.record(key.as_bytes()).expect("it is there").expires_unix_s;
        (end > 0).then(|| end - unix_now().as_secs())
    };
    // A minute ago a machine may have begun to be busy: what is left is not looked at to the second.
    let is_about =
        |left: Option<u64>, minutes: u64| left.is_some_and(|s| (60 * minutes - 59..=60 * minutes).contains(&s));
    client.set("k", Value::of("v").ending_in(3 * MINUTE)).expect("it is stored");
    assert!(is_about(ends_in("k"), 3));
    assert_eq!(client.touch("k", Expires::In(6 * MINUTE)), Ok(true));
    assert!(is_about(ends_in("k"), 6));
    assert_eq!(value(client.get_and_touch("k", Expires::In(9 * MINUTE))).as_deref(), Some(&b"v"[..]));
    assert!(is_about(ends_in("k"), 9));
    client.append("k", "w").expect("an answer").expect("it is appended");
    assert!(is_about(ends_in("k"), 9));
    assert_eq!(client.touch("k", Expires::Never), Ok(true));
    assert_eq!(ends_in("k"), None);
    assert_eq!(client.touch("k", Expires::In(Duration::ZERO)), Ok(true));
    assert_eq!(client.get("k"), Ok(None));
    assert_eq!(client.touch("k", Expires::Never), Ok(false));
    assert_eq!(client.get_and_touch("k", Expires::Never), Ok(None));
    client.set("k", Value::of("v").ending_in(Duration::ZERO)).expect("it is stored");
    assert_eq!(client.get("k"), Ok(None));
}

#[test]
fn what_cannot_be_asked_is_told_in_its_place() {
    let mut cluster = quick();
    let (client, max) = (next_client(&mut cluster), cluster.file().item_len_max);
    let long_key = [b'k'; 251];
    let empty = Err(Error::KeyInvalid(KeyError::Empty));
    let too_long = Err(Error::KeyInvalid(KeyError::TooLong { len: 251 }));
    assert_eq!((client.get(""), client.get(long_key)), (empty.clone(), too_long));
    let whole = vec![1; max - 1];
    client.set("k", &whole).expect("it just fits");
    assert_eq!(client.set("kk", &whole), Err(Error::TooLarge { len: max + 1, max }));
    // With what is there.
    assert_eq!(client.append("k", "x"), Err(Error::TooLarge { len: 2, max }));
    let asks = [Ask::set("a", "1"), Ask::get(""), Ask::set("kk", &whole), Ask::get("k"), Ask::delete("none")];
    let outcomes = client.batch(asks);
    assert!(matches!(outcomes[0], Ok(Outcome::Stored(_))));
    assert_eq!(outcomes[1], Err(Error::KeyInvalid(KeyError::Empty)));
    assert_eq!(outcomes[2], Err(Error::TooLarge { len: max + 1, max }));
    assert!(matches!(&outcomes[3], Ok(Outcome::Found(item)) if *item.value == *whole));
    assert_eq!(outcomes[4], Ok(Outcome::NotFound));
    assert_eq!(client.batch([]), []);
    assert_eq!(client.get_many(&[""]), [empty]);
    let errors = [
        Error::KeyInvalid(KeyError::Empty),
        Error::KeyInvalid(KeyError::TooLong { len: 251 }),
        Error::TooLarge { len: 9, max: 8 },
        Error::TooLarge { len: 2, max: 8 },
        Error::NotANumber,
        Error::Refused,
        Error::Busy,
        Error::Away,
        Error::Unknown,
        Error::Closed,
    ];
    let told: BTreeSet<String> = errors.iter().map(Error::to_string).collect();
    assert_eq!(told.len(), errors.len(), "each is told in its own way");
    assert!(told.iter().all(|line| !line.contains('\n')));
}

#[test]
fn more_than_may_be_under_way_is_answered_in_its_order() {
    let mut cluster = quick();
    let client = next_client(&mut cluster);
    let names: Vec<String> = (0..10_000).map(|at| format!("key{at}")).collect();
    let stored = client.batch(names.iter().map(|name| Ask::set(name, name)));
    assert!(stored.iter().all(|outcome| matches!(outcome, Ok(Outcome::Stored(_)))));
    // With some between them that are not there.
    let asked: Vec<&str> = names.iter().flat_map(|name| [name, "none"]).collect();
    let items = client.get_many(&asked);
    assert_eq!(items.len(), asked.len());
    for (item, name) in items.into_iter().zip(asked) {
        assert_eq!(value(item), (name != "none").then(|| name.as_bytes().to_vec()));
    }
    assert_eq!(status(&client).counts.refused, 0);
}

#[test]
fn many_long_values_wait_for_room_and_none_is_refused() {
    const COUNT: usize = 90;
    let mut cluster = start(60_000, &[Arc::default()]);
    let client = next_client(&mut cluster);
    let names: Vec<String> = (0..COUNT).map(|at| format!("key{at}")).collect();
    // All of them are longer than one backend takes at a time.
    let values: Vec<Vec<u8>> = names.iter().zip(0..).map(|(name, at)| vec![at; (1 << 20) - name.len()]).collect();
    let stored = client.batch(names.iter().zip(&values).map(|(name, value)| Ask::set(name, value)));
    assert!(stored.iter().all(|outcome| matches!(outcome, Ok(Outcome::Stored(_)))));
    for (item, expected) in client.get_many(&names).into_iter().zip(values) {
        assert!(value(item) == Some(expected));
    }
    assert_eq!(status(&client).counts.refused, 0);
}

#[test]
fn threads_share_a_client() {
    const THREADS: usize = 8;
    const ROUNDS: u64 = 200;
    let mut cluster = quick();
    let (client, other) = (next_client(&mut cluster), next_client(&mut cluster));
    client.set("shared", "0").expect("it is stored");
    thread::scope(|scope| {
        for at in 0..THREADS {
            let client = if at % 2 == 0 { client.clone() } else { other.clone() };
            scope.spawn(move || {
                let mine = format!("thread{at}");
                for round in 0..ROUNDS {
                    let bytes = round.to_le_bytes();
                    let outcomes = client.batch([Ask::increment("shared", 1), Ask::set(&mine, &bytes)]);
                    assert!(matches!(outcomes[..], [Ok(Outcome::Number(_)), Ok(Outcome::Stored(_))]), "{outcomes:?}");
                    assert_eq!(value(client.get(&mine)).as_deref(), Some(&bytes[..]));
                }
            });
        }
    });
    assert_eq!(client.increment("shared", 0), Ok(Some(THREADS as u64 * ROUNDS)));
}

#[test]
fn a_hot_key_is_asked_of_its_cache_node_and_a_change_is_seen_at_once() {
    let mut cluster = quick();
    let (writer, reader) = (next_client(&mut cluster), next_client(&mut cluster));
    writer.set("hot", "0").expect("it is stored");
    let hits = || cluster.status().caches[0].as_ref().expect("it runs").counts.hits;
    until(|| {
        assert!(reader.get_many(&["hot"; 100]).iter().all(Result::is_ok));
        hits() >= 100
    });
    assert!(status(&reader).counts.to_caches > 0);
    for round in 1..=100u32 {
        let round = round.to_string();
        writer.set("hot", &round).expect("it is stored");
        for client in [&reader, &writer] {
            assert_eq!(value(client.get("hot")).as_deref(), Some(round.as_bytes()));
        }
    }
}

/// A key of the backend of that number.
fn key_of(cluster: &Cluster, backend: usize) -> String {
    let partitions = cluster.file().partitions().expect("there are backends");
    let owner = cluster.file().backends()[backend];
    let mut keys = (0..).map(|at| format!("key{at}"));
    keys.find(|key| partitions.owner_of(hash_of(key.as_bytes())) == owner).expect("it has keys")
}

#[test]
fn a_backend_that_is_gone_leaves_changes_of_its_keys_unknown_and_is_told_to_be_away() {
    let mut cluster = start(SHORT_MS, &[Arc::default(), Arc::default()]);
    let client = next_client(&mut cluster);
    let (here, gone) = (key_of(&cluster, 0), key_of(&cluster, 1));
    // They have met.
    until(|| client.set(&gone, "1").is_ok() && client.set(&here, "1").is_ok());
    cluster.stop_backend(1).expect("it ran");
    let outcomes = client.batch([Ask::increment(&gone, 1), Ask::get(&gone), Ask::touch(&gone, Expires::Never)]);
    assert_eq!(outcomes, [Err(Error::Unknown), Err(Error::Away), Err(Error::Away)], "what is behind was not asked for");
    assert_eq!(client.flush_all(), Err(Error::Unknown));
    // Who has never met it has asked it for nothing.
    let other = next_client(&mut cluster);
    assert_eq!(other.set(&gone, "1"), Err(Error::Away));
    until(|| other.set(&here, "1").is_ok());
}

#[test]
fn a_store_that_fails_is_told_as_what_it_says() {
    let (mut cluster, held) = holding(30_000);
    let client = next_client(&mut cluster);
    let set_with = |fault| {
        thread::scope(|scope| {
            let asks = scope.spawn(|| client.set("k", "v"));
            until(|| held.held().1 == 1);
            held.complete_write(fault);
            asks.join().expect("it is answered")
        })
    };
    assert_eq!(set_with(Fault::Refused), Err(Error::Refused));
    assert_eq!(set_with(Fault::UnknownDone), Err(Error::Unknown));
    let read = thread::scope(|scope| {
        let asks = scope.spawn(|| client.get("other"));
        until(|| held.held().0 == 1);
        held.complete_read(0, Fault::Refused);
        asks.join().expect("it is answered")
    });
    assert_eq!(read, Err(Error::Refused));
}

#[test]
fn who_waits_when_a_client_is_closed_is_told_so() {
    let (mut cluster, held) = holding(30_000);
    let client = next_client(&mut cluster);
    thread::scope(|scope| {
        let changes = scope.spawn(|| client.set("k", "v"));
        let reads = scope.spawn(|| client.get_many(&["r"]));
        until(|| held.held() == (1, 1));
        let both = client.clone();
        both.close();
        assert_eq!(changes.join().expect("it is answered"), Err(Error::Unknown));
        assert_eq!(reads.join().expect("it is answered"), [Err(Error::Closed)]);
    });
    assert_eq!((client.set("k", "v"), client.get("k")), (Err(Error::Closed), Err(Error::Closed)));
    assert_eq!(client.flush_all(), Err(Error::Closed));
    assert_eq!(client.get(""), Err(Error::KeyInvalid(KeyError::Empty)));
    client.close();
}

#[test]
fn who_waits_for_room_when_a_client_is_closed_is_told_so() {
    const COUNT: usize = 5_000;
    let (mut cluster, held) = holding(30_000);
    let client = next_client(&mut cluster);
    let names: Vec<String> = (0..COUNT).map(|at| format!("key{at}")).collect();
    thread::scope(|scope| {
        let asks = scope.spawn(|| client.batch(names.iter().map(|name| Ask::set(name, "v"))));
        until(|| status(&client).pending == 4_096);
        until(|| held.held().1 > 0);
        client.close();
        let outcomes = asks.join().expect("all are answered");
        assert_eq!(outcomes.len(), COUNT);
        assert!(outcomes[..4_096].iter().all(|outcome| matches!(outcome, Err(Error::Unknown | Error::Closed))));
        assert!(outcomes[4_096..].iter().all(|outcome| *outcome == Err(Error::Closed)));
    });
}

#[test]
fn a_clone_that_is_dropped_while_another_waits_ends_nothing() {
    let (mut cluster, held) = holding(30_000);
    let client = next_client(&mut cluster);
    let clone = client.clone();
    let is_answered = AtomicBool::new(false);
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let outcome = clone.set("k", "v").map(drop);
            is_answered.store(true, Relaxed);
            outcome
        });
        until(|| held.held().1 == 1);
        drop(client);
        serve(&held, || is_answered.load(Relaxed));
        assert_eq!(asks.join().expect("it is answered"), Ok(()));
    });
}

#[test]
fn a_member_is_one_client_at_a_time_and_comes_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ClientOptions { life_file: Some(folder.path().join("life")) };
    let mut cluster = quick();
    let me = freed(&mut cluster);
    let connect = || Client::connect(cluster.file(), me, &options);
    let life = || fs::read_to_string(folder.path().join("life")).expect("it is kept").trim().parse::<u64>();
    let first = connect().expect("its address is free");
    first.set("k", "v").expect("it is stored");
    let first_life = life().expect("a number");
    assert!(matches!(connect(), Err(ConnectError::Address(..))));
    first.close();
    // Closed, and not yet dropped.
    let second = connect().expect("its address is free again");
    assert_eq!(value(second.get("k")).as_deref(), Some(&b"v"[..]));
    assert!(life().expect("a number") > first_life);
    drop((first, second));
    assert_eq!(value(connect().expect("its address is free again").get("k")).as_deref(), Some(&b"v"[..]));
}

#[test]
fn who_cannot_be_a_member_is_told_why_in_one_line() {
    let mut cluster = quick();
    let me = freed(&mut cluster);
    let connect = |file: &StaticFile, me, options: &ClientOptions| match Client::connect(file, me, options) {
        Ok(_) => panic!("nobody may be that"),
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            error
        }
    };
    let none = ClientOptions::default();
    let backend = cluster.file().backends()[0];
    for nobody in [NodeId(9), backend] {
        assert!(matches!(connect(cluster.file(), nobody, &none), ConnectError::NoGateway(told) if told == nobody));
    }
    let short = StaticFile { secret: "short".into(), ..cluster.file().clone() };
    assert!(matches!(connect(&short, me, &none), ConnectError::File(_)));
    let folder = tempfile::tempdir().expect("a folder");
    let life_file = folder.path().join("life");
    fs::write(&life_file, "soon").expect("it is written");
    let options = ClientOptions { life_file: Some(life_file) };
    assert!(matches!(connect(cluster.file(), me, &options), ConnectError::Life(_)));
}

#[test]
fn clients_go_from_thread_to_thread() {
    fn may_go<T: Clone + Send + Sync + 'static>() {}
    may_go::<Client>();
}
