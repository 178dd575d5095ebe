//! The engine itself: a batch is hashed, its buckets are asked for, then its items, and then each request is carried out in
//! order, by the optimistic read or by the locked change.

use std::ptr::NonNull;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use guira_arena::{Arena, PAGE_LEN, Place, Words};
use guira_cuckoo::{Index, LockedPayload, Probe, SEGMENT_BYTES, SegmentSource};
use guira_item::{
    ClassStats, Death, Engine, EngineStats, EvictionLog, ItemInfo, Key, Loan, MemoryLimitError, Operation, OrderCursor,
    ReassignError, Request, Restore, ScanCursor, Sink, Standing, Time,
};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::{
    config::{Config, ConfigError},
    counters::Totals,
    item::{self, Header, More},
    lending,
    magazine::Station,
    policy,
    slabs::Slabs,
    sweep::Sweep,
    versions::StripeVersions,
};

/// Requests whose cache lines are asked for at a time: enough to keep the memory busy, few enough to stay in the first cache.
const PIPELINE_LEN: usize = 32;

/// The index begins with one segment for so many pages.
const PAGES_PER_FIRST_SEGMENT: usize = 256;

/// A cache in memory. Cheap to share: clones are the same cache.
#[derive(Clone, Debug)]
pub struct Memc3 {
    shared: Arc<Shared>,
}

/// What one thread needs to use the engine.
#[derive(Debug)]
pub struct Worker {
    pub(crate) station: Arc<Station>,
    probes: Vec<Probe>,
    /// Bytes of a value that is being put together.
    pub(crate) scratch: Vec<u8>,
    /// Where the crawler goes on.
    pub(crate) crawl_page: u32,
}

/// What all workers share.
pub(crate) struct Shared {
    pub arena: Arc<Arena>,
    pub index: Index<IndexMemory, StripeVersions>,
    pub slabs: Slabs,
    pub config: Config,
    secrets: RapidSecrets,
    /// Whether there has been a flush, so that versions have to be compared at all.
    flushed: AtomicBool,
    /// Second at which a flush is due; 0: none.
    flush_at_s: AtomicU32,
    pub sweep: Sweep,
    /// Displacement searches so far.
    pub slot_searches: AtomicU32,
    /// All ones, or zero if clients are told of no versions.
    shown_versions: u64,
    pub notes_uses: bool,
    pub keeps_nodes: bool,
    pub is_logging: AtomicBool,
    pub eviction_log: Mutex<Option<EvictionLog>>,
    stations: Mutex<Vec<Arc<Station>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A key under its stripes.
pub(crate) type LockedKey<'a> = LockedPayload<'a, IndexMemory, StripeVersions>;

/// The arena as the index sees it.
#[derive(Debug)]
pub(crate) struct IndexMemory(Arc<Arena>);

const _: () = assert!(SEGMENT_BYTES == PAGE_LEN, "a segment of the index is a page");

// SAFETY: pages stay mapped as long as the arena, which lives at least as long as this, and are accessed atomically; a page is
// handed out to one taker at a time.
unsafe impl SegmentSource for IndexMemory {
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        assert_eq!(bytes, PAGE_LEN, "a segment of the index is a page");
        NonNull::new(self.0.page(self.0.take_page_for_index()?))
    }

    fn release(&self, segment: NonNull<u8>, _bytes: usize) {
        self.0.give_page(self.0.page_at(segment.as_ptr()));
    }
}

