//! A cluster whose members etcd keeps, as processes of a test's, and clients that work while they come and go.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use guira_client::Place;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::etcd::Server;
use crate::{
    condition::wait_for,
    connection::Connection,
    server::{Process, Program, free_port, free_ports},
};

pub const SECRET: &str = "not much of a secret";

/// Members, as processes of this test's.
pub struct Cluster {
    /// One, or several that are one.
    pub etcds: Vec<Server>,
    /// What is said to them of who asks, as arguments.
    access: Vec<String>,
    folder: TempDir,
    pub processes: BTreeMap<u16, Process>,
    /// As files say them.
    backends: BTreeMap<u16, String>,
    store: StoreOf,
}

/// The store of a backend, in the folder of the test.
type StoreOf = fn(&Path, u16) -> String;

fn rocksdb(folder: &Path, id: u16) -> String {
    format!("rocksdb:{}", folder.join(format!("backend-{id}")).display())
}

pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A member as a file says it.
pub fn member(id: u16, role: &str, more: &str) -> String {
    member_at(free_port(), id, role, more)
}

/// A cache node of several threads, as a file says it.
pub fn cache_of_threads(id: u16, threads: u16) -> String {
    member_at(free_ports(threads), id, "cache", &format!("threads = {threads}"))
}

fn member_at(port: u16, id: u16, role: &str, more: &str) -> String {
    format!("[[member]]\nid = {id}\nrole = \"{role}\"\naddress = \"{}\"\n{more}\n", local(port))
}

pub fn guira(arguments: &[&str]) -> Command {
    let mut command = Command::new(Program::Guira.path());
    command.args(arguments).stdin(Stdio::null());
    command
}

