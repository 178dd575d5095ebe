//! A cluster as processes: `guira cluster up` in a folder, asked how its members are, and taken down.
//!
//! Always true: once it is up every backend serves and every gateway listens; dropped, it is taken down.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use guira_switched::{CacheMode, Role, StaticFile};
use serde_json::Value;

use crate::cluster_process::{ClusterProcess, ports_side_by_side};
use crate::error::BenchError;
use crate::process_usage;
use crate::server::listening;

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
    process: ClusterProcess,
    file: StaticFile,
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
        let port = ports_side_by_side(setup.modes.len())?.to_string();
        let modes: Vec<&str> = setup.modes.iter().map(|mode| mode.name()).collect();
        let modes = modes.join(",");
        let usual = ["--port", &port, "--cache-mode", &modes, "--threads", "1"].map(str::to_owned);
        let flags: Vec<String> = usual.into_iter().chain(setup.flags.iter().cloned()).collect();
        let mut process = ClusterProcess::start(&setup.program, &setup.folder, &setup.cores, &flags)?;
        let file = StaticFile::parse(&process.file()?);
        let file = file.map_err(|error| BenchError::Invalid(format!("the file of a cluster: {error}")))?;
        process.wait_for("its members", |process| Ok(is_serving(process, &file)))?;
        Ok(Self { process, file })
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
                    let told = self.process.ask(id);
                    sample.hits += number(&told, "hits")?;
                    sample.passed_on += number(&told, "misses")?;
                    sample.items += number(&told, "items")?;
                }
                Role::Backend(_) => sample.operations.push(number(&self.process.ask(id), "operations")?),
                Role::Controller | Role::Gateway { .. } => {}
            }
        }
        sample.pids = self.process.pids()?;
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
        self.file.caches().nodes().try_for_each(|cache| self.process.kill(cache.0))
    }

    /// Takes it down in order.
    pub fn down(self) -> Result<(), BenchError> {
        self.process.down()
    }
}

/// Whether all serve, as they say.
fn is_serving(process: &ClusterProcess, file: &StaticFile) -> bool {
    let Ok(pids) = process.pids() else { return false };
    let serves = |id: u16, role: &Role| match role {
        Role::Backend(_) => process.ask(id).get("serves").and_then(Value::as_bool) == Some(true),
        Role::Gateway { listen, .. } => pids.get(&id).is_some_and(|pid| listening::listens(*pid, listen.port())),
        Role::Cache { .. } | Role::Controller => process.ask(id).is_object(),
    };
    pids.len() >= file.members.len() && file.members.iter().all(|member| serves(member.id, &member.role))
}
