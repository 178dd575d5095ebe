//! The buckets of all partitions: chains of elements, one element a bucket on average (CPHASH, section 3.1), in tables that grow
//! a bucket at a time (linear hashing), so that no operation waits for a table to be rebuilt.
//!
//! ```text
//! one partition:    buckets 0 .. n-1, 2^level <= n < 2^(level + 1);  bucket n - 2^level is the next one to be split
//! in memory:        16 buckets of each partition | the next 16 of each | the next 32 of each | the next 64 of each | ...
//! ```
//! Always true: an element is in the chain of its hash's bucket; no bucket ever moves, so that whoever does not have the
//! partition may look where a key's element probably is, to ask the memory for it; memory that no table has reached is not
//! there.
//!
//! Buckets may have locks of their own ([`Buckets::are_shared`]). Then whoever has shut a bucket may read what is in its chain, and
//! the partition's holder shuts it before changing the chain, or what readers look at of an element in it.

use std::ptr::NonNull;

use guira_arena::{Mapping, NoAddressSpace};
use guira_sync::{
    LOCK_BIT, LockedWord,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    element::{Chunks, Slot},
    shards::HASH_BITS,
};

/// Buckets of a partition at first: a cache line.
const FIRST_LEN: usize = 16;

/// Buckets in a page of the system's.
const SYSTEM_PAGE_BUCKETS: usize = 4_096 / size_of::<Slot>();

/// In the number of a partition's buckets: readers of buckets have to ask the partition, since what they find may have been flushed.
const ASK: u32 = 1 << 31;

/// The buckets of all partitions.
pub(crate) struct Buckets {
    /// Slots, each by the number after its own: a bucket that was never used is all zeros.
    slots: NonNull<AtomicU32>,
    _mapping: Mapping,
    /// The bits of a bucket that its slot takes: all, or all but that of the lock.
    slot_mask: u32,
    /// Buckets in use, by partition, and `ASK`.
    lens: Box<[AtomicU32]>,
    /// Most buckets of a partition.
    len_max: usize,
    /// Buckets of all partitions, at most.
    slots_len: usize,
    /// A hash key's partition is what is left of it without so many bits.
    partition_shift: u32,
}

// SAFETY: the slots are atomics, and reached by shared reference alone.
unsafe impl Send for Buckets {}
// SAFETY: as above.
unsafe impl Sync for Buckets {}

impl std::fmt::Debug for Buckets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buckets").field("partitions", &self.lens.len()).field("len_max", &self.len_max).finish()
    }
}

impl Buckets {
    /// Address space for the tables of a power of two of partitions, with so many elements together, whose slots count up
    /// to `lines`; buckets that are shared get locks, which leaves slots a bit less.
    ///
    /// # Errors
    /// [`NoAddressSpace`] if the system does not give that much.
    pub fn new(partitions: usize, elements: usize, lines: usize, shared: bool) -> Result<Self, NoAddressSpace> {
        // Twice what is needed if keys are spread evenly; beyond that chains grow.
        let len_max = (2 * elements.div_ceil(partitions)).next_power_of_two().max(FIRST_LEN);
        // Not in huge pages: partitions begin their shares of the next doubling all over it, and each would take a whole one.
        let mapping = Mapping::new(partitions * len_max * size_of::<AtomicU32>(), false)?;
        let lens = (0..partitions).map(|_| AtomicU32::new(FIRST_LEN as u32)).collect();
        let partition_shift = HASH_BITS - partitions.ilog2();
        let slots_len = partitions * len_max;
        let slot_mask = if shared { !LOCK_BIT } else { u32::MAX };
        assert!(lines <= slot_mask as usize, "`Config` allows no more memory than slots can name");
        let slots = mapping.start().cast();
        Ok(Self { slots, _mapping: mapping, slot_mask, lens, len_max, slots_len, partition_shift })
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.lens.len()
    }

    /// The partition of a hash key: its upper bits, where its bucket is in the lower ones.
    #[inline]
    pub fn partition_of(&self, hash: u64) -> usize {
        (hash >> self.partition_shift) as usize
    }

    /// Bytes of the buckets in use at first.
    pub fn first_bytes(&self) -> usize {
        self.lens.len() * FIRST_LEN * size_of::<Slot>()
    }