impl Memc3 {
    /// An empty cache.
    ///
    /// # Errors
    /// [`ConfigError`] if the settings make no sense or the memory cannot be reserved.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let pages = config.pages();
        let arena = Arc::new(Arena::new(pages, config.huge_pages)?);
        let first = (pages / PAGES_PER_FIRST_SEGMENT).max(1);
        let index = Index::new(IndexMemory(Arc::clone(&arena)), first, pages.div_ceil(2))
            .map_err(|_| ConfigError::NoAddressSpace { bytes: config.memory_limit })?;
        let slabs = Slabs::new(&config, &arena);
        let shared = Shared {
            arena,
            index,
            slabs,
            secrets: RapidSecrets::seed(config.hash_seed),
            flushed: AtomicBool::new(false),
            flush_at_s: AtomicU32::new(0),
            sweep: Sweep::new(pages),
            slot_searches: AtomicU32::new(0),
            shown_versions: if config.versions_shown { u64::MAX } else { 0 },
            notes_uses: policy::notes_uses(config.eviction),
            keeps_nodes: policy::node_len(config.eviction) > 0,
            is_logging: AtomicBool::new(false),
            eviction_log: Mutex::new(None),
            stations: Mutex::default(),
            config,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Shared {
    /// Where a key looks.
    #[inline]
    pub fn probe(&self, key: &[u8]) -> Probe {
        Probe::new(rapidhash_v3_seeded(key, &self.secrets))
    }

    /// Asks for the item of a payload ahead of its use, if there is such a place.
    pub fn prefetch_at(&self, payload: u32) {
        if let Some(words) = self.arena.words(self.arena.payload_place(payload)) {
            guira_cuckoo::prefetch(words.address(0));
        }
    }

    /// The hash of the key of a payload's item. The caller keeps the item from changing.
    pub fn hash_of(&self, payload: u32) -> u64 {
        self.hash_at(self.arena.payload_place(payload))
    }

    /// The hash of the key of the item at `place`. The caller keeps the item from changing.
    pub fn hash_at(&self, place: Place) -> u64 {
        let words = self.words(place);
        let header = Header::of(words);
        let mut key = KeyCopy::default();
        rapidhash_v3_seeded(key.of(words, header), &self.secrets)
    }

    /// The words of a chunk that exists.
    #[inline]
    pub fn words(&self, place: Place) -> Words<'_> {
        self.arena.words(place).expect("a chunk lies in the arena")
    }

    /// The item of a payload, if it can be the key's at all and, by the bytes that stand there now, is.
    #[inline]
    pub fn item_of_key(&self, payload: u32, probe: &Probe, key: Key<'_>) -> Option<(Place, Words<'_>, Header)> {
        let place = self.arena.checked_place(payload, probe.spare_bits())?;
        let words = self.arena.words(place)?;
        let header = Header::of(words);
        let key = key.as_bytes();
        (header.key_len() == key.len() && item::key_is(words, header.key_offset(), key))
            .then_some((place, words, header))
    }

    /// Whether an item is there for clients: neither expired nor flushed.
    #[inline]
    pub fn is_live(&self, probe: &Probe, header: Header, more: More, now: Time) -> bool {
        !more.expiry.is_past(now) && !self.is_flushed_away(probe, header)
    }

    /// Whether the item was stored before a flush.
    #[inline]
    fn is_flushed_away(&self, probe: &Probe, header: Header) -> bool {
        self.flushed.load(Ordering::Relaxed)
            && self.index.stripe_data(self.index.stripe_of(probe)).is_flushed(header.version())
    }

    /// Why an item is not live.
    #[cold]
    pub fn death(&self, probe: &Probe, header: Header) -> Death {
        if self.is_flushed_away(probe, header) { Death::Flushed } else { Death::Expired }
    }

    /// The version after the last one under a stripe. The caller holds it.
    pub fn next_version(&self, probe: &Probe) -> u64 {
        self.index.stripe_data(self.index.stripe_of(probe)).next(|| self.sweep.is_over())
    }

    /// A version as clients know it.
    #[inline]
    pub fn shown(&self, version: u64) -> u64 {
        version & self.shown_versions
    }

    /// Notes that `version` is in use. The caller holds the stripe.
    pub fn use_version(&self, probe: &Probe, version: u64) {
        self.index.stripe_data(self.index.stripe_of(probe)).put(version, || self.sweep.is_over());
    }

    /// The version of what an operation stores under the probe's stripe, which the caller holds: the next one, or the one that
    /// what is put back had.
    pub fn version_of(&self, probe: &Probe, operation: &Operation<'_>) -> u64 {
        match operation {
            Operation::Restore(Restore { version, .. })
                if self.index.stripe_data(self.index.stripe_of(probe)).is_admissible(*version) =>
            {
                *version
            }
            _ => self.next_version(probe),
        }
    }

    /// Notes that `version`, which is not the next one, is in use. The caller holds the stripe.
    pub fn admit_version(&self, probe: &Probe, version: u64) {
        self.index.stripe_data(self.index.stripe_of(probe)).admit(version, || self.sweep.is_over());
    }

    /// Carries out a flush that is due.
    #[inline]
    fn flush_if_due(&self, now: Time) {
        let due = self.flush_at_s.load(Ordering::Relaxed);
        if due != 0
            && due <= now.0
            && self.flush_at_s.compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.flush();
        }
    }

