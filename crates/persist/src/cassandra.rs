//! A store on many machines: Apache Cassandra, one server at a time being the owner of a keyspace.
//!
//! ```text
//! get, write -> turn at the key -> row (what to ask next) -> tables -> Cassandra
//! write of a state -> gate: what comes after it waits for it
//! lease -> renewed every two seconds, on the same runtime: may_serve
//! ```
//! Always true: a row is read at SERIAL, and changed by transactions under the condition of its last stamp (`row`); an owner's first act
//! on a row is to stamp it; what it has served is served from a cache only while nobody else can be the owner (`lease`). All that was
//! asked for has been completed when the store is shut.

mod address;
mod known;
mod lease;
mod owner;
mod row;
mod tables;
mod turns;

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use guira_item::{
    Key,
    store::{
        Condition, Done, Generation, Record, Scan, Store, StoreError, StoreErrorKind, StoreState, StoreStats, Visit,
        Write, Written,
    },
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    UnixNow, record,
    state::{self, StateError},
};
use known::Known;
use lease::{Claim, Lease, RENEWAL, boot_now_ns};
use owner::{give_up, holder_name, take_over};
use row::{End, Epoch, Fits, Goal, Operation, Rules};
use tables::{Content, RowTable, Tables};
use turns::Turns;

pub use address::CassandraAddress;

/// Reads and writes that may wait: as many as before RocksDB.
const PENDING_MAX: usize = 1 << 17;

/// Operations that are asked of Cassandra at a time: far more than it carries out at once, so few that none waits for seconds there.
const IN_FLIGHT_MAX: usize = 256;

/// How long after it was submitted an operation is given up.
const PATIENCE: Duration = Duration::from_secs(8);

/// The least that is left for an answer, when what there is has nearly gone.
const REQUEST_MIN: Duration = Duration::from_millis(200);

/// How long it may take until everything is given up, at the end.
const SHUT_PATIENCE: Duration = Duration::from_secs(12);

/// Pauses after something was not heard, from the first on.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Rows with a write that is in doubt. With so many nothing is written until some are settled, by reads.
const DOUBTS_MAX: usize = 1 << 16;

/// Stamps that are remembered, so that a change needs no read: 16 bytes each, 4 MiB beside `-m`.
const STAMPS: usize = 1 << 18;

/// A record that Cassandra takes for certain, in bytes: it refuses mutations of half a commit log segment, 16 MiB as it comes.
const RECORD_LEN_MAX: usize = 8 << 20;

/// How long a row stays after the end of what is in it, in seconds: far longer than anything may be on its way to it.
const ROW_AFTERLIFE_S: u64 = 86_400;

/// The longest that Cassandra keeps a row that is to end, in seconds: 20 years.
const ROW_TTL_MAX_S: u64 = 20 * 365 * 86_400;

/// The last second that a Cassandra of any version can write as the end of a row; what lasts longer has none.
const ROW_END_MAX_UNIX_S: u64 = (1 << 31) - 2 * ROW_AFTERLIFE_S;

/// Between a renewal of which nothing was heard and the next.
const LEASE_PAUSE: Duration = Duration::from_millis(100);

/// The key of the state.
const STATE_KEY: &[u8] = b"state";

/// How a store is opened.
#[derive(Clone)]
pub struct CassandraOptions {
    /// Where it is.
    pub address: CassandraAddress,
    /// What time it is.
    pub unix_now: UnixNow,
}

impl fmt::Debug for CassandraOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraOptions").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why a store cannot be opened; in words for whoever has given its address.
#[derive(Debug)]
pub enum CassandraError {
    /// No node answers.
    Unreachable(String),
    /// A node says no.
    Failed(String),
    /// Another server has it.
    InUse(String),
    /// It was written by another version of guira.
    OtherFormat(u32),
    /// What is there is not what a store writes.
    Damaged,
    /// The system gives no threads.
    Threads(std::io::Error),
}

impl fmt::Display for CassandraError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(told) => write!(f, "cannot be reached ({told})"),
            Self::Failed(told) => write!(f, "cannot be used ({told})"),
            Self::InUse(holder) => write!(f, "is in use by {holder}: stop that one, or choose another keyspace"),
            Self::OtherFormat(found) => {
                write!(f, "is of format {found}, and this guira reads {}: use the version that wrote it", state::FORMAT)
            }
            Self::Damaged => f.write_str("has a state that no guira has written"),
            Self::Threads(error) => write!(f, "cannot be used: no thread could be started ({error})"),
        }
    }
}

impl std::error::Error for CassandraError {}

/// What waits for its turn at a key.
struct Job {
    id: u64,
    give_up_at: Instant,
    act: Act,
}

enum Act {
    Get(Done<Option<Record<Arc<[u8]>>>>),
    Change(Change, Done<Written>),
}

