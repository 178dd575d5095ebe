//! A switched cluster on this machine, each member a process: asked by memcached's clients while members are killed and stopped.
//!
//! Below it: the network between members (`faults`, with a `relay`), that which the kernel makes (`networks`), what operators do (`operators`), and
//! who is in a cluster that etcd keeps: as they are told (`coordinated`), as they serve (`comings`), and where it wants to know who asks
//! (`guarded`). Cache nodes of several threads: `threads`. A backend that is away: `away`.
//! The other topology: `symmetric`.

mod away;
mod comings;
mod coordinated;
mod etcd;
mod faults;
mod guarded;
pub(crate) mod kept;
mod loopback;
mod members;
mod networks;
mod operators;
mod owners;
mod relay;
mod relayed;
pub(crate) mod rising;
mod symmetric;
mod threads;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use guira_cluster::unix_now;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use rising::Rising;

use crate::{
    administration::stats,
    book::{Book, CLIENTS, KEYS, check_key, read_at_last, work_until_killed},
    clients::{libmemcached_tools, memccapable, pymemcache, rust_client},
    condition::wait_for,
    connection::Connection,
    server::{Process, Program, free_ports},
};

/// A cluster that is up.
pub struct Cluster {
    process: Process,
    folder: TempDir,
    address: SocketAddr,
}

fn guira(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(Program::Guira.path());
    // A folder that nobody else can look into, which the one above it need not be.
    command.arg("cluster").args(arguments).arg("--folder").arg(folder.join("cluster")).stdin(Stdio::null());
    command
}

impl Cluster {
    pub fn up(arguments: &[&str]) -> Self {
        Self::up_in(tempfile::tempdir().expect("a folder"), arguments)
    }

    fn up_in(folder: TempDir, arguments: &[&str]) -> Self {
        let made = Self::start_in(folder, arguments);
        made.answers();
        made
    }

    fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        // A second gateway's is behind it.
        Self::start_with(folder, 2, &[&["--burst-load-min", "0"], arguments].concat())
    }

    /// The same, with so many ports for clients.
    fn start_with(folder: TempDir, ports: u16, arguments: &[&str]) -> Self {
        let port = free_ports(ports);
        let mut command = guira(&["up", "--port", &port.to_string()], folder.path());
        // It ends with the thread that starts it, which has to live as long: a test's own.
        command.arg("--with-parent").arg(std::process::id().to_string());
        command.args(arguments);
        let process = Process::start(command);
        Self { process, folder, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    /// The first answer waits for all that begins.
    fn answers(&self) {
        wait_for("the cluster answers", || {
            let mut client = Connection::try_open(self.address).ok()?;
            client.ask(b"get nothing\r\n", b"\r\n").eq(b"END\r\n").then_some(())
        });
    }

    /// Of the gateway.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// What `guira cluster status` prints, and the processes in it by role.
    fn status(&self) -> (String, BTreeMap<String, Vec<i32>>) {
        let said = guira(&["status"], self.folder.path()).output().expect("it is run");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let text = String::from_utf8(said.stdout).expect("text");
        let mut processes: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for line in text.lines().skip(1).take_while(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [role, _, pid, ..] = words[..]
                && let Ok(pid) = pid.parse()
            {
                processes.entry(role.to_owned()).or_default().push(pid);
            }
        }
        (text, processes)
    }

    /// Reads that the cache nodes have answered.
    pub fn hits(&self) -> u64 {
        let (text, _) = self.status();
        let words: Vec<&str> = text.split([' ', ',']).collect();
        words.windows(2).filter(|pair| pair[0] == "hits").filter_map(|pair| pair[1].parse::<u64>().ok()).sum()
    }

    fn signal(&self, role: &str, at: usize, signal: Signal) -> i32 {
        let (text, processes) = self.status();
        let pid = *processes.get(role).and_then(|all| all.get(at)).unwrap_or_else(|| panic!("no {role} in {text}"));
        send(pid, signal);
        pid
    }

    /// Has clients at work until it goes down, or hangs up on them.
    fn has_clients<'scope>(&self, scope: &'scope thread::Scope<'scope, '_>, book: &'scope Book) {
        for client in 0..CLIENTS {
            let connection = self.connect();
            scope.spawn(move || work_until_killed(connection, book, 1 + client as u64));
        }
    }

    /// Takes it down; the folder is left.
    fn down(mut self) -> TempDir {
        let said = guira(&["down"], self.folder.path()).output().expect("it is run");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert!(self.process.wait().success());
        self.folder
    }
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a number"), signal).expect("a process of the cluster's");
}

