//! Writes: under the stripes of one key, with what can be prepared beforehand prepared.

use std::{
    hash::{BuildHasher, Hash},
    sync::atomic::{AtomicPtr, Ordering},
};

use equivalent::Equivalent;
use seize::{Collector, Guard};

use super::{
    CuckooMap, ManyFull, NoRoom, Storage, TableFull, Ways, Width,
    pairs::{self, Entry, Words},
};
use crate::{Probe, table::Full};

/// Pairs that a batch asks the memory for at a time: each takes three cache lines.
const BATCH: usize = 32;

/// A key of a map under its lock.
type LockedPair<'a, K, V, L, const WAYS: usize> = crate::Locked<'a, pairs::Pairs<K, V, L, WAYS>, super::Memory>;

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
enum When {
    Always,
    IfAbsent,
}

/// What a store found.
enum Found<R> {
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
    /// Stores a pair and gives back a copy of the value that it replaces.
    ///
    /// # Panics
    /// If there is no room: the map is fixed, memory is short, or too many keys have one hash. [`CuckooMap::try_insert`] returns
    /// an error instead.
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
        let hash = self.hash_of(&key);
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
        let hash = self.hash_of(&key);
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
        let hash = self.hash_of(&key);
        Ok(matches!(self.store(hash, key, value, When::IfAbsent, |_| ())?, Found::Nothing))
    }

    /// A copy of a key's value, which `make` makes if the key is not there. Of several threads that do so at once one has its
    /// way, and all get that value.
    ///
    /// # Errors
    /// [`TableFull`] with the pair.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<V, TableFull<K, V>>
    where
        V: Clone,
    {
        let hash = self.hash_of(&key);
        if let Some(value) = self.find(hash, |candidate| *candidate == key, |_, value| value.clone()) {
            return Ok(value);
        }
        let value = make();
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
            batch.extend(pairs.by_ref().take(BATCH).map(|(key, value)| {
                let hash = self.hash_of(&key);
                let probe = Self::probe(hash);
                self.table.prefetch_to_write(&probe);
                (hash, key, value)
            }));
            if batch.is_empty() {
                return Ok(inserted);
            }
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
        self.take(self.hash_of(key), |candidate, _| key.equivalent(candidate), |_, value| value.clone())
    }

    /// Removes a key; true if it was there.
    #[inline]
    pub fn delete<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.take(self.hash_of(key), |candidate, _| key.equivalent(candidate), |_, _| ()).is_some()
    }

    /// Removes a key if `condition` holds for its value; true if it did. `condition` may be called more than once, and is called
    /// under the key's lock: it must not use a map.
    pub fn remove_if<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> bool {
        let is_it = |candidate: &K, value: &V| key.equivalent(candidate) && condition(candidate, value);
        self.take(self.hash_of(key), is_it, |_, _| ()).is_some()
    }

    /// Gives a key that is there the value that `change` makes of its own; a copy of the new value, or `None` if the key is not
    /// there. `change` may be called more than once, and under the key's lock: it must not use the map.
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
        self.modify(self.hash_of(key), |candidate| key.equivalent(candidate), decide).then_some(new).flatten()
    }

    /// Lets `decide` say what becomes of a key, given its value if it is there; all at once. `decide` may be called more than
    /// once, and under the key's lock: it must not use the map.
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
        let hash = self.hash_of(&key);
        if L::is_inline() { self.compute_inline(hash, key, decide) } else { self.compute_boxed(hash, key, &mut decide) }
    }

    /// Keys of one hash that the map takes: half a bucket of the two that they share. The other keys of these buckets can be moved
    /// then, so that growth finds a place for each whatever else has come to the new segment, and hashes of which all have so many
    /// keys fill a segment like keys of buckets half as large. Twice as many stopped growth with a thousand such hashes.
    const ALIKE_MAX: usize = WAYS / 2;

    /// Adds a pair whose key is locked and not there. It has been compared with `met` keys: all that may have its hash, and maybe
    /// some of them twice.
    #[inline(always)]
    fn add(
        &self,
        locked: &mut LockedPair<'_, K, V, L, WAYS>,
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

    /// How many keys are counted under the stripe that was just used; see `after_insert`.
    #[inline]
    fn added(&self, probe: &Probe) {
        self.after_insert(self.table.keys_of_stripe(probe));
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
        if !L::is_inline() {
            return self.store_boxed(hash, Entry { hash, key, value }, when, see);
        }
        let probe = Self::probe(hash);
        self.table.prefetch_to_write(&probe);
        let mut words = pairs::pack(&key, &value);
        let content = Self::inline_content(&mut words);
        loop {
            let mut met = 0;
            let (mut locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::inline_key(content) == key
            });
            if let Some(place) = place {
                // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
                let old: V = unsafe { pairs::value_of::<K, V>(&locked.content(place).copy()) };
                if when == When::IfAbsent {
                    drop(locked);
                    return Ok(Found::Left(see(&old)));
                }
                locked.replace(place, content);
                drop(locked);
                return Ok(Found::Replaced(see(&old)));
            }
            let Err(missing) = self.add(&mut locked, hash, content, met) else {
                drop(locked);
                self.added(&probe);
                return Ok(Found::Nothing);
            };
            drop(locked);
            if let Err(Full) = self.make_room(&probe, missing) {
                return Err(TableFull { key, value });
            }
        }
    }

    #[inline(always)]
    fn inline_content(words: &mut [u64; pairs::SLOT_WORDS_MAX]) -> Words<'_> {
        pairs::as_content(words, pairs::Pairs::<K, V, L, WAYS>::slot_words())
    }

    /// The key of an inline pair whose stripe is held.
    #[inline(always)]
    fn inline_key(content: Words<'_>) -> K {
        // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
        unsafe { pairs::key_of::<K>(&content.copy()) }
    }

    /// The entry of a slot whose stripe is held.
    fn entry(content: Words<'_>) -> *mut Entry<K, V> {
        pairs::unmark(content.pointer::<K, V>().load(Ordering::Relaxed))
    }

    /// Whether the entry of a slot whose stripe is held is the key's.
    fn is_entry_of(content: Words<'_>, hash: u64, is_key: &mut impl FnMut(&K) -> bool) -> bool {
        let marked = content.pointer::<K, V>().load(Ordering::Relaxed);
        // SAFETY: a slot that is taken holds an entry, which nobody takes out while its stripe is held.
        pairs::may_be(marked, hash) && is_key(unsafe { &(*pairs::unmark(marked)).key })
    }

    fn store_boxed<R>(
        &self,
        hash: u64,
        entry: Entry<K, V>,
        when: When,
        see: impl FnOnce(&V) -> R,
    ) -> Result<Found<R>, TableFull<K, V>> {
        let probe = Self::probe(hash);
        self.table.prefetch_to_write(&probe);
        let mut entry = NewEntry::new(entry);
        loop {
            let mut met = 0;
            let (mut locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::is_entry_of(content, hash, &mut |key| *key == entry.get().key)
            });
            if let Some(place) = place {
                // Entered under the lock, so that what is there stays until `see` has seen it.
                let guard = self.collector.enter();
                let old = guard.protect(locked.content(place).pointer::<K, V>(), Ordering::Acquire);
                let old = pairs::unmark(old);
                if when == When::IfAbsent {
                    drop(locked);
                    // SAFETY: protected by the guard.
                    return Ok(Found::Left(see(unsafe { &(*old).value })));
                }
                locked.replace(place, pairs::pointer_as_content(&entry.release()));
                drop(locked);
                let _retire = Retire { guard: &guard, entry: old };
                // SAFETY: protected by the guard.
                return Ok(Found::Replaced(see(unsafe { &(*old).value })));
            }
            // If there is no room the entry stays ours; the pointer that is copied into the slot is the same each time.
            let pointer = entry.pointer();
            let Err(missing) = self.add(&mut locked, hash, pairs::pointer_as_content(&pointer), met) else {
                entry.is_in_the_map();
                drop(locked);
                self.added(&probe);
                return Ok(Found::Nothing);
            };
            drop(locked);
            if let Err(Full) = self.make_room(&probe, missing) {
                let Entry { key, value, .. } = entry.into_inner();
                return Err(TableFull { key, value });
            }
        }
    }

    /// Takes out the pair that `is_it` accepts, which is called under the lock, and shows it to `see` afterwards.
    #[inline(always)]
    pub(super) fn take<R>(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&K, &V) -> bool,
        see: impl FnOnce(&K, &V) -> R,
    ) -> Option<R> {
        let probe = Self::probe(hash);
        if L::is_inline() {
            let (mut locked, place) = self.table.lock_and_find(&probe, |content| {
                let words = content.copy();
                // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
                unsafe { is_it(&pairs::key_of::<K>(&words), &pairs::value_of::<K, V>(&words)) }
            });
            let place = place?;
            let words = locked.content(place).copy();
            locked.remove(place);
            drop(locked);
            // SAFETY: the words of a pair.
            return Some(unsafe { see(&pairs::key_of::<K>(&words), &pairs::value_of::<K, V>(&words)) });
        }
        let (mut locked, place) = self.table.lock_and_find(&probe, |content| {
            let entry = Self::entry(content);
            // SAFETY: a slot that is taken holds an entry, which nobody takes out while its stripe is held.
            Self::is_entry_of(content, hash, &mut |key| is_it(key, unsafe { &(*entry).value }))
        });
        let place = place?;
        let guard = self.collector.enter();
        let entry = Self::entry(locked.content(place));
        locked.remove(place);
        drop(locked);
        let _retire = Retire { guard: &guard, entry };
        // SAFETY: taken out by us, and retired only when `_retire` is dropped.
        let entry = unsafe { &*entry };
        Some(see(&entry.key, &entry.value))
    }

    /// Lets `decide` say what becomes of a key that is there; true if it is and has been changed or kept.
    fn modify(&self, hash: u64, mut is_key: impl FnMut(&K) -> bool, mut decide: impl FnMut(&V) -> Change<V>) -> bool
    where
        K: Clone,
    {
        let probe = Self::probe(hash);
        if L::is_inline() {
            let (locked, place) = self.table.lock_and_find(&probe, |content| is_key(&Self::inline_key(content)));
            let Some(place) = place else { return false };
            self.change_inline(locked, place, |value| decide(value));
            return true;
        }
        let guard = self.collector.enter();
        loop {
            let mut seen = None;
            let found = self.find(hash, &mut is_key, |key, value| {
                seen = Some(std::ptr::from_ref(value));
                (key.clone(), decide(value))
            });
            let Some((key, change)) = found else { return false };
            let is_unchanged = |value: &V| seen.is_some_and(|seen| std::ptr::eq(seen, value));
            match change {
                Change::Keep => return true,
                Change::Remove => {
                    if self.take(hash, |key, value| is_key(key) && is_unchanged(value), |_, _| ()).is_some() {
                        return true;
                    }
                }
                Change::Put(value) => {
                    let mut new = NewEntry::new(Entry { hash, key, value });
                    let (mut locked, place) = self.table.lock_and_find(&probe, |content| {
                        let entry = Self::entry(content);
                        // SAFETY: a slot that is taken holds an entry, which nobody takes out while its stripe is held.
                        Self::is_entry_of(content, hash, &mut |_| is_unchanged(unsafe { &(*entry).value }))
                    });
                    if let Some(place) = place {
                        let old = Self::entry(locked.content(place));
                        locked.replace(place, pairs::pointer_as_content(&new.release()));
                        drop(locked);
                        drop(Retire { guard: &guard, entry: old });
                        return true;
                    }
                }
            }
        }
    }

    /// Carries out what `decide` says of an inline pair.
    fn change_inline(
        &self,
        mut locked: LockedPair<'_, K, V, L, WAYS>,
        place: crate::Place,
        decide: impl FnOnce(&V) -> Change<V>,
    ) -> Changed {
        let words = locked.content(place).copy();
        // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
        let (key, value) = unsafe { (pairs::key_of::<K>(&words), pairs::value_of::<K, V>(&words)) };
        match decide(&value) {
            Change::Keep => Changed::Kept,
            Change::Remove => {
                locked.remove(place);
                Changed::Removed
            }
            Change::Put(value) => {
                locked.replace(place, Self::inline_content(&mut pairs::pack(&key, &value)));
                Changed::Updated
            }
        }
    }

    fn compute_inline(
        &self,
        hash: u64,
        key: K,
        mut decide: impl FnMut(Option<&V>) -> Change<V>,
    ) -> Result<Changed, TableFull<K, V>> {
        let probe = Self::probe(hash);
        self.table.prefetch_to_write(&probe);
        loop {
            let mut met = 0;
            let (mut locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::inline_key(content) == key
            });
            if let Some(place) = place {
                return Ok(self.change_inline(locked, place, |value| decide(Some(value))));
            }
            let Change::Put(value) = decide(None) else { return Ok(Changed::Kept) };
            let mut words = pairs::pack(&key, &value);
            let Err(missing) = self.add(&mut locked, hash, Self::inline_content(&mut words), met) else {
                drop(locked);
                self.added(&probe);
                return Ok(Changed::Inserted);
            };
            drop(locked);
            if let Err(Full) = self.make_room(&probe, missing) {
                return Err(TableFull { key, value });
            }
        }
    }

    fn compute_boxed(
        &self,
        hash: u64,
        key: K,
        decide: &mut dyn FnMut(Option<&V>) -> Change<V>,
    ) -> Result<Changed, TableFull<K, V>> {
        let probe = Self::probe(hash);
        let guard = self.collector.enter();
        let mut key = key;
        loop {
            let mut seen = std::ptr::null();
            let change = self.find(
                hash,
                |candidate| *candidate == key,
                |_, value| {
                    seen = std::ptr::from_ref(value);
                    decide(Some(value))
                },
            );
            let change = change.unwrap_or_else(|| decide(None));
            let is_unchanged = |value: &V| std::ptr::eq(seen, value);
            let value = match change {
                Change::Keep => return Ok(Changed::Kept),
                Change::Remove if seen.is_null() => return Ok(Changed::Kept),
                Change::Remove => {
                    let is_it = |candidate: &K, value: &V| *candidate == key && is_unchanged(value);
                    if self.take(hash, is_it, |_, _| ()).is_some() {
                        return Ok(Changed::Removed);
                    }
                    continue;
                }
                Change::Put(value) => value,
            };
            let mut new = NewEntry::new(Entry { hash, key, value });
            let mut met = 0;
            let (mut locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::is_entry_of(content, hash, &mut |key| *key == new.get().key)
            });
            let missing = match place {
                // SAFETY: the slot holds an entry, which nobody takes out while its stripe is held.
                Some(place) if is_unchanged(unsafe { &(*Self::entry(locked.content(place))).value }) => {
                    let old = Self::entry(locked.content(place));
                    locked.replace(place, pairs::pointer_as_content(&new.release()));
                    drop(locked);
                    drop(Retire { guard: &guard, entry: old });
                    return Ok(Changed::Updated);
                }
                None if seen.is_null() => {
                    let pointer = new.pointer();
                    let added = self.add(&mut locked, hash, pairs::pointer_as_content(&pointer), met);
                    let Err(missing) = added else {
                        new.is_in_the_map();
                        drop(locked);
                        self.added(&probe);
                        return Ok(Changed::Inserted);
                    };
                    Some(missing)
                }
                // Somebody changed the key meanwhile: once more.
                _ => None,
            };
            drop(locked);
            if missing.is_some_and(|missing| self.make_room(&probe, missing).is_err()) {
                let Entry { key, value, .. } = new.into_inner();
                return Err(TableFull { key, value });
            }
            key = new.into_inner().key;
        }
    }
}

