//! LOCKHASH: the partitions of CPHASH, each behind a spinning lock (CPHASH, section 4.2): the fair baseline. Whoever has a request
//! takes the partition's lock and carries it out; a batch's cache lines are asked for beforehand.
//!
//! Under random eviction buckets may have locks too ([`BucketLockhash`]), and a plain read of a short value takes its bucket's
//! instead of the partition's: there is no order of use that it would have to change. Whoever changes an element takes both.
//!
//! Always true: a partition's lock is taken while holding none; its heap's is taken inside it; who needs a whole group takes the
//! locks of its partitions in order, then the heap's. Buckets are shut one at a time, and only by who holds their partition or by
//! readers, who wait for nothing then. Whoever frees an element does so with its bucket shut, and takes the heap's lock inside; who has
//! a whole group shuts buckets while it has the heap: nobody else can wait for that heap then, since that takes one of the partitions.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use guira_item::{
    Engine, EngineStats, EvictionLog, ItemInfo, Loan, MemoryLimitError, OrderCursor, ReassignError, Request,
    ScanCursor, Sink, Standing, Time,
};
use guira_sync::{SpinGuard, SpinLock};

use crate::{
    bucket_reads,
    config::{Config, ConfigError},
    context::{Context, Supply},
    direct,
    element::{Chunks, Slot},
    group::Group,
    heap::{ClassId, Heap},
    partition::Partition,
    shards::{Common, Held, Shards},
};

/// Partitions by default (CPHASH, section 6.1).
const PARTITIONS: usize = 4_096;

/// Partitions that a group has on average, or more.
const PARTITIONS_PER_HEAP: usize = 16;

/// Partitions behind locks.
pub type Lockhash = LockedPartitions<false>;

/// The same with a lock in every bucket, under random eviction: plain reads of short values take that instead of their partition's.
pub type BucketLockhash = LockedPartitions<true>;

/// A cache in memory behind locks. Cheap to share: clones are the same cache.
#[derive(Clone)]
pub struct LockedPartitions<const BUCKET_LOCKS: bool> {
    shared: Arc<Shared<BUCKET_LOCKS>>,
}

struct Shared<const BUCKET_LOCKS: bool> {
    common: Common,
    partitions: Box<[CachePadded<SpinLock<Partition>>]>,
    heaps: Box<[CachePadded<SpinLock<Heap>>]>,
    /// A group's number is a partition's without so many bits.
    group_shift: u32,
}

/// What one thread needs to use the engine.
#[derive(Debug, Default)]
pub struct Worker {
    hashes: Vec<u64>,
}

impl<const BUCKET_LOCKS: bool> std::fmt::Debug for LockedPartitions<BUCKET_LOCKS> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lockhash").field("partitions", &self.shared.partitions.len()).finish_non_exhaustive()
    }
}

/// A heap that a partition shares with others.
struct SharedHeap<'a>(&'a SpinLock<Heap>);

impl Supply for SharedHeap<'_> {
    #[inline]
    fn allocate(&mut self, chunks: Chunks<'_>, class: ClassId) -> Option<Slot> {
        self.0.lock().allocate(chunks, class)
    }

    #[inline]
    fn free(&mut self, chunks: Chunks<'_>, slots: impl Iterator<Item = Slot>) {
        let mut heap = self.0.lock();
        slots.for_each(|slot| heap.free(chunks, slot));
    }

    fn count_in_pieces(&mut self, value_len: usize, is_there: bool) {
        self.0.lock().count_in_pieces(value_len, is_there);
    }

    fn count_evicted(&mut self, class: ClassId, len: usize, is_fetched: bool) {
        self.0.lock().count_evicted(class, len, is_fetched);
    }

    fn count_out_of_memory(&mut self, class: ClassId) {
        self.0.lock().count_out_of_memory(class);
    }
}

impl<const BUCKET_LOCKS: bool> LockedPartitions<BUCKET_LOCKS> {
    /// An empty cache.
    ///
    /// # Errors
    /// [`ConfigError`] if the settings make no sense or the memory cannot be reserved.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        if BUCKET_LOCKS {
            config.check_bucket_locks()?;
        }
        let count = config.small_partitions(PARTITIONS)?;
        let seed = config.hash_seed;
        let heaps = Common::heaps_max(&config).min((count / PARTITIONS_PER_HEAP).max(1));
        let common = Common::new(config, count, BUCKET_LOCKS)?;
        let partition = |number: usize| Partition::new(number, seed ^ number as u64);
        let shared = Shared {
            common,
            partitions: (0..count).map(|number| CachePadded::new(SpinLock::new(partition(number)))).collect(),
            heaps: (0..heaps).map(|number| CachePadded::new(SpinLock::new(Heap::new(number as u16)))).collect(),
            group_shift: (count / heaps).ilog2(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }
}

/// A partition under its lock, and its heap.
struct Locked<'a>(SpinGuard<'a, Partition>, SharedHeap<'a>);

impl<'a> Held for Locked<'a> {
    type Supply = SharedHeap<'a>;

    #[inline]
    fn parts(&mut self) -> (&mut Partition, &mut SharedHeap<'a>) {
        (&mut self.0, &mut self.1)
    }
}

impl<const BUCKET_LOCKS: bool> Shards for Shared<BUCKET_LOCKS> {
    type Held<'a> = Locked<'a>;

    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn group_of(&self, partition: usize) -> usize {
        partition >> self.group_shift
    }

