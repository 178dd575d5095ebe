//! The paper's parameters, all of them (CPHASH, section 6).

use std::num::NonZeroUsize;

use guira_cphash::{Config, Eviction};

use super::{Bench, contender};

/// Bytes of a value, which the paper counts a working set in.
pub(super) const VALUE_BYTES: usize = 8;

/// Bytes that an element of either engine takes at most, with its buckets.
const ELEMENT_BYTES: usize = 144;

/// Draws that the threads go through again and again: more than any cache remembers the order of.
const DRAWS: usize = 4_000_000;

/// What is asked of an engine, and what it has to do it with.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// Distinct keys.
    pub keys: usize,
    /// Keys stored before, the first ones.
    pub stored: usize,
    /// Keys there is room for.
    pub capacity: usize,
    /// Share of inserts.
    pub inserts: f64,
    /// Requests in a batch.
    pub batch: NonZeroUsize,
    pub eviction: Eviction,
    /// Partitions of LOCKHASH; `None`: as many as it has by default.
    pub partitions: Option<usize>,
    /// Cores in use, of those the run has.
    pub cores: usize,
    /// Server threads of CPHASH, on the last of the cores, with clients on the others; if there are as many as cores,
    /// each core has one of both.
    pub servers: usize,
}

impl Load {
    /// A working set of so many bytes of values, all stored and room for all, 30 % inserts, batches of 1,000, LRU;
    /// every core, half of them for server threads. A run that only shows that it works has a 1,024th of the keys.
    pub fn usual(bench: &Bench, working_set_bytes: usize) -> Self {
        let keys = bench.extent.scaled(working_set_bytes, (working_set_bytes >> 10).max(16 << 10)) / VALUE_BYTES;
        let batch = NonZeroUsize::new(1_000).expect("not zero");
        let cores = bench.cores.len();
        let servers = cores.div_ceil(2);
        let (eviction, partitions) = (Eviction::Lru, None);
        Self { keys, stored: keys, capacity: keys, inserts: 0.3, batch, eviction, partitions, cores, servers }
    }

    /// The usual one with a working set of so many MB, but for the parameters that were chosen for this run.
    pub fn of(bench: &Bench, working_set_mb: usize) -> Self {
        let chosen = &bench.parameters;
        let usual = Self::usual(bench, chosen.working_set.unwrap_or(working_set_mb) << 20);
        Self {
            capacity: chosen.capacity.map_or(usual.capacity, |percent| (usual.keys * percent).div_ceil(100)),
            inserts: chosen.inserts.map_or(usual.inserts, |percent| percent as f64 / 100.0),
            batch: chosen.batch().unwrap_or(usual.batch),
            servers: chosen.server_threads.unwrap_or(usual.servers),
            eviction: chosen.eviction.unwrap_or(usual.eviction),
            partitions: chosen.partitions,
            ..usual
        }
    }

    /// The memory limit that leaves room for `capacity` keys, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.capacity * ELEMENT_BYTES + (4 << 20)
    }

    /// Settings of both partitioned engines.
    pub fn config(&self) -> Config {
        Config { eviction: self.eviction, huge_pages: true, hash_seed: 42, ..Config::new(self.memory_bytes()) }
    }

    /// The cores of CPHASH's clients, and those of its server threads.
    pub fn split<'b>(&self, bench: &'b Bench) -> (&'b [usize], &'b [usize]) {
        let cores = self.cores(bench);
        if self.servers == cores.len() { (cores, cores) } else { cores.split_at(cores.len() - self.servers) }
    }

    /// The cores in use.
    pub fn cores<'b>(&self, bench: &'b Bench) -> &'b [usize] {
        &bench.cores[..self.cores]
    }

    /// What the threads ask for: keys, uniform, the share of inserts marked.
    pub fn draws(&self, bench: &Bench) -> Vec<u32> {
        self.draws_of(bench, 7)
    }

    /// What they ask for before they are measured: others, since what was asked for just now is in memory close by, and in a
    /// cache that has not room for all it would be found every time.
    pub fn settling_draws(&self, bench: &Bench) -> Vec<u32> {
        self.draws_of(bench, 8)
    }

    fn draws_of(&self, bench: &Bench, seed: u64) -> Vec<u32> {
        contender::draws(self.keys, bench.extent.scaled(DRAWS, 20_000), 0.0, self.inserts, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Extent, engine::Parameters};

    #[test]
    fn chosen_parameters_replace_the_usual_ones() {
        let bench = Bench { cores: vec![0, 1], ..Bench::new(Some(1), &Extent::default()).expect("a core") };
        let usual = Load::of(&bench, 16);
        assert_eq!((usual.keys, usual.stored, usual.capacity), (2 << 20, 2 << 20, 2 << 20));
        assert_eq!((usual.inserts, usual.batch.get(), usual.servers, usual.partitions), (0.3, 1_000, 1, None));
        let (working_set, capacity, inserts, batch) = (Some(2), Some(25), Some(60), Some(50));
        let (server_threads, eviction, partitions) = (Some(0), Some(Eviction::Random), Some(64));
        let chosen = Parameters { working_set, capacity, inserts, batch, server_threads, eviction, partitions };
        let load = Load::of(&Bench { parameters: chosen, ..bench }, 16);
        assert_eq!((load.keys, load.stored, load.capacity), (256 << 10, 256 << 10, 64 << 10));
        assert_eq!((load.inserts, load.batch.get(), load.servers, load.cores), (0.6, 50, 0, 2));
        assert_eq!((load.eviction, load.partitions), (Eviction::Random, Some(64)));
    }

    #[test]
    fn clients_and_servers_divide_the_cores_or_share_them() {
        let extent = Extent { tiny: true, ..Extent::default() };
        let bench = Bench { cores: vec![3, 5, 7], ..Bench::new(Some(1), &extent).expect("a core") };
        let load = |servers| Load { servers, ..Load::of(&bench, 1) };
        assert_eq!(load(0).split(&bench), (&[3, 5, 7][..], &[][..]));
        assert_eq!(load(1).split(&bench), (&[3, 5][..], &[7][..]));
        assert_eq!(load(3).split(&bench), (&[3, 5, 7][..], &[3, 5, 7][..]));
    }
}
