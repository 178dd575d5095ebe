//! Making a map larger, smaller, empty.

use std::{
    hash::{BuildHasher, Hash},
    sync::atomic::Ordering,
};

use guira_sync::{Stripes, hint};
use seize::Guard;

use super::{
    CuckooMap, ReserveError, Storage, Ways, Width,
    memory::Memory,
    pairs,
    sizing::{layout_for, segment_bytes},
};
use crate::{
    GrowError, Growth, Probe,
    layout::{Layout, SEGMENTS_MAX},
    table::Table,
};

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// Sees to it that so many more keys find room without growth. Readers and writers go on meanwhile. A growth that is under way
    /// is finished: `reserve(0)` after the last insert does that for a map that is only read from then on.
    ///
    /// # Errors
    /// [`ReserveError`] if there is no memory for them, or the map is fixed and too small; what is there stays.
    pub fn reserve(&self, additional: usize) -> Result<(), ReserveError> {
        let keys = self.len().checked_add(additional).ok_or(ReserveError)?;
        // Nothing is what any map has room for.
        let nothing = Layout::steady(0, 0);
        let wanted = if additional == 0 { nothing } else { layout_for::<K, V, L, WAYS>(keys, self.is_fixed)? };
        let bytes = |layout| segment_bytes::<K, V, L, WAYS>(layout);
        loop {
            let layout = self.table.layout();
            let held = layout.current.max(layout.next) * bytes(layout);
            if held >= wanted.current * bytes(wanted) && layout.next == 0 {
                return Ok(());
            }
            if self.is_fixed {
                return Err(ReserveError);
            }
            let hash = |content: pairs::Words<'_>| self.hash_of_content(content);
            let outcome = if layout.small_bits.is_some() {
                self.reserve_memory(wanted.current.checked_mul(bytes(wanted)))?;
                self.table.rebuild(wanted, hash)
            } else if layout.next == 0 {
                self.reserve_memory((wanted.current - layout.current + 2).checked_mul(bytes(wanted)))?;
                self.table.begin_growth(|_| wanted.current)
            } else {
                match self.grow_by(usize::MAX) {
                    Ok(Growth::Idle | Growth::Underway | Growth::Complete) => Ok(()),
                    Err(error) => Err(error),
                }
            };
            match outcome {
                Ok(()) => {}
                Err(GrowError::Busy) => hint::yield_now(),
                // Another thread has grown the map meanwhile: what is missing now is to be seen.
                Err(_) if self.table.layout() != layout => {}
                Err(_) => return Err(ReserveError),
            }
        }
    }

    fn reserve_memory(&self, bytes: Option<usize>) -> Result<(), ReserveError> {
        if self.table.source().reserve(bytes.ok_or(ReserveError)?) { Ok(()) } else { Err(ReserveError) }
    }

    /// Gives memory back that is not needed for the keys that are there; a fixed map has no room for others then. The pairs
    /// move into a new table, so that nobody else may use the map meanwhile; if there is no memory for it all stays as it is.
    pub fn shrink_to_fit(&mut self) {
        let Ok(wanted) = layout_for::<K, V, L, WAYS>(self.len(), self.is_fixed) else { return };
        let layout = self.table.layout();
        if wanted.current * segment_bytes::<K, V, L, WAYS>(wanted)
            >= layout.current * segment_bytes::<K, V, L, WAYS>(layout)
        {
            return;
        }
        let memory = Memory::new(self.table.source().has_huge_pages());
        let stripes = Stripes::new(self.table.stripes()).with_elision(self.table.elides_locks());
        let Ok(mut smaller) = Table::with_layout(memory, wanted, SEGMENTS_MAX, wanted.current, stripes) else {
            return;
        };
        let mut are_placed = true;
        self.table.each_content(|content| {
            are_placed = are_placed && smaller.adopt(&Probe::new(self.hash_of_content(content)), content);
        });
        if are_placed {
            // What lies on the heap has not moved; the old table only named it.
            self.table = smaller;
            self.looks_spared.store(0, Ordering::Relaxed);
        }
    }

    /// Removes every pair at once. Everybody else waits meanwhile, readers too. The slots stay ([`CuckooMap::shrink_to_fit`]
    /// gives them back).
    pub fn clear(&self) {
        let guard = self.protect();
        // Room for what is there now, so that as a rule none is asked for while everybody waits.
        let mut entries = Vec::with_capacity(if L::is_inline() { 0 } else { self.len() });
        self.table.clear_with(|content| {
            if !L::is_inline() {
                entries.push(pairs::unmark(content.pointer::<K, V>().load(Ordering::Relaxed)));
            }
        });
        for entry in entries {
            drop(super::boxed::Retire { guard: &guard, entry });
        }
        guard.flush();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_made_larger_emptied_and_made_smaller() {
        for (first, second) in [(10, 1000), (100, 500_000), (40_000, 90_000)] {
            let mut map: CuckooMap<u64, u64> = (0..first).map(|key| (key, key)).collect();
            map.reserve(second as usize).expect("memory");
            let capacity = map.capacity();
            assert!(capacity as u64 >= first + second);
            (first..first + second).for_each(|key| assert_eq!(map.insert(key, key), None));
            assert!(map.capacity() <= capacity.max(128), "no growth after reserve");
            map.retain(|key, _| *key < 50);
            map.shrink_to_fit();
            assert!(map.capacity() <= 256 && map.len() == 50);
            assert!((0..50).all(|key| map.get(&key) == Some(key)));
            map.clear();
            assert!(map.is_empty() && map.get(&1).is_none() && map.iter().next().is_none());
            assert_eq!(map.insert(1, 2), None);
        }
    }

    /// A map that has just begun to grow, and how many keys it has.
    fn growing<L: Storage<u64, u64>>() -> (CuckooMap<u64, u64, super::super::RandomState, L>, u64) {
        let map = super::super::Builder::new().build().expect("memory");
        let is_growing = |key: &u64| map.upsert(*key, *key) == Ok(true) && map.table.is_growing();
        let last = (0..).find(is_growing).expect("it grows");
        (map, last + 1)
    }

    #[test]
    fn a_growth_ends_when_no_more_keys_come() {
        fn ends_beside<L: Storage<u64, u64>>(
            name: &str,
            change: impl Fn(&CuckooMap<u64, u64, super::super::RandomState, L>, u64),
        ) {
            let (map, keys) = growing::<L>();
            let last = (0..keys).find(|key| {
                change(&map, *key);
                !map.table.is_growing()
            });
            assert!(last.is_some(), "{name} for {keys} keys");
            assert_eq!(map.reserve(0), Ok(()));
        }
        fn everywhere<L: Storage<u64, u64>>() {
            ends_beside::<L>("reserve", |map, _| map.reserve(0).expect("memory"));
            ends_beside::<L>("upsert", |map, key| assert_eq!(map.upsert(key, 1), Ok(false)));
            ends_beside::<L>("update", |map, key| assert_eq!(map.update(&key, |_| 1), Some(1)));
            ends_beside::<L>("delete", |map, key| assert!(map.delete(&key)));
            ends_beside::<L>("compute", |map, key| {
                assert_eq!(map.compute(key, |_| crate::Change::Put(1)), crate::Changed::Updated);
            });
        }
        everywhere::<super::super::Inline>();
        everywhere::<super::super::Boxed>();
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let map: CuckooMap<u64, u64> = CuckooMap::new();
        assert_eq!(map.reserve(usize::MAX), Err(ReserveError));
        assert_eq!(map.reserve(1 << 50), Err(ReserveError));
        let fixed: CuckooMap<u64, u64> = super::super::Builder::new().capacity(100).fixed().build().expect("memory");
        assert_eq!(fixed.reserve(10), Ok(()));
        assert_eq!(fixed.reserve(100_000), Err(ReserveError));
    }

    #[test]
    fn boxed_pairs_survive_a_smaller_table() {
        let mut map: CuckooMap<String, String> = (0..10_000).map(|key| (key.to_string(), key.to_string())).collect();
        map.retain(|key, _| key.len() < 3);
        map.shrink_to_fit();
        assert_eq!(map.len(), 100);
        assert!((0..100).all(|key| map.get(&key.to_string()) == Some(key.to_string())));
        map.clear();
        assert!(map.is_empty());
    }
}
