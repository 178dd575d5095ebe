//! The items of a cache node, with their loads: found by key, drawn at random, and all of one backend's taken out.
//!
//! Always true: the places of the items are 0 to `len`, so that one may be drawn; what they take is counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use guira_hotkeys::{Alpha, KeyLoad};
use guira_item::Moment;
use guira_routing::{KeyHash, NodeId};
use rand::{Rng, RngExt};
use serde::{Serialize, Serializer};

use crate::{ItemCopy, KeyBytes};

/// Items of which the coldest makes room.
const EVICTION_SAMPLE: usize = 16;

/// An item.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cached {
    pub(super) source: NodeId,
    pub(super) hash: KeyHash,
    pub(super) item: ItemCopy,
    #[serde(serialize_with = "load_per_s")]
    pub(super) load: KeyLoad,
    /// It is not to be served until it is told again.
    pub(super) is_held: bool,
    /// Since when another cache node is to have it too.
    pub(super) spread: Option<Spread>,
    /// It came because its backend was in this node's charge, and not because another had too much to do.
    is_its: bool,
    leaving: Leaving,
}

/// Whether an item is to be had by another cache node instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) enum Leaving {
    /// It is not.
    #[default]
    No,
    /// It is, and its backend is to be told so.
    Soon,
    /// It is, and is kept until so many segments have ended.
    At(u32),
}

fn load_per_s<S: Serializer>(load: &KeyLoad, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(load.per_s())
}

/// Another cache node was to have an item too.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) at: Moment,
    /// Its load then.
    pub(super) per_s: f64,
    /// It had not been before.
    pub(super) is_first: bool,
}

impl Cached {
    pub(super) fn new(source: NodeId, hash: KeyHash, item: ItemCopy, per_s: f64, is_its: bool) -> Self {
        let load = KeyLoad::reported(per_s);
        Self { source, hash, item, load, is_held: false, spread: None, is_its, leaving: Leaving::No }
    }
}

/// All items.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Items {
    #[serde(skip)]
    places: HashMap<Box<[u8]>, usize>,
    items: Vec<Entry>,
    bytes: usize,
    /// Those that are to be had by another cache node instead.
    leaving: usize,
}

fn len_of(key: &[u8], item: &ItemCopy) -> usize {
    key.len() + item.value.len()
}

impl Items {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Option<&mut Cached> {
        let place = *self.places.get(key)?;
        Some(&mut self.items[place].1)
    }

    /// The first with a hash: for the fault of taking it for the key's.
    pub(super) fn get_by_hash(&mut self, hash: KeyHash) -> Option<&mut Cached> {
        self.items.iter_mut().map(|(_, cached)| cached).find(|cached| cached.hash == hash)
    }

    /// Puts an item in; there is none of this key.
    pub(super) fn insert(&mut self, key: KeyBytes, cached: Cached) {
        self.bytes += len_of(&key.0, &cached.item);
        let earlier = self.places.insert(key.0.clone(), self.items.len());
        debug_assert!(earlier.is_none(), "it was not there");
        self.items.push((key.0, cached));
    }

