//! What the paper compares with, each small and whole: indexes as memcached and as MemC3's authors built them, and caches
//! on top of chains. Single-threaded ones say so; the others are for many threads.
//!
//! An item is named by a number from 0, at most [`ITEMS_MAX`]; a "pointer" is that number plus one, 0 being none, kept in
//! the eight bytes that a pointer takes.

pub mod breadth_first;
pub mod chained_clock;
pub mod chained_lru;
pub mod chaining;
pub mod guira_index;
pub mod key;
pub mod paper_cuckoo;
pub mod random_walk;
pub mod records;
pub mod shared_cuckoo;

use key::Key;

/// Most items a peer can hold.
pub const ITEMS_MAX: usize = u32::MAX as usize - 1;

/// An index from keys to items that lie elsewhere.
pub trait PointerIndex: Send + Sync {
    /// Whether the key is there, comparing the whole of it.
    fn contains(&self, key: &Key) -> bool;

    /// Adds an item whose key is not there.
    ///
    /// # Errors
    /// [`IndexFull`]
    fn insert(&self, item: u32) -> Result<(), IndexFull>;

    /// Removes an item; nothing if it is not there.
    fn remove(&self, item: u32);

    /// How many of the numbered keys are there. Called through a `dyn`, once for many keys.
    fn count(&self, numbers: &[u32]) -> u64 {
        numbers.iter().map(|number| u64::from(self.contains(&key::numbered(u64::from(*number))))).sum()
    }
}

/// There is no place for an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexFull;

/// How an index of many threads keeps them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locking {
    /// Not at all: for one thread.
    None,
    /// One mutex around everything (memcached's `cache_lock`).
    Global,
    /// A lock for each bucket, striped; readers take it too.
    Bucket,
    /// Readers take none and look at version counters instead; writers queue up behind one mutex (MemC3).
    Optimistic,
}

/// Locks for buckets: as many as the paper has version counters.
pub(crate) const STRIPES: usize = 8192;

#[cfg(test)]
mod index_tests;
