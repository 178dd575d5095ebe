//! A store: keeps items where they outlive the process.
//!
//! Always true: whoever asks never waits. What is in memory, whoever keeps it there, may be answered at once ([`Store::get_now`]); everything
//! else is taken, and completed later, from a thread of the store's own, exactly once. Writes of a key, and a state and what comes after it,
//! take effect in the order in which one thread has submitted them. A failure says whether what was asked for may have happened all the same.

use std::{fmt, ops::ControlFlow, path::PathBuf, sync::Arc};

use crate::{Failure, Key};

/// Called once with what came of something, from a thread of the store's, or, if it is not taken on, from the caller's; must not block
/// it.
pub type Done<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// What a store keeps of an item beside its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<V> {
    /// The client's flags.
    pub flags: u32,
    /// When it ends, Unix time in seconds; 0 is never.
    pub expires_unix_s: u64,
    /// The version ("cas unique").
    pub version: u64,
    /// The generation it was stored in: older than the store's means that a `flush_all` has come since.
    pub generation: Generation,
    /// Is marked stale.
    pub stale: bool,
    /// A client has been told that it won.
    pub win_sent: bool,
    /// The bytes.
    pub value: V,
}

impl<V> Record<V> {
    /// The same, with the value as `change` makes it.
    pub fn map<W>(self, change: impl FnOnce(V) -> W) -> Record<W> {
        let Self { flags, expires_unix_s, version, generation, stale, win_sent, value } = self;
        Record { flags, expires_unix_s, version, generation, stale, win_sent, value: change(value) }
    }

    /// Whether clients can have it at `now_unix_s`, while the store's generation is `generation`.
    pub fn is_live(&self, now_unix_s: u64, generation: Generation) -> bool {
        self.generation >= generation && (self.expires_unix_s == 0 || self.expires_unix_s > now_unix_s)
    }
}

impl<V: AsRef<[u8]>> Record<V> {
    /// The same, with the value where it lies.
    pub fn borrowed(&self) -> Record<&[u8]> {
        let Self { flags, expires_unix_s, version, generation, stale, win_sent, value } = self;
        Record {
            flags: *flags,
            expires_unix_s: *expires_unix_s,
            version: *version,
            generation: *generation,
            stale: *stale,
            win_sent: *win_sent,
            value: value.as_ref(),
        }
    }
}

/// Counts the `flush_all`s of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Generation(pub u32);

/// What a store keeps beside the items, as one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StoreState {
    /// Items of earlier generations are gone.
    pub generation: Generation,
    /// When the next generation begins by itself, Unix time in seconds: a `flush_all` that is still to come. 0: never.
    pub flush_at_unix_s: u64,
    /// No item has had a version above this one, to items that are gone included.
    pub versions_reserved: u64,
}

/// The part of all keys that hash to one of 256 values, by the store's hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HashPartition(pub u8);

/// One of the parts that whoever has a store deals its keys out to, by a hash of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part(pub u16);

/// What a read has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The record, dead or alive; `None` if there is none.
    pub record: Option<Record<Arc<[u8]>>>,
    /// It may be otherwise than what was known of it, though nothing was written since: from an owner before, or from a write of unknown outcome. What a
    /// scan that has come by meanwhile has visited may be without it. The first read that serves it says so.
    pub is_news: bool,
}

impl From<Option<Record<Arc<[u8]>>>> for Found {
    /// No news.
    fn from(record: Option<Record<Arc<[u8]>>>) -> Self {
        Self { record, is_news: false }
    }
}

/// What must hold for a write to take place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is nothing under the key; what has expired or belongs to an earlier generation still is.
    Absent,
    /// What is there has this version.
    Version(u64),
}

/// One change of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// Puts a record under a key.
    Put {
        /// The key's bytes.
        key: Box<[u8]>,
        /// What is kept.
        record: Record<Arc<[u8]>>,
        /// Only if this holds.
        condition: Condition,
    },
    /// Removes what is under a key, if anything is.
    Delete {
        /// The key's bytes.
        key: Box<[u8]>,
        /// Only if this holds.
        condition: Condition,
    },
    /// Replaces the state.
    State(StoreState),
}

/// What came of a batch that reached the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// All of it took place, and is as durable as the store was asked to make it.
    All,
    /// Nothing of it did: the condition of the write at this place of the batch did not hold.
    Refused {
        /// From 0.
        at: usize,
    },
}

/// Which records a scan visits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scan {
    /// Those with keys from `from` on and, if it is given, before `to`; in the order of their bytes.
    Range {
        /// The first key there may be.
        from: Vec<u8>,
        /// The first key that is beyond.
        to: Option<Vec<u8>>,
    },
    /// Those whose keys hash to one partition, in the order of their bytes.
    Partition(HashPartition),
    /// Those behind a key, whether that is there or not, in an order of the store's own that is always the same; without a key, all.
    Behind(Option<Box<[u8]>>),
}

impl Scan {
    /// Everything.
    pub const ALL: Self = Self::Range { from: Vec::new(), to: None };
}

