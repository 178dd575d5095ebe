//! What a user can choose about the engine, checked before anything is allocated.

use guira_arena::{NoAddressSpace, PAGE_LEN};

/// Smallest memory limit in bytes: a page for the index, one for each of a few classes.
const MEMORY_MIN: usize = 1 << 20;

/// Largest memory limit in bytes: what 32-bit payloads name at the coarsest granule that items are aligned to (64 bytes).
const MEMORY_MAX: usize = 1 << 38;

/// Which item goes when memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Eviction {
    /// The eviction hand takes the first item not read since it last came by: one bit an item (MemC3, section 4).
    #[default]
    Clock,
    /// Three FIFO queues: new items in a small one, items read again in the main one, keys of the evicted remembered.
    S3Fifo,
    /// One queue in order of arrival, a hand that moves from old to new and spares what was read.
    Sieve,
    /// The item whose last use is longest ago, exactly.
    Lru,
    /// Any item.
    Random,
}

impl Eviction {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::S3Fifo => "s3fifo",
            Self::Sieve => "sieve",
            Self::Lru => "lru",
            Self::Random => "random",
        }
    }
}

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Hard limit in bytes for items and index together (`-m`).
    pub memory_limit: usize,
    /// Largest item in bytes, header and key included (`-I`).
    pub item_len_max: usize,
    /// Which item goes when memory is full.
    pub eviction: Eviction,
    /// Evict at all; if not, a store that finds no memory fails (`-M`).
    pub evictions_enabled: bool,
    /// Tell clients the versions of items, and let them name one; if not, each has version 0 (`-C`).
    pub versions_shown: bool,
    /// Ask for transparent huge pages: a key's lines then lie behind fewer page tables.
    pub huge_pages: bool,
    /// Ratio between the sizes of neighbouring slab classes, above 256 bytes (`-f`).
    pub growth_factor: f64,
    /// Smallest chunk in bytes (`-n` with the header added).
    pub chunk_len_min: usize,
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
            growth_factor: 1.08,
            chunk_len_min: 24,
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
        if !(1.01..=4.0).contains(&self.growth_factor) {
            return Err(ConfigError::GrowthFactor);
        }
        Ok(())
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// Too little memory.
    MemoryTooSmall {
        /// Smallest limit in bytes.
        min: usize,
    },
    /// More than payloads can name.
    MemoryTooLarge {
        /// Largest limit in bytes.
        max: usize,
    },
    /// The operating system does not give that much address space.
    NoAddressSpace {
        /// Bytes asked for.
        bytes: usize,
    },
    /// Neighbouring classes must differ by a factor of 1.01 to 4.
    GrowthFactor,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MIB: usize = 1 << 20;
        match self {
            Self::MemoryTooSmall { min } => write!(f, "too little memory: give at least -m {}", min.div_ceil(MIB)),
            Self::MemoryTooLarge { max } => write!(f, "too much memory: give at most -m {}", max / MIB),
            Self::NoAddressSpace { bytes } => {
                write!(
                    f,
                    "cannot reserve {} megabytes: lower -m or raise the address space limit (ulimit -v)",
                    bytes / MIB
                )
            }
            Self::GrowthFactor => write!(f, "the slab growth factor must be between 1.01 and 4: change -f"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<NoAddressSpace> for ConfigError {
    fn from(NoAddressSpace { bytes }: NoAddressSpace) -> Self {
        Self::NoAddressSpace { bytes }
    }
}
