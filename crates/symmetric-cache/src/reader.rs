//! What any thread reads, without waiting.
//!
//! Always true: a value is told only if its header, its bucket's stamp, and in the end what was granted, are what they were before it was read.

use std::{ops::Range, sync::Arc};

use guira_item::{Expiry, Moment};
use guira_sync::atomic::{Ordering, fence};

use crate::{
    Shared,
    bucket::Stamp,
    grant::Granted,
    record::{self, Meta, Seen},
};

/// For a thread that reads.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// Some reads that are told together, or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    granted: Granted,
}

/// What a key has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The client's flags.
    pub flags: u32,
    /// What clients know it by.
    pub cas: u64,
    /// When it ends.
    pub expiry: Expiry,
    /// Where its bytes are, of those that were appended.
    pub value: Range<usize>,
}

/// That a key was not here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    bucket: usize,
    stamp: Stamp,
}

/// What a reader is told of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// It is hot, and has this.
    Hit(Found),
    /// It is hot, and has nothing.
    Nothing,
    /// The thread that writes is to be asked.
    Ask,
    /// It is cold.
    Cold(Absence),
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Begins some reads.
    #[inline]
    pub fn visit(&self) -> Visit {
        Visit { granted: self.shared.grant.seen() }
    }

    /// Whether what was read in a visit may be told: `now` was read after all of it, by the clock that leases are counted by (R1).
    #[inline]
    pub fn holds(&self, Visit { granted }: Visit, now: Moment) -> bool {
        // Acquire: pairs with the Release fence in `Grant::close`.
        fence(Ordering::Acquire);
        now < granted.until && self.shared.grant.is_still(granted)
    }

    /// Reads a key, whose value is appended to `values`.
    #[inline]
    pub fn read(&self, key: &[u8], hash: u64, values: &mut Vec<u8>) -> Read {
        let number = self.shared.buckets.number(hash);
        let bucket = self.shared.buckets.get(number);
        let Some(stamp) = bucket.stamp() else { return Read::Ask };
        let begin = values.len();
        for entry in bucket.entries().filter(|entry| entry.is_tagged(hash)) {
            // One without a record may be another key's: it is asked for, then, to no harm.
            let Some(words) = entry.record().and_then(|unit| self.shared.segments.words(unit)) else {
                return Read::Ask;
            };
            let (header, seen) = record::read(words, key, values);
            // Acquire: pairs with the Release fences in `Bucket::change` and `record::write`.
            fence(Ordering::Acquire);
            let is_one_state = bucket.is_still(stamp) && record::is_still(words, header);
            let read = match seen {
                _ if !is_one_state => Read::Ask,
                Seen::Other => continue,
                Seen::NotServed => Read::Ask,
                Seen::Nothing => Read::Nothing,
                Seen::Value(Meta { flags, cas, expiry, value_len }) => {
                    Read::Hit(Found { flags, cas, expiry, value: begin..begin + value_len })
                }
            };
            if !matches!(read, Read::Hit(_)) {
                values.truncate(begin);
            }
            return read;
        }
        // Acquire: pairs with the Release fence in `Bucket::change`.
        fence(Ordering::Acquire);
        if stamp.has_more() || !bucket.is_still(stamp) {
            return Read::Ask;
        }
        Read::Cold(Absence { bucket: number, stamp })
    }

    /// Whether what is cold of a hash is answered for here, as long as the visit [holds](Self::holds).
    #[inline]
    pub fn is_home_of(&self, hash: u64) -> bool {
        self.shared.grant.is_home_of(hash)
    }

    /// Whether a key that was not here has not been here since: to be asked after its shard was read.
    #[inline]
    pub fn is_still_cold(&self, Absence { bucket, stamp }: Absence) -> bool {
        // Acquire: pairs with the Release fence in `Bucket::change`.
        fence(Ordering::Acquire);
        self.shared.buckets.get(bucket).is_still(stamp)
    }
}
