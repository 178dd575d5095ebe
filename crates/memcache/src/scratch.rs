//! Keys that are not in the input as they are: base64 keys, decoded, and names of hash keys.
//!
//! Always true: what was kept stays where it is until `reset`, which no batch that refers to it can outlive; there is
//! room for as many keys as a batch has requests, and one more for a value that has not come yet.

use std::cell::{Cell, OnceCell};

use guira_cpwire::NAME_LEN;
use guira_item::Key;

use crate::BATCH_LEN_MAX;
use crate::base64::{self, DECODED_KEY_LEN_MAX};

/// Keys a block holds. Blocks are made when needed and then kept.
const BLOCK_LEN: usize = 64;

const BLOCKS_MAX: usize = BATCH_LEN_MAX / BLOCK_LEN + 1;

#[derive(Debug)]
struct DecodedKey {
    bytes: [u8; DECODED_KEY_LEN_MAX],
    len: usize,
}

type Block<T> = Box<[OnceCell<T>]>;

/// Keys of one form.
#[derive(Debug)]
struct Shelf<T> {
    blocks: [OnceCell<Block<T>>; BLOCKS_MAX],
    len: Cell<usize>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { blocks: Default::default(), len: Cell::default() }
    }
}

impl<T> Shelf<T> {
    #[inline]
    fn keep(&self, key: T) -> &T {
        let index = self.len.get();
        assert!(index < BLOCKS_MAX * BLOCK_LEN, "Scratch::reset was not called between two batches");
        let block = self.blocks[index / BLOCK_LEN].get_or_init(|| (0..BLOCK_LEN).map(|_| OnceCell::new()).collect());
        self.len.set(index + 1);
        block[index % BLOCK_LEN].get_or_init(|| key)
    }

    fn reset(&mut self) {
        let used = std::mem::take(self.len.get_mut());
        for index in 0..used {
            if let Some(block) = self.blocks[index / BLOCK_LEN].get_mut() {
                block[index % BLOCK_LEN].take();
            }
        }
    }
}

/// Room for such keys of one batch. A worker keeps one and resets it between batches.
#[derive(Debug, Default)]
pub struct Scratch {
    decoded: Shelf<DecodedKey>,
    names: Shelf<[u8; NAME_LEN]>,
}

impl Scratch {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the keys and keeps the memory.
    pub fn reset(&mut self) {
        self.decoded.reset();
        self.names.reset();
    }

    /// A hash key's name.
    ///
    /// # Panics
    /// As `decode`.
    #[inline]
    pub(crate) fn keep(&self, name: [u8; NAME_LEN]) -> &[u8] {
        self.names.keep(name)
    }

    /// The key that `text` is the base64 of, if it is one.
    ///
    /// # Panics
    /// If more keys are decoded than a batch can ask for without a `reset`.
    pub(crate) fn decode(&self, text: &[u8]) -> Option<Key<'_>> {
        let (bytes, len) = base64::decode_key(text)?;
        let key = self.decoded.keep(DecodedKey { bytes, len });
        Key::new(&key.bytes[..key.len]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_keys_stay_until_the_reset() {
        let mut scratch = Scratch::new();
        for _ in 0..2 {
            let keys: Vec<_> = (0..=BATCH_LEN_MAX)
                .map(|index| {
                    let mut text = [0; 16];
                    let len = base64::encode(&(index as u32).to_le_bytes(), &mut text);
                    scratch.decode(&text[..len]).expect("base64")
                })
                .collect();
            for (index, key) in keys.iter().enumerate() {
                assert_eq!(key.as_bytes(), (index as u32).to_le_bytes());
            }
            scratch.reset();
        }
    }
}
