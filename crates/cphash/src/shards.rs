//! What both engines have in common: all partitions in their groups, how keys find them, and everything that is not about a single
//! key: statistics, scans, flushes, the memory limit, memory between groups, background work.
//!
//! Always true: of groups only one is held at a time, so that whoever holds one never waits for another.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

use guira_arena::{Arena, PAGE_LEN, PageId, PageLoan};
use guira_item::{
    ClassStats, EngineStats, EvictionLog, ItemInfo, Loan, MemoryLimitError, OrderCursor, PartitionStats, ReassignError,
    ScanCursor, Standing, Time,
};
use guira_sync::prefetch;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::{
    balance::Balance,
    config::{Config, ConfigError, Eviction},
    context::{Context, Counters, Settings, Shortage, Supply},
    element::Memory,
    group::Group,
    heap::{ClassId, Heap},
    partition::Partition,
};

/// Bits of a hash key (CPHASH, section 3.1).
pub(crate) const HASH_BITS: u32 = 60;

/// Pages that a heap has on average, or more, so that its classes do not each hold a large part of it.
const PAGES_PER_HEAP: usize = 64;

/// Pages besides the index's that a limit must leave.
const PAGES_MIN: usize = 16;

/// Attempts to find one page to lend: each empties one, unless other threads are faster.
const LEND_ATTEMPTS_MAX: usize = 8;

/// Buckets looked through for dead elements while a partition is held: some ten microseconds.
const CRAWLED_BUCKETS: usize = 64;

/// Times that a partition is held for that in one slice of background work.
const CRAWLED_PARTITIONS: usize = 64;

/// The part of a group's pages that it gives away at a time.
const GIVEN_PART: usize = 32;

/// What the partitions of an engine share.
pub(crate) struct Common {
    pub memory: Memory,
    pub settings: Settings,
    secrets: RapidSecrets,
    /// Second at which a flush is due; 0: none.
    flush_at_s: AtomicU32,
    now_s: AtomicU32,
    /// The partition where the crawler goes on.
    crawled: AtomicUsize,
    /// The group that is asked next for a page.
    giving_group: AtomicUsize,
    balance: Mutex<Balance>,
}

impl Common {
    /// What partitions share, whose buckets have locks or not.
    ///
    /// # Errors
    /// [`ConfigError::NoAddressSpace`] if the memory cannot be reserved.
    pub fn new(config: Config, partitions: usize, buckets_shared: bool) -> Result<Self, ConfigError> {
        let arena = Arena::new(config.pages(), config.huge_pages).map_err(ConfigError::NoAddressSpace)?;
        Ok(Self {
            memory: Memory::new(Arc::new(arena), partitions, buckets_shared).map_err(ConfigError::NoAddressSpace)?,
            secrets: RapidSecrets::seed(config.hash_seed),
            settings: Settings::new(config),
            flush_at_s: AtomicU32::new(0),
            now_s: AtomicU32::new(0),
            crawled: AtomicUsize::new(0),
            giving_group: AtomicUsize::new(0),
            balance: Mutex::default(),
        })
    }

    /// The most heaps that a memory limit allows, a power of two.
    pub fn heaps_max(config: &Config) -> usize {
        let heaps = config.pages() / PAGES_PER_HEAP;
        1 << heaps.max(1).ilog2()
    }

    /// The hash key of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets) >> (u64::BITS - HASH_BITS)
    }

    /// The partition of a hash key.
    #[inline]
    pub fn partition(&self, hash: u64) -> usize {
        self.memory.buckets.partition_of(hash)
    }

    /// Asks the memory for a hash key's bucket.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        prefetch(self.memory.buckets.address(self.partition(hash), hash));
    }

    /// Asks for the first element of a hash key's bucket, which has been asked for.
    #[inline]
    pub fn prefetch_element(&self, hash: u64) {
        if let Some(slot) = self.memory.buckets.hint(self.partition(hash), hash) {
            self.memory.prefetch_element(slot);
        }
    }

    /// What an operation on partitions goes by.
    ///
    /// # Safety
    /// As [`Memory::chunks`]: as long as the result lives, what is touched through it must belong to partitions that the caller holds,
    /// and to their heaps, while these are held (their elements, elements that the caller fills, free chunks and pages), or to
    /// a bucket that it has shut.
    #[inline]
    pub unsafe fn context(&self, now: Time) -> Context<'_> {
        // SAFETY: as the caller promises.
        let chunks = unsafe { self.memory.chunks() };
        Context { chunks, settings: &self.settings, now }
    }

    pub fn now(&self) -> Time {
        Time(self.now_s.load(Ordering::Relaxed))
    }

    /// Time passes.
    #[inline]
    pub fn set_now(&self, now: Time) {
        if self.now_s.load(Ordering::Relaxed) < now.0 {
            self.now_s.store(now.0, Ordering::Relaxed);
        }
    }
}