/// Called with each record of a scan, dead ones too; breaks to end it.
pub type Visit = Box<dyn FnMut(Key<'_>, &Record<&[u8]>) -> ControlFlow<()> + Send>;

/// Why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StoreError {
    /// It may have happened all the same, or happen yet; what a read that is asked for later finds, stays.
    pub unknown: bool,
    /// What kind of failure it is.
    pub kind: StoreErrorKind,
    /// What the store says, in one line.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub told: Arc<str>,
}

/// Kinds of failures that are treated differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum StoreErrorKind {
    /// It has more to do than it takes on; later it may go.
    Busy,
    /// It takes no writes any more, until it is restarted.
    ReadOnly,
    /// What is there is damaged.
    Damaged,
    /// It cannot be reached, or its device fails.
    Unavailable,
}

impl StoreError {
    /// It did not happen.
    pub fn refused(kind: StoreErrorKind, told: impl Into<Arc<str>>) -> Self {
        Self { unknown: false, kind, told: told.into() }
    }

    /// What who has asked is told of it.
    pub fn failure(&self) -> Failure {
        match self.kind {
            _ if self.unknown => Failure::Unknown,
            StoreErrorKind::Busy => Failure::Busy,
            StoreErrorKind::ReadOnly | StoreErrorKind::Damaged | StoreErrorKind::Unavailable => Failure::Refused,
        }
    }

    /// Nobody can say whether it happened.
    pub fn unknown(kind: StoreErrorKind, told: impl Into<Arc<str>>) -> Self {
        Self { unknown: true, kind, told: told.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)
    }
}

impl std::error::Error for StoreError {}

/// Numbers about a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    /// Its name: rocksdb, memory...
    pub store: &'static str,
    /// Reads that were answered without waiting.
    pub reads_at_once: u64,
    /// Reads that were not.
    pub reads_waited: u64,
    /// Records written or removed.
    pub writes: u64,
    /// Batches these were written in.
    pub write_batches: u64,
    /// Times that what was written was forced to disk.
    pub syncs: u64,
    /// Reads and writes that failed.
    pub failures: u64,
    /// Submitted and not completed.
    pub pending: u64,
    /// Operations a second that it does at most, if there is such a limit.
    pub limit: Option<u64>,
    /// Reads and batches that were not let through at once because of it.
    pub limit_waits: u64,
    /// Why it takes no writes any more, if it does not.
    pub read_only: Option<Arc<str>>,
    /// Bytes on disk, if it knows.
    pub disk_bytes: Option<u64>,
    /// Bytes of memory that it uses, if it knows.
    pub memory_bytes: Option<u64>,
    /// Records there are, about, dead ones included, if it knows.
    pub records: Option<u64>,
}

/// Keeps items where they outlive the process.
pub trait Store: Send + Sync + 'static {
    /// The state that was last written, when it was opened.
    fn state(&self) -> StoreState;

    /// Whether copies of what it has given may be served to those who ask now: not once another may be the owner of what is in it. What
    /// nobody else can change always may. Asked after what is to be answered was asked for.
    fn may_serve(&self) -> bool {
        true
    }

    /// Reads a record if that takes no waiting: `read` is called with it, dead or alive, or with `None` if there is none.
    /// `None` if it would, or if the store has as much to do as it may.
    fn get_now<T>(&self, key: Key<'_>, read: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T>;

    /// Reads a record, dead or alive.
    fn get(&self, key: Key<'_>, done: Done<Found>);

    /// Writes a batch, all of it or nothing; a store on many machines may refuse more than one record. One with a state is on disk when it
    /// counts as written, whatever holds for the others, and is not refused for there being too much to do: who gives it goes by it
    /// already.
    fn write(&self, batch: Vec<Write>, done: Done<Written>);

    /// Forces to disk what was written before.
    fn flush(&self, done: Done<()>);

    /// Fences off what was written before to the keys of these parts: once this is completed nothing counts of what has come late, or may come yet, from
    /// writes of unknown outcome or of an earlier owner. Completed writes from before may cease to count, or not: whoever asks has removed what is there,
    /// and has nothing of these keys under way but removals. A store in which nothing comes late has nothing to do.
    fn fence(&self, parts: Vec<Part>, done: Done<()>);

    /// Visits records as they were at one moment after the call; a store on many machines has no such moment, and no order but its own.
    fn scan(&self, what: Scan, visit: Visit, done: Done<()>);

    /// Makes a copy of everything, as it is at one moment after the call, in a folder that is not there yet.
    fn snapshot(&self, to: PathBuf, done: Done<()>);

    /// Numbers.
    fn stats(&self) -> StoreStats;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_expired_or_was_flushed_is_dead() {
        let record = |expires_unix_s, generation| Record {
            flags: 0,
            expires_unix_s,
            version: 1,
            generation: Generation(generation),
            stale: false,
            win_sent: false,
            value: (),
        };
        let is_live = |expires_unix_s, generation| record(expires_unix_s, generation).is_live(100, Generation(5));
        assert!(is_live(0, 5) && is_live(101, 5) && is_live(0, 6));
        assert!(!is_live(100, 5) && !is_live(99, 5) && !is_live(0, 4));
    }
}
