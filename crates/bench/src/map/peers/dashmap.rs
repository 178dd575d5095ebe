//! Crate dashmap: shards of hashbrown tables, a readers-writer lock each.

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::{Hashing, RandomState};

pub(in super::super) struct DashMap<V, S = RandomState>(dashmap::DashMap<u64, V, S>);

impl<V: Value, S: Hashing> ConcurrentMap<V> for DashMap<V, S> {
    type Guard<'map> = ();

    fn with_room_for(keys: usize) -> Self {
        Self(dashmap::DashMap::with_capacity_and_hasher(keys, S::default()))
    }

    fn growing() -> Self {
        Self(dashmap::DashMap::with_hasher(S::default()))
    }

    fn guard(&self) {}

    #[inline]
    fn get(&self, key: u64, (): &()) -> Option<V> {
        self.0.get(&key).map(|entry| *entry)
    }

    #[inline]
    fn insert(&self, key: u64, value: V, (): &()) -> bool {
        self.0.insert(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64, (): &()) -> bool {
        self.0.remove(&key).is_some()
    }

    #[inline]
    fn update(&self, key: u64, (): &()) -> bool {
        self.0.get_mut(&key).map(|mut entry| *entry = entry.updated()).is_some()
    }
}
