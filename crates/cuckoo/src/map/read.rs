//! Reads: without locks, without a write to shared memory, one key or dozens at a time.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    sync::atomic::Ordering,
};

use equivalent::Equivalent;
use seize::Guard;

use super::{
    CuckooMap, Protection, Storage, Ways, Width,
    pairs::{self, SlotWords},
};
use crate::{
    Probe,
    read::{Contended, Disturbed},
};

/// While it lives its thread reads a map for less; see [`CuckooMap::pin`].
#[must_use = "it does something only as long as it lives"]
pub struct Pinned<'a> {
    _guard: Option<Protection<'a>>,
}

impl fmt::Debug for Pinned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pinned")
    }
}

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// A copy of a key's value.
    #[inline(always)]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.get_with(key, V::clone)
    }

    /// What `read` makes of a key's value. A value in a slot is copied for it, one on the heap stays alive meanwhile; no lock
    /// is held, so `read` may use the map.
    #[inline(always)]
    pub fn get_with<Q: Hash + Equivalent<K> + ?Sized, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.find(self.hash_of(key), |candidate| key.equivalent(candidate), |_, value| read(value))
    }

    /// Whether a key is there.
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.get_with(key, |_| ()).is_some()
    }

    /// Says once, for as long as the result lives, that this thread reads: with pairs on the heap each read says so by itself
    /// otherwise, which takes about as long as a miss. Nothing that other threads take out of the map meanwhile is freed, so it
    /// is for a few dozen reads, not for a thread's life. A map whose pairs lie in slots has nothing to say.
    ///
    /// ```
    /// let map: guira_cuckoo::CuckooMap<String, String> = [("a".into(), "b".into())].into();
    /// let pinned = map.pin();
    /// assert!(["a", "c"].iter().filter(|key| map.contains_key(**key)).count() == 1);
    /// drop(pinned);
    /// ```
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { _guard: (!L::is_inline()).then(|| self.protect()) }
    }

    /// What `read` makes of the pair whose key `is_key` accepts, among those with this hash.
    #[inline(always)]
    pub(super) fn find<R>(
        &self,
        hash: u64,
        mut is_key: impl FnMut(&K) -> bool,
        read: impl FnOnce(&K, &V) -> R,
    ) -> Option<R> {
        let probe = Probe::new(hash);
        if !L::is_inline() {
            return self.find_entry(hash, is_key, read);
        }
        let accept = |words| Self::pair_if(&words, &mut is_key);
        let found = match self.table.look_first(&probe, |content| Some(content.copy()), accept) {
            Ok(found) => found,
            Err(Disturbed) => self.find_pair(hash, is_key),
        };
        found.map(|(key, value)| read(&key, &value))
    }

    /// The inline pair that validated words are, if its key is accepted.
    #[inline(always)]
    pub(super) fn pair_if(words: &SlotWords<K, V>, is_key: &mut impl FnMut(&K) -> bool) -> Option<(K, V)> {
        // SAFETY: the words have been validated, or their stripe is held, so they are a pair that was stored.
        let key = unsafe { words.key() };
        // SAFETY: as above.
        is_key(&key).then(|| (key, unsafe { words.value() }))
    }

    /// An inline pair that is not the first that comes to hand.
    #[inline(never)]
    fn find_pair(&self, hash: u64, mut is_key: impl FnMut(&K) -> bool) -> Option<(K, V)> {
        let probe = &Probe::new(hash);
        let found = self.table.read_patiently(
            probe,
            |content| Some(content.copy()),
            |words| Self::pair_if(&words, &mut is_key),
        );
        found.unwrap_or_else(|Contended| {
            let locked = self.table.lock(probe);
            let mut found = None;
            let _place = locked.find(|content| {
                found = Self::pair_if(&content.copy(), &mut is_key);
                found.is_some()
            });
            found
        })
    }

    fn find_entry<R>(
        &self,
        hash: u64,
        mut is_key: impl FnMut(&K) -> bool,
        read: impl FnOnce(&K, &V) -> R,
    ) -> Option<R> {
        let probe = Probe::new(hash);
        // A bucket's pointers are a line or two: they come with the tags, and both while the collector is told.
        self.table.prefetch_home(&probe);
        let guard = self.protect();
        let mut is_it = |content: pairs::Words<'_>| {
            let marked = guard.protect(content.pointer::<K, V>(), Ordering::Acquire);
            // SAFETY: a slot that is taken holds an entry, and null once it is not: the guard protects what it was then.
            (pairs::may_be(marked, hash) && is_key(unsafe { &(*pairs::unmark(marked)).key })).then_some(marked)
        };
        let marked = self.table.read(&probe, &mut is_it)?;
        // SAFETY: protected by the guard, which lives until after the call.
        let entry = unsafe { &*pairs::unmark(marked) };
        Some(read(&entry.key, &entry.value))
    }
}
