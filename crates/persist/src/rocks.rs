//! A store on one machine: RocksDB, with threads of its own so that nobody else waits for a disk.
//!
//! ```text
//! get_now -> memtables, block cache and what the system has in memory of the files, on the caller's thread
//! get     -> queue -> readers
//! write   -> queue -> writer: all that is there becomes one RocksDB batch, written and (with `always`) synced once
//! scan, snapshot, flush -> queue -> chores, one after the other
//!                             syncer: with `interval`, every so often
//! ```
//! Always true: what is written reaches RocksDB in the order of the queue; after a write or a sync has failed nothing is written any
//! more until the store is opened again, since nobody knows what is on disk then; all threads have ended when the store is dropped,
//! and what they had been asked for has been completed.

mod backup;
mod keys;
mod log_tail;
mod open;
mod state;
mod stopped;
mod tending;
mod under_way;
mod writer;

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use guira_item::{
    Key,
    store::{
        Done, Found, Generation, Part, Record, Scan, Store, StoreError, StoreErrorKind, StoreState, StoreStats, Visit,
        Write, Written,
    },
};
use guira_nowait::NO_WAIT_US;
use rocksdb::{DB, ErrorKind, ReadOptions, ReadTier};
use rustix::process::{Resource, getrlimit};

use crate::{durability::Durability, queue::Queue, record};

pub use crate::UnixNow;

pub use backup::{BackupError, Restored, Step, back_up, restore};
pub use open::{DESCRIPTORS_MAX, DESCRIPTORS_MIN, OpenError};
pub use stopped::{DEFECTS_TOLD_MAX, Extent, Findings, StoppedStore};
pub use under_way::{bytes_under_way, folder_bytes};
pub use writer::BATCH_LEN_MAX_BYTES;

/// Batches and reads that may wait: more than all clients of a large server have on the way, and some ten megabytes of entries.
/// What their values take is bounded where they come from.
const QUEUE_LEN_MAX: usize = 1 << 17;

/// Scans and snapshots that may wait.
const CHORES_LEN_MAX: usize = 64;

/// Reads that a reader takes at once: so few that all readers have something to do.
const READS_AT_ONCE: usize = 1;

/// How a store is opened.
#[derive(Clone)]
pub struct RocksOptions {
    /// When a write counts as done.
    pub durability: Durability,
    /// Bytes of memory for blocks that were read, indexes and filters.
    pub cache_bytes: usize,
    /// Bytes of memory for what was written and is not yet in a file that can be searched.
    pub write_buffer_bytes: usize,
    /// Threads that read from disk.
    pub readers: usize,
    /// Descriptors that it may have open. With enough of them for all its files it has them all open, and reads at once what the system
    /// has in memory of them ([`RocksStore::reads_at_once`]).
    pub descriptors: u64,
    /// What time it is; expired items are thrown away by it.
    pub unix_now: UnixNow,
}

impl RocksOptions {
    /// What suits a server with `memory_bytes` for the store.
    pub fn with_memory(memory_bytes: usize, durability: Durability, unix_now: UnixNow) -> Self {
        // Memtables hold what comes in while another is being written: a quarter, and not more than helps.
        let write_buffer_bytes = (memory_bytes / 4).min(256 << 20);
        let cache_bytes = memory_bytes - write_buffer_bytes;
        // Half of what this process may: it has other things to do.
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
        Self { durability, cache_bytes, write_buffer_bytes, readers: READERS, descriptors, unix_now }
    }
}

/// Reads on their way up to which who may not wait has another one begun by the system: fewer than a device has places for, so that to begin one
/// is not to wait for a place.
const READS_BEGUN_MAX: u64 = 32;

/// As many reads as a flash device carries out at a time without making each slower.
const READERS: usize = 8;

impl fmt::Debug for RocksOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { durability, cache_bytes, write_buffer_bytes, readers, descriptors, unix_now: _ } = self;
        f.debug_struct("RocksOptions")
            .field("durability", durability)
            .field("cache_bytes", cache_bytes)
            .field("write_buffer_bytes", write_buffer_bytes)
            .field("readers", readers)
            .field("descriptors", descriptors)
            .finish_non_exhaustive()
    }
}

