//! A symmetric cluster: nodes, each a memcached server, asked by memcached's clients while nodes and their coordinator are killed and stopped.

use std::{net::SocketAddr, thread, time::Duration};

use guira_cluster::ask_line;
use guira_routing::NodeId;
use guira_symmetric::{SymmetricFile, host::ViewsFile};
use rustix::process::Signal;
use serde_json::Value;

use super::{Cluster, Rising, found, guira, send, set};
use crate::{
    book::{Book, CLIENTS, KEYS, check_key, work_until_killed},
    clients::{libmemcached_tools, memccapable, pymemcache, rust_client},
    condition::wait_for,
    connection::Connection,
    server::{Program, free_ports},
};

const PATIENCE: Duration = Duration::from_secs(5);
const NODES: u16 = 3;
const COORDINATOR: u16 = 10_000;

/// A number that a member tells of itself; `None` while it says nothing.
fn told(cluster: &Cluster, id: u16, field: &str) -> Option<u64> {
    let path = cluster.folder.path().join(format!("cluster/node-{id}.sock"));
    let told: Value = serde_json::from_str(&ask_line(&path, "status", PATIENCE).ok()?).ok()?;
    let field = told.get(field)?;
    field.as_u64().or_else(|| field.as_bool().map(u64::from))
}

fn address(cluster: &Cluster, id: u16) -> SocketAddr {
    SocketAddr::new(cluster.address.ip(), cluster.address.port() + id - 1)
}

fn connect(cluster: &Cluster, id: u16) -> Connection {
    Connection::open(address(cluster, id))
}

/// All nodes are members, whole, in one epoch, and have leases.
fn wait_until_all_are_there(cluster: &Cluster) {
    wait_for("all nodes are there", || {
        let epoch = told(cluster, COORDINATOR, "epoch")?;
        let of_all = |field| (1..=NODES).map(move |id| told(cluster, id, field)).collect::<Option<Vec<u64>>>();
        let is_there = of_all("epoch")?.iter().all(|of| *of == epoch)
            && of_all("members")?.iter().all(|members| *members == u64::from(NODES))
            && of_all("whole")?.iter().chain(&of_all("has_lease")?).all(|is_so| *is_so == 1)
            && of_all("shards")?.iter().sum::<u64>() == u64::from(NODES);
        is_there.then_some(())
    });
}

/// One that is up, and all of whose nodes answer.
fn up(arguments: &[&str]) -> Cluster {
    up_in(tempfile::tempdir().expect("a folder"), arguments)
}

fn up_in(folder: tempfile::TempDir, arguments: &[&str]) -> Cluster {
    let nodes = NODES.to_string();
    let arguments = [&["--topology", "symmetric", "--nodes", &nodes], arguments].concat();
    let cluster = Cluster::start_with(folder, NODES, &arguments);
    wait_until_all_are_there(&cluster);
    cluster
}

/// Has a member's process be killed; waits until another one is it.
fn kill(cluster: &Cluster, role: &str, at: usize) {
    let pid = cluster.signal(role, at, Signal::KILL);
    wait_for("it is started again", || {
        let (_, processes) = cluster.status();
        let all = processes.get(role)?;
        (!all.contains(&pid) && all.len() > at).then_some(())
    });
}

#[test]
fn unmodified_clients_work_with_each_node() {
    let cluster = up(&[]);
    for id in 1..=NODES {
        let address = address(&cluster, id);
        pymemcache(address, Some(1_000_000));
        rust_client(address);
        libmemcached_tools(address);
        memccapable(address);
    }
    cluster.down();
}

