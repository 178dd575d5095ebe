//! What a user can choose about the engines, checked before anything is allocated.

use guira_arena::{NoAddressSpace, PAGE_LEN};

/// Smallest memory limit in bytes: a page for each of a few classes in the one heap there is then.
const MEMORY_MIN: usize = 1 << 20;

/// Largest memory limit in bytes: what 32-bit slots name at 64 bytes a line.
const MEMORY_MAX: usize = 1 << 38;

/// Most partitions: a heap's number has 16 bits, and one of them is for no heap.
const PARTITIONS_MAX: usize = 1 << 15;

/// Bytes of the memory limit for each partition of LOCKHASH, at least: its first buckets take an eighth of that.
const PARTITION_BYTES_MIN: usize = 512;

/// Largest memory limit in bytes with locks in buckets: they take one of a slot's bits.
const BUCKET_LOCKS_MEMORY_MAX: usize = (1 << 37) - (1 << 20);

/// Pages for each partition of CPHASH, which has a heap of its own, at least.
const PARTITION_PAGES_MIN: usize = 8;

/// Which element goes when memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Eviction {
    /// The one whose last use is longest ago in its partition.
    #[default]
    Lru,
    /// Any of its partition; no list is kept.
    Random,
}

impl Eviction {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Random => "random",
        }
    }
}

/// The settings of both engines.
#[derive(Clone, Debug)]
pub struct Config {
    /// Hard limit in bytes for elements and buckets together (`-m`).
    pub memory_limit: usize,
    /// Largest item in bytes, key included (`-I`).
    pub item_len_max: usize,
    /// Which element goes when memory is full.
    pub eviction: Eviction,
    /// Evict at all; if not, a store that finds no memory fails (`-M`).
    pub evictions_enabled: bool,
    /// Tell clients the versions of items, and let them name one; if not, each has version 0 (`-C`).
    pub versions_shown: bool,
    /// Ask for transparent huge pages.
    pub huge_pages: bool,
    /// Partitions, a power of two; `None`: as many as suit the engine and the memory limit.
    pub partitions: Option<usize>,
    /// Most threads that serve partitions, for CPHASH; `None`: one for each core. So many of them serve as the load needs, and
    /// those sleep that have nothing to do.
    pub server_threads: Option<usize>,
    /// All server threads have partitions, whatever the load, and all batches go by message, even if there are no such threads: for
    /// measuring a fixed split of cores.
    pub server_threads_fixed: bool,
    /// Cores that the server threads keep to, in turn; none: where the system puts them.
    pub server_cores: Vec<usize>,
    /// Secret from which keys are hashed; from the operating system unless a test wants the same run twice.
    pub hash_seed: u64,
}

impl Config {
    /// Defaults for a limit of `memory_limit` bytes.
    pub fn new(memory_limit: usize) -> Self {
        Self {
            memory_limit,
            item_len_max: 1 << 20,
            eviction: Eviction::default(),
            evictions_enabled: true,
            versions_shown: true,
            huge_pages: false,
            partitions: None,
            server_threads: None,
            server_threads_fixed: false,
            server_cores: Vec::new(),
            hash_seed: secret_seed(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.memory_limit < MEMORY_MIN {
            return Err(ConfigError::MemoryTooSmall { min: MEMORY_MIN });
        }
        if self.memory_limit > MEMORY_MAX {
            return Err(ConfigError::MemoryTooLarge { max: MEMORY_MAX });
        }
        Ok(())
    }

    /// The number of partitions that is wanted, or `default` if that is left open, in so far as there is room for `max`.
    fn partitions(&self, default: usize, max: usize) -> Result<usize, ConfigError> {
        let max = 1 << max.clamp(1, PARTITIONS_MAX).ilog2();
        match self.partitions {
            None => Ok(default.min(max)),
            Some(count) if count.is_power_of_two() && count <= max => Ok(count),
            Some(given) => Err(ConfigError::Partitions { given, max }),
        }
    }

    /// Partitions that share heaps.
    pub(crate) fn small_partitions(&self, default: usize) -> Result<usize, ConfigError> {
        self.check()?;
        self.partitions(default, self.memory_limit / PARTITION_BYTES_MIN)
    }

    /// Whether buckets may have locks.
    pub(crate) fn check_bucket_locks(&self) -> Result<(), ConfigError> {
        if self.eviction != Eviction::Random {
            return Err(ConfigError::BucketLocksInOrder);
        }
        if self.memory_limit > BUCKET_LOCKS_MEMORY_MAX {
            return Err(ConfigError::BucketLocksMemory { max: BUCKET_LOCKS_MEMORY_MAX });
        }
        Ok(())
    }

    /// Partitions with a heap each.
    pub(crate) fn large_partitions(&self, default: usize) -> Result<usize, ConfigError> {
        self.check()?;
        self.partitions(default, self.pages() / PARTITION_PAGES_MIN)
    }

    /// Pages the limit allows.
    pub(crate) fn pages(&self) -> usize {
        self.memory_limit / PAGE_LEN
    }
}

/// A secret from the operating system, different in every process.
fn secret_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u64)
}

/// Why an engine cannot be made.
#[derive(Debug)]
pub enum ConfigError {
    /// Too little memory.
    MemoryTooSmall {
        /// Smallest limit in bytes.
        min: usize,
    },
    /// More than slots can name.
    MemoryTooLarge {
        /// Largest limit in bytes.
        max: usize,
    },
    /// The number of partitions is no power of two, or too large.
    Partitions {
        /// What was asked for.
        given: usize,
        /// Most partitions.
        max: usize,
    },
    /// Locks in buckets, where every read changes the order of use.
    BucketLocksInOrder,
    /// More than slots can name beside a lock.
    BucketLocksMemory {
        /// Largest limit in bytes.
        max: usize,
    },
    /// The operating system does not give that much address space.
    NoAddressSpace(NoAddressSpace),
    /// The process may not run on a core that server threads are to keep to.
    NoCore(usize),
    /// A server thread could not be started.
    NoThread(std::io::Error),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MIB: usize = 1 << 20;
        match self {
            Self::MemoryTooSmall { min } => write!(f, "too little memory: give at least -m {}", min.div_ceil(MIB)),
            Self::MemoryTooLarge { max } => write!(f, "too much memory: give at most -m {}", max / MIB),
            Self::Partitions { given, max } => {
                write!(f, "--partitions {given}: write a power of two, at most {max} with this -m")
            }
            Self::BucketLocksInOrder => f.write_str(
                "--bucket-locks: under lru every read changes its partition's order of use, choose --eviction random",
            ),
            Self::BucketLocksMemory { max } => write!(f, "--bucket-locks: give at most -m {}", max / MIB),
            Self::NoAddressSpace(NoAddressSpace { bytes }) => {
                let megabytes = bytes / MIB;
                write!(f, "cannot reserve {megabytes} megabytes: lower -m or raise the address space limit (ulimit -v)")
            }
            Self::NoCore(core) => write!(f, "--server-cores: this process may not run on core {core}"),
            Self::NoThread(error) => write!(f, "cannot start a server thread: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {}
