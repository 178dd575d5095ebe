//! The map's segments: the tags of all buckets, then their slots.
//!
//! ```text
//! buckets x 8 B                  buckets x 8 slots x 16 B            (8 ways, 8-byte keys and values)
//! tags of bucket 0, 1, ... ──    slots of bucket 0 | slots of bucket 1 | ...
//! ```
//! A line of tags serves eight buckets, and all tags together are a seventeenth of the table: a good part of them stays in
//! the caches. A slot's key and value lie side by side, so a hit costs one line of tags and one of slots (or two, if the pair is
//! large), and a miss one of tags, as a rule.
//!
//! Always true: a slot is filled before its lane says so; an inline pair is believed only after its stripe has been validated;
//! a pointer that has been read under a guard stays good until the guard is given up.

use std::{marker::PhantomData, mem::MaybeUninit, ptr::NonNull, sync::atomic::AtomicPtr};

use guira_sync::{
    atomic::{AtomicU64, Ordering},
    hint,
};

use super::storage::{INLINE_BYTES_MAX, Storage, Ways, Width};
use crate::{modelled, segment::Geometry};

/// Words of the largest slot.
pub(crate) const SLOT_WORDS_MAX: usize = INLINE_BYTES_MAX / 8;

/// The words of an inline pair, copied from a slot or on the way there.
#[derive(Debug)]
pub(crate) struct SlotWords<K, V> {
    /// As many as a slot has are written, the others never.
    words: [MaybeUninit<u64>; SLOT_WORDS_MAX],
    pair: PhantomData<fn() -> (K, V)>,
}

/// Bits of a pointer in a slot; the bits above keep some of the hash.
const ADDRESS_BITS: u32 = 48;
const _: () = assert!(size_of::<usize>() == 8, "slots hold pointers of 64 bits");

/// How a map's buckets lie in memory.
#[derive(Debug)]
pub struct Pairs<K, V, L, const WAYS: usize>(PhantomData<fn(K, V) -> L>);

/// The words of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(&'a [AtomicU64]);

/// A pair on the heap: what is read first comes first, and the beginning of a value beside its key.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Entry<K, V> {
    pub key: K,
    pub value: V,
    pub hash: u64,
}

/// Some bits of the hash that neither position nor tag nor bucket are made of, and some that are: kept beside a pointer so that
/// other keys' pointers are not followed.
#[inline]
fn check_bits(hash: u64) -> usize {
    ((hash >> 14) as usize & 0xff | (hash >> 24) as usize & 0xff00) << ADDRESS_BITS
}

impl<'a> Words<'a> {
    /// Copies an inline pair; to be believed only after its stripe has been validated.
    #[inline(always)]
    pub fn copy<K, V>(self) -> SlotWords<K, V> {
        SlotWords::collect(self.load())
    }

    /// The words, one after the other.
    #[inline(always)]
    pub fn load(self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Asks for the slot ahead of its use, as one of many.
    #[inline(always)]
    pub fn prefetch_of_many(self) {
        guira_sync::prefetch_of_many(self.0.as_ptr());
    }

    /// The slot as one that holds a pointer.
    #[inline]
    pub fn pointer<K, V>(self) -> &'a AtomicPtr<Entry<K, V>> {
        // The collector knows the standard atomics only.
        hint::schedule();
        let word: *const AtomicU64 = &raw const self.0[0];
        // SAFETY: both are atomics of 64 bits (a model's too: it is the standard one's wrapper), of the same alignment; this slot is only ever used as one of the two.
        unsafe { &*word.cast() }
    }
}

/// A pointer with bits of its entry's hash in the place of address bits that are zero wherever programs have 48 bits of addresses.
///
/// # Panics
/// If the address has such bits, as with tagged pointers (HWASan, Android's heap).
pub(crate) fn mark<K, V>(entry: *mut Entry<K, V>, hash: u64) -> *mut Entry<K, V> {
    assert_eq!(entry.addr() >> ADDRESS_BITS, 0, "an address of more than 48 bits");
    entry.map_addr(|address| address | check_bits(hash))
}

