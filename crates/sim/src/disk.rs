//! A backend's store in virtual time: takes a while, and fails now and then. It is on a disk of its own, or in a database that others may have after it
//! (`table`).
//!
//! Always true: calls are completed in their order; what a disk said it has it keeps when its machine crashes, and of the rest the first few writes have
//! come through.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use guira_item::store::{Record, StoreError, StoreErrorKind, StoreState, Write, Written};
use guira_routing::{KeyHash, PartitionId};
use guira_switched::{Scan, Scanned, Scanning, StoreCall, backend::Happened};
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use crate::table::{TableCounts, Tenant};

/// How often a call fails, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    pub(crate) per_mille: u32,
}

/// A store.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    medium: Medium,
    /// Not completed; reads and writes in their order.
    calls: BTreeMap<u64, StoreCall>,
    next_call: u64,
}

#[derive(Debug)]
enum Medium {
    Own(Own),
    /// In a database.
    Shared(Tenant),
}

impl Default for Medium {
    fn default() -> Self {
        Self::Own(Own::default())
    }
}

/// What is on a disk.
#[derive(Debug, Default)]
struct Own {
    records: BTreeMap<Box<[u8]>, Record<Arc<[u8]>>>,
    state: StoreState,
}

pub(crate) const TOLD: &str = "the disk of a simulator";

impl Disk {
    /// One in a database that nobody has had.
    pub(crate) fn shared() -> Self {
        Self::of(Medium::Shared(Tenant::default()))
    }

    /// Another one before the same database.
    ///
    /// # Panics
    /// It is on a disk.
    pub(crate) fn another(&self) -> Self {
        match &self.medium {
            Medium::Shared(tenant) => Self::of(Medium::Shared(tenant.another())),
            Medium::Own(_) => panic!("what is on a disk is there only"),
        }
    }

    fn of(medium: Medium) -> Self {
        Self { medium, calls: BTreeMap::new(), next_call: 0 }
    }

    /// Its owner begins: what is on it as its state.
    pub(crate) fn open(&mut self) -> StoreState {
        match &mut self.medium {
            Medium::Own(own) => own.state,
            Medium::Shared(tenant) => tenant.open(),
        }
    }

    /// Takes a call; the number under which it completes.
    pub(crate) fn take(&mut self, call: StoreCall) -> u64 {
        self.next_call += 1;
        self.calls.insert(self.next_call, call);
        self.next_call
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
        Some(match &mut self.medium {
            Medium::Own(own) => own.complete(call, failing, rng, hash_of),
            Medium::Shared(tenant) => tenant.complete(call, failing, rng, hash_of),
        })
    }

    /// The keys of all that is on it; of a database, none.
    pub(crate) fn own_keys(&self) -> impl Iterator<Item = &[u8]> {
        let own = if let Medium::Own(own) = &self.medium { Some(own) } else { None };
        own.into_iter().flat_map(|own| own.records.keys().map(|key| &**key))
    }

    /// What a database has counted since this was last asked.
    pub(crate) fn take_counts(&self) -> TableCounts {
        match &self.medium {
            Medium::Own(_) => TableCounts::default(),
            Medium::Shared(tenant) => tenant.take_counts(),
        }
    }

    /// The machine crashes, and nobody is told what came of what was under way.
    pub(crate) fn crash(&mut self, rng: &mut Xoshiro256PlusPlus, hash_of: fn(&[u8]) -> KeyHash) {
        let calls = std::mem::take(&mut self.calls).into_values();
        match &mut self.medium {
            Medium::Own(own) => own.crash(calls, rng),
            Medium::Shared(tenant) => tenant.crash(calls, rng, hash_of),
        }
    }
}

/// Why a call fails, if it does, and whether what it asks for happens.
pub(crate) fn fate(failing: Failing, rng: &mut Xoshiro256PlusPlus) -> (Option<StoreError>, bool) {
    let fails = rng.random_range(0..1_000) < failing.per_mille;
    let (is_unknown, happens) = (rng.random_bool(0.5), rng.random_bool(0.5));
    let error = fails.then(|| {
        if is_unknown {
            StoreError::unknown(StoreErrorKind::Unavailable, TOLD)
        } else {
            StoreError::refused(StoreErrorKind::Unavailable, TOLD)
        }
    });
    (error, !fails || is_unknown && happens)
}

impl Own {
    fn complete(
        &mut self,
        call: StoreCall,
        failing: Failing,
        rng: &mut Xoshiro256PlusPlus,
        hash_of: fn(&[u8]) -> KeyHash,
    ) -> Happened<'static> {
        let (error, happens) = fate(failing, rng);
        match call {
            StoreCall::Read(key) => {
                let found = self.records.get(&key).cloned();
                Happened::Read(key, error.map_or(Ok(found.into()), Err))
            }
            StoreCall::Write(key, write) => {
                if happens {
                    self.write(write);
                }
                Happened::Written(key, error.map_or(Ok(Written::All), Err))
            }
            StoreCall::Scan(scan) => {
                let number = scan.number;
                let from = scan.from();
                let records = self.records.range::<[u8], _>((Bound::Included(&from[..]), Bound::Unbounded));
                let found = scanned(records.map(|(key, record)| (&**key, record)), scan, hash_of);
                Happened::Scanned(number, error.map_or(Ok(found), Err))
            }
            StoreCall::Fence(_) => Happened::Fenced(error.map_or(Ok(()), Err)),
            StoreCall::Flush => Happened::Flushed(error.map_or(Ok(()), Err)),
            StoreCall::State(state) => {
                if happens {
                    self.state = state;
                }
                Happened::StateWritten(error.map_or(Ok(Written::All), Err))
            }
        }
    }

    /// Of the writes that were under way the first few have come through.
    fn crash(&mut self, calls: impl ExactSizeIterator<Item = StoreCall>, rng: &mut Xoshiro256PlusPlus) {
        let through = rng.random_range(0..=calls.len());
        for call in calls.take(through) {
            match call {
                StoreCall::Read(_) | StoreCall::Scan(_) | StoreCall::Fence(_) | StoreCall::Flush => {}
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

/// What a scan finds of records in their order.
pub(crate) fn scanned<'r>(
    records: impl Iterator<Item = (&'r [u8], &'r Record<Arc<[u8]>>)>,
    scan: Scan,
    hash_of: fn(&[u8]) -> KeyHash,
) -> Scanned {
    let mut scanning = Scanning::new(scan);
    for (key, record) in records {
        if !scanning.visit(PartitionId::of(hash_of(key)), key, record.value.len()) {
            break;
        }
    }
    scanning.end()
}
