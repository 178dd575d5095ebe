//! Writes: under the stripes of one key, with what can be prepared beforehand prepared.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::{
    CuckooMap, ManyFull, Memory, NoRoom, Storage, TableFull, Ways, Width,
    pairs::{Entry, Pairs, Words},
};
use crate::{locked::Locked, residence::Residence, table::Full};

/// A pair's key, locked.
pub(super) type LockedPair<'a, K, V, L, const WAYS: usize, H> = Locked<'a, Pairs<K, V, L, WAYS>, Memory, (), H>;

/// Pairs that a batch asks the memory for at a time: each takes three cache lines.
const BATCH: usize = 32;

/// What is to become of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<V> {
    /// It stays as it is.
    Keep,
    /// It gets this value.
    Put(V),
    /// It goes.
    Remove,
}

/// What became of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// Nothing.
    Kept,
    /// It is new.
    Inserted,
    /// It has another value.
    Updated,
    /// It is gone.
    Removed,
}

/// When a pair is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    Always,
    IfAbsent,
}

/// What a store found.
pub(super) enum Found<R> {
    Nothing,
    /// And has replaced.
    Replaced(R),
    /// And has left there.
    Left(R),
}

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// The hash of a key that is to be written. Its bucket is asked for at once: a lock waits for the writes before it, so a line
    /// that is only asked for under the lock holds up the next write too.
    #[inline(always)]
    fn hash_to_write<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        let hash = self.hash_of(key);
        self.table.prefetch_home(&Self::probe(hash));
        hash
    }

    /// Stores a pair and gives back a copy of the value that it replaces.
    ///
    /// # Panics
    /// If there is no room: the map is fixed, memory is short, or half a bucket of keys has this one's hash.
    /// [`CuckooMap::try_insert`] returns an error instead.
    pub fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        self.try_insert(key, value).unwrap_or_else(|full| panic!("{full}"))
    }

    /// Stores a pair and gives back a copy of the value that it replaces.
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    #[inline]
    pub fn try_insert(&self, key: K, value: V) -> Result<Option<V>, TableFull<K, V>>
    where
        V: Clone,
    {
        let hash = self.hash_to_write(&key);
        Ok(match self.store(hash, key, value, When::Always, V::clone)? {
            Found::Nothing => None,
            Found::Replaced(old) | Found::Left(old) => Some(old),
        })
    }

    /// Stores a pair; true if the key is new.
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    #[inline]
    pub fn upsert(&self, key: K, value: V) -> Result<bool, TableFull<K, V>> {
        let hash = self.hash_to_write(&key);
        self.upsert_hashed(hash, key, value)
    }

    #[inline(always)]
    pub(super) fn upsert_hashed(&self, hash: u64, key: K, value: V) -> Result<bool, TableFull<K, V>> {
        Ok(matches!(self.store(hash, key, value, When::Always, |_| ())?, Found::Nothing))
    }

    /// Stores a pair unless the key is there; true if it was not.
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    #[inline]
    pub fn insert_if_absent(&self, key: K, value: V) -> Result<bool, TableFull<K, V>> {
        let hash = self.hash_to_write(&key);
        Ok(matches!(self.store(hash, key, value, When::IfAbsent, |_| ())?, Found::Nothing))
    }

    /// A copy of a key's value, which `make` makes if the key is not there, without a lock. Of several threads that do so at once
    /// one has its way, and all get that value; what the others have made is dropped.
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<V, TableFull<K, V>>
    where
        V: Clone,
    {
        let hash = self.hash_to_write(&key);
        if let Some(value) = self.find(hash, |candidate| *candidate == key, |_, value| value.clone()) {
            return Ok(value);
        }
        self.store_if_absent(hash, key, make())
    }

    /// A copy of what is there afterwards.
    pub(super) fn store_if_absent(&self, hash: u64, key: K, value: V) -> Result<V, TableFull<K, V>>
    where
        V: Clone,
    {
        let stored = value.clone();
        Ok(match self.store(hash, key, value, When::IfAbsent, V::clone)? {
            Found::Left(there) => there,
            Found::Nothing | Found::Replaced(_) => stored,
        })
    }

    /// A copy of a key's value, or of this one, which is stored if the key is not there.
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    pub fn get_or_insert(&self, key: K, value: V) -> Result<V, TableFull<K, V>>
    where
        V: Clone,
    {
        self.get_or_insert_with(key, || value)
    }

    /// Stores many pairs, the later of two with the same key last; how many keys were new. All of a batch are hashed and the
    /// memory is asked for all of them at once before the first is stored.
    ///
    /// # Errors
    /// [`ManyFull`] with the pairs that were taken from `pairs` and not stored, at most a batch; what was not taken is still in an
    /// iterator that was passed by reference.
    pub fn insert_many<I: IntoIterator<Item = (K, V)>>(&self, pairs: I) -> Result<usize, ManyFull<K, V>> {
        let mut pairs = pairs.into_iter();
        let mut batch = Vec::with_capacity(BATCH);
        let mut inserted = 0;
        loop {
            batch.extend(pairs.by_ref().take(BATCH).map(|(key, value)| (self.hash_to_write(&key), key, value)));
            if batch.is_empty() {
                return Ok(inserted);
            }
            batch.iter().for_each(|(hash, ..)| self.table.prefetch_to_widen(&Self::probe(*hash)));
            let mut stored = batch.drain(..);
            while let Some((hash, key, value)) = stored.next() {
                match self.upsert_hashed(hash, key, value) {
                    Ok(is_new) => inserted += usize::from(is_new),
                    Err(TableFull { key, value }) => {
                        let behind = stored.map(|(_, key, value)| (key, value));
                        return Err(ManyFull { rest: std::iter::once((key, value)).chain(behind).collect(), inserted });
                    }
                }
            }
        }
    }

    /// Removes a key and gives back a copy of its value.
    #[inline]
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.take(self.hash_to_write(key), |candidate, _| key.equivalent(candidate), |_, value| value.clone())
    }

    /// Removes a key; true if it was there.
    #[inline]
    pub fn delete<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.take(self.hash_to_write(key), |candidate, _| key.equivalent(candidate), |_, _| ()).is_some()
    }

    /// Removes a key if `condition` holds for its value; true if it did. `condition` may be called more than once, and is called
    /// under the key's lock: it must not use this map or another.
    pub fn remove_if<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> bool {
        let is_it = |candidate: &K, value: &V| key.equivalent(candidate) && condition(candidate, value);
        self.take(self.hash_to_write(key), is_it, |_, _| ()).is_some()
    }

    /// Gives a key that is there the value that `change` makes of its own; a copy of the new value, or `None` if the key is not
    /// there. `change` may be called more than once, and under the key's lock: it must not use this map or another.
    pub fn update<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, mut change: impl FnMut(&V) -> V) -> Option<V>
    where
        K: Clone,
        V: Clone,
    {
        let mut new = None;
        let decide = |value: &V| {
            let value = change(value);
            new = Some(value.clone());
            Change::Put(value)
        };
        self.modify(self.hash_to_write(key), |candidate| key.equivalent(candidate), decide).then_some(new).flatten()
    }

    /// Lets `decide` say what becomes of a key, given its value if it is there; all at once. `decide` may be called more than
    /// once, and under the key's lock: it must not use this map or another.
    ///
    /// # Panics
    /// If there is no room for a new key, as [`CuckooMap::insert`].
    pub fn compute(&self, key: K, decide: impl FnMut(Option<&V>) -> Change<V>) -> Changed {
        self.try_compute(key, decide).unwrap_or_else(|full| panic!("{full}"))
    }

    /// The same.
    ///
    /// # Errors
    /// [`TableFull`] with key and value.
    pub fn try_compute(
        &self,
        key: K,
        mut decide: impl FnMut(Option<&V>) -> Change<V>,
    ) -> Result<Changed, TableFull<K, V>> {
        let hash = self.hash_to_write(&key);
        if L::is_inline() {
            self.compute_inline(hash, key, &mut decide)
        } else {
            self.compute_boxed(hash, key, &mut decide)
        }
    }

    /// Keys of one hash that the map takes: half a bucket of the two that they share. The other keys of these buckets can be moved
    /// then, so that growth finds a place for each whatever else has come to the new segment, and hashes of which all have so many
    /// keys fill a segment like keys of buckets half as large. Twice as many stopped growth with a thousand such hashes.
    const ALIKE_MAX: usize = WAYS / 2;

    /// Adds a pair whose key is locked and not there. It has been compared with `met` keys: all that may have its hash, and maybe
    /// some of them twice.
    #[inline(always)]
    pub(super) fn add<'a>(
        &self,
        locked: &mut LockedPair<'a, K, V, L, WAYS, impl Residence<'a, Pairs<K, V, L, WAYS>>>,
        hash: u64,
        content: Words<'_>,
        met: usize,
    ) -> Result<(), NoRoom> {
        if met >= Self::ALIKE_MAX && locked.count_alike(|there| self.hash_of_content(there) == hash) >= Self::ALIKE_MAX
        {
            return Err(NoRoom::Alike);
        }
        locked.insert(content).map_err(|Full| NoRoom::Full)
    }

    /// Stores a pair. `see` is shown the value that was there.
    #[inline(always)]
    fn store<R>(
        &self,
        hash: u64,
        key: K,
        value: V,
        when: When,
        see: impl FnOnce(&V) -> R,
    ) -> Result<Found<R>, TableFull<K, V>> {
        if L::is_inline() {
            self.store_inline(hash, key, value, when, see)
        } else {
            self.store_boxed(hash, Entry { hash, key, value }, when, see)
        }
    }

    /// Takes out the pair that `is_it` accepts, which is called under the lock, and shows it to `see` afterwards.
    #[inline(always)]
    pub(super) fn take<R>(
        &self,
        hash: u64,
        is_it: impl FnMut(&K, &V) -> bool,
        see: impl FnOnce(&K, &V) -> R,
    ) -> Option<R> {
        if L::is_inline() { self.take_inline(hash, is_it, see) } else { self.take_boxed(hash, is_it, see) }
    }

    /// Lets `decide` say what becomes of a key that is there; true if it is and has been changed or kept.
    #[inline(always)]
    fn modify(&self, hash: u64, is_key: impl FnMut(&K) -> bool, decide: impl FnMut(&V) -> Change<V>) -> bool
    where
        K: Clone,
    {
        if L::is_inline() { self.modify_inline(hash, is_key, decide) } else { self.modify_boxed(hash, is_key, decide) }
    }
}