/// The pointer itself; null stays null.
#[inline]
pub(crate) fn unmark<K, V>(marked: *mut Entry<K, V>) -> *mut Entry<K, V> {
    marked.map_addr(|address| address & ((1 << ADDRESS_BITS) - 1))
}

/// Whether there is an entry that may be that of a key with such a hash.
#[inline]
pub(crate) fn may_be<K, V>(marked: *mut Entry<K, V>, hash: u64) -> bool {
    (marked.addr() ^ check_bits(hash)) >> ADDRESS_BITS == 0 && !unmark(marked).is_null()
}

impl<K, V> SlotWords<K, V> {
    /// Words of a slot.
    pub const LEN: usize = {
        let words = (size_of::<K>() + size_of::<V>()).div_ceil(8);
        if words == 0 { 1 } else { words }
    };

    /// Words that have been copied from a slot.
    #[inline(always)]
    pub fn collect(mut from: impl Iterator<Item = u64>) -> Self {
        let mut words = [MaybeUninit::uninit(); SLOT_WORDS_MAX];
        words[..Self::LEN].iter_mut().for_each(|word| *word = MaybeUninit::new(from.next().unwrap_or(0)));
        Self { words, pair: PhantomData }
    }

    /// A pair on its way into a slot.
    ///
    /// # Panics
    /// If it does not fit.
    ///
    /// # Safety
    /// Both types are plain ([`Plain`](super::Plain)).
    #[inline(always)]
    pub unsafe fn pack(key: &K, value: &V) -> Self {
        assert!(Self::LEN <= SLOT_WORDS_MAX);
        let mut words = [MaybeUninit::uninit(); SLOT_WORDS_MAX];
        // The pair may end before its last word does.
        words[Self::LEN - 1] = MaybeUninit::new(0);
        let bytes = words.as_mut_ptr().cast::<u8>();
        // SAFETY: both fit one after the other, as was just checked; they are copied as bytes, which ask for no alignment and are all
        // written, since plain types have no padding.
        unsafe {
            bytes.copy_from_nonoverlapping(std::ptr::from_ref(key).cast(), size_of::<K>());
            bytes.add(size_of::<K>()).copy_from_nonoverlapping(std::ptr::from_ref(value).cast(), size_of::<V>());
        }
        Self { words, pair: PhantomData }
    }

    /// Lends them as a slot's content.
    #[inline(always)]
    pub fn as_content(&mut self) -> Words<'_> {
        // SAFETY: `collect` and `pack` write as many; an atomic has the layout of its integer, and the borrow is exclusive for as long
        // as the result lives.
        Words(unsafe { std::slice::from_raw_parts(self.words.as_mut_ptr().cast::<AtomicU64>(), Self::LEN) })
    }

    /// The key.
    ///
    /// # Safety
    /// The words are what `pack` made of a pair, all of one state of a slot.
    #[inline(always)]
    pub unsafe fn key(&self) -> K {
        // SAFETY: contract; plain data may be copied.
        unsafe { self.words.as_ptr().cast::<K>().read_unaligned() }
    }

    /// The value.
    ///
    /// # Safety
    /// As for `key`.
    #[inline(always)]
    pub unsafe fn value(&self) -> V {
        // SAFETY: contract; plain data may be copied.
        unsafe { self.words.as_ptr().cast::<u8>().add(size_of::<K>()).cast::<V>().read_unaligned() }
    }
}

/// Lends a marked pointer as a slot's content.
#[inline]
pub(crate) fn pointer_as_content<K, V>(pointer: &AtomicPtr<Entry<K, V>>) -> Words<'_> {
    let word: *const AtomicPtr<Entry<K, V>> = pointer;
    // SAFETY: both are atomics of 64 bits, of the same alignment; it is only used as a pointer (`Geometry::write`).
    Words(unsafe { std::slice::from_raw_parts(word.cast::<AtomicU64>(), 1) })
}

