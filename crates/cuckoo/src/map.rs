//! The map: any keys and values, read without locks, written by many threads at once.
//!
//! [`CuckooMap`] puts keys and values of its own into the slots of a [`Table`]: plain data lies in the slots and is read as
//! atomic words, which are believed once the stripe has been validated; other types lie on the heap, a slot holds the pointer,
//! and what is taken out is freed when no reader can be looking any more (`seize`).

mod batch;
mod boxed;
mod collect;
mod error;
mod inline;
mod iterate;
mod memory;
mod pairs;
mod raw;
mod read;
mod resize;
mod sizing;
mod storage;
mod write;

use std::{
    hash::{BuildHasher, Hash},
    marker::PhantomData,
};

use crossbeam_utils::CachePadded;
use guira_sync::{
    Stripes,
    atomic::{AtomicUsize, Ordering},
    hint,
};
use seize::Collector;
#[cfg(not(shuttle))]
use seize::LocalGuard as Protection;
#[cfg(shuttle)]
use seize::OwnedGuard as Protection;

pub use error::{ManyFull, ReserveError, TableFull};
pub use iterate::Iter;
pub use rapidhash::fast::RandomState;
pub use read::Pinned;
pub use storage::{Auto, Boxed, Inline, Plain, Storage, Ways, Width};
pub use write::{Change, Changed};

use crate::{
    Growth, Probe,
    growth::GrowError,
    layout::{Layout, SEGMENTS_MAX},
    modelled,
    segment::Geometry,
    table::{Full, Table},
};
use memory::Memory;
use pairs::{Pairs, Words};
use sizing::{layout_for, segment_bytes};

#[cfg(all(test, shuttle))]
mod shuttle_tests;

/// Stripes, unless asked for otherwise: the dissertation's 2,048. With their counts they take 32 KiB.
const STRIPES: usize = modelled(2048, 4);
/// Fewest and most.
const STRIPES_MIN: usize = modelled(16, 2);
const STRIPES_MAX: usize = modelled(4096, 4);

/// Keys of a stripe between two looks at how full the table is.
const KEYS_BETWEEN_LOOKS: u32 = modelled(16, 2) as u32;

/// Stripes that are asked how full the table is, before all are.
const STRIPES_ASKED: usize = 64;
/// By how many percent one stripe, and some, may seem emptier than the table is.
const SLACK_OF_ONE_STRIPE: usize = 25;
const SLACK_OF_SOME_STRIPES: usize = 5;

/// A growth adds the number of segments divided by this: a key is moved twice in its life on average, where a quarter would make it
/// four times and inserts half as fast, and doubling once.
const GROWTH_DIVISOR: usize = 2;

/// Buckets that whoever adds a key while the map grows moves with it: a cache line of their tags. Growth by half is then through
/// when another two to three percent of the slots are taken (five with four ways), before the fullest segment is full.
const BUCKETS_MOVED_AN_INSERT: usize = modelled(8, 1);

/// The same for whoever changes or removes one: enough for a growth to end when no more keys come.
const BUCKETS_MOVED_A_CHANGE: usize = 1;

/// Buckets that inserts may owe to growth, for each segment that it builds, because nothing is left to move but what other threads
/// are at. If one of these is stopped, those who insert wait for it before they have filled another hundredth of the slots: they
/// must leave room for what has yet to be moved.
const BUCKETS_OWED_MAX: usize = modelled(2048, 2);

/// The same when there is no room for the key before growth has come to it.
const BUCKETS_MOVED_FOR_ROOM: usize = modelled(64, 1);

/// The smallest share of full-sized segments that must be full before growing can help: below it, too many hashes are alike where
/// it counts. A small map doubles anyway, which tells hashes apart that were alike.
const HOPELESS_PERCENT: usize = 50;

/// Why a key cannot be added as things are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NoRoom {
    /// As many keys as may have its hash already.
    Alike,
    /// No slot is free in its two buckets.
    Full,
}

pub(crate) type MapTable<K, V, L, const WAYS: usize> = Table<Pairs<K, V, L, WAYS>, Memory>;

