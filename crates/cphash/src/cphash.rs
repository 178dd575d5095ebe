//! CPHASH (Metreveli, Zeldovich, Kaashoek, PPoPP'12): the keys are split into partitions, and whoever has requests sends them to
//! the partitions as messages, a batch at a time, and gets the places of the values back.
//!
//! ```text
//! client thread ── requests, a ring for each partition ──> station: partition + heap <── served by a server thread
//!               <── replies, a ring for each partition ──                            (or by a client while that sleeps)
//! ```
//! Few requests at a time are carried out on the spot, on the partition that is held meanwhile (`direct.rs`): messages pay when
//! there are enough of them to fill cache lines. While no server thread is there to take messages, because none is needed, or
//! clients need the cores, a client carries out its batches by itself, partition by partition (`batch.rs`).
//!
//! Always true: when `execute` returns, every message that it sent has been replied to, and every element that it read is given
//! back or pinned by a value being sent; a reply that says "stored" leaves when the element is in its bucket, so that whoever
//! learns of it finds the element there.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use guira_item::{
    Engine, EngineStats, EvictionLog, ItemInfo, Loan, MemoryLimitError, MessageStats, OrderCursor, ReassignError,
    Request, ScanCursor, Sink, Standing, Time,
};
use guira_sync::{
    SpinGuard, SpinLock,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence},
    thread::JoinHandle,
};

use crate::{
    client::Worker,
    config::{Config, ConfigError},
    context::Context,
    crew::{Crew, Look, check_cores},
    group::Group,
    heap::Heap,
    modelled,
    partition::Partition,
    shards::{Common, Held, Shards},
    station::{Served, Station},
};

/// Fewer requests than this are carried out on the spot: spread over the partitions they fill no cache lines.
const MESSAGES_MIN: usize = modelled(64, 4);

/// Messages of one partition that clients have served themselves, or requests in batches that they have carried out, after which
/// server threads are woken.
const HELP_MAX: u32 = modelled(4_096, 2) as u32;

/// Partitions for each server thread, or core if those are more, so that they can be spread anew.
const PARTITIONS_PER_THREAD: usize = 4;

/// A cache in memory whose partitions are served by messages. Cheap to share: clones are the same cache.
#[derive(Clone)]
pub struct Cphash {
    owner: Arc<Owner>,
}

/// The server threads' life.
struct Owner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.crew.stop();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Cphash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shared = &self.owner.shared;
        f.debug_struct("Cphash").field("partitions", &shared.stations.len()).field("crew", &shared.crew).finish()
    }
}

/// A station and its bell.
pub(crate) struct Post {
    pub station: CachePadded<SpinLock<Station>>,
    /// Somebody has sent something.
    pub bell: CachePadded<AtomicBool>,
    /// Messages that clients have served since a server thread did.
    helped: AtomicU32,
}

pub(crate) struct Shared {
    pub common: Common,
    pub stations: Box<[Post]>,
    pub crew: Arc<Crew>,
    /// Requests, in batches that could be messages, that were carried out on the spot since server threads were woken for that.
    unserved: CachePadded<AtomicU32>,
    /// Clients so far, by which they are told apart.
    pub clients: AtomicUsize,
}

impl Cphash {
    /// An empty cache and its server threads.
    ///
    /// # Errors
    /// [`ConfigError`] if the settings make no sense, the memory cannot be reserved or a thread cannot be started.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let cores = config.server_cores.clone();
        let shared = Arc::new(Shared::new(config)?);
        let serving = Arc::clone(&shared);
        let threads =
            shared.crew.start(&cores, move |station| serving.serve(station)).map_err(ConfigError::NoThread)?;
        Ok(Self { owner: Arc::new(Owner { shared, threads }) })
    }

    /// What server threads have served so far; what clients have served by themselves is in [`Worker::cycles`].
    pub fn served(&self) -> Served {
        let mut sum = Served::default();
        for post in &self.owner.shared.stations {
            sum += post.station.lock().served();
        }
        sum
    }
}

