//! What a map must do to be measured. A new one is a file that implements [`ConcurrentMap`] and a line in the table of
//! contenders.

use super::entry::Value;

/// A map from eight-byte keys that many threads use at once.
pub(super) trait ConcurrentMap<V: Value>: Send + Sync {
    /// What a thread holds while it uses the map for a few dozen operations (a reclamation guard); `()` where nothing is
    /// needed.
    type Guard<'map>
    where
        Self: 'map;

    /// Whether [`get_many`](Self::get_many) and [`insert_many`](Self::insert_many) are more than loops.
    const HAS_BATCHES: bool = false;

    /// An empty map with room for so many keys.
    fn with_room_for(keys: usize) -> Self;

    /// An empty map that grows as it must.
    fn growing() -> Self;

    /// For a few dozen operations of this thread.
    fn guard(&self) -> Self::Guard<'_>;

    /// A copy of the key's value.
    fn get(&self, key: u64, guard: &Self::Guard<'_>) -> Option<V>;

    /// Stores a value; says whether the key is new and there was room for it.
    fn insert(&self, key: u64, value: V, guard: &Self::Guard<'_>) -> bool;

    /// Says whether the key was there.
    fn remove(&self, key: u64, guard: &Self::Guard<'_>) -> bool;

    /// Replaces the key's value by [`Value::updated`], in one step; says whether the key was there.
    fn update(&self, key: u64, guard: &Self::Guard<'_>) -> bool;

    /// [`get`](Self::get) for each key, in order, into `values`, which is emptied first.
    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<V>>, guard: &Self::Guard<'_>) {
        values.clear();
        values.extend(keys.iter().map(|key| self.get(*key, guard)));
    }

    /// [`insert`](Self::insert) of [`Value::of`] each key; says how many were new.
    fn insert_many(&self, keys: &[u64], guard: &Self::Guard<'_>) -> usize {
        keys.iter().filter(|key| self.insert(**key, V::of(**key), guard)).count()
    }

    /// Slots, where keys lie in slots whose number is known.
    fn slots(&self) -> Option<usize> {
        None
    }
}