    /// Whether there has been a flush.
    pub fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Everything stored so far is gone; the crawler takes its memory back.
    fn flush(&self) {
        self.sweep.after(|| {
            self.flushed.store(true, Ordering::Relaxed);
            for stripe in 0..self.index.stripes() {
                let versions = self.index.stripe_data(stripe);
                self.index.with_stripe(stripe, || versions.flush());
            }
        });
    }

    /// Bytes of an item: header, key, value.
    pub fn total_len(&self, header: Header, words: Words<'_>) -> usize {
        let value_len = if header.is_large() { crate::large::value_len(header, words) } else { 0 };
        header.chunk_len() + value_len
    }

    /// Bytes of an item's value.
    pub fn value_len(&self, header: Header, words: Words<'_>) -> usize {
        if header.is_large() { crate::large::value_len(header, words) } else { header.value_len() }
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.stations().iter().for_each(|station| totals.add(&station.counters));
        totals
    }

    /// Every worker's own.
    pub fn stations(&self) -> MutexGuard<'_, Vec<Arc<Station>>> {
        self.stations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key copied out of a chunk whose bytes may change meanwhile.
pub(crate) struct KeyCopy {
    bytes: [u8; 8 + 256 + 8],
}

impl Default for KeyCopy {
    fn default() -> Self {
        Self { bytes: [0; 8 + 256 + 8] }
    }
}

impl KeyCopy {
    /// The key of the item with `header`.
    pub fn of(&mut self, words: Words<'_>, header: Header) -> &[u8] {
        let len = header.key_len();
        item::copy_out(words, header.key_offset(), len, &mut self.bytes, 8);
        &self.bytes[8..8 + len]
    }
}

impl Engine for Memc3 {
    type Worker = Worker;

    fn worker(&self) -> Worker {
        let mut stations = self.shared.stations();
        // One whose worker has gone goes on being counted, and may have chunks.
        let unmanned = stations.iter_mut().position(|station| Arc::get_mut(station).is_some());
        let number = unmanned.unwrap_or_else(|| {
            stations.push(Arc::default());
            stations.len() - 1
        });
        let station = Arc::clone(&stations[number]);
        drop(stations);
        Worker { station, probes: Vec::with_capacity(PIPELINE_LEN), scratch: Vec::new(), crawl_page: 0 }
    }

