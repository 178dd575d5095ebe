//! A partition: a hash table of its own with its own order of use (CPHASH, section 3.1), in the hands of one thread at a time.
//! Both engines run this code: CPHASH by the thread that serves the partition, LOCKHASH under the partition's lock.
//!
//! Always true: an element is in its bucket and, under [`Eviction::Lru`], in the order of use exactly while it is ready; one that
//! is being filled is in neither; the element that is there is served until the one that replaces it is ready; memory is taken
//! before anything is changed, and an element with references is freed by whoever gives up the last one.

use std::sync::{PoisonError, atomic::Ordering};

use guira_arena::PAGE_LEN;
use guira_item::{
    Answer, Change, Death, Expiry, Footprint, Footprints, Hit, ItemInfo, NewValue, Operation, OrderCursor, Request,
    Restore, Standing, Store, StoreMode, Time, apply,
};
use guira_sync::{LockedWord, prefetch_to_write};

use crate::{
    config::Eviction,
    context::{Context, Counters, Lookup, Outcome, Shape, Shortage, Supply},
    element::{Header, Kind, PIECE_HEADER_LEN, Parts, Slot, mark},
    element_ops::{
        current, fill, footprints, free_element, info, is_replaceable, keeps_use, marked_copy, number_text, set_marks,
    },
    heap::{ClassId, PIECE_LEN_MAX},
    table::Table,
};

/// Elements evicted in the hope that one of them leaves a chunk of the class that is wanted, before whole pages are emptied: in a
/// cache of one size the first one does.
const EVICTIONS_PER_CHUNK: usize = 8;

/// Buckets looked at for an element to evict at random, before the next ones are.
const RANDOM_TRIES: usize = 16;

/// Times that a change is begun again because making room for it took what was there.
const ATTEMPTS_MAX: usize = 4;

/// Largest version of what is put back: a body keeps 56 bits, and as many stores are to come.
const VERSION_MAX: u64 = 1 << 55;

/// Bytes of a value in a page of full pieces.
const PAGE_VALUE_LEN: usize = PAGE_LEN / PIECE_LEN_MAX * PIECE_LEN_MAX;

/// What a set in place leaves in memory.
#[inline]
pub(crate) fn after_set(store: &Store<'_>, class: u32) -> Footprint {
    Footprint { class, value_len: store.value.len(), expiry: store.expiry }
}

/// A hash table with an order of use. What every operation needs lies in the first cache line, with the lock if there is one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Partition {
    table: Table,
    newest: Slot,
    oldest: Slot,
    len: usize,
    /// Elements up to this version were flushed.
    flushed_version: u64,
    last_version: u64,
    random: u64,
    /// Bytes of values written so far.
    written: u64,
    /// Where the crawler goes on.
    crawl_bucket: usize,
    /// Buckets with what a flush has left, at most.
    unswept: usize,
    pub counters: Counters,
}