    /// Replaces the item of a key that is there, to be served; its load stays.
    pub(super) fn replace(&mut self, key: &[u8], item: ItemCopy) {
        let Some(place) = self.places.get(key) else { return };
        let cached = &mut self.items[*place].1;
        self.bytes = self.bytes - cached.item.value.len() + item.value.len();
        cached.item = item;
        cached.is_held = false;
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<(KeyBytes, Cached)> {
        let place = self.places.remove(key)?;
        let (key, cached) = self.items.swap_remove(place);
        if let Some((moved, _)) = self.items.get(place) {
            *self.places.get_mut(moved).expect("what is there has a place") = place;
        }
        self.bytes -= len_of(&key, &cached.item);
        self.leaving -= usize::from(cached.leaving != Leaving::No);
        Some((KeyBytes(key), cached))
    }

    /// Takes out all of these backends; their hashes.
    pub(super) fn remove_all_of(&mut self, sources: &BTreeSet<NodeId>) -> Vec<KeyHash> {
        let gone = self.items.iter().filter(|(_, cached)| sources.contains(&cached.source));
        let gone: Vec<Box<[u8]>> = gone.map(|(key, _)| key.clone()).collect();
        gone.iter().filter_map(|key| self.remove(key)).map(|(_, cached)| cached.hash).collect()
    }

    /// The keys that have one of these hashes.
    pub(super) fn with_hashes(&self, hashes: &BTreeSet<KeyHash>) -> Vec<Box<[u8]>> {
        self.items.iter().filter(|(_, cached)| hashes.contains(&cached.hash)).map(|(key, _)| key.clone()).collect()
    }

    /// What came because these backends were in this node's charge is to leave; what was to leave of those that have come is not any more.
    pub(super) fn leave(&mut self, goes: &BTreeSet<NodeId>, comes: &BTreeSet<NodeId>) {
        for (_, cached) in &mut self.items {
            if comes.contains(&cached.source) {
                (cached.is_its, cached.leaving) = (true, Leaving::No);
            } else if goes.contains(&cached.source) && cached.is_its {
                (cached.is_its, cached.leaving) = (false, Leaving::Soon);
            }
        }
        self.leaving = self.items.iter().filter(|(_, cached)| cached.leaving != Leaving::No).count();
    }

    /// Says whether the item of a key that is there is to leave.
    pub(super) fn set_leaving(&mut self, key: &[u8], leaving: Leaving) {
        let Some(place) = self.places.get(key) else { return };
        let cached = &mut self.items[*place].1;
        self.leaving = self.leaving + usize::from(leaving != Leaving::No) - usize::from(cached.leaving != Leaving::No);
        cached.leaving = leaving;
    }

    /// Those that are to leave soon, at most `len_max`, hottest first, with their backends and queries a second.
    pub(super) fn leaving(&self, len_max: usize) -> Vec<(Box<[u8]>, NodeId, f64)> {
        if self.leaving == 0 {
            return Vec::new();
        }
        let leaving = self.items.iter().filter(|(_, cached)| cached.leaving == Leaving::Soon);
        let leaving = hottest(leaving.collect(), len_max).into_iter();
        leaving.map(|(key, cached)| (key.clone(), cached.source, cached.load.per_s())).collect()
    }

    /// Those that are to leave when so many segments have ended.
    pub(super) fn left_by(&self, segments: u32) -> Vec<Box<[u8]>> {
        if self.leaving == 0 {
            return Vec::new();
        }
        let left = self.items.iter().filter(|(_, cached)| cached.leaving == Leaving::At(segments));
        left.map(|(key, _)| key.clone()).collect()
    }

    /// The loads of the keys of each backend together, but for those that are to be had elsewhere: what they are is another's already.
    pub(super) fn loads(&self) -> BTreeMap<NodeId, f64> {
        let mut loads = BTreeMap::new();
        for (_, cached) in self.items.iter().filter(|(_, cached)| cached.leaving == Leaving::No) {
            *loads.entry(cached.source).or_insert(0.0) += cached.load.per_s();
        }
        loads
    }

    /// All hashes, with the loads of their keys.
    pub(super) fn hashes(&self) -> impl Iterator<Item = (KeyHash, f64)> {
        self.items.iter().map(|(_, cached)| (cached.hash, cached.load.per_s()))
    }

    /// The one with the least load of some that are drawn.
    pub(super) fn coldest_of_some(&self, rng: &mut impl Rng) -> Option<(Box<[u8]>, f64)> {
        if self.items.is_empty() {
            return None;
        }
        let drawn = (0..EVICTION_SAMPLE).map(|_| rng.random_range(0..self.items.len()));
        let coldest = drawn.min_by(|a, b| self.load_at(*a).total_cmp(&self.load_at(*b)))?;
        Some((self.items[coldest].0.clone(), self.load_at(coldest)))
    }

    /// The load of the item at a place below `len`.
    pub(super) fn load_at(&self, place: usize) -> f64 {
        self.items[place].1.load.per_s()
    }

    pub(super) fn end_segment(&mut self, alpha: Alpha, per_s_each: f64) {
        self.items.iter_mut().for_each(|(_, cached)| cached.load.end_segment(alpha, per_s_each));
    }

    pub(super) fn hottest(&self, len_max: usize) -> Vec<(Box<[u8]>, f64)> {
        let hottest = hottest(self.items.iter().collect(), len_max).into_iter();
        hottest.map(|(key, cached)| (key.clone(), cached.load.per_s())).collect()
    }
}

type Entry = (Box<[u8]>, Cached);

/// The `len_max` with the most load, hottest first.
fn hottest(mut all: Vec<&Entry>, len_max: usize) -> Vec<&Entry> {
    let by_load = |a: &&Entry, b: &&Entry| b.1.load.per_s().total_cmp(&a.1.load.per_s()).then_with(|| a.0.cmp(&b.0));
    if len_max < all.len() {
        all.select_nth_unstable_by(len_max, by_load);
        all.truncate(len_max);
    }
    all.sort_by(by_load);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use guira_item::Expiry;
    use proptest::prelude::*;

    use super::*;

    fn item(len: usize) -> ItemCopy {
        ItemCopy {
            flags: 0,
            version: 1,
            expiry: Expiry::NEVER,
            serve_until: None,
            stale: false,
            win_sent: false,
            value: vec![0; len].into(),
        }
    }

    proptest! {
        #[test]
        fn what_was_put_there_is_there(acts in prop::collection::vec((0u8..4, 0u8..8, 0usize..50), 1..200)) {
            let (mut items, mut model) = (Items::default(), BTreeMap::new());
            for (act, key, len) in acts {
                let (name, source) = ([key], NodeId(u16::from(key % 3)));
                match act {
                    0 if !model.contains_key(&key) => {
                        items.insert(KeyBytes(name.into()), Cached::new(source, KeyHash(key.into()), item(len), 1.0, true));
                        model.insert(key, len);
                    }
                    1 => {
                        items.replace(&name, item(len));
                        model.entry(key).and_modify(|old| *old = len);
                    }
                    2 => prop_assert_eq!(items.remove(&name).is_some(), model.remove(&key).is_some()),
                    3 => {
                        let gone = items.remove_all_of(&[source].into()).len();
                        let before = model.len();
                        model.retain(|other, _| other % 3 != key % 3);
                        prop_assert_eq!(gone, before - model.len());
                    }
                    _ => {}
                }
                prop_assert_eq!(items.len(), model.len());
                prop_assert_eq!(items.bytes(), model.values().map(|len| len + 1).sum::<usize>());
                for key in 0u8..8 {
                    let len = items.get(&[key]).map(|cached| cached.item.value.len());
                    prop_assert_eq!(len, model.get(&key).copied());
                }
            }
        }
    }
}