    fn execute<S: Sink>(&self, worker: &mut Worker, now: Time, requests: &[Request<'_>], sink: &mut S) {
        let shared = &self.shared;
        shared.slabs.set_now(now);
        shared.flush_if_due(now);
        for (turn, batch) in requests.chunks(PIPELINE_LEN).enumerate() {
            let mut probes = std::mem::take(&mut worker.probes);
            probes.clear();
            probes.extend(batch.iter().map(|request| {
                let probe = shared.probe(request.key.as_bytes());
                shared.index.prefetch(&probe);
                probe
            }));
            if batch.len() > 1 {
                for probe in &probes {
                    shared.prefetch_item(probe);
                }
            }
            for (offset, (request, probe)) in batch.iter().zip(&probes).enumerate() {
                let index = turn * PIPELINE_LEN + offset;
                match &request.operation {
                    Operation::Get(get) if get.touch.is_none() && get.recache.is_none() => {
                        shared.get(worker, now, probe, request, get, index, sink);
                    }
                    _ => shared.change(worker, now, probe, request, index, sink),
                }
            }
            worker.probes = probes;
        }
    }

    fn prefetch(&self, worker: &mut Worker, keys: &[&[u8]]) {
        for batch in keys.chunks(PIPELINE_LEN) {
            worker.probes.clear();
            worker.probes.extend(batch.iter().map(|key| {
                let probe = self.shared.probe(key);
                self.shared.index.prefetch(&probe);
                probe
            }));
            for probe in &worker.probes {
                self.shared.prefetch_item(probe);
            }
        }
    }

    fn flush_all(&self, at: Time, now: Time) {
        if at <= now {
            self.shared.flush_at_s.store(0, Ordering::Relaxed);
            self.shared.flush();
        } else {
            self.shared.flush_at_s.store(at.0, Ordering::Relaxed);
        }
    }

    fn flush_due(&self) -> Option<Time> {
        let due = self.shared.flush_at_s.load(Ordering::Relaxed);
        (due != 0).then_some(Time(due))
    }

    fn stats(&self) -> EngineStats {
        let shared = &self.shared;
        let totals = shared.totals();
        let now = shared.slabs.now();
        let held: Vec<_> = shared.stations().iter().filter_map(|station| station.magazine.held()).collect();
        let waiting = |class| held.iter().filter(|(of, _)| *of == class).map(|(_, len)| *len as u64).sum();
        let oldest_s = shared.slabs.oldest_s(now);
        let classes: Vec<_> = shared
            .slabs
            .ids()
            .zip(oldest_s)
            .filter_map(|(class, age_s)| Some(ClassStats { age_s, ..shared.slabs.stats(class, waiting(class))? }))
            .collect();
        let slots = shared.index.capacity() as u64;
        EngineStats {
            engine: "memc3",
            eviction: shared.config.eviction.name(),
            curr_items: shared.index.len() as u64,
            total_items: totals.total_items,
            bytes: totals.bytes,
            limit_maxbytes: (shared.arena.usage().1 * PAGE_LEN) as u64,
            total_malloced: classes.iter().map(|class| class.total_pages * PAGE_LEN as u64).sum(),
            hash_bytes: shared.index.bytes() as u64,
            hash_power_level: slots.next_power_of_two().trailing_zeros(),
            hash_slots: slots,
            hash_is_expanding: shared.index.is_growing(),
            evictions: classes.iter().map(|class| class.evicted).sum(),
            evicted_unfetched: classes.iter().map(|class| class.evicted_unfetched).sum(),
            reclaimed: totals.reclaimed,
            expired_unfetched: totals.expired_unfetched,
            crawler_reclaimed: totals.crawler_reclaimed,
            crawler_items_checked: totals.crawler_checked,
            out_of_memory: totals.out_of_memory,
            slabs_moved: shared.slabs.pages_moved.load(Ordering::Relaxed),
            partitions: None,
            messages: None,
            store: None,
            own: Vec::new(),
            cluster: None,
            classes,
        }
    }

    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        self.shared.scan(cursor, limit, now, visit)
    }

    fn scan_in_order(
        &self,
        cursor: OrderCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>, Standing),
    ) -> Option<OrderCursor> {
        self.shared.scan_in_order(cursor, limit, now, visit)
    }

    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        let max = self.shared.arena.pages() * PAGE_LEN;
        let min = self.shared.index.bytes() + 16 * PAGE_LEN;
        match bytes {
            _ if bytes > max => Err(MemoryLimitError::TooLarge { max }),
            _ if bytes < min => Err(MemoryLimitError::TooSmall { min }),
            _ => {
                self.shared.arena.set_limit(bytes / PAGE_LEN);
                Ok(())
            }
        }
    }

    fn reassign_page(&self, worker: &mut Worker, now: Time, from: Option<u32>, to: u32) -> Result<(), ReassignError> {
        self.shared.reassign(from, to, now, &worker.station)
    }

    fn lend(&self, worker: &mut Worker, now: Time, bytes: usize) -> Option<Loan> {
        let loan = lending::lend(&self.shared, bytes, now, &worker.station)?;
        Some(Box::new(loan))
    }

    fn maintain(&self, worker: &mut Worker, now: Time) -> bool {
        self.shared.slabs.set_now(now);
        self.shared.flush_if_due(now);
        self.shared.maintain(worker, now)
    }

    fn last_version(&self) -> u64 {
        let index = &self.shared.index;
        (0..index.stripes()).map(|stripe| index.stripe_data(stripe).highest_so_far()).max().unwrap_or(0)
    }

    fn skip_versions(&self, last: u64) {
        let Shared { index, sweep, .. } = &*self.shared;
        for stripe in 0..index.stripes() {
            let versions = index.stripe_data(stripe);
            index.with_stripe(stripe, || {
                if versions.is_admissible(last) {
                    versions.admit(last, || sweep.is_over());
                }
            });
        }
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.shared.is_logging.store(log.is_some(), Ordering::Relaxed);
        *self.shared.eviction_log.lock().unwrap_or_else(PoisonError::into_inner) = log;
    }
}
