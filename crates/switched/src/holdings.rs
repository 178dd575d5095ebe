//! What a backend has, and what its store has done since it was opened, as gateways are told of it.
//!
//! Always true: these are numbers for people; no answer depends on them.

use guira_item::store::StoreStats;
use serde::{Deserialize, Serialize};

/// How a backend's store is, or how those of several are together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Holdings {
    /// Records there are, about, dead ones included, if the store knows.
    pub records: Option<u64>,
    /// Bytes on disk, if it knows.
    pub disk_bytes: Option<u64>,
    /// Bytes of memory that it uses, if it knows.
    pub memory_bytes: Option<u64>,
    /// Submitted and not completed.
    pub pending: u64,
    /// Operations a second that it does at most, if there is such a limit: of several, if each has one.
    pub limit: Option<u64>,
    /// Stores that take no writes any more.
    pub read_only: u64,
    /// What it has done since it was opened.
    pub done: Done,
}

/// What stores have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {
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
    /// Reads and batches that were not let through at once because of a limit.
    pub limit_waits: u64,
}

impl From<&StoreStats> for Holdings {
    fn from(stats: &StoreStats) -> Self {
        Self {
            records: stats.records,
            disk_bytes: stats.disk_bytes,
            memory_bytes: stats.memory_bytes,
            pending: stats.pending,
            limit: stats.limit,
            read_only: stats.read_only.is_some().into(),
            done: Done {
                reads_at_once: stats.reads_at_once,
                reads_waited: stats.reads_waited,
                writes: stats.writes,
                write_batches: stats.write_batches,
                syncs: stats.syncs,
                failures: stats.failures,
                limit_waits: stats.limit_waits,
            },
        }
    }
}

/// As one store's, of a cluster.
impl From<Holdings> for StoreStats {
    fn from(holdings: Holdings) -> Self {
        let Holdings { records, disk_bytes, memory_bytes, pending, limit, read_only, done } = holdings;
        Self {
            store: "cluster",
            reads_at_once: done.reads_at_once,
            reads_waited: done.reads_waited,
            writes: done.writes,
            write_batches: done.write_batches,
            syncs: done.syncs,
            failures: done.failures,
            pending,
            limit,
            limit_waits: done.limit_waits,
            read_only: (read_only > 0).then(|| format!("{read_only} backends take no writes").into()),
            disk_bytes,
            memory_bytes,
            records,
        }
    }
}

impl Holdings {
    /// With those of another. What is not known of one is left out of the sum, not the sum; without a limit for one there is none. A backend says what
    /// it likes, so nothing overflows.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let known = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
        Self {
            records: known(self.records, other.records),
            disk_bytes: known(self.disk_bytes, other.disk_bytes),
            memory_bytes: known(self.memory_bytes, other.memory_bytes),
            pending: self.pending.saturating_add(other.pending),
            limit: self.limit.zip(other.limit).map(|(a, b)| a.saturating_add(b)),
            read_only: self.read_only.saturating_add(other.read_only),
            done: self.done.and(&other.done),
        }
    }
}

impl Done {
    /// With what others have done.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// What was done since it stood at `before`; all of it, where it is less: it was opened again.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.each(before, |now, before| now.checked_sub(before).unwrap_or(now))
    }

    fn each(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            reads_at_once: of(self.reads_at_once, other.reads_at_once),
            reads_waited: of(self.reads_waited, other.reads_waited),
            writes: of(self.writes, other.writes),
            write_batches: of(self.write_batches, other.write_batches),
            syncs: of(self.syncs, other.syncs),
            failures: of(self.failures, other.failures),
            limit_waits: of(self.limit_waits, other.limit_waits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_of_what_is_known_and_never_overflows() {
        let of_writes = |writes| Done { writes, ..Done::default() };
        let first = Holdings { records: Some(3), limit: Some(5), done: of_writes(u64::MAX), ..Holdings::default() };
        let second = Holdings { disk_bytes: Some(9), done: of_writes(2), read_only: 1, ..Holdings::default() };
        let third = Holdings { records: Some(4), limit: Some(6), read_only: 1, ..Holdings::default() };
        let sum = first.and(&second).and(&third);
        let expected = Holdings {
            records: Some(7),
            disk_bytes: Some(9),
            read_only: 2,
            done: of_writes(u64::MAX),
            ..Holdings::default()
        };
        assert_eq!(sum, expected);
        assert_eq!(first.and(&third).limit, Some(11));
    }

    #[test]
    fn what_was_opened_again_has_done_all_since() {
        let done = |writes, syncs| Done { writes, syncs, ..Done::default() };
        assert_eq!(done(7, 5).since(&done(4, 5)), done(3, 0));
        assert_eq!(done(2, 6).since(&done(4, 5)), done(2, 1));
    }
}
