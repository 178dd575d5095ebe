//! Counters of the worker threads: each writes its own, anyone may add them up.
//!
//! Always true: a worker's numbers lie on cache lines no other thread writes, so counting costs no traffic between cores.
//! Relaxed everywhere: the numbers order nothing.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use guira_item::EngineStats;
use guira_memcache::{ClassCounter, ClassCounters, Counters};

use crate::shared::locked;

const WORDS_PER_LINE: usize = 8;

#[repr(align(64))]
#[derive(Debug, Default)]
struct Line([AtomicU64; WORDS_PER_LINE]);

macro_rules! traffic {
    ($($name:ident: $meaning:literal,)*) => {
        /// What a worker counts beside commands.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Traffic {
            $(#[doc = $meaning] pub(crate) $name: u64,)*
        }

        impl Traffic {
            fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

traffic! {
    bytes_read: "Bytes from clients.",
    bytes_written: "Bytes to clients.",
    conn_yields: "Turns that ended with work left.",
    idle_kicks: "Connections closed for silence.",
    read_buf_oom: "Unfinished commands refused, or connections closed, because they took too much memory.",
    response_obj_oom: "Connections closed because unread answers took too much memory.",
    log_worker_written: "Log lines made for watchers.",
    cp_malformed: "Connections closed for what is no request of CPSERVER's protocol.",
}

/// One worker's numbers, as others see them.
#[derive(Debug)]
pub(crate) struct WorkerTally {
    lines: Box<[Line]>,
    /// What it counts by slab class.
    pub(crate) classes: ClassCounters,
    /// Connections this worker holds or is about to be handed.
    pub(crate) connections: AtomicUsize,
}

impl WorkerTally {
    pub(crate) fn new() -> Self {
        let words = Counters::default().iter().count() + Traffic::default().iter().count();
        let lines = (0..words.div_ceil(WORDS_PER_LINE)).map(|_| Line::default()).collect();
        Self { lines, classes: ClassCounters::default(), connections: AtomicUsize::new(0) }
    }

    /// Shows the owner's numbers to the others.
    #[inline]
    pub(crate) fn publish(&self, commands: &Counters, traffic: &Traffic) {
        let words = self.lines.iter().flat_map(|line| &line.0);
        for (word, (_, number)) in words.zip(commands.iter().chain(traffic.iter())) {
            word.store(number, Relaxed);
        }
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().flat_map(|line| &line.0).map(|word| word.load(Relaxed))
    }
}

macro_rules! rare {
    ($($name:ident: $meaning:literal,)*) => {
        /// Numbers that are rare enough to be shared.
        #[derive(Debug, Default)]
        pub(crate) struct Rare {
            $(#[doc = $meaning] pub(crate) $name: AtomicU64,)*
        }

        impl Rare {
            fn reset(&self) {
                $(self.$name.store(0, Relaxed);)*
            }
        }
    };
}

rare! {
    connections_total: "Connections accepted.",
    connections_rejected: "Connections refused for their number.",
    listen_disabled: "Times that nothing was accepted for a while.",
    listen_disabled_us: "How long that was, in microseconds.",
    crawler_starts: "Crawls that were asked for.",
    maintenance_rounds: "Slices of background work.",
    watcher_lines_sent: "Log lines that watchers got.",
}

/// All workers' numbers, and from where the engine's are counted.
#[derive(Debug)]
pub(crate) struct Tallies {
    pub(crate) workers: Vec<WorkerTally>,
    pub(crate) rare: Rare,
    /// Subtracted since `stats reset`.
    baseline: Mutex<Baseline>,
}

#[derive(Debug, Default)]
struct Baseline {
    sums: Sums,
    class_sums: Sums,
    engine: EngineStats,
}

/// Numbers of all workers, added up one by one.
#[derive(Debug, Default)]
struct Sums(Vec<u64>);

impl Sums {
    fn of(workers: impl Iterator<Item = impl Iterator<Item = u64>>) -> Self {
        let mut sums = Vec::new();
        for numbers in workers {
            for (index, number) in numbers.enumerate() {
                if sums.len() <= index {
                    sums.push(0);
                }
                sums[index] += number;
            }
        }
        Self(sums)
    }

    /// What has been added since these were `before`.
    fn since(mut self, before: &Self) -> Self {
        self.0.iter_mut().zip(&before.0).for_each(|(sum, before)| *sum -= before);
        self
    }
}

/// The sums, by name.
pub(crate) type Totals = HashMap<&'static str, u64>;

/// The sums of a slab class, in the order of [`ClassCounter::NAMES`](guira_memcache::ClassCounter::NAMES).
pub(crate) type ClassTotal = [u64; ClassCounter::NAMES.len()];

/// The sums by the number of the class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassTotals(Vec<ClassTotal>);

#[cfg(test)]
impl From<Vec<ClassTotal>> for ClassTotals {
    fn from(counts: Vec<ClassTotal>) -> Self {
        Self(counts)
    }
}

impl ClassTotals {
    pub(crate) fn of(&self, class: u32) -> ClassTotal {
        self.0.get(class as usize).copied().unwrap_or_default()
    }

    /// The classes with any count.
    pub(crate) fn counted(&self) -> impl Iterator<Item = u32> {
        let counted = |counts: &ClassTotal| counts.iter().any(|count| *count > 0);
        self.0.iter().zip(0..).filter(move |(counts, _)| counted(counts)).map(|(_, class)| class)
    }
}

impl Tallies {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| WorkerTally::new()).collect(),
            rare: Rare::default(),
            baseline: Mutex::default(),
        }
    }

    /// Connections open now.
    pub(crate) fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.connections.load(Relaxed)).sum()
    }

    fn sums(&self) -> Sums {
        Sums::of(self.workers.iter().map(WorkerTally::numbers))
    }

    fn class_sums(&self) -> Sums {
        Sums::of(self.workers.iter().map(|worker| worker.classes.iter().flatten()))
    }

    /// The sums since the last reset.
    pub(crate) fn totals(&self) -> Totals {
        // Before the sums: no reset comes between, which would leave less than it subtracts.
        let baseline = locked(&self.baseline);
        let sums = self.sums().since(&baseline.sums);
        let (commands, traffic) = (Counters::default(), Traffic::default());
        let names = commands.iter().chain(traffic.iter()).map(|(name, _)| name);
        names.zip(sums.0).collect()
    }

    /// The sums by slab class since the last reset.
    pub(crate) fn class_totals(&self) -> ClassTotals {
        let baseline = locked(&self.baseline);
        let sums = self.class_sums().since(&baseline.class_sums);
        ClassTotals(sums.0.as_chunks().0.to_vec())
    }

    /// What the engine says now, its counts since the last reset.
    pub(crate) fn engine_since_reset(&self, engine: impl FnOnce() -> EngineStats) -> EngineStats {
        // Before the engine is asked, as in `totals`.
        let baseline = locked(&self.baseline);
        engine().since(&baseline.engine)
    }

    /// Starts counting from zero, the engine's counts from what it says now.
    pub(crate) fn reset(&self, engine: impl FnOnce() -> EngineStats) {
        let mut baseline = locked(&self.baseline);
        *baseline = Baseline { sums: self.sums(), class_sums: self.class_sums(), engine: engine() };
        self.rare.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_start_again_after_a_reset() {
        let tallies = Tallies::new(2);
        let traffic = Traffic { bytes_read: 10, ..Traffic::default() };
        for worker in &tallies.workers {
            worker.publish(&Counters { cmd_get: 3, ..Counters::default() }, &traffic);
        }
        assert_eq!(tallies.totals()["cmd_get"], 6);
        assert_eq!(tallies.totals()["bytes_read"], 20);
        tallies.reset(EngineStats::default);
        tallies.workers[0].publish(&Counters { cmd_get: 5, ..Counters::default() }, &traffic);
        assert_eq!(tallies.totals()["cmd_get"], 2);
        assert_eq!(tallies.totals()["bytes_read"], 0);
    }
}
