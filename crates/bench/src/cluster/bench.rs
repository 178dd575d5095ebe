//! What all experiments share: scale, cores, the data, which is filled in once, and readers.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use guira_loadgen::affinity;
use guira_loadgen::changing::ChangingKeys;
use guira_loadgen::driver::Moment;
use guira_loadgen::interactive::{self, PlayPlan};
use guira_loadgen::mix::Mix;
use guira_loadgen::preload::preload;
use guira_loadgen::protocol::Protocol;
use guira_loadgen::reader::{ChangeAt, Reader, Reading, Seen};
use guira_loadgen::size::Sizes;
use guira_loadgen::workload::Workload;
use guira_switched::CacheMode;

use super::processes::{Processes, Sample, Setup};
use super::{Clusters, Limited, Options};
use crate::error::BenchError;
use crate::experiment::Extent;
use crate::server::bench::{Interval, failed};
use crate::timeline::Stretches;
use crate::workplace::Workplace;

/// Bytes of a key and of a value, as the paper's (section 4.2).
pub(super) const KEY_LEN: u32 = 16;
pub(super) const VALUE_LEN: u32 = 128;

/// Bytes on disk for each item, logs and what is being merged included.
const ON_DISK_LEN: u64 = 1_000;

/// Looked at in a row while the cache fills.
const LOOKS: usize = 3;

/// The settings of a run.
pub(crate) struct Bench {
    pub backends: u16,
    /// What each backend can do.
    pub limit: Option<Limited>,
    pub keys: u64,
    pub cached: u64,
    pub connections: usize,
    pub rounds: usize,
    /// Length of a timed interval.
    pub measure: Duration,
    pub extent: Extent,
    pub program: PathBuf,
    pub server_cores: Vec<usize>,
    pub generator_cores: Vec<usize>,
    pub workplace: Rc<Workplace>,
    /// The name of the folder with the cluster's data.
    place: &'static str,
    is_filled: Cell<bool>,
    /// Of what is drawn next: no two intervals ask for the same keys in the same order.
    next_seed: Cell<u64>,
}

/// How keys are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// By way of which gateway.
    pub mode: CacheMode,
    /// Time before the clock starts.
    pub warm_up: Duration,
    pub measure: Duration,
    /// Members are asked what they have counted, at both ends of the interval.
    pub samples: bool,
    /// Answers are counted by stretches of this.
    pub stretch: Duration,
    /// How popularity changes.
    pub change: Option<ChangeAt>,
}

impl Run {
    /// How its answers are counted.
    pub fn stretches(&self) -> Stretches {
        Stretches { before: self.warm_up, after: self.measure, each: self.stretch }
    }
}

/// What came of it.
pub(crate) struct Read {
    pub interval: Interval,
    /// What members have counted in the interval.
    pub counted: Sample,
    /// From the start, the warm-up included.
    pub seen: Seen,
    /// The popularity as it is now.
    pub keys: ChangingKeys,
}

impl Bench {
    pub fn new(options: &Options) -> Result<Self, BenchError> {
        let extent = &options.extent;
        let seconds = options.seconds.unwrap_or(extent.scaled(4.0, 0.3));
        if !(0.01..=3600.0).contains(&seconds) {
            return Err(BenchError::Setting(format!("--seconds {seconds}: choose 0.01 to 3600")));
        }
        let this = || std::env::current_exe().unwrap_or_else(|_| PathBuf::from("guira"));
        let program = options.placement.guira.clone().unwrap_or_else(this);
        if !program.is_file() {
            return Err(BenchError::Setting(format!("--guira {}: there is no such program", program.display())));
        }
        let cores = affinity::cores();
        let chosen = |chosen: &[usize], usual: Vec<usize>| if chosen.is_empty() { usual } else { chosen.to_vec() };
        let bench = Self {
            backends: options.backends.unwrap_or(extent.scaled(32, 2)),
            limit: Some(
                options.store_limit.map_or(Limited::Requests(options.request_limit.unwrap_or(500)), Limited::Store),
            ),
            keys: options.keys.unwrap_or(extent.scaled(1_000_000, 500)),
            cached: options.cached.unwrap_or(extent.scaled(10_000, 50)),
            connections: options.connections.unwrap_or(extent.scaled(512, 16)).into(),
            rounds: extent.rounds()?,
            measure: Duration::from_secs_f64(seconds),
            extent: extent.clone(),
            program,
            server_cores: chosen(&options.placement.server_cores, cores.clone()),
            generator_cores: chosen(&options.placement.generator_cores, cores.last().copied().into_iter().collect()),
            workplace: Rc::new(Workplace::new(options.dir.as_deref(), "guira-bench-cluster-")?),
            place: "cluster",
            is_filled: Cell::new(false),
            next_seed: Cell::new(1),
        };
        bench.workplace.expect_room(bench.keys * ON_DISK_LEN, "--keys")?;
        Ok(bench)
    }