impl Shared {
    /// An empty cache, which its crew does not serve yet.
    fn new(config: Config) -> Result<Self, ConfigError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = config.server_threads.unwrap_or(cores);
        // Clients share them too.
        let wanted = (PARTITIONS_PER_THREAD * threads.max(cores)).next_power_of_two();
        let count = config.large_partitions(wanted.min(Common::heaps_max(&config)))?;
        check_cores(&config.server_cores)?;
        let (seed, is_fixed) = (config.hash_seed, config.server_threads_fixed);
        let common = Common::new(config, count, false)?;
        let post = |number: usize| Post {
            station: CachePadded::new(SpinLock::new(Station::new(number, seed ^ number as u64))),
            bell: CachePadded::default(),
            helped: AtomicU32::new(0),
        };
        let stations = (0..count).map(post).collect();
        let crew = Arc::new(Crew::new(threads.min(count), count, is_fixed));
        Ok(Self { common, stations, crew, unserved: CachePadded::default(), clients: AtomicUsize::new(0) })
    }
}

#[cfg(test)]
impl Cphash {
    /// A cache whose crew is started by somebody else.
    #[cfg(shuttle)]
    pub(crate) fn without_threads(config: Config, patience: std::time::Duration) -> Self {
        let mut shared = Shared::new(config).expect("memory");
        Arc::get_mut(&mut shared.crew).expect("nobody else has it").patience = patience;
        Self { owner: Arc::new(Owner { shared: Arc::new(shared), threads: Vec::new() }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Pages of each partition.
    pub(crate) fn pages(&self) -> Vec<usize> {
        let shared = &self.owner.shared;
        (0..shared.groups()).map(|group| shared.with_heap(group, Heap::pages)).collect()
    }

    /// Whether server threads look for messages.
    pub(crate) fn is_looking(&self) -> bool {
        self.owner.shared.crew.is_looking()
    }

    /// Somebody has a partition until the result is dropped.
    pub(crate) fn hold(&self, partition: usize) -> HeldStation<'_> {
        self.owner.shared.hold(partition)
    }

    /// The partition of a key.
    pub(crate) fn partition(&self, key: &[u8]) -> usize {
        let common = &self.owner.shared.common;
        common.partition(common.hash(key))
    }

    /// Clients that stations know of.
    pub(crate) fn seats(&self) -> usize {
        self.owner.shared.stations.iter().map(|post| post.station.lock().seats.len()).sum()
    }
}

impl Shared {
    /// A server thread looks at a station.
    pub fn serve(&self, number: usize) -> Look {
        let post = &self.stations[number];
        if !post.bell.load(Ordering::Relaxed) {
            return Look::Nothing;
        }
        let Some(mut station) = post.station.try_lock() else { return Look::Taken };
        post.bell.store(false, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `ring_bell`: whoever finds the bell still rung has shown its messages before this looks.
        fence(Ordering::SeqCst);
        if post.helped.load(Ordering::Relaxed) > 0 {
            post.helped.store(0, Ordering::Relaxed);
        }
        let served = self.serve_station(&mut station);
        station.count(served);
        Look::Served
    }

    pub fn serve_station(&self, station: &mut Station) -> Served {
        // SAFETY: the station is held.
        let cx = unsafe { self.common.context(self.common.now()) };
        station.serve(&cx)
    }

    /// Tells whoever serves a station that something has come, and serves it if nobody does; returns what.
    #[inline]
    pub fn ring_bell(&self, number: usize) -> Served {
        let post = &self.stations[number];
        // SeqCst: pairs with the fences in `serve` and in `Crew::work`.
        fence(Ordering::SeqCst);
        if !post.bell.load(Ordering::Relaxed) {
            post.bell.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        if self.crew.is_asleep(number) { self.help(number) } else { Served::default() }
    }

    /// Whether a batch of so many requests is to go by message: server threads look for messages now. What does not is counted, and
    /// server threads are woken when it is much.
    fn choose_messages(&self, requests: usize) -> bool {
        if requests < MESSAGES_MIN || self.crew.is_looking() {
            return requests >= MESSAGES_MIN;
        }
        let unserved = self.unserved.load(Ordering::Relaxed).saturating_add(requests as u32);
        self.unserved.store(if unserved > HELP_MAX { 0 } else { unserved }, Ordering::Relaxed);
        if unserved > HELP_MAX {
            self.crew.wake_all();
        }
        false
    }

    /// A client serves a station, if nobody else does; returns what. When that goes on, a server thread is woken.
    pub fn help(&self, number: usize) -> Served {
        let post = &self.stations[number];
        let Some(mut station) = post.station.try_lock() else { return Served::default() };
        let served = self.serve_station(&mut station);
        drop(station);
        let helped = post.helped.load(Ordering::Relaxed).saturating_add(served.messages as u32);
        post.helped.store(helped, Ordering::Relaxed);
        if helped > HELP_MAX {
            post.helped.store(0, Ordering::Relaxed);
            self.crew.wake(number);
        }
        served
    }
}

/// A station under its lock.
pub(crate) struct HeldStation<'a>(pub SpinGuard<'a, Station>);

impl Held for HeldStation<'_> {
    type Supply = Heap;

    #[inline]
    fn parts(&mut self) -> (&mut Partition, &mut Heap) {
        let Station { partition, heap, .. } = &mut *self.0;
        (partition, heap)
    }
}

impl Shards for Shared {
    type Held<'a> = HeldStation<'a>;

    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn group_of(&self, partition: usize) -> usize {
        partition
    }

    #[inline]
    fn hold(&self, partition: usize) -> HeldStation<'_> {
        HeldStation(self.stations[partition].station.lock())
    }

    #[inline]
    fn try_hold(&self, partition: usize) -> Option<HeldStation<'_>> {
        self.stations[partition].station.try_lock().map(HeldStation)
    }

