//! A cache in front of a store, as a [`Service`]: the engine answers what it has, the store is the truth.
//!
//! ```text
//! reads   engine, in one run ---- hit ----> answered
//!           | miss
//!           v
//!         chain of the key, if there is one; else the store at once (memory) ----> engine, answered
//!           | that would wait for a disk
//!           v
//!         chain -> store, later -> engine, everybody who has come meanwhile is answered
//! changes chain -> applied to what is there -> store, later -> engine -> answered
//! ```
//! Always true, which is why no answer is older than one that was given:
//! - what the engine has of an item is what the store has: the engine gets a change after the store has it, and before anybody is
//!   told; what could not be put into the engine is taken out of it;
//! - whatever asks the store about a key holds the key's shard or stands in the key's chain, so that nothing old is put into the engine
//!   beside a change;
//! - versions are given here, under the shard, and reserved in the store before they are used: they grow over restarts and deletes;
//! - what the engine has is served only while the store says that nobody else can have changed it, asked once the requests have come;
//! - an item belongs to the generation it was written in; a `flush_all` begins the next one in the store, then here and in the engine
//!   at one moment, so that a change that was on its way belongs to what was flushed.
//!
//! Lock order: shard, generation, flushes; and the engine's and the store's own below.

mod asking;
mod cached_item;
mod driving;
mod flushes;
mod generations;
mod mail;
mod reads;
mod sinks;
mod stored_item;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use guira_chain::{Chain, Late, Place, Reply, give};
use guira_item::{
    Answer, Clock, Engine, EngineStats, EvictionLog, Failure, ItemInfo, Loan, MemoryLimitError, ReassignError, Request,
    ScanCursor, Service, Sink, Ticket, Time, Wake,
    store::{Store, StoreError, StoreErrorKind},
};

use asking::{AskedEngine, Asking, OPERATIONS_MAX};
use flushes::Flushes;
use generations::Versions;
use mail::{Mail, Mailbox, PostOffice, ReplyTo};
use reads::may_be_read;
use sinks::Kept;

pub(crate) use generations::VERSION_LAST;

/// Shards: so many that two threads seldom want the same one.
const SHARDS: usize = 1 << 10;

/// Ties the server's time to the wall clock, as it is now.
pub type ClockNow = Arc<dyn Fn() -> Clock + Send + Sync>;

/// How a cache stands before its store.
#[derive(Clone)]
pub struct WriteThroughConfig {
    /// The wall clock: items expire by it, over restarts too.
    pub clock: ClockNow,
    /// Bytes of a key and a value together beyond which an item is refused.
    pub item_len_max: usize,
    /// Bytes that the values of late answers may take: further ones fail.
    pub late_len_max: usize,
    /// Clients are told versions; without, all are 0, and none fits.
    pub versions_shown: bool,
}

impl fmt::Debug for WriteThroughConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock: _, item_len_max, late_len_max, versions_shown } = self;
        f.debug_struct("WriteThroughConfig")
            .field("item_len_max", item_len_max)
            .field("late_len_max", late_len_max)
            .field("versions_shown", versions_shown)
            .finish_non_exhaustive()
    }
}

/// An engine before a store.
pub struct WriteThrough<E, S> {
    engine: Arc<E>,
    store: Arc<S>,
    config: WriteThroughConfig,
    shards: Box<[Mutex<Shard>]>,
    post: Arc<PostOffice>,
    /// Held for reading while an item is put into the engine, for writing while a generation begins.
    generation: RwLock<Versions>,
    /// The second of the server's time at which the next generation begins, if that is written already; 0: none.
    flush_at_s: AtomicU32,
    flushes: Mutex<Flushes>,
    /// As [`Flushes::is_settled`].
    is_settled: AtomicBool,
    /// The state of a generation that began by itself may not have been written.
    due_failed: Arc<AtomicBool>,
    /// Versions up to here are reserved.
    versions_reserved: AtomicU64,
    /// The highest version that was given.
    highest_version: AtomicU64,
    /// Operations on their way.
    operations: AtomicUsize,
    late_len: Arc<AtomicUsize>,
}

/// Keys with something on its way.
#[derive(Default)]
struct Shard {
    chains: HashMap<Box<[u8]>, Chain<ReplyTo>>,
    last_version: u64,
    /// The floor that `last_version` has heeded.
    floors: u64,
}

impl Shard {
    /// Versions go on from the latest floor.
    fn heed(&mut self, versions: Versions) {
        if self.floors != versions.floors {
            self.floors = versions.floors;
            self.last_version = self.last_version.max(versions.floor);
        }
    }
}

/// What a thread needs to use it.
pub struct Worker<E: Engine> {
    engine: E::Worker,
    mailbox: Arc<Mailbox>,
    post: Arc<PostOffice>,
    late: Late,
    mail: Vec<Mail>,
    kept: Vec<Kept>,
    room: Vec<u8>,
    out: Vec<(ReplyTo, Reply)>,
    now: Time,
}

impl<E: Engine> Drop for Worker<E> {
    fn drop(&mut self) {
        self.post.close(&self.mailbox);
    }
}