/// A read that waits for a reader.
struct Read {
    key: Box<[u8]>,
    done: Done<Found>,
}

/// What is done beside reading and writing.
enum Chore {
    Flush(Done<()>),
    Scan(Scan, Visit, Done<()>),
    Snapshot(PathBuf, Done<()>),
}

/// What all threads of a store share.
struct Inside {
    db: DB,
    durability: Durability,
    unix_now: UnixNow,
    /// That of the state that was last written.
    generation: Arc<AtomicU32>,
    reads: Queue<Read>,
    writes: Queue<writer::Submission>,
    chores: Queue<Chore>,
    /// Why nothing is written any more.
    read_only: OnceLock<Arc<str>>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    reads_at_once: AtomicU64,
    reads_waited: AtomicU64,
    /// Of those that waited.
    reads_done: AtomicU64,
    writes: AtomicU64,
    write_batches: AtomicU64,
    syncs: AtomicU64,
    failures: AtomicU64,
    pending: AtomicU64,
}

impl Inside {
    fn generation(&self) -> Generation {
        Generation(self.generation.load(Relaxed))
    }

    /// Nothing is written any more; returns why, which is what went wrong first.
    fn stop_writing(&self, what: &str, error: &rocksdb::Error) -> StoreError {
        let told = format!("{what} ({}): no writes until the store is restarted", one_line(error));
        let told = Arc::clone(self.read_only.get_or_init(|| told.into()));
        tracing::error!("{told}");
        StoreError::unknown(StoreErrorKind::ReadOnly, told)
    }

    fn read(&self, key: &[u8], options: &ReadOptions) -> Result<Option<Record<Arc<[u8]>>>, StoreError> {
        match self.db.get_pinned_opt(key, options) {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => record::decode(&bytes).map(|found| Some(found.map(Arc::from))).ok_or_else(not_a_record),
            Err(error) => Err(read_failure(&error)),
        }
    }

    fn run_readers(&self) {
        let mut some = Vec::with_capacity(READS_AT_ONCE);
        // Made once, and not anew for each read.
        let options = ReadOptions::default();
        while self.reads.take(READS_AT_ONCE, &mut some) {
            for Read { key, done } in some.drain(..) {
                let found = self.read(&key, &options);
                self.counters.reads_done.fetch_add(1, Relaxed);
                self.complete(done, found.map(Found::from));
            }
        }
    }

    fn complete<T>(&self, done: Done<T>, outcome: Result<T, StoreError>) {
        self.counters.failures.fetch_add(u64::from(outcome.is_err()), Relaxed);
        self.counters.pending.fetch_sub(1, Relaxed);
        done(outcome);
    }
}

/// RocksDB's errors have lines of their own now and then.
fn one_line(error: &rocksdb::Error) -> String {
    error.as_ref().replace(['\n', '\r'], " ")
}

fn not_a_record() -> StoreError {
    StoreError::refused(StoreErrorKind::Damaged, "the store has something that is no item of this version of guira")
}

fn read_failure(error: &rocksdb::Error) -> StoreError {
    let kind = match error.kind() {
        ErrorKind::Corruption => StoreErrorKind::Damaged,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::refused(kind, one_line(error))
}

/// Why a queue has not taken something.
fn not_taken<T>(queue: &Queue<T>) -> StoreError {
    if queue.is_closed() {
        StoreError::refused(StoreErrorKind::Unavailable, "the store is closed")
    } else {
        StoreError::refused(StoreErrorKind::Busy, "the store has too much to do")
    }
}

/// A RocksDB as a [`Store`].
pub struct RocksStore {
    inside: Arc<Inside>,
    state: StoreState,
    /// From RocksDB's own memory, or not at all.
    from_cache: ReadOptions,
    /// From memory, whoever keeps it there, or not at all; or why that cannot be.
    at_once: Result<ReadOptions, &'static str>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for RocksStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksStore").field("path", &self.inside.db.path()).finish_non_exhaustive()
    }
}