#[test]
fn unmodified_clients_work_with_a_cluster() {
    let cluster = Cluster::up(&["--backends", "3", "--store", "memory"]);
    pymemcache(cluster.address, Some(1_000_000));
    rust_client(cluster.address);
    libmemcached_tools(cluster.address);
    memccapable(cluster.address);
    cluster.down();
}

#[test]
fn a_hot_key_is_answered_by_the_cache_node_and_a_change_of_it_is_seen_at_once() {
    // Hits are counted: the cache node has its lease even if it is not run for a while.
    let cluster = Cluster::up(&["--backends", "2", "--store", "memory", "--lease-ms", "10000"]);
    let mut client = cluster.connect();
    assert_eq!(client.ask(b"set hot 0 0 3\r\nold\r\n", b"\r\n"), b"STORED\r\n");
    wait_for("the key is hot", || {
        for _ in 0..100 {
            assert_eq!(client.ask(b"get hot\r\n", b"END\r\n"), b"VALUE hot 0 3\r\nold\r\nEND\r\n");
        }
        (cluster.hits() > 0).then_some(())
    });
    let hits = cluster.hits();
    for _ in 0..100 {
        assert_eq!(client.ask(b"mg hot v f\r\n", b"old\r\n"), b"VA 3 f0\r\nold\r\n");
    }
    assert!(cluster.hits() >= hits + 90, "{} hits of 100 meta reads", cluster.hits() - hits);
    // Who wins is the backend's to say.
    assert_eq!(client.ask(b"md hot I\r\n", b"\r\n"), b"HD\r\n");
    assert_eq!(client.ask(b"mg hot\r\n", b"\r\n"), b"HD X W\r\n");
    assert_eq!(client.ask(b"mg hot\r\n", b"\r\n"), b"HD Z X\r\n");
    assert_eq!(client.ask(b"set hot 0 0 3\r\nold\r\n", b"\r\n"), b"STORED\r\n");
    let hits = cluster.hits();
    let mut other = cluster.connect();
    for number in 0..500 {
        let value = format!("{number:03}");
        assert_eq!(other.ask(format!("set hot 0 0 3\r\n{value}\r\n").as_bytes(), b"\r\n"), b"STORED\r\n");
        let seen = client.ask(b"get hot\r\n", b"END\r\n");
        assert_eq!(String::from_utf8_lossy(&seen), format!("VALUE hot 0 3\r\n{value}\r\nEND\r\n"));
    }
    assert!(cluster.hits() >= hits + 400, "{} hits of 500 reads", cluster.hits() - hits);
    let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
    for key in &keys {
        assert_eq!(client.ask(format!("set {key} 7 0 4\r\nmany\r\n").as_bytes(), b"\r\n"), b"STORED\r\n");
    }
    let all = client.ask(format!("get {}\r\n", keys.join(" ")).as_bytes(), b"END\r\n");
    let expected: String = keys.iter().map(|key| format!("VALUE {key} 7 4\r\nmany\r\n")).collect();
    assert_eq!(String::from_utf8_lossy(&all), expected + "END\r\n");
    assert_eq!(client.ask(b"flush_all\r\n", b"\r\n"), b"OK\r\n");
    assert_eq!(client.ask(b"get hot key7\r\n", b"END\r\n"), b"END\r\n");
    cluster.down();
}

