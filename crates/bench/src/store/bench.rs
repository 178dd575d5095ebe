//! What all experiments share: cores, scale, the folder for data, and stores in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guira_loadgen::affinity;
use guira_persist::Durability;
use guira_persist::rocks::{RocksOptions, RocksStore};
use rustix::time::{ClockId, clock_gettime};

use super::{Options, Stores};
use crate::crew::{self, Rate};
use crate::error::BenchError;
use crate::experiment::Extent;
use crate::server;
use crate::workplace::Workplace;

/// The time that stores in process go by: nothing in them expires.
const UNIX_NOW: u64 = 1_700_000_000;

const MIB: usize = 1 << 20;

/// Bounds of `--memory`: four write buffers of a megabyte each; more than a machine has.
const MEMORY_MIB: std::ops::RangeInclusive<usize> = 16..=1 << 20;

/// The settings of a run.
pub(super) struct Bench {
    /// Servers and generators.
    pub processes: server::bench::Bench,
    /// Cores of threads in process.
    pub cores: Vec<usize>,
    pub rounds: usize,
    /// Length of a timed interval.
    pub measure: Duration,
    pub extent: Extent,
    pub workplace: Workplace,
    /// Memory of a store in process.
    pub memory_mib: usize,
    /// Data in the store that is started.
    pub start_bytes: u64,
    /// Between the syncs of `interval`.
    pub interval: Duration,
}

/// CPU time of this process.
fn process_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

impl Bench {
    pub fn new(options: &Options) -> Result<Self, BenchError> {
        let extent = &options.extent;
        let memory_mib = options.memory.unwrap_or(extent.scaled(256, 16));
        if !MEMORY_MIB.contains(&memory_mib) {
            let (least, most) = (MEMORY_MIB.start(), MEMORY_MIB.end());
            return Err(BenchError::Setting(format!("--memory {memory_mib}: choose {least} to {most}")));
        }
        let start_gb = options.start_gb.unwrap_or(extent.scaled(10.0, 0.01));
        if !(0.001..=10_000.0).contains(&start_gb) {
            return Err(BenchError::Setting(format!("--start-gb {start_gb}: choose 0.001 to 10000")));
        }
        let interval_ms = options.interval.unwrap_or(100);
        let durability: Durability = format!("interval:{interval_ms}").parse().map_err(BenchError::Setting)?;
        let Durability::Interval(interval) = durability else { unreachable!("it is one") };
        let processes = server::bench::Bench::new(&server::Options {
            peers: vec!["guira".into()],
            seconds: Some(options.seconds.unwrap_or(extent.scaled(1.0, 0.05))),
            extent: extent.clone(),
            placement: options.placement.clone(),
            ..server::Options::default()
        })?;
        Ok(Self {
            cores: affinity::cores(),
            rounds: processes.rounds,
            measure: processes.measure,
            extent: extent.clone(),
            workplace: Workplace::new(options.dir.as_deref(), "guira-bench-store-")?,
            memory_mib,
            start_bytes: (start_gb * 1e9) as u64,
            interval,
            processes,
        })
    }

    pub fn setting(&self) -> Stores {
        Stores {
            cores: self.cores.clone(),
            server_cores: self.processes.server_cores(1),
            generator_cores: self.processes.generator_cores(1),
            file_system: self.workplace.file_system(),
            memory_mib: self.memory_mib,
        }
    }

    /// Lets workers work as [`crew::run`] does, on `cores` or anywhere; CPU time is the whole process's, the store's own threads
    /// included.
    pub fn run<W: FnMut() -> u64 + Send>(&self, cores: &[usize], workers: Vec<W>) -> Result<Rate, BenchError> {
        let (begin, begin_cpu) = (Instant::now(), process_cpu_time());
        let per_s = crew::run(cores, self.measure, workers)?.per_s;
        let cores_busy = (process_cpu_time() - begin_cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
        Ok(Rate { per_s, per_cpu_s: per_s / cores_busy })
    }

    /// Bytes of memory of a store in process.
    pub fn memory_bytes(&self) -> usize {
        self.memory_mib * MIB
    }

    /// What a store in process is opened with.
    pub fn options(&self, durability: Durability) -> RocksOptions {
        RocksOptions::with_memory(self.memory_bytes(), durability, Arc::new(|| UNIX_NOW))
    }

    /// A store in process, in a folder of this name.
    pub fn store(&self, name: &str, options: &RocksOptions) -> Result<(RocksStore, PathBuf), BenchError> {
        let path = self.workplace.place(name);
        let store =
            RocksStore::open(&path, options).map_err(|error| BenchError::Invalid(format!("a store {error}")))?;
        Ok((store, path))
    }
}
