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
//! Lock order: shard, generation, state; and the engine's and the store's own below.

mod chain;
mod late;
mod sinks;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use guira_item::{
    Answer, Clock, Death, Delete, Engine, EngineStats, EvictionLog, Expiry, Get, Hit, ItemInfo, Key, Loan,
    MemoryLimitError, Operation, ReassignError, Request, Restore, ScanCursor, Service, Sink, Ticket, Time, Wake,
    store::{Condition, Generation, Record, Store, StoreError, StoreErrorKind, StoreState, Write, Written},
};

use chain::{Base, Chain, Item, Next, Owned, Reply, Setting, UseBefore};
use late::{Flush, Late, Mail, Mailbox, PostOffice, ReplyTo, give};
use sinks::{Kept, Single, Split};

/// Shards: so many that two threads seldom want the same one.
const SHARDS: usize = 1 << 10;

/// Versions that are reserved at a time: few writes of the state, and few versions lost at a restart.
const VERSIONS_AT_ONCE: u64 = 1 << 20;

/// The last version before they begin again at 1, which every engine can have: 2^38 - 2^33. A shard comes there after five months of
/// twenty thousand changes a second.
pub(crate) const VERSION_LAST: u64 = (1 << 38) - (1 << 33);

/// Operations that may be on their way to or from the store, which take some hundred bytes each beside their values.
const OPERATIONS_MAX: usize = 1 << 18;

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
    /// The same in Unix time, as it was written.
    flush_at_unix_s: AtomicU64,
    /// What was last given to the store.
    state: Mutex<StoreState>,
    /// Versions up to here are reserved.
    versions_reserved: AtomicU64,
    /// The highest version that was given.
    highest_version: AtomicU64,
    /// Operations on their way.
    operations: AtomicUsize,
    late_len: Arc<AtomicUsize>,
}

/// What a `flush_all` changes for everybody.
#[derive(Clone, Copy, Debug)]
struct Versions {
    generation: Generation,
    /// Versions go on from here.
    floor: u64,
    /// Counts the floors.
    floors: u64,
}

/// Keys with something on its way.
#[derive(Default)]
struct Shard {
    chains: HashMap<Box<[u8]>, Chain<ReplyTo>>,
    last_version: u64,
    /// The floor that `last_version` has heeded.
    floors: u64,
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

/// Whether an engine has been asked for an item already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AskedEngine {
    No,
    /// It has not the item, or may not answer: then it has told how used the item was. Whoever has put it there since has put it
    /// into the store before.
    InVain(Option<UseBefore>),
}

/// A batch that is being answered.
struct Asking {
    ticket: Ticket,
    serial: u64,
    /// The first request that is answered later, and the replies from there on.
    late: Option<(usize, Vec<Option<Reply>>)>,
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
            flush_at_unix_s: AtomicU64::new(state.flush_at_unix_s),
            state: Mutex::new(state),
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

