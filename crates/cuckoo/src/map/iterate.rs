//! Walks through a map beside whatever else goes on: each key that is there all the while is seen once.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    sync::atomic::Ordering,
};

use seize::Guard;

use super::{
    CuckooMap, Storage, Ways, Width,
    pairs::{self, Entry, SlotWords},
};
use crate::scan::Cursor;

/// How far a walk through a map has come, and the pairs of the step.
struct Walk<K, V> {
    cursor: Cursor,
    /// The words of pairs that lie in slots, one after the other.
    inline: Vec<u64>,
    entries: Vec<*mut Entry<K, V>>,
}

impl<K, V> Default for Walk<K, V> {
    fn default() -> Self {
        Self { cursor: Cursor::default(), inline: Vec::new(), entries: Vec::new() }
    }
}

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// Copies of all pairs, in no order. A key that is there from beginning to end is seen once; one that comes or goes
    /// meanwhile may be seen or not, and again if it goes and comes again. No lock is held between two items.
    pub fn iter(&self) -> Iter<'_, K, V, S, L, WAYS>
    where
        K: Clone,
        V: Clone,
    {
        Iter { map: self, walk: Walk::default(), pairs: Vec::new() }
    }

    /// Copies of all keys, as [`CuckooMap::iter`].
    pub fn keys(&self) -> impl Iterator<Item = K>
    where
        K: Clone,
        V: Clone,
    {
        self.iter().map(|(key, _)| key)
    }

    /// Copies of all values, as [`CuckooMap::iter`].
    pub fn values(&self) -> impl Iterator<Item = V>
    where
        K: Clone,
        V: Clone,
    {
        self.iter().map(|(_, value)| value)
    }

    /// Calls `visit` with every pair, as [`CuckooMap::iter`] but without a copy of what lies on the heap. No lock is held
    /// meanwhile, so `visit` may use the map.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        let mut walk = Walk::default();
        while !walk.cursor.is_at_end() {
            self.step(&mut walk, &mut |key, value, _| visit(key, value));
        }
    }

    /// Removes the pairs that `keep` does not want. One that is stored meanwhile may stay unseen, and one that gets another
    /// value while `keep` looks at it stays. No lock is held meanwhile, so `keep` may use the map.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut walk = Walk::default();
        while !walk.cursor.is_at_end() {
            self.step(&mut walk, &mut |key, value, words| {
                if keep(key, value) {
                    return;
                }
                let is_same = |candidate: &K, there: &V| match words {
                    Some(words) => {
                        let mut there = Self::packed(candidate, there);
                        there.as_content().load().eq(words.iter().copied())
                    }
                    None => std::ptr::eq(value, there),
                };
                let _gone_already = self.take(self.hash_of(key), is_same, |_, _| ());
            });
        }
    }

    /// One step of a walk. `visit` also gets the words of a pair that lies in its slot.
    #[expect(clippy::type_complexity, reason = "a visitor's arguments, named in the line above")]
    fn step(&self, walk: &mut Walk<K, V>, visit: &mut dyn FnMut(&K, &V, Option<&[u64]>)) {
        let Walk { cursor, inline, entries } = walk;
        // A step whose hasher has panicked left some here, and begins again.
        inline.clear();
        entries.clear();
        let guard = (!L::is_inline()).then(|| self.protect());
        self.table.scan_step(
            cursor,
            |content| self.hash_of_content(content),
            |content| match &guard {
                None => inline.extend(content.load()),
                Some(guard) => {
                    entries.push(pairs::unmark(guard.protect(content.pointer::<K, V>(), Ordering::Acquire)));
                }
            },
        );
        for words in inline.chunks_exact(SlotWords::<K, V>::LEN) {
            let pair = SlotWords::collect(words.iter().copied());
            // SAFETY: copied from the slot of an inline map while its stripe was held.
            let (key, value) = unsafe { (pair.key(), pair.value()) };
            visit(&key, &value, Some(words));
        }
        for entry in &*entries {
            // SAFETY: found in a slot under the guard, which protects it until the end of this function.
            let entry = unsafe { &**entry };
            visit(&entry.key, &entry.value, None);
        }
        drop(guard);
    }
}

/// An iterator over copies of a map's pairs; see [`CuckooMap::iter`].
pub struct Iter<'a, K, V, S, L, const WAYS: usize>
where
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    map: &'a CuckooMap<K, V, S, L, WAYS>,
    walk: Walk<K, V>,
    /// Those of the last step that are still to come.
    pairs: Vec<(K, V)>,
}

impl<K, V, S, L, const WAYS: usize> Iterator for Iter<'_, K, V, S, L, WAYS>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.pairs.is_empty() && !self.walk.cursor.is_at_end() {
            let Self { map, walk, pairs } = self;
            map.step(walk, &mut |key, value, _| pairs.push((key.clone(), value.clone())));
        }
        self.pairs.pop()
    }
}

impl<K, V, S, L, const WAYS: usize> fmt::Debug for Iter<'_, K, V, S, L, WAYS>
where
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("cursor", &self.walk.cursor).finish_non_exhaustive()
    }
}

impl<'a, K, V, S, L, const WAYS: usize> IntoIterator for &'a CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    type Item = (K, V);
    type IntoIter = Iter<'a, K, V, S, L, WAYS>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