impl Partition {
    pub fn new(number: usize, seed: u64) -> Self {
        Self {
            table: Table::new(number),
            len: 0,
            newest: Slot::NONE,
            oldest: Slot::NONE,
            last_version: 0,
            flushed_version: 0,
            random: seed | 1,
            written: 0,
            crawl_bucket: 0,
            unswept: 0,
            counters: Counters::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The version that was handed out last.
    pub fn last_version(&self) -> u64 {
        self.last_version
    }

    /// Goes on behind a version.
    pub fn skip_versions(&mut self, last: u64) {
        if last <= VERSION_MAX {
            self.last_version = self.last_version.max(last);
        }
    }

    /// Bytes of values written so far, by which a turn with the partition is measured.
    #[inline]
    pub fn written(&self) -> u64 {
        self.written
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// From now on nothing that is there is visible.
    pub fn flush(&mut self, cx: &Context<'_>) {
        self.flushed_version = self.last_version;
        self.unswept = self.table.len();
        self.table.set_asked(&cx.chunks.memory.buckets, true);
    }

    /// The bucket of a hash, shut for its readers as long as the result lives, if buckets have locks.
    #[inline]
    fn shut<'c>(&self, cx: &Context<'c>, hash: u64) -> Option<LockedWord<'c>> {
        let buckets = &cx.chunks.memory.buckets;
        buckets.are_shared().then(|| self.table.shut(buckets, hash))
    }

    /// Whether there may be elements left that were flushed.
    pub fn is_unswept(&self) -> bool {
        self.unswept > 0
    }

    #[inline]
    fn death(&self, header: &Header, now: Time) -> Option<Death> {
        if header.version.get() <= self.flushed_version {
            Some(Death::Flushed)
        } else if Expiry::from_raw(header.expiry.get()).is_past(now) {
            Some(Death::Expired)
        } else {
            None
        }
    }

    /// Asks for what comes after the first element of a hash's chain, which has been asked for: its neighbours in the order of use,
    /// or the next element if it is another's. Half of the elements are not the first of their chain.
    #[inline]
    pub fn prefetch_behind_first(&self, cx: &Context<'_>, hash: u64) {
        let (chunks, memory) = (cx.chunks, cx.chunks.memory);
        let Some(first) = self.table.first_of(&memory.buckets, hash) else { return };
        let header = chunks.header(first);
        if header.hash.get() != hash {
            if let Some(next) = header.link.get().some() {
                memory.prefetch_element(next);
            }
        } else if cx.settings.config.eviction == Eviction::Lru {
            for neighbour in [header.newer.get(), header.older.get()] {
                prefetch_to_write(memory.address(neighbour));
            }
        }
    }

    /// A plain read by its hash key. The caller compares the whole key, takes a reference if it gives the partition away before
    /// it is done, and tells that the element was used.
    #[inline]
    pub fn lookup<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, hash: u64) -> Lookup {
        let Some(slot) = self.table.find(cx.chunks, hash) else { return Lookup::Miss(None) };
        let header = cx.chunks.header(slot);
        if let Some(death) = self.death(header, cx.now) {
            self.reclaim(cx, supply, slot);
            return Lookup::Miss(Some(death));
        }
        Lookup::Hit(slot)
    }