    #[inline]
    fn bucket(len: usize, hash: u64) -> usize {
        // Of the length's bits the highest one and all below it.
        let mask = usize::MAX >> len.leading_zeros();
        let bucket = hash as usize & mask;
        if bucket < len { bucket } else { bucket & mask >> 1 }
    }

    #[inline]
    fn slot(&self, partition: usize, bucket: usize) -> &AtomicU32 {
        let place = if bucket < FIRST_LEN {
            partition * FIRST_LEN + bucket
        } else {
            // Sixteen, or as many as there were before the last doubling.
            let share = usize::BITS - 1 - bucket.leading_zeros();
            ((self.lens.len() + partition - 1) << share) + bucket
        };
        assert!(place < self.slots_len, "a bucket lies in the mapping");
        // SAFETY: inside the mapping, by the comparison above; its memory begins as zeros, and is only ever used as atomics.
        unsafe { self.slots.add(place).as_ref() }
    }

    #[inline]
    fn probable(&self, partition: usize, hash: u64) -> &AtomicU32 {
        // Acquire: pairs with the Release in `grow`; the last bucket is complete, though nobody has unlocked it before. It only ever
        // grows; an old one leads to a bucket all the same.
        let len = self.lens[partition].load(Ordering::Acquire) & !ASK;
        self.slot(partition, Self::bucket(len as usize, hash))
    }

    /// Whether buckets have locks.
    #[inline]
    pub fn are_shared(&self) -> bool {
        self.slot_mask != u32::MAX
    }

    /// The slot in a bucket's word.
    #[inline]
    fn decode(&self, word: u32) -> Slot {
        Slot((word & self.slot_mask).wrapping_sub(1))
    }

    #[inline]
    fn load(&self, bucket: &AtomicU32) -> Slot {
        self.decode(bucket.load(Ordering::Relaxed))
    }

    /// Puts a slot into a bucket, which stays locked if it is.
    #[inline]
    fn store(&self, bucket: &AtomicU32, slot: Slot) {
        let lock = bucket.load(Ordering::Relaxed) & !self.slot_mask;
        bucket.store(slot.0.wrapping_add(1) | lock, Ordering::Relaxed);
    }

    /// The bucket of a hash, shut, for a reader that does not have the partition, where buckets have locks; `None` if the partition
    /// has to be asked.
    #[inline]
    pub fn shut_to_read(&self, hash: u64) -> Option<ShutBucket<'_>> {
        debug_assert!(self.are_shared());
        let partition = self.partition_of(hash);
        loop {
            // Acquire: pairs with the Release in `grow`; the last bucket is complete.
            let len = self.lens[partition].load(Ordering::Acquire);
            if len & ASK != 0 {
                return None;
            }
            let word = LockedWord::lock(self.slot(partition, Self::bucket(len as usize, hash)));
            // A bucket is split while it is shut: by now its elements have gone to another one, or stay until it is let go.
            if self.lens[partition].load(Ordering::Relaxed) == len {
                return Some(ShutBucket { word, buckets: self });
            }
        }
    }

    /// What is probably a hash's bucket, shut, if nobody has shut it, where buckets have locks.
    #[inline]
    pub fn try_shut(&self, hash: u64) -> Option<ShutBucket<'_>> {
        debug_assert!(self.are_shared());
        let word = LockedWord::try_lock(self.probable(self.partition_of(hash), hash))?;
        Some(ShutBucket { word, buckets: self })
    }

    /// Where the bucket of a hash lies, for asking the memory for it.
    #[inline]
    pub fn address(&self, partition: usize, hash: u64) -> *const AtomicU32 {
        self.probable(partition, hash)
    }

    /// The first element of a hash's bucket, or what was or will be: for asking the memory for it.
    #[inline]
    pub fn hint(&self, partition: usize, hash: u64) -> Option<Slot> {
        self.load(self.probable(partition, hash)).some()
    }
}

/// A bucket whose chain, and what readers look at of the elements in it, stays as it is until this is dropped.
pub(crate) struct ShutBucket<'b> {
    word: LockedWord<'b>,
    buckets: &'b Buckets,
}

impl ShutBucket<'_> {
    /// The first element.
    #[inline]
    pub fn first(&self) -> Slot {
        self.buckets.decode(self.word.rest())
    }
}

