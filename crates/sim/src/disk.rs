//! A backend's disk in virtual time: takes a while, fails now and then, and keeps what it said it has when its machine crashes; of the rest,
//! nobody knows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use guira_item::store::{Record, StoreError, StoreErrorKind, StoreState, Write, Written};
use guira_routing::{KeyHash, PartitionId};
use guira_switched::{Scan, Scanned, Scanning, StoreCall, backend::Happened};
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

/// How often a call fails, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    pub(crate) per_mille: u32,
}

/// What is on a disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    records: BTreeMap<Box<[u8]>, Record<Arc<[u8]>>>,
    state: StoreState,
    /// Not completed; reads and writes in their order.
    calls: BTreeMap<u64, StoreCall>,
    next_call: u64,
    /// Another has what was on it: nothing that is asked of it takes place.
    is_lost: bool,
}

impl Disk {
    pub(crate) fn state(&self) -> StoreState {
        self.state
    }

    /// Takes a call; the number under which it completes.
    pub(crate) fn take(&mut self, call: StoreCall) -> u64 {
        self.next_call += 1;
        self.calls.insert(self.next_call, call);
        self.next_call
    }

    /// What is on it is another's from now on: of the writes that were under way the first few have come through, and of none it is known.
    pub(crate) fn lose(&mut self, rng: &mut Xoshiro256PlusPlus) -> Self {
        let calls = self.calls.clone();
        self.crash(rng);
        let (records, state) = (std::mem::take(&mut self.records), self.state);
        (self.calls, self.is_lost) = (calls, true);
        Self { records, state, ..Self::default() }
    }

    /// Completes a call, if it is still there.
    pub(crate) fn complete(
        &mut self,
        number: u64,
        failing: Failing,
        rng: &mut Xoshiro256PlusPlus,
        hash_of: fn(&[u8]) -> KeyHash,
    ) -> Option<Happened<'static>> {
        let call = self.calls.remove(&number)?;
        let told = "the disk of a simulator";
        let fails = rng.random_range(0..1_000) < failing.per_mille || self.is_lost;
        let (is_unknown, happens) = (rng.random_bool(0.5) || self.is_lost, rng.random_bool(0.5) && !self.is_lost);
        let error = fails.then(|| {
            if is_unknown {
                StoreError::unknown(StoreErrorKind::Unavailable, told)
            } else {
                StoreError::refused(StoreErrorKind::Unavailable, told)
            }
        });
        Some(match call {
            StoreCall::Read(key) => {
                let found = self.records.get(&key).cloned();
                Happened::Read(key, error.map_or(Ok(found), Err))
            }
            StoreCall::Write(key, write) => {
                if error.as_ref().is_none_or(|error| error.unknown && happens) {
                    self.write(write);
                }
                Happened::Written(key, error.map_or(Ok(Written::All), Err))
            }
            StoreCall::Scan(scan) => {
                let number = scan.number;
                let found = scanned(&self.records, scan, hash_of);
                Happened::Scanned(number, error.map_or(Ok(found), Err))
            }
            StoreCall::Flush => Happened::Flushed(error.map_or(Ok(()), Err)),
            StoreCall::State(state) => {
                if error.as_ref().is_none_or(|error| error.unknown && happens) {
                    self.state = state;
                }
                Happened::StateWritten(error.map_or(Ok(Written::All), Err))
            }
        })
    }

    /// The machine crashes: of the writes that were under way the first few have come through, and nobody is told.
    pub(crate) fn crash(&mut self, rng: &mut Xoshiro256PlusPlus) {
        let calls = std::mem::take(&mut self.calls);
        let through = rng.random_range(0..=calls.len());
        for call in calls.into_values().take(through) {
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

/// What a scan finds.
fn scanned(records: &BTreeMap<Box<[u8]>, Record<Arc<[u8]>>>, scan: Scan, hash_of: fn(&[u8]) -> KeyHash) -> Scanned {
    let from = scan.from();
    let mut scanning = Scanning::new(scan);
    let records = records.range::<[u8], _>((Bound::Included(&from[..]), Bound::Unbounded));
    for (key, record) in records {
        if !scanning.visit(PartitionId::of(hash_of(key)), key, record.value.len()) {
            break;
        }
    }
    scanning.end()
}
