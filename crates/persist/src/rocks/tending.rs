//! What a store does beside reading and writing: scans, snapshots, throwing away what is dead, and the end.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    ffi::CStr,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use guira_item::store::{Generation, Scan, StoreError, StoreErrorKind, Visit};
use rocksdb::{
    CompactionDecision, DBRawIterator, ReadOptions,
    checkpoint::Checkpoint,
    compaction_filter::CompactionFilter,
    compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory},
};

use super::{
    Chore, Inside, UnixNow,
    backup::note_when,
    keys::{PARTITIONS, key_in},
    not_a_record, one_line, read_failure,
    under_way::UnderWay,
};
use crate::record;

impl Inside {
    pub(super) fn run_chores(&self) {
        let mut next = Vec::with_capacity(1);
        while self.chores.take(1, &mut next) {
            match next.pop() {
                Some(Chore::Flush(done)) => self.complete(done, self.sync()),
                Some(Chore::Scan(what, visit, done)) => self.complete(done, self.scan(&what, visit)),
                Some(Chore::Snapshot(to, done)) => self.complete(done, self.snapshot(&to)),
                None => {}
            }
        }
    }

    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        let failure = |kind, told: &str| StoreError::refused(kind, format!("no copy in {}: {told}", to.display()));
        if let Some(told) = self.read_only.get() {
            // RocksDB would leave out what is only in the log, and say nothing.
            return Err(failure(StoreErrorKind::ReadOnly, told));
        }
        let unavailable = |told: &str| failure(StoreErrorKind::Unavailable, told);
        let under_way = UnderWay::begin(to).map_err(|error| unavailable(&error.to_string()))?;
        let copy = under_way.folder();
        let made = Checkpoint::new(&self.db).and_then(|checkpoint| checkpoint.create_checkpoint(&copy));
        made.map_err(|error| unavailable(&one_line(&error)))?;
        let named = note_when(&copy, (self.unix_now)()).and_then(|()| under_way.finish(self.db.path()));
        named.map_err(|error| unavailable(&error.to_string()))
    }

    /// Visits records. All iterators look at one snapshot.
    fn scan(&self, what: &Scan, mut visit: Visit) -> Result<(), StoreError> {
        let snapshot = self.db.snapshot();
        let from = |partition: u8, from: &[u8], to: Option<&[u8]>| {
            let mut options = ReadOptions::default();
            options.set_snapshot(&snapshot);
            // What is read once by a scan is not what clients will ask for.
            options.fill_cache(false);
            // Bounds may be longer than keys.
            let bound = |key: &[u8]| [&[partition], key].concat();
            let upper = match (to, partition.checked_add(1)) {
                (Some(to), _) => Some(bound(to)),
                (None, Some(next)) => Some(vec![next]),
                // The last partition ends where everything does.
                (None, None) => None,
            };
            if let Some(upper) = upper {
                options.set_iterate_upper_bound(upper);
            }
            let mut iterator = self.db.raw_iterator_opt(options);
            iterator.seek(bound(from));
            iterator
        };
        match what {
            Scan::Behind(after) => {
                // The first key behind another is longer by a byte of zero.
                let from = after.iter().flat_map(|after| after.iter().copied().chain([0])).collect();
                return self.scan(&Scan::Range { from, to: None }, visit);
            }
            Scan::Partition(partition) => {
                let mut iterator = from(partition.0, &[], None);
                while show(&iterator, &mut visit)?.is_some_and(|flow| flow.is_continue()) {
                    iterator.next();
                }
            }
            Scan::Range { from: first, to } => {
                // All partitions, merged by key.
                let mut iterators: Vec<_> =
                    (0..PARTITIONS).map(|partition| from(partition as u8, first, to.as_deref())).collect();
                let key_at =
                    |iterator: &DBRawIterator<'_>| iterator.key().and_then(key_in).map(|key| key.as_bytes().to_vec());
                let mut heads: BinaryHeap<_> = iterators
                    .iter()
                    .enumerate()
                    .filter_map(|(at, iterator)| Some(Reverse((key_at(iterator)?, at))))
                    .collect();
                while let Some(Reverse((_, at))) = heads.pop() {
                    if !show(&iterators[at], &mut visit)?.is_some_and(|flow| flow.is_continue()) {
                        return Ok(());
                    }
                    iterators[at].next();
                    heads.extend(key_at(&iterators[at]).map(|key| Reverse((key, at))));
                }
                // One that has ended may have failed, or stand at what is no key.
                for iterator in &iterators {
                    iterator.status().map_err(|error| read_failure(&error))?;
                    if iterator.valid() {
                        return Err(not_a_record());
                    }
                }
            }
        }
        Ok(())
    }

    /// What is left to be done before RocksDB closes.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        // What could not be written has been told.
        let synced = if self.read_only.get().is_none() { self.sync() } else { Ok(()) };
        self.db.cancel_all_background_work(true);
        synced
    }
}

/// Shows the record that an iterator stands at; `None` at the end.
fn show(iterator: &DBRawIterator<'_>, visit: &mut Visit) -> Result<Option<ControlFlow<()>>, StoreError> {
    let Some((key, value)) = iterator.item() else {
        return iterator.status().map(|()| None).map_err(|error| read_failure(&error));
    };
    match (key_in(key), record::decode(value)) {
        (Some(key), Some(record)) => Ok(Some(visit(key, &record))),
        _ => Err(not_a_record()),
    }
}

/// Throws away what is dead when files are merged.
pub(super) struct Undertaker {
    pub(super) unix_now: UnixNow,
    pub(super) generation: Arc<AtomicU32>,
}

/// One merge's.
pub(super) struct Burial {
    now_unix_s: u64,
    generation: Generation,
}

const NAME: &CStr = c"guira-dead-items";

impl CompactionFilterFactory for Undertaker {
    type Filter = Burial;

    fn create(&mut self, _: CompactionFilterContext) -> Burial {
        Burial { now_unix_s: (self.unix_now)(), generation: Generation(self.generation.load(Relaxed)) }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

impl CompactionFilter for Burial {
    fn filter(&mut self, _: u32, _: &[u8], value: &[u8]) -> CompactionDecision {
        match record::decode(value) {
            Some(record) if !record.is_live(self.now_unix_s, self.generation) => CompactionDecision::Remove,
            // What cannot be read is not thrown away.
            _ => CompactionDecision::Keep,
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}
