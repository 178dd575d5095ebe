//! Crate dashmap: shards of hashbrown tables, a readers-writer lock each.

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::RandomState;

pub(in super::super) struct DashMap<V>(dashmap::DashMap<u64, V, RandomState>);

impl<V: Value> ConcurrentMap<V> for DashMap<V> {
    type Guard<'map> = ();

    fn with_room_for(keys: usize) -> Self {
        Self(dashmap::DashMap::with_capacity_and_hasher(keys, RandomState::new()))
    }

    fn growing() -> Self {
        Self(dashmap::DashMap::with_hasher(RandomState::new()))
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
