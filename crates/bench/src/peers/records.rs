//! Items of one cache line, outside any index: a chain pointer, a key, a value.
//!
//! ```text
//! word 0              1   2    3 .. 6    7
//!      chain pointer  key      value     unused
//! ```
//! Always true: item `i` has key number `i`; only the chain pointer ever changes.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use guira_bench_memory::{Pages, Words};

use super::key::{self, Key};

const WORDS: usize = 8;

/// How two keys are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// By `memcmp`, the length known only at run time.
    Bytes,
    /// A word at a time.
    Words,
}

/// Items `0..count`.
#[derive(Debug)]
pub struct Records {
    words: Words,
}

impl Records {
    /// The items with the keys of numbers `0..count`.
    ///
    /// # Errors
    /// The operating system's, if it has no memory.
    pub fn new(count: usize, pages: Pages) -> io::Result<Self> {
        let words = Words::new(count * WORDS, pages)?;
        for (number, item) in words.chunks_exact(WORDS).enumerate() {
            let key = key::numbered(number as u64);
            item[1].store(key[0], Relaxed);
            item[2].store(key[1], Relaxed);
            item[3].store(number as u64, Relaxed);
        }
        Ok(Self { words })
    }

    /// Key of an item.
    #[inline]
    pub fn key(&self, item: u32) -> Key {
        let at = item as usize * WORDS;
        [self.words[at + 1].load(Relaxed), self.words[at + 2].load(Relaxed)]
    }

    /// Whether an item has this key.
    #[inline]
    pub fn key_is(&self, item: u32, key: &Key, compare: Compare) -> bool {
        let own = self.key(item);
        match compare {
            Compare::Words => own == *key,
            Compare::Bytes => {
                // The length hidden from the compiler, which would compare words otherwise.
                let len = std::hint::black_box(size_of::<Key>());
                key::bytes(&own)[..len] == key::bytes(key)[..len]
            }
        }
    }

    /// The chain pointer.
    #[inline]
    pub fn next(&self, item: u32) -> u64 {
        self.words[item as usize * WORDS].load(Relaxed)
    }

    /// Changes the chain pointer; the caller holds the chain's lock.
    #[inline]
    pub fn set_next(&self, item: u32, pointer: u64) {
        self.words[item as usize * WORDS].store(pointer, Relaxed);
    }
}
