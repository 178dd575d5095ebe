//! Reads of random items in a closed loop: through the store, as a server's worker reads, and from RocksDB itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};

use guira_item::{
    Key,
    store::{Done, Found, Store},
};
use guira_persist::rocks::RocksStore;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rocksdb::ReadOptions;

use super::items::{StoredKey, is_value};
use crate::error::BenchError;

/// Reads between two looks at the clock.
const TURN: usize = 32;

/// What is read, and how often that was not what it should be.
pub(super) struct Set<'a> {
    pub store: &'a RocksStore,
    pub keys: &'a [StoredKey],
    /// Made once: RocksDB makes them anew for each read that has none.
    options: ReadOptions,
    wrong: AtomicU64,
}

impl<'a> Set<'a> {
    pub fn new(store: &'a RocksStore, keys: &'a [StoredKey]) -> Self {
        Self { store, keys, options: ReadOptions::default(), wrong: AtomicU64::new(0) }
    }

    /// Refuses a measurement in which an item was not found, or was not itself.
    pub fn expect_all_right(&self, experiment: &str) -> Result<(), BenchError> {
        match self.wrong.load(Relaxed) {
            0 => Ok(()),
            wrong => Err(BenchError::Invalid(format!("{experiment}: {wrong} reads did not find their item"))),
        }
    }

    fn check(&self, is_right: bool) {
        if !is_right {
            self.wrong.fetch_add(1, Relaxed);
        }
    }

    /// Reads everything once, so that the block cache has what it has room for.
    pub fn read_all(&self) {
        for key in self.keys {
            self.check(self.direct(key));
        }
    }

    fn direct(&self, key: &StoredKey) -> bool {
        let found = self.store.database().get_pinned_opt(key.stored(), &self.options);
        found.is_ok_and(|bytes| bytes.is_some_and(|bytes| is_value(&bytes[guira_persist::record::HEADER_LEN..])))
    }

    /// A thread's work that reads from RocksDB itself.
    pub fn direct_reader(&self, number: u64) -> impl FnMut() -> u64 + Send + '_ {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(number);
        move || {
            for _ in 0..TURN {
                self.check(self.direct(&self.keys[rng.random_range(0..self.keys.len())]));
            }
            TURN as u64
        }
    }

    /// A thread's work that reads through the store, with `depth` reads waiting for the disk at most.
    pub fn reader(&'a self, number: u64, depth: usize) -> impl FnMut() -> u64 + Send + 'a {
        let mut reader = Reader::new(self, number, depth);
        move || reader.turn()
    }
}

/// Who reads through the store: at once what it has in memory, and later the rest.
struct Reader<'a> {
    set: &'a Set<'a>,
    rng: Xoshiro256PlusPlus,
    depth: usize,
    in_flight: usize,
    done: Sender<bool>,
    came: Receiver<bool>,
}

impl<'a> Reader<'a> {
    fn new(set: &'a Set<'a>, number: u64, depth: usize) -> Self {
        let (done, came) = mpsc::channel();
        Self { set, rng: Xoshiro256PlusPlus::seed_from_u64(number), depth, in_flight: 0, done, came }
    }

    /// Asks some times, waiting whenever as much is on its way as may; how many reads were answered.
    fn turn(&mut self) -> u64 {
        let mut answered = 0;
        for _ in 0..TURN {
            let name = self.set.keys[self.rng.random_range(0..self.set.keys.len())];
            let key = Key::new(name.name()).expect("a key");
            match self.set.store.get_now(key, |record| record.is_some_and(|record| is_value(record.value))) {
                Some(is_right) => {
                    self.set.check(is_right);
                    answered += 1;
                }
                None => {
                    let done = self.done.clone();
                    let told: Done<Found> = Box::new(move |found| {
                        let is_right =
                            found.is_ok_and(|found| found.record.is_some_and(|record| is_value(&record.value)));
                        // Somebody waits for all of them.
                        let _ = done.send(is_right);
                    });
                    self.set.store.get(key, told);
                    self.in_flight += 1;
                    if self.in_flight == self.depth {
                        answered += self.collect();
                    }
                }
            }
        }
        answered
    }

    /// Waits for one, and takes those that are there; how many.
    fn collect(&mut self) -> u64 {
        let first = self.came.recv().expect("the store completes what it takes");
        let mut answered = 0;
        for is_right in std::iter::once(first).chain(self.came.try_iter()) {
            self.set.check(is_right);
            answered += 1;
        }
        self.in_flight -= answered;
        answered as u64
    }
}

impl Drop for Reader<'_> {
    /// What is measured next is not measured beside what is left.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            self.collect();
        }
    }
}