/// A concurrent hash map: many readers that take no lock and write nothing, many writers, 95 % of its slots in use.
///
/// `S` makes hashes ([`Builder::hasher`]); `L` says where pairs lie, in the slots or on the heap ([`Auto`] chooses); a bucket
/// has `WAYS` slots, 4, 8 or 16 (more fill further, and take longer to look through). See the [crate's page](crate) for what it
/// promises and how it works.
///
/// ```
/// use guira_cuckoo::{Boxed, Builder, CuckooMap, RandomState};
///
/// let narrow: CuckooMap<u64, u64, RandomState, Boxed, 4> = Builder::new().capacity(100).build().expect("memory");
/// assert!(!narrow.is_inline() && CuckooMap::<u64, u64>::new().is_inline());
/// ```
///
/// ```
/// use guira_cuckoo::CuckooMap;
///
/// let visits: CuckooMap<u64, u64> = CuckooMap::new();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             for page in 0..1000 {
///                 visits.compute(page, |seen| guira_cuckoo::Change::Put(seen.copied().unwrap_or(0) + 1));
///             }
///         });
///     }
/// });
/// assert_eq!(visits.get(&7), Some(4));
/// assert_eq!(visits.len(), 1000);
/// ```
///
/// Keys that live shorter than the map says cannot be stored through a reference to it:
///
/// ```compile_fail
/// use guira_cuckoo::CuckooMap;
///
/// fn as_shorter<'map, 'key>(map: &'map CuckooMap<&'static str, ()>) -> &'map CuckooMap<&'key str, ()> {
///     map
/// }
/// ```
pub struct CuckooMap<K, V, S = RandomState, L = Auto, const WAYS: usize = 8>
where
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    table: MapTable<K, V, L, WAYS>,
    hasher: S,
    collector: Collector,
    is_fixed: bool,
    /// Buckets that inserts should have moved and have not yet.
    owed: AtomicUsize,
    /// Looks at how full the table is that need not be taken, because there was room for so many keys more at the last one. Written
    /// near the mark, and so away from what every read asks for.
    looks_spared: CachePadded<AtomicUsize>,
    /// The map owns pairs, and stores others through a shared reference, so their types are the very ones it names; what owning
    /// them means for threads is said below.
    pairs: PhantomData<*mut (K, V)>,
}

// SAFETY: the map owns its pairs, so they go where it goes.
unsafe impl<K: Send, V: Send, S: Send, L: Storage<K, V>, const WAYS: usize> Send for CuckooMap<K, V, S, L, WAYS> where
    Ways<WAYS>: Width
{
}
// SAFETY: through a shared map pairs are read by many threads at once, moved in by one and dropped by another.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync, L: Storage<K, V>, const WAYS: usize> Sync
    for CuckooMap<K, V, S, L, WAYS>
where
    Ways<WAYS>: Width,
{
}

impl<K, V, L: Storage<K, V>, const WAYS: usize> std::panic::RefUnwindSafe for CuckooMap<K, V, RandomState, L, WAYS> where
    Ways<WAYS>: Width
{
}

/// How a map begins.
///
/// ```
/// use guira_cuckoo::{Builder, CuckooMap};
///
/// let map: CuckooMap<u64, u64> = Builder::new().capacity(1_000_000).fixed().huge_pages().build()?;
/// assert!(map.capacity() >= 1_000_000);
/// # Ok::<_, guira_cuckoo::ReserveError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder<S = RandomState> {
    capacity: usize,
    is_fixed: bool,
    huge_pages: bool,
    stripes: usize,
    elides_locks: bool,
    hasher: S,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// An empty map that grows, with the default hasher.
    pub fn new() -> Self {
        Self {
            capacity: 0,
            is_fixed: false,
            huge_pages: false,
            stripes: STRIPES,
            elides_locks: false,
            hasher: RandomState::default(),
        }
    }
}

impl<S> Builder<S> {
    /// Room for so many keys, and as a rule for some more: slots come by powers of two up to half a segment of 4,096 buckets, and by
    /// segments from there on. A fixed map refuses what its slots do not hold, not what is more than this.
    #[must_use]
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Never grow: what finds no room is refused with [`TableFull`].
    #[must_use]
    pub fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// Ask the kernel for pages of 2 MiB: in tables larger than the processor's address caches a lookup then costs one miss
    /// where it costs two. Memory is taken 2 MiB at a time.
    #[must_use]
    pub fn huge_pages(mut self) -> Self {
        self.huge_pages = true;
        self
    }

