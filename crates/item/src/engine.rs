//! An engine: holds items in memory and answers at once.

use crate::{Expiry, OrderCursor, Request, Sink, Standing, Time, store::StoreStats};

/// A store in memory that answers every request at once.
pub trait Engine: Send + Sync + 'static {
    /// What one thread needs to use the engine: scratch space and counters. Not shared.
    type Worker: Send;

    /// A worker for the calling thread.
    fn worker(&self) -> Self::Worker;

    /// Carries out `requests` as of `now`, one answer each into `sink`, in order; those on one key take effect in that order too.
    /// Each operation is atomic on its key.
    fn execute<S: Sink>(&self, worker: &mut Self::Worker, now: Time, requests: &[Request<'_>], sink: &mut S);

    /// See [`Service::prefetch`](crate::Service::prefetch).
    fn prefetch(&self, _worker: &mut Self::Worker, _keys: &[&[u8]]) {}

    /// From `at` on, nothing stored before `at` is visible. A second call replaces one that has not taken effect.
    fn flush_all(&self, at: Time, now: Time);

    /// When a flush is still to take effect, if one is.
    fn flush_due(&self) -> Option<Time>;

    /// Numbers about memory and items.
    fn stats(&self) -> EngineStats;

    /// Visits items in no order, up to some `limit` of places looked at, from `cursor`; `None` when through. An item that
    /// is there throughout is visited at least once, unless the index grew meanwhile.
    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor>;

    /// Visits items as [`Engine::scan`] does, but those of one order of eviction (a class's, or a partition's) in that order: the one
    /// that would go first comes first. Nobody changes the engine between the first step and the last.
    fn scan_in_order(
        &self,
        cursor: OrderCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>, Standing),
    ) -> Option<OrderCursor> {
        let next = self.scan(ScanCursor(cursor.at), limit, now, &mut |item| visit(item, Standing::by_age(item)));
        next.map(OrderCursor::unordered)
    }

    /// Changes the memory limit (`cache_memlimit`).
    ///
    /// # Errors
    /// [`MemoryLimitError`] if that much cannot be had.
    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError>;

    /// Has a page of memory go from one slab class to another (`slabs reassign`), with the items in it if they find no other
    /// place. Class 0 is the pool of free pages; no `from`: any class that has a page to spare.
    ///
    /// # Errors
    /// [`ReassignError`] if that cannot be; always, from an engine without classes.
    fn reassign_page(
        &self,
        _worker: &mut Self::Worker,
        _now: Time,
        _from: Option<u32>,
        _to: u32,
    ) -> Result<(), ReassignError> {
        Err(ReassignError::BadClass)
    }

    /// Gives `bytes` of the engine's memory to the caller, who may use as much of the process's memory until the loan is
    /// dropped; evicts items for it. `None` if that much cannot be had, or if more would be lent than is good for the items.
    fn lend(&self, _worker: &mut Self::Worker, _now: Time, _bytes: usize) -> Option<Loan> {
        None
    }

    /// A slice of background work (expired items, index growth, memory between classes). Returns whether more is waiting.
    fn maintain(&self, worker: &mut Self::Worker, now: Time) -> bool;

    /// The highest version that it has given to an item.
    fn last_version(&self) -> u64;

    /// From now on what is stored gets higher versions than `last`, if the engine has so many.
    fn skip_versions(&self, last: u64);

    /// Starts (`Some`) or ends (`None`) the reporting of evictions, for `watch evictions`.
    fn log_evictions(&self, log: Option<EvictionLog>);
}

/// Memory that an engine does without until this is dropped.
pub type Loan = Box<dyn Send>;

/// Called with every evicted item while someone watches; must not call back into the engine.
pub type EvictionLog = std::sync::Arc<dyn Fn(&ItemInfo<'_>) + Send + Sync>;

/// Where a scan stands; start with the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanCursor(pub u64);

/// What a scan or an eviction log sees of an item.
#[derive(Clone, Copy, Debug)]
pub struct ItemInfo<'a> {
    /// The key's bytes.
    pub key: &'a [u8],
    /// Version.
    pub cas: u64,
    /// Client flags.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// Seconds since last use, as coarsely as the engine knows.
    pub idle_s: u32,
    /// Has been read since it was stored.
    pub fetched: bool,
    /// Has been read since the eviction hand last came by, where there is one.
    pub recent: bool,
    /// Is marked stale.
    pub stale: bool,
    /// A client has been told that it won.
    pub win_sent: bool,
    /// Slab class.
    pub class: u32,
    /// Header, key and value, in bytes.
    pub total_len: usize,
    /// The value alone, in bytes.
    pub value_len: usize,
}