    /// The same with one backend, which does all it can, so many items and connections, and data of its own in a folder of this name.
    pub fn alone(&self, place: &'static str, keys: u64, connections: usize) -> Self {
        Self {
            backends: 1,
            limit: None,
            keys,
            cached: self.cached,
            connections,
            rounds: self.rounds,
            measure: self.measure,
            extent: self.extent.clone(),
            program: self.program.clone(),
            server_cores: self.server_cores.clone(),
            generator_cores: self.generator_cores.clone(),
            workplace: Rc::clone(&self.workplace),
            place,
            is_filled: Cell::new(false),
            next_seed: Cell::new(1),
        }
    }

    pub fn setting(&self) -> Clusters {
        Clusters {
            backends: self.backends,
            limit: self.limit,
            keys: self.keys,
            cached: self.cached,
            server_cores: self.server_cores.clone(),
            generator_cores: self.generator_cores.clone(),
            file_system: self.workplace.file_system(),
        }
    }

    /// What readers do, in words.
    pub fn words(&self) -> String {
        format!(
            "{} connections, each of which reads one key ({KEY_LEN} B, values of {VALUE_LEN} B) after the other and checks its value",
            self.connections
        )
    }

    fn workload(&self) -> Workload {
        Workload {
            mix: Mix::get_set(1.0),
            key_size: Sizes::Fixed(KEY_LEN),
            value_size: Sizes::Fixed(VALUE_LEN),
            keys_per_get: 1,
            writes_per_turn: 1,
            ..Workload::small_items(self.keys)
        }
    }

    /// How long what waits at one backend takes at most, if all connections wait for that.
    pub fn backlog(&self) -> Duration {
        let per_s = self.limit.map_or(f64::INFINITY, |limit| limit.per_s() as f64);
        Duration::from_secs_f64(self.connections as f64 / per_s)
    }

    /// The keys by their popularity.
    pub fn zipf(&self, exponent: f64) -> ChangingKeys {
        ChangingKeys::new(self.keys, exponent, 42)
    }

    /// Brings up the cluster with the data in it, and a gateway for each of some modes.
    pub fn up(&self, modes: &[CacheMode], flags: &[&str]) -> Result<Processes, BenchError> {
        if !self.is_filled.get() {
            let filling = Processes::up(&self.setup(&[CacheMode::None], &["--reports", "none"]))?;
            let loaded = preload(&[filling.address(CacheMode::None)?], Protocol::MemcacheText, &self.workload());
            let loaded = loaded.map_err(failed("filling", "guira"))?;
            if loaded.done < self.keys {
                return Err(BenchError::Invalid(format!("of {} items {} could be stored", self.keys, loaded.done)));
            }
            filling.down()?;
            self.is_filled.set(true);
        }
        let limit = self.limit.map(Limited::flag);
        let limit: Vec<&str> = limit.iter().flatten().map(String::as_str).collect();
        Processes::up(&self.setup(modes, &[&limit[..], flags].concat()))
    }

