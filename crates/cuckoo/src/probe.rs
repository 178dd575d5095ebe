//! Where a hash looks: the position that chooses the segment, two buckets in it, and the tag.
//!
//! ```text
//! bit 63            32 31      26 25      18 17    10 9       0
//!     position         unused     spare      tag      bucket
//! ```
//! Always true: the second bucket is a function of the first and the tag, and the function is its own inverse (MemC3,
//! equation 1); nothing here depends on how many segments there are.

use crate::layout::{BUCKET_MASK, SEGMENT_BUCKETS};

const BUCKET_BITS: u32 = SEGMENT_BUCKETS.trailing_zeros();
const TAG_SHIFT: u32 = 10;
const SPARE_SHIFT: u32 = 18;
const _: () = assert!(BUCKET_BITS <= TAG_SHIFT, "bucket and tag would share bits of the hash");

/// A hash, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probe {
    pub(crate) position: u32,
    pub(crate) first: u16,
    pub(crate) second: u16,
    pub(crate) tag: u8,
    spare: u8,
}

impl Probe {
    /// Of a hash whose 64 bits are all good.
    #[inline]
    pub fn new(hash: u64) -> Self {
        let tag = (hash >> TAG_SHIFT) as u8;
        let tag = tag + u8::from(tag == 0);
        let first = (hash as usize & BUCKET_MASK) as u16;
        Self {
            position: (hash >> 32) as u32,
            first,
            second: alternate(first, tag),
            tag,
            spare: (hash >> SPARE_SHIFT) as u8,
        }
    }

    /// Eight bits of the hash that the index does not use: the caller may keep some of them in spare bits of its payload
    /// and so follow fewer payloads in vain.
    #[inline]
    pub fn spare_bits(&self) -> u8 {
        self.spare
    }

    /// The stripe under which the key's versions are counted: the same for a key whatever else happens.
    #[inline]
    pub fn stripe(&self) -> usize {
        usize::from(self.first)
    }
}

/// The other bucket of a key with `tag` that lies in `bucket`. An odd distance, so never the same bucket.
#[inline]
pub(crate) fn alternate(bucket: u16, tag: u8) -> u16 {
    let distance = (u32::from(tag).wrapping_mul(0x9e37_79b1) >> (32 - BUCKET_BITS)) | 1;
    bucket ^ distance as u16
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_alternate_of_the_alternate_is_the_bucket() {
        for tag in 1..=u8::MAX {
            for bucket in 0..SEGMENT_BUCKETS as u16 {
                let other = alternate(bucket, tag);
                assert_ne!(other, bucket);
                assert!(usize::from(other) < SEGMENT_BUCKETS);
                assert_eq!(alternate(other, tag), bucket);
            }
        }
    }

    #[test]
    fn distances_of_tags_are_spread() {
        let distinct: std::collections::BTreeSet<u16> = (1..=u8::MAX).map(|tag| alternate(0, tag)).collect();
        assert!(distinct.len() > 190, "{} of 255", distinct.len());
    }
}
