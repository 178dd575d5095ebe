//! A cluster as processes: `guira cluster up` in a folder, asked how its members are, and taken down.
//!
//! Always true: once it is up every backend serves and every gateway listens; dropped, it is taken down.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use guira_cluster::ask_line;
use guira_switched::{CacheMode, Role, StaticFile};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::error::BenchError;
use crate::process_usage;
use crate::server::listening;

/// Time that a cluster has to serve: it waits for leases of a life before.
const START_MAX: Duration = Duration::from_secs(60);

/// Time that it has to go down in order.
const END_MAX: Duration = Duration::from_secs(45);

/// How long an answer of a member is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tries to find ports side by side.
const TRIES: usize = 100;

/// How a cluster is brought up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The binary.
    pub program: PathBuf,
    /// Where its data is.
    pub folder: PathBuf,
    /// Cores of all members.
    pub cores: Vec<usize>,
    /// A gateway for each.
    pub modes: Vec<CacheMode>,
    /// Further flags.
    pub flags: Vec<String>,
}

/// A cluster that is up.
#[derive(Debug)]
pub(crate) struct Processes {
    child: Child,
    folder: PathBuf,
    file: StaticFile,
    last_words: Option<JoinHandle<String>>,
}

/// What members have counted since they were started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Reads that cache nodes have answered.
    pub hits: u64,
    /// Reads that they have not.
    pub passed_on: u64,
    /// Items that they have.
    pub items: u64,
    /// Operations of each backend.
    pub operations: Vec<u64>,
    /// CPU time of all members, seconds.
    pub cpu_s: f64,
    /// That of gateways alone.
    pub gateways_cpu_s: f64,
    /// Whose counts these are.
    pids: BTreeMap<u16, u32>,
}

impl Sample {
    /// What was counted since `before`; items as they are now.
    ///
    /// # Errors
    /// A member was started again in between.
    pub fn since(&self, before: &Self) -> Result<Self, BenchError> {
        if self.pids != before.pids {
            return Err(BenchError::Invalid("a member of the cluster has ended, and was started again".into()));
        }
        let operations = self.operations.iter().zip(&before.operations).map(|(now, then)| now - then);
        Ok(Self {
            hits: self.hits - before.hits,
            passed_on: self.passed_on - before.passed_on,
            items: self.items,
            operations: operations.collect(),
            cpu_s: self.cpu_s - before.cpu_s,
            gateways_cpu_s: self.gateways_cpu_s - before.gateways_cpu_s,
            pids: self.pids.clone(),
        })
    }

    /// What the busiest backend has done over what they have done on average.
    pub fn busiest_over_mean(&self) -> f64 {
        let (most, sum) = (self.operations.iter().max().copied().unwrap_or(0), self.operations.iter().sum::<u64>());
        most as f64 * self.operations.len() as f64 / (sum as f64).max(1.0)
    }
}

