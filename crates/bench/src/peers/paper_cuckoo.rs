//! MemC3's cuckoo table for one thread, bit for bit as the paper counts it: four slots a bucket, one byte of tag and eight
//! of pointer each, packed.
//!
//! ```text
//! byte 0        4                 36
//!      tag x 4  pointer x 4 (u64)       nine 32-bit words a bucket
//! ```
//! Always true: tag 0 means a free slot; an item lies in one of two buckets, each computed from the other and the tag.

use super::{
    IndexFull,
    random_walk::{Buckets, Displace, Slot, WAYS, Walk},
};

const BUCKET_WORDS: usize = 9;

/// The table.
#[derive(Clone, Debug)]
pub struct PaperCuckoo {
    table: Table,
    walk: Walk,
    len: usize,
}

#[derive(Clone, Debug)]
struct Table {
    words: Vec<u32>,
    mask: usize,
}

impl PaperCuckoo {
    /// An empty table of `buckets` buckets, a power of two, whose inserts search along `paths` paths.
    pub fn new(buckets: usize, paths: usize) -> Self {
        assert!(buckets.is_power_of_two(), "a hash is masked");
        // Written twice, so that no page is first touched while the clock runs.
        let mut words = vec![1; buckets * BUCKET_WORDS];
        words.fill(0);
        Self { table: Table { words, mask: buckets - 1 }, walk: Walk::new(paths), len: 0 }
    }

    /// Items held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slots in all.
    pub fn slots(&self) -> usize {
        (self.table.mask + 1) * WAYS
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.table.words.len() * size_of::<u32>()
    }

    /// Adds an item that is not there; returns how many others had to move.
    ///
    /// # Errors
    /// [`IndexFull`] if no path of a bounded length leads to a free slot.
    pub fn insert(&mut self, hash: u64, pointer: u64) -> Result<usize, IndexFull> {
        let (tag, roots) = self.table.places(hash);
        let free = roots.into_iter().find_map(|bucket| Some(Slot { bucket, way: self.table.free(bucket)? }));
        let (slot, moved) = match free {
            Some(slot) => (slot, 0),
            None => self.walk.make_room(&mut self.table, roots)?,
        };
        self.table.put(slot, tag, pointer);
        self.len += 1;
        Ok(moved)
    }

    /// The pointer that fits the hash's tag and that `is_it` accepts.
    pub fn get(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        let (tag, roots) = self.table.places(hash);
        roots.into_iter().find_map(|bucket| {
            (0..WAYS).filter(|way| self.table.tag(Slot { bucket, way: *way }) == tag).find_map(|way| {
                let pointer = self.table.pointer(Slot { bucket, way });
                is_it(pointer).then_some(pointer)
            })
        })
    }
}

/// Tag and first bucket of a hash, and what a bucket's number is changed by to get the other bucket.
#[inline]
pub(crate) fn tag_and_bucket(hash: u64) -> (u8, usize) {
    let tag = (hash >> 56) as u8;
    (tag + u8::from(tag == 0), hash as usize)
}

/// The other bucket (MemC3, equation 1; the multiplier is MurmurHash2's, as in the authors' code).
#[inline]
pub(crate) fn alternate(bucket: usize, tag: u8, mask: usize) -> usize {
    (bucket ^ (usize::from(tag).wrapping_mul(0x5bd1_e995) | 1)) & mask
}

impl Table {
    #[inline]
    fn places(&self, hash: u64) -> (u8, [usize; 2]) {
        let (tag, bucket) = tag_and_bucket(hash);
        let first = bucket & self.mask;
        (tag, [first, alternate(first, tag, self.mask)])
    }

    #[inline]
    fn tag(&self, slot: Slot) -> u8 {
        self.words[slot.bucket * BUCKET_WORDS].to_le_bytes()[slot.way]
    }

    #[inline]
    fn pointer(&self, slot: Slot) -> u64 {
        let at = slot.bucket * BUCKET_WORDS + 1 + slot.way * 2;
        u64::from(self.words[at]) | u64::from(self.words[at + 1]) << 32
    }

    #[inline]
    fn put(&mut self, slot: Slot, tag: u8, pointer: u64) {
        let at = slot.bucket * BUCKET_WORDS;
        self.words[at + 1 + slot.way * 2] = pointer as u32;
        self.words[at + 2 + slot.way * 2] = (pointer >> 32) as u32;
        self.set_tag(slot, tag);
    }

    #[inline]
    fn set_tag(&mut self, slot: Slot, tag: u8) {
        let word = &mut self.words[slot.bucket * BUCKET_WORDS];
        *word = *word & !(0xff << (slot.way * 8)) | u32::from(tag) << (slot.way * 8);
    }
}

impl Buckets for Table {
    const WAYS: usize = WAYS;

    #[inline]
    fn free(&self, bucket: usize) -> Option<usize> {
        self.words[bucket * BUCKET_WORDS].to_le_bytes().iter().position(|tag| *tag == 0)
    }

    #[inline]
    fn other(&self, slot: Slot) -> Option<usize> {
        let tag = self.tag(slot);
        (tag != 0).then(|| alternate(slot.bucket, tag, self.mask))
    }
}

impl Displace for Table {
    #[inline]
    fn displace(&mut self, from: Slot, to: Slot) {
        self.put(to, self.tag(from), self.pointer(from));
        self.set_tag(from, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::peers::key::mix;

    #[test]
    fn every_item_is_found_after_the_table_is_filled_to_the_brim() {
        for paths in 1..=3 {
            let mut table = PaperCuckoo::new(1 << 10, paths);
            let mut reference = HashMap::new();
            let mut moves = 0;
            for number in 0.. {
                let Ok(moved) = table.insert(mix(number), number + 1) else { break };
                moves += moved;
                reference.insert(number, number + 1);
            }
            assert_eq!(table.len(), reference.len());
            let load = table.len() as f64 / table.slots() as f64;
            assert!(load > 0.9, "{paths} paths stop at {load}");
            assert!(moves > 0);
            for (number, pointer) in &reference {
                assert_eq!(table.get(mix(*number), |found| found == *pointer), Some(*pointer), "{paths} paths");
            }
            assert_eq!(table.get(mix(1 << 40), |found| found > 1 << 40), None);
            assert_eq!(table.bytes(), table.slots() * 9);
        }
    }
}
