//! Guira's own map. Pairs of up to 64 bytes lie in its slots, larger ones on the heap.

use std::marker::PhantomData;

use guira_cuckoo::{Builder, CuckooMap};

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::RandomState;

/// Occupancy, in percent, to which a map with room for so many keys is filled: its slots are as many as the keys.
const FILLED_PERCENT: usize = 95;

/// How a contender's map is built.
pub(in super::super) trait Setting: Send + Sync + 'static {
    fn set(builder: Builder<RandomState>) -> Builder<RandomState>;
}

/// On huge pages, as its builder offers.
pub(in super::super) enum HugePages {}

impl Setting for HugePages {
    fn set(builder: Builder<RandomState>) -> Builder<RandomState> {
        builder.huge_pages()
    }
}

/// On pages of 4 KiB, as the other maps.
pub(in super::super) enum SmallPages {}

impl Setting for SmallPages {
    fn set(builder: Builder<RandomState>) -> Builder<RandomState> {
        builder
    }
}

/// On huge pages, with writes as the processor's transactions.
pub(in super::super) enum Elided {}

impl Setting for Elided {
    fn set(builder: Builder<RandomState>) -> Builder<RandomState> {
        builder.huge_pages().elide_locks()
    }
}

/// See [`Setting`].
pub(in super::super) struct GuiraMap<V, S = HugePages>(CuckooMap<u64, V, RandomState>, PhantomData<S>);

pub(in super::super) type GuiraOnSmallPages<V> = GuiraMap<V, SmallPages>;
pub(in super::super) type GuiraElided<V> = GuiraMap<V, Elided>;

impl GuiraElided<[u64; 1]> {
    /// Whether the processor has transactions.
    pub fn is_there() -> bool {
        Self::growing().0.elides_locks()
    }
}

fn builder() -> Builder<RandomState> {
    Builder::new().hasher(RandomState::new())
}

impl<V, S: Setting> GuiraMap<V, S> {
    fn build(builder: Builder<RandomState>) -> Self {
        Self(S::set(builder).build().expect("memory for the benchmark"), PhantomData)
    }
}

/// Room for so many keys, and no more: it never grows.
fn with_slots(builder: Builder<RandomState>, keys: usize) -> Builder<RandomState> {
    builder.capacity(keys * FILLED_PERCENT / 100).fixed()
}

impl<V: Value, S: Setting> ConcurrentMap<V> for GuiraMap<V, S> {
    type Guard<'map> = ();
    const HAS_BATCHES: bool = true;

    fn with_room_for(keys: usize) -> Self {
        Self::build(with_slots(builder(), keys))
    }

    fn growing() -> Self {
        Self::build(builder())
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
