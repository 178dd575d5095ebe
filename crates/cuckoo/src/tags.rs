//! The tags of a bucket: a byte for each slot, all in one or two words, and between them a filter of the keys that had to go
//! to their other bucket.
//!
//! ```text
//! lane (byte) of a slot:  bit 7        bit 6    bits 5..0
//!                         a filter bit away     tag, 1 to 63; 0: the slot is free
//! ```
//! *Away* says that the key lies in its second bucket. The filter bits are the bucket's, not the slot's: bit `c` is set if a
//! key whose first bucket this is, and whose tag modulo [`TagWords::CLASSES`] is `c`, may be in its second bucket (Cuckoo++,
//! Le Scouarnec, ANCS'18, keeps such filters beside the tags). So a miss reads one bucket's tags as a rule.
//!
//! Always true: a filter bit is set and cleared only by a holder of the bucket's stripe, and no key of the bucket goes to or
//! leaves its second bucket without it; so while the stripe is held a cleared bit is a proof.

use guira_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Tags run from 1 to this.
pub(crate) const TAG_MAX: u8 = 63;
const AWAY: u8 = 1 << 6;
const FILTER: u8 = 1 << 7;

/// What a slot's lane says of its key: a tag, and whether the key is away from its first bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane(u8);

impl Lane {
    /// Of a key in its first bucket.
    #[inline]
    pub fn home(tag: u8) -> Self {
        Self(tag)
    }

    /// Of a key in its second bucket.
    #[inline]
    pub fn away(tag: u8) -> Self {
        Self(tag | AWAY)
    }

    pub fn is_away(self) -> bool {
        self.0 & AWAY != 0
    }

    pub fn tag(self) -> u8 {
        self.0 & TAG_MAX
    }

    /// The same key in its other bucket.
    pub fn in_other_bucket(self) -> Self {
        Self(self.0 ^ AWAY)
    }
}

/// Slots of one bucket, a bit each, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotSet(u32);

impl SlotSet {
    /// The lowest slot.
    #[inline]
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// Whether there is more than one.
    #[inline(always)]
    pub fn is_several(self) -> bool {
        self.0 & self.0.wrapping_sub(1) != 0
    }
}

impl Iterator for SlotSet {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

/// The words in which a bucket's tags lie; all zeros is an empty bucket. Every access is atomic; only the holder of the
/// bucket's stripe, or whoever alone can see it, stores.
pub trait TagWords: Send + Sync {
    /// Slots of the bucket, at most 16.
    const WAYS: usize;
    /// Classes of tags that the filter tells apart: a power of two, at most eight and at most a bit for each slot.
    const CLASSES: u8 = if Self::WAYS < 4 {
        2
    } else if Self::WAYS < 8 {
        4
    } else {
        8
    };

    /// The lanes, lowest slot first in the lowest byte of the first word.
    fn load(&self) -> [u64; 2];
    /// Stores the lanes.
    fn store(&self, words: [u64; 2]);
}

/// Up to four slots.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct HalfWord<const WAYS: usize>(AtomicU32);

impl<const WAYS: usize> TagWords for HalfWord<WAYS> {
    const WAYS: usize = WAYS;

    #[inline]
    fn load(&self) -> [u64; 2] {
        // Acquire: pairs with the Release in `store`; what the slots of these lanes held when they were filled is visible.
        [u64::from(self.0.load(Ordering::Acquire)), 0]
    }

    #[inline]
    fn store(&self, words: [u64; 2]) {
        // Release: pairs with the Acquire in `load`.
        self.0.store(words[0] as u32, Ordering::Release);
    }
}

/// Up to eight slots.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct OneWord<const WAYS: usize>(AtomicU64);

impl<const WAYS: usize> TagWords for OneWord<WAYS> {
    const WAYS: usize = WAYS;

    #[inline]
    fn load(&self) -> [u64; 2] {
        // Acquire: pairs with the Release in `store`; what the slots of these lanes held when they were filled is visible.
        [self.0.load(Ordering::Acquire), 0]
    }

    #[inline]
    fn store(&self, words: [u64; 2]) {
        // Release: pairs with the Acquire in `load`.
        self.0.store(words[0], Ordering::Release);
    }
}

/// Up to sixteen slots.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct TwoWords<const WAYS: usize>([AtomicU64; 2]);

impl<const WAYS: usize> TagWords for TwoWords<WAYS> {
    const WAYS: usize = WAYS;

    #[inline]
    fn load(&self) -> [u64; 2] {
        // Acquire: pairs with the Release in `store`; what the slots of these lanes held when they were filled is visible.
        [self.0[0].load(Ordering::Acquire), self.0[1].load(Ordering::Acquire)]
    }

    #[inline]
    fn store(&self, words: [u64; 2]) {
        // Release: pairs with the Acquire in `load`.
        self.0[0].store(words[0], Ordering::Release);
        self.0[1].store(words[1], Ordering::Release);
    }
}

/// A copy of a bucket's tags.
#[derive(Debug)]
pub struct Tags<T> {
    words: [u64; 2],
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<T> Clone for Tags<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Tags<T> {}

impl<T: TagWords> Tags<T> {
    const SLOTS: u32 = if T::WAYS == 16 { 0xffff } else { (1 << T::WAYS) - 1 };

    #[inline]
    pub fn of(words: &T) -> Self {
        Self { words: words.load(), kind: std::marker::PhantomData }
    }

    /// Slots whose lane is `lane`.
    #[inline]
    pub fn matching(self, lane: Lane) -> SlotSet {
        SlotSet(matching(self.words, lane.0) & Self::SLOTS)
    }

    /// Free slots.
    #[inline]
    pub fn free(self) -> SlotSet {
        SlotSet(matching(self.words, 0) & Self::SLOTS)
    }

