//! A store on many machines: Apache Cassandra, one server at a time being the owner of a keyspace.
//!
//! ```text
//! get, write -> turn at the key -> guira_row (what to ask next) -> tables -> Cassandra
//! write of a state -> gate: what comes after it waits for it
//! fence -> floors, below which nothing counts that is in a row
//! lease -> renewed every two seconds, on the same runtime: may_serve
//! ```
//! Always true: a row is read at SERIAL, and changed by transactions under the condition of its last stamp (`guira_row`); an owner's first act
//! on a row is to stamp it; what it has served is served from a cache only while nobody else can be the owner (`lease`). All that was
//! asked for has been completed when the store is shut.

mod address;
mod driving;
mod error;
mod fencing;
mod gate;
mod jobs;
mod known;
mod lease;
mod owner;
mod renewals;
mod row_ttl;
mod tables;
mod turns;

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use guira_item::{
    Key,
    store::{
        Done, Found, Part, Record, Scan, Store, StoreError, StoreErrorKind, StoreState, StoreStats, Visit, Write,
        Written,
    },
};
use guira_row::Epoch;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{UnixNow, record};
use fencing::KeptFloors;
use gate::Gate;
use jobs::{Act, Change, Job, PATIENCE};
use known::Known;
use lease::{Claim, Lease, boot_now_ns};
use owner::{WhileHeld, give_up, holder_name, take_over};
use tables::{Content, Tables};
use turns::Turns;

pub use address::CassandraAddress;
pub use error::CassandraError;

/// Reads and writes that may wait: as many as before RocksDB.
const PENDING_MAX: usize = 1 << 17;

/// Operations that are asked of Cassandra at a time: far more than it carries out at once, so few that none waits for seconds there.
const IN_FLIGHT_MAX: usize = 256;

/// How long it may take until everything is given up, at the end.
const SHUT_PATIENCE: Duration = Duration::from_secs(12);

/// Stamps that are remembered, so that a change needs no read: 16 bytes each, 4 MiB beside `-m`.
const STAMPS: usize = 1 << 18;

/// The same, for what the store keeps beside items: two rows, which are hardly ever in each other's place.
const STATE_STAMPS: usize = 1 << 8;

/// A record that Cassandra takes for certain, in bytes: it refuses mutations of half a commit log segment, 16 MiB as it comes.
pub const RECORD_LEN_MAX: usize = 8 << 20;

/// How a store is opened.
#[derive(Clone)]
pub struct CassandraOptions {
    /// Where it is.
    pub address: CassandraAddress,
    /// What time it is.
    pub unix_now: UnixNow,
    /// The part of a key that may be fenced off: the same for all who have ever had the keyspace.
    pub part_of: fn(&[u8]) -> Part,
}

impl fmt::Debug for CassandraOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraOptions").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What all tasks of a store share.
struct Inside {
    tables: Tables,
    epoch: Epoch,
    lease: Lease,
    unix_now: UnixNow,
    serials: AtomicI64,
    items: Known,
    states: Known,
    floors: KeptFloors,
    generation: AtomicU64,
    turns: Turns<Job>,
    gate: Mutex<Gate>,
    in_flight: Semaphore,
    /// What was submitted and is not completed, each with its number.
    open: watch::Sender<BTreeSet<u64>>,
    next_id: AtomicU64,
    is_closed: AtomicBool,
    /// The lease is to be given up.
    closing: Notify,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    write_batches: AtomicU64,
    failures: AtomicU64,
}

impl Inside {
    /// Numbers something that is to be completed.
    fn begin(&self) -> u64 {
        let id = self.next_id.fetch_add(1, Relaxed);
        self.open.send_modify(|open| {
            open.insert(id);
        });
        id
    }

    fn complete<T>(&self, id: u64, done: Done<T>, outcome: Result<T, StoreError>) {
        self.counters.failures.fetch_add(u64::from(outcome.is_err()), Relaxed);
        done(outcome);
        self.open.send_modify(|open| {
            open.remove(&id);
        });
    }

