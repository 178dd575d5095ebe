//! What all experiments share: scale, cores, what is asked, and one interval of it.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use guira_loadgen::affinity;
use guira_loadgen::driver::{self, Plan, Reach, Target};
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::Pacing;
use guira_loadgen::preload::preload;
use guira_loadgen::protocol::Protocol;
use guira_loadgen::script::Script;
use guira_loadgen::size::Sizes;
use guira_loadgen::workload::Workload;

use super::counted::Sample;
use super::nodes::{Nodes, Setup};
use super::{Options, SymmetricClusters};
use crate::error::BenchError;
use crate::experiment::Extent;
use crate::server::bench::{Interval, failed};
use crate::workplace::Workplace;

/// Whose figures are shown beside ours.
pub(super) const PAPER: &str = "ccKVS paper";

pub(super) const EXPONENT: f64 = 0.99;

/// Bytes of a key.
const KEY_LEN: u32 = 16;

/// Bytes of a small value, as the paper's.
pub(super) const SMALL_LEN: u32 = 40;

/// Looked at in a row while keys come to be hot.
const LOOKS: usize = 3;

/// What a gain over these looks has to be: less is chance.
const GAIN: f64 = 0.01;

/// The settings of a run.
pub(crate) struct Bench {
    pub nodes: u16,
    pub keys: u64,
    /// Share of the requests that are to be for hot keys.
    pub hot_share: f64,
    pub connections: usize,
    pub depth: u32,
    pub rounds: usize,
    /// Length of a timed interval.
    pub measure: Duration,
    pub extent: Extent,
    pub program: PathBuf,
    pub server_cores: Vec<usize>,
    pub generator_cores: Vec<usize>,
    workplace: Workplace,
    /// No two clusters have one folder: nobody finds who was there before.
    next_cluster: Cell<u32>,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Load {
    /// Of so many keys, the first of all; zipf.
    pub keys: u64,
    /// Share that are writes, 0 to 1.
    pub writes: f64,
    /// Bytes of a value.
    pub value_len: u32,
}

/// What came of an interval.
pub(crate) struct Driven {
    pub interval: Interval,
    /// What nodes have counted meanwhile.
    pub counted: Sample,
}

impl Bench {
    pub fn new(options: &Options) -> Result<Self, BenchError> {
        let extent = &options.extent;
        let seconds = options.seconds.unwrap_or(extent.scaled(2.0, 0.2));
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
        Ok(Self {
            nodes: options.nodes.unwrap_or(3),
            keys: options.keys.unwrap_or(extent.scaled(10_000, 1_000)),
            hot_share: f64::from(options.hot_percent.unwrap_or(65)) / 100.0,
            connections: options.connections.unwrap_or(extent.scaled(48, 6)).into(),
            depth: options.depth.unwrap_or(16),
            rounds: extent.rounds()?,
            measure: Duration::from_secs_f64(seconds),
            extent: extent.clone(),
            program,
            server_cores: chosen(&options.placement.server_cores, cores.clone()),
            generator_cores: chosen(&options.placement.generator_cores, cores.last().copied().into_iter().collect()),
            workplace: Workplace::new(options.dir.as_deref(), "guira-bench-symmetric-")?,
            next_cluster: Cell::new(1),
        })
    }

    pub fn setting(&self) -> SymmetricClusters {
        SymmetricClusters {
            nodes: self.nodes,
            keys: self.keys,
            hot_keys: self.hot_keys(),
            connections: self.connections,
            depth: self.depth,
            server_cores: self.server_cores.clone(),
            generator_cores: self.generator_cores.clone(),
        }
    }

    /// Keys that are to be hot, the hottest, so that their share of the requests is the one that is wanted.
    pub fn hot_keys(&self) -> u64 {
        hottest_with_share(self.keys, EXPONENT, self.hot_share)
    }

    /// What clients do, in words.
    pub fn words(&self) -> String {
        format!(
            "{} connections to {} nodes in turn, {} requests of one key ({KEY_LEN} B) each on its way on each, zipf {EXPONENT} over {} items",
            self.connections, self.nodes, self.depth, self.keys
        )
    }

    /// All keys.
    pub fn load(&self, writes: f64, value_len: u32) -> Load {
        Load { keys: self.keys, writes, value_len }
    }

    /// How often hot keys are chosen.
    pub fn epoch(&self) -> Duration {
        Duration::from_millis(self.extent.scaled(1_000, 200))
    }

    /// A cluster of so many nodes in a folder of its own, whose hot keys are chosen so often, with further flags.
    pub fn setup(&self, nodes: u16, epoch: Duration, flags: impl IntoIterator<Item = String>) -> Setup {
        let number = self.next_cluster.replace(self.next_cluster.get() + 1);
        let epoch = ["--epoch-ms".to_owned(), epoch.as_millis().to_string()];
        Setup {
            program: self.program.clone(),
            folder: self.workplace.place(&format!("cluster-{number}")),
            cores: self.server_cores.clone(),
            nodes,
            flags: epoch.into_iter().chain(flags).collect(),
        }
    }

