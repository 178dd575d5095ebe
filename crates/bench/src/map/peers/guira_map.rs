//! Guira's own map, and the same of another shape. Pairs of up to 80 bytes lie in its slots, larger ones on the heap.

use std::marker::PhantomData;

use guira_cuckoo::{Auto, Builder, CuckooMap, Pinned, Ways, Width};

use super::super::{concurrent_map::ConcurrentMap, entry::Value};
use super::RandomState;

/// Occupancy, in percent, to which a map with room for so many keys is filled: its slots are as many as the keys.
const FILLED_PERCENT: usize = 95;

/// Slots of a bucket, unless asked for otherwise.
pub(in super::super) const WAYS: usize = 8;
/// Stripes, unless asked for otherwise.
pub(in super::super) const STRIPES: usize = 2048;

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

pub(in super::super) type GuiraMap<V> = Shaped<V, HugePages, WAYS, STRIPES>;
pub(in super::super) type GuiraOnSmallPages<V> = Shaped<V, SmallPages, WAYS, STRIPES>;
pub(in super::super) type GuiraElided<V> = Shaped<V, Elided, WAYS, STRIPES>;

/// With another number of slots in a bucket.
pub(in super::super) type GuiraOfWays<V, const WAYS: usize> = Shaped<V, HugePages, WAYS, STRIPES>;

/// With another number of stripes.
pub(in super::super) type GuiraOfStripes<V, S, const STRIPES: usize> = Shaped<V, S, WAYS, STRIPES>;

/// With so many slots in a bucket and so many stripes.
pub(in super::super) struct Shaped<V, S, const WAYS: usize, const STRIPES: usize>(
    CuckooMap<u64, V, RandomState, Auto, WAYS>,
    PhantomData<S>,
)
where
    Ways<WAYS>: Width;

impl GuiraElided<[u64; 1]> {
    /// Whether the processor has transactions.
    pub fn is_there() -> bool {
        Self::growing().0.elides_locks()
    }
}

impl<V, S: Setting, const WAYS: usize, const STRIPES: usize> Shaped<V, S, WAYS, STRIPES>
where
    Ways<WAYS>: Width,
{
    fn build(builder: Builder) -> Self {
        let builder = S::set(builder.hasher(RandomState::new()).stripes(STRIPES));
        Self(builder.build().expect("memory for the benchmark"), PhantomData)
    }
}

impl<V: Value, S: Setting, const WAYS: usize, const STRIPES: usize> ConcurrentMap<V> for Shaped<V, S, WAYS, STRIPES>
where
    Ways<WAYS>: Width,
{
    type Guard<'map> = Pinned<'map>;
    const HAS_BATCHES: bool = true;

    /// Room for so many keys, and no more: it never grows.
    fn with_room_for(keys: usize) -> Self {
        Self::build(Builder::new().capacity(keys * FILLED_PERCENT / 100).fixed())
    }

    fn growing() -> Self {
        Self::build(Builder::new())
    }

    fn guard(&self) -> Pinned<'_> {
        self.0.pin()
    }

    #[inline]
    fn get(&self, key: u64, _: &Pinned<'_>) -> Option<V> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: V, _: &Pinned<'_>) -> bool {
        self.0.upsert(key, value).unwrap_or(false)
    }

    #[inline]
    fn remove(&self, key: u64, _: &Pinned<'_>) -> bool {
        self.0.delete(&key)
    }

    #[inline]
    fn update(&self, key: u64, _: &Pinned<'_>) -> bool {
        self.0.update(&key, |value| value.updated()).is_some()
    }

    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<V>>, _: &Pinned<'_>) {
        values.clear();
        self.0.get_many_with(keys, |_, value| values.push(value.copied()));
    }

    fn insert_many(&self, keys: &[u64], _: &Pinned<'_>) -> usize {
        self.0.insert_many(keys.iter().map(|key| (*key, V::of(*key)))).unwrap_or(0)
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.capacity())
    }
}