/// Why a memory limit was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryLimitError {
    /// Below what the engine needs at all.
    TooSmall {
        /// Smallest limit in bytes.
        min: usize,
    },
    /// Above what was reserved at the start.
    TooLarge {
        /// Largest limit in bytes.
        max: usize,
    },
}

/// Why a page was not reassigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReassignError {
    /// There is no such class, or none to choose.
    BadClass,
    /// The class that should give has no second page, or none that may be emptied.
    NoSpare,
    /// A page of that class is being emptied already.
    Busy,
}

/// Numbers about an engine, with memcached's names where it has them.
#[derive(Clone, Debug, Default)]
pub struct EngineStats {
    /// Name for `stats settings`: memc3, cphash...
    pub engine: &'static str,
    /// Name of the eviction policy.
    pub eviction: &'static str,
    /// Items held now.
    pub curr_items: u64,
    /// Items ever stored.
    pub total_items: u64,
    /// Bytes of items held now (header, key, value).
    pub bytes: u64,
    /// The hard limit, in bytes.
    pub limit_maxbytes: u64,
    /// Bytes in pages given to classes.
    pub total_malloced: u64,
    /// Bytes of the index.
    pub hash_bytes: u64,
    /// log2 of the index's slots, rounded up.
    pub hash_power_level: u32,
    /// Index slots in all.
    pub hash_slots: u64,
    /// Whether the index is growing now.
    pub hash_is_expanding: bool,
    /// Items removed to make room.
    pub evictions: u64,
    /// Of these, never read since they were stored.
    pub evicted_unfetched: u64,
    /// Expired items whose memory was taken back.
    pub reclaimed: u64,
    /// Of these, never read.
    pub expired_unfetched: u64,
    /// Expired items freed by the background crawler.
    pub crawler_reclaimed: u64,
    /// Items the crawler has looked at.
    pub crawler_items_checked: u64,
    /// Requests refused for lack of memory.
    pub out_of_memory: u64,
    /// Pages emptied to be used elsewhere: by another class, for what is lent, for a table, or not at all under a lower limit.
    pub slabs_moved: u64,
    /// Of an engine whose table is split.
    pub partitions: Option<PartitionStats>,
    /// Of an engine whose requests go to threads of its own as messages.
    pub messages: Option<MessageStats>,
    /// Of the store behind the engine; of a gateway, of all stores of its cluster together.
    pub store: Option<StoreStats>,
    /// Of the cluster behind a gateway.
    pub cluster: Option<ClusterStats>,
    /// What a service counts of itself and has no other name.
    pub own: Vec<OwnNumber>,
    /// Per class: those that have pages, or counts from when they had.
    pub classes: Vec<ClassStats>,
}

/// A number that only one kind of service has: `stats` shows it by its name, and Prometheus by that behind `guira_`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnNumber {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// Whether it adds up; otherwise it is how something is now.
    pub adds_up: bool,
    /// What it stands at.
    pub value: u64,
}

/// How a table is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartitionStats {
    /// Parts of the table.
    pub count: usize,
    /// Buckets have locks besides.
    pub has_bucket_locks: bool,
}

/// What the server threads of an engine do, to which workers send requests as messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageStats {
    /// Server threads there are.
    pub server_threads: usize,
    /// Of those, the ones that look for messages now.
    pub server_threads_awake: usize,
    /// Messages that server threads have served; what workers have served by themselves is not among them.
    pub served: u64,
}