    /// Why nothing is taken on, if that is so.
    fn refusal(&self) -> Option<StoreError> {
        if self.is_closed.load(Relaxed) {
            Some(StoreError::refused(StoreErrorKind::Unavailable, "the store is closed"))
        } else if self.lease.is_lost() {
            Some(fenced(false))
        } else if self.open.borrow().len() >= PENDING_MAX {
            Some(StoreError::refused(StoreErrorKind::Busy, "the store has more to do than it takes on"))
        } else {
            None
        }
    }
}

fn fenced(unknown: bool) -> StoreError {
    let told = "another server has taken over the store";
    StoreError { unknown, ..StoreError::refused(StoreErrorKind::ReadOnly, told) }
}

fn not_a_record() -> StoreError {
    StoreError::refused(StoreErrorKind::Damaged, "the store has something that is no item of this version of guira")
}

/// Items in Cassandra.
pub struct CassandraStore {
    inside: Arc<Inside>,
    /// What it was when it was opened.
    state: StoreState,
    /// `None` once it is shut.
    running: Mutex<Option<(Runtime, JoinHandle<Claim>)>>,
    handle: tokio::runtime::Handle,
}

impl fmt::Debug for CassandraStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraStore").field("epoch", &self.inside.epoch).finish_non_exhaustive()
    }
}

impl CassandraStore {
    /// Becomes the owner of a keyspace, which is made if it is not there. Takes as long as the lease of an owner that has not given it up
    /// and of which nothing is heard any more. `None` once `goes_on` says that it is not to be waited for that.
    ///
    /// # Errors
    /// [`CassandraError`].
    pub fn open(options: &CassandraOptions, goes_on: impl Fn() -> bool) -> Result<Option<Self>, CassandraError> {
        Self::open_by(options, WhileHeld::Refuse, goes_on)
    }

    /// The same, of a keyspace whose owner may live, or has yet to begin: it waits until that gives it up, or falls silent. Once it has been connected it
    /// waits for a Cassandra, too.
    ///
    /// # Errors
    /// [`CassandraError`], but for [`CassandraError::InUse`].
    pub fn open_after(options: &CassandraOptions, goes_on: impl Fn() -> bool) -> Result<Option<Self>, CassandraError> {
        Self::open_by(options, WhileHeld::Wait, goes_on)
    }

    fn open_by(
        options: &CassandraOptions,
        while_held: WhileHeld,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Self>, CassandraError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("guira-cassandra")
            .enable_all()
            .build()
            .map_err(CassandraError::Threads)?;
        let opened = runtime.block_on(open(options, while_held, goes_on))?;
        let Some((inside, state, claim)) = opened else { return Ok(None) };
        let renewals = runtime.spawn(Arc::clone(&inside).run_renewals(claim));
        let handle = runtime.handle().clone();
        Ok(Some(Self { inside, state, running: Mutex::new(Some((runtime, renewals))), handle }))
    }

    /// Another is the owner, and this store answers nothing any more, for good.
    pub fn was_followed(&self) -> bool {
        self.inside.lease.is_lost()
    }

    /// Completes what was asked for, gives up the keyspace, so that the next owner need not wait, and ends its threads. Nothing more is
    /// taken on then.
    ///
    /// # Errors
    /// [`StoreError`] if the keyspace could not be given up: the next owner has to wait.
    pub fn shut(&self) -> Result<(), StoreError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((runtime, renewals)) = running else { return Ok(()) };
        self.inside.is_closed.store(true, Relaxed);
        let given_up = runtime.block_on(async {
            // Everything ends by its own deadline.
            let mut open = self.inside.open.subscribe();
            let _ = timeout(SHUT_PATIENCE, open.wait_for(BTreeSet::is_empty)).await;
            self.inside.closing.notify_one();
            let Ok(claim) = renewals.await else { return Ok(true) };
            if self.inside.lease.is_lost() {
                return Ok(true);
            }
            give_up(&self.inside.tables, claim).await
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        match given_up {
            Ok(true) => Ok(()),
            Ok(false) => Err(fenced(false)),
            Err(told) => Err(StoreError::unknown(StoreErrorKind::Unavailable, told.line)),
        }
    }
}

impl Drop for CassandraStore {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::error!("the store was not closed as it should be: {error}");
        }
    }
}

