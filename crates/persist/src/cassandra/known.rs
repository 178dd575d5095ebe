//! What an owner remembers of rows beside what is in them: their stamps, and writes of which nothing was heard.
//!
//! Always true: a stamp that is wrong costs a read and nothing else, since Cassandra compares it; a doubt stays until
//! what the row has was told, or a floor is above it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use guira_row::{Doubt, Epoch, Stamp};

/// What is known of the rows of a table beside what is in them.
#[derive(Debug)]
pub(super) struct Known {
    hasher: RandomState,
    /// By hash, those stamps of this epoch that were seen last. One that is wrong costs a read: Cassandra compares it.
    stamps: Mutex<Box<[(u64, i64)]>>,
    doubts: Mutex<HashMap<Box<[u8]>, Doubt>>,
}

impl Known {
    pub(super) fn new(stamps: usize) -> Self {
        let stamps = Mutex::new(vec![(0, 0); stamps].into());
        Self { hasher: RandomState::new(), stamps, doubts: Mutex::default() }
    }

    pub(super) fn stamp(&self, key: &[u8], epoch: Epoch) -> Option<Stamp> {
        let hash = self.hasher.hash_one(key);
        let stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, serial) = stamps[hash as usize % stamps.len()];
        (found == hash && serial != 0).then_some(Stamp { epoch, serial })
    }

    pub(super) fn set_stamp(&self, key: &[u8], stamp: Option<Stamp>) {
        let hash = self.hasher.hash_one(key);
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let place = hash as usize % stamps.len();
        match stamp {
            Some(stamp) => stamps[place] = (hash, stamp.serial),
            None if stamps[place].0 == hash => stamps[place] = (0, 0),
            None => {}
        }
    }

    pub(super) fn doubts(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Doubt>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
