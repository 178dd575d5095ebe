//! The paper's stronger baseline: chains with a lock for each bucket, eviction by CLOCK, keys compared a word at a time.
//!
//! ```text
//! word 0            1    2              3 .. 4  5   6    7 .. 10
//!      chain next   hash state and bit  header  key      value
//! ```
//! Always true: an item's words change only under the stripe of its key's bucket while it is in a chain, and otherwise only
//! by the thread that took it; only the holder of the clock takes items out of chains to evict them. Locks are taken in the
//! order clock, stripe; never a second stripe.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed};

use guira_bench_memory::{Pages, Words};
use guira_sync::Stripes;

use super::{
    STRIPES,
    chained_lru::Value,
    key::{self, Key},
};

const WORDS: usize = 11;

/// Bytes an item takes: without the two list pointers and the reference count that strict LRU needs, and its share of the
/// hash table.
pub const ITEM_BYTES: usize = WORDS * 8 + 8;

const NEXT: usize = 0;
const HASH: usize = 1;
const STATE: usize = 2;
const KEY: usize = 5;
const VALUE: usize = 7;

/// In no chain; in one; in one and read since the hand came by.
const APART: u64 = 0;
const CHAINED: u64 = 1;
const USED: u64 = 2;

/// A cache of a fixed number of items. Pointers are item numbers plus one; 0 is none.
#[derive(Debug)]
pub struct ChainedClock {
    items: Words,
    heads: Words,
    stripes: Stripes,
    clock: Mutex<Clock>,
}

#[derive(Debug)]
struct Clock {
    hand: usize,
    /// Items never used begin here.
    fresh: usize,
    items_max: usize,
    /// Items taken and not needed after all.
    spare: Vec<u64>,
}