async fn open(
    options: &CassandraOptions,
    while_held: WhileHeld,
    goes_on: impl Fn() -> bool,
) -> Result<Option<(Arc<Inside>, StoreState, Claim)>, CassandraError> {
    let tables = Tables::open(&options.address).await?;
    let holder = holder_name();
    let Some((claim, asked_ns)) = take_over(&tables, &holder, while_held, goes_on).await? else { return Ok(None) };
    let lease = Lease::default();
    lease.renewed(asked_ns, claim.lease);
    let inside = Arc::new(Inside {
        tables,
        epoch: claim.epoch,
        lease,
        unix_now: Arc::clone(&options.unix_now),
        serials: AtomicI64::new(1),
        items: Known::new(STAMPS),
        states: Known::new(STATE_STAMPS),
        floors: KeptFloors::new(options.part_of),
        generation: AtomicU64::new(0),
        turns: Turns::default(),
        gate: Mutex::default(),
        in_flight: Semaphore::new(IN_FLIGHT_MAX),
        open: watch::Sender::default(),
        next_id: AtomicU64::new(0),
        is_closed: AtomicBool::new(false),
        closing: Notify::new(),
        counters: Counters::default(),
    });
    // Both at a time: the lease is running.
    let state = match tokio::try_join!(inside.read_floors(), inside.read_state()) {
        Ok(((), state)) => state,
        Err(error) => {
            // The next owner need not wait for one that never served.
            let _ = give_up(&inside.tables, claim).await;
            return Err(error);
        }
    };
    for line in inside.tables.settings_to_tell().await {
        tracing::warn!("{line}");
    }
    Ok(Some((inside, state, claim)))
}

impl Store for CassandraStore {
    fn state(&self) -> StoreState {
        self.state
    }

    fn may_serve(&self) -> bool {
        // What was given up may be another's at once.
        !self.inside.is_closed.load(Relaxed) && self.inside.lease.may_serve(boot_now_ns())
    }

    fn get_now<T>(&self, _: Key<'_>, _: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
        None
    }

    fn get(&self, key: Key<'_>, done: Done<Found>) {
        self.inside.counters.reads.fetch_add(1, Relaxed);
        let refusal = self.inside.refusal();
        let job = Job::new(self.inside.begin(), Act::Get(done));
        match refusal {
            Some(error) => job.refuse(&self.inside, error),
            None => {
                let _context = self.handle.enter();
                self.inside.enter(key.as_bytes().into(), job);
            }
        }
    }

    /// Takes one record, or one state, at a time: there is no transaction over several rows.
    fn write(&self, batch: Vec<Write>, done: Done<Written>) {
        let (inside, refusal, id) = (&self.inside, self.inside.refusal(), self.inside.begin());
        let is_state = matches!(*batch, [Write::State(_)]);
        if let Some(error) = refusal.filter(|error| !is_state || error.kind != StoreErrorKind::Busy) {
            return inside.complete(id, done, Err(error));
        }
        let mut batch = batch.into_iter();
        let (key, content, condition) = match (batch.next(), batch.next()) {
            (None, _) => return inside.complete(id, done, Ok(Written::All)),
            (Some(_), Some(_)) => {
                let told = "this store writes one record at a time";
                return inside.complete(id, done, Err(StoreError::refused(StoreErrorKind::Unavailable, told)));
            }
            (Some(Write::State(state)), None) => {
                let _context = self.handle.enter();
                return inside.write_state(id, state, done);
            }
            (Some(Write::Put { key, record, condition }), None) => {
                let mut bytes = Vec::new();
                record::encode(&record.borrowed(), &mut bytes);
                (key, Some(Content::from(bytes)), condition)
            }
            (Some(Write::Delete { key, condition }), None) => (key, None, condition),
        };
        if content.as_ref().is_some_and(|content| content.len() > RECORD_LEN_MAX) {
            let told = "the record is larger than Cassandra takes";
            return inside.complete(id, done, Err(StoreError::refused(StoreErrorKind::Unavailable, told)));
        }
        let job = Job::new(id, Act::Change(Change { content, condition }, done));
        let _context = self.handle.enter();
        inside.enter_behind_states(key, job);
    }