    /// So many stripes (locks), rounded to a power of two from 16 to 4,096; 2,048 by default. No more than that: a stripe belongs
    /// to a bucket's number in its segment, and a segment has 4,096 buckets.
    #[must_use]
    pub fn stripes(mut self, stripes: usize) -> Self {
        self.stripes = stripes.clamp(STRIPES_MIN, STRIPES_MAX).next_power_of_two();
        self
    }

    /// Let writes run as transactions of the processor (Intel's RTM) where it has them, and take locks only when those fail.
    /// [`CuckooMap::elides_locks`] says what has come of it: elsewhere it changes nothing.
    ///
    /// Writes that change nothing (a pair that is there already, a condition that does not hold) then run beside each other even
    /// under one stripe, and write nothing. Those that do change something step their stripe's version for the readers, as under
    /// the lock, and so still take turns if they share a stripe. On the machine where it was measured it made every mix of writes
    /// slower, to some six tenths (an Intel Xeon with RTM, two cores; `docs/design/0005-lock-elision.md`): measure before you use it.
    /// Where the processor has no RTM the map takes its locks as if this had not been said.
    ///
    /// What is called under a lock (closures, `Hash`, `Eq`, `Clone`) may then be begun several times in one operation. Its effects on
    /// memory are seen once, or, if it panics, as far as it came; a system call in it (output, a panic's message, memory from
    /// the system) aborts the transaction before it has been made, and is made under the lock.
    #[must_use]
    pub fn elide_locks(mut self) -> Self {
        self.elides_locks = true;
        self
    }

    /// Another hasher. Its results are mixed once more, so that one whose lower or upper bits are poor will do.
    #[must_use]
    pub fn hasher<T>(self, hasher: T) -> Builder<T> {
        let Self { capacity, is_fixed, huge_pages, stripes, elides_locks, hasher: _ } = self;
        Builder { capacity, is_fixed, huge_pages, stripes, elides_locks, hasher }
    }

    /// The map.
    ///
    /// # Errors
    /// [`ReserveError`] if there is no memory for it.
    pub fn build<K, V, L: Storage<K, V>, const WAYS: usize>(self) -> Result<CuckooMap<K, V, S, L, WAYS>, ReserveError>
    where
        Ways<WAYS>: Width,
    {
        let layout = layout_for::<K, V, L, WAYS>(self.capacity, self.is_fixed)?;
        let memory = Memory::new(self.huge_pages);
        let segment_bytes = segment_bytes::<K, V, L, WAYS>(layout);
        if !memory.reserve(segment_bytes.checked_mul(layout.current).ok_or(ReserveError)?) {
            return Err(ReserveError);
        }
        let stripes = Stripes::new(self.stripes).with_elision(self.elides_locks);
        let table = Table::with_layout(memory, layout, SEGMENTS_MAX, layout.current, stripes);
        Ok(CuckooMap {
            table: table.map_err(|_| ReserveError)?,
            hasher: self.hasher,
            collector: collector(),
            is_fixed: self.is_fixed,
            owed: AtomicUsize::new(0),
            looks_spared: CachePadded::new(AtomicUsize::new(0)),
            pairs: PhantomData,
        })
    }
}

/// In a model each guard protects for itself, since its threads are one to the system, and nothing waits for company to be freed.
fn collector() -> Collector {
    if cfg!(shuttle) { Collector::new().batch_size(1) } else { Collector::new() }
}

impl<K, V> CuckooMap<K, V> {
    /// An empty map that grows as it fills.
    ///
    /// # Panics
    /// If the system has no memory for a few kilobytes.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty map with room for so many keys, which grows when there are more.
    ///
    /// # Panics
    /// If the system has no such memory; [`Builder::build`] returns an error instead.
    pub fn with_capacity(keys: usize) -> Self {
        Self::with_capacity_and_hasher(keys, RandomState::default())
    }
}