#[track_caller]
fn succeeds(mut command: Command) -> Output {
    let output = command.output().expect("it is run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

impl Cluster {
    /// A controller, a cache node, two backends and a gateway that listens there.
    pub fn start(listen: SocketAddr) -> Self {
        Self::start_on(listen, rocksdb)
    }

    /// The same, of backends with these stores.
    pub fn start_on(listen: SocketAddr, store: StoreOf) -> Self {
        Self::start_by(vec![Server::start()], Vec::new(), listen, store)
    }

    /// The same, kept by these, to whom this is said of who asks.
    pub fn start_kept_by(etcds: Vec<Server>, access: Vec<String>, listen: SocketAddr) -> Self {
        Self::start_by(etcds, access, listen, rocksdb)
    }

    fn start_by(etcds: Vec<Server>, access: Vec<String>, listen: SocketAddr, store: StoreOf) -> Self {
        let (folder, processes, backends) = (tempfile::tempdir().expect("a folder"), BTreeMap::new(), BTreeMap::new());
        let mut cluster = Self { etcds, access, folder, processes, backends, store };
        let members = [
            member(1, "controller", ""),
            member(100, "cache", ""),
            cluster.backend(1_000),
            cluster.backend(1_001),
            member(10_000, "gateway", &format!("listen = \"{listen}\"")),
        ];
        let settings =
            format!("cluster = \"shop\"\nsecret = \"{SECRET}\"\nburst_load_min = 0.0\nanswer_within_ms = 15000\n");
        let file = cluster.write("cluster.toml", &(settings + &members.concat()));
        cluster.write("secret", SECRET);
        cluster.says("create", &[&file]);
        [1, 100, 1_000, 1_001, 10_000].into_iter().for_each(|id| cluster.begins(id));
        cluster
    }

    /// A backend with a store of its own, always the same.
    pub fn backend(&mut self, id: u16) -> String {
        let store = (self.store)(self.folder.path(), id);
        let new = || member(id, "backend", &format!("cache = 100\nstore = \"{store}\""));
        self.backends.entry(id).or_insert_with(new).clone()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("it is written");
        path.to_str().expect("text").to_owned()
    }

    pub fn place(&self) -> Place {
        let hosts: Vec<String> = self.etcds.iter().map(|etcd| etcd.address().to_string()).collect();
        format!("{}/shop", hosts.join(",")).parse().expect("a place")
    }

    pub fn coordinator(&self) -> String {
        format!("etcd:{}", self.place())
    }

    /// Has operators say something; what they are told of it.
    pub fn says(&self, what: &str, rest: &[&str]) -> String {
        String::from_utf8(self.output(what, rest).stderr).expect("text")
    }

    fn output(&self, what: &str, rest: &[&str]) -> Output {
        succeeds(self.command(what, rest))
    }

    fn command(&self, what: &str, rest: &[&str]) -> Command {
        let mut command = guira(&["cluster", what, "--coordinator", &self.coordinator()]);
        command.args(&self.access).args(rest);
        command
    }

    pub fn node(&self, id: u16) -> Command {
        let secret = self.folder.path().join("secret");
        let secret = secret.to_str().expect("text");
        let (coordinator, parent) = (self.coordinator(), std::process::id().to_string());
        let life = self.folder.path().join(format!("life-{id}"));
        let id = id.to_string();
        let mut command = guira(&["node", "--coordinator", &coordinator, "--secret-file", secret, "--id", &id]);
        command
            .args(&self.access)
            .args(["--with-parent", &parent, "--life-file"])
            .arg(life)
            .arg("--status-socket")
            .arg(self.socket(&id));
        command
    }

    fn socket(&self, id: &str) -> PathBuf {
        self.folder.path().join(format!("status-{id}"))
    }

    /// Where a backend's items last.
    pub fn store_of(&self, id: u16) -> PathBuf {
        self.folder.path().join(format!("backend-{id}"))
    }

    /// Items in the store of a backend that does not run.
    pub fn items_of(&self, id: u16) -> u64 {
        let store = (self.store)(self.folder.path(), id);
        let told: Value =
            serde_json::from_slice(&succeeds(guira(&["store", "stats", "--exact", "--json", &store])).stdout)
                .expect("JSON");
        told["items"].as_u64().expect("a number")
    }

    /// It is told to end, and does.
    pub fn stops(&mut self, id: u16) {
        let mut process = self.processes.remove(&id).expect("it runs");
        process.signal(Signal::TERM);
        assert!(process.wait().success());
    }

    pub fn begins(&mut self, id: u16) {
        let process = Process::start(self.node(id));
        self.processes.insert(id, process);
    }

    /// A backend begins, and removes what it has of others' keys.
    pub fn begins_and_cleans_up(&mut self, id: u16) {
        let mut node = self.node(id);
        node.arg("--cleanup");
        self.processes.insert(id, Process::start(node));
    }

    pub fn add(&mut self, id: u16, member: &str) {
        self.say_of(member);
        self.begins(id);
    }

    /// It is a member from now on, and does not run yet.
    pub fn say_of(&self, member: &str) {
        let file = self.write("more.toml", member);
        self.says("add", &[&file]);
    }

    /// The same, of etcds of which whoever leads may just have been killed.
    pub fn adds_in_the_end(&mut self, id: u16, member: &str) {
        let file = self.write("more.toml", member);
        self.says_in_the_end("add", &file, "is there already");
        self.begins(id);
    }

    /// It is removed, likewise.
    pub fn removes_in_the_end(&mut self, id: u16) {
        self.says_in_the_end("remove", &id.to_string(), "is not there");
        self.ends(id);
    }

    /// Until it is done, or was.
    fn says_in_the_end(&self, what: &str, of: &str, was_done: &str) {
        wait_for("operators are heard", || {
            let output = self.command(what, &[of]).output().expect("it is run");
            let said = String::from_utf8_lossy(&output.stderr);
            // Seen if it never is.
            eprint!("{said}");
            (output.status.success() || said.contains(was_done)).then_some(())
        });
    }

    /// It is removed, and ends by itself.
    pub fn remove(&mut self, id: u16) {
        self.says("remove", &[&id.to_string()]);
        self.ends(id);
    }

    fn ends(&mut self, id: u16) {
        let ended = self.processes.remove(&id).expect("it runs").end();
        assert!(ended.status.success() && ended.stderr.contains("is not in the cluster any more"), "{}", ended.stderr);
    }

    /// What a member says of itself.
    pub fn status(&self, id: u16) -> Option<Value> {
        let said = guira_cluster::ask_line(&self.socket(&id.to_string()), "status", Duration::from_secs(5));
        serde_json::from_str(&said.ok()?).ok()
    }

    pub fn hits(&self, cache: u16) -> u64 {
        self.status(cache).and_then(|status| status["hits"].as_u64()).unwrap_or(0)
    }

    /// All members, as operators are told.
    pub fn members(&self) -> Vec<Value> {
        members_of(&self.output("members", &["--json"]))
    }

    /// One of them, as operators are told.
    pub fn member(&self, id: u16) -> Option<Value> {
        self.members().into_iter().find(|member| member["id"] == id)
    }

    /// Members that are alive.
    pub fn alive(&self) -> Vec<u64> {
        alive_of(&self.members())
    }

    /// The same, if etcd answers.
    pub fn try_alive(&self) -> Option<Vec<u64>> {
        let output = self.command("members", &["--json"]).output().expect("it is run");
        output.status.success().then(|| alive_of(&members_of(&output)))
    }
}

fn members_of(output: &Output) -> Vec<Value> {
    let mut members: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    std::mem::take(members["members"].as_array_mut().expect("members"))
}

fn alive_of(members: &[Value]) -> Vec<u64> {
    let alive = members.iter().filter(|member| !member["life"].is_null());
    let mut alive: Vec<u64> = alive.map(|member| member["id"].as_u64().expect("a number")).collect();
    alive.sort_unstable();
    alive
}

/// Keys of a name, from 0 on, each with its number as its value.
pub fn fill(address: SocketAddr, name: &str, keys: usize) {
    let mut client = Connection::open(address);
    for key in 0..keys {
        let stored = client.ask(format!("set {name}{key} 0 0 8\r\n{key:08}\r\n").as_bytes(), b"\r\n");
        assert_eq!(stored, b"STORED\r\n", "{name}{key}");
    }
}

pub fn answers(address: SocketAddr) {
    wait_for("the gateway answers", || {
        let mut client = Connection::try_open(address).ok()?;
        client.ask(b"get nothing\r\n", b"\r\n").eq(b"END\r\n").then_some(())
    });
}

/// What clients do until it is over: one writes rising numbers under a key, the others read it; none is refused, and nobody reads less than what was
/// written by then.
pub struct Clients {
    key: String,
    pub written: AtomicU64,
    pub read: AtomicU64,
    pub is_over: AtomicBool,
}

impl Clients {
    /// Of a key, which is there from now on.
    pub fn of(key: &str, address: SocketAddr) -> Self {
        let (written, read, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let stored = Connection::open(address).ask(format!("set {key} 0 0 8\r\n{:08}\r\n", 0).as_bytes(), b"\r\n");
        assert_eq!(stored, b"STORED\r\n");
        Self { key: key.into(), written, read, is_over }
    }

    /// One writes and one reads, until what is returned is dropped.
    pub fn work<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, address: SocketAddr) -> Over<'s> {
        scope.spawn(move || self.write(address));
        scope.spawn(move || self.read(address));
        Over(&self.is_over)
    }

    /// Waits until they were answered some more.
    pub fn some_more(&self) {
        let before = (self.read.load(Relaxed), self.written.load(Relaxed));
        wait_for("clients are answered", || {
            let (read, written) = (self.read.load(Relaxed), self.written.load(Relaxed));
            (read > before.0 + 200 && written > before.1 + 20).then_some(())
        });
    }

    pub fn write(&self, address: SocketAddr) {
        let mut client = Connection::open(address);
        for number in 1u64.. {
            let stored = client.ask(format!("set {} 0 0 8\r\n{number:08}\r\n", self.key).as_bytes(), b"\r\n");
            assert_eq!(String::from_utf8_lossy(&stored), "STORED\r\n");
            self.written.store(number, Relaxed);
            if self.is_over.load(Relaxed) {
                return;
            }
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    pub fn read(&self, address: SocketAddr) {
        let mut client = Connection::open(address);
        let mut last = 0;
        while !self.is_over.load(Relaxed) {
            let least = self.written.load(Relaxed).max(last);
            let seen = client.ask(format!("get {}\r\n", self.key).as_bytes(), b"END\r\n");
            let seen = String::from_utf8_lossy(&seen).into_owned();
            let number = seen.lines().nth(1).and_then(|line| line.parse::<u64>().ok());
            last = number.unwrap_or_else(|| panic!("{seen}"));
            assert!(last >= least, "{last} was read, and {least} was written");
            self.read.fetch_add(1, Relaxed);
        }
    }
}

/// Says that it is over, also where a test fails.
pub struct Over<'o>(pub &'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