impl ChainedClock {
    /// An empty cache for `items_max` items, in huge pages.
    ///
    /// # Errors
    /// The operating system's, if it has no memory.
    pub fn new(items_max: usize) -> io::Result<Self> {
        assert!((2..=super::ITEMS_MAX).contains(&items_max), "a cache holds some items");
        Ok(Self {
            items: Words::new(items_max * WORDS, Pages::Huge)?,
            heads: Words::new((items_max * 2 / 3).next_power_of_two(), Pages::Huge)?,
            stripes: Stripes::new(STRIPES),
            clock: Mutex::new(Clock { hand: 0, fresh: 0, items_max, spare: Vec::new() }),
        })
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn word(&self, pointer: u64, word: usize) -> u64 {
        self.items[(pointer - 1) as usize * WORDS + word].load(Relaxed)
    }

    #[inline]
    fn set_word(&self, pointer: u64, word: usize, value: u64) {
        self.items[(pointer - 1) as usize * WORDS + word].store(value, Relaxed);
    }

    #[inline]
    fn under_lock<R>(&self, hash: u64, work: impl FnOnce(usize) -> R) -> R {
        let bucket = hash as usize & (self.heads.len() - 1);
        let _guard = self.stripes.lock_pair(bucket % STRIPES, bucket % STRIPES);
        work(bucket)
    }

    /// The caller holds the bucket's stripe.
    #[inline]
    fn find(&self, bucket: usize, key: &Key) -> Option<u64> {
        let mut pointer = self.heads[bucket].load(Relaxed);
        while pointer != 0 {
            if [self.word(pointer, KEY), self.word(pointer, KEY + 1)] == *key {
                return Some(pointer);
            }
            pointer = self.word(pointer, NEXT);
        }
        None
    }

    /// Reads a value and marks its item as used.
    pub fn get(&self, key: &Key) -> Option<Value> {
        self.under_lock(key::hash(key), |bucket| {
            let pointer = self.find(bucket, key)?;
            if self.word(pointer, STATE) != USED {
                self.set_word(pointer, STATE, USED);
            }
            Some(std::array::from_fn(|at| self.word(pointer, VALUE + at)))
        })
    }

    /// Stores a value, at the cost of an item not used lately if the cache is full.
    pub fn set(&self, key: &Key, value: &Value) {
        let hash = key::hash(key);
        let write = |pointer: u64| (0..).zip(value).for_each(|(at, word)| self.set_word(pointer, VALUE + at, *word));
        let is_there = self.under_lock(hash, |bucket| self.find(bucket, key).map(write).is_some());
        if is_there {
            return;
        }
        let pointer = self.take();
        self.set_word(pointer, HASH, hash);
        self.set_word(pointer, KEY, key[0]);
        self.set_word(pointer, KEY + 1, key[1]);
        write(pointer);
        let was_needed = self.under_lock(hash, |bucket| {
            if let Some(other) = self.find(bucket, key) {
                write(other);
                return false;
            }
            self.set_word(pointer, NEXT, self.heads[bucket].load(Relaxed));
            self.heads[bucket].store(pointer, Relaxed);
            self.set_word(pointer, STATE, CHAINED);
            true
        });
        if !was_needed {
            self.clock().spare.push(pointer);
        }
    }

    /// An item in no chain, the caller's alone.
    fn take(&self) -> u64 {
        let mut clock = self.clock();
        if let Some(pointer) = clock.spare.pop() {
            return pointer;
        }
        if clock.fresh < clock.items_max {
            clock.fresh += 1;
            return clock.fresh as u64;
        }
        loop {
            let pointer = clock.hand as u64 + 1;
            clock.hand = (clock.hand + 1) % clock.items_max;
            match self.word(pointer, STATE) {
                // Only a hint for readers' sake: a mark set at this moment may be lost.
                USED => self.set_word(pointer, STATE, CHAINED),
                CHAINED if self.unchain(pointer) => return pointer,
                _ => {}
            }
        }
    }

    /// Takes an item out of its chain, if it is in one. The caller holds the clock.
    fn unchain(&self, pointer: u64) -> bool {
        self.under_lock(self.word(pointer, HASH), |bucket| {
            let next = self.word(pointer, NEXT);
            let mut before = self.heads[bucket].load(Relaxed);
            if before == pointer {
                self.heads[bucket].store(next, Relaxed);
                self.set_word(pointer, STATE, APART);
                return true;
            }
            while before != 0 {
                let after = self.word(before, NEXT);
                if after == pointer {
                    self.set_word(before, NEXT, next);
                    self.set_word(pointer, STATE, APART);
                    return true;
                }
                before = after;
            }
            false
        })
    }

    /// Items held; exact when nobody is writing.
    pub fn len(&self) -> usize {
        let clock = self.clock();
        clock.fresh - clock.spare.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::peers::key::Draw;

    #[test]
    fn it_holds_what_fits_and_never_another_keys_value() {
        let cache = ChainedClock::new(200).expect("memory");
        let mut newest: HashMap<u64, u64> = HashMap::new();
        let mut draw = Draw::new(1);
        let (mut hits, mut gets) = (0, 0);
        for turn in 0..50_000u64 {
            let number = draw.below(300) as u64;
            let key = key::numbered(number);
            if turn % 4 == 0 {
                cache.set(&key, &[turn; 4]);
                newest.insert(number, turn);
            } else {
                gets += 1;
                if let Some(value) = cache.get(&key) {
                    hits += 1;
                    assert_eq!(Some(value), newest.get(&number).map(|turn| [*turn; 4]));
                }
            }
        }
        assert_eq!(cache.len(), 200);
        assert!(hits * 2 > gets, "{hits} of {gets}");
    }

    #[test]
    fn what_is_used_survives_the_hand() {
        let cache = ChainedClock::new(10).expect("memory");
        for number in 0..10 {
            cache.set(&key::numbered(number), &[number; 4]);
        }
        for number in 10..100 {
            assert!(cache.get(&key::numbered(3)).is_some(), "used before every store");
            cache.set(&key::numbered(number), &[number; 4]);
        }
        assert_eq!(cache.len(), 10);
    }

    #[test]
    fn threads_see_whole_values() {
        let cache = &ChainedClock::new(500).expect("memory");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut draw = Draw::new(thread);
                    for _ in 0..30_000 {
                        let number = draw.below(2_000) as u64;
                        let key = key::numbered(number);
                        match cache.get(&key) {
                            Some(value) => assert_eq!(value, [number; 4]),
                            None => cache.set(&key, &[number; 4]),
                        }
                    }
                });
            }
        });
        assert!(cache.len() <= 500);
    }
}