    /// Waits for what was submitted before: what has been written is on the disks of as many nodes as the keyspace asks for.
    fn flush(&self, done: Done<()>) {
        let upto = self.inside.next_id.load(Relaxed);
        let mut open = self.inside.open.subscribe();
        let id = self.inside.begin();
        let inside = Arc::clone(&self.inside);
        self.handle.spawn(async move {
            // Its sender is in `inside`.
            let _ = open.wait_for(|open| open.first().is_none_or(|first| *first >= upto)).await;
            inside.complete(id, done, Ok(()));
        });
    }

    fn fence(&self, parts: Vec<Part>, done: Done<()>) {
        let (inside, refusal, id) = (Arc::clone(&self.inside), self.inside.refusal(), self.inside.begin());
        match refusal {
            Some(error) => inside.complete(id, done, Err(error)),
            None => {
                drop(self.handle.spawn(inside.fence(id, parts.into_iter().collect(), Instant::now() + PATIENCE, done)))
            }
        }
    }

    /// In the order of tokens, and each record as it was at some moment of the scan.
    fn scan(&self, what: Scan, mut visit: Visit, done: Done<()>) {
        let (inside, id) = (Arc::clone(&self.inside), self.inside.begin());
        self.handle.spawn(async move {
            let mut damaged = false;
            let behind = if let Scan::Behind(behind) = &what { behind.as_deref() } else { None };
            let visited = inside.tables.scan(behind, |key, stamp, content| {
                let counts = inside.floors.of(key).is_none_or(|floor| stamp >= floor);
                let is_wanted = counts
                    && match &what {
                        Scan::Behind(_) => true,
                        Scan::Range { from, to } => key >= &from[..] && to.as_ref().is_none_or(|to| key < &to[..]),
                        Scan::Partition(partition) => crate::hash_partition(key) == *partition,
                    };
                match (Key::new(key), record::decode(content)) {
                    _ if !is_wanted => true,
                    (Ok(key), Some(record)) => visit(key, &record).is_continue(),
                    _ => {
                        damaged = true;
                        false
                    }
                }
            });
            let outcome = match visited.await {
                Ok(()) if damaged => Err(not_a_record()),
                Ok(()) => Ok(()),
                Err(told) => Err(StoreError::refused(StoreErrorKind::Unavailable, told.line)),
            };
            inside.complete(id, done, outcome);
        });
    }

    fn snapshot(&self, _: PathBuf, done: Done<()>) {
        let told = "copies of a Cassandra are made with its own tools (nodetool snapshot)";
        let id = self.inside.begin();
        self.inside.complete(id, done, Err(StoreError::refused(StoreErrorKind::Unavailable, told)));
    }

    fn stats(&self) -> StoreStats {
        let Inside { counters, open, .. } = &*self.inside;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        StoreStats {
            store: "cassandra",
            reads_waited: count(&counters.reads),
            writes: count(&counters.writes),
            write_batches: count(&counters.write_batches),
            failures: count(&counters.failures),
            pending: open.borrow().len() as u64,
            read_only: self.inside.lease.is_lost().then(|| fenced(false).told),
            ..StoreStats::default()
        }
    }
}

#[cfg(test)]
#[path = "cassandra/store_tests.rs"]
mod tests;