impl<K, V, S> CuckooMap<K, V, S> {
    /// As [`CuckooMap::new`], with a hasher of one's own.
    ///
    /// # Panics
    /// If the system has no memory for a few kilobytes.
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// As [`CuckooMap::with_capacity`], with a hasher of one's own.
    ///
    /// # Panics
    /// If the system has no such memory.
    pub fn with_capacity_and_hasher(keys: usize, hasher: S) -> Self {
        let built = Builder::new().capacity(keys).hasher(hasher).build();
        built.unwrap_or_else(|error| panic!("a map for {keys} keys: {error}"))
    }
}

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// Keys in the map; exact when nobody is writing.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no key; exact when nobody is writing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots: some keys more than can be stored before the map grows, or is full.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Whether pairs lie in the slots, or on the heap: what [`Auto`] has chosen.
    pub fn is_inline(&self) -> bool {
        L::is_inline()
    }

    /// Whether the map never grows.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Whether writes are tried as transactions first: [`Builder::elide_locks`] has been asked for, and the processor has them.
    pub fn elides_locks(&self) -> bool {
        self.table.elides_locks()
    }

    /// Bytes of slots, tags, stripes and the account of a growth, without what entries on the heap take.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.table.stripes() * 16 + self.table.migration.bytes()
    }

    /// The hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Protects entries on the heap that are found from now on.
    #[inline]
    fn protect(&self) -> Protection<'_> {
        #[cfg(not(shuttle))]
        return self.collector.enter();
        #[cfg(shuttle)]
        return self.collector.enter_owned();
    }

    /// Where a key of this hash is looked for.
    fn probe(hash: u64) -> Probe {
        Probe::new(hash)
    }
}

