//! A cluster whose backends come and go while clients are answered: what they have goes with them, whoever is killed.

use std::{fmt::Write, fs, net::SocketAddr, path::Path, thread};

use rustix::process::Signal;

use super::kept::{Clients, Cluster, Over, answers, fill, local};
use crate::{
    condition::wait_for,
    connection::Connection,
    server::{Process, free_port},
};

/// Keys that lie there, and those of them that are taken away again.
const KEYS: usize = 2_000;
const TAKEN_AWAY: usize = 200;

/// Keys that clients work with.
const HOT: [&str; 4] = ["hot", "warm", "mild", "cool"];

/// What is there, as it is to be: without the keys that were taken away.
fn expected(taken_away: usize) -> String {
    (taken_away..KEYS).fold(String::new(), |mut all, key| {
        write!(all, "VALUE key{key} 0 8\r\n{key:08}\r\n").expect("text");
        all
    })
}

/// Each key is as it was left.
#[track_caller]
fn all_is_there(address: SocketAddr, taken_away: usize) {
    let mut client = Connection::open(address);
    let seen = (0..KEYS).fold(String::new(), |all, key| {
        let seen = client.ask(format!("get key{key}\r\n").as_bytes(), b"END\r\n");
        all + String::from_utf8_lossy(&seen).trim_end_matches("END\r\n")
    });
    assert!(seen == expected(taken_away), "{}", seen.len());
}

/// A backend's partitions, as they are and as they are to be.
fn partitions(cluster: &Cluster, id: u16) -> Option<(u64, u64)> {
    let member = cluster.member(id)?;
    Some((member["partitions"].as_u64()?, member["partitions_wanted"].as_u64()?))
}

/// All have what they are to have, of which somebody has so much.
#[track_caller]
fn wait_until_moved(cluster: &Cluster, backends: &[u16], id: u16, has: impl Fn(u64) -> bool) {
    wait_for("partitions have moved", || {
        let all = backends.iter().all(|id| partitions(cluster, *id).is_some_and(|(is, wanted)| is == wanted));
        (all && partitions(cluster, id).is_some_and(|(is, _)| has(is))).then_some(())
    });
}

#[test]
fn backends_come_go_and_are_killed_and_all_that_they_have_is_there() {
    let listen = local(free_port());
    let mut cluster = Cluster::start(listen);
    answers(listen);
    fill(listen, "key", KEYS);
    let third = cluster.backend(1_002);
    let clients = HOT.map(|key| Clients::of(key, listen));
    let none_is = |is: u64| is == 0;
    let a_third_is = |is: u64| is > 5_000;
    thread::scope(|scope| {
        let over = clients.each_ref().map(|clients| Over(&clients.is_over));
        for clients in &clients {
            scope.spawn(|| clients.write(listen));
            scope.spawn(|| clients.read(listen));
        }
        let some_more = || clients.iter().for_each(Clients::some_more);
        some_more();

        // One comes, and has its share, with the flush_all that the others have to come.
        assert_eq!(Connection::open(listen).ask(b"flush_all 86400\r\n", b"\r\n"), b"OK\r\n");
        cluster.add(1_002, &third);
        wait_until_moved(&cluster, &[1_000, 1_001, 1_002], 1_002, a_third_is);
        all_is_there(listen, 0);
        some_more();

        // One goes, once others have what it had.
        let told = cluster.says("remove", &["1000"]);
        assert!(told.contains("member 1000 gives its"), "{told}");
        wait_until_moved(&cluster, &[1_000, 1_001, 1_002], 1_000, none_is);
        cluster.remove(1_000);
        all_is_there(listen, 0);
        some_more();

        // Nothing is noticed of an etcd that is away, but that nothing moves.
        cluster.etcds[0].kill();
        some_more();
        cluster.etcds[0].start_again();
        drop(over);
    });

    // What is taken away while it has nothing is not there when it is back with what it once had.
    let mut client = Connection::open(listen);
    for key in 0..TAKEN_AWAY {
        assert_eq!(client.ask(format!("delete key{key}\r\n").as_bytes(), b"\r\n"), b"DELETED\r\n");
    }
    // Who gives is killed meanwhile, and who takes is.
    let first = cluster.backend(1_000);
    cluster.add(1_000, &first);
    for id in [1_001, 1_000, 1_002] {
        cluster.processes[&id].signal(Signal::KILL);
        cluster.processes.get_mut(&id).expect("it ran").wait();
        cluster.begins(id);
    }
    wait_until_moved(&cluster, &[1_000, 1_001, 1_002], 1_000, a_third_is);
    let is_answered = |key: &str| {
        let mut client = Connection::open(listen);
        (!client.ask(format!("get {key}\r\n").as_bytes(), b"\r\n").starts_with(b"SERVER_ERROR")).then_some(())
    };
    (0..KEYS).for_each(|key| wait_for("it is answered", || is_answered(&format!("key{key}"))));
    all_is_there(listen, TAKEN_AWAY);
    assert_eq!(Connection::open(listen).ask(b"flush_all\r\n", b"\r\n"), b"OK\r\n");
    all_is_there(listen, KEYS);

    // Who is not there any more does not begin.
    assert!(cluster.says("remove", &["1002"]).contains("gives its"));
    wait_until_moved(&cluster, &[1_000, 1_001, 1_002], 1_002, none_is);
    cluster.remove(1_002);
    let ended = Process::start(cluster.node(1_002)).end();
    assert!(!ended.status.success() && ended.stderr.contains("has no such member"), "{}", ended.stderr);
}

