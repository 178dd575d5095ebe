//! Guira's own map. Pairs of up to 64 bytes lie in its slots, larger ones on the heap.

use guira_cuckoo::{Builder, CuckooMap};

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::RandomState;

/// Occupancy, in percent, to which a map with room for so many keys is filled: its slots are as many as the keys.
const FILLED_PERCENT: usize = 95;

/// On huge pages, as its builder offers.
pub(in super::super) struct GuiraMap<V>(CuckooMap<u64, V, RandomState>);

/// On pages of 4 KiB, as the other maps.
pub(in super::super) struct GuiraOnSmallPages<V>(GuiraMap<V>);

fn builder() -> Builder<RandomState> {
    Builder::new().hasher(RandomState::new())
}

impl<V> GuiraMap<V> {
    fn build(builder: Builder<RandomState>) -> Self {
        Self(builder.build().expect("memory for the benchmark"))
    }
}

/// Room for so many keys, and no more: it never grows.
fn with_slots(builder: Builder<RandomState>, keys: usize) -> Builder<RandomState> {
    builder.capacity(keys * FILLED_PERCENT / 100).fixed()
}

impl<V: Value> ConcurrentMap<V> for GuiraMap<V> {
    type Guard<'map> = ();
    const HAS_BATCHES: bool = true;

    fn with_room_for(keys: usize) -> Self {
        Self::build(with_slots(builder().huge_pages(), keys))
    }

    fn growing() -> Self {
        Self::build(builder().huge_pages())
    }

    fn guard(&self) {}

    #[inline]
    fn get(&self, key: u64, (): &()) -> Option<V> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: V, (): &()) -> bool {
        self.0.upsert(key, value).unwrap_or(false)
    }

    #[inline]
    fn remove(&self, key: u64, (): &()) -> bool {
        self.0.delete(&key)
    }

    #[inline]
    fn update(&self, key: u64, (): &()) -> bool {
        self.0.update(&key, |value| value.updated()).is_some()
    }

    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<V>>, (): &()) {
        values.clear();
        self.0.get_many_with(keys, |_, value| values.push(value.copied()));
    }

    fn insert_many(&self, keys: &[u64], (): &()) -> usize {
        self.0.insert_many(keys.iter().map(|key| (*key, V::of(*key)))).unwrap_or(0)
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.capacity())
    }
}

impl<V: Value> ConcurrentMap<V> for GuiraOnSmallPages<V> {
    type Guard<'map> = ();
    const HAS_BATCHES: bool = true;

    fn with_room_for(keys: usize) -> Self {
        Self(GuiraMap::build(with_slots(builder(), keys)))
    }

    fn growing() -> Self {
        Self(GuiraMap::build(builder()))
    }

    fn guard(&self) {}

    #[inline]
    fn get(&self, key: u64, (): &()) -> Option<V> {
        self.0.get(key, &())
    }

    #[inline]
    fn insert(&self, key: u64, value: V, (): &()) -> bool {
        self.0.insert(key, value, &())
    }

    #[inline]
    fn remove(&self, key: u64, (): &()) -> bool {
        self.0.remove(key, &())
    }

    #[inline]
    fn update(&self, key: u64, (): &()) -> bool {
        self.0.update(key, &())
    }

    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<V>>, (): &()) {
        self.0.get_many(keys, values, &());
    }

    fn insert_many(&self, keys: &[u64], (): &()) -> usize {
        self.0.insert_many(keys, &())
    }

    fn slots(&self) -> Option<usize> {
        self.0.slots()
    }
}
