//! All keys of which a replica has something; which of them have changed in a step, and which of them something is under way of.
//!
//! Always true: whoever may have changed a key has taken it from here, so it is among those that are [settled](Entries::settle) at the end of the step; of a key that is not busy nothing is
//! under way, nothing waits, and time changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    ops::Bound,
};

use crate::{
    Key,
    entry::{Entry, Stage},
};

/// The keys of a replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    entries: BTreeMap<Key, Entry>,
    /// Those that may have changed in this step; some more than once.
    touched: Vec<Key>,
    busy: BTreeSet<Key>,
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains_key(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// Those behind a key, or all.
    pub(crate) fn behind(&self, after: Option<Key>) -> impl Iterator<Item = (&Key, &Entry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<Key, _>((from, Bound::Unbounded))
    }

    /// Of which something is under way, or waits.
    pub(crate) fn busy(&self) -> impl Iterator<Item = &Key> {
        self.busy.iter()
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        self.touched.push(key.clone());
        Some(entry)
    }

    pub(crate) fn get_or_insert_with(&mut self, key: &Key, new: impl FnOnce() -> Entry) -> &mut Entry {
        self.touched.push(key.clone());
        self.entries.entry(key.clone()).or_insert_with(new)
    }

    pub(crate) fn insert(&mut self, key: Key, entry: Entry) {
        self.touched.push(key.clone());
        self.entries.insert(key, entry);
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if self.entries.remove(key).is_some() {
            self.touched.push(key.clone());
        }
    }

    /// Has something done with each.
    pub(crate) fn for_all(&mut self, mut change: impl FnMut(&Key, &mut Entry)) {
        self.touched.extend(self.entries.keys().cloned());
        self.entries.iter_mut().for_each(|(key, entry)| change(key, entry));
    }

    /// Has something done with each that is busy.
    pub(crate) fn for_busy(&mut self, mut change: impl FnMut(&Key, &mut Entry)) {
        for key in &self.busy {
            if let Some(entry) = self.entries.get_mut(key) {
                change(key, entry);
            }
        }
        self.touched.extend(self.busy.iter().cloned());
    }

    /// Takes all of them out.
    pub(crate) fn take_all(&mut self) -> BTreeMap<Key, Entry> {
        self.touched.extend(self.entries.keys().cloned());
        std::mem::take(&mut self.entries)
    }

    /// The step is over: which keys may have changed.
    pub(crate) fn settle(&mut self) -> std::vec::Drain<'_, Key> {
        for key in &self.touched {
            if self.entries.get(key).is_some_and(Entry::is_busy) {
                self.busy.insert(key.clone());
            } else {
                self.busy.remove(key);
            }
        }
        self.touched.drain(..)
    }
}

impl Entry {
    /// Whether something is under way of it, or waits.
    pub(crate) fn is_busy(&self) -> bool {
        let is_under_way = self.round.is_some() || self.eviction.is_some() || !self.waiting.is_empty();
        is_under_way || self.stage != Stage::Hot || !self.is_valid
    }
}

/// The entries alone: all else follows from them between two steps.
impl Hash for Entries {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.entries.hash(to);
    }
}