    #[inline]
    fn address(&self, partition: usize) -> *const u8 {
        (&raw const *self.stations[partition].station).cast()
    }

    fn groups(&self) -> usize {
        self.stations.len()
    }

    fn with_heap<R>(&self, group: usize, work: impl FnOnce(&Heap) -> R) -> R {
        work(&self.stations[group].station.lock().heap)
    }

    fn with_group<R>(&self, group: usize, now: Time, work: impl FnOnce(&mut Group<'_>, &Context<'_>) -> R) -> R {
        let mut station = self.stations[group].station.lock();
        // SAFETY: the station is held.
        let cx = unsafe { self.common.context(now) };
        // What was sent before comes before, references that were given back among it.
        station.serve(&cx);
        station.with_group(|group| work(group, &cx))
    }
}

impl Engine for Cphash {
    type Worker = Worker;

    fn worker(&self) -> Worker {
        Worker::new(&self.owner.shared)
    }

    fn execute<S: Sink>(&self, worker: &mut Worker, now: Time, requests: &[Request<'_>], sink: &mut S) {
        let shared = &self.owner.shared;
        shared.common.set_now(now);
        shared.flush_if_due(now);
        if shared.choose_messages(requests.len()) {
            worker.carry_out(now, requests, sink);
        } else {
            worker.carry_out_on_the_spot(now, requests, sink);
        }
    }

    fn prefetch(&self, worker: &mut Worker, keys: &[&[u8]]) {
        worker.prefetch(keys.iter().copied());
    }

    fn flush_all(&self, at: Time, now: Time) {
        self.owner.shared.flush_all(at, now);
    }

    fn flush_due(&self) -> Option<Time> {
        self.owner.shared.flush_due()
    }

    fn stats(&self) -> EngineStats {
        let shared = &self.owner.shared;
        let messages = MessageStats {
            server_threads: shared.crew.members(),
            server_threads_awake: shared.crew.awake(),
            served: self.served().messages,
        };
        EngineStats { messages: Some(messages), ..shared.stats("cphash") }
    }

    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        self.owner.shared.scan(cursor, limit, now, visit)
    }

    fn scan_in_order(
        &self,
        cursor: OrderCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>, Standing),
    ) -> Option<OrderCursor> {
        self.owner.shared.scan_in_order(cursor, limit, now, visit)
    }

    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        self.owner.shared.set_memory_limit(bytes)
    }

    fn reassign_page(&self, _: &mut Worker, now: Time, from: Option<u32>, to: u32) -> Result<(), ReassignError> {
        self.owner.shared.reassign_page(now, from, to)
    }

    fn lend(&self, _: &mut Worker, now: Time, bytes: usize) -> Option<Loan> {
        self.owner.shared.lend(now, bytes)
    }

    fn maintain(&self, _: &mut Worker, now: Time) -> bool {
        // References that were given back while nobody looked.
        for (number, post) in self.owner.shared.stations.iter().enumerate() {
            if post.bell.load(Ordering::Relaxed) {
                self.owner.shared.help(number);
            }
        }
        self.owner.shared.maintain(now)
    }

    fn last_version(&self) -> u64 {
        self.owner.shared.last_version()
    }

    fn skip_versions(&self, last: u64) {
        self.owner.shared.skip_versions(last);
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.owner.shared.log_evictions(log);
    }
}
