//! A cluster whose members etcd keeps: they come, go and are killed while clients are answered; so is etcd.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::etcd_server::Server;
use crate::{
    condition::wait_for,
    connection::Connection,
    server::{Process, Program, free_port},
};

const SECRET: &str = "not much of a secret";

/// Members, as processes of this test's.
struct Cluster {
    etcd: Server,
    folder: TempDir,
    processes: BTreeMap<u16, Process>,
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A member as a file says it.
fn member(id: u16, role: &str, more: &str) -> String {
    format!("[[member]]\nid = {id}\nrole = \"{role}\"\naddress = \"{}\"\n{more}\n", local(free_port()))
}

fn guira(arguments: &[&str]) -> Command {
    let mut command = Command::new(Program::Guira.path());
    command.args(arguments).stdin(Stdio::null());
    command
}

#[track_caller]
fn succeeds(mut command: Command) -> String {
    let output = command.output().expect("it is run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

impl Cluster {
    /// A controller, a cache node, two backends and a gateway that listens there.
    fn start(listen: SocketAddr) -> Self {
        let (etcd, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
        let store = |id: u16| {
            let path = folder.path().join(format!("backend-{id}"));
            format!("cache = 100\nstore = \"rocksdb:{}\"", path.display())
        };
        let members = [
            member(1, "controller", ""),
            member(100, "cache", ""),
            member(1_000, "backend", &store(1_000)),
            member(1_001, "backend", &store(1_001)),
            member(10_000, "gateway", &format!("listen = \"{listen}\"")),
        ];
        let settings = format!("cluster = \"shop\"\nsecret = \"{SECRET}\"\nburst_load_min = 0.0\n");
        let mut cluster = Self { etcd, folder, processes: BTreeMap::new() };
        let file = cluster.write("cluster.toml", &(settings + &members.concat()));
        cluster.write("secret", SECRET);
        cluster.says("create", &[&file]);
        [1, 100, 1_000, 1_001, 10_000].into_iter().for_each(|id| cluster.begins(id));
        cluster
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("it is written");
        path.to_str().expect("text").to_owned()
    }

    fn coordinator(&self) -> String {
        format!("etcd:{}/shop", self.etcd.address())
    }

    fn says(&self, what: &str, rest: &[&str]) -> String {
        succeeds(guira(&[&["cluster", what, "--coordinator", &self.coordinator()], rest].concat()))
    }

    fn node(&self, id: u16) -> Command {
        let secret = self.folder.path().join("secret");
        let secret = secret.to_str().expect("text");
        let (coordinator, parent) = (self.coordinator(), std::process::id().to_string());
        let life = self.folder.path().join(format!("life-{id}"));
        let id = id.to_string();
        let mut command = guira(&["node", "--coordinator", &coordinator, "--secret-file", secret, "--id", &id]);
        command.args(["--with-parent", &parent, "--life-file"]).arg(life).arg("--status-socket").arg(self.socket(&id));
        command
    }

    fn socket(&self, id: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("status-{id}"))
    }

    fn begins(&mut self, id: u16) {
        let process = Process::start(self.node(id));
        self.processes.insert(id, process);
    }

    fn add(&mut self, id: u16, member: &str) {
        let file = self.write("more.toml", member);
        self.says("add", &[&file]);
        self.begins(id);
    }

    /// It is removed, and ends by itself.
    fn remove(&mut self, id: u16) {
        self.says("remove", &[&id.to_string()]);
        let ended = self.processes.remove(&id).expect("it runs").end();
        assert!(ended.status.success() && ended.stderr.contains("is not in the cluster any more"), "{}", ended.stderr);
    }

    /// What a member says of itself.
    fn status(&self, id: u16) -> Option<Value> {
        let said = guira_cluster::ask_line(&self.socket(&id.to_string()), "status", std::time::Duration::from_secs(5));
        serde_json::from_str(&said.ok()?).ok()
    }

    fn hits(&self, cache: u16) -> u64 {
        self.status(cache).and_then(|status| status["hits"].as_u64()).unwrap_or(0)
    }

    /// Members that are alive, as operators are told.
    fn alive(&self) -> Vec<u64> {
        let members: Value = serde_json::from_str(&self.says("members", &["--json"])).expect("JSON");
        let members = members["members"].as_array().expect("members");
        let alive = members.iter().filter(|member| !member["life"].is_null());
        let mut alive: Vec<u64> = alive.map(|member| member["id"].as_u64().expect("a number")).collect();
        alive.sort_unstable();
        alive
    }
}

fn answers(address: SocketAddr) {
    wait_for("the gateway answers", || {
        let mut client = Connection::try_open(address).ok()?;
        client.ask(b"get nothing\r\n", b"\r\n").eq(b"END\r\n").then_some(())
    });
}

/// What clients do until it is over: one writes rising numbers under a key, the others read it; none is refused, and nobody reads less than what was
/// written by then.
struct Clients {
    written: AtomicU64,
    read: AtomicU64,
    is_over: AtomicBool,
}

impl Clients {
    fn write(&self, address: SocketAddr) {
        let mut client = Connection::open(address);
        for number in 1u64.. {
            let stored = client.ask(format!("set hot 0 0 8\r\n{number:08}\r\n").as_bytes(), b"\r\n");
            assert_eq!(String::from_utf8_lossy(&stored), "STORED\r\n");
            self.written.store(number, Relaxed);
            if self.is_over.load(Relaxed) {
                return;
            }
            thread::park_timeout(std::time::Duration::from_millis(2));
        }
    }

    fn read(&self, address: SocketAddr) {
        let mut client = Connection::open(address);
        let mut last = 0;
        while !self.is_over.load(Relaxed) {
            let least = self.written.load(Relaxed).max(last);
            let seen = client.ask(b"get hot\r\n", b"END\r\n");
            let seen = String::from_utf8_lossy(&seen).into_owned();
            let number = seen.lines().nth(1).and_then(|line| line.parse::<u64>().ok());
            last = number.unwrap_or_else(|| panic!("{seen}"));
            assert!(last >= least, "{last} was read, and {least} was written");
            self.read.fetch_add(1, Relaxed);
        }
    }
}

/// Says that it is over, also where a test fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn members_and_etcd_come_and_go_while_clients_are_answered() {
    let [listen, other] = [free_port(), free_port()].map(local);
    let mut cluster = Cluster::start(listen);
    answers(listen);
    let mut client = Connection::open(listen);
    assert_eq!(client.ask(b"set hot 0 0 8\r\n00000000\r\n", b"\r\n"), b"STORED\r\n");
    let clients = Clients { written: AtomicU64::new(0), read: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    thread::scope(|scope| {
        let clients = &clients;
        let over = Over(&clients.is_over);
        scope.spawn(|| clients.write(listen));
        scope.spawn(|| clients.read(listen));
        let some_more = || {
            let before = (clients.read.load(Relaxed), clients.written.load(Relaxed));
            wait_for("clients are answered", || {
                let (read, written) = (clients.read.load(Relaxed), clients.written.load(Relaxed));
                (read > before.0 + 200 && written > before.1 + 20).then_some(())
            });
        };
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
        some_more();

        // etcd is away: nothing is noticed of it. What is changed when it is back is heard of.
        cluster.etcd.kill();
        some_more();
        serves(&cluster, 101);
        cluster.etcd.start_again();
        cluster.add(102, &member(102, "cache", ""));
        wait_for("all are heard of", || (cluster.alive() == [1, 101, 102, 1_000, 1_001, 10_000, 10_001]).then_some(()));

        // A cache node that is killed is removed; it has all backends that 102 has not.
        cluster.processes[&101].signal(Signal::KILL);
        cluster.says("remove", &["101"]);
        serves(&cluster, 102);
        some_more();
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
