//! An etcd of a test's own. Tests of other crates have this file too.
//!
//! Always true: it listens on 127.0.0.1 only, on ports that were free, and ends with the test.

#![allow(dead_code, reason = "each test uses some of it")]

use std::{
    env,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use guira_etcd::{Etcd, Place};
use tempfile::TempDir;

/// Far more than a busy machine needs.
const START_MAX: Duration = Duration::from_secs(60);

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
        let deadline = Instant::now() + START_MAX;
        while self.process.try_wait().expect("it is ours").is_none() {
            // It is asked for some seconds.
            if Etcd::connect(&self.place("none")).is_ok() {
                return true;
            }
            assert!(Instant::now() < deadline, "etcd does not answer within {START_MAX:?}");
        }
        false
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
        fs::remove_dir_all(self.folder.path().join("data")).expect("it is there");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(folder: &Path, [client, peer]: [SocketAddr; 2]) -> Child {
    let log = File::create(folder.join("log")).expect("a file");
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