/// Spreads what a hasher leaves uneven: the high half of a product folded into its low half.
#[inline(always)]
fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    #[inline(always)]
    pub(crate) fn hash_of<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        mix(self.hasher.hash_one(key))
    }

    /// The hash of what lies in a slot. Its stripe is held.
    fn hash_of_content(&self, content: Words<'_>) -> u64 {
        if L::is_inline() {
            // SAFETY: the slot holds a pair, which nobody changes while its stripe is held.
            return self.hash_of(&unsafe { content.copy::<K, V>().key() });
        }
        let entry = pairs::unmark(content.pointer::<K, V>().load(Ordering::Relaxed));
        // SAFETY: the slot holds an entry, which nobody takes out while its stripe is held.
        unsafe { (*entry).hash }
    }

    fn prefetch_content(content: Words<'_>) {
        if !L::is_inline() {
            let entry = content.pointer::<K, V>().load(Ordering::Relaxed);
            crate::prefetch(pairs::unmark(entry));
        }
    }

    /// Some steps of a growth that is under way.
    fn grow_by(&self, buckets: usize) -> Result<Growth, GrowError> {
        self.table.grow_by(buckets, Self::prefetch_content, |content| self.hash_of_content(content))
    }

    /// Makes room for a key that there was none for: by displacement, or by growing.
    fn make_room(&self, probe: &Probe, missing: NoRoom) -> Result<(), Full> {
        if missing == NoRoom::Alike {
            return Err(Full);
        }
        // If another thread grows the table meanwhile, what was full before says nothing.
        let before = self.table.layout();
        if self.table.make_room(probe).is_ok() {
            return Ok(());
        }
        if self.is_fixed {
            return Err(Full);
        }
        let outcome = if self.table.is_growing() {
            let hash = |content: Words<'_>| self.hash_of_content(content);
            match self.table.make_room_in_growth(probe, Self::prefetch_content, hash) {
                Err(GrowError::NothingToFree | GrowError::Unplaced) => self.grow_by(BUCKETS_MOVED_FOR_ROOM).map(|_| ()),
                outcome => outcome,
            }
        } else if self.is_hopeless(before) {
            return self.full_since(before);
        } else {
            self.begin_growth()
        };
        match outcome {
            Ok(()) => Ok(()),
            // Whoever is at it may need this processor.
            Err(GrowError::Busy) => {
                hint::yield_now();
                Ok(())
            }
            Err(_) => self.full_since(before),
        }
    }

    /// Whether growing cannot help: so few slots are taken that too many hashes must be alike where it counts.
    fn is_hopeless(&self, layout: Layout) -> bool {
        layout.small_bits.is_none() && self.len() * 100 < self.capacity() * HOPELESS_PERCENT
    }

    /// There is no room, unless another thread has made some.
    fn full_since(&self, before: Layout) -> Result<(), Full> {
        if self.table.layout() == before { Err(Full) } else { Ok(()) }
    }

    /// Begins to grow, or doubles a small table.
    fn begin_growth(&self) -> Result<(), GrowError> {
        let layout = self.table.layout();
        if let Some(bits) = layout.small_bits {
            let larger = sizing::doubled(<Pairs<K, V, L, WAYS> as Geometry>::BUCKETS, bits);
            return self.table.rebuild(larger, |content| self.hash_of_content(content));
        }
        // What was owed to the growth before is its affair.
        self.owed.store(0, Ordering::Relaxed);
        self.table.begin_growth(|segments| segments + (segments / GROWTH_DIVISOR).max(1))
    }

    /// To be called after a key has been added, without a lock: keeps growth going, and begins it in time.
    #[inline]
    fn after_insert(&self, hash: u64, keys_of_stripe: u32) {
        if !self.table.is_steady() && self.table.is_growing() {
            self.help_growth();
        } else if keys_of_stripe.is_multiple_of(KEYS_BETWEEN_LOOKS) && !self.is_fixed {
            self.grow_in_time(hash, keys_of_stripe);
        }
    }

    /// To be called after a key has been changed or removed, without a lock: while the map grows reads go the long way, and a
    /// growth that only inserts move would stand still when there are no more of them.
    #[inline]
    fn after_change(&self) {
        if !self.table.is_steady() {
            self.nudge_growth();
        }
    }

    #[cold]
    fn nudge_growth(&self) {
        if self.table.is_growing() {
            // If it fails those who insert will say so.
            let _others_may_be_at_it = self.grow_by(BUCKETS_MOVED_A_CHANGE);
        }
    }

    /// Moves some buckets, or owes them if there is nothing to be had.
    #[cold]
    fn help_growth(&self) {
        let owed = self.owed.load(Ordering::Relaxed);
        let repaid = owed.min(BUCKETS_MOVED_AN_INSERT);
        match self.grow_by(BUCKETS_MOVED_AN_INSERT + repaid) {
            Ok(Growth::Underway) if repaid > 0 => {
                let paid = |owed: usize| Some(owed.saturating_sub(repaid));
                let _always = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
            }
            Ok(Growth::Underway) => {}
            Ok(Growth::Idle | Growth::Complete) => self.owed.store(0, Ordering::Relaxed),
            Err(GrowError::Busy) => {
                let owed = self.owed.fetch_add(BUCKETS_MOVED_AN_INSERT, Ordering::Relaxed);
                let owed_max = || BUCKETS_OWED_MAX * self.table.layout().next;
                while owed > owed_max() && self.grow_by(BUCKETS_MOVED_AN_INSERT) == Err(GrowError::Busy) {
                    hint::yield_now();
                }
            }
            // Whoever finds no room tries again, and says so.
            Err(_) => {}
        }
    }

    /// Begins to grow if it is time. To ask all stripes is to read 32 KiB, so some are asked before; and a map that
    /// stays just below the mark, as one does that was made for as many keys as it has, asks all of them seldom.
    #[cold]
    fn grow_in_time(&self, hash: u64, keys_of_stripe: u32) {
        let full_percent = Pairs::<K, V, L, WAYS>::FULL_PERCENT;
        let may_be_full = |keys: usize, slack| keys * 100 >= self.capacity() * (full_percent - slack);
        if !may_be_full(keys_of_stripe as usize * self.table.stripes(), SLACK_OF_ONE_STRIPE)
            || !may_be_full(self.table.estimate_len(&Probe::new(hash), STRIPES_ASKED), SLACK_OF_SOME_STRIPES)
        {
            return;
        }
        let one_less = |spared: usize| spared.checked_sub(1);
        if self.looks_spared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return;
        }
        let missing = self.table.keys_before_growth();
        if missing == 0 {
            let _others_may_be_at_it = self.begin_growth();
        } else if keys_of_stripe >= 4 * KEYS_BETWEEN_LOOKS {
            // So many keys more take a look for each sixteen of them, on average; half as many are surely not too many. Where
            // stripes have few keys it is chance whether one has the sixteenth.
            self.looks_spared.store(missing / KEYS_BETWEEN_LOOKS as usize / 2, Ordering::Relaxed);
        }
    }
}

impl<K, V, S, L, const WAYS: usize> Drop for CuckooMap<K, V, S, L, WAYS>
where
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    fn drop(&mut self) {
        if !L::is_inline() {
            let mut panicked = None;
            self.table.each_content(|content| {
                let entry = pairs::unmark(content.pointer::<K, V>().load(Ordering::Relaxed));
                // SAFETY: nobody else refers to the map any more, and each entry in it came from a box and is in one slot.
                let entry = unsafe { Box::from_raw(entry) };
                if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(entry))) {
                    panicked = Some(panic);
                }
            });
            // The others have been dropped all the same.
            if let Some(panic) = panicked.filter(|_| !std::thread::panicking()) {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