/// What is to be under a key.
struct Change {
    content: Option<Content>,
    condition: Condition,
}

impl Job {
    fn new(id: u64, act: Act) -> Self {
        Self { id, give_up_at: Instant::now() + PATIENCE, act }
    }

    fn refuse(self, inside: &Inside, error: StoreError) {
        match self.act {
            Act::Get(done) => inside.complete(self.id, done, Err(error)),
            Act::Change(_, done) => inside.complete(self.id, done, Err(error)),
        }
    }
}

/// States wait here, and what was submitted after one.
#[derive(Default)]
struct Gate {
    /// What is to be written: the last that was given, and one that could not be.
    wanted: Option<StoreState>,
    /// The last that is there for certain.
    written: StoreState,
    /// Who waits for it.
    dones: Vec<(u64, Done<Written>)>,
    is_running: bool,
    held: Vec<(Box<[u8]>, Job)>,
}

impl Gate {
    /// A state could not be written: what has waited for it, unless a later one is tried now.
    fn want_again(&mut self, state: StoreState) -> Option<Vec<(Box<[u8]>, Job)>> {
        if self.wanted.is_some() {
            return None;
        }
        // Whoever has reserved versions goes by them already. Who has asked for a flush is told that it failed.
        self.wanted = Some(StoreState { versions_reserved: state.versions_reserved, ..self.written });
        self.is_running = false;
        Some(std::mem::take(&mut self.held))
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
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

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

    /// Asks a row until an operation is over.
    async fn operate(
        &self,
        table: &RowTable,
        known: &Known,
        key: &[u8],
        goal: Goal<Content>,
        give_up_at: Instant,
        ttl_s: fn(Option<&[u8]>, u64) -> i32,
    ) -> Result<End<Content>, StoreError> {
        let doubt = known.doubts().get(key).copied();
        let mut operation = Operation::new(self.epoch, Rules::ALL, goal, known.stamp(key, self.epoch), doubt);
        let (mut pause, mut last_told, mut others) = (PAUSE, None, 0);
        let end = loop {
            let ask = operation.ask(self.serials.fetch_add(1, Relaxed));
            let ttl_s = match &ask {
                row::Ask::Read => 0,
                row::Ask::Write { row, .. } => ttl_s(row.content.as_deref(), (self.unix_now)()),
            };
            let answer_by = give_up_at.max(Instant::now() + REQUEST_MIN);
            let asked = timeout_at(answer_by, self.tables.ask(table, key, ask, ttl_s)).await;
            let (heard, told) = asked.unwrap_or_else(|_| (row::Heard::Lost, Some("no answer in time".into())));
            others += u32::from(heard == row::Heard::NotApplied);
            let is_over = operation.on(heard);
            if is_over.is_some() || Instant::now() >= give_up_at {
                break is_over;
            }
            let is_stuck = told.is_some() || others > 1;
            last_told = told.or(last_told);
            if is_stuck {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        };
        known.set_stamp(key, end.as_ref().and_then(|_| operation.stamp_left()));
        match end {
            Some(End::Fenced { unknown }) => {
                self.lose();
                Err(fenced(unknown))
            }
            Some(end) => {
                known.doubts().remove(key);
                Ok(end)
            }
            None => {
                match operation.doubt_left() {
                    Some(doubt) => known.doubts().insert(key.into(), doubt),
                    None => known.doubts().remove(key),
                };
                let told = last_told.unwrap_or_else(|| "others change the row all the time".into());
                let unknown = operation.may_have_changed();
                Err(StoreError { unknown, ..StoreError::refused(StoreErrorKind::Unavailable, told) })
            }
        }
    }

    /// Another server is the owner.
    fn lose(&self) {
        if !self.lease.is_lost() {
            self.lease.lose();
            tracing::error!("another server has taken over the store: nothing is served any more, stop this one");
        }
    }

    async fn run_turns(self: Arc<Self>, key: Box<[u8]>, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            match timeout_at(job.give_up_at, self.in_flight.acquire()).await {
                // It is never closed.
                Ok(_permit) if job.give_up_at > Instant::now() => self.carry_out(&key, job).await,
                _ => {
                    let told = "Cassandra was not asked: others have waited too long for it";
                    job.refuse(&self, StoreError::refused(StoreErrorKind::Unavailable, told));
                }
            }
            next = self.turns.leave(&key);
        }
    }

    async fn carry_out(&self, key: &[u8], Job { id, give_up_at, act }: Job) {
        let operate = |goal| self.operate(&self.tables.items, &self.items, key, goal, give_up_at, item_ttl_s);
        match act {
            Act::Get(done) => {
                let end = operate(Goal::Read).await;
                let outcome = end.and_then(|end| match end {
                    End::Read(None) => Ok(None),
                    End::Read(Some(content)) => {
                        record::decode(&content).map(|found| Some(found.map(Arc::from))).ok_or_else(not_a_record)
                    }
                    other => unreachable!("{other:?} of a read"),
                });
                self.complete(id, done, outcome);
            }
            Act::Change(Change { content, condition }, done) => {
                let fits = self.fits(condition);
                let is_full = {
                    let doubts = self.items.doubts();
                    // What is in doubt already is settled by this.
                    doubts.len() >= DOUBTS_MAX && !doubts.contains_key(key)
                };
                if is_full {
                    let told = "too many writes whose outcome is unknown";
                    self.complete(id, done, Err(StoreError::refused(StoreErrorKind::Busy, told)));
                    return;
                }
                let end = operate(Goal::Change { content, fits }).await;
                let outcome = end.map(|end| match end {
                    End::Changed => {
                        self.counters.writes.fetch_add(1, Relaxed);
                        self.counters.write_batches.fetch_add(1, Relaxed);
                        Written::All
                    }
                    End::NotFitting => Written::Refused { at: 0 },
                    other => unreachable!("{other:?} of a change"),
                });
                self.complete(id, done, outcome);
            }
        }
    }

    /// What a condition asks of a row, as of now.
    fn fits(&self, condition: Condition) -> Option<Fits<Content>> {
        let now = (self.unix_now)();
        let generation = Generation(self.generation.load(Relaxed) as u32);
        let version_of = move |content: Option<&Content>| {
            let record = content.and_then(|content| record::decode(content));
            record.filter(|record| record.is_live(now, generation)).map(|record| record.version)
        };
        match condition {
            Condition::Always => None,
            Condition::Absent => Some(Box::new(move |content| version_of(content).is_none())),
            Condition::Version(version) => Some(Box::new(move |content| version_of(content) == Some(version))),
        }
    }

    /// Writes the states that are wanted, one after the other, then lets go what has waited for them.
    async fn run_gate(self: Arc<Self>) {
        loop {
            let (state, dones) = {
                let mut gate = self.gate();
                let Some(state) = gate.wanted.take() else {
                    gate.is_running = false;
                    for (key, job) in std::mem::take(&mut gate.held) {
                        self.enter(key, job);
                    }
                    return;
                };
                (state, std::mem::take(&mut gate.dones))
            };
            let goal = Goal::Change { content: Some(state::encode(&state).into()), fits: None };
            let end = self.operate_state(goal).await;
            let outcome = end.map(|_| {
                self.gate().written = state;
                self.generation.store(state.generation.0.into(), Relaxed);
                Written::All
            });
            // One that could not be written is wanted still, as far as somebody goes by it already, unless a later one is. What comes
            // next has it tried once more.
            let held = outcome.is_err().then(|| self.gate().want_again(state)).flatten();
            for (id, done) in dones {
                self.complete(id, done, outcome.clone());
            }
            let Some(held) = held else { continue };
            for (_, job) in held {
                let told = "what has to be written before cannot be";
                job.refuse(&self, StoreError::refused(StoreErrorKind::Unavailable, told));
            }
            return;
        }
    }

    async fn operate_state(&self, goal: Goal<Content>) -> Result<End<Content>, StoreError> {
        let give_up_at = Instant::now() + PATIENCE;
        self.operate(&self.tables.state, &self.states, STATE_KEY, goal, give_up_at, |_, _| 0).await
    }

    /// Has a job carried out when it is its turn.
    fn enter(self: &Arc<Self>, key: Box<[u8]>, job: Job) {
        if let Some(job) = self.turns.enter(&key, job) {
            tokio::runtime::Handle::current().spawn(Arc::clone(self).run_turns(key, job));
        }
    }

    /// Renews the lease for as long as the store is open.
    async fn run_renewals(self: Arc<Self>, mut claim: Claim) -> Claim {
        let mut pause = RENEWAL;
        loop {
            if timeout(pause, self.closing.notified()).await.is_ok() || self.lease.is_lost() {
                return claim;
            }
            // Until it is heard, at once again.
            pause = LEASE_PAUSE;
            let asked_ns = boot_now_ns();
            match self.tables.renew(claim.epoch, claim.renewals, &claim.holder).await {
                Ok(true) => {
                    claim.renewals += 1;
                    self.lease.renewed(asked_ns, claim.lease);
                    pause = RENEWAL;
                }
                // It was not heard that an earlier one was applied; or there is another owner.
                Ok(false) => match self.tables.read_owner().await {
                    Ok(Some((_, found))) if found.epoch == claim.epoch && found.holder == claim.holder => {
                        claim.renewals = found.renewals;
                    }
                    Ok(_) => self.lose(),
                    Err(told) => tracing::warn!("the lease of the store could not be renewed ({})", told.line),
                },
                Err(told) => tracing::warn!("the lease of the store could not be renewed ({})", told.line),
            }
        }
    }
}

/// How long a row of an item is kept, in seconds, at `unix_now`; 0: for ever.
fn item_ttl_s(content: Option<&[u8]>, unix_now: u64) -> i32 {
    let end_unix_s = match content.map(record::decode) {
        // Nothing is under the key.
        None => unix_now,
        Some(Some(Record { expires_unix_s: 0, .. }) | None) => return 0,
        Some(Some(Record { expires_unix_s, .. })) => expires_unix_s.max(unix_now),
    };
    match (end_unix_s, end_unix_s - unix_now + ROW_AFTERLIFE_S) {
        (..ROW_END_MAX_UNIX_S, ttl_s @ ..=ROW_TTL_MAX_S) => i32::try_from(ttl_s).unwrap_or(0),
        _ => 0,
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
    /// and of which nothing is heard any more.
    ///
    /// # Errors
    /// [`CassandraError`].
    pub fn open(options: &CassandraOptions) -> Result<Self, CassandraError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("guira-cassandra")
            .enable_all()
            .build()
            .map_err(CassandraError::Threads)?;
        let (inside, state, claim) = runtime.block_on(open(options))?;
        let renewals = runtime.spawn(Arc::clone(&inside).run_renewals(claim));
        let handle = runtime.handle().clone();
        Ok(Self { inside, state, running: Mutex::new(Some((runtime, renewals))), handle })
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

async fn open(options: &CassandraOptions) -> Result<(Arc<Inside>, StoreState, Claim), CassandraError> {
    let tables = Tables::open(&options.address).await?;
    let holder = holder_name();
    let (claim, asked_ns) = take_over(&tables, &holder).await?;
    let lease = Lease::default();
    lease.renewed(asked_ns, claim.lease);
    let inside = Arc::new(Inside {
        tables,
        epoch: claim.epoch,
        lease,
        unix_now: Arc::clone(&options.unix_now),
        serials: AtomicI64::new(1),
        items: Known::new(STAMPS),
        states: Known::new(1),
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
    let state = match read_state(&inside).await {
        Ok(state) => state,
        Err(error) => {
            // The next owner need not wait for one that never served.
            let _ = give_up(&inside.tables, claim).await;
            return Err(error);
        }
    };
    for line in inside.tables.settings_to_tell().await {
        tracing::warn!("{line}");
    }
    inside.generation.store(state.generation.0.into(), Relaxed);
    inside.gate().written = state;
    Ok((inside, state, claim))
}

async fn read_state(inside: &Inside) -> Result<StoreState, CassandraError> {
    let found = inside.operate_state(Goal::Read).await;
    match found.map_err(|error| CassandraError::Failed(error.to_string()))? {
        End::Read(Some(bytes)) => state::decode(&bytes).map_err(|error| match error {
            StateError::OtherFormat(format) => CassandraError::OtherFormat(format),
            StateError::Damaged => CassandraError::Damaged,
        }),
        _ => Ok(StoreState::default()),
    }
}

impl Store for CassandraStore {
    fn state(&self) -> StoreState {
        self.state
    }

    fn may_serve(&self) -> bool {
        self.inside.lease.may_serve(boot_now_ns())
    }

    fn get_now<T>(&self, _: Key<'_>, _: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
        None
    }

    fn get(&self, key: Key<'_>, done: Done<Option<Record<Arc<[u8]>>>>) {
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
                let mut gate = inside.gate();
                gate.wanted = Some(state);
                gate.dones.push((id, done));
                Self::start_gate(inside, &mut gate);
                return;
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
        let mut gate = inside.gate();
        if gate.is_running || gate.wanted.is_some() {
            gate.held.push((key, job));
            Self::start_gate(inside, &mut gate);
        } else {
            inside.enter(key, job);
        }
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

    /// In no order, and each record as it was at some moment of the scan: a Cassandra has neither.
    fn scan(&self, what: Scan, mut visit: Visit, done: Done<()>) {
        let (inside, id) = (Arc::clone(&self.inside), self.inside.begin());
        self.handle.spawn(async move {
            let mut damaged = false;
            let visited = inside.tables.scan(|key, content| {
                let is_wanted = match &what {
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

impl CassandraStore {
    fn start_gate(inside: &Arc<Inside>, gate: &mut Gate) {
        if !std::mem::replace(&mut gate.is_running, true) {
            tokio::runtime::Handle::current().spawn(Arc::clone(inside).run_gate());
        }
    }
}

#[cfg(test)]
#[path = "cassandra/store_tests.rs"]
mod tests;
