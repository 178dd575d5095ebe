//! A map of one writer behind a global lock (Figure 3.2's first idea): hashbrown, which is the standard library's map too,
//! behind a readers-writer lock or a mutex.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError, RwLock};

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::RandomState;

type Map<V> = hashbrown::HashMap<u64, V, RandomState>;

pub(in super::super) type ReadWriteLocked<V> = Locked<RwLock<Map<V>>>;
pub(in super::super) type MutexLocked<V> = Locked<Mutex<Map<V>>>;

/// A map behind a lock.
pub(in super::super) struct Locked<L>(L);

/// A lock around everything.
pub(in super::super) trait GlobalLock<T>: Send + Sync {
    fn around(inner: T) -> Self;
    fn to_read(&self) -> impl Deref<Target = T>;
    fn to_write(&self) -> impl DerefMut<Target = T>;
}

impl<T: Send + Sync> GlobalLock<T> for RwLock<T> {
    fn around(inner: T) -> Self {
        Self::new(inner)
    }

    #[inline]
    fn to_read(&self) -> impl Deref<Target = T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn to_write(&self) -> impl DerefMut<Target = T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> GlobalLock<T> for Mutex<T> {
    fn around(inner: T) -> Self {
        Self::new(inner)
    }

    #[inline]
    fn to_read(&self) -> impl Deref<Target = T> {
        self.to_write()
    }

    #[inline]
    fn to_write(&self) -> impl DerefMut<Target = T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Value, L: GlobalLock<Map<V>>> ConcurrentMap<V> for Locked<L> {
    type Guard<'map>
        = ()
    where
        Self: 'map;

    fn with_room_for(keys: usize) -> Self {
        Self(L::around(Map::with_capacity_and_hasher(keys, RandomState::new())))
    }

    fn growing() -> Self {
        Self(L::around(Map::with_hasher(RandomState::new())))
    }

    fn guard(&self) {}

    #[inline]
    fn get(&self, key: u64, (): &()) -> Option<V> {
        self.0.to_read().get(&key).copied()
    }

    #[inline]
    fn insert(&self, key: u64, value: V, (): &()) -> bool {
        self.0.to_write().insert(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64, (): &()) -> bool {
        self.0.to_write().remove(&key).is_some()
    }

    #[inline]
    fn update(&self, key: u64, (): &()) -> bool {
        self.0.to_write().get_mut(&key).map(|value| *value = value.updated()).is_some()
    }
}