/// An entry that is not in the map yet: freed, unless it is released into it.
struct NewEntry<K, V>(*mut Entry<K, V>);

impl<K, V> NewEntry<K, V> {
    fn new(entry: Entry<K, V>) -> Self {
        Self(Box::into_raw(Box::new(entry)))
    }

    fn get(&self) -> &Entry<K, V> {
        // SAFETY: from a box that is ours alone.
        unsafe { &*self.0 }
    }

    /// The marked pointer, for a slot.
    fn pointer(&self) -> AtomicPtr<Entry<K, V>> {
        AtomicPtr::new(pairs::mark(self.0, self.get().hash))
    }

    /// The same; the entry is the map's from now on.
    fn release(&mut self) -> AtomicPtr<Entry<K, V>> {
        let pointer = self.pointer();
        self.is_in_the_map();
        pointer
    }

    /// The entry is the map's. To be said while the key's stripe is held: later another thread may have freed it.
    fn is_in_the_map(&mut self) {
        self.0 = std::ptr::null_mut();
    }

    fn into_inner(mut self) -> Entry<K, V> {
        let entry = std::mem::replace(&mut self.0, std::ptr::null_mut());
        // SAFETY: from a box that is ours alone.
        *unsafe { Box::from_raw(entry) }
    }
}

impl<K, V> Drop for NewEntry<K, V> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: from a box that is ours alone.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

/// Has an entry that was taken out of the map freed when nobody can be looking at it any more, also if somebody's code panics
/// before.
pub(super) struct Retire<'a, G: Guard, K, V> {
    pub guard: &'a G,
    pub entry: *mut Entry<K, V>,
}

impl<G: Guard, K, V> Drop for Retire<'_, G, K, V> {
    fn drop(&mut self) {
        /// Frees it.
        unsafe fn free<K, V>(entry: *mut Entry<K, V>, _: &Collector) {
            // SAFETY: the collector calls this once, when nobody can refer to the entry any more; it came from a box.
            let entry = unsafe { Box::from_raw(entry) };
            // A panic has been reported; let on, it would come out of whoever happens to free, and what is freed after it would leak.
            let _panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(entry)));
        }
        // SAFETY: the entry is out of the map, so whoever enters from now on does not find it, and it came from a box.
        unsafe { self.guard.defer_retire(self.entry, free) };
    }
}