/// A partition that nobody else has until this is dropped, and where its memory comes from.
pub(crate) trait Held {
    type Supply: Supply;

    fn parts(&mut self) -> (&mut Partition, &mut Self::Supply);
}

/// Partitions in groups.
pub(crate) trait Shards: Send + Sync {
    type Held<'a>: Held
    where
        Self: 'a;

    /// What they share.
    fn common(&self) -> &Common;

    /// The group of a partition.
    fn group_of(&self, partition: usize) -> usize;

    /// Waits for a partition. The caller holds none.
    fn hold(&self, partition: usize) -> Self::Held<'_>;

    /// A partition, if nobody has it; the caller may hold others.
    fn try_hold(&self, partition: usize) -> Option<Self::Held<'_>>;

    /// Where what is held of a partition begins, its lock included.
    fn address(&self, partition: usize) -> *const u8;

    /// How many groups there are.
    fn groups(&self) -> usize;

    /// Has `work` done on a group, for which it is waited. The caller holds none.
    fn with_group<R>(&self, group: usize, now: Time, work: impl FnOnce(&mut Group<'_>, &Context<'_>) -> R) -> R;

    /// Has `work` look at a group's heap. The caller holds none.
    fn with_heap<R>(&self, group: usize, work: impl FnOnce(&Heap) -> R) -> R;