    /// Stores all keys.
    pub fn fill(&self, experiment: &'static str, cluster: &Nodes, value_len: u32) -> Result<(), BenchError> {
        let workload = self.load(0.0, value_len).workload();
        let loaded = preload(&cluster.addresses()[..1], Protocol::MemcacheText, &workload);
        let loaded = loaded.map_err(failed(experiment, "guira"))?;
        if loaded.done < self.keys {
            return Err(BenchError::Invalid(format!("of {} items {} could be stored", self.keys, loaded.done)));
        }
        Ok(())
    }

    /// Asks before any interval, until no more of the requests are for hot keys than before.
    pub fn warm(&self, experiment: &'static str, cluster: &Nodes, script: &Arc<Script>) -> Result<(), BenchError> {
        let most = Duration::from_millis(self.extent.scaled(30_000, 500));
        let look = self.epoch() * 3 / 2;
        let (began, mut shares) = (Instant::now(), Vec::new());
        while began.elapsed() < most {
            let counted = self.drive_for(experiment, cluster, script, Duration::ZERO, look)?.counted;
            let share = counted.of_asked(counted.hits);
            let before = shares.len().checked_sub(LOOKS).map(|at: usize| shares[at]);
            if before.is_some_and(|before| share < before + GAIN) {
                break;
            }
            shares.push(share);
        }
        Ok(())
    }

    /// Asks for an interval. A key that is not there, and a write that is not done, is an error.
    pub fn drive(&self, experiment: &'static str, cluster: &Nodes, script: &Arc<Script>) -> Result<Driven, BenchError> {
        let warm_up = Duration::from_millis(self.extent.scaled(500, 50));
        self.drive_for(experiment, cluster, script, warm_up, self.measure)
    }

    fn drive_for(
        &self,
        experiment: &'static str,
        cluster: &Nodes,
        script: &Arc<Script>,
        warm_up: Duration,
        measure: Duration,
    ) -> Result<Driven, BenchError> {
        let target = |address| Target { address, script: Arc::clone(script) };
        let plan = Plan {
            targets: cluster.addresses().into_iter().map(target).collect(),
            reach: Reach::One,
            clients: self.connections,
            pacing: Pacing::Closed { depth: self.depth },
            warm_up,
            measure,
            cores: self.generator_cores.clone(),
            seed: 42,
        };
        // Nodes are asked on another thread: the load goes on meanwhile, and both ends lag alike.
        let (outcome, ends) = std::thread::scope(|scope| {
            let (reach, reached) = mpsc::channel::<()>();
            let looker = scope.spawn(move || reached.iter().map(|()| cluster.sample()).collect::<Result<Vec<_>, _>>());
            let outcome = driver::run(&plan, &mut |_| {
                // It fails if that thread has ended with an error, which is told below.
                let _ = reach.send(());
            });
            drop(reach);
            let ends = looker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (outcome.map_err(failed(experiment, "guira")), ends)
        });
        let (outcome, ends) = (outcome?, ends?);
        let [before, after] = &ends[..] else {
            return Err(BenchError::Invalid(format!("{experiment}: an interval has two ends")));
        };
        let counted = after.since(before)?;
        let interval = Interval { outcome, server_cpu_s: counted.cpu_s };
        interval.expect_all_answered(experiment, "guira")?;
        Ok(Driven { interval, counted })
    }

    /// What a load sends, over and over again.
    pub fn script(&self, experiment: &'static str, load: &Load) -> Result<Arc<Script>, BenchError> {
        let turns = self.extent.scaled(200_000, 20_000);
        let scripts = Script::build(&load.workload(), Protocol::MemcacheText, turns, 1, 0);
        let script = scripts.map_err(failed(experiment, "guira"))?.pop();
        script.map(Arc::new).ok_or_else(|| BenchError::Invalid(format!("{experiment}: there is no script")))
    }
}

impl Load {
    /// The same, as the generator takes it.
    pub fn workload(&self) -> Workload {
        Workload {
            mix: Mix::get_set(1.0 - self.writes),
            key_size: Sizes::Fixed(KEY_LEN),
            value_size: Sizes::Fixed(self.value_len),
            keys_per_get: 1,
            writes_per_turn: 1,
            ..Workload::small_items(self.keys)
        }
    }
}

/// How many of `keys`, the hottest, have a share of the requests, by zipf.
fn hottest_with_share(keys: u64, exponent: f64, share: f64) -> u64 {
    let weight = |rank: u64| (rank as f64).powf(-exponent);
    let wanted = share * (1..=keys).map(weight).sum::<f64>();
    let mut sum = 0.0;
    let reaches = |rank: &u64| {
        sum += weight(*rank);
        sum >= wanted
    };
    (1..=keys)
        .find({
            let mut reaches = reaches;
            move |rank| reaches(rank)
        })
        .unwrap_or(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_that_have_a_share_are_counted_by_zipf() {
        assert_eq!(hottest_with_share(10, 0.0, 0.65), 7, "each alike");
        assert_eq!(hottest_with_share(1_000, 0.99, 0.0), 1);
        assert_eq!(hottest_with_share(1_000, 0.99, 1.0), 1_000);
        // 1 + 1/2 + 1/3 + 1/4 = 25/12, of which 1 + 1/2 is 72 %.
        assert_eq!(hottest_with_share(4, 1.0, 0.72), 2);
        assert_eq!(hottest_with_share(4, 1.0, 0.73), 3);
    }
}
