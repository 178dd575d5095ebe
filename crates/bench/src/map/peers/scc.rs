//! Crate scc: buckets of 32 entries, a lock and an array of tags each; grows bit by bit.

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::{Hashing, RandomState};

pub(in super::super) struct SccMap<V: Value, S: Hashing = RandomState>(scc::HashMap<u64, V, S>);

impl<V: Value, S: Hashing> ConcurrentMap<V> for SccMap<V, S> {
    type Guard<'map> = ();

    fn with_room_for(keys: usize) -> Self {
        Self(scc::HashMap::with_capacity_and_hasher(keys, S::default()))
    }

    fn growing() -> Self {
        Self(scc::HashMap::with_hasher(S::default()))
    }

    fn guard(&self) {}

    #[inline]
    fn get(&self, key: u64, (): &()) -> Option<V> {
        self.0.read_sync(&key, |_, value| *value)
    }

    #[inline]
    fn insert(&self, key: u64, value: V, (): &()) -> bool {
        self.0.upsert_sync(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64, (): &()) -> bool {
        self.0.remove_sync(&key).is_some()
    }

    #[inline]
    fn update(&self, key: u64, (): &()) -> bool {
        self.0.update_sync(&key, |_, value| *value = value.updated()).is_some()
    }
}
