//! `guira cluster`: a whole cluster on this machine, each member a process of its own, or all in one; and who is in one that a coordinator keeps (`coordinated`).
//!
//! ```text
//! FOLDER/cluster.toml    who the members are (for `guira node --coordinator static:`)
//!        cluster.sock    through which the cluster is asked and taken down
//!        node-N.sock     through which member N is asked
//!        node-N.life     the number of its life
//!        backend-N/      its items
//!        views           of a symmetric cluster: who is there (and `views.lock`: its coordinator runs)
//!        switch/         of the Open vSwitch that routes, if one does
//! ```

mod coordinated;
mod network;
mod ports;
mod running;
mod switched;
mod symmetric;
mod table;
mod up;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use guira_cluster::{LineSocket, ask_line};
use guira_switched::Router;
use serde_json::Value;

use crate::node::{self, ClusterFile, ROUTER};
use running::{END_WITHIN, RunningMembers};
use table::{Row, table};
use up::GivenUp;

const CONTROLLER: u16 = 1;
/// A router's number, which is no member.
const ROUTER_ID: u16 = 2;
const FIRST_CACHE: u16 = 100;
const FIRST_BACKEND: u16 = 1_000;
const GATEWAY: u16 = 10_000;
/// A symmetric cluster's: nodes are numbered from 1 on.
const COORDINATOR: u16 = 10_000;

/// How often members are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long an answer of a process is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to do with a cluster.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Start one, and keep it up until this process is ended
    Up(Box<GivenUp>),
    /// Tell how its members are
    Status(At),
    /// Take it down
    Down(At),
    /// Make one whose members etcd keeps
    Create(coordinated::Create),
    /// Add members to one that etcd keeps
    Add(coordinated::Add),
    /// Remove members from one that etcd keeps
    Remove(coordinated::Remove),
    /// Tell who is in one that etcd keeps, who of them is alive, and how many partitions backends have
    Members(coordinated::Members),
}

/// Which cluster.
#[derive(clap::Args, Debug)]
struct At {
    /// The folder it was started in
    #[arg(long, default_value = "guira-cluster")]
    folder: PathBuf,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), String> {
    match arguments.what {
        What::Up(up) => up.run(),
        What::Status(at) => at.status(),
        What::Down(at) => at.down(),
        What::Create(create) => create.run(),
        What::Add(add) => add.run(),
        What::Remove(remove) => remove.run(),
        What::Members(members) => members.run(),
    }
}

impl At {
    fn file(&self) -> PathBuf {
        self.folder.join("cluster.toml")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("cluster.sock")
    }

    fn node_socket(&self, id: u16) -> PathBuf {
        self.folder.join(format!("node-{id}.sock"))
    }

    fn life_file(&self, id: u16) -> PathBuf {
        self.folder.join(format!("node-{id}.life"))
    }

    /// What a member is started with.
    fn arguments(&self, id: u16, role: &str, threads: u16) -> node::Arguments {
        node::Arguments::in_company(self.file(), id, role, threads.into(), self.node_socket(id))
    }

    fn ask(&self, line: &str, patience: Duration) -> Result<String, String> {
        ask_line(&self.socket(), line, patience).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                format!("the cluster in {} does not answer: it may be ending", self.folder.display())
            }
            _ => format!("no cluster is up in {}: {error}", self.folder.display()),
        })
    }

    fn down(&self) -> Result<(), String> {
        match self.ask("down", END_WITHIN * 2 + PATIENCE)?.as_str() {
            "not yet" => Err(format!("the members in {} are ending, and have not yet", self.folder.display())),
            // It may have ended before it could say so.
            _ => Ok(()),
        }
    }

    fn status(&self) -> Result<(), String> {
        let up = self.ask("status", PATIENCE)?;
        let up: BTreeMap<String, Value> = serde_json::from_str(&up).map_err(|error| error.to_string())?;
        let members: Vec<(&str, u16)> = match ClusterFile::read(&self.file())? {
            ClusterFile::Switched(file) => {
                let is_routed = file.network.as_ref().is_some_and(|network| network.router == Router::Xdp);
                let members = file.members.iter().map(|member| (member.role.name(), member.id));
                members.chain(is_routed.then_some((ROUTER, ROUTER_ID))).collect()
            }
            ClusterFile::Symmetric(file) => file.members.iter().map(|member| (member.role.name(), member.id)).collect(),
        };
        let rows = members.into_iter().map(|(role, id)| {
            let told = ask_line(&self.node_socket(id), "status", PATIENCE).unwrap_or_default();
            Row { role, id, told: serde_json::from_str(&told).unwrap_or(Value::Null) }
        });
        print!("{}", table(&rows.collect::<Vec<_>>(), &up));
        Ok(())
    }
}

fn within(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the cluster's process is asked.
enum Wish {
    /// To end; who asks waits until this is dropped.
    End(Option<Sender<()>>),
}

fn open_socket(at: &At, members: &Arc<Mutex<RunningMembers>>, wishes: Sender<Wish>) -> Result<LineSocket, String> {
    let members = Arc::clone(members);
    let answer = move |line: &str| match line {
        "status" => lock(&members).status(),
        "down" => {
            let (end, ended) = mpsc::channel();
            // Until the other end is dropped, when all have ended.
            let is_told = wishes.send(Wish::End(Some(end))).is_ok();
            match is_told.then(|| ended.recv_timeout(END_WITHIN * 2)) {
                Some(Err(RecvTimeoutError::Timeout)) => "not yet".into(),
                _ => "ended".into(),
            }
        }
        _ => String::new(),
    };
    LineSocket::open(&at.socket(), answer).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!("a cluster is up in {} already", at.folder.display()),
        _ => within(&at.socket(), &error),
    })
}

/// Says a line. A closed standard error is no reason to end.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "guira: {line}");
}

fn draw_secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only its owner can read, whole or not at all.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let new = path.with_extension("new");
    let write = || {
        // One that a kill has left.
        if new.exists() {
            fs::remove_file(&new)?;
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error: io::Error| within(path, &error))
}