#[test]
fn a_flush_that_is_to_come_comes_though_backends_are_killed_before() {
    let cluster = Cluster::up(&["--backends", "2"]);
    let mut client = cluster.connect();
    let keys: Vec<String> = (0..50).map(|number| format!("key{number}")).collect();
    let set_all = |client: &mut Connection| {
        for key in &keys {
            assert_eq!(client.ask(&set(key, b"value"), b"\r\n"), b"STORED\r\n");
        }
    };
    let get_all = format!("get {}\r\n", keys.join(" ")).into_bytes();
    set_all(&mut client);
    assert_eq!(client.ask(b"flush_all 86400\r\n", b"\r\n"), b"OK\r\n");
    assert!(cluster.status().0.contains("flush_at_unix_s"), "{}", cluster.status().0);
    let all: String = keys.iter().map(|key| format!("VALUE {key} 3 5\r\nvalue\r\n")).collect();
    let all = all + "END\r\n";
    assert_eq!(String::from_utf8_lossy(&client.ask(&get_all, b"END\r\n")), all);

    assert_eq!(client.ask(b"flush_all 2\r\n", b"\r\n"), b"OK\r\n");
    // Whoever has been killed is none of those that are up soon.
    let (_, up) = cluster.status();
    up["backend"].iter().for_each(|pid| send(*pid, Signal::KILL));
    wait_for("all is gone", || {
        // While a backend is down its keys are errors.
        cluster.connect().ask(&get_all, b"\r\n").eq(b"END\r\n").then_some(())
    });
    assert!(!cluster.status().0.contains("flush_at_unix_s"), "{}", cluster.status().0);
    set_all(&mut client);
    assert_eq!(String::from_utf8_lossy(&client.ask(&get_all, b"END\r\n")), all);
    cluster.down();
}

#[test]
fn all_members_may_be_in_one_process_and_what_they_have_outlives_it() {
    const ITEMS: usize = 300;
    let arguments = [
        "--one-process",
        "--backends",
        "3",
        "--caches",
        "2",
        "--cache-threads",
        "2",
        "--durability",
        "os",
        // Hits are waited for: cache nodes have their leases even if they are not run for a while.
        "--lease-ms",
        "10000",
    ];
    let mut cluster = Cluster::up(&arguments);
    let mut client = cluster.connect();
    let key = |item: usize| format!("key{item}");
    for item in 0..ITEMS {
        // Until its backend has opened its store it is refused.
        wait_for("it is stored", || (client.ask(&set(&key(item), b"value"), b"\r\n") == b"STORED\r\n").then_some(()));
    }
    let is_all_there = |cluster: &Cluster| {
        let mut client = cluster.connect();
        for key in (0..ITEMS).map(key) {
            let there = [&found(&key, b"value")[..], b"MN\r\n"].concat();
            // Until its backend has opened its store it is an error.
            wait_for("it is there", || {
                (client.ask(format!("get {key}\r\nmn\r\n").as_bytes(), b"MN\r\n") == there).then_some(())
            });
        }
    };
    wait_for("cache nodes answer what is hot", || {
        (0..100).for_each(|_| assert_eq!(client.ask(b"get key0\r\n", b"END\r\n"), found("key0", b"value")));
        (cluster.hits() > 0).then_some(())
    });
    let pid = cluster.process.pid();
    let (text, processes) = cluster.status();
    let roles: BTreeMap<&str, usize> = processes.iter().map(|(role, pids)| (role.as_str(), pids.len())).collect();
    assert_eq!(roles, [("backend", 3), ("cache", 2), ("controller", 1), ("gateway", 1)].into(), "{text}");
    assert!(processes.values().flatten().all(|member| u32::try_from(*member) == Ok(pid)), "{text}");
    assert_eq!(children(pid), 0);

    cluster.process.signal(Signal::KILL);
    cluster.process.wait();
    let cluster = Cluster::up_in(cluster.folder, &arguments);
    is_all_there(&cluster);
    assert_eq!(cluster.connect().ask(&set("last", b"value"), b"\r\n"), b"STORED\r\n");
    // With processes of their own they are the same cluster.
    let cluster = Cluster::up_in(cluster.down(), &arguments[1..]);
    is_all_there(&cluster);
    assert_eq!(cluster.connect().ask(b"get last\r\n", b"END\r\n"), found("last", b"value"));
    assert_eq!(cluster.status().1["backend"].iter().collect::<BTreeSet<_>>().len(), 3);
    cluster.down();
}

