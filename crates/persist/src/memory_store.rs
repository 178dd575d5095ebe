//! A store in memory: nothing outlives it. For tests, and to tell what a store costs from what the way to it costs.
//!
//! It completes what it is asked at once, on the caller's thread, or, made by [`MemoryStore::holding`], when it is told to: reads in
//! any order, writes in theirs, each with a fault if one is wanted.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use guira_item::{
    Key,
    store::{
        Condition, Done, Found, Part, Record, Scan, Store, StoreError, StoreErrorKind, StoreState, StoreStats, Visit,
        Write, Written,
    },
};

/// What is under each key.
type Records = BTreeMap<Box<[u8]>, Record<Arc<[u8]>>>;

/// Who waits for a record.
type ReadDone = Done<Found>;

/// A store in memory.
#[derive(Default)]
pub struct MemoryStore {
    inside: Mutex<Inside>,
    holds: bool,
    is_anothers: AtomicBool,
}

#[derive(Default)]
struct Inside {
    /// What is scanned is not copied, but by a write that comes meanwhile.
    records: Arc<Records>,
    state: StoreState,
    reads: VecDeque<(Box<[u8]>, ReadDone)>,
    writes: VecDeque<(Vec<Write>, Done<Written>)>,
    stats: StoreStats,
}

/// What is to go wrong with something that was held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// It does not happen, and that is told.
    Refused,
    /// It does not happen, and nobody can say so.
    UnknownNot,
    /// It happens, and nobody can say so.
    UnknownDone,
}

