//! `guira cluster up` as a process in a folder, asked how its members are, and taken down.
//!
//! Always true: dropped, it is taken down; killed in whatever way, the process that has started it leaves no cluster behind.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use guira_cluster::ask_line;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::error::BenchError;

/// Time that a cluster has to serve: it waits for leases of a life before.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);

/// Time that it has to go down in order.
const END_MAX: Duration = Duration::from_secs(45);

/// How long an answer of a member is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tries to find ports side by side.
const TRIES: usize = 100;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct ClusterProcess {
    child: Child,
    folder: PathBuf,
    last_words: Option<JoinHandle<String>>,
}

impl ClusterProcess {
    /// Starts one of a binary, with flags, on some cores; waits until its members are started, and not until they serve.
    pub fn start(program: &Path, folder: &Path, cores: &[usize], flags: &[String]) -> Result<Self, BenchError> {
        let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
        let mut command = Command::new("taskset");
        command.args(["-c", &cores.join(",")]).arg(program).args(["cluster", "up", "--folder"]).arg(folder);
        command.args(["--with-parent", &std::process::id().to_string()]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|source| BenchError::System { doing: "starting a cluster through taskset", source })?;
        let last_words = child.stderr.take().map(|stderr| {
            // Reads to the end, so that nobody blocks on a full pipe.
            std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).last().unwrap_or_default())
        });
        let mut started = Self { child, folder: folder.to_path_buf(), last_words };
        // Its file is there by then.
        started.wait_for("its file", |started| Ok(started.pids().is_ok_and(|pids| !pids.is_empty())))?;
        Ok(started)
    }

    /// The cluster's file.
    pub fn file(&self) -> Result<String, BenchError> {
        let path = self.folder.join("cluster.toml");
        std::fs::read_to_string(&path).map_err(|source| BenchError::Output { path, source })
    }

    /// Waits for something that comes with time.
    #[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for; there is a deadline")]
    pub fn wait_for(
        &mut self,
        what: &str,
        is_there: impl Fn(&Self) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let deadline = Instant::now() + START_MAX;
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

    /// What a member says of itself; null if it says nothing.
    pub fn ask(&self, id: u16) -> Value {
        let told = ask_line(&self.folder.join(format!("node-{id}.sock")), "status", PATIENCE).unwrap_or_default();
        serde_json::from_str(&told).unwrap_or(Value::Null)
    }

    /// The members' processes.
    pub fn pids(&self) -> Result<BTreeMap<u16, u32>, BenchError> {
        let told = ask_line(&self.folder.join("cluster.sock"), "status", PATIENCE)
            .map_err(|source| BenchError::System { doing: "asking a cluster how it is", source })?;
        let told: BTreeMap<u16, Value> = serde_json::from_str(&told)
            .map_err(|error| BenchError::Invalid(format!("what a cluster says of itself: {error}")))?;
        let pid = |member: &Value| member.get("pid").and_then(Value::as_u64).map(|pid| pid as u32);
        Ok(told.iter().filter_map(|(id, member)| Some((*id, pid(member)?))).collect())
    }

    /// Kills a member, with SIGKILL.
    ///
    /// # Errors
    /// It is not up.
    pub fn kill(&self, id: u16) -> Result<(), BenchError> {
        let pids = self.pids()?;
        let pid = pids.get(&id).and_then(|pid| Pid::from_raw(*pid as i32));
        let pid = pid.ok_or_else(|| BenchError::Invalid(format!("member {id} of the cluster is not up")))?;
        kill_process(pid, Signal::KILL)
            .map_err(|error| BenchError::System { doing: "killing a member of a cluster", source: error.into() })
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

impl Drop for ClusterProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// The first of so many ports, one after the other, that nobody has.
pub(crate) fn ports_side_by_side(count: usize) -> Result<u16, BenchError> {
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
