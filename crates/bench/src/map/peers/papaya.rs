//! Crate papaya: open addressing over pointers to entries, lock-free; what is replaced is freed once no guard can see it.

use papaya::LocalGuard;

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::{Hashing, RandomState};

pub(in super::super) struct PapayaMap<V, S = RandomState>(papaya::HashMap<u64, V, S>);

impl<V: Value, S: Hashing> ConcurrentMap<V> for PapayaMap<V, S> {
    /// Held for several operations, as its documentation recommends.
    type Guard<'map> = LocalGuard<'map>;

    fn with_room_for(keys: usize) -> Self {
        Self(papaya::HashMap::with_capacity_and_hasher(keys, S::default()))
    }

    fn growing() -> Self {
        Self(papaya::HashMap::with_hasher(S::default()))
    }

    fn guard(&self) -> LocalGuard<'_> {
        self.0.guard()
    }

    #[inline]
    fn get(&self, key: u64, guard: &LocalGuard<'_>) -> Option<V> {
        self.0.get(&key, guard).copied()
    }

    #[inline]
    fn insert(&self, key: u64, value: V, guard: &LocalGuard<'_>) -> bool {
        self.0.insert(key, value, guard).is_none()
    }

    #[inline]
    fn remove(&self, key: u64, guard: &LocalGuard<'_>) -> bool {
        self.0.remove(&key, guard).is_some()
    }

    #[inline]
    fn update(&self, key: u64, guard: &LocalGuard<'_>) -> bool {
        self.0.update(key, Value::updated, guard).is_some()
    }
}