impl Fault {
    fn error(self) -> Option<StoreError> {
        let told = "a fault that was asked for";
        match self {
            Self::None => None,
            Self::Refused => Some(StoreError::refused(StoreErrorKind::Unavailable, told)),
            Self::UnknownNot | Self::UnknownDone => Some(StoreError::unknown(StoreErrorKind::Unavailable, told)),
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inside = self.inside();
        f.debug_struct("MemoryStore")
            .field("records", &inside.records.len())
            .field("reads", &inside.reads.len())
            .field("writes", &inside.writes.len())
            .finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// A store that holds what it is asked until it is told to go on, as if everything took input and output.
    pub fn holding() -> Self {
        Self { holds: true, ..Self::default() }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on another may, or may not, be the owner of what is in it.
    pub fn set_anothers(&self, is_anothers: bool) {
        self.is_anothers.store(is_anothers, Relaxed);
    }

    /// How many reads and writes are held.
    pub fn held(&self) -> (usize, usize) {
        let inside = self.inside();
        (inside.reads.len(), inside.writes.len())
    }

    /// Whether the first write that is held is one of the state.
    ///
    /// # Panics
    /// If there is none.
    pub fn first_held_is_state(&self) -> bool {
        let inside = self.inside();
        let (batch, _) = inside.writes.front().expect("a write is held");
        batch.iter().any(|write| matches!(write, Write::State(_)))
    }

    /// Completes the read that is held at a place, counted from 0.
    ///
    /// # Panics
    /// If there is none.
    pub fn complete_read(&self, at: usize, fault: Fault) {
        let mut inside = self.inside();
        let (key, done) = inside.reads.remove(at).expect("a read is held there");
        let found = inside.records.get(&key).cloned();
        drop(inside);
        done(fault.error().map_or(Ok(found.into()), Err));
    }

    /// Completes the first write that is held.
    ///
    /// # Panics
    /// If there is none.
    pub fn complete_write(&self, fault: Fault) {
        let mut inside = self.inside();
        let (batch, done) = inside.writes.pop_front().expect("a write is held");
        let written = match fault {
            Fault::None | Fault::UnknownDone => Ok(inside.carry_out(batch)),
            Fault::Refused | Fault::UnknownNot => Ok(Written::All),
        };
        drop(inside);
        done(fault.error().map_or(written, Err));
    }

    /// What is under a key, dead or alive.
    pub fn record(&self, key: &[u8]) -> Option<Record<Arc<[u8]>>> {
        self.inside().records.get(key).cloned()
    }

    /// What was last written as the state.
    pub fn written_state(&self) -> StoreState {
        self.inside().state
    }
}

impl Inside {
    fn carry_out(&mut self, batch: Vec<Write>) -> Written {
        let generation = self.state.generation;
        for (at, write) in batch.iter().enumerate() {
            let (Write::Put { key, condition, .. } | Write::Delete { key, condition }) = write else { continue };
            // It has no clock: what has expired is there.
            let live = self.records.get(key).filter(|record| record.generation >= generation);
            let holds = match condition {
                Condition::Always => true,
                Condition::Absent => live.is_none(),
                Condition::Version(version) => live.is_some_and(|record| record.version == *version),
            };
            if !holds {
                return Written::Refused { at };
            }
        }
        self.stats.write_batches += 1;
        for write in batch {
            match write {
                Write::Put { key, record, .. } => {
                    self.stats.writes += 1;
                    Arc::make_mut(&mut self.records).insert(key, record);
                }
                Write::Delete { key, .. } => {
                    self.stats.writes += 1;
                    Arc::make_mut(&mut self.records).remove(&key);
                }
                Write::State(state) => self.state = state,
            }
        }
        Written::All
    }
}

impl Store for MemoryStore {
    fn state(&self) -> StoreState {
        self.written_state()
    }

    fn may_serve(&self) -> bool {
        !self.is_anothers.load(Relaxed)
    }

    fn get_now<T>(&self, key: Key<'_>, read: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
        if self.holds {
            return None;
        }
        let mut inside = self.inside();
        inside.stats.reads_at_once += 1;
        let found = inside.records.get(key.as_bytes()).cloned();
        // Who reads may take locks that are held by who writes.
        drop(inside);
        Some(read(found.as_ref().map(Record::borrowed)))
    }

    fn get(&self, key: Key<'_>, done: ReadDone) {
        let mut inside = self.inside();
        inside.stats.reads_waited += 1;
        if self.holds {
            inside.reads.push_back((key.as_bytes().into(), done));
            return;
        }
        let found = inside.records.get(key.as_bytes()).cloned();
        drop(inside);
        done(Ok(found.into()));
    }

    fn write(&self, batch: Vec<Write>, done: Done<Written>) {
        let mut inside = self.inside();
        if self.holds {
            inside.writes.push_back((batch, done));
            return;
        }
        let written = inside.carry_out(batch);
        drop(inside);
        done(Ok(written));
    }

    fn flush(&self, done: Done<()>) {
        done(Ok(()));
    }

    fn fence(&self, _: Vec<Part>, done: Done<()>) {
        done(Ok(()));
    }

    fn scan(&self, what: Scan, mut visit: Visit, done: Done<()>) {
        let records = Arc::clone(&self.inside().records);
        let (from, to) = match &what {
            Scan::Range { from, to } => (&from[..], to.as_deref()),
            Scan::Partition(_) | Scan::Behind(None) => (&[][..], None),
            Scan::Behind(Some(after)) => (&**after, None),
        };
        let records = records.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        for (key, record) in records.take_while(|(key, _)| to.is_none_or(|to| ***key < *to)) {
            let is_wanted = match &what {
                Scan::Range { .. } | Scan::Behind(None) => true,
                Scan::Behind(Some(after)) => key > after,
                Scan::Partition(partition) => crate::hash_partition(key) == *partition,
            };
            let key = Key::new(key).expect("what was put has a key");
            if is_wanted && visit(key, &record.borrowed()).is_break() {
                break;
            }
        }
        done(Ok(()));
    }

    fn snapshot(&self, _: PathBuf, done: Done<()>) {
        done(Err(StoreError::refused(StoreErrorKind::Unavailable, "a store in memory has no copies on disk")));
    }

    fn stats(&self) -> StoreStats {
        let inside = self.inside();
        StoreStats {
            store: "memory",
            pending: (inside.reads.len() + inside.writes.len()) as u64,
            records: Some(inside.records.len() as u64),
            ..inside.stats.clone()
        }
    }
}
