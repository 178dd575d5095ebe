//! The map does what the standard library's does, whatever is asked of it in whatever order.

use std::{cell::Cell, collections::HashMap, fmt::Debug, hash::Hash};

use guira_cuckoo::{Auto, Boxed, Builder, Change, Changed, CuckooMap, RandomState, Storage, TableFull, Ways, Width};
use proptest::prelude::*;

/// What keys and values are made of.
trait Sample: Clone + Eq + Hash + Debug {
    fn of(number: u32) -> Self;
    /// Something else that follows from this and a number.
    fn changed(&self, by: u32) -> Self;
}

impl Sample for u64 {
    fn of(number: u32) -> Self {
        u64::from(number)
    }
    fn changed(&self, by: u32) -> Self {
        self.wrapping_mul(31).wrapping_add(u64::from(by))
    }
}

impl Sample for String {
    fn of(number: u32) -> Self {
        format!("{number}")
    }
    fn changed(&self, by: u32) -> Self {
        format!("{by} {}", self.get(..self.len().min(20)).unwrap_or_default())
    }
}

impl Sample for Vec<u8> {
    fn of(number: u32) -> Self {
        number.to_le_bytes()[..(number % 4) as usize].to_vec()
    }
    fn changed(&self, by: u32) -> Self {
        self.iter().copied().take(20).chain(by.to_le_bytes()).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Insert,
    TryInsert,
    Upsert,
    InsertIfAbsent,
    GetOrInsert,
    GetOrInsertWith,
    Get,
    GetWith,
    ContainsKey,
    GetMany,
    Update,
    ComputeKeep,
    ComputePut,
    ComputeRemove,
    ComputeToggle,
    Remove,
    Delete,
    RemoveIf,
    RawUpsert,
    RawGetOrInsertWith,
    RawRemove,
    Len,
    /// Many keys in a row, one after the other, or all in one call.
    Fill,
    InsertMany,
    Drain,
    /// All pairs of some value.
    Retain,
    Walk,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    operation: Operation,
    key: u32,
    value: u32,
}

/// Keys run to this, most of them below a hundredth of it.
const KEYS: u32 = 60_000;

fn step() -> impl Strategy<Value = Step> {
    use Operation::*;
    let points = prop::sample::select(vec![
        Insert,
        TryInsert,
        Upsert,
        InsertIfAbsent,
        GetOrInsert,
        GetOrInsertWith,
        Get,
        GetWith,
        ContainsKey,
        GetMany,
        Update,
        ComputeKeep,
        ComputePut,
        ComputeRemove,
        ComputeToggle,
        Remove,
        Delete,
        RemoveIf,
        RawUpsert,
        RawGetOrInsertWith,
        RawRemove,
        Len,
    ]);
    let operation = prop_oneof![
        120 => points, 3 => Just(Fill), 2 => Just(InsertMany), 2 => Just(Drain), 1 => Just(Retain), 1 => Just(Walk)
    ];
    let key = prop_oneof![3 => 0..20u32, 3 => 0..KEYS / 100, 2 => 0..KEYS];
    // Runs of some keys up to thousands, of each length as many.
    let value = (0..16u32, any::<u32>()).prop_map(|(bits, value)| value >> (16 + bits));
    (operation, key, value).prop_map(|(operation, key, value)| Step { operation, key, value })
}

struct Both<K, V, L, const WAYS: usize>
where
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    map: CuckooMap<K, V, RandomState, L, WAYS>,
    model: HashMap<K, V>,
}

