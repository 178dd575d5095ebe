//! A backend's disk: completes calls when the checker says so, and fails when it says so.
//!
//! Always true: what it said it has it keeps; of what was not completed when the backend dies, the first few have happened.

use std::collections::BTreeMap;
use std::sync::Arc;

use guira_item::store::{Record, StoreError, StoreErrorKind, StoreState, Write, Written};
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
}

/// What is on a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    records: BTreeMap<Box<[u8]>, Record<Arc<[u8]>>>,
    state: StoreState,
    calls: Vec<StoreCall>,
}

/// As far as it tells states apart.
#[derive(Serialize)]
struct Print<'d> {
    records: Vec<(&'d [u8], RecordPrint<'d>)>,
    state: StoreState,
    /// With what they write.
    calls: Vec<CallPrint<'d>>,
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
            StoreCall::Scan(Scan { number, after, .. }) => {
                (after.as_deref().unwrap_or_default(), 5 + number.0, None, None)
            }
        });
        let records = self.records.iter().map(|(key, record)| (&**key, record_print(record)));
        Print { records: records.collect(), state: self.state, calls: calls.collect() }.serialize(to)
    }
}

impl Disk {
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
            Fate::Unknown { .. } => Some(StoreError::unknown(StoreErrorKind::Unavailable, told)),
        };
        let happens = matches!(fate, Fate::Done | Fate::Unknown { done: true });
        match call {
            StoreCall::Read(key) => {
                let found = self.records.get(&key).cloned();
                Happened::Read(key, error.map_or(Ok(found), Err))
            }
            StoreCall::Write(key, write) => {
                if happens {
                    self.write(write);
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
            StoreCall::Flush => Happened::Flushed(error.map_or(Ok(()), Err)),
            StoreCall::State(state) => {
                if happens {
                    self.state = state;
                }
                Happened::StateWritten(error.map_or(Ok(Written::All), Err))
            }
        }
    }

    /// The backend dies when so many of its calls have happened.
    pub(crate) fn crash(&mut self, through: usize) {
        for call in std::mem::take(&mut self.calls).into_iter().take(through) {
            match call {
                StoreCall::Read(_) | StoreCall::Scan(_) | StoreCall::Flush => {}
                StoreCall::Write(_, write) => self.write(write),
                StoreCall::State(state) => self.state = state,
            }
        }
    }

    fn write(&mut self, write: Write) {
        match write {
            Write::Put { key, record, .. } => drop(self.records.insert(key, record)),
            Write::Delete { key, .. } => drop(self.records.remove(&key)),
            Write::State(state) => self.state = state,
        }
    }
}