#[test]
fn what_one_node_is_told_all_have_and_what_is_hot_each_has_itself() {
    let cluster = up(&[]);
    let mut clients: Vec<Connection> = (1..=NODES).map(|id| connect(&cluster, id)).collect();
    for number in 0..60 {
        let (key, value) = (format!("key{number}"), format!("value{number}"));
        assert_eq!(clients[number % 3].ask(&set(&key, value.as_bytes()), b"\r\n"), b"STORED\r\n");
        for client in &mut clients {
            assert_eq!(client.ask(format!("get {key}\r\n").as_bytes(), b"END\r\n"), found(&key, value.as_bytes()));
        }
    }
    assert_eq!(clients[0].ask(&set("hot", b"first"), b"\r\n"), b"STORED\r\n");
    wait_for("each answers by itself", || {
        for client in &mut clients {
            (0..50).for_each(|_| assert_eq!(client.ask(b"get hot\r\n", b"END\r\n"), found("hot", b"first")));
        }
        (1..=NODES).all(|id| told(&cluster, id, "hits").is_some_and(|hits| hits > 0)).then_some(())
    });
    for number in 0..100 {
        let value = format!("{number:05}");
        assert_eq!(clients[number % 3].ask(&set("hot", value.as_bytes()), b"\r\n"), b"STORED\r\n");
        for client in &mut clients {
            assert_eq!(client.ask(b"get hot\r\n", b"END\r\n"), found("hot", value.as_bytes()));
        }
    }
    assert_eq!(clients[1].ask(b"set n 0 0 1\r\n0\r\n", b"\r\n"), b"STORED\r\n");
    for number in 1..=30_usize {
        assert_eq!(clients[number % 3].ask(b"incr n 1\r\n", b"\r\n"), format!("{number}\r\n").as_bytes());
    }
    let long = vec![b'v'; 900_000];
    assert_eq!(clients[0].ask(&set("long", &long), b"\r\n"), b"STORED\r\n");
    clients.iter_mut().for_each(|client| assert!(client.ask(b"get long\r\n", b"END\r\n") == found("long", &long)));
    let (text, _) = cluster.status();
    assert!(text.contains("operations were of keys that are hot at all nodes"), "{text}");

    assert_eq!(clients[2].ask(b"flush_all\r\n", b"\r\n"), b"OK\r\n");
    for client in &mut clients {
        assert_eq!(client.ask(b"get hot long n key7\r\n", b"END\r\n"), b"END\r\n");
    }
    cluster.down();
}

/// Clients are at work at all nodes, on keys that are hot; what was seen can have been so.
#[test]
fn nodes_and_coordinators_that_are_killed_or_stopped_cost_nothing_but_time() {
    let cluster = up(&["--epoch-ms", "200"]);
    let book = Book::of_a_cluster();
    thread::scope(|scope| {
        for client in 0..CLIENTS as u16 {
            // Of those at node 2 nothing is left once that is killed.
            let connection = connect(&cluster, 1 + client % NODES);
            let book = &book;
            scope.spawn(move || work_until_killed(connection, book, 1 + u64::from(client)));
        }
        let all_are_hot = || {
            let is_hot = |id| told(&cluster, id, "hot_keys").is_some_and(|keys| keys >= KEYS as u64);
            wait_for("all keys are hot everywhere", || (1..=NODES).all(is_hot).then_some(()));
        };
        all_are_hot();
        book.wait_for_acts(2_000);
        for (role, at) in [("coordinator", 0), ("node", 1), ("coordinator", 0), ("node", 1)] {
            kill(&cluster, role, at);
            book.wait_for_acts(1_000);
            wait_until_all_are_there(&cluster);
            all_are_hot();
        }
        let node = cluster.signal("node", 1, Signal::STOP);
        // The others wait for its lease, and go on without it.
        book.wait_for_acts(2_000);
        send(node, Signal::CONT);
        wait_until_all_are_there(&cluster);
        book.wait_for_acts(1_000);
        cluster.down();
    });
    book.nothing_is_under_way();
    for (key, history) in book.histories.iter().enumerate() {
        check_key(&Rising, key, &history.lock().expect("no panic with it"));
    }
}

