//! The servers that are measured: how each is called, asked for its version and told its limits.
//!
//! A new peer is one line in the table of peers and one arm in `Peer::arguments`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use guira_loadgen::protocol::Protocol;

use crate::error::BenchError;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// Guira itself.
    Guira,
    /// Guira over CPSERVER's protocol.
    Cp {
        /// `--engine`.
        engine: &'static str,
    },
    /// Debian's memcached.
    Memcached,
    /// Debian's redis-server.
    Redis,
    /// A server that answers every line with the same bytes: the floor that the kernel's TCP sets.
    Echo,
    /// An engine before a store in memory whose reads take long; the flags say how long, and what is in it.
    DelayedStore,
}

impl PeerKind {
    /// CPHASH's server.
    pub const CPSERVER: Self = Self::Cp { engine: "cphash" };
    /// The same with locks.
    pub const LOCKSERVER: Self = Self::Cp { engine: "lockhash" };
    /// Guira's default engine over the same protocol.
    pub const GUIRA_CP: Self = Self::Cp { engine: "memc3" };

    /// Those that can be chosen, by name.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("guira", Self::Guira),
        ("memcached", Self::Memcached),
        ("redis", Self::Redis),
        ("cpserver", Self::CPSERVER),
        ("lockserver", Self::LOCKSERVER),
        ("guira-cp", Self::GUIRA_CP),
    ];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// A server program.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What it is.
    pub kind: PeerKind,
    /// Its binary.
    pub program: PathBuf,
}

/// Connections at a time unless an experiment needs more: memcached's default.
pub const CONNECTIONS_MAX: usize = 1024;

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Memory limit, MiB.
    pub memory_mib: u64,
    /// Worker threads.
    pub threads: usize,
    /// Cores it may use; empty for all.
    pub cores: Vec<usize>,
    /// Connections at a time.
    pub connections_max: usize,
    /// Answer length of the echo peer, bytes.
    pub echo_answer_bytes: usize,
    /// Further flags, behind all others.
    pub flags: Vec<String>,
}

