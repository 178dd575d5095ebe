//! Cache nodes of several threads.

use std::{fs, net::SocketAddr, path::Path, thread, time::Duration};

use guira_cluster::ask_line;
use guira_switched::StaticFile;
use rustix::process::Signal;
use serde_json::Value;

use super::{Cluster, Rising, found, send, set};
use crate::{
    book::{Book, KEYS, check_key, read_at_last},
    condition::wait_for,
    connection::Connection,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// Hits of each thread of a cache node, as it says; `None` while it says nothing.
fn hits(folder: &Path, id: u16) -> Option<Vec<u64>> {
    let told = ask_line(&folder.join(format!("cluster/node-{id}.sock")), "status", PATIENCE).ok()?;
    let told: Value = serde_json::from_str(&told).ok()?;
    let hits = |part: &Value| part.get("hits").and_then(Value::as_u64);
    told.get("parts")?.as_array()?.iter().map(hits).collect()
}

/// Where clients find the second gateway.
fn second(cluster: &Cluster) -> SocketAddr {
    SocketAddr::new(cluster.address.ip(), cluster.address.port() + 1)
}

#[test]
fn all_threads_of_a_cache_node_serve_by_rules_and_by_homes() {
    let flags = ["--backends", "2", "--store", "memory", "--cache-threads", "3", "--cache-mode", "switched,look-aside"];
    let cluster = Cluster::up(&flags);
    let file = fs::read_to_string(cluster.folder.path().join("cluster/cluster.toml")).expect("it is there");
    let file = StaticFile::parse(&file).expect("a cluster");
    assert_eq!((file.caches().len(), file.caches().parts_len()), (1, 3));
    let keys: Vec<String> = (0..24).map(|number| format!("hot{number}")).collect();
    let mut client = cluster.connect();
    for key in &keys {
        assert_eq!(client.ask(&set(key, key.as_bytes()), b"\r\n"), b"STORED\r\n");
    }
    for address in [cluster.address, second(&cluster)] {
        let mut client = Connection::open(address);
        let before = hits(cluster.folder.path(), 100).expect("it says so");
        wait_for("all threads serve", || {
            for key in &keys {
                assert_eq!(client.ask(format!("get {key}\r\n").as_bytes(), b"END\r\n"), found(key, key.as_bytes()));
            }
            let hits = hits(cluster.folder.path(), 100)?;
            hits.iter().zip(&before).all(|(hits, before)| *hits > before + 20).then_some(())
        });
    }
    assert!(cluster.status().0.contains("threads 3"), "{}", cluster.status().0);
    cluster.down();
}

/// Their process is killed and stopped while clients are at work. What was seen can have been so.
#[test]
fn threads_that_are_killed_together_cost_nothing_but_time() {
    let flags = ["--backends", "2", "--durability", "os", "--caches", "2", "--cache-threads", "2"];
    let cluster = Cluster::up(&flags);
    let book = Book::of_a_cluster();
    let folder = thread::scope(|scope| {
        cluster.has_clients(scope, &book);
        let hits = |node| hits(cluster.folder.path(), node);
        let serve_again = |node| {
            let before = wait_for("it says how it is", || hits(node));
            wait_for("all threads serve", || {
                hits(node)?.iter().zip(&before).all(|(hits, before)| hits > before).then_some(())
            });
        };
        [100, 102].into_iter().for_each(serve_again);
        for at in [0, 1] {
            let pid = cluster.signal("cache", at, Signal::KILL);
            wait_for("it is started again", || {
                let (_, processes) = cluster.status();
                let all = processes.get("cache")?;
                (!all.contains(&pid) && all.len() == 2).then_some(())
            });
            book.wait_for_acts(1_000);
        }
        let stopped = cluster.signal("cache", 0, Signal::STOP);
        book.wait_for_acts(2_000);
        send(stopped, Signal::CONT);
        [100, 102].into_iter().for_each(serve_again);
        book.wait_for_acts(1_000);
        cluster.down()
    });
    book.nothing_is_under_way();
    let cluster = Cluster::up_in(folder, &flags);
    let mut client = cluster.connect();
    for key in 0..KEYS {
        let history = read_at_last(&book, &mut client, key);
        check_key(&Rising, key, &history);
    }
    cluster.down();
}