impl<K: Sample, V: Sample, L: Storage<K, V>, const WAYS: usize> Both<K, V, L, WAYS>
where
    Ways<WAYS>: Width,
{
    fn new(fixed: Option<usize>) -> Self {
        let builder = fixed.map_or(Builder::new(), |keys| Builder::new().capacity(keys).fixed());
        Self { map: builder.build().expect("memory"), model: HashMap::new() }
    }

    /// Whether a fixed map may be full: small ones and narrow ones are filled less easily.
    fn may_refuse(&self) -> bool {
        self.map.is_fixed() && self.map.len() * 100 >= self.map.capacity() * if WAYS == 4 { 70 } else { 85 }
    }

    /// What was stored, or nothing if a map that may be full has given the pair back.
    fn stored<T>(&self, outcome: Result<T, TableFull<K, V>>, key: &K, value: &V) -> Option<T> {
        let refused = match outcome {
            Ok(stored) => return Some(stored),
            Err(full) => full,
        };
        assert_eq!((&refused.key, &refused.value), (key, value), "the pair comes back");
        assert!(self.may_refuse(), "{key:?} refused by {:?}", self.map);
        assert!(!self.model.contains_key(key), "a key that is there needs no room");
        None
    }

    fn upsert(&mut self, key: K, value: V) {
        let outcome = self.map.upsert(key.clone(), value.clone());
        if let Some(is_new) = self.stored(outcome, &key, &value) {
            assert_eq!(is_new, self.model.insert(key, value).is_none());
        }
    }

    fn insert_many(&mut self, from: u32, len: u32) {
        let pairs: Vec<(K, V)> = (from..from + len).map(|number| (K::of(number), V::of(number ^ len))).collect();
        let mut left = pairs.clone().into_iter();
        let (new, rest) = match self.map.insert_many(&mut left) {
            Ok(new) => (new, Vec::new()),
            Err(full) => (full.inserted, full.rest),
        };
        let rest: Vec<(K, V)> = rest.into_iter().chain(left).collect();
        let stored = pairs.len() - rest.len();
        assert_eq!(rest, pairs[stored..], "what is not stored comes back, in order");
        assert!(rest.is_empty() || self.may_refuse(), "refused by {} of {}", self.map.len(), self.map.capacity());
        let before = self.model.len();
        self.model.extend(pairs.into_iter().take(stored));
        assert_eq!(new, self.model.len() - before);
    }

    fn compute(&mut self, key: K, by: u32, change: fn(Option<&V>, V) -> Change<V>) {
        let new = self.model.get(&key).map_or(V::of(by), |old| old.changed(by));
        let expected = change(self.model.get(&key), new.clone());
        let outcome = self.map.try_compute(key.clone(), |seen| {
            assert_eq!(seen, self.model.get(&key));
            change(seen, new.clone())
        });
        let Some(changed) = self.stored(outcome, &key, &new) else { return };
        let was_there = self.model.contains_key(&key);
        let expected = match expected {
            Change::Keep => Changed::Kept,
            Change::Remove => self.model.remove(&key).map_or(Changed::Kept, |_| Changed::Removed),
            Change::Put(value) => {
                self.model.insert(key, value);
                if was_there { Changed::Updated } else { Changed::Inserted }
            }
        };
        assert_eq!(changed, expected);
    }

    fn get_many(&self, from: u32, len: u32) {
        let keys: Vec<K> = (from..from + len).map(K::of).collect();
        let expected: Vec<Option<V>> = keys.iter().map(|key| self.model.get(key).cloned()).collect();
        assert_eq!(self.map.get_many(&keys), expected);
        let mut next = 0;
        self.map.get_many_with(&keys, |at, value| {
            assert_eq!((at, value), (next, expected[at].as_ref()));
            next += 1;
        });
        assert_eq!(next, keys.len());
    }

    fn take(&mut self, step: Step) {
        let Step { operation, key: number, value: by } = step;
        let (key, value) = (K::of(number), V::of(by));
        match operation {
            Operation::Insert if !self.may_refuse() => {
                assert_eq!(self.map.insert(key.clone(), value.clone()), self.model.insert(key, value));
            }
            Operation::Insert | Operation::TryInsert => {
                let outcome = self.map.try_insert(key.clone(), value.clone());
                if let Some(old) = self.stored(outcome, &key, &value) {
                    assert_eq!(old, self.model.insert(key, value));
                }
            }
            Operation::Upsert => self.upsert(key, value),
            Operation::InsertIfAbsent => {
                let outcome = self.map.insert_if_absent(key.clone(), value.clone());
                if let Some(is_new) = self.stored(outcome, &key, &value) {
                    assert_eq!(is_new, !self.model.contains_key(&key));
                    self.model.entry(key).or_insert(value);
                }
            }
            Operation::GetOrInsert => {
                let outcome = self.map.get_or_insert(key.clone(), value.clone());
                if let Some(there) = self.stored(outcome, &key, &value) {
                    assert_eq!(&there, self.model.entry(key).or_insert(value));
                }
            }
            Operation::GetOrInsertWith => {
                let made = Cell::new(false);
                let outcome = self.map.get_or_insert_with(key.clone(), || {
                    made.set(true);
                    value.clone()
                });
                assert_eq!(made.get(), !self.model.contains_key(&key));
                if let Some(there) = self.stored(outcome, &key, &value) {
                    assert_eq!(&there, self.model.entry(key).or_insert(value));
                }
            }
            Operation::Get => assert_eq!(self.map.get(&key), self.model.get(&key).cloned()),
            Operation::GetWith => {
                let read = |value: &V| (value.changed(by), value.clone());
                assert_eq!(self.map.get_with(&key, read), self.model.get(&key).map(read));
            }
            Operation::ContainsKey => assert_eq!(self.map.contains_key(&key), self.model.contains_key(&key)),
            Operation::GetMany => self.get_many(number, by % 200),
            Operation::Update => {
                let expected = self.model.get_mut(&key).map(|old| {
                    *old = old.changed(by);
                    old.clone()
                });
                assert_eq!(self.map.update(&key, |old| old.changed(by)), expected);
            }
            Operation::ComputeKeep => self.compute(key, by, |_, _| Change::Keep),
            Operation::ComputePut => self.compute(key, by, |_, new| Change::Put(new)),
            Operation::ComputeRemove => self.compute(key, by, |_, _| Change::Remove),
            Operation::ComputeToggle => {
                self.compute(key, by, |old, new| if old.is_some() { Change::Remove } else { Change::Put(new) });
            }
            Operation::Remove => assert_eq!(self.map.remove(&key), self.model.remove(&key)),
            Operation::Delete => assert_eq!(self.map.delete(&key), self.model.remove(&key).is_some()),
            Operation::RemoveIf => {
                let is_it = |value: &V| *value == V::of(by) || by % 2 == 0;
                let expected = self.model.get(&key).is_some_and(is_it);
                let removed = self.map.remove_if(&key, |candidate, value| {
                    assert_eq!((candidate, Some(value)), (&key, self.model.get(&key)));
                    is_it(value)
                });
                assert_eq!(removed, expected);
                if expected {
                    self.model.remove(&key);
                }
            }
            Operation::RawUpsert => {
                let outcome = self.map.raw_upsert(self.map.hash_key(&key), key.clone(), value.clone());
                if let Some(is_new) = self.stored(outcome, &key, &value) {
                    assert_eq!(is_new, self.model.insert(key, value).is_none());
                }
            }
            Operation::RawGetOrInsertWith => {
                let (hash, make) = (self.map.hash_key(&key), || (key.clone(), value.clone()));
                let outcome = self.map.raw_get_or_insert_with(hash, |there| *there == key, make);
                if let Some(there) = self.stored(outcome, &key, &value) {
                    assert_eq!(&there, self.model.entry(key).or_insert(value));
                }
            }
            Operation::RawRemove => {
                let removed =
                    self.map.raw_remove(self.map.hash_key(&key), |there| *there == key, |_, value| value.clone());
                assert_eq!(removed, self.model.remove(&key));
            }
            Operation::Len => {
                assert_eq!((self.map.len(), self.map.is_empty()), (self.model.len(), self.model.is_empty()));
                assert!(self.map.capacity() >= self.map.len());
            }
            Operation::Fill => (number..number + by).for_each(|number| self.upsert(K::of(number), V::of(number ^ by))),
            Operation::InsertMany => self.insert_many(number, by),
            Operation::Retain => {
                self.map.retain(|_, there| *there != value);
                self.model.retain(|_, there| *there != value);
            }
            Operation::Walk => {
                let walked: HashMap<K, V> = self.map.iter().collect();
                assert!(walked == self.model && self.map.iter().count() == self.model.len());
            }
            Operation::Drain => {
                for key in (number..number + by).map(K::of) {
                    assert_eq!(self.map.delete(&key), self.model.remove(&key).is_some());
                }
            }
        }
    }

    fn agree(&self) {
        assert_eq!(self.map.len(), self.model.len());
        for (key, value) in &self.model {
            self.map.get_with(key, |there| assert_eq!(there, value)).unwrap_or_else(|| panic!("{key:?} is lost"));
        }
    }
}