    fn setup(&self, modes: &[CacheMode], flags: &[&str]) -> Setup {
        let (backends, cached) = (self.backends.to_string(), self.cached.to_string());
        let usual = ["--backends", &backends, "--items-max", &cached, "--durability", "os"];
        Setup {
            program: self.program.clone(),
            folder: self.workplace.place(self.place),
            cores: self.server_cores.clone(),
            modes: modes.to_vec(),
            flags: usual.iter().chain(flags).map(|flag| (*flag).to_owned()).collect(),
        }
    }

    /// Reads without end before the interval, until the cache has as many items as it may or gets no more, as the readers of the gateway that
    /// goes by rules have it.
    pub fn warm(&self, cluster: &Processes, keys: &ChangingKeys) -> Result<(), BenchError> {
        let most = Duration::from_secs(self.extent.scaled(150, 1));
        let look = Duration::from_millis(self.extent.scaled(3_000, 300));
        let run = Run {
            mode: CacheMode::Switched,
            warm_up: Duration::ZERO,
            measure: look,
            samples: false,
            stretch: look,
            change: None,
        };
        let began = Instant::now();
        let mut items: Vec<u64> = Vec::new();
        while began.elapsed() < most {
            self.read("warming", cluster, keys.clone(), &run, || Ok(()))?;
            items.push(cluster.sample()?.items);
            let now = items.last().copied().unwrap_or(0);
            let before = items.len().checked_sub(1 + LOOKS).map(|at| items[at]);
            if now >= self.cached || before.is_some_and(|before| now < before + before / 50) {
                break;
            }
        }
        Ok(())
    }

    /// Reads for an interval, at whose beginning `begin` is called. A value that is wrong or not there is an error; answers that are errors are
    /// counted.
    pub fn read(
        &self,
        experiment: &'static str,
        cluster: &Processes,
        keys: ChangingKeys,
        run: &Run,
        mut begin: impl FnMut() -> Result<(), BenchError> + Send,
    ) -> Result<Read, BenchError> {
        let (workload, protocol) = (self.workload(), Protocol::MemcacheText);
        let seed = self.next_seed.replace(self.next_seed.get() + 1);
        let reading = Reading::new(&workload, protocol, keys, run.stretch.as_nanos() as u64, seed);
        let reading = RefCell::new(reading.with_change(run.change));
        let mut readers: Vec<Reader<'_>> = (0..self.connections).map(|_| Reader::of(&reading)).collect();
        let plan = PlayPlan {
            address: cluster.address(run.mode)?,
            protocol,
            shape: None,
            warm_up: run.warm_up,
            measure: Some(run.measure),
            core: self.generator_cores.first().copied(),
        };
        // Members are asked on another thread: the readers go on meanwhile, and both ends lag alike.
        let (outcome, ends) = std::thread::scope(|scope| {
            let (reach, reached) = mpsc::channel::<()>();
            let looker = scope.spawn(move || reached.iter().map(|()| cluster.sample()).collect::<Result<Vec<_>, _>>());
            let mut begun = Ok(());
            let outcome = interactive::play(&plan, &mut readers, &mut |moment| {
                if moment == Moment::Begin {
                    begun = begin();
                }
                if run.samples {
                    // It fails if that thread has ended with an error, which is told below.
                    let _ = reach.send(());
                }
            });
            drop(reach);
            let ends = looker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (begun.and(outcome.map_err(failed(experiment, run.mode.name()))), ends)
        });
        drop(readers);
        let (outcome, ends) = (outcome?, ends?);
        let counted = match &ends[..] {
            [before, after] => after.since(before)?,
            _ => Sample::default(),
        };
        let (seen, keys) = reading.into_inner().end();
        if seen.wrong + seen.missing > 0 {
            return Err(BenchError::Invalid(format!(
                "{experiment}, {}: {} values were not their keys', and {} items were not there",
                run.mode, seen.wrong, seen.missing
            )));
        }
        Ok(Read { interval: Interval { outcome, server_cpu_s: counted.cpu_s }, counted, seen, keys })
    }
}
