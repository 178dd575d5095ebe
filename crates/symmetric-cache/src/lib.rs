//! The symmetric cache as all threads of a node read it (ccKVS, EuroSys 2018, section 6.2): what is hot and may be served, and the lease by which it is.
//!
//! One thread writes it, the one that has the node's replica: of each key that is there it says whether it is served, and with what. All threads read, and change nothing that others look
//! at. A key that is not here is cold: its home's shard has it.
//!
//! ```text
//! bucket (64 bytes):  stamp | entry x 7          stamp: changed with each key that comes, goes or moves; bit 1: there are more than fit; bit 0: it is being changed
//!                              |                 entry: a tag of the hash, and where the record is, if it has one
//! record:             header | flags, lengths | cas | expiry | key | value
//!
//! header (8 bytes):   version 32 | writer 16 | ... | served, locked
//! ```
//! The version is Lamport's clock and the seqlock: it is another with each value that a key has, and wraps around as it does in the protocol (RFC 1982), since it is only compared with
//! what it was a moment ago. Acknowledgements, which the paper counts here, are counted by the one thread that writes. A bucket's stamp tells a reader that a record was its key's all
//! along, and that a key that was not there still is not.
//!
//! Always true:
//! - what a reader is given was there, whole and served, at one moment between [`Reader::visit`] and [`Reader::holds`], if that says so;
//! - a reader never waits: what is just being changed, or has no room here, is asked of the thread that writes ([`Read::Ask`]);
//! - memory is never given back while the cache is there, and is accessed by atomic words.
#![forbid(unsafe_code)]

mod bucket;
mod grant;
#[cfg(all(test, loom))]
mod loom_tests;
mod reader;
mod record;
mod room;
mod segments;
#[cfg(all(test, not(loom)))]
mod tests;
mod writer;

use std::sync::Arc;

use guira_item::Expiry;

use crate::{bucket::Buckets, grant::Grant, segments::Segments};

pub use reader::{Absence, Found, Read, Reader, Visit};
pub use writer::Writer;

/// How large it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Keys that it is made for. More may be here; the more, the more of them are asked of the thread that writes.
    pub keys_max: usize,
    /// Bytes of records at most, taken from the system as they are needed.
    pub records_len_max: usize,
    /// Bytes of a key and its value beyond which they have no record.
    pub item_len_max: usize,
    /// Shards that a node may be home of.
    pub shards_max: usize,
}

/// When a value was written: no two of a key's have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct At {
    /// Lamport's clock.
    pub version: u32,
    /// Whose write it is.
    pub writer: u16,
}

/// A value and what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content<'v> {
    /// The client's flags.
    pub flags: u32,
    /// What clients know it by.
    pub cas: u64,
    /// When it ends.
    pub expiry: Expiry,
    /// The bytes.
    pub value: &'v [u8],
}

/// What all threads see.
#[derive(Debug)]
struct Shared {
    buckets: Buckets,
    segments: Segments,
    grant: Grant,
}

/// An empty one, under no lease: for the thread that writes, and for those that read.
pub fn new(config: &Config) -> (Writer, Reader) {
    let segments = Segments::new(config.records_len_max, record::len(config.item_len_max));
    let shared = Shared { buckets: Buckets::new(config.keys_max), segments, grant: Grant::new(config.shards_max) };
    let shared = Arc::new(shared);
    (Writer::new(Arc::clone(&shared)), Reader::new(shared))
}
