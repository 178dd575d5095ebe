//! What all experiments share: how many rules, on which core, for how long, and where data lies.

use std::time::Duration;

use guira_networks::Namespace;

use super::rule_set::RuleSet;
use super::{Options, Routers, needs};
use crate::cluster;
use crate::error::BenchError;
use crate::experiment::Extent;

/// The settings of a run.
pub(super) struct Bench {
    /// Keys that are cached.
    pub keys: u64,
    /// Rules beyond theirs.
    pub buffer: u64,
    pub rounds: usize,
    /// Length of a timed interval of what is in the kernel.
    pub measure: Duration,
    pub extent: Extent,
    /// That of the program in the kernel.
    pub core: usize,
    /// What clusters of processes are made of; with the folder for all data.
    pub clusters: cluster::bench::Bench,
    setting: Routers,
}

impl Bench {
    pub fn new(options: &Options) -> Result<Self, BenchError> {
        let extent = &options.extent;
        let seconds = options.seconds.unwrap_or(extent.scaled(1.0, 0.05));
        if !(0.01..=3600.0).contains(&seconds) {
            return Err(BenchError::Setting(format!("--seconds {seconds}: choose 0.01 to 3600")));
        }
        let cached = extent.scaled(1_000, 50);
        let clusters = cluster::bench::Bench::new(&cluster::Options {
            keys: Some(cached.max(100)),
            cached: Some(cached.max(100)),
            connections: Some(options.connections.unwrap_or(extent.scaled(256, 16))),
            dir: options.dir.clone(),
            seconds: Some(4.0 * seconds),
            extent: extent.clone(),
            placement: options.placement.clone(),
            ..cluster::Options::default()
        })?;
        let keys = options.rules.unwrap_or(extent.scaled(10_000, 500));
        let buffer = options.buffer.unwrap_or(keys / 5);
        let core = clusters.server_cores.first().copied().unwrap_or(0);
        let setting = Routers {
            rules: keys,
            buffer,
            core,
            server_cores: clusters.server_cores.clone(),
            generator_cores: clusters.generator_cores.clone(),
            open_vswitch: needs::open_vswitch().unwrap_or_default(),
        };
        let (rounds, measure, extent) = (extent.rounds()?, Duration::from_secs_f64(seconds), extent.clone());
        Ok(Self { keys, buffer, rounds, measure, extent, core, clusters, setting })
    }

    pub fn setting(&self) -> Routers {
        self.setting.clone()
    }

    /// Rules of the cached keys alone.
    pub fn cached(&self) -> RuleSet {
        RuleSet::of(0..self.keys)
    }

    /// As many as a table holds: those, and a buffer of rules of keys that were cached.
    pub fn table(&self) -> RuleSet {
        RuleSet::of(0..self.keys + self.buffer)
    }
}

/// A network of its own.
pub(super) fn namespace() -> Result<Namespace, BenchError> {
    Namespace::new().map_err(BenchError::Invalid)
}
