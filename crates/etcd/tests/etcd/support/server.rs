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
    sync::Arc,
    time::{Duration, Instant},
};

use guira_etcd::{Access, Etcd, EtcdError, Place};
use tempfile::TempDir;

use super::certificates::Certificates;

/// Far more than a busy machine needs.
const START_MAX: Duration = Duration::from_secs(60);

/// How long it is known who has shown a password, if he asks nothing meanwhile.
pub const TOKEN_LASTS: Duration = Duration::from_secs(1);

fn program() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/etcd");
    let found = env::var_os("GUIRA_ETCD").map(PathBuf::from).or_else(|| {
        let output = Command::new(script).arg("path").output().ok().filter(|output| output.status.success())?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end()))
    });
    found.expect("no etcd: run scripts/etcd install, or say where it is with GUIRA_ETCD")
}

/// An etcd: one alone, or one of several.
pub struct Server {
    folder: TempDir,
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
    /// All of them, as each is told.
    cluster: String,
    certificates: Option<Arc<Certificates>>,
    process: Child,
}

impl Server {
    pub fn start() -> Self {
        Self::start_several(1, None).remove(0)
    }

    /// One that speaks over TLS alone, and with who shows a certificate.
    pub fn start_with(certificates: &Arc<Certificates>) -> Self {
        Self::start_several(1, Some(certificates)).remove(0)
    }

    /// Several that are one.
    pub fn start_several(count: usize, certificates: Option<&Arc<Certificates>>) -> Vec<Self> {
        loop {
            let port = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let ports: Vec<[TcpListener; 2]> = (0..count).map(|_| [port(), port()]).collect();
            let address = |listener: &TcpListener| listener.local_addr().expect("its address");
            let addresses: Vec<_> = ports.iter().map(|[client, peer]| (address(client), address(peer))).collect();
            drop(ports);
            let named = |(number, (_, peer)): (usize, &(SocketAddr, SocketAddr))| format!("e{number}=http://{peer}");
            let cluster = addresses.iter().enumerate().map(named).collect::<Vec<_>>().join(",");
            let start = |(number, (client, peer))| {
                let folder = tempfile::tempdir().expect("a folder");
                let name = format!("e{number}");
                let process = run(folder.path(), &name, client, peer, &cluster, certificates.map(|files| &**files));
                let (cluster, certificates) = (cluster.clone(), certificates.cloned());
                Self { folder, name, client, peer, cluster, certificates, process }
            };
            let mut servers: Vec<Self> = addresses.into_iter().enumerate().map(start).collect();
            if Self::answer(&mut servers) {
                return servers;
            }
        }
    }

    /// Waits until all do. If one has ended, somebody else has taken a port.
    fn answer(servers: &mut [Self]) -> bool {
        let deadline = Instant::now() + START_MAX;
        while servers.iter_mut().all(|server| server.process.try_wait().expect("it is ours").is_none()) {
            if servers.iter().all(Self::answers) {
                return true;
            }
            assert!(Instant::now() < deadline, "etcd does not answer within {START_MAX:?}");
        }
        false
    }

    /// It is asked for some seconds. One that has users answers, too.
    fn answers(&self) -> bool {
        matches!(Etcd::connect(&self.place("none"), &self.access()), Ok(_) | Err(EtcdError::Denied(_)))
    }

    pub fn address(&self) -> SocketAddr {
        self.client
    }

    pub fn place(&self, name: &str) -> Place {
        format!("{}/{name}", self.client).parse().expect("a place")
    }

    /// As who is let in.
    pub fn access(&self) -> Access {
        self.certificates.as_ref().map(|certificates| certificates.access()).unwrap_or_default()
    }

    pub fn etcd(&self, name: &str) -> Etcd {
        Etcd::connect(&self.place(name), &self.access()).expect("it answers")
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }

    /// Starts it again after it was killed.
    pub fn start_again(&mut self) {
        Self::start_all_again(std::slice::from_mut(self));
    }

    /// The same, of several, of which one alone may not answer.
    pub fn start_all_again(servers: &mut [Self]) {
        for server in &mut *servers {
            let Self { folder, name, client, peer, cluster, certificates, .. } = server;
            server.process = run(folder.path(), name, *client, *peer, cluster, certificates.as_deref());
        }
        assert!(Self::answer(servers), "ports are somebody else's now");
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

fn run(
    folder: &Path,
    name: &str,
    client: SocketAddr,
    peer: SocketAddr,
    cluster: &str,
    certificates: Option<&Certificates>,
) -> Child {
    let log = File::create(folder.join("log")).expect("a file");
    let client = format!("{}://{client}", if certificates.is_some() { "https" } else { "http" });
    Command::new(program())
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--name", name, "--logger", "zap", "--heartbeat-interval", "50", "--election-timeout", "500"])
        .args(["--auth-token-ttl", &TOKEN_LASTS.as_secs().to_string()])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &format!("http://{peer}")])
        .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
        .args(["--initial-cluster", cluster])
        .args(certificates.map(Certificates::arguments).unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("etcd runs")
}
