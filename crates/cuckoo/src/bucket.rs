//! A bucket: twelve tags and twelve payloads in one cache line.
//!
//! ```text
//! byte 0           12      16                                   64
//!      tag x 12    unused  payload x 12 (u32)
//! ```
//! Always true: tag 0 means the slot is free; a bucket is changed only by the holder of its stripe, or by whoever alone can
//! see it; every access is atomic, so a reader that races a writer reads old or new words and learns from the version.

use guira_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots in a bucket. Twelve tags and payloads fill a cache line, and two choices of twelve fill up to over 99 %.
/// Two are full at once, so that a model's few keys displace each other.
pub const BUCKET_SLOTS: usize = if cfg!(shuttle) { 2 } else { 12 };

/// One bit for each slot.
const SLOTS_MASK: u32 = (1 << BUCKET_SLOTS) - 1;

/// One bucket. All zeros is an empty one.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Bucket {
    tags: [AtomicU64; 2],
    payloads: [AtomicU32; BUCKET_SLOTS],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Bucket>() == 64);

/// Slots of one bucket, a bit each, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotSet(u32);

impl SlotSet {
    /// The lowest slot.
    #[inline]
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
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

impl Default for Bucket {
    fn default() -> Self {
        Self { tags: [AtomicU64::new(0), AtomicU64::new(0)], payloads: std::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

impl Bucket {
    /// Slots whose tag is `tag`.
    #[inline]
    pub(crate) fn matching(&self, tag: u8) -> SlotSet {
        let words = [self.tags[0].load(Ordering::Relaxed), self.tags[1].load(Ordering::Relaxed)];
        #[cfg(target_arch = "x86_64")]
        let bits = matching_sse2(words, tag);
        #[cfg(not(target_arch = "x86_64"))]
        let bits = matching_portable(words, tag);
        SlotSet(bits & SLOTS_MASK)
    }

    /// Free slots.
    #[inline]
    pub(crate) fn free(&self) -> SlotSet {
        self.matching(0)
    }

    #[inline]
    pub(crate) fn tag(&self, slot: usize) -> u8 {
        (self.tags[slot / 8].load(Ordering::Relaxed) >> (slot % 8 * 8)) as u8
    }

    #[inline]
    pub(crate) fn payload(&self, slot: usize) -> u32 {
        self.payloads[slot].load(Ordering::Relaxed)
    }

    /// The caller is the only writer.
    #[inline]
    pub(crate) fn set_payload(&self, slot: usize, payload: u32) {
        self.payloads[slot].store(payload, Ordering::Relaxed);
    }

    /// The caller is the only writer. Tag 0 frees the slot.
    #[inline]
    pub(crate) fn set_tag(&self, slot: usize, tag: u8) {
        let word = &self.tags[slot / 8];
        let shift = slot % 8 * 8;
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | u64::from(tag) << shift, Ordering::Relaxed);
    }

    /// Frees every slot. The caller is the only writer.
    pub(crate) fn clear(&self) {
        for word in &self.tags {
            word.store(0, Ordering::Relaxed);
        }
        for payload in &self.payloads {
            payload.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn matching_sse2(words: [u64; 2], tag: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: SSE2 is part of x86-64; the intrinsics touch registers only.
    unsafe {
        let tags = _mm_set_epi64x(words[1] as i64, words[0] as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(tag as i8))) as u32
    }
}

/// The same without SIMD: bytes equal to `tag` become zero, and a zero byte is found without carry between bytes.
#[cfg_attr(target_arch = "x86_64", allow(dead_code))]
fn matching_portable(words: [u64; 2], tag: u8) -> u32 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let mut bits = 0;
    for (index, word) in words.into_iter().enumerate() {
        let differs = word ^ (u64::from(tag) * 0x0101_0101_0101_0101);
        let zero = !(((differs & LOW) + LOW) | differs | LOW);
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
        fn both_ways_of_matching_agree(words in any::<[u64; 2]>(), tag in any::<u8>(), at in 0usize..16) {
            let mut words = words;
            let shift = at % 8 * 8;
            words[at / 8] = words[at / 8] & !(0xff << shift) | u64::from(tag) << shift;
            let expected = (0..16).filter(|i| (words[i / 8] >> (i % 8 * 8)) as u8 == tag).fold(0, |bits, i| bits | 1 << i);
            prop_assert_eq!(matching_portable(words, tag), expected);
            #[cfg(target_arch = "x86_64")]
            prop_assert_eq!(matching_sse2(words, tag), expected);
        }
    }

    #[test]
    fn slots_are_found_by_tag_and_freed() {
        let bucket = Bucket::default();
        assert_eq!(bucket.free().count(), BUCKET_SLOTS);
        for slot in [0, 7, 8, 11] {
            bucket.set_payload(slot, slot as u32 + 100);
            bucket.set_tag(slot, 9);
        }
        assert_eq!(bucket.matching(9).collect::<Vec<_>>(), [0, 7, 8, 11]);
        assert_eq!((bucket.tag(8), bucket.payload(8)), (9, 108));
        bucket.set_tag(8, 0);
        assert_eq!(bucket.matching(9).collect::<Vec<_>>(), [0, 7, 11]);
        bucket.clear();
        assert_eq!(bucket.free().count(), BUCKET_SLOTS);
    }
}