impl RocksStore {
    fn start(inside: Inside, state: StoreState, readers: usize, has_all_open: bool) -> Result<Self, OpenError> {
        let inside = Arc::new(inside);
        let mut from_cache = ReadOptions::default();
        from_cache.set_read_tier(ReadTier::BlockCache);
        // A file that was just read.
        let has_them = guira_nowait::has_reads_that_do_not_wait(&inside.db.path().join("CURRENT"));
        let at_once = match has_them.map_err(OpenError::Folder)? {
            // Who has no time may have to wait for who opens a file.
            _ if !has_all_open => Err("not all of its files may be open: raise ulimit -n"),
            false => Err("the file system has no reads that do not wait"),
            true => {
                let mut at_once = ReadOptions::default();
                at_once.set_io_timeout(NO_WAIT_US);
                Ok(at_once)
            }
        };
        // Made first: if a thread cannot be started, those that were are ended by dropping it.
        let store = Self { inside, state, from_cache, at_once, threads: Mutex::default() };
        for _ in 0..readers.max(1) {
            store.spawn("guira-read", Inside::run_readers)?;
        }
        store.spawn("guira-write", Inside::run_writer)?;
        store.spawn("guira-chores", Inside::run_chores)?;
        if let Durability::Interval(every) = store.inside.durability {
            store.spawn("guira-sync", move |inside| inside.run_syncer(every))?;
        }
        Ok(store)
    }

    fn spawn(&self, name: &str, run: impl FnOnce(&Inside) + Send + 'static) -> Result<(), OpenError> {
        let inside = Arc::clone(&self.inside);
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(&inside));
        let thread = thread.map_err(OpenError::Thread)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// RocksDB itself, for who measures what the store adds to it. Who writes past the store answers for what is there then.
    #[cfg(feature = "bench")]
    pub fn database(&self) -> &DB {
        &self.inside.db
    }

    /// Whether what the system has in memory of its files is read at once.
    ///
    /// # Errors
    /// Why only what RocksDB's own cache has is.
    pub fn reads_at_once(&self) -> Result<(), &'static str> {
        self.at_once.as_ref().map(|_| ()).map_err(|why| *why)
    }

    /// How who may not wait reads.
    fn no_wait(&self) -> &ReadOptions {
        let counters = &self.inside.counters;
        // Whatever is between the two.
        let on_their_way = counters.reads_waited.load(Relaxed).saturating_sub(counters.reads_done.load(Relaxed));
        self.at_once.as_ref().ok().filter(|_| on_their_way < READS_BEGUN_MAX).unwrap_or(&self.from_cache)
    }

    /// Why nothing is written any more, if that is so.
    pub fn read_only(&self) -> Option<&str> {
        self.inside.read_only.get().map(|told| &**told)
    }

    /// Puts into `queue` what `entry` makes of `done`; completes it at once with what `refusal` says, if that is something or the
    /// queue is full.
    fn enqueue<T, E>(
        &self,
        queue: &Queue<E>,
        is_pressing: bool,
        done: Done<T>,
        refusal: Option<StoreError>,
        entry: impl FnOnce(Done<T>) -> E,
        back: impl FnOnce(E) -> Done<T>,
    ) {
        self.inside.counters.pending.fetch_add(1, Relaxed);
        match refusal {
            Some(error) => self.inside.complete(done, Err(error)),
            None => {
                let entry = entry(done);
                let pushed = if is_pressing { queue.push_anyway(entry) } else { queue.push(entry) };
                if let Err(entry) = pushed {
                    self.inside.complete(back(entry), Err(not_taken(queue)));
                }
            }
        }
    }

    fn add_chore(&self, chore: Chore) {
        self.inside.counters.pending.fetch_add(1, Relaxed);
        if let Err(chore) = self.inside.chores.push(chore) {
            let (Chore::Flush(done) | Chore::Scan(_, _, done) | Chore::Snapshot(_, done)) = chore;
            self.inside.complete(done, Err(not_taken(&self.inside.chores)));
        }
    }
}

