//! The writer: one thread through which all writes go, so that those that wait together are written and synced together.
//!
//! Always true: batches take effect in the order in which they came; each is in one RocksDB batch as a whole; with `always` a batch
//! counts as written when the sync that covers it has returned.

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use guira_item::{
    Key,
    store::{Condition, Done, StoreError, StoreErrorKind, Write, Written},
};
use rocksdb::{ColumnFamily, WriteBatch, WriteOptions};

use super::{Inside, keys::StoredKey, not_a_record, read_failure, state};
use crate::{durability::Durability, record};

/// Bytes from which on a RocksDB batch is written though more is waiting: it is kept in memory twice meanwhile.
pub const BATCH_LEN_MAX_BYTES: usize = 4 << 20;

/// Batches taken from the queue at once; as many as there are clients that wait, and more.
const TAKEN_MAX: usize = 4_096;

/// A batch that waits.
pub(super) struct Submission {
    pub(super) batch: Vec<Write>,
    pub(super) done: Done<Written>,
}

/// What is written together.
#[derive(Default)]
struct Group {
    batch: WriteBatch,
    records: u64,
    waiting: Vec<Done<Written>>,
    /// The last state among it.
    generation: Option<u32>,
    value: Vec<u8>,
}

impl Inside {
    pub(super) fn run_writer(&self) {
        let mut options = WriteOptions::default();
        options.set_sync(self.durability == Durability::Always);
        let mut taken = Vec::new();
        let mut group = Group::default();
        while self.writes.take(TAKEN_MAX, &mut taken) {
            for Submission { batch, done } in taken.drain(..) {
                if let Some(told) = self.read_only.get() {
                    self.complete(done, Err(StoreError::refused(StoreErrorKind::ReadOnly, Arc::clone(told))));
                    continue;
                }
                if batch.iter().any(is_conditional) {
                    // What came before must be there to be looked at.
                    self.write_group(&mut group, &options);
                    match self.first_refused(&batch) {
                        Ok(None) => {}
                        Ok(Some(at)) => {
                            self.complete(done, Ok(Written::Refused { at }));
                            continue;
                        }
                        Err(error) => {
                            self.complete(done, Err(error));
                            continue;
                        }
                    }
                }
                group.add(self.db.cf_handle(state::FAMILY), batch, done);
                if group.batch.size_in_bytes() >= BATCH_LEN_MAX_BYTES {
                    self.write_group(&mut group, &options);
                }
            }
            self.write_group(&mut group, &options);
        }
    }

    fn write_group(&self, group: &mut Group, options: &WriteOptions) {
        let Group { batch, records, waiting, generation, .. } = std::mem::take(group);
        if waiting.is_empty() {
            return;
        }
        // What a state says is gone by already: versions up to the one that it reserves.
        let is_synced = self.durability == Durability::Always || generation.is_some();
        let mut state_options = WriteOptions::default();
        state_options.set_sync(true);
        let options = if generation.is_some() { &state_options } else { options };
        let written = match self.read_only.get() {
            // Something has failed since these were taken.
            Some(told) => Err(StoreError::refused(StoreErrorKind::ReadOnly, Arc::clone(told))),
            None => self.db.write_opt(batch, options).map_err(|error| self.stop_writing("a write failed", &error)),
        };
        if written.is_ok() {
            self.counters.writes.fetch_add(records, Relaxed);
            self.counters.write_batches.fetch_add(1, Relaxed);
            self.counters.syncs.fetch_add(u64::from(is_synced), Relaxed);
            if let Some(generation) = generation {
                // Only now may a compaction throw away what it has made dead.
                self.generation.store(generation, Relaxed);
            }
        }
        for done in waiting {
            self.complete(done, written.clone().map(|()| Written::All));
        }
    }

    /// The first write of a batch whose condition does not hold.
    fn first_refused(&self, batch: &[Write]) -> Result<Option<usize>, StoreError> {
        for (at, write) in batch.iter().enumerate() {
            let (Write::Put { key, condition, .. } | Write::Delete { key, condition }) = write else { continue };
            if *condition == Condition::Always {
                continue;
            }
            let found = self.db.get_pinned(stored(key).as_bytes()).map_err(|error| read_failure(&error))?;
            let found = found.as_deref().map(|bytes| record::decode(bytes).ok_or_else(not_a_record)).transpose()?;
            let live = found.filter(|record| record.is_live((self.unix_now)(), self.generation()));
            let holds = match condition {
                Condition::Always => true,
                Condition::Absent => live.is_none(),
                Condition::Version(version) => live.is_some_and(|record| record.version == *version),
            };
            if !holds {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Forces to disk what was written, every so often, until the store is dropped.
    pub(super) fn run_syncer(&self, every: Duration) {
        let mut synced_batches = 0;
        while !self.writes.is_closed() {
            std::thread::park_timeout(every);
            let batches = self.counters.write_batches.load(Relaxed);
            if batches != synced_batches && self.sync().is_ok() {
                synced_batches = batches;
            }
        }
    }

    /// Forces to disk what was written.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        if let Some(told) = self.read_only.get() {
            return Err(StoreError::refused(StoreErrorKind::ReadOnly, Arc::clone(told)));
        }
        self.db.flush_wal(true).map_err(|error| self.stop_writing("a sync failed", &error))?;
        self.counters.syncs.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl Group {
    fn add(&mut self, states: Option<&ColumnFamily>, batch: Vec<Write>, done: Done<Written>) {
        for write in batch {
            match write {
                Write::Put { key, record, .. } => {
                    self.value.clear();
                    record::encode(&record.borrowed(), &mut self.value);
                    self.batch.put(stored(&key).as_bytes(), &self.value);
                    self.records += 1;
                }
                Write::Delete { key, .. } => {
                    self.batch.delete(stored(&key).as_bytes());
                    self.records += 1;
                }
                Write::State(state) => {
                    let states = states.expect("a store is opened with its state's family");
                    self.batch.put_cf(states, state::KEY, state::encode(&state));
                    self.generation = Some(state.generation.0);
                }
            }
        }
        self.waiting.push(done);
    }
}

fn stored(key: &[u8]) -> StoredKey {
    StoredKey::of(Key::new(key).expect("whoever writes has a key"))
}

fn is_conditional(write: &Write) -> bool {
    match write {
        Write::Put { condition, .. } | Write::Delete { condition, .. } => *condition != Condition::Always,
        Write::State(_) => false,
    }
}