impl<E: Engine, S: Store> WriteThrough<E, S> {
    /// A cache before a store; the engine is empty.
    pub fn new(engine: Arc<E>, store: Arc<S>, config: WriteThroughConfig) -> Self {
        let state = store.state();
        let first = Versions { generation: state.generation, floor: state.versions_reserved, floors: 1 };
        let made = Self {
            engine,
            store,
            config,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            post: Arc::default(),
            generation: RwLock::new(first),
            flush_at_s: AtomicU32::new(0),
            flushes: Mutex::new(Flushes::new(state)),
            is_settled: AtomicBool::new(true),
            due_failed: Arc::default(),
            versions_reserved: AtomicU64::new(state.versions_reserved),
            highest_version: AtomicU64::new(state.versions_reserved),
            operations: AtomicUsize::new(0),
            late_len: Arc::default(),
        };
        if state.flush_at_unix_s != 0 {
            // Time may have come while nobody served. If not, it is a second of the server's time again.
            let clock = (made.config.clock)();
            let start = clock.time(0);
            let left_s = state.flush_at_unix_s.saturating_sub(clock.to_unix_s(start));
            made.flush_at_s.store(u32::try_from(left_s).unwrap_or(u32::MAX).saturating_add(start.0), Relaxed);
            made.flush_if_due(start);
        }
        made
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let hash = crc32fast::hash(key) as usize;
        // A panic while a shard was held ends the server: nothing goes on from what it has left.
        self.shards[hash % SHARDS].lock().expect("nobody panics with a shard")
    }
}

impl<E: Engine, S: Store> Service for WriteThrough<E, S> {
    type Worker = Worker<E>;

    fn worker(&self, wake: Wake) -> Worker<E> {
        Worker {
            engine: self.engine.worker(),
            mailbox: self.post.open(wake),
            post: Arc::clone(&self.post),
            late: Late::new(Arc::clone(&self.late_len), self.config.late_len_max),
            mail: Vec::new(),
            kept: Vec::new(),
            room: Vec::new(),
            out: Vec::new(),
            now: Time::default(),
        }
    }

    fn submit<T: Sink>(
        &self,
        worker: &mut Worker<E>,
        now: Time,
        ticket: Ticket,
        requests: &[Request<'_>],
        sink: &mut T,
    ) -> usize {
        worker.now = worker.now.max(now);
        // After the requests have come, so that what is served now was true at a moment when somebody waited for it.
        if !self.store.may_serve() {
            let error = StoreError::refused(StoreErrorKind::Unavailable, "another may be the owner of the store");
            (0..requests.len()).for_each(|at| give(Reply::failed(&error), at, sink));
            return requests.len();
        }
        self.flush_if_due(worker.now);
        let mut asking = Asking { ticket, serial: worker.late.serial(), late: None };
        let mut at = 0;
        while let Some(request) = requests.get(at) {
            if asking.late.is_none() && may_be_read(request) {
                let len = requests[at..].iter().take_while(|request| may_be_read(request)).count();
                self.read_run(worker, &requests[at..at + len], &mut asking, at, sink);
                at += len;
            } else {
                let reply = self.ask(worker, request, &asking, at, AskedEngine::No);
                asking.settle(at, reply, sink);
                at += 1;
            }
        }
        match asking.late {
            None => requests.len(),
            Some((first, replies)) => {
                worker.late.open(ticket, asking.serial, first, replies);
                first
            }
        }
    }

    fn prefetch(&self, worker: &mut Worker<E>, keys: &[&[u8]]) {
        self.engine.prefetch(&mut worker.engine, keys);
    }

    fn next_ready(&self, worker: &mut Worker<E>) -> Option<Ticket> {
        self.open_all(worker);
        worker.late.next_ready()
    }

    fn deliver<T: Sink>(&self, worker: &mut Worker<E>, ticket: Ticket, sink: &mut T) {
        worker.late.deliver(ticket, sink);
    }

    fn abandon(&self, worker: &mut Worker<E>, ticket: Ticket) {
        worker.late.abandon(ticket);
    }

    fn flush_all(&self, worker: &mut Worker<E>, at: Time, now: Time, ticket: Ticket) -> Option<Answer> {
        worker.now = worker.now.max(now);
        self.flush_if_due(worker.now);
        if self.operations.fetch_add(1, Relaxed) >= OPERATIONS_MAX {
            self.operations.fetch_sub(1, Relaxed);
            return Some(Answer::Failed(Failure::Busy));
        }
        let serial = worker.late.serial();
        worker.late.open(ticket, serial, 0, vec![None]);
        let reply_to = ReplyTo { mailbox: Arc::clone(&worker.mailbox), place: Place { ticket, serial, at: 0 } };
        self.want_flush(at, now, reply_to);
        None
    }

    fn stats(&self) -> EngineStats {
        EngineStats { store: Some(self.store.stats()), ..self.engine.stats() }
    }

    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        self.engine.scan(cursor, limit, now, visit)
    }

    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        self.engine.set_memory_limit(bytes)
    }

    fn reassign_page(
        &self,
        worker: &mut Worker<E>,
        now: Time,
        from: Option<u32>,
        to: u32,
    ) -> Result<(), ReassignError> {
        self.engine.reassign_page(&mut worker.engine, now, from, to)
    }

    fn lend(&self, worker: &mut Worker<E>, now: Time, bytes: usize) -> Option<Loan> {
        self.engine.lend(&mut worker.engine, now, bytes)
    }

    fn maintain(&self, worker: &mut Worker<E>, now: Time) -> bool {
        worker.now = worker.now.max(now);
        self.flush_if_due(now);
        // Of workers that have ended.
        self.open_all(worker);
        self.engine.maintain(&mut worker.engine, now)
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.engine.log_evictions(log);
    }
}

impl<E, S> fmt::Debug for WriteThrough<E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteThrough").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "write_through/write_through_tests.rs"]
mod tests;