    /// Carries out a flush that is due.
    #[inline]
    fn flush_if_due(&self, now: Time) {
        let due = self.common().flush_at_s.load(Ordering::Relaxed);
        let flush_at_s = &self.common().flush_at_s;
        if due != 0 && due <= now.0 && flush_at_s.compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.flush(now);
        }
    }

    /// See [`guira_item::Engine::flush_all`].
    fn flush_all(&self, at: Time, now: Time) {
        if at > now {
            return self.common().flush_at_s.store(at.0, Ordering::Relaxed);
        }
        self.common().flush_at_s.store(0, Ordering::Relaxed);
        self.flush(now);
    }

    /// See [`guira_item::Engine::flush_due`].
    fn flush_due(&self) -> Option<Time> {
        let due = self.common().flush_at_s.load(Ordering::Relaxed);
        (due != 0).then_some(Time(due))
    }

    /// Nothing that is there is visible from now on.
    fn flush(&self, now: Time) {
        for group in 0..self.groups() {
            self.with_group(group, now, |group, cx| {
                group.partitions.iter_mut().for_each(|partition| partition.flush(cx))
            });
        }
    }

    /// See [`guira_item::Engine::stats`].
    fn stats(&self, engine: &'static str) -> EngineStats {
        let common = self.common();
        let mut classes: Vec<ClassStats> = ClassId::all().map(|_| ClassStats::default()).collect();
        let mut sum = Counters::default();
        let (mut items, mut buckets, mut pages_emptied) = (0, 0, 0);
        for group in 0..self.groups() {
            self.with_group(group, common.now(), |group, _| {
                group.heap.add_stats(&mut classes);
                pages_emptied += group.heap.pages_emptied();
                for partition in group.partitions.iter() {
                    sum += &partition.counters;
                    items += partition.len() as u64;
                    buckets += partition.table().len() as u64;
                }
            });
        }
        classes.retain(|class| class.total_pages > 0 || class.evicted > 0 || class.out_of_memory > 0);
        EngineStats {
            engine,
            eviction: common.settings.config.eviction.name(),
            curr_items: items,
            total_items: sum.total_items,
            bytes: sum.bytes,
            limit_maxbytes: (common.memory.arena.usage().1 * PAGE_LEN) as u64,
            total_malloced: classes.iter().map(|class| class.total_pages * PAGE_LEN as u64).sum(),
            hash_bytes: common.memory.index_bytes() as u64,
            hash_power_level: buckets.next_power_of_two().trailing_zeros(),
            hash_slots: buckets,
            hash_is_expanding: false,
            evictions: classes.iter().map(|class| class.evicted).sum(),
            evicted_unfetched: classes.iter().map(|class| class.evicted_unfetched).sum(),
            reclaimed: sum.reclaimed,
            expired_unfetched: sum.expired_unfetched,
            crawler_reclaimed: sum.crawler_reclaimed,
            crawler_items_checked: sum.crawler_checked,
            out_of_memory: sum.out_of_memory,
            slabs_moved: pages_emptied,
            partitions: Some(PartitionStats {
                count: common.memory.buckets.partitions(),
                has_bucket_locks: common.memory.buckets.are_shared(),
            }),
            messages: None,
            store: None,
            own: Vec::new(),
            cluster: None,
            classes,
        }
    }

    /// See [`guira_item::Engine::scan`]. The cursor is a group, a partition of it, and a bucket.
    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        let (mut group, mut partition) = ((cursor.0 >> 48) as usize, (cursor.0 >> 32) as usize & 0xffff);
        let mut bucket = cursor.0 as u32 as usize;
        let mut looked = 0;
        while group < self.groups() {
            let partitions = self.with_group(group, now, |group, cx| {
                while let Some(shown) = group.partitions.get(partition) {
                    while bucket < shown.table().len() {
                        if looked == limit {
                            return None;
                        }
                        looked += 1;
                        shown.visit(cx, bucket, visit);
                        bucket += 1;
                    }
                    (partition, bucket) = (partition + 1, 0);
                }
                Some(group.partitions.len())
            });
            if partitions.is_none() {
                return Some(ScanCursor((group as u64) << 48 | (partition as u64) << 32 | bucket as u64));
            }
            (group, partition) = (group + 1, 0);
        }
        None
    }

    /// See [`guira_item::Engine::scan_in_order`]. An order is a partition's.
    fn scan_in_order(
        &self,
        cursor: OrderCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>, Standing),
    ) -> Option<OrderCursor> {
        let common = self.common();
        if common.settings.config.eviction == Eviction::Random {
            let next = self.scan(ScanCursor(cursor.at), limit, now, &mut |item| visit(item, Standing::by_age(item)));
            return next.map(OrderCursor::unordered);
        }
        let number = cursor.order as usize;
        let next = self.with_group(self.group_of(number), now, |group, cx| {
            group.partitions[number - group.first].visit_in_order(cx, cursor, limit, visit)
        });
        let is_last = number + 1 == common.memory.buckets.partitions();
        next.or_else(|| (!is_last).then(|| OrderCursor::of(cursor.order + 1)))
    }

    /// See [`guira_item::Engine::set_memory_limit`].
    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        let memory = &self.common().memory;
        let max = memory.arena.pages() * PAGE_LEN;
        let min = memory.index_bytes().next_multiple_of(PAGE_LEN) + PAGES_MIN * PAGE_LEN;
        match bytes {
            _ if bytes > max => Err(MemoryLimitError::TooLarge { max }),
            _ if bytes < min => Err(MemoryLimitError::TooSmall { min }),
            _ => {
                memory.arena.set_limit(bytes / PAGE_LEN);
                Ok(())
            }
        }
    }

    /// See [`guira_item::Engine::reassign_page`].
    fn reassign_page(&self, now: Time, from: Option<u32>, to: u32) -> Result<(), ReassignError> {
        let class_of = |number| match number {
            0 => Ok(None),
            _ => ClassId::numbered(number).map(Some).ok_or(ReassignError::BadClass),
        };
        let to = class_of(to)?;
        let (from, otherwise) = match from {
            Some(number) => (class_of(number)?, ReassignError::NoSpare),
            None => {
                let stats = self.stats("");
                let others = stats.classes.iter().filter(|class| to.is_none_or(|to| class.class != to.number()));
                let most = others.max_by_key(|class| class.total_pages).filter(|class| class.total_pages > 1);
                let most = most.and_then(|class| ClassId::numbered(class.class));
                (Some(most.ok_or(ReassignError::BadClass)?), ReassignError::BadClass)
            }
        };
        let did = (0..self.groups())
            .any(|group| self.with_group(group, now, |group, cx| group.reassign(cx, from, to).is_ok()));
        if did { Ok(()) } else { Err(otherwise) }
    }

    /// Makes room for what found none in a group: first there, then wherever it is; false if nothing can be had.
    fn make_room(&self, group: usize, now: Time, shortage: Shortage) -> bool {
        let had = self.with_group(group, now, |group, cx| group.make_room(cx, shortage));
        let evicts = self.common().settings.config.evictions_enabled;
        let more = if evicts { (had..shortage.pages).take_while(|_| self.give_page(now)).count() } else { 0 };
        had + more > 0
    }

    /// Has some group give a page to the arena.
    fn give_page(&self, now: Time) -> bool {
        (0..self.groups()).any(|_| {
            let group = self.common().giving_group.fetch_add(1, Ordering::Relaxed) % self.groups();
            self.with_group(group, now, |group, cx| group.give_page(cx))
        })
    }

    /// See [`guira_item::Engine::lend`].
    fn lend(&self, now: Time, bytes: usize) -> Option<Loan> {
        let loan = PageLoan::new(&self.common().memory.arena, bytes, || self.page_to_lend(now))?;
        Some(Box::new(loan))
    }

    fn page_to_lend(&self, now: Time) -> Option<PageId> {
        let arena = &self.common().memory.arena;
        for _ in 0..LEND_ATTEMPTS_MAX {
            let page = arena.take_page_to_lend();
            // A free page whose memory the system does not take back cannot be lent.
            if page.is_some() || arena.has_free_page() || !self.give_page(now) {
                return page;
            }
        }
        None
    }

    /// See [`guira_item::Engine::maintain`].
    fn maintain(&self, now: Time) -> bool {
        let common = self.common();
        common.set_now(now);
        self.flush_if_due(now);
        let (taken, limit) = common.memory.arena.usage();
        if taken > limit && self.give_page(now) {
            return true;
        }
        let moved = self.review(now);
        let (mut goes_on, mut is_crowded) = (moved, false);
        for _ in 0..CRAWLED_PARTITIONS {
            let number = common.crawled.fetch_add(1, Ordering::Relaxed) % common.memory.buckets.partitions();
            let mut held = self.hold(number);
            // SAFETY: the partition is held.
            let cx = unsafe { common.context(now) };
            let (partition, supply) = held.parts();
            let freed = partition.crawl(&cx, supply, CRAWLED_BUCKETS);
            goes_on |= freed > CRAWLED_BUCKETS / 2 || partition.is_unswept();
            if partition.is_crowded() {
                partition.catch_up(&cx, supply, CRAWLED_BUCKETS);
                is_crowded |= partition.is_crowded();
            }
        }
        // Small elements have come where large ones were: their buckets take memory from them.
        let evicts = common.settings.config.evictions_enabled;
        goes_on |= is_crowded && (common.memory.arena.has_free_page() || evicts && self.give_page(now));
        goes_on
    }

    /// Memory goes from groups that need little for what they have to those that need much; true if some did.
    fn review(&self, now: Time) -> bool {
        let common = self.common();
        if self.groups() == 1 || !common.settings.config.evictions_enabled {
            return false;
        }
        let mut balance = common.balance.lock().unwrap_or_else(PoisonError::into_inner);
        let needs = || (0..self.groups()).map(|group| self.with_heap(group, Heap::need)).collect();
        let now_needed: Vec<_> = needs();
        let Some(giver) = balance.giver(&now_needed) else { return false };
        let pages = (now_needed[giver].pages / GIVEN_PART).max(1);
        let moved = self.with_group(giver, now, |group, cx| (0..pages).filter(|_| group.give_page(cx)).count() > 0);
        // What goes with the pages is no sign of need.
        balance.begin(needs());
        moved
    }

    /// See [`guira_item::Engine::last_version`].
    fn last_version(&self) -> u64 {
        let of_group = |group: &mut Group<'_>, _: &Context<'_>| {
            group.partitions.iter().map(|partition| partition.last_version()).max().unwrap_or(0)
        };
        (0..self.groups()).map(|group| self.with_group(group, self.common().now(), of_group)).max().unwrap_or(0)
    }

    /// See [`guira_item::Engine::skip_versions`].
    fn skip_versions(&self, last: u64) {
        for group in 0..self.groups() {
            self.with_group(group, self.common().now(), |group, _| {
                group.partitions.iter_mut().for_each(|partition| partition.skip_versions(last));
            });
        }
    }

    /// See [`guira_item::Engine::log_evictions`].
    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.common().settings.set_log(log);
    }
}
