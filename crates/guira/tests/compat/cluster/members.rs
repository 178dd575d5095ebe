//! A cluster whose members are this test's own processes: a controller, a cache node, three backends and a gateway, each with a view of its own of
//! where the others are.
//!
//! Always true: a member ends with the test's thread, or with the test's process, however that ends; one that was killed is started again only by the
//! test.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use guira_cluster::ask_line;
use guira_history::Event;
use guira_routing::NodeId;
use guira_switched::{BackendRole, CacheMode, Member, Network, Plug, Role, StaticFile, hash_of};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::rising::Rising;
use crate::{
    book::{Act, Book, CLIENTS, KEYS, check_key, read_at_last, work_until_killed},
    condition::{DEADLINE, wait_for},
    connection::Connection,
    differential::number_from_environment,
    server::{Process, Program},
};

/// The members' numbers, by their places.
pub const IDS: [u16; 6] = [CONTROLLER, CACHE, BACKENDS[0], BACKENDS[1], BACKENDS[2], GATEWAY];
pub const CONTROLLER: u16 = 1;
pub const CACHE: u16 = 100;
pub const BACKENDS: [u16; 3] = [1_000, 1_001, 1_002];
pub const GATEWAY: u16 = 10_000;

/// The place of a member in the list of all.
pub fn place_of(id: u16) -> usize {
    IDS.iter().position(|other| *other == id).unwrap_or_else(|| panic!("{id} is no member"))
}

/// How long a lease is: long enough that a backend that is killed is back while it runs.
const LEASE_MS: u64 = 1_500;

/// Answers between one event and the next.
pub const ACTS: u64 = 400;

/// How long a client waits until it is told that there is no answer.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// A moment: for who is to be refused.
    Short,
    /// As long as all that is to be answered may take on a machine that is busy.
    Long,
}

/// Where a cluster runs.
pub trait Place {
    /// Where a member sees another, or itself.
    fn seen(&self, by: u16, whom: u16) -> SocketAddr;

    /// Where clients find the gateway.
    fn for_clients(&self) -> SocketAddr;

    /// What routes there, if the gateway does not.
    fn network(&self) -> Option<Network> {
        None
    }

    /// Where a member is for a switch.
    fn plug(&self, _: u16) -> Plug {
        Plug::default()
    }

    /// A router that is to be started beside the members: its number, and what it is told beside what each is.
    fn router(&self) -> Option<(u16, Vec<String>)> {
        None
    }

    /// A command that runs a program where a member is.
    fn command(&self, id: u16, program: PathBuf) -> Command;
}

/// A cluster that is up, in a place of this kind.
pub struct Members<P> {
    // Gone first: they have what lies in the folder open.
    processes: BTreeMap<u16, Process>,
    folder: TempDir,
    patience: Patience,
    pub place: P,
}

