//! An etcd of a test's own, what is in it without our code in between, and a cluster to put there.
//!
//! Always true: it listens on 127.0.0.1 only, on ports that were free, and ends with the test; what is waited for is asked for until it is so.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod line;

use std::{
    env,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use etcd_client::{Client, KeyValue};
use guira_etcd::{Etcd, Place};
use guira_switched::{CacheMode, Member, Role, StaticFile};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Far more than a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const SECRET: &str = "not much of a secret";

/// Waits until it is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in {PATIENCE:?}: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// A controller, two cache nodes, two backends and a gateway.
pub fn cluster(name: &str) -> StaticFile {
    let backend =
        |cache| Role::Backend { cache: Some(cache), store: "memory".into(), store_limit: None, request_limit: None };
    let members = vec![
        member(1, Role::Controller),
        cache(100),
        cache(101),
        member(1_000, backend(100)),
        member(1_001, backend(101)),
        gateway(10_000),
    ];
    StaticFile { cluster: name.into(), secret: SECRET.into(), members, ..StaticFile::default() }
}

pub fn cache(id: u16) -> Member {
    member(id, Role::Cache)
}

pub fn gateway(id: u16) -> Member {
    member(id, Role::Gateway { listen: ([127, 0, 0, 1], 11_211).into(), cache_mode: CacheMode::default() })
}

fn member(id: u16, role: Role) -> Member {
    Member { id, address: ([127, 0, 0, 1], id).into(), role }
}

fn program() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/etcd");
    let found = env::var_os("GUIRA_ETCD").map(PathBuf::from).or_else(|| {
        let output = Command::new(script).arg("path").output().ok().filter(|output| output.status.success())?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end()))
    });
    found.expect("no etcd: run scripts/etcd install, or say where it is with GUIRA_ETCD")
}

/// An etcd of one.
pub struct Server {
    folder: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    process: Child,
}

impl Server {
    pub fn start() -> Self {
        loop {
            let [client, peer] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
            let addresses = [&client, &peer].map(|listener| listener.local_addr().expect("its address"));
            drop((client, peer));
            let folder = tempfile::tempdir().expect("a folder");
            let process = run(folder.path(), addresses);
            let mut server = Self { folder, client: addresses[0], peer: addresses[1], process };
            // If it has ended, somebody else has taken a port.
            if server.answers() {
                return server;
            }
        }
    }

    fn answers(&mut self) -> bool {
        let mut has_ended = false;
        wait_until("etcd answers", || {
            has_ended = self.process.try_wait().expect("it is ours").is_some();
            has_ended || Etcd::connect(&self.place("none")).is_ok()
        });
        !has_ended
    }

    pub fn address(&self) -> SocketAddr {
        self.client
    }

    pub fn place(&self, name: &str) -> Place {
        format!("{}/{name}", self.client).parse().expect("a place")
    }

    pub fn etcd(&self, name: &str) -> Etcd {
        Etcd::connect(&self.place(name)).expect("it answers")
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }

    /// Starts it again after it was killed.
    pub fn start_again(&mut self) {
        self.process = run(self.folder.path(), [self.client, self.peer]);
        assert!(self.answers(), "its ports are somebody else's now");
    }

    /// Loses all that was in it, after it was killed.
    pub fn forget(&mut self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("it is there");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(folder: &Path, [client, peer]: [SocketAddr; 2]) -> Child {
    let log = std::fs::File::create(folder.join("log")).expect("a file");
    Command::new(program())
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--name", "one", "--logger", "zap", "--heartbeat-interval", "50", "--election-timeout", "500"])
        .args(["--listen-client-urls", &format!("http://{client}")])
        .args(["--advertise-client-urls", &format!("http://{client}")])
        .args(["--listen-peer-urls", &format!("http://{peer}")])
        .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
        .args(["--initial-cluster", &format!("one=http://{peer}")])
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("etcd runs")
}

/// What is in etcd, without our code in between.
pub struct Raw {
    runtime: Runtime,
    pub client: Client,
}

impl Raw {
    pub fn of(server: &Server) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(Client::connect([server.address().to_string()], None)).expect("a client");
        Self { runtime, client }
    }

    pub fn get(&mut self, key: &str) -> Option<KeyValue> {
        self.runtime.block_on(self.client.get(key, None)).expect("it answers").take_kvs().pop()
    }

    pub fn put(&mut self, key: &str, value: &str) -> i64 {
        let put = self.runtime.block_on(self.client.put(key, value, None)).expect("it answers");
        put.header().expect("a header").revision()
    }

    pub fn delete(&mut self, key: &str) {
        self.runtime.block_on(self.client.delete(key, None)).expect("it answers");
    }

    pub fn leases(&mut self) -> Vec<i64> {
        let leases = self.runtime.block_on(self.client.leases()).expect("it answers");
        leases.leases().iter().map(|lease| lease.id()).collect()
    }

    /// A lease that nobody keeps, which runs out after so many seconds.
    pub fn lease_another(&mut self, ttl_s: i64) {
        self.runtime.block_on(self.client.lease_grant(ttl_s, None)).expect("it is granted");
    }

    pub fn revoke_all(&mut self) {
        for lease in self.leases() {
            self.runtime.block_on(self.client.lease_revoke(lease)).expect("it is there");
        }
    }

    /// Forgets all that was before now.
    pub fn compact(&mut self) {
        let now = self.runtime.block_on(self.client.get("nothing", None)).expect("it answers");
        let revision = now.header().expect("a header").revision();
        self.runtime.block_on(self.client.compact(revision, None)).expect("it compacts");
    }

    /// From now on who asks has to say who he is.
    pub fn want_users(&mut self) {
        let Self { runtime, client } = self;
        runtime.block_on(async {
            client.user_add("root", "password", None).await.expect("a user");
            client.user_grant_role("root", "root").await.expect("may do all");
            client.auth_enable().await.expect("it is so");
        });
    }
}
