//! Writes of pairs that lie on the heap: a slot holds the pointer. An entry is written before its key is locked, and freed when no
//! reader can be looking at it any more.
//!
//! Always true: an entry belongs to whoever made it until its pointer is in a slot, to the map while it is, and to the collector
//! once it has been taken out; said each time while the key's stripe is held.

use std::{
    hash::{BuildHasher, Hash},
    sync::atomic::{AtomicPtr, Ordering},
};

use seize::{Collector, Guard};

use super::{
    CuckooMap, NoRoom, Storage, TableFull, Ways, Width,
    pairs::{self, Entry, Pairs, Words},
    write::{Change, Changed, Found, LockedPair, When},
};
use crate::{Probe, locked::Place, modelled, residence::Residence, table::Full};

/// Times that a change is decided without a lock before others have come in between too often: then it is decided under it.
/// Many more than threads that take turns with one key spoil.
const UNLOCKED_ATTEMPTS_MAX: usize = modelled(64, 1);

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
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

    pub(super) fn store_boxed<R>(
        &self,
        hash: u64,
        entry: Entry<K, V>,
        when: When,
        see: impl FnOnce(&V) -> R,
    ) -> Result<Found<R>, TableFull<K, V>> {
        let probe = Self::probe(hash);
        let mut entry = NewEntry::new(entry);
        loop {
            let mut met = 0;
            let (mut locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::is_entry_of(content, hash, &mut |key| *key == entry.get().key)
            });
            if let Some(place) = place {
                // Entered under the lock, so that what is there stays until `see` has seen it.
                let guard = self.protect();
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
                self.after_change();
                // SAFETY: protected by the guard.
                return Ok(Found::Replaced(see(unsafe { &(*old).value })));
            }
            let Err(missing) = self.add_entry(locked, &mut entry, met) else { return Ok(Found::Nothing) };
            if let Err(Full) = self.make_room(&probe, missing) {
                let Entry { key, value, .. } = entry.into_inner();
                return Err(TableFull { key, value });
            }
        }
    }

    pub(super) fn take_boxed<R>(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&K, &V) -> bool,
        see: impl FnOnce(&K, &V) -> R,
    ) -> Option<R> {
        let probe = Self::probe(hash);
        let (mut locked, place) = self.table.lock_and_find(&probe, |content| {
            let entry = Self::entry(content);
            // SAFETY: a slot that is taken holds an entry, which nobody takes out while its stripe is held.
            Self::is_entry_of(content, hash, &mut |key| is_it(key, unsafe { &(*entry).value }))
        });
        let place = place?;
        let guard = self.protect();
        let entry = Self::entry(locked.content(place));
        locked.remove(place);
        drop(locked);
        let _retire = Retire { guard: &guard, entry };
        self.after_change();
        // SAFETY: taken out by us, and retired only when `_retire` is dropped.
        let entry = unsafe { &*entry };
        Some(see(&entry.key, &entry.value))
    }

    pub(super) fn modify_boxed(
        &self,
        hash: u64,
        mut is_key: impl FnMut(&K) -> bool,
        mut decide: impl FnMut(&V) -> Change<V>,
    ) -> bool
    where
        K: Clone,
    {
        let probe = Self::probe(hash);
        let guard = self.protect();
        for _ in 0..UNLOCKED_ATTEMPTS_MAX {
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
                        self.after_change();
                        return true;
                    }
                }
            }
        }
        let (locked, place) = self.table.lock_and_find(&probe, |content| Self::is_entry_of(content, hash, &mut is_key));
        let Some(place) = place else { return false };
        let mut decide = |there: Option<&V>| there.map_or(Change::Keep, &mut decide);
        self.change_locked(K::clone, &mut decide, hash, place, locked);
        true
    }

    /// Lets `decide` say what becomes of an entry under its lock, where nobody comes in between. The lock is the last argument, so
    /// that it is given back before the others are dropped, whatever panics.
    fn change_locked<'a>(
        &self,
        key: impl FnOnce(&K) -> K,
        decide: &mut dyn FnMut(Option<&V>) -> Change<V>,
        hash: u64,
        place: Place,
        mut locked: LockedPair<'a, K, V, L, WAYS, impl Residence<'a, Pairs<K, V, L, WAYS>>>,
    ) -> Changed {
        let guard = self.protect();
        let old = Self::entry(locked.content(place));
        // SAFETY: a slot that is taken holds an entry, which nobody takes out while its stripe is held.
        let there = unsafe { &*old };
        let changed = match decide(Some(&there.value)) {
            Change::Keep => {
                drop(locked);
                return Changed::Kept;
            }
            Change::Remove => {
                locked.remove(place);
                Changed::Removed
            }
            Change::Put(value) => {
                let mut new = NewEntry::new(Entry { hash, key: key(&there.key), value });
                locked.replace(place, pairs::pointer_as_content(&new.release()));
                Changed::Updated
            }
        };
        drop(locked);
        drop(Retire { guard: &guard, entry: old });
        self.after_change();
        changed
    }

    /// Adds an entry whose key is locked and not there, and has been compared with `met` others. It stays the caller's if there is no
    /// room.
    fn add_entry<'a>(
        &self,
        mut locked: LockedPair<'a, K, V, L, WAYS, impl Residence<'a, Pairs<K, V, L, WAYS>>>,
        new: &mut NewEntry<K, V>,
        met: usize,
    ) -> Result<(), NoRoom> {
        let (hash, pointer) = (new.get().hash, new.pointer());
        self.add(&mut locked, hash, pairs::pointer_as_content(&pointer), met)?;
        new.is_in_the_map();
        let keys_of_stripe = locked.keys_of_stripe();
        drop(locked);
        self.after_insert(hash, keys_of_stripe);
        Ok(())
    }

    pub(super) fn compute_boxed(
        &self,
        hash: u64,
        key: K,
        decide: &mut dyn FnMut(Option<&V>) -> Change<V>,
    ) -> Result<Changed, TableFull<K, V>> {
        let probe = Self::probe(hash);
        let guard = self.protect();
        let mut key = key;
        for _ in 0..UNLOCKED_ATTEMPTS_MAX {
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
            match place {
                // SAFETY: the slot holds an entry, which nobody takes out while its stripe is held.
                Some(place) if is_unchanged(unsafe { &(*Self::entry(locked.content(place))).value }) => {
                    let old = Self::entry(locked.content(place));
                    locked.replace(place, pairs::pointer_as_content(&new.release()));
                    drop(locked);
                    drop(Retire { guard: &guard, entry: old });
                    self.after_change();
                    return Ok(Changed::Updated);
                }
                None if seen.is_null() => match self.add_entry(locked, &mut new, met) {
                    Ok(()) => return Ok(Changed::Inserted),
                    Err(missing) => key = self.make_room_for(&probe, new, missing)?,
                },
                // Somebody changed the key meanwhile: once more.
                _ => {
                    drop(locked);
                    key = new.into_inner().key;
                }
            }
        }
        loop {
            let mut met = 0;
            let (locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::is_entry_of(content, hash, &mut |there| *there == key)
            });
            if let Some(place) = place {
                return Ok(self.change_locked(|_| key, decide, hash, place, locked));
            }
            let Change::Put(value) = decide(None) else { return Ok(Changed::Kept) };
            let mut new = NewEntry::new(Entry { hash, key, value });
            match self.add_entry(locked, &mut new, met) {
                Ok(()) => return Ok(Changed::Inserted),
                Err(missing) => key = self.make_room_for(&probe, new, missing)?,
            }
        }
    }

    /// Makes room for an entry that there was none for; its key, for another attempt.
    fn make_room_for(&self, probe: &Probe, new: NewEntry<K, V>, missing: NoRoom) -> Result<K, TableFull<K, V>> {
        let outcome = self.make_room(probe, missing);
        let Entry { key, value, .. } = new.into_inner();
        match outcome {
            Ok(()) => Ok(key),
            Err(Full) => Err(TableFull { key, value }),
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Whether the lock of a key that is there is held, asked by another thread.
    fn is_locked(map: &CuckooMap<String, u64>, key: &str) -> bool {
        let probe = Probe::new(map.hash_of(key));
        std::thread::scope(|scope| {
            let is_free = || map.table.try_lock_and_find(&probe, |_| true).is_some();
            !scope.spawn(is_free).join().expect("no panic")
        })
    }

    /// Somebody changes a key while it is being decided, as long as no lock is held.
    #[test]
    fn who_is_always_disturbed_decides_under_the_lock() {
        type Outcome = fn(u64) -> Change<u64>;
        let outcomes: [(Outcome, Changed, Option<u64>); 3] = [
            (|_| Change::Keep, Changed::Kept, Some(64)),
            (|_| Change::Remove, Changed::Removed, None),
            (|there| Change::Put(there + 1000), Changed::Updated, Some(1064)),
        ];
        for (outcome, changed, expected) in outcomes {
            let map: CuckooMap<String, u64> = CuckooMap::from([("busy".to_owned(), 0)]);
            let mut calls = 0;
            let computed = map.compute("busy".to_owned(), |there| {
                calls += 1;
                if calls <= UNLOCKED_ATTEMPTS_MAX as u64 {
                    map.insert("busy".to_owned(), calls);
                    // To keep a value is certain at once, whoever comes then.
                    return Change::Put(0);
                }
                assert!(is_locked(&map, "busy"), "call {calls}");
                outcome(*there.expect("it was put back"))
            });
            assert_eq!((computed, map.get("busy"), calls), (changed, expected, 65));
            assert_eq!(map.len(), usize::from(expected.is_some()));
        }
        let map: CuckooMap<String, u64> = CuckooMap::from([("busy".to_owned(), 0)]);
        let mut calls = 0;
        let updated = map.update("busy", |there| {
            calls += 1;
            match calls <= UNLOCKED_ATTEMPTS_MAX as u64 {
                true => drop(map.insert("busy".to_owned(), calls)),
                false => assert!(is_locked(&map, "busy"), "call {calls}"),
            }
            there + 1000
        });
        assert_eq!((updated, calls), (Some(1064), 65));
    }

    #[test]
    fn who_is_always_disturbed_inserts_what_is_gone_in_the_end() {
        let map: CuckooMap<String, u64> = CuckooMap::new();
        let mut calls = 0;
        let computed = map.compute("busy".to_owned(), |_| {
            calls += 1;
            // It comes and goes: there when it is looked for again, and not when it is decided upon.
            if calls <= UNLOCKED_ATTEMPTS_MAX as u64 {
                match map.remove("busy") {
                    Some(_) => {}
                    None => drop(map.insert("busy".to_owned(), calls)),
                }
            }
            Change::Put(7)
        });
        assert_eq!((computed, map.get("busy"), map.len(), calls), (Changed::Inserted, Some(7), 1, 65));
    }
}
