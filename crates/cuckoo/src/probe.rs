//! Where a hash looks: the position that chooses the segment, two buckets in it, and the tag.
//!
//! ```text
//! bit 63            32 31      22 21      14 13           0
//!     position         tag        spare      bucket
//! ```
//! Always true: the second bucket is a function of the first and the tag, and the function is its own inverse (MemC3,
//! equation 1); nothing here depends on how many segments there are, and a segment of fewer buckets uses the lower bits of
//! the same numbers.

use crate::tags::TAG_MAX;

/// Bits of a bucket's number: the largest segment has as many buckets.
pub(crate) const BUCKET_BITS_MAX: u32 = 14;
const SPARE_SHIFT: u32 = 14;
const TAG_SHIFT: u32 = 22;
const TAG_BITS: u32 = 10;

/// A hash, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probe {
    pub(crate) position: u32,
    /// Bucket number and distance in the largest possible segment.
    pub(crate) first: u16,
    pub(crate) tag: u8,
    spare: u8,
}

impl Probe {
    /// Of a hash whose 64 bits are all good.
    #[inline]
    pub fn new(hash: u64) -> Self {
        let tag = (hash >> TAG_SHIFT) as u32 & ((1 << TAG_BITS) - 1);
        Self {
            position: (hash >> 32) as u32,
            first: hash as u16 & ((1 << BUCKET_BITS_MAX) - 1),
            tag: ((tag * u32::from(TAG_MAX)) >> TAG_BITS) as u8 + 1,
            spare: (hash >> SPARE_SHIFT) as u8,
        }
    }

    /// Eight bits of the hash that the index does not use: the caller may keep some of them in spare bits of its payload
    /// and so follow fewer payloads in vain.
    #[inline]
    pub fn spare_bits(&self) -> u8 {
        self.spare
    }

    /// The stripe under which the key's versions are counted, in an index of `stripes` stripes (a power of two) whose
    /// segments are all full-sized: the same for a key whatever else happens.
    #[inline]
    pub(crate) fn first(&self, bucket_mask: usize) -> usize {
        usize::from(self.first) & bucket_mask
    }

    #[inline]
    pub(crate) fn second(&self, bucket_mask: usize) -> usize {
        alternate(usize::from(self.first), self.tag, bucket_mask)
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
            let distinct: std::collections::BTreeSet<usize> = (1..=TAG_MAX).map(|tag| alternate(0, tag, mask)).collect();
            assert!(distinct.len() >= least, "{} with mask {mask}", distinct.len());
        }
    }

    #[test]
    fn all_tags_are_used_evenly() {
        let mut counts = [0u32; 64];
        (0..1u64 << TAG_BITS).for_each(|bits| counts[usize::from(Probe::new(bits << TAG_SHIFT).tag)] += 1);
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (16..=17).contains(count)), "{counts:?}");
    }
}