    /// Carries out any operation. A store's element may have been filled beforehand; it is used or freed.
    ///
    /// # Errors
    /// [`Shortage`] if pages have to be emptied first; nothing has been changed then, but that elements may have been evicted.
    pub fn execute<S: Supply>(
        &mut self,
        cx: &Context<'_>,
        supply: &mut S,
        hash: u64,
        request: &Request<'_>,
        filled: &mut Option<Slot>,
    ) -> Result<(Option<Death>, Outcome), Shortage> {
        if let (Operation::Store(store), None) = (&request.operation, &*filled)
            && let Some((cas, before)) = self.set_in_place(cx, hash, request.key.as_bytes(), store)
        {
            let items = Footprints { before: Some(before), after: Some(after_set(store, before.class)) };
            return Ok((None, Outcome::Answer(Answer::Stored { cas }, items)));
        }
        let mut spare = filled.take();
        let is_filled = spare.is_some();
        let key = request.key.as_bytes();
        for _ in 0..ATTEMPTS_MAX {
            let there = self.table.find(cx.chunks, hash);
            let there = there.filter(|slot| cx.chunks.memory.body(*slot).key() == key);
            let death = there.and_then(|slot| self.death(cx.chunks.header(slot), cx.now));
            let live = there.filter(|_| death.is_none());
            let number = live.and_then(|slot| number_text(cx, slot, &request.operation));
            let current = live.map(|slot| current(cx, slot, number.as_deref()));
            let version = self.version_of(&request.operation);
            let (change, answer) = apply(&request.operation, current.as_ref(), cx.now, cx.settings.shown(version));
            let items = footprints(cx.settings, request, current.as_ref(), &change);
            // Whoever has a reference reads the version it was given it with: the element gets a new one as a copy of itself.
            let as_copy = live.and_then(|slot| marked_copy(cx, slot, &change));
            let is_copied = as_copy.is_some();
            match as_copy.unwrap_or(change) {
                Change::Keep if death.is_some() => self.reclaim(cx, supply, there.expect("it is there, dead")),
                Change::Keep => {}
                Change::Remove => self.remove(cx, supply, there.expect("only what is there is removed")),
                Change::Mark { expiry, stale, win_sent, new_version } => {
                    let slot = there.expect("only what is there is marked");
                    let header = cx.chunks.header(slot);
                    let _shut = self.shut(cx, hash);
                    header.expiry.set(expiry.to_raw());
                    header.set(mark::STALE, stale);
                    header.set(mark::WON, win_sent);
                    if new_version {
                        self.last_version = version;
                        header.version.set(version);
                        cx.chunks.memory.body(slot).set_version(version);
                    }
                }
                Change::Rewrite { value, flags, expiry, stale, win_sent } => {
                    let value_len = value.len_with(current.map_or(0, |item| item.value_len));
                    let Some(shape) = cx.settings.shape(key.len(), value_len) else {
                        self.free_spare(cx, supply, spare);
                        return Ok((death, Outcome::Answer(Answer::TooLarge, Footprints::default())));
                    };
                    // What is put back keeps its version, which what is written over does not.
                    let may_replace = !is_filled && !matches!(request.operation, Operation::Restore(_));
                    let in_place = there.filter(|slot| may_replace && is_replaceable(cx, *slot, shape, &value));
                    if let Some(slot) = in_place {
                        let header = cx.chunks.header(slot);
                        self.counters.bytes -= header.total_len() as u64;
                        let shut = self.shut(cx, hash);
                        fill(cx, slot, key, flags, value_len, &value, None);
                        self.written += value_len as u64;
                        self.renew(cx, slot);
                        set_marks(header, expiry, stale, win_sent, keeps_use(&value, current.as_ref()));
                        drop(shut);
                        self.free_spare(cx, supply, spare.take());
                        return Ok((death, self.outcome(cx, request, hash, there, answer, items)));
                    }
                    let fits = |slot: &Slot| {
                        let header = cx.chunks.header(*slot);
                        let is_as_long = !shape.in_pieces || header.value_len.get() as usize == value_len;
                        is_filled
                            || (header.class.get(), header.is_large()) == (shape.class.0, shape.in_pieces) && is_as_long
                    };
                    let slot = match spare.take_if(|slot| fits(slot)) {
                        Some(slot) => slot,
                        None => {
                            self.free_spare(cx, supply, spare.take());
                            let evicted = self.counters.evicted;
                            let slot = self.allocate_element(cx, supply, shape, value_len)?;
                            if self.counters.evicted != evicted {
                                spare = Some(slot);
                                continue;
                            }
                            slot
                        }
                    };
                    if !is_filled {
                        fill(cx, slot, key, flags, value_len, &value, live);
                        self.written += value_len as u64;
                    }
                    let is_fetched = keeps_use(&value, current.as_ref())
                        || is_copied && current.is_some_and(|item| item.fetched)
                        || matches!(request.operation, Operation::Restore(Restore { fetched: true, .. }));
                    set_marks(cx.chunks.header(slot), expiry, stale, win_sent, is_fetched);
                    self.make_ready(cx, supply, slot, hash, version);
                    if let Operation::Restore(Restore { idle_s, .. }) = &request.operation {
                        cx.chunks.header(slot).set_used(cx.now.minus_s(*idle_s));
                    }
                }
            }
            self.free_spare(cx, supply, spare.take());
            return Ok((death, self.outcome(cx, request, hash, there, answer, items)));
        }
        // What makes room for the change goes on taking what it would change.
        let class = ClassId(cx.chunks.header(spare.expect("room was made")).class.get());
        self.free_spare(cx, supply, spare);
        Ok((None, self.out_of_memory(cx, supply, hash, request, class)))
    }

