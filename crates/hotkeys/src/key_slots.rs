//! Keys in numbered slots, found by their bytes.
//!
//! Always true: a key keeps its slot until it is removed or replaced; no two slots have the same key; there are at most as many as it was
//! made for. A slot's buffer is used again by the next key in it, so that in the long run nothing is allocated.

use std::fmt;

use hashbrown::HashTable;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The number of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(u32);

impl Slot {
    /// The one of this number, which has been given.
    pub(crate) fn at(number: u32) -> Self {
        Self(number)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Hashes keys for the trackers of a seed: whoever asks several of them about a key has it hashed once.
#[derive(Clone)]
pub struct KeyHasher(RapidSecrets);

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher")
    }
}

/// A key with its hash.
#[derive(Clone, Copy, Debug)]
pub struct HashedKey<'k> {
    bytes: &'k [u8],
    hash: u64,
}

impl HashedKey<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl KeyHasher {
    /// Of a seed.
    pub fn new(seed: u64) -> Self {
        Self(RapidSecrets::seed(seed))
    }

    /// A key with its hash.
    pub fn hash<'k>(&self, bytes: &'k [u8]) -> HashedKey<'k> {
        HashedKey { bytes, hash: rapidhash_v3_seeded(bytes, &self.0) }
    }
}

/// The hash of a key that is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent(u64);

/// A bounded set of keys.
#[derive(Clone)]
pub(crate) struct KeySlots {
    /// Each with its hash.
    keys: Vec<(u64, Vec<u8>)>,
    free: Vec<Slot>,
    slots: HashTable<Slot>,
    len_max: usize,
    hasher: KeyHasher,
}

impl fmt::Debug for KeySlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySlots")
            .field("len", &self.slots.len())
            .field("len_max", &self.len_max)
            .finish_non_exhaustive()
    }
}

impl KeySlots {
    /// Room for so many keys.
    ///
    /// # Panics
    /// For none, or for as many as there are no numbers for.
    pub(crate) fn new(len_max: usize, seed: u64) -> Self {
        assert!(len_max > 0 && u32::try_from(len_max).is_ok(), "{len_max} keys");
        let slots = HashTable::with_capacity(len_max);
        Self { keys: Vec::new(), free: Vec::new(), slots, len_max, hasher: KeyHasher::new(seed) }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() == self.len_max
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn key(&self, slot: Slot) -> &[u8] {
        &self.keys[slot.index()].1
    }

    pub(crate) fn find(&self, key: &[u8]) -> Result<Slot, Absent> {
        self.find_hashed(self.hasher.hash(key))
    }

    /// The same of a key that was hashed by the same seed.
    pub(crate) fn find_hashed(&self, key: HashedKey<'_>) -> Result<Slot, Absent> {
        let HashedKey { bytes, hash } = key;
        debug_assert_eq!(hash, self.hasher.hash(bytes).hash, "hashed by another seed");
        let found = self.slots.find(hash, |slot| self.key(*slot) == bytes);
        found.copied().ok_or(Absent(hash))
    }

    /// A key with its hash.
    pub(crate) fn hash<'k>(&self, key: &'k [u8]) -> HashedKey<'k> {
        self.hasher.hash(key)
    }

    /// Puts a key that is not there into a slot; the set is not full.
    pub(crate) fn insert(&mut self, absent: Absent, key: &[u8]) -> Slot {
        assert!(!self.is_full(), "no room");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.keys.push((0, Vec::new()));
            // As many as the number of keys at most, which fits.
            Slot((self.keys.len() - 1) as u32)
        });
        self.put(slot, absent, key);
        slot
    }

    /// Puts a key that is not there in the place of the one in `slot`.
    pub(crate) fn replace(&mut self, slot: Slot, absent: Absent, key: &[u8]) {
        self.take(slot);
        self.put(slot, absent, key);
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        self.take(slot);
        self.free.push(slot);
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.free.extend((0..self.keys.len() as u32).rev().map(Slot));
    }

    fn put(&mut self, slot: Slot, Absent(hash): Absent, key: &[u8]) {
        let (its_hash, bytes) = &mut self.keys[slot.index()];
        *its_hash = hash;
        bytes.clear();
        bytes.extend_from_slice(key);
        let keys = &self.keys;
        self.slots.insert_unique(hash, slot, |slot| keys[slot.index()].0);
    }

    fn take(&mut self, slot: Slot) {
        let (hash, _) = self.keys[slot.index()];
        let there = self.slots.find_entry(hash, |there| *there == slot);
        there.expect("a slot with a key in it").remove();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const LEN_MAX: usize = 5;

    proptest! {
        #[test]
        fn keys_are_found_in_their_slots_and_nowhere_else(acts in prop::collection::vec((0u8..9, 0u8..20), 1..200)) {
            let mut slots = KeySlots::new(LEN_MAX, 7);
            let mut there: HashMap<Vec<u8>, Slot> = HashMap::new();
            for (name, act) in acts {
                let key = vec![name; usize::from(name)];
                match (slots.find(&key), act) {
                    (Ok(slot), 0..8) => {
                        slots.remove(slot);
                        prop_assert_eq!(there.remove(&key), Some(slot));
                    }
                    (Err(absent), 8..19) if !slots.is_full() => {
                        let slot = slots.insert(absent, &key);
                        prop_assert!(there.values().all(|other| *other != slot));
                        there.insert(key, slot);
                    }
                    (Err(absent), 0..8) if !there.is_empty() => {
                        let (old, slot) = there.iter().next().map(|(key, slot)| (key.clone(), *slot)).expect("one");
                        slots.replace(slot, absent, &key);
                        there.remove(&old);
                        there.insert(key, slot);
                    }
                    (_, 19) => {
                        slots.clear();
                        there.clear();
                    }
                    (found, _) => prop_assert_eq!(found.ok(), there.get(&key).copied()),
                }
                prop_assert_eq!((slots.len(), slots.is_full()), (there.len(), there.len() == LEN_MAX));
                for (key, slot) in &there {
                    prop_assert_eq!(slots.find(key).ok(), Some(*slot));
                    prop_assert_eq!(slots.key(*slot), &**key);
                }
            }
            prop_assert!(slots.keys.len() <= LEN_MAX, "slots are used again");
        }
    }
}