#[test]
fn a_cluster_that_comes_up_again_begins_with_nothing_in_one_process_as_in_many() {
    let flags = ["--consistency", "sc", "--hot-keys", "10", "--memory-per-node", "8m"];
    let cluster = up(&flags);
    assert_eq!(connect(&cluster, 1).ask(&set("key", b"value"), b"\r\n"), b"STORED\r\n");
    let file = |cluster: &Cluster| {
        let text = std::fs::read_to_string(cluster.folder.path().join("cluster/cluster.toml")).expect("it is there");
        SymmetricFile::parse(&text).expect("a cluster")
    };
    let before = file(&cluster);
    assert_eq!(before.nodes(), [1, 2, 3].map(NodeId));
    let folder = cluster.down();
    let port = free_ports(NODES).to_string();
    for (other, says) in [
        (&["--topology", "symmetric", "--nodes", "2"][..], "--nodes 2: a cluster of 3 was in"),
        (&["--backends", "2"], "--topology switched: a symmetric cluster was in"),
    ] {
        let said = guira(&[&["up", "--port", &port], other].concat(), folder.path()).output().expect("it is run");
        let told = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && told.contains(says), "{told}");
    }

    let cluster = up_in(folder, &[&flags[..], &["--one-process"]].concat());
    assert_eq!(file(&cluster).secret, before.secret);
    let mut client = connect(&cluster, 2);
    assert_eq!(client.ask(b"get key\r\n", b"END\r\n"), b"END\r\n");
    assert_eq!(client.ask(&set("key", b"again"), b"\r\n"), b"STORED\r\n");
    assert_eq!(connect(&cluster, 3).ask(b"get key\r\n", b"END\r\n"), found("key", b"again"));
    cluster.down();
}

#[test]
fn what_a_member_cannot_be_is_said_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cluster.toml");
    let text = include_str!("../../../../../docs/examples/symmetric.toml");
    // It has nothing to start with, whatever is on this machine.
    let text = text.replace("10.0.0.", "127.0.0.").replace("/var/lib/guira", &folder.path().display().to_string());
    std::fs::write(&path, text).expect("room for a few lines");
    std::fs::write(folder.path().join("views"), "something else").expect("room for a few lines");
    for (arguments, says) in [
        ("--id 7", "has no such member"),
        ("--id 1 --role coordinator", "--role coordinator: member 1 is a node"),
        ("--id 10000 --role router", "--role router: in static:"),
        ("--id 10000 --threads 3", "--threads: member 10000 is the coordinator, only a node has it"),
        ("--id 10000 --metrics 127.0.0.1:1", "--metrics: member 10000 is the coordinator, only a node has it"),
        ("--id 1 --cleanup", "--cleanup: not of a symmetric cluster's members"),
        ("--id 1 --rest 127.0.0.1:1", "--rest: not of a symmetric cluster's members"),
        ("--id 1 --xdp-mode generic", "--xdp-mode: a router's"),
        ("--id 10000", "views: not what a coordinator keeps, or damaged"),
        ("--id 10000", "another coordinator runs in this folder"),
    ] {
        let is_taken = says.starts_with("another");
        let _other = is_taken.then(|| ViewsFile::open(folder.path()).expect("nobody has it"));
        let mut command = std::process::Command::new(Program::Guira.path());
        command.args(["node", "--coordinator", &format!("static:{}", path.display())]);
        let said = command.args(arguments.split_whitespace()).output().expect("it is run");
        let told = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && told.contains(says) && told.lines().count() == 1, "{arguments}: {told}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("views")).expect("it stays"), "something else");
}

/// Its life had begun by then, so that each try made it a new member.
#[test]
fn a_node_whose_port_is_taken_begins_no_life() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it is bound").port();
    let text = include_str!("../../../../../docs/examples/symmetric.toml");
    let text = text.replace("10.0.0.", "127.0.1.").replace("0.0.0.0:11211", &format!("127.0.0.1:{port}"));
    let (path, life) = (folder.path().join("cluster.toml"), folder.path().join("life"));
    std::fs::write(&path, text).expect("room for a few lines");
    let mut command = std::process::Command::new(Program::Guira.path());
    command.args(["node", "--coordinator", &format!("static:{}", path.display()), "--id", "1", "--life-file"]);
    let said = command.arg(&life).output().expect("it is run");
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && told.contains("is taken") && told.lines().count() == 1, "{told}");
    assert!(!life.exists());
}