    /// A set, the most frequent change of all, of an element whose chunk the new value fits: what [`Partition::execute`] would
    /// come to, without asking for what a set does not need. Returns the version as clients see it, and what was there.
    #[inline]
    pub fn set_in_place(
        &mut self,
        cx: &Context<'_>,
        hash: u64,
        key: &[u8],
        store: &Store<'_>,
    ) -> Option<(u64, Footprint)> {
        if store.mode != StoreMode::Set || store.cas.is_some() {
            return None;
        }
        let slot = self.table.find(cx.chunks, hash).filter(|slot| cx.chunks.memory.body(*slot).key() == key)?;
        let (header, value) = (cx.chunks.header(slot), NewValue::Bytes(store.value));
        let shape = cx.settings.shape(key.len(), store.value.len())?;
        if self.death(header, cx.now).is_some() || !is_replaceable(cx, slot, shape, &value) {
            return None;
        }
        let (class, expiry) = (shape.class.number(), Expiry::from_raw(header.expiry.get()));
        let before = Footprint { class, value_len: header.value_len.get() as usize, expiry };
        self.counters.bytes -= header.total_len() as u64;
        let _shut = self.shut(cx, hash);
        // SAFETY: the partition is held, its bucket shut, and nobody has a reference to the element, whose chunk is long enough.
        unsafe { cx.chunks.memory.fill(slot, key, store.flags, Parts::new([store.value, &[], &[]], 0)) };
        self.written += store.value.len() as u64;
        self.renew(cx, slot);
        set_marks(header, store.expiry, false, false, false);
        Some((cx.settings.shown(self.last_version), before))
    }

    /// What an operation that has been carried out is answered, and what was used by it.
    #[inline]
    fn outcome(
        &mut self,
        cx: &Context<'_>,
        request: &Request<'_>,
        hash: u64,
        there: Option<Slot>,
        answer: Result<Hit, Answer>,
        items: Footprints,
    ) -> Outcome {
        match answer {
            Ok(hit) => {
                let slot = self.table.find(cx.chunks, hash).expect("what was hit is there");
                let header = cx.chunks.header(slot);
                let Operation::Get(get) = &request.operation else { unreachable!("only a read is a hit") };
                if get.bump {
                    self.use_element(cx, slot);
                }
                let class = ClassId(header.class.get()).number();
                let hit = Hit { total_len: header.total_len(), class, ..hit };
                if get.value { Outcome::Hit(hit, slot) } else { Outcome::Metadata(hit) }
            }
            Err(answer) => {
                if answer == Answer::Touched {
                    self.use_element(cx, there.expect("only what is there is touched"));
                }
                Outcome::Answer(answer, items)
            }
        }
    }

    /// An element whose body has been written over has the next version, and is the newest.
    #[inline]
    fn renew(&mut self, cx: &Context<'_>, slot: Slot) {
        let (header, body) = (cx.chunks.header(slot), cx.chunks.memory.body(slot));
        self.last_version += 1;
        header.version.set(self.last_version);
        header.flags.set(body.flags());
        header.value_len.set(body.value_len() as u32);
        header.set_used(cx.now);
        body.set_version(self.last_version);
        self.counters.total_items += 1;
        self.counters.bytes += header.total_len() as u64;
        self.make_newest(cx, slot);
    }

    /// The answer of an operation for which there is no memory, of this class; counts it. memcached lets go of what a set would
    /// have replaced, so that no stale value stays.
    pub fn out_of_memory<S: Supply>(
        &mut self,
        cx: &Context<'_>,
        supply: &mut S,
        hash: u64,
        request: &Request<'_>,
        class: ClassId,
    ) -> Outcome {
        self.counters.out_of_memory += 1;
        supply.count_out_of_memory(class);
        if matches!(request.operation, Operation::Store(Store { mode: StoreMode::Set, cas: None, .. }))
            && let Some(slot) = self.table.find(cx.chunks, hash)
        {
            self.remove(cx, supply, slot);
        }
        Outcome::Answer(Answer::OutOfMemory, Footprints::default())
    }

