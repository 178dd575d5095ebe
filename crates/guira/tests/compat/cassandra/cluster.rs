//! Backends before a Cassandra, and others that stand by: what one had that is killed, asleep or stopped is another's, and what clients saw can have been
//! so; and what lies there and is another's goes when that is wanted.

use std::{net::SocketAddr, path::Path, thread};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    book::{Book, CLIENTS, KEYS, check_key, read_at_last, work_until_killed},
    cassandra_nodes::{shared, store},
    cluster::{
        kept::{Cluster, answers, fill, local, member},
        rising::Rising,
    },
    condition::wait_for,
    connection::Connection,
    server::{Process, Program, Server, free_port},
};

/// Answers between one event and the next: each change is a transaction or two.
const ACTS: u64 = 200;

/// Answers about each key after a backend was followed.
const ACTS_OF_A_KEY: u64 = 5;

/// Keys beside those that clients work with, so that each backend has many.
const KEYS_AT_REST: usize = 400;

fn store_of(_: &Path, backend: u16) -> String {
    store(&format!("backend_{backend}"))
}

/// The same, of the cluster that is cleaned up.
fn cleaned_store_of(_: &Path, backend: u16) -> String {
    store(&format!("cleaned_{backend}"))
}

/// One that stands by for a backend in whose keyspace no other has been.
fn standby(id: u16, of: u16) -> String {
    let store = store_of(Path::new(""), of);
    member(id, "backend", &format!("store = \"{store}\"\nstandby_of = {of}"))
}

/// Waits until a backend has all that another had, which is no member any more.
#[track_caller]
fn wait_until_followed(cluster: &Cluster, by: u16, of: u16) {
    wait_for("another has what it had", || {
        let has = cluster.member(by)?["partitions"].as_u64()?;
        (has > 0 && cluster.member(of).is_none()).then_some(())
    });
}

#[track_caller]
fn all_is_there(address: SocketAddr) {
    let mut client = Connection::open(address);
    for key in 0..KEYS_AT_REST {
        let seen = client.ask(format!("get at_rest{key}\r\n").as_bytes(), b"END\r\n");
        assert_eq!(String::from_utf8_lossy(&seen), format!("VALUE at_rest{key} 0 8\r\n{key:08}\r\nEND\r\n"));
    }
}

/// What goes wrong with the backends, one after the other, while clients are at work.
fn go_wrong(cluster: &mut Cluster, book: &Book) {
    book.wait_for_acts(ACTS);
    wait_for("the cache node serves", || (cluster.hits(100) > 0).then_some(()));

    // Who stands by for one that lives has nothing, and waits.
    cluster.add(1_002, &standby(1_002, 1_000));
    wait_for("it is alive", || cluster.alive().contains(&1_002).then_some(()));
    let told = cluster.member(1_002).expect("it is there");
    assert_eq!((&told["standby_of"], &told["partitions"]), (&Value::from(1_000), &Value::Null));
    book.wait_for_acts(ACTS);

    // One is killed, and nobody starts it again.
    cluster.processes[&1_000].signal(Signal::KILL);
    wait_until_followed(cluster, 1_002, 1_000);
    book.wait_for_acts_with_each_key(ACTS_OF_A_KEY);
    cluster.processes.get_mut(&1_000).expect("it ran").wait();
    let ended = Process::start(cluster.node(1_000)).end();
    assert!(!ended.status.success() && ended.stderr.contains("has no such member"), "{}", ended.stderr);

    // One is asleep, and answers nothing old when it wakes up.
    cluster.add(1_003, &standby(1_003, 1_001));
    wait_for("it is alive", || cluster.alive().contains(&1_003).then_some(()));
    cluster.processes[&1_001].freeze();
    wait_until_followed(cluster, 1_003, 1_001);
    book.wait_for_acts_with_each_key(ACTS_OF_A_KEY);
    cluster.processes[&1_001].signal(Signal::CONT);
    let ended = cluster.processes.remove(&1_001).expect("it ran").end();
    let is_told = |text: &str| ended.stderr.contains(text);
    assert!(is_told("has taken over the store") || is_told("is not in the cluster any more"), "{}", ended.stderr);
    book.wait_for_acts(ACTS);

    // One is stopped: who stands by, once another's, need not wait.
    let first_again = cluster.backend(1_000) + "standby_of = 1002\n";
    cluster.add(1_000, &first_again);
    wait_for("it is alive", || cluster.alive().contains(&1_000).then_some(()));
    cluster.processes[&1_002].signal(Signal::TERM);
    wait_until_followed(cluster, 1_000, 1_002);
    assert!(cluster.processes.remove(&1_002).expect("it ran").wait().success());
    book.wait_for_acts_with_each_key(ACTS_OF_A_KEY);

    // One that comes is given its part by those that there are now.
    let fourth = cluster.backend(1_004);
    cluster.add(1_004, &fourth);
    wait_for("partitions have moved", || {
        let told = cluster.member(1_004)?;
        (told["partitions"].as_u64()? > 5_000 && told["partitions"] == told["partitions_wanted"]).then_some(())
    });
    book.wait_for_acts_with_each_key(ACTS_OF_A_KEY);
}

