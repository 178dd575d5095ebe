//! Writes of random items in a closed loop: through the store, as a server's worker writes, and to RocksDB itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};

use guira_item::store::{Store, StoreError, Written};
use guira_persist::rocks::RocksStore;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rocksdb::WriteOptions;

use super::items::{Payload, StoredKey};
use crate::error::BenchError;

/// What is written, and how often that failed.
pub(super) struct Changes<'a> {
    pub store: &'a RocksStore,
    pub keys: &'a [StoredKey],
    pub values: &'a [Payload],
    failed: AtomicU64,
}

impl<'a> Changes<'a> {
    pub fn new(store: &'a RocksStore, keys: &'a [StoredKey], values: &'a [Payload]) -> Self {
        Self { store, keys, values, failed: AtomicU64::new(0) }
    }

    /// Refuses a measurement in which a write failed.
    pub fn expect_all_done(&self, experiment: &str) -> Result<(), BenchError> {
        match self.failed.load(Relaxed) {
            0 => Ok(()),
            failed => Err(BenchError::Invalid(format!("{experiment}: {failed} writes failed"))),
        }
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> (&'a StoredKey, &'a Payload) {
        (&self.keys[rng.random_range(0..self.keys.len())], &self.values[rng.random_range(0..self.values.len())])
    }

    /// A thread's work that writes to RocksDB itself, and syncs each write.
    pub fn direct_writer(&'a self, number: u64) -> impl FnMut() -> u64 + Send + 'a {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(number);
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        move || {
            let (key, value) = self.draw(&mut rng);
            if self.store.database().put_opt(key.stored(), &value.stored, &synced).is_err() {
                self.failed.fetch_add(1, Relaxed);
            }
            1
        }
    }

    /// A thread's work that writes through the store, for `writers` clients each of whom waits for an answer before the next write.
    pub fn writer(&'a self, number: u64, writers: usize) -> impl FnMut() -> u64 + Send + 'a {
        let mut writer = Writer::new(self, number, writers);
        move || writer.turn()
    }
}

/// Who writes through the store, a record a batch.
struct Writer<'a> {
    changes: &'a Changes<'a>,
    rng: Xoshiro256PlusPlus,
    writers: usize,
    in_flight: usize,
    done: Sender<Result<Written, StoreError>>,
    came: Receiver<Result<Written, StoreError>>,
}

impl<'a> Writer<'a> {
    fn new(changes: &'a Changes<'a>, number: u64, writers: usize) -> Self {
        let (done, came) = mpsc::channel();
        Self { changes, rng: Xoshiro256PlusPlus::seed_from_u64(number), writers, in_flight: 0, done, came }
    }

    /// Has every client who has his answer write again, and waits for answers; how many came.
    fn turn(&mut self) -> u64 {
        while self.in_flight < self.writers {
            let (key, value) = self.changes.draw(&mut self.rng);
            let done = self.done.clone();
            // Somebody waits for all of them.
            self.changes.store.write(vec![value.put(key)], Box::new(move |written| drop(done.send(written))));
            self.in_flight += 1;
        }
        self.collect()
    }

    /// Waits for one, and takes those that are there; how many.
    fn collect(&mut self) -> u64 {
        let first = self.came.recv().expect("the store completes what it takes");
        let mut answered = 0;
        for written in std::iter::once(first).chain(self.came.try_iter()) {
            if written != Ok(Written::All) {
                self.changes.failed.fetch_add(1, Relaxed);
            }
            answered += 1;
        }
        self.in_flight -= answered;
        answered as u64
    }
}

impl Drop for Writer<'_> {
    /// What is measured next is not measured beside what is left.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            self.collect();
        }
    }
}