    fn versions(&self) -> Versions {
        *self.generation.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An item as the server has it.
    fn base_of(&self, record: Option<Record<Arc<[u8]>>>, now: Time) -> Base {
        let Some(record) = record else { return Base::Absent(None) };
        let generation = self.versions().generation;
        if record.generation < generation {
            return Base::Absent(Some(Death::Flushed));
        }
        let clock = (self.config.clock)();
        if !record.is_live(clock.to_unix_s(now), generation) {
            return Base::Absent(Some(Death::Expired));
        }
        let Record { flags, expires_unix_s, version, generation, stale, win_sent, value } = record;
        let expiry = match expires_unix_s {
            0 => Expiry::NEVER,
            unix_s => {
                let left_s = u32::try_from(unix_s - clock.to_unix_s(now)).unwrap_or(u32::MAX);
                Expiry::at(Time(left_s.saturating_add(now.0)))
            }
        };
        Base::Present(Item { flags, version, expiry, generation, stale, win_sent, fetched: false, idle_s: 0, value })
    }

    fn record_of(&self, item: &Item) -> Record<Arc<[u8]>> {
        let expires_unix_s = match item.expiry {
            Expiry::NEVER => 0,
            expiry => (self.config.clock)().to_unix_s(Time(expiry.to_raw())),
        };
        let Item { flags, version, generation, stale, win_sent, .. } = *item;
        Record { flags, expires_unix_s, version, generation, stale, win_sent, value: Arc::clone(&item.value) }
    }

    /// What the engine has under a key, if it can be relied on.
    fn peek(&self, worker: &mut Worker<E>, key: Key<'_>) -> Option<Base> {
        let mut sink = Single::default();
        // Before the item: should a generation begin meanwhile, the item belongs to the one before.
        let generation = self.versions().generation;
        let operation = Operation::Get(Get { bump: false, tells: true, ..Get::PLAIN });
        self.engine.execute(&mut worker.engine, worker.now, &[Request { key, operation }], &mut sink);
        // An engine that shows no versions has the store asked.
        let (hit, value) = sink.found.filter(|(hit, _)| hit.cas != 0)?;
        Some(Base::Present(Item {
            flags: hit.flags,
            version: hit.cas,
            expiry: hit.expiry,
            generation,
            stale: hit.stale,
            win_sent: hit.win_sent,
            fetched: hit.fetched,
            idle_s: hit.idle_s,
            value,
        }))
    }

    /// Tells the engine that an item was read.
    fn mark_used(&self, worker: &mut Worker<E>, key: Key<'_>) {
        let operation = Operation::Get(Get { value: false, ..Get::PLAIN });
        self.engine.execute(&mut worker.engine, worker.now, &[Request { key, operation }], &mut Single::default());
    }

    /// Has the engine hold what the store has. The caller holds the key's shard.
    fn install(&self, worker: &mut Worker<E>, key: Key<'_>, base: &Base, replaces: bool) {
        let versions = self.generation.read().unwrap_or_else(PoisonError::into_inner);
        let is_in = match base {
            Base::Present(item) if item.generation >= versions.generation => {
                let Item { flags, version, expiry, stale, win_sent, fetched, idle_s, .. } = *item;
                let value = &item.value;
                let (recent, spared) = (false, false);
                let restore = Restore {
                    replaces,
                    flags,
                    expiry,
                    version,
                    fetched,
                    stale,
                    win_sent,
                    idle_s,
                    recent,
                    spared,
                    value,
                };
                let mut sink = Single::default();
                let request = Request { key, operation: Operation::Restore(restore) };
                self.engine.execute(&mut worker.engine, worker.now, &[request], &mut sink);
                match sink.answer {
                    Some(Answer::Stored { cas }) => cas == version || cas == 0,
                    // Somebody's read had put it there.
                    Some(Answer::NotStored) => true,
                    // Too large for the engine, or no memory: it is served from the store.
                    _ => false,
                }
            }
            _ => false,
        };
        if !is_in {
            let operation = Operation::Delete(Delete { cas: None, invalidate: None });
            self.engine.execute(&mut worker.engine, worker.now, &[Request { key, operation }], &mut Single::default());
        }
    }

    /// Goes on with a chain for as long as nothing has to be waited for. The caller holds the key's shard, and puts the chain back if
    /// this returns true.
    fn drive(&self, worker: &mut Worker<E>, shard: &mut Shard, key: Key<'_>, chain: &mut Chain<ReplyTo>) -> bool {
        let mut read = false;
        loop {
            let versions = self.versions();
            if shard.floors != versions.floors {
                shard.floors = versions.floors;
                shard.last_version = shard.last_version.max(versions.floor);
            }
            let before = shard.last_version;
            let mut setting = Setting {
                now: worker.now,
                generation: versions.generation,
                key_len: key.as_bytes().len(),
                len_max: self.config.item_len_max,
                last_version: &mut shard.last_version,
                next_version,
                versions_shown: self.config.versions_shown,
            };
            match chain.advance(&mut setting, &mut worker.out) {
                Next::Read => {
                    if let Some(base) = self.peek(worker, key) {
                        chain.on_read(base);
                        continue;
                    }
                    let now = worker.now;
                    let found =
                        self.store.get_now(key, |record| self.base_of(record.map(|record| record.map(Arc::from)), now));
                    if let Some(base) = found {
                        chain.on_read(base);
                        read = true;
                        continue;
                    }
                    let (post, mailbox) = (Arc::clone(&self.post), Arc::clone(&worker.mailbox));
                    let name: Box<[u8]> = key.as_bytes().into();
                    self.store.get(key, Box::new(move |found| post.post(&mailbox, Mail::Read(name, found))));
                    return true;
                }
                Next::Write => {
                    if shard.last_version != before {
                        self.reserve(shard.last_version);
                    }
                    let name: Box<[u8]> = key.as_bytes().into();
                    let write = match chain.written() {
                        Base::Present(item) if !item.expiry.is_past(worker.now) => {
                            let record = self.record_of(item);
                            Write::Put { key: name.clone(), record, condition: Condition::Always }
                        }
                        _ => Write::Delete { key: name.clone(), condition: Condition::Always },
                    };
                    let (post, mailbox) = (Arc::clone(&self.post), Arc::clone(&worker.mailbox));
                    let done = Box::new(move |written| post.post(&mailbox, Mail::Written(name, written)));
                    self.store.write(vec![write], done);
                    return true;
                }
                Next::Rest => {
                    if let Base::Present(item) = chain.base() {
                        if read {
                            self.install(worker, key, chain.base(), false);
                        } else if chain.is_used() && item.fetched {
                            self.mark_used(worker, key);
                        }
                    }
                    return false;
                }
            }
        }
    }

    /// Makes sure that no restart gives versions up to `version` again.
    fn reserve(&self, version: u64) {
        self.highest_version.fetch_max(version, Relaxed);
        if version <= self.versions_reserved.load(Relaxed) {
            return;
        }
        let mut state = self.state();
        if version > state.versions_reserved {
            state.versions_reserved = version + VERSIONS_AT_ONCE;
            // Before whatever has the version. It is only refused if nothing is written any more.
            self.store.write(vec![Write::State(*state)], Box::new(|_| {}));
            self.versions_reserved.store(state.versions_reserved, Relaxed);
        }
    }

    /// Begins the next generation if its time has come.
    fn flush_if_due(&self, now: Time) {
        let is_due = || (1..=now.0).contains(&self.flush_at_s.load(Relaxed));
        if !is_due() {
            return;
        }
        let mut versions = self.generation.write().unwrap_or_else(PoisonError::into_inner);
        // Others wait for whoever was first.
        if is_due() {
            let mut state = self.state();
            state.generation = Generation(state.generation.0 + 1);
            // Unless another has taken its place meanwhile.
            if state.flush_at_unix_s == self.flush_at_unix_s.load(Relaxed) {
                state.flush_at_unix_s = 0;
            }
            // That it was to be is in the store already.
            self.store.write(vec![Write::State(*state)], Box::new(|_| {}));
            self.begin(&mut versions, state.generation, now);
            self.flush_at_s.store(0, Relaxed);
        }
    }

    /// A `flush_all` may not have been written: what is written next says that it is not to be, unless another has come since. Were it
    /// left, a store that goes on would have it some day, and what was stored meanwhile would be gone with the next start.
    fn take_back(&self, flush: Flush) {
        let begun = self.versions().generation;
        let mut state = self.state();
        match flush {
            Flush::Begin(generation) if state.generation == generation && begun < generation => {
                state.generation = begun;
            }
            Flush::At(_, unix_s) if state.flush_at_unix_s == unix_s => {
                state.flush_at_unix_s = self.flush_at_unix_s.load(Relaxed);
            }
            _ => return,
        }
        self.store.write(vec![Write::State(*state)], Box::new(|_| {}));
    }

    /// Nothing of earlier generations is there from now on.
    fn begin(&self, versions: &mut Versions, generation: Generation, now: Time) {
        if versions.generation < generation {
            versions.generation = generation;
            // An engine tells what was flushed by its version.
            versions.floor = self.highest_version.load(Relaxed);
            versions.floors += 1;
            self.engine.flush_all(now, now);
        }
    }

    /// Answers at once, or has a chain answer later.
    fn ask(
        &self,
        worker: &mut Worker<E>,
        request: &Request<'_>,
        asking: &Asking,
        index: usize,
        asked: AskedEngine,
    ) -> Option<Reply> {
        let key = request.key;
        let mut shard = self.shard(key.as_bytes());
        let reply_to = |mailbox: &Arc<Mailbox>| {
            let at = asking.late.as_ref().map_or(0, |(first, _)| index - first) as u32;
            ReplyTo { mailbox: Arc::clone(mailbox), ticket: asking.ticket, serial: asking.serial, at }
        };
        let mut operation = Owned::of(&request.operation);
        if let AskedEngine::InVain(use_before) = asked {
            operation.use_before = use_before;
        }
        if !shard.chains.contains_key(key.as_bytes())
            && let Operation::Get(get) = &request.operation
            && get.touch.is_none()
            && operation.use_before.is_none()
        {
            match self.read_now(worker, key, get, asked) {
                Ok(reply) => return Some(reply),
                Err(use_before) => operation.use_before = use_before,
            }
        }
        if self.operations.fetch_add(1, Relaxed) >= OPERATIONS_MAX {
            self.operations.fetch_sub(1, Relaxed);
            return Some(Reply::failed(&StoreError::refused(StoreErrorKind::Busy, "too much at a time")));
        }
        if let Some(chain) = shard.chains.get_mut(key.as_bytes()) {
            chain.push(operation, worker.now, reply_to(&worker.mailbox));
            return None;
        }
        let mut chain = Chain::new();
        chain.push(operation, worker.now, reply_to(&worker.mailbox));
        if self.drive(worker, &mut shard, key, &mut chain) {
            shard.chains.insert(key.as_bytes().into(), chain);
            return None;
        }
        self.operations.fetch_sub(1, Relaxed);
        let (_, reply) = worker.out.pop().expect("what rests has answered");
        debug_assert!(worker.out.is_empty(), "nobody else has asked");
        Some(reply)
    }

    /// Answers a read of a key without a chain from the engine, or from what the store has in memory. If it cannot, it tells how used the
    /// item was before the engine was asked for it. The caller holds the key's shard.
    fn read_now(
        &self,
        worker: &mut Worker<E>,
        key: Key<'_>,
        get: &Get,
        asked: AskedEngine,
    ) -> Result<Reply, Option<UseBefore>> {
        if asked == AskedEngine::No {
            let mut sink = Single::default();
            let plain = Request { key, operation: Operation::Get(only_reading(get)) };
            self.engine.execute(&mut worker.engine, worker.now, &[plain], &mut sink);
            if let Some((hit, value)) = sink.found {
                if sinks::wins(get, &hit) {
                    return Err(Some(UseBefore::of(&hit)));
                }
                return Ok(Reply::Hit(hit, get.value.then_some(value)));
            }
        }
        let now = worker.now;
        let base = self
            .store
            .get_now(key, |record| self.base_of(record.map(|record| record.map(Arc::from)), now))
            .ok_or(None)?;
        match base {
            Base::Absent(death) if get.vivify.is_none() => Ok(Reply::Answer(Answer::Miss, death)),
            Base::Present(mut item) => {
                item.fetched = get.bump;
                let base = Base::Present(item);
                self.install(worker, key, &base, false);
                let Base::Present(item) = base else { unreachable!("it is") };
                let hit = Hit {
                    flags: item.flags,
                    cas: if self.config.versions_shown { item.version } else { 0 },
                    value_len: item.value.len(),
                    expiry_before: item.expiry,
                    expiry: item.expiry,
                    stale: item.stale,
                    win_sent: item.win_sent,
                    total_len: key.as_bytes().len() + item.value.len(),
                    ..Hit::default()
                };
                if sinks::wins(get, &hit) {
                    return Err(Some(UseBefore::of(&hit)));
                }
                Ok(Reply::Hit(hit, get.value.then_some(item.value)))
            }
            _ => Err(None),
        }
    }

    /// An answer has been found, or will come.
    fn settle<T: Sink>(asking: &mut Asking, index: usize, reply: Option<Reply>, sink: &mut T) {
        match (&mut asking.late, reply) {
            (None, Some(reply)) => give(reply, index, sink),
            (None, None) => asking.late = Some((index, vec![None])),
            (Some((_, replies)), reply) => replies.push(reply),
        }
    }

    /// Answers a run of reads from the engine, and what it cannot answer one by one.
    fn read_run<T: Sink>(
        &self,
        worker: &mut Worker<E>,
        requests: &[Request<'_>],
        asking: &mut Asking,
        offset: usize,
        sink: &mut T,
    ) {
        let (mut kept, mut room) = (std::mem::take(&mut worker.kept), std::mem::take(&mut worker.room));
        let mut split = Split::new(sink, offset, requests, &mut kept, &mut room);
        if requests.iter().all(|request| matches!(&request.operation, Operation::Get(get) if *get == only_reading(get)))
        {
            self.engine.execute(&mut worker.engine, worker.now, requests, &mut split);
        } else {
            let plain: Vec<Request<'_>> = requests.iter().map(plainly).collect();
            self.engine.execute(&mut worker.engine, worker.now, &plain, &mut split);
        }
        let first = requests.len() - kept.len();
        // Keys that are asked for once more, each with whether a read of this run changes the item: the engine has told those behind it
        // what was before.
        let mut again: HashMap<&[u8], bool> = HashMap::new();
        for (at, kept) in kept.drain(..).enumerate() {
            let (request, index) = (&requests[first + at], offset + first + at);
            let name = request.key.as_bytes();
            let asked = match kept {
                Kept::Reply(reply) => match (again.get(name), &reply) {
                    (Some(true), Reply::Hit(hit, _)) => AskedEngine::InVain(Some(UseBefore::of(hit))),
                    (Some(_), _) => AskedEngine::No,
                    (None, _) => {
                        Self::settle(asking, index, Some(reply), sink);
                        continue;
                    }
                },
                Kept::Open(use_before) => {
                    *again.entry(name).or_default() |= use_before.is_some();
                    AskedEngine::InVain(use_before)
                }
            };
            let reply = self.ask(worker, request, asking, index, asked);
            Self::settle(asking, index, reply, sink);
        }
        (worker.kept, worker.room) = (kept, room);
    }

    /// Brings replies to whoever waits for them.
    fn distribute(&self, worker: &mut Worker<E>) {
        let mut out = std::mem::take(&mut worker.out);
        self.operations.fetch_sub(out.len(), Relaxed);
        for (reply_to, reply) in out.drain(..) {
            self.bring(worker, reply_to, reply);
        }
        worker.out = out;
    }

    fn bring(&self, worker: &mut Worker<E>, reply_to: ReplyTo, reply: Reply) {
        if Arc::ptr_eq(&reply_to.mailbox, &worker.mailbox) {
            worker.late.put(&reply_to, reply);
        } else {
            let mailbox = Arc::clone(&reply_to.mailbox);
            self.post.post(&mailbox, Mail::Reply(reply_to, reply));
        }
    }

    /// The store has read or written an item.
    fn go_on(
        &self,
        worker: &mut Worker<E>,
        name: &[u8],
        heed: impl FnOnce(&Self, &mut Worker<E>, Key<'_>, &mut Chain<ReplyTo>),
    ) {
        let key = Key::new(name).expect("what was asked for has a key");
        let mut shard = self.shard(name);
        let (name, mut chain) = shard.chains.remove_entry(name).expect("it waits for this");
        heed(self, worker, key, &mut chain);
        if self.drive(worker, &mut shard, key, &mut chain) {
            shard.chains.insert(name, chain);
        }
        drop(shard);
        self.distribute(worker);
    }

    /// Sees to all mail.
    fn open_all(&self, worker: &mut Worker<E>) {
        let mut mail = std::mem::take(&mut worker.mail);
        worker.mailbox.take(&mut mail);
        for letter in mail.drain(..) {
            self.open(worker, letter);
        }
        worker.mail = mail;
    }

    fn open(&self, worker: &mut Worker<E>, letter: Mail) {
        match letter {
            Mail::Reply(reply_to, reply) => worker.late.put(&reply_to, reply),
            Mail::Read(name, found) => self.go_on(worker, &name, |this, worker, key, chain| match found {
                Ok(record) => {
                    let base = this.base_of(record, worker.now);
                    if let Base::Present(_) = base {
                        this.install(worker, key, &base, false);
                    }
                    chain.on_read(base);
                }
                Err(error) => chain.on_read_failed(&error, &mut worker.out),
            }),
            Mail::Written(name, written) => {
                self.go_on(worker, &name, |this, worker, key, chain| match written.as_ref().map(expect_all) {
                    Ok(()) => {
                        this.install(worker, key, chain.written(), true);
                        chain.on_written(Ok(()), &mut worker.out);
                    }
                    Err(error) => {
                        if error.unknown {
                            // What the engine has may be old.
                            this.install(worker, key, &Base::Unknown, true);
                        }
                        chain.on_written(Err(error), &mut worker.out);
                    }
                })
            }
            Mail::Flushed(reply_to, flush, written) => {
                let reply = match written.as_ref().map(expect_all) {
                    Ok(()) => {
                        match flush {
                            Flush::Begin(generation) => {
                                let mut versions = self.generation.write().unwrap_or_else(PoisonError::into_inner);
                                self.begin(&mut versions, generation, worker.now);
                            }
                            Flush::At(second, unix_s) => {
                                // Unless another has overtaken it.
                                let state = self.state();
                                if state.flush_at_unix_s == unix_s {
                                    self.flush_at_unix_s.store(unix_s, Relaxed);
                                    self.flush_at_s.store(second, Relaxed);
                                }
                            }
                        }
                        Reply::Answer(Answer::Deleted, None)
                    }
                    Err(error) => {
                        self.take_back(flush);
                        Reply::failed(error)
                    }
                };
                self.bring(worker, reply_to, reply);
            }
        }
    }
}

fn expect_all(written: &Written) {
    assert_eq!(*written, Written::All, "nothing was written under a condition");
}

fn next_version(last: u64) -> u64 {
    if last >= VERSION_LAST { 1 } else { last + 1 }
}

/// A read without what might change the item.
fn only_reading(get: &Get) -> Get {
    Get { wins: false, vivify: None, recache: None, ..*get }
}

fn plainly<'r>(request: &Request<'r>) -> Request<'r> {
    match &request.operation {
        Operation::Get(get) => Request { operation: Operation::Get(only_reading(get)), ..*request },
        _ => *request,
    }
}

fn may_be_read(request: &Request<'_>) -> bool {
    matches!(&request.operation, Operation::Get(get) if get.touch.is_none())
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
                Self::settle(&mut asking, at, reply, sink);
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
        let serial = worker.late.serial();
        worker.late.open(ticket, serial, 0, vec![None]);
        let reply_to = ReplyTo { mailbox: Arc::clone(&worker.mailbox), ticket, serial, at: 0 };
        let (post, mailbox) = (Arc::clone(&self.post), Arc::clone(&worker.mailbox));
        let mut state = self.state();
        let flush = if at <= now {
            state.generation = Generation(state.generation.0 + 1);
            state.flush_at_unix_s = 0;
            // One that was to come has been overtaken.
            self.flush_at_s.store(0, Relaxed);
            Flush::Begin(state.generation)
        } else {
            state.flush_at_unix_s = (self.config.clock)().to_unix_s(at);
            Flush::At(at.0, state.flush_at_unix_s)
        };
        let done = Box::new(move |written| post.post(&mailbox, Mail::Flushed(reply_to, flush, written)));
        self.store.write(vec![Write::State(*state)], done);
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