/// The element with this hash in the chain that begins with `first`.
#[inline]
pub(crate) fn find_from(first: Slot, chunks: Chunks<'_>, hash: u64) -> Option<Slot> {
    let mut slot = first;
    while let Some(at) = slot.some() {
        let header = chunks.header(at);
        if header.hash.get() == hash {
            return Some(at);
        }
        slot = header.link.get();
    }
    None
}

/// The chains of a partition, whose holder alone may use this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    partition: u32,
    len: u32,
}

impl Table {
    pub fn new(partition: usize) -> Self {
        Self { partition: partition as u32, len: FIRST_LEN as u32 }
    }

    /// Buckets in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn at<'b>(&self, buckets: &'b Buckets, bucket: usize) -> &'b AtomicU32 {
        buckets.slot(self.partition as usize, bucket)
    }

    #[inline]
    fn of<'b>(&self, buckets: &'b Buckets, hash: u64) -> &'b AtomicU32 {
        self.at(buckets, Buckets::bucket(self.len(), hash))
    }

    /// The first element of a bucket.
    #[inline]
    pub fn first(&self, buckets: &Buckets, bucket: usize) -> Slot {
        buckets.load(self.at(buckets, bucket))
    }

    /// The first element of a hash's bucket.
    #[inline]
    pub fn first_of(&self, buckets: &Buckets, hash: u64) -> Option<Slot> {
        buckets.load(self.of(buckets, hash)).some()
    }

    /// The element with this hash.
    #[inline]
    pub fn find(&self, chunks: Chunks<'_>, hash: u64) -> Option<Slot> {
        let buckets = &chunks.memory.buckets;
        find_from(buckets.load(self.of(buckets, hash)), chunks, hash)
    }

    /// Shuts the bucket of a hash, where buckets have locks; the caller holds the partition, and shuts one bucket at a time.
    #[inline]
    pub fn shut<'b>(&self, buckets: &'b Buckets, hash: u64) -> LockedWord<'b> {
        debug_assert!(buckets.are_shared());
        LockedWord::lock(self.of(buckets, hash))
    }

    /// Has readers of buckets ask the partition, or not; see [`Buckets::shut_to_read`].
    pub fn set_asked(&self, buckets: &Buckets, asked: bool) {
        let ask = if asked { ASK } else { 0 };
        buckets.lens[self.partition as usize].store(self.len | ask, Ordering::Release);
    }

    /// Puts an element in front of its chain, whose bucket is shut.
    #[inline]
    pub fn insert(&mut self, chunks: Chunks<'_>, slot: Slot) {
        let header = chunks.header(slot);
        let buckets = &chunks.memory.buckets;
        let first = self.of(buckets, header.hash.get());
        header.link.set(buckets.load(first));
        buckets.store(first, slot);
    }

    /// Takes an element out of its chain, in which it is, and whose bucket is shut.
    #[inline]
    pub fn remove(&mut self, chunks: Chunks<'_>, slot: Slot) {
        let header = chunks.header(slot);
        let buckets = &chunks.memory.buckets;
        let first = self.of(buckets, header.hash.get());
        let mut at = buckets.load(first);
        if at == slot {
            return buckets.store(first, header.link.get());
        }
        loop {
            let before = chunks.header(at.some().expect("the element is in its chain"));
            at = before.link.get();
            if at == slot {
                return before.link.set(header.link.get());
            }
        }
    }

    /// Buckets that memory is to be counted for before the next one is added: none, or some; `None` if there may be no more.
    #[inline]
    pub fn uncounted(&self, buckets: &Buckets) -> Option<usize> {
        if self.len() == buckets.len_max {
            return None;
        }
        // A partition's share of a doubling when it is begun, since the page it lies in is there from then on; of a larger one a
        // page at a time.
        let step = (1 << self.len().ilog2()).min(SYSTEM_PAGE_BUCKETS);
        Some(if self.len().is_multiple_of(step) { step } else { 0 })
    }

    /// The bucket whose elements are divided when there is one more.
    pub fn next_split(&self) -> usize {
        self.len() - (1 << self.len.ilog2())
    }

    /// One bucket more, of which there are fewer than there may be: the next one to be split is.
    pub fn grow(&mut self, chunks: Chunks<'_>) {
        let buckets = &chunks.memory.buckets;
        let split = self.at(buckets, self.next_split());
        // The new one has no readers yet.
        let shut = buckets.are_shared().then(|| LockedWord::lock(split));
        let mut slot = buckets.load(split);
        buckets.store(split, Slot::NONE);
        self.len += 1;
        while let Some(at) = slot.some() {
            slot = chunks.header(at).link.get();
            self.insert(chunks, at);
        }
        let len = &buckets.lens[self.partition as usize];
        // Release: pairs with the Acquire in `shut_to_read`. Only the partition's holder changes it.
        len.store(self.len | len.load(Ordering::Relaxed) & ASK, Ordering::Release);
        drop(shut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        element::Memory,
        heap::{ClassId, Heap},
    };

    #[test]
    fn buckets_of_all_partitions_lie_beside_each_other() {
        let buckets = Buckets::new(4, 300, 1 << 20, false).expect("address space");
        let mut places: Vec<usize> = (0..4)
            .flat_map(|partition| (0..buckets.len_max).map(move |bucket| (partition, bucket)))
            .map(|(partition, bucket)| {
                (buckets.slot(partition, bucket) as *const AtomicU32 as usize - buckets.slots.as_ptr() as usize) / 4
            })
            .collect();
        places.sort_unstable();
        assert_eq!(places, (0..4 * 256).collect::<Vec<_>>());
        assert!((0..4).all(|partition| buckets.slot(partition, 63) as *const _
            < buckets.slots.as_ptr().wrapping_add(4 * 64).cast_const()));
    }

    #[test]
    fn buckets_with_locks_have_room_for_every_slot_and_keep_their_lock() {
        let lines = LOCK_BIT as usize - 1;
        let buckets = Buckets::new(1, 300, lines, true).expect("address space");
        assert!(buckets.are_shared());
        assert_eq!(buckets.hint(0, 5), None);
        let bucket = buckets.slot(0, 5);
        for slot in [0, 1, LOCK_BIT - 2].map(Slot) {
            buckets.store(bucket, slot);
            let shut = buckets.shut_to_read(5).expect("nothing was flushed");
            assert!(buckets.try_shut(5).is_none() && shut.first() == slot);
            buckets.store(bucket, Slot::NONE);
            assert!(buckets.try_shut(5).is_none() && shut.first() == Slot::NONE);
            buckets.store(bucket, slot);
            drop(shut);
            assert_eq!(buckets.try_shut(5).map(|shut| shut.first()), Some(slot));
        }
        Table::new(0).set_asked(&buckets, true);
        assert!(buckets.shut_to_read(5).is_none() && buckets.hint(0, 5).is_some());
    }

    /// Buckets that never came were counted again and again.
    #[test]
    fn all_buckets_are_counted_once() {
        let memory = Memory::with_pages(64, 2);
        // SAFETY: this thread is alone with the memory.
        let chunks = unsafe { memory.chunks() };
        let mut table = Table::new(1);
        let mut counted = table.len();
        while let Some(more) = table.uncounted(&memory.buckets) {
            counted += more;
            table.grow(chunks);
            assert!(counted >= table.len());
        }
        assert_eq!((counted, table.len()), (memory.buckets.len_max, memory.buckets.len_max));
    }

    #[test]
    fn what_was_put_in_is_found_while_the_table_grows() {
        let memory = Memory::with_pages(64, 2);
        // SAFETY: this thread is alone with the memory.
        let chunks = unsafe { memory.chunks() };
        let (mut heap, mut table) = (Heap::new(0), Table::new(1));
        let class = ClassId::fitting(128).expect("fits");
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 4;
        let mut slots = Vec::new();
        for number in 0..30_000 {
            let slot = heap.allocate(chunks, class).expect("room");
            chunks.header(slot).hash.set(hash(number));
            table.insert(chunks, slot);
            slots.push(slot);
            if slots.len() > table.len() {
                table.grow(chunks);
            }
        }
        assert_eq!(table.len(), 30_000);
        for (number, slot) in slots.iter().enumerate() {
            assert_eq!(table.find(chunks, hash(number as u64)), Some(*slot));
            if number % 2 == 0 {
                table.remove(chunks, *slot);
                assert_eq!(table.find(chunks, hash(number as u64)), None);
            }
        }
        assert!((0..30_000).all(|number| table.find(chunks, hash(number)).is_some() == (number % 2 == 1)));
    }
}
