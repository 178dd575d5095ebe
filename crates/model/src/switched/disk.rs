//! A backend's store: completes calls when the checker says so, and fails when it says so. It is as little as a store may be: a write that is lost sight of
//! may come at any time, also in the backend's next life, until a read or a write of its key is completed, or what came before is fenced off.
//!
//! Always true: what it said it has it keeps; of what was not completed when the backend dies, the first few have happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guira_item::store::{Found, Record, StoreError, StoreErrorKind, StoreState, Write, Written};
use guira_routing::{KeyHash, PartitionId};
use guira_switched::{Scan, Scanning, StoreCall, backend::Happened};
use serde::Serialize;

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is done.
    Done,
    /// It is not, and that is said.
    Refused,
    /// It is, or not, and nobody says so.
    Unknown {
        /// Whether it is.
        done: bool,
    },
    /// It may be at any time, and nobody says so: of a write.
    Late,
}

/// What is on a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    records: BTreeMap<Box<[u8]>, Record<Arc<[u8]>>>,
    state: StoreState,
    calls: Vec<StoreCall>,
    /// Nothing counts after a fence that was there before: what comes late is void. Where nothing does, a fence has nothing to do.
    fence_voids: bool,
    /// What may come yet, one write of a key at most.
    late: BTreeMap<Box<[u8]>, Write>,
    /// Keys of which a write was lost sight of, and that nobody has read or written since.
    unread: BTreeSet<Box<[u8]>>,
}

/// As far as it tells states apart.
#[derive(Serialize)]
struct Print<'d> {
    records: Vec<(&'d [u8], RecordPrint<'d>)>,
    state: StoreState,
    /// With what they write.
    calls: Vec<CallPrint<'d>>,
    late: Vec<(&'d [u8], Option<RecordPrint<'d>>)>,
    unread: &'d BTreeSet<Box<[u8]>>,
}

type RecordPrint<'d> = (u64, u32, &'d [u8]);
/// A scan's number comes with the key behind which it begins.
type CallPrint<'d> = (&'d [u8], u64, Option<RecordPrint<'d>>, Option<StoreState>);

fn record_print(record: &Record<Arc<[u8]>>) -> RecordPrint<'_> {
    (record.version, record.generation.0, &record.value)
}

impl Serialize for Disk {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let calls = self.calls.iter().map(|call| match call {
            StoreCall::Read(key) => (&**key, 0, None, None),
            StoreCall::Write(key, Write::Put { record, .. }) => (&**key, 1, Some(record_print(record)), None),
            StoreCall::Write(key, Write::Delete { .. }) => (&**key, 2, None, None),
            StoreCall::Write(_, Write::State(state)) | StoreCall::State(state) => (&[][..], 3, None, Some(*state)),
            StoreCall::Flush => (&[][..], 4, None, None),
            StoreCall::Fence(_) => (&[][..], 5, None, None),
            StoreCall::Scan(Scan { number, after, .. }) => {
                (after.as_deref().unwrap_or_default(), 6 + number.0, None, None)
            }
        });
        let records = self.records.iter().map(|(key, record)| (&**key, record_print(record)));
        let late = self.late.iter().map(|(key, write)| match write {
            Write::Put { record, .. } => (&**key, Some(record_print(record))),
            Write::Delete { .. } | Write::State(_) => (&**key, None),
        });
        let (records, calls, late) = (records.collect(), calls.collect(), late.collect());
        Print { records, state: self.state, calls, late, unread: &self.unread }.serialize(to)
    }
}

impl Disk {
    /// One in which writes may come late, or not: then a fence has nothing to do.
    pub(crate) fn new(may_be_late: bool) -> Self {
        Self { fence_voids: may_be_late, ..Self::default() }
    }

    pub(crate) fn state(&self) -> StoreState {
        self.state
    }

    pub(crate) fn take(&mut self, calls: impl IntoIterator<Item = StoreCall>) {
        self.calls.extend(calls);
    }

    pub(crate) fn calls(&self) -> &[StoreCall] {
        &self.calls
    }

