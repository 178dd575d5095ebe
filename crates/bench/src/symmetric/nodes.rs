//! A symmetric cluster as processes: `guira cluster up --topology symmetric` in a folder, asked what its nodes have counted, one of them killed, and taken down.
//!
//! Always true: once it is up every node serves clients, and has its shard; dropped, it is taken down.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use guira_symmetric::{Role, SymmetricFile};
use serde_json::Value;

use super::counted::Sample;
use crate::cluster_process::{ClusterProcess, ports_side_by_side};
use crate::error::BenchError;
use crate::process_usage;
use crate::server::listening;

/// Time until nodes that nobody asks anything have nothing more to say to each other of what they were asked before.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// How a cluster is brought up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The binary.
    pub program: PathBuf,
    /// Where its files are.
    pub folder: PathBuf,
    /// Cores of all members.
    pub cores: Vec<usize>,
    pub nodes: u16,
    /// Further flags.
    pub flags: Vec<String>,
}

impl Setup {
    /// Refuses a binary that does not take one of these flags.
    pub fn expect_flags<'f>(&self, flags: impl IntoIterator<Item = &'f str>) -> Result<(), BenchError> {
        let mut help = Command::new(&self.program);
        let told = help.args(["cluster", "up", "--help"]).stdin(Stdio::null()).output();
        let told = told.map_err(|source| BenchError::System { doing: "asking a binary for its flags", source })?;
        let told = String::from_utf8_lossy(&told.stdout);
        let is_there = |flag: &str| told.split_whitespace().any(|word| word.trim_end_matches(',') == flag);
        match flags.into_iter().find(|flag| !is_there(flag)) {
            Some(flag) => Err(BenchError::Lacking(format!("`cluster up --topology symmetric {flag}`"))),
            None => Ok(()),
        }
    }
}

/// A cluster that is up.
#[derive(Debug)]
pub(crate) struct Nodes {
    process: ClusterProcess,
    /// Number of each, and where clients find it.
    nodes: Vec<(u16, SocketAddr)>,
}

impl Nodes {
    /// Brings it up and waits until it serves.
    pub fn up(setup: &Setup) -> Result<Self, BenchError> {
        let given = setup.flags.iter().map(String::as_str).filter(|flag| flag.starts_with("--"));
        setup.expect_flags(["--topology"].into_iter().chain(given))?;
        let (nodes, port) = (setup.nodes.to_string(), ports_side_by_side(setup.nodes.into())?.to_string());
        let usual = ["--topology", "symmetric", "--nodes", &nodes, "--port", &port].map(str::to_owned);
        let flags: Vec<String> = usual.into_iter().chain(setup.flags.iter().cloned()).collect();
        let mut process = ClusterProcess::start(&setup.program, &setup.folder, &setup.cores, &flags)?;
        let file = SymmetricFile::parse(&process.file()?);
        let file = file.map_err(|error| BenchError::Invalid(format!("the file of a cluster: {error}")))?;
        let listens = file.members.iter().filter_map(|member| match member.role {
            Role::Node { listen, .. } => Some((member.id, listen)),
            Role::Coordinator { .. } => None,
        });
        let nodes: Vec<(u16, SocketAddr)> = listens.collect();
        process.wait_for("its nodes", |process| Ok(are_serving(process, &nodes)))?;
        Ok(Self { process, nodes })
    }

    /// Where clients find the nodes, by their numbers: so shards are dealt out.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|(_, address)| *address).collect()
    }

    /// What they have counted.
    ///
    /// # Errors
    /// A node does not say.
    pub fn sample(&self) -> Result<Sample, BenchError> {
        let mut sample = Sample { pids: self.process.pids()?, ..Sample::default() };
        for (id, _) in &self.nodes {
            let told = self.process.ask(*id);
            sample.add(&told).map_err(|field| BenchError::Invalid(format!("node {id} does not tell its {field}")))?;
            let pid = sample.pids.get(id).ok_or_else(|| BenchError::Invalid(format!("node {id} is not up")))?;
            sample.nodes_cpu_s.push(process_usage::of(*pid)?.cpu_s);
        }
        // The coordinator's, too.
        sample.cpu_s =
            sample.pids.values().map(|pid| Ok(process_usage::of(*pid)?.cpu_s)).sum::<Result<_, BenchError>>()?;
        Ok(sample)
    }

    /// The same once nothing of what they were asked is under way: what they count then is of whole requests.
    ///
    /// # Errors
    /// A node does not say, or that does not come.
    #[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for; there is a deadline")]
    pub fn quiet_sample(&self) -> Result<Sample, BenchError> {
        let deadline = Instant::now() + QUIET_MAX;
        let mut before = self.sample()?;
        while Instant::now() < deadline {
            // Longer than nodes wait before they say something again.
            std::thread::sleep(Duration::from_millis(60));
            let now = self.sample()?;
            if now.pending == 0 && now.has_same_requests(&before) {
                return Ok(now);
            }
            before = now;
        }
        Err(BenchError::Invalid("nodes that nobody asks anything have requests under way".into()))
    }

    /// Kills a node by its place, with SIGKILL.
    ///
    /// # Errors
    /// It is not up.
    pub fn kill(&self, at: usize) -> Result<(), BenchError> {
        self.process.kill(self.nodes[at].0)
    }

    /// Takes it down in order.
    pub fn down(self) -> Result<(), BenchError> {
        self.process.down()
    }
}

/// Whether all nodes serve, each its own shard, as they say.
fn are_serving(process: &ClusterProcess, nodes: &[(u16, SocketAddr)]) -> bool {
    let Ok(pids) = process.pids() else { return false };
    let serves = |(id, listen): &(u16, SocketAddr)| {
        let told = process.ask(*id);
        let holds = |field: &str| told.get(field).and_then(Value::as_bool) == Some(true);
        let is = |field: &str, number: usize| told.get(field).and_then(Value::as_u64) == Some(number as u64);
        let is_up = pids.get(id).is_some_and(|pid| listening::listens(*pid, listen.port()));
        is_up && holds("has_lease") && holds("whole") && is("members", nodes.len()) && is("shards", 1)
    };
    nodes.iter().all(serves)
}
