//! What lies in the stores: items by number, with the keys and values that the generator asks servers for.

use std::sync::Arc;
use std::sync::mpsc;

use guira_item::store::{Condition, Generation, Record, Store, StoreError, Write, Written};
use guira_loadgen::payload::{push_key, push_value};
use guira_loadgen::progress::Progress;
use guira_persist::rocks::RocksStore;
use guira_persist::{hash_partition, record};
use rocksdb::WaitForCompactOptions;

use crate::error::BenchError;

/// Bytes of a key.
pub(super) const KEY_LEN: usize = 16;

/// Bytes of a value.
pub(super) const VALUE_LEN: usize = 1_024;

/// Bytes of a key and a value as RocksDB has them, without its own.
pub(super) const STORED_LEN: usize = 1 + KEY_LEN + record::HEADER_LEN + VALUE_LEN;

/// Items that are loaded together, and batches on their way.
const BATCH_LEN: usize = 256;
const BATCHES_MAX: usize = 8;

/// Distinct values of what is written over and over.
const VALUES: u64 = 64;

/// A key as RocksDB has it, behind its hash partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct StoredKey([u8; 1 + KEY_LEN]);

impl StoredKey {
    /// That of item `number`.
    pub fn of(number: u64) -> Self {
        let mut key = Vec::with_capacity(1 + KEY_LEN);
        key.push(0);
        push_key(&mut key, number, KEY_LEN);
        key[0] = hash_partition(&key[1..]).0;
        Self(key.try_into().expect("a key of that length"))
    }

    /// Those of all items below `count`.
    pub fn all(count: u64) -> Vec<Self> {
        (0..count).map(Self::of).collect()
    }

    /// As RocksDB has it.
    pub fn stored(&self) -> &[u8] {
        &self.0
    }

    /// As clients have it.
    pub fn name(&self) -> &[u8] {
        &self.0[1..]
    }
}

/// Whether a value is one of ours; looks at both of its ends.
#[inline]
pub(super) fn is_value(value: &[u8]) -> bool {
    value.len() == VALUE_LEN && value[0] == b'0' && value[VALUE_LEN - 1] >= b'-'
}

fn value(key: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(VALUE_LEN);
    push_value(&mut value, key, 0, VALUE_LEN);
    value
}

fn record(value: Arc<[u8]>) -> Record<Arc<[u8]>> {
    let generation = Generation::default();
    Record { flags: 0, expires_unix_s: 0, version: 1, generation, stale: false, win_sent: false, value }
}

/// A value that is written, as the store takes it and as RocksDB has it.
pub(super) struct Payload {
    record: Record<Arc<[u8]>>,
    /// As RocksDB has it.
    pub stored: Vec<u8>,
}

impl Payload {
    fn of(key: &[u8]) -> Self {
        let record = record(value(key).into());
        let mut stored = Vec::with_capacity(STORED_LEN);
        record::encode(&record.borrowed(), &mut stored);
        Self { record, stored }
    }

    /// Some, to be written over and over.
    pub fn some() -> Vec<Self> {
        (0..VALUES).map(|number| Self::of(StoredKey::of(number).name())).collect()
    }

    /// The change that puts it under a key.
    pub fn put(&self, key: &StoredKey) -> Write {
        Write::Put { key: key.name().into(), record: self.record.clone(), condition: Condition::Always }
    }
}

/// Puts every one of `keys` into a store, in their order.
pub(super) fn load(store: &impl Store, what: &str, keys: &[StoredKey]) -> Result<(), BenchError> {
    let progress = Progress::new(what, keys.len() as u64);
    let (done, came) = mpsc::channel();
    let expect_one = || {
        let written: Result<Written, StoreError> = came.recv().expect("the store completes what it takes");
        written.map(drop).map_err(|error| BenchError::Invalid(format!("{what}: {error}")))
    };
    let mut open = 0;
    for (number, keys) in keys.chunks(BATCH_LEN).enumerate() {
        let put = |key: &StoredKey| {
            let (name, condition) = (key.name().into(), Condition::Always);
            Write::Put { key: name, record: record(value(key.name()).into()), condition }
        };
        if open == BATCHES_MAX {
            expect_one()?;
            open -= 1;
        }
        let done = done.clone();
        // Nobody listens any more once one has failed.
        store.write(keys.iter().map(put).collect(), Box::new(move |written| drop(done.send(written))));
        open += 1;
        progress.at((number * BATCH_LEN) as u64);
    }
    (0..open).try_for_each(|_| expect_one())
}

/// Has everything written and merged, so that all files are of the last level and nothing goes on in the background.
pub(super) fn settle(store: &RocksStore) -> Result<(), BenchError> {
    let database = store.database();
    database.flush().map_err(failed)?;
    database.compact_range::<&[u8], &[u8]>(None, None);
    wait_for_background(store)
}

/// Waits until RocksDB has nothing to do in the background.
pub(super) fn wait_for_background(store: &RocksStore) -> Result<(), BenchError> {
    store.database().wait_for_compact(&WaitForCompactOptions::default()).map_err(failed)
}

fn failed(error: rocksdb::Error) -> BenchError {
    BenchError::Invalid(format!("RocksDB: {error}"))
}

#[cfg(test)]
mod tests {
    use guira_item::Key;
    use guira_persist::MemoryStore;

    use super::*;

    #[test]
    fn what_is_loaded_is_what_the_generator_asks_for() {
        let keys = StoredKey::all(1_000);
        let store = MemoryStore::default();
        load(&store, "loading", &keys).expect("loads");
        assert_eq!(store.stats().records, Some(1_000));
        let name = b"00000000000003e7";
        let seen = store.get_now(Key::new(name).expect("a key"), |record| record.is_some_and(|r| is_value(r.value)));
        assert_eq!(seen, Some(true));
        assert!(!is_value(&[b'0'; 10]));
        assert_eq!(Payload::some()[0].stored.len() + 1 + KEY_LEN, STORED_LEN);
    }
}
