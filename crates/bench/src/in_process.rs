//! What experiments on the cores of this machine share: cores, rounds, how long to measure, how much to shrink.

use std::time::Duration;

use guira_loadgen::affinity;

use crate::engine::Parameters;
use crate::error::BenchError;
use crate::experiment::Extent;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    /// Cores of the threads, one each.
    pub cores: Vec<usize>,
    pub rounds: usize,
    /// Length of a timed interval.
    pub measure: Duration,
    pub extent: Extent,
    /// Of the partitioned engines' microbenchmark.
    pub parameters: Parameters,
}

impl Bench {
    /// A run of `threads` threads at most; one for each core if that is left open.
    pub fn new(threads: Option<usize>, extent: &Extent) -> Result<Self, BenchError> {
        let mut cores = affinity::cores();
        let threads = threads.unwrap_or(cores.len());
        if threads == 0 || threads > cores.len() {
            let have = cores.len();
            return Err(BenchError::Setting(format!(
                "--threads must be 1 to {have}: each thread has a core of its own"
            )));
        }
        cores.truncate(threads);
        let measure = Duration::from_millis(extent.scaled(300, 2));
        let parameters = Parameters::default();
        Ok(Self { cores, rounds: extent.rounds()?, measure, extent: extent.clone(), parameters })
    }

    /// Thread counts to measure: 1, 2, 4, ... and all.
    pub fn thread_counts(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
            .take_while(|count| *count < self.cores.len())
            .collect();
        counts.push(self.cores.len());
        counts
    }
}

/// A count of threads, as a variant's name.
pub(crate) fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// What an experiment tried when memory was refused.
pub(crate) fn no_memory(source: std::io::Error) -> BenchError {
    BenchError::System { doing: "reserving memory for a peer", source }
}
