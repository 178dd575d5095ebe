//! Parameters of CPHASH's microbenchmark that whoever runs it has chosen.

use std::num::NonZeroUsize;

use clap::Args;
use guira_cphash::Eviction;

use super::BenchError;

/// Largest working set, in MB of values: a twentieth of the memory it takes.
const WORKING_SET_MB_MAX: usize = 4 << 10;

/// Largest batch.
const BATCH_MAX: usize = 1 << 20;

/// Most partitions.
const PARTITIONS_MAX: usize = 1 << 15;

/// What holds for all sweeps over CPHASH's parameters: the one that varies such a parameter has that one step.
#[derive(Clone, Debug, Default, Args)]
pub struct Parameters {
    /// Distinct values in MB, of 8 bytes each [default: 1, 16 or 128, as the experiment says]
    #[arg(long, value_name = "MB", help_heading = PARAMETERS)]
    pub working_set: Option<usize>,
    /// Percent of the working set that there is room for [default: 100]
    #[arg(long, value_name = "PERCENT", help_heading = PARAMETERS)]
    pub capacity: Option<usize>,
    /// Percent of inserts [default: 30]
    #[arg(long, value_name = "PERCENT", help_heading = PARAMETERS)]
    pub inserts: Option<usize>,
    /// Requests in a batch [default: 1000]
    #[arg(long, value_name = "N", help_heading = PARAMETERS)]
    pub batch: Option<usize>,
    /// Server threads of cphash with a fixed split of the cores, 0 to one a core [default: half of the cores]
    #[arg(long, value_name = "N", help_heading = PARAMETERS)]
    pub server_threads: Option<usize>,
    /// Which element goes when memory is full, lru or random [default: lru]
    #[arg(long, value_name = "POLICY", help_heading = PARAMETERS, value_parser = eviction)]
    pub eviction: Option<Eviction>,
    /// Partitions of lockhash, a power of two [default: 4096]
    #[arg(long, value_name = "N", help_heading = PARAMETERS)]
    pub partitions: Option<usize>,
}

const PARAMETERS: &str = "Parameters of working-sets, capacities, insert-ratios, batches, partitions, server-threads and cores\n\
                          (the one that varies such a parameter has that one step)";

fn eviction(name: &str) -> Result<Eviction, String> {
    let all = [Eviction::Lru, Eviction::Random];
    all.into_iter().find(|policy| policy.name() == name).ok_or_else(|| "choose lru or random".into())
}

impl Parameters {
    /// Sees to it that a run on so many cores can have them.
    ///
    /// # Errors
    /// [`BenchError::Setting`] with the first that it cannot.
    pub(crate) fn check(&self, cores: usize) -> Result<(), BenchError> {
        for (flag, given, least, most) in [
            ("--working-set", self.working_set, 1, WORKING_SET_MB_MAX),
            ("--capacity", self.capacity, 1, 100),
            ("--inserts", self.inserts, 0, 100),
            ("--batch", self.batch, 1, BATCH_MAX),
            ("--server-threads", self.server_threads, 0, cores),
            ("--partitions", self.partitions, 1, PARTITIONS_MAX),
        ] {
            if let Some(given) = given.filter(|given| !(least..=most).contains(given)) {
                return Err(BenchError::Setting(format!("{flag} {given}: write a number from {least} to {most}")));
            }
        }
        match self.partitions.filter(|count| !count.is_power_of_two()) {
            Some(count) => Err(BenchError::Setting(format!("--partitions {count}: write a power of two"))),
            None => Ok(()),
        }
    }

    /// The batch that was chosen, of those that are in bounds.
    pub(super) fn batch(&self) -> Option<NonZeroUsize> {
        self.batch.and_then(NonZeroUsize::new)
    }
}

/// The steps of a parameter: the one that was chosen, or the usual ones.
pub(super) fn steps<T: Copy>(chosen: Option<T>, usual: &[T]) -> Vec<T> {
    chosen.map_or_else(|| usual.to_vec(), |chosen| vec![chosen])
}