/// Its ports and the lock of its store are free again, though the process goes on.
#[test]
fn a_member_in_one_process_that_has_ended_is_started_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let within = folder.path().join("cluster");
    DirBuilder::new().mode(0o700).create(&within).expect("a folder");
    // Each gets as far as the socket on which it is asked how it is.
    let in_the_way = [1_000, 10_000].map(|id| within.join(format!("node-{id}.sock")));
    in_the_way.iter().for_each(|path| fs::write(path, "mine").expect("a file"));
    let cluster = Cluster::start_in(folder, &["--one-process", "--backends", "2"]);
    for member in ["backend 1000", "gateway 10000"] {
        wait_for("it has ended twice", || {
            let said = cluster.process.complaints();
            (said.matches(&format!("{member} has ended")).count() >= 2).then_some(())
        });
    }
    in_the_way.iter().for_each(|path| fs::remove_file(path).expect("it is there"));
    cluster.answers();
    let mut client = cluster.connect();
    for item in 0..50 {
        wait_for("its backend serves", || {
            (client.ask(&set(&format!("key{item}"), b"value"), b"\r\n") == b"STORED\r\n").then_some(())
        });
    }
    let (text, processes) = cluster.status();
    assert_eq!(processes["backend"].len(), 2, "{text}");
    cluster.down();
}

/// Processes that a process has started.
fn children(pid: u32) -> usize {
    let parent = format!("PPid:\t{pid}");
    let processes = fs::read_dir("/proc").expect("it is there").flatten();
    let statuses = processes.filter_map(|process| fs::read_to_string(process.path().join("status")).ok());
    statuses.filter(|status| status.lines().any(|line| line == parent)).count()
}

/// A number of `stats`.
fn number(client: &mut Connection, name: &str) -> u64 {
    let told: BTreeMap<String, String> = stats(client, "").into_iter().collect();
    told.get(name).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {told:?}"))
}

