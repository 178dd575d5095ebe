//! A store that does at most so many operations a second, as the emulated backends of SwitchKV (section 4.1): a machine of any
//! speed stands for one of a known speed, whatever the load.
//!
//! ```text
//! get_now      -> store, if its turn has come and nobody waits; `None` otherwise
//! get, write   -> queue -> pacer, each in its turn -> store
//! flush        -> queue, to stay behind the writes before it; costs no turn, nor does a write with a state
//! scan, snapshot -> store
//! ```
//! An operation is a record that is read, written or deleted. Always true: what is in the queue reaches the store in its order;
//! it is all there before the store is shut. Without a limit it is the store itself.

use std::{
    collections::VecDeque,
    fmt,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use guira_item::{
    Key,
    store::{
        Done, Found, Part, Record, Scan, Store, StoreError, StoreErrorKind, StoreState, StoreStats, Visit, Write,
        Written,
    },
};

use crate::pace::{Limit, Pace};

/// What may wait: as much as RocksDB's store lets wait by itself.
const QUEUE_LEN_MAX: usize = 1 << 17;

/// What waits for its turn.
enum Waiting {
    Get(Box<[u8]>, Done<Found>),
    Write(Vec<Write>, Done<Written>),
    Flush(Done<()>),
}

impl Waiting {
    /// Operations that it counts as.
    fn operations(&self) -> u64 {
        match self {
            Self::Get(..) => 1,
            Self::Write(batch, _) if has_state(batch) => 0,
            Self::Write(batch, _) => batch.len() as u64,
            Self::Flush(_) => 0,
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Get(_, done) => done(Err(error)),
            Self::Write(_, done) => done(Err(error)),
            Self::Flush(done) => done(Err(error)),
        }
    }
}

fn has_state(batch: &[Write]) -> bool {
    batch.iter().any(|write| matches!(write, Write::State(_)))
}

struct Line {
    pace: Pace,
    waiting: VecDeque<Waiting>,
    is_closed: bool,
}

/// What the pacer shares with whoever asks.
struct Gate<S> {
    store: Arc<S>,
    limit: Limit,
    line: Mutex<Line>,
    changed: Condvar,
    begun: Instant,
    /// Reads and batches that have been in the queue.
    waits: AtomicU64,
}

impl<S: Store> Gate<S> {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn enter(&self, waiting: Waiting, is_pressing: bool) {
        let mut line = self.lock();
        let refusal = if line.is_closed {
            StoreError::refused(StoreErrorKind::Unavailable, "the store is closed")
        } else if line.waiting.len() >= QUEUE_LEN_MAX && !is_pressing {
            StoreError::refused(StoreErrorKind::Busy, "the store has too much to do within its limit")
        } else {
            self.waits.fetch_add(1, Relaxed);
            line.waiting.push_back(waiting);
            // The pacer waits for the first only; for those behind it, for their turn.
            if line.waiting.len() == 1 {
                self.changed.notify_one();
            }
            return;
        };
        drop(line);
        waiting.refuse(refusal);
    }

    fn run_pacer(&self) {
        let mut line = self.lock();
        loop {
            let Some(first) = line.waiting.front() else {
                if line.is_closed {
                    return;
                }
                line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (operations, now_ns) = (first.operations(), self.now_ns());
            // A store that is closed is not waited for.
            let turn = if operations == 0 || line.is_closed { Ok(()) } else { line.pace.begin(now_ns, operations) };
            match turn {
                Ok(()) => {
                    let first = line.waiting.pop_front();
                    drop(line);
                    match first {
                        Some(Waiting::Get(key, done)) => {
                            self.store.get(Key::new(&key).expect("whoever reads has a key"), done);
                        }
                        Some(Waiting::Write(batch, done)) => self.store.write(batch, done),
                        Some(Waiting::Flush(done)) => self.store.flush(done),
                        None => {}
                    }
                    line = self.lock();
                }
                Err(ask_at_ns) => {
                    let pause = Duration::from_nanos(ask_at_ns - now_ns);
                    (line, _) = self.changed.wait_timeout(line, pause).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The queue, and the thread that empties it.
type Paced<S> = (Arc<Gate<S>>, Mutex<Option<JoinHandle<()>>>);

/// A store behind a limit, if there is one.
pub struct Limited<S> {
    store: Arc<S>,
    gate: Option<Paced<S>>,
}

impl<S: Store> Limited<S> {
    /// Puts `store` behind a limit.
    ///
    /// # Errors
    /// What the system says if it gives no thread.
    pub fn new(store: Arc<S>, limit: Option<Limit>) -> std::io::Result<Self> {
        let Some(limit) = limit else { return Ok(Self { store, gate: None }) };
        let line = Mutex::new(Line { pace: Pace::new(limit), waiting: VecDeque::new(), is_closed: false });
        let (changed, begun, waits) = (Condvar::new(), Instant::now(), AtomicU64::new(0));
        let gate = Arc::new(Gate { store: Arc::clone(&store), limit, line, changed, begun, waits });
        let own = Arc::clone(&gate);
        let pacer = thread::Builder::new().name("guira-limit".into()).spawn(move || own.run_pacer())?;
        Ok(Self { store, gate: Some((gate, Mutex::new(Some(pacer)))) })
    }
}

impl<S> Limited<S> {
    /// The store behind it.
    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    /// Hands over to the store, without further waiting, what is in the queue, and lets nothing more in.
    pub fn shut(&self) {
        let Some((gate, pacer)) = &self.gate else { return };
        gate.line.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        gate.changed.notify_one();
        if let Some(pacer) = pacer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic has been told about already.
            let _ = pacer.join();
        }
    }
}

impl<S> Drop for Limited<S> {
    fn drop(&mut self) {
        self.shut();
    }
}

impl<S> fmt::Debug for Limited<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited")
            .field("limit", &self.gate.as_ref().map(|(gate, _)| gate.limit))
            .finish_non_exhaustive()
    }
}

impl<S: Store> Store for Limited<S> {
    fn state(&self) -> StoreState {
        self.store.state()
    }

    fn may_serve(&self) -> bool {
        self.store.may_serve()
    }

    fn get_now<T>(&self, key: Key<'_>, read: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
        let Some((gate, _)) = &self.gate else { return self.store.get_now(key, read) };
        {
            let mut line = gate.lock();
            if !line.waiting.is_empty() || line.is_closed {
                return None;
            }
            line.pace.begin(gate.now_ns(), 1).ok()?;
        }
        let found = self.store.get_now(key, read);
        if found.is_none() {
            // It is counted when it is asked for again.
            gate.lock().pace.give_back(1);
        }
        found
    }

    fn get(&self, key: Key<'_>, done: Done<Found>) {
        match &self.gate {
            Some((gate, _)) => gate.enter(Waiting::Get(key.as_bytes().into(), done), false),
            None => self.store.get(key, done),
        }
    }

    fn write(&self, batch: Vec<Write>, done: Done<Written>) {
        match &self.gate {
            Some((gate, _)) => {
                let is_pressing = has_state(&batch);
                gate.enter(Waiting::Write(batch, done), is_pressing);
            }
            None => self.store.write(batch, done),
        }
    }

    fn flush(&self, done: Done<()>) {
        match &self.gate {
            Some((gate, _)) => gate.enter(Waiting::Flush(done), false),
            None => self.store.flush(done),
        }
    }

    fn fence(&self, parts: Vec<Part>, done: Done<()>) {
        self.store.fence(parts, done);
    }

    fn scan(&self, what: Scan, visit: Visit, done: Done<()>) {
        self.store.scan(what, visit, done);
    }

    fn snapshot(&self, to: PathBuf, done: Done<()>) {
        self.store.snapshot(to, done);
    }

    fn stats(&self) -> StoreStats {
        let stats = self.store.stats();
        let Some((gate, _)) = &self.gate else { return stats };
        let waiting = gate.lock().waiting.len() as u64;
        StoreStats {
            limit: Some(gate.limit.get().into()),
            limit_waits: gate.waits.load(Relaxed),
            pending: stats.pending + waiting,
            ..stats
        }
    }
}

#[cfg(test)]
#[path = "limited_tests.rs"]
mod tests;