impl Processes {
    /// Brings it up and waits until it serves.
    pub fn up(setup: &Setup) -> Result<Self, BenchError> {
        let port = ports_side_by_side(setup.modes.len())?;
        let cores: Vec<String> = setup.cores.iter().map(usize::to_string).collect();
        let modes: Vec<&str> = setup.modes.iter().map(|mode| mode.name()).collect();
        let mut command = Command::new("taskset");
        command.args(["-c", &cores.join(",")]).arg(&setup.program).args(["cluster", "up", "--folder"]);
        command.arg(&setup.folder).args(["--port", &port.to_string(), "--cache-mode", &modes.join(",")]);
        // Killed in whatever way, this process leaves no cluster behind.
        command.args(["--threads", "1", "--with-parent", &std::process::id().to_string()]).args(&setup.flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|source| BenchError::System { doing: "starting a cluster through taskset", source })?;
        let last_words = child.stderr.take().map(|stderr| {
            // Reads to the end, so that nobody blocks on a full pipe.
            std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).last().unwrap_or_default())
        });
        let mut up = Self { child, folder: setup.folder.clone(), file: StaticFile::default(), last_words };
        let deadline = Instant::now() + START_MAX;
        // Members are started once the file is there.
        up.wait_for("its file", deadline, |up| Ok(up.pids().is_ok_and(|pids| !pids.is_empty())))?;
        up.file = read_file(&setup.folder)?;
        up.wait_for("its members", deadline, Self::is_serving)?;
        Ok(up)
    }

    /// Whether all serve, as they say.
    fn is_serving(&self) -> Result<bool, BenchError> {
        let Ok(pids) = self.pids() else { return Ok(false) };
        if pids.len() < self.file.members.len() {
            return Ok(false);
        }
        let serves = |id: u16, role: &Role| match role {
            Role::Backend(_) => self.ask(id).get("serves").and_then(Value::as_bool) == Some(true),
            Role::Gateway { listen, .. } => pids.get(&id).is_some_and(|pid| listening::listens(*pid, listen.port())),
            Role::Cache { .. } | Role::Controller => self.ask(id).is_object(),
        };
        Ok(self.file.members.iter().all(|member| serves(member.id, &member.role)))
    }

    #[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for; there is a deadline")]
    fn wait_for(
        &mut self,
        what: &str,
        deadline: Instant,
        is_there: impl Fn(&Self) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        while !is_there(self)? {
            let reason = match self.child.try_wait() {
                Ok(Some(status)) => {
                    let words = self.last_words.take().and_then(|words| words.join().ok()).unwrap_or_default();
                    if words.is_empty() { format!("it ended with {status}") } else { words }
                }
                _ if Instant::now() > deadline => format!("{what} took more than {} s", START_MAX.as_secs()),
                _ => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            return Err(BenchError::PeerFailed { peer: "the cluster", reason });
        }
        Ok(())
    }

    /// Where the gateway of a mode listens.
    pub fn address(&self, mode: CacheMode) -> Result<SocketAddr, BenchError> {
        let is_it = |role: &Role| match role {
            Role::Gateway { listen, cache_mode } if *cache_mode == mode => Some(*listen),
            _ => None,
        };
        let found = self.file.members.iter().find_map(|member| is_it(&member.role));
        found.ok_or_else(|| BenchError::Invalid(format!("the cluster has no gateway that is {mode}")))
    }

    /// What a member says of itself; null if it says nothing.
    fn ask(&self, id: u16) -> Value {
        let told = ask_line(&self.folder.join(format!("node-{id}.sock")), "status", PATIENCE).unwrap_or_default();
        serde_json::from_str(&told).unwrap_or(Value::Null)
    }

    /// The members' processes.
    fn pids(&self) -> Result<BTreeMap<u16, u32>, BenchError> {
        let told = ask_line(&self.folder.join("cluster.sock"), "status", PATIENCE)
            .map_err(|source| BenchError::System { doing: "asking a cluster how it is", source })?;
        let told: BTreeMap<u16, Value> = serde_json::from_str(&told)
            .map_err(|error| BenchError::Invalid(format!("what a cluster says of itself: {error}")))?;
        let pid = |member: &Value| member.get("pid").and_then(Value::as_u64).map(|pid| pid as u32);
        Ok(told.iter().filter_map(|(id, member)| Some((*id, pid(member)?))).collect())
    }

    /// What they have counted.
    ///
    /// # Errors
    /// A member does not say.
    pub fn sample(&self) -> Result<Sample, BenchError> {
        let mut sample = Sample::default();
        for member in &self.file.members {
            let (id, role) = (member.id, member.role.name());
            let number = |told: &Value, field: &str| {
                let number = told.get(field).and_then(Value::as_u64);
                number.ok_or_else(|| BenchError::Invalid(format!("{role} {id} does not say how it is")))
            };
            match member.role {
                Role::Cache { .. } => {
                    let told = self.ask(id);
                    sample.hits += number(&told, "hits")?;
                    sample.passed_on += number(&told, "misses")?;
                    sample.items += number(&told, "items")?;
                }
                Role::Backend(_) => sample.operations.push(number(&self.ask(id), "operations")?),
                Role::Controller | Role::Gateway { .. } => {}
            }
        }
        sample.pids = self.pids()?;
        let gateways = self.file.members.iter().filter(|member| matches!(member.role, Role::Gateway { .. }));
        let gateways: Vec<u16> = gateways.map(|member| member.id).collect();
        for (id, pid) in &sample.pids {
            let used_s = process_usage::of(*pid)?.cpu_s;
            sample.cpu_s += used_s;
            if gateways.contains(id) {
                sample.gateways_cpu_s += used_s;
            }
        }
        Ok(sample)
    }

    /// Kills the cache nodes, with SIGKILL.
    ///
    /// # Errors
    /// One of them is not up.
    pub fn kill_caches(&self) -> Result<(), BenchError> {
        let pids = self.pids()?;
        for cache in self.file.caches().nodes() {
            let pid = pids.get(&cache.0).and_then(|pid| Pid::from_raw(*pid as i32));
            let pid = pid.ok_or_else(|| BenchError::Invalid(format!("cache node {} is not up", cache.0)))?;
            kill_process(pid, Signal::KILL)
                .map_err(|error| BenchError::System { doing: "killing a cache node", source: error.into() })?;
        }
        Ok(())
    }

    /// Takes it down in order.
    pub fn down(mut self) -> Result<(), BenchError> {
        if self.end() { Ok(()) } else { Err(BenchError::Invalid("the cluster did not end in order".into())) }
    }

    /// Whether it ended in order.
    #[expect(clippy::disallowed_methods, reason = "a child's end cannot be waited for with a deadline otherwise")]
    fn end(&mut self) -> bool {
        // It may have ended just now.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + END_MAX;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) => return status.success(),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        false
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

fn read_file(folder: &Path) -> Result<StaticFile, BenchError> {
    let path = folder.join("cluster.toml");
    let text = std::fs::read_to_string(&path).map_err(|source| BenchError::Output { path: path.clone(), source })?;
    StaticFile::parse(&text).map_err(|error| BenchError::Invalid(format!("{}: {error}", path.display())))
}

/// The first of so many ports, one after the other, that nobody has.
fn ports_side_by_side(count: usize) -> Result<u16, BenchError> {
    let refused = |source| BenchError::System { doing: "looking for free ports", source };
    for _ in 0..TRIES {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused)?;
        let first = listener.local_addr().map_err(refused)?.port();
        let others = (1..count as u16).map(|at| first.checked_add(at));
        if others
            .into_iter()
            .all(|port| port.is_some_and(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()))
        {
            return Ok(first);
        }
    }
    Err(BenchError::Invalid(format!("no {count} free ports side by side in {TRIES} tries")))
}