#[test]
fn a_gateway_tells_what_all_backends_have() {
    const ITEMS: u64 = 300;
    let cluster = Cluster::up(&["--backends", "2"]);
    let mut client = cluster.connect();
    for item in 0..ITEMS {
        assert_eq!(client.ask(&set(&format!("key{item}"), b"value"), b"\r\n"), b"STORED\r\n");
    }
    wait_for("all are told of", || (number(&mut client, "curr_items") == ITEMS).then_some(()));
    assert_eq!(number(&mut client, "store_records"), ITEMS);
    assert!(number(&mut client, "cluster_to_backends") >= ITEMS);
    // What was done before a backend was first heard of is not counted, and it was heard of with these.
    let writes = number(&mut client, "store_writes");
    assert_eq!(client.ask(&set("another", b"value"), b"\r\n"), b"STORED\r\n");
    wait_for("one more is told of", || {
        let is_told = number(&mut client, "store_writes") > writes && number(&mut client, "curr_items") == ITEMS + 1;
        is_told.then_some(())
    });
    let backends = |client: &mut Connection| {
        ["cluster_backends", "cluster_backends_heard", "cluster_backends_read_only"].map(|name| number(client, name))
    };
    wait_for("both are heard of", || (backends(&mut client) == [2, 2, 0]).then_some(()));
    assert_eq!(client.ask(b"stats reset\r\n", b"\r\n"), b"RESET\r\n");
    assert_eq!((number(&mut client, "cluster_to_backends"), number(&mut client, "curr_items")), (0, ITEMS + 1));

    let stopped = cluster.signal("backend", 0, Signal::STOP);
    wait_for("a backend is missed", || (backends(&mut client) == [2, 1, 0]).then_some(()));
    assert_eq!(number(&mut client, "curr_items"), ITEMS + 1, "it still has them");
    send(stopped, Signal::CONT);
    wait_for("it is heard of again", || (backends(&mut client) == [2, 2, 0]).then_some(()));
    cluster.down();
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 3 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn found(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 3 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
}

#[test]
fn values_beyond_a_datagram_are_stored_changed_cached_and_gone() {
    let cluster = Cluster::up(&["--backends", "2", "--store", "memory"]);
    let (mut client, mut other) = (cluster.connect(), cluster.connect());
    for len in [100_000, 1_000_000] {
        let key = format!("hot{len}");
        let value = |number: u8| -> Vec<u8> {
            (0..len).map(|at| b'a' + (at + at / 26 + usize::from(number)) as u8 % 26).collect()
        };
        let get = format!("get {key}\r\n").into_bytes();
        assert_eq!(client.ask(&set(&key, &value(0)), b"\r\n"), b"STORED\r\n");
        let before = cluster.hits();
        wait_for("the key is hot", || {
            for _ in 0..20 {
                assert!(client.ask(&get, b"END\r\n") == found(&key, &value(0)));
            }
            (cluster.hits() > before).then_some(())
        });
        let before = cluster.hits();
        for number in 1..20 {
            assert_eq!(other.ask(&set(&key, &value(number)), b"\r\n"), b"STORED\r\n");
            for _ in 0..3 {
                assert!(client.ask(&get, b"END\r\n") == found(&key, &value(number)), "{len} bytes, {number}");
            }
        }
        assert!(cluster.hits() > before, "what was changed is answered by the cache node");
        assert_eq!(other.ask(format!("delete {key}\r\n").as_bytes(), b"\r\n"), b"DELETED\r\n");
        assert_eq!(client.ask(&get, b"END\r\n"), b"END\r\n");
    }
    assert_eq!(
        client.ask(&set("large", &vec![b'x'; 1 << 20]), b"\r\n"),
        b"SERVER_ERROR object too large for cache\r\n"
    );
    let large = vec![b'x'; (1 << 20) - 1_000];
    assert_eq!(client.ask(&set("large", &large), b"\r\n"), b"STORED\r\n");
    let append = [&b"append large 0 0 1000\r\n"[..], &large[..1_000], b"\r\n"].concat();
    assert_eq!(client.ask(&append, b"\r\n"), b"NOT_STORED\r\n", "with what is there it is too large");
    assert!(client.ask(b"get large\r\n", b"END\r\n") == found("large", &large));
    let keys: Vec<String> = (0..50).map(|number| format!("many{number}")).collect();
    let value = vec![b'y'; 1_000_000];
    for key in &keys {
        assert_eq!(client.ask(&set(key, &value), b"\r\n"), b"STORED\r\n");
    }
    let all = client.ask(format!("get {}\r\n", keys.join(" ")).as_bytes(), b"END\r\n");
    let expected: Vec<u8> =
        keys.iter().flat_map(|key| found(key, &value)[..].strip_suffix(b"END\r\n").unwrap().to_vec()).collect();
    assert!(all == [&expected, &b"END\r\n"[..]].concat(), "{} of {} bytes", all.len(), expected.len());
    cluster.down();
}

#[test]
fn the_largest_item_is_as_large_as_was_said() {
    let cluster = Cluster::up(&["--backends", "1", "--store", "memory", "-I", "16m", "--cache-megabytes", "1"]);
    let mut client = cluster.connect();
    let value = vec![b'z'; (16 << 20) - 1_000];
    assert_eq!(client.ask(&set("key", &value), b"\r\n"), b"STORED\r\n");
    // More than the cache node may have: however hot it is, its backend answers.
    for _ in 0..20 {
        assert!(client.ask(b"get key\r\n", b"END\r\n") == found("key", &value));
    }
    assert_eq!(cluster.hits(), 0);
    assert_eq!(client.ask(&set("key", &vec![b'z'; 16 << 20]), b"\r\n"), b"SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.ask(&set("small", b"x"), b"\r\n"), b"STORED\r\n");
    cluster.down();
}

/// Members are killed and stopped while clients are at work; then all goes down and comes up again. What was seen can have been so.
#[test]
fn members_that_are_killed_or_stopped_cost_nothing_but_time() {
    let cluster = Cluster::up(&["--backends", "3", "--durability", "os"]);
    let book = Book::of_a_cluster();
    let folder = thread::scope(|scope| {
        cluster.has_clients(scope, &book);
        book.wait_for_acts(2_000);
        wait_for("the cache node serves", || (cluster.hits() > 0).then_some(()));
        for (role, at) in [("cache", 0), ("backend", 0), ("controller", 0), ("cache", 0), ("backend", 2)] {
            let pid = cluster.signal(role, at, Signal::KILL);
            wait_for("it is started again", || {
                let (_, processes) = cluster.status();
                let all = processes.get(role)?;
                (!all.contains(&pid) && all.len() > at).then_some(())
            });
            book.wait_for_acts(1_000);
        }
        let cache = cluster.signal("cache", 0, Signal::STOP);
        // So many that all have come to keys that it has, and gone on when its lease was over.
        book.wait_for_acts(3_000);
        send(cache, Signal::CONT);
        book.wait_for_acts(1_000);
        // Soon all clients ask for keys of this one, and are told after five seconds that it does not answer.
        let backend = cluster.signal("backend", 0, Signal::STOP);
        book.wait_for_refusals(CLIENTS as u64);
        send(backend, Signal::CONT);
        book.wait_for_acts(1_000);
        cluster.down()
    });
    book.nothing_is_under_way();
    let cluster = Cluster::up_in(folder, &["--backends", "3", "--durability", "os"]);
    let mut client = cluster.connect();
    for key in 0..KEYS {
        let history = read_at_last(&book, &mut client, key);
        check_key(&Rising, key, &history);
    }
    cluster.down();
}

/// Its clock was ahead when it last ran: it was not let in again by backends that lived on.
#[test]
fn a_gateway_whose_clock_was_set_back_is_let_in_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let life = (unix_now() + Duration::from_secs(1_000_000)).as_nanos().to_string();
    let path = folder.path().join("cluster").join("node-10000.life");
    DirBuilder::new().mode(0o700).create(path.parent().expect("a folder")).expect("made");
    fs::write(&path, &life).expect("written");
    let cluster = Cluster::up_in(folder, &["--backends", "1", "--store", "memory"]);
    assert_eq!(cluster.connect().ask(b"set key 0 0 3\r\nold\r\n", b"\r\n"), b"STORED\r\n");
    let killed = cluster.signal("gateway", 0, Signal::KILL);
    wait_for("it is started again", || {
        let (_, processes) = cluster.status();
        (*processes.get("gateway")?.first()? != killed).then_some(())
    });
    let mut client = wait_for("it listens", || Connection::try_open(cluster.address).ok());
    assert_eq!(client.ask(b"set key 0 0 3\r\nnew\r\n", b"\r\n"), b"STORED\r\n");
    assert_eq!(client.ask(b"get key\r\n", b"END\r\n"), b"VALUE key 0 3\r\nnew\r\nEND\r\n");
    let _folder = cluster.down();
    let kept = fs::read_to_string(path).expect("kept");
    assert!(kept.trim().parse::<u128>().expect("a number") > life.parse().expect("a number"));
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |arguments: &[&str]| {
        let said = guira(arguments, folder.path()).output().expect("it is run");
        assert!(!said.status.success());
        let text = String::from_utf8(said.stderr).expect("text");
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    assert!(said(&["status"]).contains("no cluster is up in"));
    assert!(said(&["down"]).contains("no cluster is up in"));
    assert!(said(&["up", "--topology", "symmetric", "--backends", "2"]).contains("--backends: of --topology switched"));
    assert!(said(&["up", "--nodes", "2"]).contains("--nodes: of --topology symmetric"));
    let told = said(&["up", "--topology", "symmetric", "--memory-per-node", "7m"]);
    assert!(told.contains("memory_megabytes: from 8"), "{told}");
    assert!(said(&["up", "--backends", "0"]).contains("backends"));
    assert!(said(&["up", "--durability", "hardly"]).contains("--durability"));
    assert!(said(&["up", "--store-limit", "0"]).contains("--store-limit"));
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("its number").port().to_string();
    assert!(said(&["up", "--port", &port]).contains("cannot listen on"));
    assert!(said(&["up", "--lease-ms", "1"]).contains("lease_ms"));
    assert!(said(&["up", "--cache-threads", "0"]).contains("--cache-threads"));
    assert!(said(&["up", "--caches", "4", "--cache-threads", "256"]).contains("900 at most"));
    assert!(said(&["up", "--cache-mode", "hardly"]).contains("write switched, look-aside"));
    assert!(said(&["up", "-I", "17m"]).contains("-I 17m: from 1k to 16m"));
    let node = |arguments: &[&str]| {
        let said = Command::new(Program::Guira.path()).arg("node").args(arguments).output().expect("it is run");
        assert!(!said.status.success());
        String::from_utf8(said.stderr).expect("text")
    };
    assert!(node(&["--coordinator", "etcd:localhost", "--id", "1"]).contains("write etcd:HOST:PORT"));
    assert!(node(&["--coordinator", "static:/nowhere", "--id", "1"]).contains("No such file"));
}