impl Peer {
    /// Name in reports.
    pub fn name(&self) -> &'static str {
        PeerKind::NAMES.iter().find(|(_, kind)| *kind == self.kind).map_or("echo", |(name, _)| *name)
    }

    /// The protocol it is measured with.
    pub fn protocol(&self) -> Protocol {
        match self.kind {
            PeerKind::Redis => Protocol::Resp,
            PeerKind::Cp { .. } => Protocol::Cp,
            PeerKind::Guira | PeerKind::Memcached | PeerKind::Echo | PeerKind::DelayedStore => Protocol::MemcacheText,
        }
    }

    fn remedy(&self) -> &'static str {
        match self.kind {
            PeerKind::Guira | PeerKind::Cp { .. } | PeerKind::Echo | PeerKind::DelayedStore => {
                "build it with `cargo build --release`"
            }
            PeerKind::Memcached => "install it with `apt-get install memcached`",
            PeerKind::Redis => "install it with `apt-get install redis-server`",
        }
    }

    /// The error for a binary that is not there.
    pub fn missing(&self) -> BenchError {
        BenchError::PeerMissing { peer: self.name(), program: self.program.clone(), remedy: self.remedy() }
    }

    /// Its version, as its binary tells it.
    pub fn version(&self) -> Result<String, BenchError> {
        if self.kind == PeerKind::Echo {
            return Ok(format!("of guira {}", env!("CARGO_PKG_VERSION")));
        }
        let flag = if self.kind == PeerKind::Memcached { "-V" } else { "--version" };
        let output = Command::new(&self.program).arg(flag).stdin(Stdio::null()).output();
        let output = output.map_err(|_| self.missing())?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or("unknown").trim().to_string())
    }

    /// The command that serves on `port` of the loopback address, kept to the setup's cores.
    pub fn command(&self, port: u16, setup: &Setup) -> Command {
        let mut command = if setup.cores.is_empty() {
            Command::new(&self.program)
        } else {
            let cores: Vec<String> = setup.cores.iter().map(usize::to_string).collect();
            let mut command = Command::new("taskset");
            command.arg("-c").arg(cores.join(",")).arg(&self.program);
            command
        };
        command.args(self.arguments(port, setup)).args(&setup.flags);
        command
    }

    fn arguments(&self, port: u16, setup: &Setup) -> Vec<String> {
        let (port, threads, memory) = (port.to_string(), setup.threads.to_string(), setup.memory_mib.to_string());
        let connections = setup.connections_max.to_string();
        let memcached = |ports: &[&str]| {
            let mut arguments = [&["-l", "127.0.0.1"], ports].concat();
            arguments.extend(["-t", &threads, "-m", &memory, "-U", "0", "-c", &connections]);
            if rustix::process::geteuid().is_root() {
                // memcached refuses to serve as root unless told that this is meant.
                arguments.extend(["-u", "root"]);
            }
            arguments.into_iter().map(str::to_string).collect::<Vec<_>>()
        };
        let serve = |flags: Vec<String>| std::iter::once("serve".to_string()).chain(flags).collect();
        let text = match self.kind {
            PeerKind::Memcached => return memcached(&["-p", &port]),
            PeerKind::Guira => return serve(memcached(&["-p", &port])),
            PeerKind::Cp { engine } => {
                return serve(memcached(&["-p", "0", "--cp-port", &port, "--engine", engine]));
            }
            PeerKind::Redis => format!(
                "--bind 127.0.0.1 --port {port} --maxmemory {memory}mb --maxmemory-policy allkeys-lru \
                 --appendonly no --daemonize no --io-threads {threads} --maxclients {connections} --save"
            ),
            PeerKind::Echo => {
                format!("bench echo-server --port {port} --answer-bytes {}", setup.echo_answer_bytes)
            }
            PeerKind::DelayedStore => format!("bench delayed-store-server --port {port} --memory {memory}"),
        };
        let mut arguments: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        if self.kind == PeerKind::Redis {
            // An empty save schedule: no snapshots.
            arguments.push(String::new());
        }
        arguments
    }

    /// Where Debian puts `name`, searched along PATH as well.
    pub fn find_program(name: &str) -> PathBuf {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let candidates = std::env::split_paths(&path).map(|folder| folder.join(name));
        candidates.into_iter().find(|path| path.is_file()).unwrap_or_else(|| Path::new("/usr/bin").join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        let connections_max = CONNECTIONS_MAX;
        let flags = Vec::new();
        Setup { memory_mib: 64, threads: 2, cores: vec![0, 1], connections_max, echo_answer_bytes: 68, flags }
    }

    #[test]
    fn guira_takes_memcacheds_flags_behind_serve() {
        let peer = Peer { kind: PeerKind::Guira, program: "/x/guira".into() };
        let flags = vec!["--store-limit".into(), "9".into()];
        let command = peer.command(4711, &Setup { flags: flags.clone(), ..setup() });
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(words.ends_with(&flags), "{words:?}");
        assert_eq!(command.get_program(), "taskset");
        assert!(words.starts_with(&["-c".into(), "0,1".into(), "/x/guira".into(), "serve".into()]), "{words:?}");
        assert!(words.windows(2).any(|pair| pair == ["-t", "2"]));
    }

    #[test]
    fn cpserver_is_an_engine_behind_a_port_of_its_own() {
        let peer = Peer { kind: PeerKind::CPSERVER, program: "/x/guira".into() };
        let command = peer.command(4711, &setup());
        let words: Vec<_> = command.get_args().filter_map(|word| word.to_str()).collect();
        for pair in [["-p", "0"], ["--cp-port", "4711"], ["--engine", "cphash"]] {
            assert!(words.windows(2).any(|known| known == pair), "{words:?}");
        }
        assert_eq!((peer.name(), peer.protocol()), ("cpserver", Protocol::Cp));
    }

    #[test]
    fn a_missing_peer_names_its_package() {
        let peer = Peer { kind: PeerKind::Memcached, program: "/nowhere/memcached".into() };
        let line = peer.version().expect_err("must fail").to_string();
        assert!(line.contains("apt-get install memcached"), "{line}");
    }

    #[test]
    fn memcached_tells_its_version() {
        let peer = Peer { kind: PeerKind::Memcached, program: Peer::find_program("memcached") };
        assert!(peer.version().expect("installed").starts_with("memcached 1."));
    }
}