/// What a gateway knows of its cluster, and has asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterStats {
    /// Backends that own partitions.
    pub backends: u64,
    /// Those of them that were heard of in the last seconds.
    pub backends_heard: u64,
    /// Those whose stores take no writes any more.
    pub backends_read_only: u64,
    /// Hashes of keys that are routed to cache nodes.
    pub routes: u64,
    /// Requests that wait for an answer.
    pub pending: u64,
    /// Requests that were sent to cache nodes first.
    pub to_caches: u64,
    /// Requests that were sent to backends.
    pub to_backends: u64,
    /// Requests that were sent again for want of an answer.
    pub resent: u64,
    /// Reads that were asked of a backend while a cache node was waited for.
    pub hedged: u64,
    /// Reads that were left to the network to route.
    pub routed: u64,
    /// Requests that were not answered in time.
    pub late: u64,
    /// Requests that were refused, since too many waited.
    pub refused: u64,
    /// Requests that were refused, since their backend was known to be away.
    pub away: u64,
    /// Requests that were sent on, since their partition had moved.
    pub moved: u64,
}

impl EngineStats {
    /// What only ever grows, counted from where it stood in `before`; the rest is as it is.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (now, before) in [
            (&mut self.total_items, before.total_items),
            (&mut self.evictions, before.evictions),
            (&mut self.evicted_unfetched, before.evicted_unfetched),
            (&mut self.reclaimed, before.reclaimed),
            (&mut self.expired_unfetched, before.expired_unfetched),
            (&mut self.crawler_reclaimed, before.crawler_reclaimed),
            (&mut self.crawler_items_checked, before.crawler_items_checked),
            (&mut self.out_of_memory, before.out_of_memory),
            (&mut self.slabs_moved, before.slabs_moved),
        ] {
            *now = now.saturating_sub(before);
        }
        if let (Some(now), Some(before)) = (&mut self.messages, &before.messages) {
            now.served = now.served.saturating_sub(before.served);
        }
        if let (Some(now), Some(before)) = (&mut self.cluster, &before.cluster) {
            for (now, before) in [
                (&mut now.to_caches, before.to_caches),
                (&mut now.to_backends, before.to_backends),
                (&mut now.resent, before.resent),
                (&mut now.hedged, before.hedged),
                (&mut now.routed, before.routed),
                (&mut now.late, before.late),
                (&mut now.refused, before.refused),
                (&mut now.away, before.away),
                (&mut now.moved, before.moved),
            ] {
                *now = now.saturating_sub(before);
            }
        }
        for number in self.own.iter_mut().filter(|number| number.adds_up) {
            let before = before.own.iter().find(|before| before.name == number.name);
            number.value = number.value.saturating_sub(before.map_or(0, |before| before.value));
        }
        for class in &mut self.classes {
            if let Some(before) = before.classes.iter().find(|before| before.class == class.class) {
                class.evicted = class.evicted.saturating_sub(before.evicted);
                class.evicted_unfetched = class.evicted_unfetched.saturating_sub(before.evicted_unfetched);
                class.out_of_memory = class.out_of_memory.saturating_sub(before.out_of_memory);
            }
        }
        self
    }
}

/// Numbers about one slab class.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassStats {
    /// The class's number, from 1.
    pub class: u32,
    /// Bytes of a chunk.
    pub chunk_size: usize,
    /// Chunks in a page.
    pub chunks_per_page: usize,
    /// Pages held.
    pub total_pages: u64,
    /// Chunks in use.
    pub used_chunks: u64,
    /// Chunks free.
    pub free_chunks: u64,
    /// Items removed to make room.
    pub evicted: u64,
    /// Of these, never read.
    pub evicted_unfetched: u64,
    /// Requests for a chunk that found no memory.
    pub out_of_memory: u64,
    /// Seconds since the eviction hand last passed where it stands now: how old the oldest item is.
    pub age_s: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_adds_up_counts_from_where_it_stood_and_what_is_now_is_as_it_is() {
        let own = |counted, now| {
            let number = |name, adds_up, value| OwnNumber { name, help: "", adds_up, value };
            EngineStats {
                own: vec![number("counted", true, counted), number("now", false, now)],
                ..EngineStats::default()
            }
        };
        let since = own(7, 3).since(&own(5, 2));
        assert_eq!(since.own.iter().map(|number| number.value).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(own(7, 3).since(&EngineStats::default()).own[0].value, 7);
    }
}
