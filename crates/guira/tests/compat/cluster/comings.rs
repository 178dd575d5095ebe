//! A cluster whose members etcd keeps: they come, go and are killed while clients are answered; so is etcd.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use guira_client::{Access, Client, ClientOptions, Closing, Error, NodeId, Place};
use rustix::process::Signal;

use super::{
    etcd::Server,
    kept::{Clients, Cluster, Over, SECRET, answers, cache_of_threads, guira, local, member},
};
use crate::{
    condition::wait_for,
    connection::Connection,
    server::{Process, free_port},
};

#[test]
fn members_and_etcd_come_and_go_while_clients_are_answered() {
    let [listen, other] = [free_port(), free_port()].map(local);
    let mut cluster = Cluster::start(listen);
    answers(listen);
    let clients = Clients::of("hot", listen);
    thread::scope(|scope| {
        let clients = &clients;
        let over = clients.work(scope, listen);
        let serves = |cluster: &Cluster, cache| {
            let before = cluster.hits(cache);
            wait_for("the cache node serves", || (cluster.hits(cache) > before + 100).then_some(()));
        };
        serves(&cluster, 100);

        // A cache node and a gateway come, and the cache node that there was goes.
        cluster.add(101, &member(101, "cache", ""));
        cluster.add(10_001, &member(10_001, "gateway", &format!("listen = \"{other}\"")));
        answers(other);
        scope.spawn(|| clients.read(other));
        cluster.remove(100);
        serves(&cluster, 101);
        clients.some_more();

        // etcd is away: nothing is noticed of it. What is changed when it is back is heard of.
        cluster.etcds[0].kill();
        clients.some_more();
        serves(&cluster, 101);
        cluster.etcds[0].start_again();
        cluster.add(102, &cache_of_threads(102, 2));
        wait_for("all are heard of", || (cluster.alive() == [1, 101, 102, 1_000, 1_001, 10_000, 10_001]).then_some(()));

        // A cache node that is killed is removed; it has all backends that 102 has not.
        cluster.processes[&101].signal(Signal::KILL);
        cluster.says("remove", &["101"]);
        serves(&cluster, 102);
        clients.some_more();
        drop(over);
    });
    let ended = Process::start(cluster.node(101)).end();
    assert!(!ended.status.success() && ended.stderr.contains("has no such member"), "{}", ended.stderr);

    // A backend begins another life, and has what it had.
    cluster.processes[&1_000].signal(Signal::KILL);
    cluster.processes[&1_001].signal(Signal::KILL);
    for id in [1_000, 1_001] {
        cluster.processes.get_mut(&id).expect("it ran").wait();
        cluster.begins(id);
    }
    let last = clients.written.load(Relaxed);
    wait_for("what was written is there", || {
        let seen = Connection::open(other).ask(b"get hot\r\n", b"\r\n");
        if !seen.starts_with(b"VALUE") {
            return None;
        }
        let seen = Connection::open(other).ask(b"get hot\r\n", b"END\r\n");
        (String::from_utf8_lossy(&seen) == format!("VALUE hot 0 8\r\n{last:08}\r\nEND\r\n")).then_some(())
    });
}