fn check<K: Sample, V: Sample, L: Storage<K, V>, const WAYS: usize>(fixed: Option<usize>, steps: Vec<Step>)
where
    Ways<WAYS>: Width,
{
    let mut both = Both::<K, V, L, WAYS>::new(fixed);
    steps.into_iter().for_each(|step| both.take(step));
    both.agree();
}

/// Most maps grow; a fixed one is filled now and then.
fn capacity() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![3 => Just(None), 1 => (0..100usize).prop_map(Some), 1 => (0..20_000usize).prop_map(Some)]
}

macro_rules! models {
    ($($name:ident: $key:ty, $value:ty, $storage:ty, $ways:literal, $cases:literal;)*) => {
        $(proptest! {
            #![proptest_config(ProptestConfig { cases: $cases, failure_persistence: None, ..ProptestConfig::default() })]
            #[test]
            fn $name(fixed in capacity(), steps in prop::collection::vec(step(), 1..1500)) {
                check::<$key, $value, $storage, $ways>(fixed, steps);
            }
        })*
    };
}

models! {
    inline_pairs_in_four_ways: u64, u64, Auto, 4, 10;
    inline_pairs_in_eight_ways: u64, u64, Auto, 8, 10;
    inline_pairs_in_sixteen_ways: u64, u64, Auto, 16, 10;
    boxed_words_in_eight_ways: u64, u64, Boxed, 8, 6;
    boxed_pairs_in_four_ways: String, Vec<u8>, Auto, 4, 6;
    boxed_pairs_in_eight_ways: String, String, Auto, 8, 6;
    boxed_pairs_in_sixteen_ways: String, Vec<u8>, Auto, 16, 6;
}