    /// Completes a call.
    pub(crate) fn complete(&mut self, at: usize, fate: Fate, hash_of: fn(&[u8]) -> KeyHash) -> Happened<'static> {
        let call = self.calls.remove(at);
        let told = "the disk of a model";
        let error = match fate {
            Fate::Done => None,
            Fate::Refused => Some(StoreError::refused(StoreErrorKind::Unavailable, told)),
            Fate::Unknown { .. } | Fate::Late => Some(StoreError::unknown(StoreErrorKind::Unavailable, told)),
        };
        let happens = matches!(fate, Fate::Done | Fate::Unknown { done: true });
        match call {
            StoreCall::Read(key) => {
                let found = error.map_or_else(|| Ok(self.read(&key)), Err);
                Happened::Read(key, found)
            }
            StoreCall::Write(key, write) => {
                if happens {
                    self.write(write);
                } else if fate == Fate::Late {
                    self.lose(&key, write);
                }
                Happened::Written(key, error.map_or(Ok(Written::All), Err))
            }
            StoreCall::Scan(scan) => {
                let (number, from) = (scan.number, scan.from());
                let mut scanning = Scanning::new(scan);
                for (key, record) in self.records.range(Box::from(from)..) {
                    if !scanning.visit(PartitionId::of(hash_of(key)), key, record.value.len()) {
                        break;
                    }
                }
                Happened::Scanned(number, error.map_or(Ok(scanning.end()), Err))
            }
            StoreCall::Fence(partitions) => {
                if happens && self.fence_voids {
                    let is_outside = |key: &[u8]| !partitions.contains(&PartitionId::of(hash_of(key)));
                    self.records.retain(|key, _| is_outside(key));
                    self.late.retain(|key, _| is_outside(key));
                }
                Happened::Fenced(error.map_or(Ok(()), Err))
            }
            StoreCall::Flush => Happened::Flushed(error.map_or(Ok(()), Err)),
            StoreCall::State(state) => {
                if happens {
                    self.state = state;
                }
                Happened::StateWritten(error.map_or(Ok(Written::All), Err))
            }
        }
    }

    /// The backend dies when so many of its calls have happened; whether the next one, a write, is lost sight of.
    pub(crate) fn crash(&mut self, through: usize, is_next_late: bool) {
        let mut calls = std::mem::take(&mut self.calls).into_iter();
        for call in calls.by_ref().take(through) {
            match call {
                StoreCall::Read(_) | StoreCall::Scan(_) | StoreCall::Fence(_) | StoreCall::Flush => {}
                StoreCall::Write(_, write) => self.write(write),
                StoreCall::State(state) => self.state = state,
            }
        }
        if let Some(StoreCall::Write(key, write)) = calls.next().filter(|_| is_next_late) {
            self.lose(&key, write);
        }
    }

    /// Whether a call may be lost sight of.
    pub(crate) fn may_be_late(&self, at: usize) -> bool {
        matches!(&self.calls.get(at), Some(StoreCall::Write(key, _)) if !self.late.contains_key(key))
    }

    /// Writes that may come yet.
    pub(crate) fn late(&self) -> usize {
        self.late.len()
    }

    /// One of them comes.
    pub(crate) fn come(&mut self, at: usize) {
        let key = self.late.keys().nth(at).expect("it is on its way").clone();
        if let Some(write) = self.late.remove(&key) {
            self.put(write);
        }
    }

    /// What is there stays from now on.
    fn read(&mut self, key: &[u8]) -> Found {
        self.late.remove(key);
        Found { record: self.records.get(key).cloned(), is_news: self.unread.remove(key) }
    }

    fn lose(&mut self, key: &[u8], write: Write) {
        self.late.insert(key.into(), write);
        self.unread.insert(key.into());
    }

    fn write(&mut self, write: Write) {
        if let Write::Put { key, .. } | Write::Delete { key, .. } = &write {
            self.late.remove(key);
            self.unread.remove(key);
        }
        self.put(write);
    }

    fn put(&mut self, write: Write) {
        match write {
            Write::Put { key, record, .. } => drop(self.records.insert(key, record)),
            Write::Delete { key, .. } => drop(self.records.remove(&key)),
            Write::State(state) => self.state = state,
        }
    }
}