    /// Slots that hold a key.
    #[inline]
    pub fn taken(self) -> SlotSet {
        SlotSet(!matching(self.words, 0) & Self::SLOTS)
    }

    /// The lane of a slot; `None` if it is free.
    #[inline]
    pub fn lane(self, slot: usize) -> Option<Lane> {
        let lane = (self.words[slot / 8] >> (slot % 8 * 8)) as u8 & !FILTER;
        (lane != 0).then_some(Lane(lane))
    }

    /// Whether a key of this bucket with such a tag may be in its second bucket.
    #[inline]
    pub fn may_be_away(self, tag: u8) -> bool {
        self.words[0] & filter_bit::<T>(tag) != 0
    }

    #[must_use]
    pub fn with(mut self, slot: usize, lane: Option<Lane>) -> Self {
        let shift = slot % 8 * 8;
        let word = &mut self.words[slot / 8];
        *word = *word & !(u64::from(!FILTER) << shift) | u64::from(lane.map_or(0, |lane| lane.0)) << shift;
        self
    }

    /// With the filter bit of a tag's class set or cleared.
    #[must_use]
    pub fn with_away(mut self, tag: u8, may_be_away: bool) -> Self {
        let bit = filter_bit::<T>(tag);
        self.words[0] = if may_be_away { self.words[0] | bit } else { self.words[0] & !bit };
        self
    }

    #[inline]
    pub fn store(self, words: &T) {
        words.store(self.words);
    }
}

#[inline]
fn filter_bit<T: TagWords>(tag: u8) -> u64 {
    u64::from(FILTER) << (u32::from(tag & (T::CLASSES - 1)) * 8)
}

/// The tags that share a filter bit with `tag`.
pub(crate) fn class_of<T: TagWords>(tag: u8) -> impl Iterator<Item = u8> {
    let class = tag & (T::CLASSES - 1);
    (0..=TAG_MAX / T::CLASSES).map(move |at| at * T::CLASSES + class).filter(|tag| *tag != 0)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn matching(words: [u64; 2], lane: u8) -> u32 {
    use std::arch::x86_64::{_mm_add_epi8, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: SSE2 is part of x86-64; the intrinsics touch registers only.
    unsafe {
        let lanes = _mm_set_epi64x(words[1] as i64, words[0] as i64);
        // Twice a lane has lost its filter bit.
        _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_add_epi8(lanes, lanes), _mm_set1_epi8((lane << 1) as i8))) as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
use matching_portable as matching;

/// The same without SIMD: bytes equal to `lane` become zero, and a zero byte is found without carry between bytes.
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "the tests compare both ways"))]
fn matching_portable(words: [u64; 2], lane: u8) -> u32 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let mut bits = 0;
    for (index, word) in words.into_iter().enumerate() {
        let differs = (word & LOW) ^ (u64::from(lane) * 0x0101_0101_0101_0101);
        let zero = !((differs + LOW) | LOW);
        // The top bit of each byte, gathered into eight bits.
        let gathered = ((zero >> 7).wrapping_mul(0x0102_0408_1020_4080)) >> 56;
        bits |= (gathered as u32) << (index * 8);
    }
    bits
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_of_matching_agree(words in any::<[u64; 2]>(), lane in 0u8..128, at in 0usize..16) {
            let mut words = words;
            let shift = at % 8 * 8;
            words[at / 8] = words[at / 8] & !(0x7f << shift) | u64::from(lane) << shift;
            let expected =
                (0..16).filter(|i| (words[i / 8] >> (i % 8 * 8)) as u8 & 0x7f == lane).fold(0, |bits, i| bits | 1 << i);
            prop_assert_eq!(matching_portable(words, lane), expected);
            prop_assert_eq!(matching(words, lane), expected);
        }
    }

    fn lanes_and_filter_share_their_words<T: TagWords + Default>() {
        let words = T::default();
        assert_eq!(Tags::of(&words).free().count(), T::WAYS);
        for slot in 0..T::WAYS {
            Tags::of(&words).with(slot, Some(Lane::home(slot as u8 + 1))).store(&words);
        }
        Tags::of(&words).with(T::WAYS - 1, Some(Lane::away(9))).with_away(63, true).store(&words);
        let tags = Tags::of(&words);
        assert_eq!((tags.free().count(), tags.taken().count()), (0, T::WAYS));
        assert_eq!(tags.matching(Lane::home(1)).first(), Some(0));
        assert_eq!(tags.matching(Lane::away(9)).first(), Some(T::WAYS - 1));
        assert_eq!(tags.matching(Lane::home(9)).first().filter(|slot| *slot == T::WAYS - 1), None);
        assert_eq!(tags.lane(T::WAYS - 1), Some(Lane::away(9)));
        for tag in 1..=TAG_MAX {
            let same_class = class_of::<T>(63).any(|other| other == tag);
            assert_eq!(tags.may_be_away(tag), same_class, "tag {tag}");
            assert!(class_of::<T>(tag).any(|other| other == tag));
        }
        let emptied = (0..T::WAYS).fold(tags, |tags, slot| tags.with(slot, None));
        assert_eq!(emptied.free().count(), T::WAYS);
        assert!(emptied.may_be_away(63) && !emptied.with_away(63, false).may_be_away(63));
    }

    #[test]
    fn lanes_and_filter_share_their_words_at_every_width() {
        lanes_and_filter_share_their_words::<HalfWord<2>>();
        lanes_and_filter_share_their_words::<HalfWord<4>>();
        lanes_and_filter_share_their_words::<OneWord<8>>();
        lanes_and_filter_share_their_words::<TwoWords<12>>();
        lanes_and_filter_share_their_words::<TwoWords<16>>();
    }
}