    /// An element with room for key and value, which the caller fills: in no bucket yet (NOT READY).
    ///
    /// # Errors
    /// [`Shortage`] if pages have to be emptied first.
    pub fn allocate_element<S: Supply>(
        &mut self,
        cx: &Context<'_>,
        supply: &mut S,
        shape: Shape,
        value_len: usize,
    ) -> Result<Slot, Shortage> {
        let head = self.allocate(cx, supply, shape.class)?;
        let header = cx.chunks.header(head);
        header.clear_marks();
        header.references.set(0);
        header.pieces.set(Slot::NONE);
        header.value_len.set(value_len as u32);
        if !shape.in_pieces {
            return Ok(head);
        }
        // The pieces are chained from the last to the first, which has what is left over when the others are full.
        let mut left = value_len;
        while left > 0 {
            let len = left.min(PIECE_LEN_MAX);
            let class = ClassId::fitting(PIECE_HEADER_LEN + len).expect("a piece fits the largest chunk");
            match self.allocate(cx, supply, class) {
                Ok(piece) => {
                    if !header.is_large() {
                        supply.count_in_pieces(value_len, true);
                    }
                    cx.chunks.link_piece(piece, head, header.pieces.get(), len);
                    header.pieces.set(piece);
                }
                Err(shortage) => {
                    free_element(cx, supply, head);
                    // Those of full pieces, and one each for the first piece and the head.
                    return Err(Shortage { pages: value_len.div_ceil(PAGE_VALUE_LEN) + 2, ..shortage });
                }
            }
            left -= len;
        }
        Ok(head)
    }

