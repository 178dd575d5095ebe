//! Where a hash looks: the position that chooses the segment, two buckets in it, and the tag.
//!
//! ```text
//! bit 63            32 31   28 27   22 21      14 13           0
//!     position         unused  tag     spare      bucket
//! ```
//! Always true: the second bucket is a function of the first and the tag, and the function is its own inverse (MemC3,
//! equation 1); nothing here depends on how many segments there are, and a segment of fewer buckets uses the lower bits of
//! the same numbers.

use crate::tags::TAG_MAX;

/// Bits of a bucket's number: the largest segment has as many buckets.
pub(crate) const BUCKET_BITS_MAX: u32 = 14;
const SPARE_SHIFT: u32 = 14;
const TAG_SHIFT: u32 = 22;
const POSITION_SHIFT: u32 = 32;

/// A hash, to be taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probe(u64);

impl Probe {
    /// Of a hash whose 64 bits are all good.
    #[inline(always)]
    pub fn new(hash: u64) -> Self {
        Self(hash)
    }

    /// Eight bits of the hash that the index does not use: the caller may keep some of them in spare bits of its payload
    /// and so follow fewer payloads in vain.
    #[inline(always)]
    pub fn spare_bits(&self) -> u8 {
        (self.0 >> SPARE_SHIFT) as u8
    }

    /// What chooses the segment.
    #[inline(always)]
    pub(crate) fn position(&self) -> u32 {
        (self.0 >> POSITION_SHIFT) as u32
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> u8 {
        let tag = (self.0 >> TAG_SHIFT) as u32 & u32::from(TAG_MAX);
        // Zero is what a free slot has.
        (tag + u32::from(tag == 0)) as u8
    }

    #[inline(always)]
    pub(crate) fn first(&self, bucket_mask: usize) -> usize {
        self.0 as usize & bucket_mask
    }

    /// What [`Stripes`](guira_sync::Stripes) take for the number of the first bucket in a segment of any size: its lower bits are.
    #[inline(always)]
    pub(crate) fn first_unmasked(&self) -> usize {
        self.0 as usize
    }

    #[inline(always)]
    pub(crate) fn second(&self, bucket_mask: usize) -> usize {
        alternate(self.0 as usize, self.tag(), bucket_mask)
    }
}

/// The other bucket of a key with `tag` that lies in `bucket`. An odd distance, so never the same bucket.
#[inline]
pub(crate) fn alternate(bucket: usize, tag: u8, bucket_mask: usize) -> usize {
    let distance = (u32::from(tag).wrapping_mul(0x9e37_79b1) >> (32 - BUCKET_BITS_MAX)) | 1;
    (bucket ^ distance as usize) & bucket_mask
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_alternate_of_the_alternate_is_the_bucket() {
        for mask in [1, 3, 1023, 4095, (1 << BUCKET_BITS_MAX) - 1] {
            for tag in 1..=TAG_MAX {
                for bucket in 0..=mask {
                    let other = alternate(bucket, tag, mask);
                    assert_ne!(other, bucket);
                    assert!(other <= mask);
                    assert_eq!(alternate(other, tag, mask), bucket);
                }
            }
        }
    }

    #[test]
    fn distances_of_tags_are_spread() {
        for (mask, least) in [(63, 24), (1023, 58), (4095, 62)] {
            let distinct: std::collections::BTreeSet<usize> =
                (1..=TAG_MAX).map(|tag| alternate(0, tag, mask)).collect();
            assert!(distinct.len() >= least, "{} with mask {mask}", distinct.len());
        }
    }

    #[test]
    fn every_tag_but_zero_is_used() {
        let tags: std::collections::BTreeSet<u8> = (0..64u64).map(|bits| Probe::new(bits << TAG_SHIFT).tag()).collect();
        assert_eq!(tags.into_iter().collect::<Vec<_>>(), (1..=TAG_MAX).collect::<Vec<_>>());
    }
}