impl<P: Place> Members<P> {
    /// Starts one, and waits until all backends answer.
    pub fn up(place: P, patience: Patience) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut members = Self { processes: BTreeMap::new(), folder, patience, place };
        for id in members.ids() {
            let text = members.view(id).print().expect("a file");
            fs::write(members.file(id), text).expect("room for a few lines");
        }
        members.start_all();
        members
    }

    /// All who are started, in their order.
    fn ids(&self) -> Vec<u16> {
        IDS.into_iter().chain(self.place.router().map(|(id, _)| id)).collect()
    }

    /// The cluster as one of its members sees it.
    fn view(&self, by: u16) -> StaticFile {
        let member = |id| {
            let role = match id {
                CONTROLLER => Role::Controller,
                CACHE => Role::CACHE,
                GATEWAY => Role::Gateway { listen: self.place.for_clients(), cache_mode: CacheMode::default() },
                backend => {
                    let store = format!("rocksdb:{}", self.folder.path().join(format!("backend-{backend}")).display());
                    Role::Backend(BackendRole { cache: Some(CACHE), store, ..BackendRole::default() })
                }
            };
            Member { plug: self.place.plug(id), ..Member::new(id, self.place.seen(by, id), role) }
        };
        StaticFile {
            secret: "not much of a secret".into(),
            lease_ms: LEASE_MS,
            answer_within_ms: match self.patience {
                Patience::Short => 2_000,
                Patience::Long => 15_000,
            },
            burst_load_min: 0.0,
            durability: "os".into(),
            store_megabytes: 16,
            network: self.place.network(),
            members: IDS.into_iter().map(member).collect(),
            ..StaticFile::default()
        }
    }

    fn file(&self, id: u16) -> PathBuf {
        self.folder.path().join(format!("{id}.toml"))
    }

    fn socket(&self, id: u16) -> PathBuf {
        self.folder.path().join(format!("{id}.sock"))
    }

    /// Starts a member that is down.
    pub fn start(&mut self, id: u16) {
        let mut command = self.place.command(id, Program::Guira.path());
        command.args(["node", "--id", &id.to_string(), "--with-parent", &std::process::id().to_string()]);
        command.arg("--coordinator").arg(format!("static:{}", self.file(id).display()));
        command.arg("--status-socket").arg(self.socket(id)).stdin(Stdio::null());
        if let Some((_, words)) = self.place.router().filter(|(router, _)| *router == id) {
            command.args(["--role", "router"]).args(words);
        }
        assert!(self.processes.insert(id, Process::start(command)).is_none(), "{id} is up");
    }

    /// Starts all, and waits until each of the keys that clients work with is answered.
    pub fn start_all(&mut self) {
        self.ids().into_iter().for_each(|id| self.start(id));
        let address = self.place.for_clients();
        wait_for("the gateway takes connections", || {
            if let Some(id) = self.ids().into_iter().find(|id| self.process(*id).ended().is_some()) {
                panic!("{id} has ended: {}", self.process(id).complaints());
            }
            Connection::try_open(address).ok().map(drop)
        });
        self.wait_until_all_is_answered();
    }

    fn process(&mut self, id: u16) -> &mut Process {
        self.processes.get_mut(&id).unwrap_or_else(|| panic!("{id} is down"))
    }

    /// Kills a member (SIGKILL), and waits for its end.
    pub fn kill(&mut self, id: u16) {
        let mut process = self.processes.remove(&id).unwrap_or_else(|| panic!("{id} is down"));
        process.signal(Signal::KILL);
        process.wait();
    }

    /// A new connection through the gateway.
    pub fn connect(&self) -> Connection {
        Connection::open(self.place.for_clients())
    }

    /// What a member says of itself under this name. One that starts is waited for: it has said nothing yet, which is not the same as 0.
    pub fn number(&self, id: u16, name: &str) -> u64 {
        wait_for(&format!("{id} says its {name}"), || {
            let told = ask_line(&self.socket(id), "status", DEADLINE).ok()?;
            serde_json::from_str::<Value>(&told).ok()?.get(name)?.as_u64()
        })
    }

    /// Waits until a member says more than this under a name.
    pub fn wait_for_more(&self, id: u16, name: &str, than: u64) {
        wait_for(&format!("{id} has more than {than} {name}"), || (self.number(id, name) > than).then_some(()));
    }

    /// Waits until the cache node has answered more reads, and heard of more changes, than it has by now.
    pub fn wait_until_the_cache_serves(&self) {
        let before = ["hits", "updated"].map(|name| (name, self.number(CACHE, name)));
        before.into_iter().for_each(|(name, than)| self.wait_for_more(CACHE, name, than));
    }

    /// The backend that has a key.
    pub fn owner_of(&self, key: &str) -> u16 {
        let partitions = self.view(GATEWAY).partitions().expect("backends");
        let NodeId(owner) = partitions.owner_of(hash_of(key.as_bytes()));
        owner
    }

    /// A key with this beginning that a backend has.
    pub fn key_of(&self, backend: u16, beginning: &str) -> String {
        let mut keys = (0..).map(|number| format!("{beginning}{number}"));
        keys.find(|key| self.owner_of(key) == backend).expect("a backend has a part of all keys")
    }

    /// Waits until each of the clients' keys is answered.
    pub fn wait_until_all_is_answered(&self) {
        let mut client = self.connect();
        for key in 0..KEYS {
            wait_for(&format!("key{key} is answered"), || {
                let answer = client.ask(format!("mg key{key} v\r\nmn\r\n").as_bytes(), b"MN\r\n");
                (!answer.starts_with(b"SERVER_ERROR")).then_some(())
            });
        }
    }

    /// Clients work while something goes on; then all members are killed, and started again, and what is left is looked at. Panics unless all that was
    /// seen can have been so. Returns what was seen of each key.
    pub fn survive(mut self, book: &Book, seed: u64, meanwhile: impl FnOnce(&mut Self)) -> Vec<Vec<Event<Act>>> {
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let connection = self.connect();
                scope.spawn(move || work_until_killed(connection, book, 1 + seed * 100 + client as u64));
            }
            // Clients end with the gateway, even if this panics.
            let working = Working(&mut self);
            meanwhile(working.0);
            working.0.wait_until_all_is_answered();
            working.0.wait_until_the_cache_serves();
        });
        book.nothing_is_under_way();
        self.start_all();
        let mut client = self.connect();
        let histories: Vec<_> = (0..KEYS).map(|key| read_at_last(book, &mut client, key)).collect();
        for (key, history) in histories.iter().enumerate() {
            check_key(&Rising, key, history);
        }
        histories
    }
}

/// A cluster at work, whose members are killed at the end.
struct Working<'m, P>(&'m mut Members<P>);

impl<P> Drop for Working<'_, P> {
    fn drop(&mut self) {
        // Dropped, a process is killed and waited for: the gateway first, since a member that is down would be a reason for refusals.
        self.0.processes.remove(&GATEWAY);
        self.0.processes.clear();
    }
}

/// What is drawn: told if the test fails.
pub fn seed() -> u64 {
    let seed = number_from_environment("GUIRA_FAULTS_SEED", 1);
    println!("GUIRA_FAULTS_SEED={seed}");
    seed
}

/// The backend that is cut off: it has one of the clients' keys at least.
pub fn victim(members: &Members<impl Place>) -> u16 {
    let owners: Vec<u16> = (0..KEYS).map(|key| members.owner_of(&format!("key{key}"))).collect();
    assert!(owners.iter().any(|owner| *owner != owners[0]), "all keys at one backend");
    owners[0]
}

/// Whether a key, which is not there, is answered, and not with an error.
pub fn is_answered(client: &mut Connection, key: &str) -> bool {
    let answer = client.ask(format!("get {key}\r\n").as_bytes(), b"\r\n");
    let is_away = answer == b"SERVER_ERROR who has this key has not answered in time, nothing was changed\r\n";
    assert!(is_away || answer == b"END\r\n", "{}", answer.escape_ascii());
    !is_away
}
