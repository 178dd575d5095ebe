//! A server under test as a process: started on a free port, watched through /proc, killed when dropped.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use guira_loadgen::blocking::Blocking;
use guira_loadgen::error::LoadError;
use guira_loadgen::protocol::Protocol;

use super::listening;
use super::peer::{Peer, Setup};
use crate::error::BenchError;
use crate::process_usage;
pub use crate::process_usage::Usage;

/// Time a server has to accept connections; a large memory limit may take it a while to touch.
const START_MAX: Duration = Duration::from_secs(20);
/// Tries with another port if somebody else takes the one we found free.
const TRIES: usize = 3;

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    protocol: Protocol,
    last_words: Option<JoinHandle<String>>,
    name: &'static str,
}

impl Server {
    /// Starts `peer` and waits until it listens.
    pub fn start(peer: &Peer, setup: &Setup) -> Result<Self, BenchError> {
        if !peer.program.is_file() {
            return Err(peer.missing());
        }
        let mut result = Self::try_start(peer, setup);
        for _ in 1..TRIES {
            if result.is_ok() {
                break;
            }
            result = Self::try_start(peer, setup);
        }
        result
    }

    fn try_start(peer: &Peer, setup: &Setup) -> Result<Self, BenchError> {
        let port = free_port()?;
        let mut command = peer.command(port, setup);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|source| BenchError::System { doing: "starting a server through taskset", source })?;
        let last_words = child.stderr.take().map(|stderr| {
            // Reads to the end, so that a talkative server never blocks on a full pipe; ends with the server.
            std::thread::spawn(move || {
                let lines = BufReader::new(stderr).lines().map_while(Result::ok);
                lines.filter(|line| !line.trim().is_empty()).last().unwrap_or_default()
            })
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { child, address, protocol: peer.protocol(), last_words, name: peer.name() };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "another process' port gives no event to wait for; there is a deadline"
    )]
    fn wait_until_it_listens(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                let words = self.last_words.take().and_then(|words| words.join().ok()).unwrap_or_default();
                let reason = if words.is_empty() { format!("it ended with {status}") } else { words };
                return Err(BenchError::PeerFailed { peer: self.name, reason });
            }
            if listening::listens(self.pid(), self.address.port()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let reason = format!("it does not listen on {} after {} s", self.address, START_MAX.as_secs());
                return Err(BenchError::PeerFailed { peer: self.name, reason });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it in order, and waits for its end.
    pub fn stop(mut self) -> Result<(), BenchError> {
        let failed = |source| BenchError::System { doing: "stopping a server", source };
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).map_err(|error| failed(error.into()))?;
        self.child.wait().map(drop).map_err(failed)
    }

    /// What it has used since it started.
    pub fn usage(&self) -> Result<Usage, BenchError> {
        process_usage::of(self.pid())
    }

    /// Its counters by name.
    pub fn counters(&self) -> Result<Counters, LoadError> {
        Ok(Counters(Blocking::connect(self.address, self.protocol)?.counters()?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server's counters.
#[derive(Clone, Debug)]
pub struct Counters(Vec<(String, String)>);

impl Counters {
    /// Counter `name`, if it is there and a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| known == name)?.1.parse().ok()
    }

    /// Items stored now: memcached's `curr_items`, or the keys of redis' database 0.
    pub fn items(&self) -> u64 {
        let redis = || {
            let (_, text) = self.0.iter().find(|(name, _)| name == "db0")?;
            text.strip_prefix("keys=")?.split(',').next()?.parse().ok()
        };
        self.number("curr_items").or_else(redis).unwrap_or(0)
    }

    /// Items evicted so far.
    pub fn evictions(&self) -> u64 {
        self.number("evictions").or_else(|| self.number("evicted_keys")).unwrap_or(0)
    }
}

fn free_port() -> Result<u16, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let port = listener.and_then(|listener| Ok(listener.local_addr()?.port()));
    port.map_err(|source| BenchError::System { doing: "looking for a free port", source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::peer::PeerKind;

    fn setup() -> Setup {
        let (cores, flags) = (Vec::new(), Vec::new());
        Setup { memory_mib: 64, threads: 1, cores, connections_max: 1024, echo_answer_bytes: 0, flags }
    }

    #[test]
    fn memcached_starts_answers_and_ends() {
        let peer = Peer { kind: PeerKind::Memcached, program: Peer::find_program("memcached") };
        let server = Server::start(&peer, &setup()).expect("starts");
        assert_eq!(server.counters().expect("answers").items(), 0);
        assert_eq!(server.counters().expect("answers").number("limit_maxbytes"), Some(64 << 20));
        let pid = server.pid();
        drop(server);
        assert!(process_usage::of(pid).is_err(), "still there after drop");
    }

    #[test]
    fn a_server_that_refuses_says_why() {
        let peer = Peer { kind: PeerKind::Memcached, program: Peer::find_program("memcached") };
        let error = Server::start(&peer, &Setup { threads: 0, ..setup() }).expect_err("no threads");
        assert!(error.to_string().contains("threads"), "{error}");
    }

    #[test]
    fn redis_counters_have_other_names() {
        let counters = Counters(vec![("db0".into(), "keys=12,expires=0".into()), ("evicted_keys".into(), "3".into())]);
        assert_eq!((counters.items(), counters.evictions()), (12, 3));
    }
}