/// A life that is killed before it has removed what it has given leaves that, as one whose store is an earlier copy of itself does. It stays, until somebody has it removed.
#[test]
fn what_a_life_has_left_of_others_keys_is_removed_when_that_is_wanted() {
    let listen = local(free_port());
    let mut cluster = Cluster::start(listen);
    answers(listen);
    fill(listen, "key", KEYS);
    let copy = cluster.store_of(1);
    cluster.stops(1_000);
    let before = cluster.items_of(1_000);
    copy_folder(&cluster.store_of(1_000), &copy);
    cluster.begins(1_000);

    let third = cluster.backend(1_002);
    cluster.add(1_002, &third);
    wait_until_moved(&cluster, &[1_000, 1_001, 1_002], 1_002, |is| is > 5_000);
    // It has heard of all that it has given, and serves.
    let has = cluster.member(1_000).expect("it is there")["partitions"].clone();
    let is_clean = |cluster: &Cluster| {
        let status = cluster.status(1_000)?;
        let is_settled = status["serves"] == true && status["partitions"] == has && status["partitions_wanted"] == has;
        (is_settled && status["partitions_unclear"] == 0).then_some(())
    };
    wait_for("what was given is removed", || is_clean(&cluster));
    cluster.stops(1_000);
    let after = cluster.items_of(1_000);
    assert!(after > 0 && after < before, "{after} of {before} items are left");

    fs::remove_dir_all(cluster.store_of(1_000)).expect("it is removed");
    fs::rename(&copy, cluster.store_of(1_000)).expect("it is put back");
    cluster.begins(1_000);
    wait_for("it serves", || is_clean(&cluster));
    all_is_there(listen, 0);
    cluster.stops(1_000);
    assert_eq!(cluster.items_of(1_000), before, "nobody has wanted that");

    cluster.begins_and_cleans_up(1_000);
    wait_for("it is cleaned up", || is_clean(&cluster));
    all_is_there(listen, 0);
    cluster.stops(1_000);
    assert_eq!(cluster.items_of(1_000), after);

    // Others have no keys.
    let mut node = cluster.node(100);
    node.arg("--cleanup");
    let ended = Process::start(node).end();
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("--cleanup: member 100 is a cache, only a backend has keys"), "{}", ended.stderr);
}

/// A folder without folders in it.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("a file").path();
        fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("it is copied");
    }
}