    fn allocate<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, class: ClassId) -> Result<Slot, Shortage> {
        if let Some(slot) = supply.allocate(cx.chunks, class) {
            return Ok(slot);
        }
        for _ in 0..EVICTIONS_PER_CHUNK {
            let Some(victim) = self.victim(cx) else { break };
            let header = cx.chunks.header(victim);
            if !cx.settings.config.evictions_enabled && self.death(header, cx.now).is_none() {
                break;
            }
            if class.is_coarse() && !header.is_large() && header.class.get() != class.0 {
                break;
            }
            self.evict(cx, supply, victim);
            if let Some(slot) = supply.allocate(cx.chunks, class) {
                return Ok(slot);
            }
        }
        Err(Shortage { class, pages: 1 })
    }

    /// The version of what an operation stores: the next one, or the one that what is put back had, unless it would count as
    /// flushed.
    fn version_of(&self, operation: &Operation<'_>) -> u64 {
        match operation {
            Operation::Restore(Restore { version, .. })
                if (self.flushed_version + 1..=VERSION_MAX).contains(version) =>
            {
                *version
            }
            _ => self.last_version + 1,
        }
    }

    /// An element that has been filled takes its place under its hash, with a version, instead of what is there.
    fn make_ready<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, slot: Slot, hash: u64, version: u64) {
        // What is there goes, and this comes, at one moment for readers of the bucket.
        let shut = self.shut(cx, hash);
        if let Some(old) = self.table.find(cx.chunks, hash) {
            self.take_out(cx, supply, old);
        }
        self.last_version = self.last_version.max(version);
        let (header, body) = (cx.chunks.header(slot), cx.chunks.memory.body(slot));
        header.set_kind(Kind::Ready);
        header.hash.set(hash);
        header.version.set(version);
        header.key_len.set(body.key_len() as u8);
        header.flags.set(body.flags());
        header.value_len.set(body.value_len() as u32);
        header.set_used(cx.now);
        body.set_version(version);
        self.table.insert(cx.chunks, slot);
        drop(shut);
        self.link_newest(cx, slot);
        self.len += 1;
        self.counters.total_items += 1;
        self.counters.bytes += header.total_len() as u64;
        self.grow_table(cx, supply);
    }

    /// A bucket more if there are fewer than elements. Without memory to count it against the chains grow longer until there is
    /// some.
    #[inline]
    fn grow_table<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S) -> bool {
        let memory = cx.chunks.memory;
        let grows = self.len > self.table.len()
            && self.table.uncounted(&memory.buckets).is_some_and(|len| memory.charge(len * size_of::<Slot>()));
        if grows {
            if self.is_unswept() {
                // Nothing that was flushed moves to where the crawler may have been; it counts one bucket more to come round. What
                // has expired stays: it may have been created just now, for a read that is still to be answered.
                self.sweep(cx, supply, self.table.next_split(), |death| death == Death::Flushed);
                self.unswept += 1;
            }
            self.table.grow(cx.chunks);
        }
        grows
    }

    /// Whether chains have grown long for want of memory for buckets.
    pub fn is_crowded(&self) -> bool {
        self.len > 2 * self.table.len()
    }

    /// Buckets for the elements there are, at most so many.
    pub fn catch_up<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, buckets: usize) {
        (0..buckets).take_while(|_| self.grow_table(cx, supply)).for_each(drop);
    }

    /// Takes an element out of its bucket; frees it unless somebody still reads it.
    pub fn remove<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, slot: Slot) {
        let _shut = self.shut(cx, cx.chunks.header(slot).hash.get());
        self.take_out(cx, supply, slot);
    }

    /// The same with an element whose bucket is shut.
    fn take_out<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, slot: Slot) {
        let header = cx.chunks.header(slot);
        self.table.remove(cx.chunks, slot);
        self.unlink(cx, slot);
        self.len -= 1;
        self.counters.bytes -= header.total_len() as u64;
        if header.references.get() > 0 {
            header.set_kind(Kind::Dead);
        } else {
            free_element(cx, supply, slot);
        }
    }

    fn reclaim<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, slot: Slot) {
        self.counters.reclaimed += 1;
        self.counters.expired_unfetched += u64::from(!cx.chunks.header(slot).has(mark::FETCHED));
        self.remove(cx, supply, slot);
    }

    /// Removes an element to make room.
    pub fn evict<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, slot: Slot) {
        let header = cx.chunks.header(slot);
        if self.death(header, cx.now).is_some() {
            self.counters.evicted += 1;
            return self.reclaim(cx, supply, slot);
        }
        self.counters.evicted += 1;
        supply.count_evicted(ClassId(header.class.get()), header.total_len(), header.has(mark::FETCHED));
        if cx.settings.is_logging.load(Ordering::Relaxed)
            && let Some(log) = &*cx.settings.eviction_log.lock().unwrap_or_else(PoisonError::into_inner)
        {
            log(&info(cx, slot));
        }
        self.remove(cx, supply, slot);
    }

    /// The element that goes next.
    pub fn victim(&mut self, cx: &Context<'_>) -> Option<Slot> {
        match cx.settings.config.eviction {
            Eviction::Lru => self.oldest.some(),
            Eviction::Random => self.random_element(cx),
        }
    }

    fn random_element(&mut self, cx: &Context<'_>) -> Option<Slot> {
        if self.len == 0 {
            return None;
        }
        let buckets = &cx.chunks.memory.buckets;
        let mut bucket = 0;
        for _ in 0..RANDOM_TRIES {
            // Xorshift: which element goes need not be hard to guess.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            bucket = (self.random >> 16) as usize % self.table.len();
            if let Some(slot) = self.table.first(buckets, bucket).some() {
                return Some(slot);
            }
        }
        let len = self.table.len();
        (bucket..len).chain(0..bucket).find_map(|bucket| self.table.first(buckets, bucket).some())
    }

    #[inline]
    pub fn use_element(&mut self, cx: &Context<'_>, slot: Slot) {
        let header = cx.chunks.header(slot);
        header.set(mark::FETCHED, true);
        header.set_used(cx.now);
        self.make_newest(cx, slot);
    }

    #[inline]
    fn make_newest(&mut self, cx: &Context<'_>, slot: Slot) {
        if self.newest != slot {
            self.unlink(cx, slot);
            self.link_newest(cx, slot);
        }
    }

    #[inline]
    fn link_newest(&mut self, cx: &Context<'_>, slot: Slot) {
        if cx.settings.config.eviction == Eviction::Random {
            return;
        }
        let header = cx.chunks.header(slot);
        header.newer.set(Slot::NONE);
        header.older.set(self.newest);
        match self.newest.some() {
            Some(before) => cx.chunks.header(before).newer.set(slot),
            None => self.oldest = slot,
        }
        self.newest = slot;
    }

    #[inline]
    fn unlink(&mut self, cx: &Context<'_>, slot: Slot) {
        if cx.settings.config.eviction == Eviction::Random {
            return;
        }
        let header = cx.chunks.header(slot);
        let (newer, older) = (header.newer.get(), header.older.get());
        match newer.some() {
            Some(newer) => cx.chunks.header(newer).older.set(older),
            None => self.newest = older,
        }
        match older.some() {
            Some(older) => cx.chunks.header(older).newer.set(newer),
            None => self.oldest = newer,
        }
    }

    fn free_spare<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, spare: Option<Slot>) {
        if let Some(slot) = spare {
            free_element(cx, supply, slot);
        }
    }

    /// Frees the dead elements of the next `buckets` buckets; returns how many.
    pub fn crawl<S: Supply>(&mut self, cx: &Context<'_>, supply: &mut S, buckets: usize) -> usize {
        let mut freed = 0;
        for _ in 0..buckets.min(self.table.len()) {
            if self.crawl_bucket >= self.table.len() {
                self.crawl_bucket = 0;
            }
            freed += self.sweep(cx, supply, self.crawl_bucket, |_| true);
            self.crawl_bucket += 1;
            if self.unswept == 1 {
                self.table.set_asked(&cx.chunks.memory.buckets, false);
            }
            self.unswept = self.unswept.saturating_sub(1);
        }
        freed
    }

    /// Frees the elements of a bucket that have died such a death; returns how many.
    fn sweep<S: Supply>(
        &mut self,
        cx: &Context<'_>,
        supply: &mut S,
        bucket: usize,
        is_meant: impl Fn(Death) -> bool,
    ) -> usize {
        let mut freed = 0;
        let mut slot = self.table.first(&cx.chunks.memory.buckets, bucket);
        while let Some(at) = slot.some() {
            let header = cx.chunks.header(at);
            slot = header.link.get();
            self.counters.crawler_checked += 1;
            if self.death(header, cx.now).is_some_and(&is_meant) {
                self.counters.crawler_reclaimed += 1;
                self.reclaim(cx, supply, at);
                freed += 1;
            }
        }
        freed
    }

    /// Shows up to `limit` live elements in their order of use, the oldest first, from `from` on; where the next ones are, if there
    /// are any.
    pub fn visit_in_order(
        &self,
        cx: &Context<'_>,
        from: OrderCursor,
        limit: usize,
        visit: &mut dyn FnMut(&ItemInfo<'_>, Standing),
    ) -> Option<OrderCursor> {
        let mut slot = if from.before == 0 { self.oldest } else { Slot(from.at as u32) };
        for _ in 0..limit {
            let header = cx.chunks.header(slot.some()?);
            if self.death(header, cx.now).is_none() {
                // Partitions go back to different times: that of the last use is what they have in common.
                let info = info(cx, slot);
                visit(&info, Standing::by_age(&info));
            }
            slot = header.newer.get();
        }
        slot.some().map(|slot| OrderCursor { at: slot.0.into(), before: from.before + limit as u64, ..from })
    }

    /// Shows the live elements of a bucket.
    pub fn visit(&self, cx: &Context<'_>, bucket: usize, visit: &mut dyn FnMut(&ItemInfo<'_>)) {
        let mut slot = self.table.first(&cx.chunks.memory.buckets, bucket);
        while let Some(at) = slot.some() {
            let header = cx.chunks.header(at);
            slot = header.link.get();
            if self.death(header, cx.now).is_none() {
                visit(&info(cx, at));
            }
        }
    }
}