impl RocksStore {
    /// Completes what was asked for, forces everything to disk, whatever the durability, and ends its threads. Nothing more is
    /// taken on then.
    ///
    /// # Errors
    /// [`StoreError`] if what was written could not be forced to disk.
    pub fn shut(&self) -> Result<(), StoreError> {
        let inside = &self.inside;
        inside.reads.close();
        inside.writes.close();
        inside.chores.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return Ok(());
        }
        for thread in threads {
            // The syncer sleeps on its own.
            thread.thread().unpark();
            // A panic has been told about already.
            let _ = thread.join();
        }
        inside.close()
    }
}

impl Drop for RocksStore {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::error!("the store was not closed as it should be: {error}");
        }
    }
}

impl Store for RocksStore {
    fn state(&self) -> StoreState {
        self.state
    }

    fn get_now<T>(&self, key: Key<'_>, read: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
        let stored = keys::StoredKey::of(key);
        let result = match self.inside.db.get_pinned_opt(stored.as_bytes(), self.no_wait()) {
            Ok(None) => read(None),
            Ok(Some(bytes)) => read(Some(record::decode(&bytes)?)),
            // It would wait, or something is wrong: `get` says what.
            Err(_) => return None,
        };
        self.inside.counters.reads_at_once.fetch_add(1, Relaxed);
        Some(result)
    }

    fn get(&self, key: Key<'_>, done: Done<Found>) {
        self.inside.counters.reads_waited.fetch_add(1, Relaxed);
        let key = keys::StoredKey::of(key).as_bytes().into();
        let back = |read: Read| {
            self.inside.counters.reads_done.fetch_add(1, Relaxed);
            read.done
        };
        self.enqueue(&self.inside.reads, false, done, None, |done| Read { key, done }, back);
    }

    fn write(&self, batch: Vec<Write>, done: Done<Written>) {
        let read_only = self.inside.read_only.get();
        let refusal = read_only.map(|told| StoreError::refused(StoreErrorKind::ReadOnly, Arc::clone(told)));
        let has_state = batch.iter().any(|write| matches!(write, Write::State(_)));
        let entry = |done| writer::Submission { batch, done };
        self.enqueue(&self.inside.writes, has_state, done, refusal, entry, |submission| submission.done);
    }

    fn flush(&self, done: Done<()>) {
        self.add_chore(Chore::Flush(done));
    }

    /// What was asked for is over once that is told, and with the process.
    fn fence(&self, _: Vec<Part>, done: Done<()>) {
        done(Ok(()));
    }

    fn scan(&self, what: Scan, visit: Visit, done: Done<()>) {
        self.add_chore(Chore::Scan(what, visit, done));
    }

    fn snapshot(&self, to: PathBuf, done: Done<()>) {
        self.add_chore(Chore::Snapshot(to, done));
    }

    fn stats(&self) -> StoreStats {
        let Inside { counters, read_only, .. } = &*self.inside;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        StoreStats {
            store: "rocksdb",
            reads_at_once: count(&counters.reads_at_once),
            reads_waited: count(&counters.reads_waited),
            writes: count(&counters.writes),
            write_batches: count(&counters.write_batches),
            syncs: count(&counters.syncs),
            failures: count(&counters.failures),
            pending: count(&counters.pending),
            limit: None,
            limit_waits: 0,
            read_only: read_only.get().cloned(),
            disk_bytes: self.property("rocksdb.total-sst-files-size"),
            memory_bytes: self.memory_bytes(),
            records: self.property("rocksdb.estimate-num-keys"),
        }
    }
}

impl RocksStore {
    fn property(&self, name: &str) -> Option<u64> {
        self.inside.db.property_int_value(name).ok().flatten()
    }

    fn memory_bytes(&self) -> Option<u64> {
        let parts =
            ["rocksdb.block-cache-usage", "rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem"];
        parts.iter().map(|name| self.property(name)).sum()
    }
}

#[cfg(test)]
impl RocksStore {
    /// Merges all files, so that what is dead goes; now, and not some day.
    fn merge(&self) {
        self.inside.db.flush().expect("disk");
        self.inside.db.compact_range::<&[u8], &[u8]>(None, None);
    }
}

#[cfg(test)]
#[path = "rocks/open_tests.rs"]
mod open_tests;
#[cfg(test)]
#[path = "rocks/store_tests.rs"]
mod tests;