#[test]
fn a_program_that_is_its_own_gateway_hears_of_who_comes_and_goes() {
    const ME: NodeId = NodeId(10_001);
    let listen = local(free_port());
    let mut cluster = Cluster::start(listen);
    let place: Place = cluster.place();
    let connect = || Client::connect_by_etcd(&place, &Access::default(), SECRET, ME, &ClientOptions::default());
    let nobody = connect().expect_err("nobody has added it").to_string();
    assert!(nobody.contains("member 10001: the cluster has to name it"), "{nobody}");
    cluster.say_of(&member(ME.0, "gateway", &format!("listen = \"{}\"", local(1))));
    let client = connect().expect("it is a member");
    client.set("hot", "0").expect("it is stored");
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let over = Over(&is_over);
        // One changes it, and nobody reads less than was written by then.
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let now = client.increment("hot", 1).expect("it is a number").expect("it is there");
                written.store(now, Relaxed);
            }
        });
        let reads = || {
            let least = written.load(Relaxed);
            let item = client.get("hot").expect("an answer").expect("it is there");
            let seen: u64 = String::from_utf8_lossy(&item.value).parse().expect("a number");
            assert!(seen >= least, "{seen} was read, and {least} was written");
        };
        let serves = |cluster: &Cluster, cache| {
            let before = cluster.hits(cache);
            wait_for("the cache node serves the program", || {
                reads();
                (cluster.hits(cache) > before + 100).then_some(())
            });
        };
        serves(&cluster, 100);
        cluster.add(101, &member(101, "cache", ""));
        cluster.remove(100);
        serves(&cluster, 101);
        // A backend comes and is given its part, while etcd is killed once more.
        let third = cluster.backend(1_002);
        cluster.add(1_002, &third);
        wait_for("it has what it is to have", || {
            reads();
            let third = cluster.member(1_002)?;
            (third["partitions"] == third["partitions_wanted"]).then_some(())
        });
        cluster.etcds[0].kill();
        (0..1_000).for_each(|_| reads());
        cluster.etcds[0].start_again();
        wait_for("it has turned to etcd anew", || {
            let touch = client.etcd_touch()?;
            (touch.is_in_touch && touch.reconnects > 0).then_some(())
        });
        serves(&cluster, 101);
        drop(over);
    });
    assert_eq!(client.etcd_trouble(), None);

    // There cannot be two of one number: its address is taken.
    let address = connect().expect_err("the address is taken").to_string();
    assert!(address.contains("cannot bind"), "{address}");
    assert_eq!(client.closing(), None);
    cluster.says("remove", &[&ME.0.to_string()]);
    wait_for("it is closed", || client.closing());
    wait_for("nothing is answered", || (client.get("hot") == Err(Error::Closed)).then_some(()));
    assert_eq!((client.closing(), client.etcd_touch()), (Some(Closing::Removed), None));
    drop(client);
    let gone = connect().expect_err("it was removed").to_string();
    assert!(gone.contains("the cluster has to name it"), "{gone}");
}

#[test]
fn who_may_not_be_a_member_is_told_why_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    let says = |coordinator: &str, secret: Option<&Path>| {
        let mut command = guira(&["node", "--coordinator", coordinator, "--id", "7"]);
        secret.into_iter().for_each(|path| _ = command.arg("--secret-file").arg(path));
        let ended = Process::start(command).end();
        assert!(!ended.status.success() && ended.stderr.lines().count() == 1, "{}", ended.stderr);
        ended.stderr
    };
    assert!(says("etcd:127.0.0.1:1", None).contains("give --secret-file FILE"));
    assert!(says("etcd:127.0.0.1:1", Some(&secret)).contains("No such file"));
    let bounds = "a secret has 16 to 4096 bytes";
    assert!(says("etcd:127.0.0.1:1", Some(Path::new("/dev/zero"))).contains(bounds));
    fs::write(&secret, "short").expect("it is written");
    assert!(says("etcd:127.0.0.1:1", Some(&secret)).contains(bounds));
    fs::write(&secret, SECRET).expect("it is written");
    assert!(says("static:nowhere.toml", Some(&secret)).contains("the secret is in the file of --coordinator"));
    assert!(says("etcd", None).contains("write static:FILE or etcd:HOST:PORT"));
    let nobody = says(&format!("etcd:{}", local(free_port())), Some(&secret));
    assert!(nobody.contains("cannot be reached"), "{nobody}");
    let etcd = Server::start();
    let etcd = format!("etcd:{}", etcd.address());
    assert!(says(&etcd, Some(&secret)).contains("no cluster guira is in etcd"));
}