/// From nothing to several segments, with every operation on the way, and back.
fn check_through_growth<K: Sample, V: Sample, L: Storage<K, V>, const WAYS: usize>(keys: u32)
where
    Ways<WAYS>: Width,
{
    use Operation::*;
    let mut both = Both::<K, V, L, WAYS>::new(None);
    let others = [
        Get,
        GetWith,
        Update,
        ComputePut,
        Remove,
        TryInsert,
        ComputeToggle,
        InsertIfAbsent,
        RemoveIf,
        GetOrInsert,
        Delete,
    ];
    for number in 0..keys {
        both.take(Step { operation: Upsert, key: number, value: number });
        let key = number.wrapping_mul(0x9e37_79b1) % (number + 1);
        both.take(Step { operation: others[number as usize % others.len()], key, value: number });
        if number % 500 == 0 {
            both.take(Step { operation: GetMany, key, value: 150 });
            both.take(Step { operation: Len, key, value: 0 });
        }
    }
    both.agree();
    for key in 0..keys {
        both.take(Step { operation: Remove, key, value: 0 });
    }
    both.agree();
    assert!(both.map.is_empty());
}

#[test]
fn every_operation_is_right_while_an_inline_map_grows() {
    check_through_growth::<u64, u64, Auto, 4>(80_000);
    check_through_growth::<u64, u64, Auto, 8>(120_000);
    check_through_growth::<u64, u64, Auto, 16>(150_000);
}

#[test]
fn every_operation_is_right_while_a_boxed_map_grows() {
    check_through_growth::<String, Vec<u8>, Auto, 4>(40_000);
    check_through_growth::<String, String, Auto, 8>(70_000);
    check_through_growth::<u64, String, Auto, 16>(90_000);
}

#[test]
fn keys_are_found_by_what_they_borrow_as() {
    let map: CuckooMap<String, Vec<u8>> = CuckooMap::new();
    map.insert("one".to_owned(), vec![1]);
    assert_eq!(map.get("one"), Some(vec![1]));
    assert_eq!(map.get_many(&["one".to_owned(), "two".to_owned()]), [Some(vec![1]), None]);
    assert!(map.contains_key("one") && !map.contains_key("on"));
    assert_eq!(map.update("one", |old| [old.as_slice(), &[2]].concat()), Some(vec![1, 2]));
    assert!(!map.remove_if("one", |key, value| key == "one" && value.len() == 1));
    assert_eq!(map.remove("one"), Some(vec![1, 2]));
    assert!(!map.delete("one"));
}

#[test]
fn what_is_called_without_a_lock_may_use_the_map() {
    let map: CuckooMap<u64, String> = CuckooMap::new();
    map.insert(1, "one".to_owned());
    let seen = map.get_with(&1, |value| {
        assert_eq!(map.remove(&1).as_ref(), Some(value));
        (0..1000).for_each(|at| assert_eq!(map.insert(2, format!("{at}")).is_none(), at == 0));
        value.clone()
    });
    assert_eq!(seen.as_deref(), Some("one"), "it stays alive while it is looked at");
    let made = map.get_or_insert_with(1, || {
        map.insert(1, "first".to_owned());
        "second".to_owned()
    });
    assert_eq!(made.as_deref(), Ok("first"));
    map.get_many_with(&[1, 2], |_, value| assert!(value.is_some() && map.len() == 2));
}