#[test]
fn what_a_backend_had_is_anothers_and_all_answers_can_have_been_so() {
    let _nodes = shared();
    let listen = local(free_port());
    let mut cluster = Cluster::start_on(listen, store_of);
    answers(listen);
    fill(listen, "at_rest", KEYS_AT_REST);
    let book = Book::of_a_cluster();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (connection, book) = (Connection::open(listen), &book);
            scope.spawn(move || work_until_killed(connection, book, 1 + client as u64));
        }
        // Clients end with the gateway, even if this panics.
        let working = Working(&mut cluster);
        go_wrong(working.0, &book);
    });
    book.nothing_is_under_way();
    cluster.begins(10_000);
    answers(listen);
    all_is_there(listen);
    let mut client = Connection::open(listen);
    for key in 0..KEYS {
        check_key(&Rising, key, &read_at_last(&book, &mut client, key));
    }
}

/// Does something with what lies in a keyspace that nobody has meanwhile, by a server of its own.
fn alone_with<T>(store: &str, act: impl FnOnce(&mut Connection) -> T) -> T {
    let mut server = Server::start(Program::Guira, &["--store", store]);
    let done = act(&mut server.connect());
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success());
    done
}

/// The keys at rest that are there.
fn at_rest(client: &mut Connection) -> Vec<usize> {
    let is_there = |key: &usize| client.ask(format!("get at_rest{key}\r\n").as_bytes(), b"END\r\n") != b"END\r\n";
    (0..KEYS_AT_REST).filter(is_there).collect()
}

/// Others' keys are put there, as a life leaves them that is killed in a move.
#[test]
fn what_lies_in_a_keyspace_and_is_anothers_is_removed_when_that_is_wanted() {
    let _nodes = shared();
    let listen = local(free_port());
    let mut cluster = Cluster::start_on(listen, cleaned_store_of);
    answers(listen);
    fill(listen, "at_rest", KEYS_AT_REST);
    cluster.stops(1_000);
    let store = cleaned_store_of(Path::new(""), 1_000);
    let own = alone_with(&store, |client| {
        let own = at_rest(client);
        for key in (0..KEYS_AT_REST).filter(|key| !own.contains(key)) {
            client.expect(format!("set at_rest{key} 0 0 4\r\nleft\r\n").as_bytes(), b"STORED\r\n");
        }
        own
    });
    assert!(!own.is_empty() && own.len() < KEYS_AT_REST, "{own:?}");

    let is_clean = |cluster: &Cluster| {
        let status = cluster.status(1_000)?;
        (status["serves"] == true && status["partitions_unclear"] == 0).then_some(())
    };
    cluster.begins(1_000);
    wait_for("it serves", || is_clean(&cluster));
    all_is_there(listen);
    cluster.stops(1_000);
    assert_eq!(alone_with(&store, at_rest).len(), KEYS_AT_REST, "nobody has wanted that");

    cluster.begins_and_cleans_up(1_000);
    wait_for("it is cleaned up", || is_clean(&cluster));
    all_is_there(listen);
    cluster.stops(1_000);
    assert_eq!(alone_with(&store, at_rest), own);
}

/// A cluster whose clients end when this does.
struct Working<'c>(&'c mut Cluster);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if let Some(mut gateway) = self.0.processes.remove(&10_000) {
            gateway.signal(Signal::KILL);
            gateway.wait();
        }
    }
}