    #[inline]
    fn hold(&self, partition: usize) -> Locked<'_> {
        Locked(self.partitions[partition].lock(), SharedHeap(&self.heaps[self.group_of(partition)]))
    }

    #[inline]
    fn try_hold(&self, partition: usize) -> Option<Locked<'_>> {
        let heap = SharedHeap(&self.heaps[self.group_of(partition)]);
        self.partitions[partition].try_lock().map(|partition| Locked(partition, heap))
    }

    #[inline]
    fn address(&self, partition: usize) -> *const u8 {
        (&raw const *self.partitions[partition]).cast()
    }

    fn groups(&self) -> usize {
        self.heaps.len()
    }

    fn with_heap<R>(&self, group: usize, work: impl FnOnce(&Heap) -> R) -> R {
        work(&self.heaps[group].lock())
    }

    fn with_group<R>(&self, group: usize, now: Time, work: impl FnOnce(&mut Group<'_>, &Context<'_>) -> R) -> R {
        let first = group << self.group_shift;
        let mut guards: Vec<SpinGuard<'_, Partition>> =
            self.partitions[first..][..1 << self.group_shift].iter().map(|partition| partition.lock()).collect();
        let mut heap = self.heaps[group].lock();
        let mut partitions: Vec<&mut Partition> = guards.iter_mut().map(|guard| &mut **guard).collect();
        // SAFETY: what is touched through it belongs to partitions and to a heap whose locks are held.
        let cx = unsafe { self.common.context(now) };
        work(&mut Group { heap: &mut heap, partitions: &mut partitions, first }, &cx)
    }
}

impl<const BUCKET_LOCKS: bool> Engine for LockedPartitions<BUCKET_LOCKS> {
    type Worker = Worker;

    fn worker(&self) -> Worker {
        Worker { hashes: Vec::with_capacity(direct::WINDOW_LEN) }
    }

    fn execute<S: Sink>(&self, worker: &mut Worker, now: Time, requests: &[Request<'_>], sink: &mut S) {
        let shared = &self.shared;
        shared.common.set_now(now);
        shared.flush_if_due(now);
        if BUCKET_LOCKS {
            bucket_reads::carry_out(shared, &mut worker.hashes, now, requests, sink);
        } else {
            direct::carry_out(shared, &mut worker.hashes, now, requests, sink);
        }
    }

    fn prefetch(&self, worker: &mut Worker, keys: &[&[u8]]) {
        for batch in keys.chunks(direct::WINDOW_LEN) {
            let (shared, hashes) = (&*self.shared, &mut worker.hashes);
            hashes.clear();
            hashes.extend(batch.iter().map(|key| shared.common.hash(key)));
            hashes.iter().for_each(|hash| direct::prefetch_bucket(shared, *hash));
            hashes.iter().for_each(|hash| shared.common.prefetch_element(*hash));
        }
    }

    fn flush_all(&self, at: Time, now: Time) {
        self.shared.flush_all(at, now);
    }

    fn flush_due(&self) -> Option<Time> {
        self.shared.flush_due()
    }

    fn stats(&self) -> EngineStats {
        self.shared.stats("lockhash")
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
        self.shared.set_memory_limit(bytes)
    }

    fn reassign_page(&self, _: &mut Worker, now: Time, from: Option<u32>, to: u32) -> Result<(), ReassignError> {
        self.shared.reassign_page(now, from, to)
    }

    fn lend(&self, _: &mut Worker, now: Time, bytes: usize) -> Option<Loan> {
        self.shared.lend(now, bytes)
    }

    fn maintain(&self, _: &mut Worker, now: Time) -> bool {
        self.shared.maintain(now)
    }

    fn last_version(&self) -> u64 {
        self.shared.last_version()
    }

    fn skip_versions(&self, last: u64) {
        self.shared.skip_versions(last);
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.shared.log_evictions(log);
    }
}

#[cfg(test)]
pub(crate) mod tests_only {
    use super::{BucketLockhash, Heap, LockedPartitions, Shards};
    use crate::{balance::Need, table::ShutBucket};

    /// A key's bucket, shut as for a read.
    pub fn shut_to_read<'e>(engine: &'e BucketLockhash, key: &[u8]) -> ShutBucket<'e> {
        let common = &engine.shared.common;
        common.memory.buckets.shut_to_read(common.hash(key)).expect("nothing was flushed")
    }

    /// What the groups need together.
    pub fn need<const BUCKET_LOCKS: bool>(engine: &LockedPartitions<BUCKET_LOCKS>) -> Need {
        let shared = &engine.shared;
        let needs = (0..shared.groups()).map(|group| shared.with_heap(group, Heap::need));
        needs.fold(Need::default(), |sum, need| Need {
            lines: sum.lines + need.lines,
            squares: sum.squares + need.squares,
            evictions: sum.evictions + need.evictions,
            pages: sum.pages + need.pages,
        })
    }

    /// Does `work` while all partitions are held.
    pub fn holding_all<R>(engine: &BucketLockhash, work: impl FnOnce() -> R) -> R {
        let held: Vec<_> = (0..engine.shared.partitions.len()).map(|partition| engine.shared.hold(partition)).collect();
        let result = work();
        drop(held);
        result
    }
}