impl<K, V, L: Storage<K, V>, const WAYS: usize> Pairs<K, V, L, WAYS> {
    /// Words of a slot.
    #[inline(always)]
    pub(crate) fn slot_words() -> usize {
        if L::is_inline() { SlotWords::<K, V>::LEN } else { 1 }
    }

    #[inline(always)]
    fn slots_offset(buckets: usize) -> usize
    where
        Ways<WAYS>: Width,
    {
        (buckets * size_of::<<Ways<WAYS> as Width>::Tags>()).next_multiple_of(64)
    }
}

// SAFETY: the tags of all buckets come first, then, on the border of a cache line, the slots of all buckets, `WAYS` to a bucket;
// all of 4 or 8 bytes and aligned to that.
unsafe impl<K, V, L: Storage<K, V>, const WAYS: usize> Geometry for Pairs<K, V, L, WAYS>
where
    Ways<WAYS>: Width,
{
    type Tags = <Ways<WAYS> as Width>::Tags;
    type Slot<'a> = Words<'a>;
    type Content<'a> = Words<'a>;
    const BUCKETS: usize = modelled(4096, 4);
    // Until growth has passed the last segment another three percent come, and five with four ways.
    const FULL_PERCENT: usize = if WAYS == 4 { 88 } else { 92 };

    #[inline]
    fn segment_bytes(buckets: usize) -> usize {
        (Self::slots_offset(buckets) + buckets * WAYS * Self::slot_words() * 8).next_multiple_of(64)
    }

    #[inline(always)]
    unsafe fn tags<'a>(base: NonNull<u8>, _buckets: usize, bucket: usize) -> &'a Self::Tags {
        // SAFETY: the tags of a bucket of the segment (contract), an atomic, for which every bit pattern is valid.
        unsafe { base.cast::<Self::Tags>().add(bucket).as_ref() }
    }

    #[inline(always)]
    unsafe fn slot<'a>(base: NonNull<u8>, buckets: usize, bucket: usize, slot: usize) -> Words<'a> {
        let words = Self::slot_words();
        // SAFETY: the words of a slot of the segment (contract), atomics, for which every bit pattern is valid.
        unsafe {
            let first = base.add(Self::slots_offset(buckets)).cast::<AtomicU64>().add((bucket * WAYS + slot) * words);
            Words(std::slice::from_raw_parts(first.as_ptr(), words))
        }
    }

    #[inline(always)]
    fn read<'a>(slot: Self::Slot<'a>) -> Self::Content<'a> {
        slot
    }

    #[inline(always)]
    fn write(slot: Words<'_>, content: Words<'_>) {
        if L::is_inline() {
            for (to, from) in slot.0.iter().zip(content.0) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        } else {
            let pointer = content.pointer::<K, V>().load(Ordering::Relaxed);
            // Release: pairs with the Acquire of a protected load; the entry has been written.
            slot.pointer::<K, V>().store(pointer, Ordering::Release);
        }
    }

    #[inline(always)]
    fn vacate(slot: Words<'_>) {
        if !L::is_inline() {
            // The entry may be freed from now on.
            slot.pointer::<K, V>().store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn prefetch_slot(slot: Words<'_>) {
        crate::prefetch(slot.0.as_ptr());
    }

    #[inline(always)]
    fn prefetch_slots(base: NonNull<u8>, buckets: usize, bucket: usize) {
        let bytes = WAYS * Self::slot_words() * 8;
        let first = base.as_ptr().wrapping_add(Self::slots_offset(buckets) + bucket * bytes);
        (0..bytes.div_ceil(64)).for_each(|line| crate::prefetch(first.wrapping_add(line * 64)));
    }
}
