//! memcached's cache as the paper found it: chains, strict LRU by a linked list, one lock around every operation.
//!
//! Always true: the items in use are exactly those on the list, and each is in the chain of its key.

use std::sync::{Mutex, PoisonError};

use super::key::{self, Key};

/// A value of 32 bytes.
pub type Value = [u64; 4];

/// Bytes of memory an item takes in memcached: its chunk of 120 bytes and its share of the hash table.
pub const ITEM_BYTES: usize = size_of::<Item>() + 8;

/// As in memcached: 56 bytes before the key, and what the slab class leaves unused behind the value.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Item {
    lru_next: u64,
    lru_prev: u64,
    chain_next: u64,
    /// Times, lengths, reference count, flags, slab class, version.
    header: [u64; 4],
    key: Key,
    value: Value,
    unused: [u64; 2],
}

const _: () = assert!(size_of::<Item>() == 120);

/// A cache of a fixed number of items.
#[derive(Debug)]
pub struct ChainedLru {
    state: Mutex<State>,
}

/// Pointers are item numbers plus one; 0 is none.
#[derive(Debug)]
struct State {
    items: Vec<Item>,
    items_max: usize,
    heads: Vec<u64>,
    /// The item used last, and the one whose last use is longest ago.
    newest: u64,
    oldest: u64,
}

impl ChainedLru {
    /// An empty cache for `items_max` items.
    pub fn new(items_max: usize) -> Self {
        assert!((1..=super::ITEMS_MAX).contains(&items_max), "a cache holds an item");
        // memcached doubles its table at 1.5 items a bucket.
        let heads = vec![0; (items_max * 2 / 3).next_power_of_two()];
        let items = Vec::with_capacity(items_max);
        Self { state: Mutex::new(State { items, items_max, heads, newest: 0, oldest: 0 }) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a value and makes its item the newest.
    pub fn get(&self, key: &Key) -> Option<Value> {
        let mut state = self.state();
        let pointer = state.find(key)?;
        if state.newest != pointer {
            state.unlist(pointer);
            state.list(pointer);
        }
        Some(state.items[at(pointer)].value)
    }

    /// Stores a value, at the cost of the oldest item if the cache is full.
    pub fn set(&self, key: &Key, value: &Value) {
        let mut state = self.state();
        let pointer = match state.find(key) {
            Some(pointer) => {
                state.unlist(pointer);
                pointer
            }
            None => state.take(key),
        };
        state.items[at(pointer)].value = *value;
        state.list(pointer);
    }

    /// Items held.
    pub fn len(&self) -> usize {
        self.state().items.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn at(pointer: u64) -> usize {
    (pointer - 1) as usize
}

impl State {
    fn bucket(&self, key: &Key) -> usize {
        key::hash(key) as usize & (self.heads.len() - 1)
    }

    fn find(&self, key: &Key) -> Option<u64> {
        let mut pointer = self.heads[self.bucket(key)];
        while pointer != 0 {
            let item = &self.items[at(pointer)];
            if item.key == *key {
                return Some(pointer);
            }
            pointer = item.chain_next;
        }
        None
    }

    /// An item for the key, new or the oldest one's, in the key's chain and not on the list.
    fn take(&mut self, key: &Key) -> u64 {
        let pointer = if self.items.len() < self.items_max {
            self.items.push(Item::default());
            self.items.len() as u64
        } else {
            let oldest = self.oldest;
            self.unlist(oldest);
            self.unchain(oldest);
            oldest
        };
        let bucket = self.bucket(key);
        let item = &mut self.items[at(pointer)];
        item.key = *key;
        item.header[3] += 1;
        item.chain_next = std::mem::replace(&mut self.heads[bucket], pointer);
        pointer
    }

    fn unchain(&mut self, pointer: u64) {
        let bucket = self.bucket(&self.items[at(pointer)].key);
        let next = self.items[at(pointer)].chain_next;
        if self.heads[bucket] == pointer {
            self.heads[bucket] = next;
            return;
        }
        let mut before = self.heads[bucket];
        while self.items[at(before)].chain_next != pointer {
            before = self.items[at(before)].chain_next;
        }
        self.items[at(before)].chain_next = next;
    }

    fn list(&mut self, pointer: u64) {
        let second = std::mem::replace(&mut self.newest, pointer);
        let item = &mut self.items[at(pointer)];
        (item.lru_prev, item.lru_next) = (0, second);
        match second {
            0 => self.oldest = pointer,
            second => self.items[at(second)].lru_prev = pointer,
        }
    }

    fn unlist(&mut self, pointer: u64) {
        let Item { lru_prev, lru_next, .. } = self.items[at(pointer)];
        match lru_prev {
            0 => self.newest = lru_next,
            prev => self.items[at(prev)].lru_next = lru_next,
        }
        match lru_next {
            0 => self.oldest = lru_prev,
            next => self.items[at(next)].lru_prev = lru_prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::peers::key::Draw;

    #[test]
    fn it_holds_what_was_used_last() {
        let cache = ChainedLru::new(50);
        let mut reference: VecDeque<(u64, u64)> = VecDeque::new();
        let mut draw = Draw::new(1);
        for turn in 0..20_000u64 {
            let number = draw.below(120) as u64;
            let key = key::numbered(number);
            let held = reference.iter().position(|(known, _)| *known == number).and_then(|at| reference.remove(at));
            if turn % 3 == 0 {
                cache.set(&key, &[turn; 4]);
                reference.push_front((number, turn));
                reference.truncate(50);
            } else {
                assert_eq!(cache.get(&key), held.map(|(_, value)| [value; 4]));
                reference.extend(None::<(u64, u64)>);
                held.into_iter().for_each(|entry| reference.push_front(entry));
            }
            assert_eq!(cache.len(), 50.min(cache.len()));
        }
        assert_eq!(cache.len(), 50);
    }
}
