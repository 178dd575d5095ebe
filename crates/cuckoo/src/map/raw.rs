//! Access by hash and a predicate of the caller's: for borrowed keys of any kind, and for whoever has the hash already.

use std::hash::{BuildHasher, Hash};

use super::{CuckooMap, Storage, TableFull, Ways, Width};

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// The hash that this map knows a key by. Whatever hashes like the key gives the same.
    pub fn hash_key<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hash_of(key)
    }

    /// What `read` makes of the pair with this hash whose key `is_key` accepts, which is called under the key's lock if writers
    /// have spoilt the read too often: it must not use the map.
    pub fn raw_get<R>(&self, hash: u64, is_key: impl FnMut(&K) -> bool, read: impl FnOnce(&K, &V) -> R) -> Option<R> {
        self.find(hash, is_key, read)
    }

    /// Stores a pair under its hash; true if the key is new. A hash that is not the key's own ([`CuckooMap::hash_key`]) is a
    /// mistake after which that pair may be lost or there twice, and `len` off by it.
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    pub fn raw_upsert(&self, hash: u64, key: K, value: V) -> Result<bool, TableFull<K, V>> {
        debug_assert_eq!(hash, self.hash_of(&key), "the hash of another key");
        self.upsert_hashed(hash, key, value)
    }

    /// A copy of the value of the pair with this hash whose key `is_key` accepts; if there is none, that of the pair which
    /// `make` makes, which is stored. So an owned key is made only where it is needed. Of several threads that do so at once
    /// one stores its pair, and all get a copy of that one's value; the others' pairs are dropped. `make` is called without a
    /// lock, `is_key` as by [`CuckooMap::raw_get`]; and the hash must be the key's own, as for [`CuckooMap::raw_upsert`].
    ///
    /// ```
    /// let map: guira_cuckoo::CuckooMap<String, usize> = guira_cuckoo::CuckooMap::new();
    /// let len_of = |name: &str| {
    ///     map.raw_get_or_insert_with(map.hash_key(name), |key| key == name, || (name.to_owned(), name.len()))
    /// };
    /// assert_eq!((len_of("one"), len_of("one"), map.len()), (Ok(3), Ok(3), 1));
    /// ```
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    pub fn raw_get_or_insert_with(
        &self,
        hash: u64,
        is_key: impl FnMut(&K) -> bool,
        make: impl FnOnce() -> (K, V),
    ) -> Result<V, TableFull<K, V>>
    where
        V: Clone,
    {
        if let Some(value) = self.find(hash, is_key, |_, value| value.clone()) {
            return Ok(value);
        }
        let (key, value) = make();
        debug_assert_eq!(hash, self.hash_of(&key), "the hash of another key");
        self.store_if_absent(hash, key, value)
    }

    /// Removes the pair with this hash whose key `is_key` accepts, and gives back what `see` makes of it. `is_key` is called
    /// under the key's lock: it must not use the map.
    pub fn raw_remove<R>(
        &self,
        hash: u64,
        mut is_key: impl FnMut(&K) -> bool,
        see: impl FnOnce(&K, &V) -> R,
    ) -> Option<R> {
        self.take(hash, |key, _| is_key(key), see)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_found_by_the_parts_of_its_key() {
        let map: CuckooMap<(String, u8), u32> = CuckooMap::new();
        let hash = map.hash_key(&("port", 7u8));
        assert_eq!(map.raw_upsert(hash, ("port".into(), 7), 11211), Ok(true));
        let is_key = |key: &(String, u8)| key.0 == "port" && key.1 == 7;
        assert_eq!(map.raw_get(hash, is_key, |_, port| *port), Some(11211));
        assert_eq!(map.raw_get_or_insert_with(hash, is_key, || unreachable!("it is there")), Ok(11211));
        assert_eq!(map.get(&("port".to_owned(), 7)), Some(11211));
        assert_eq!(map.raw_remove(hash, is_key, |key, _| key.1), Some(7));
        assert!(map.is_empty());
    }
}
