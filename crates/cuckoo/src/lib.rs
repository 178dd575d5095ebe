//! A concurrent cuckoo index: maps the 64-bit hash of a key to a 32-bit payload (a place where the item lies), several
//! writers at once, readers that write nothing (MemC3, NSDI'13, section 3; Li's dissertation, chapter 3).
//!
//! ```text
//! Index ── layout word ──> segment 0   segment 1   ...          (a hash's upper half chooses the segment)
//!                          1,024 buckets of one cache line each (its lower bits the bucket and the tag)
//!                          bucket: 12 one-byte tags | 12 payloads
//! ```
//! Always true:
//! - a key that is in the index lies in one of two buckets of one segment, the second being computed from the first and
//!   the tag alone; while it is displaced it is in at least one of them;
//! - a bucket changes only under the version stripe of its number; a segment is given up only after the layout word has
//!   changed; so a reader that finds stripe and layout unchanged has seen one state of the key.
//!
//! The keys themselves are the caller's: it passes closures that compare, and it must not reuse what a payload names before
//! the payload is out of the index.

mod growth;
mod index;
mod layout;
mod locked;
#[cfg(not(any(loom, shuttle)))]
mod map;
mod path;
mod probe;
#[cfg(not(any(loom, shuttle)))]
mod scan;
mod segment;
mod table;
mod tags;

pub use growth::{GrowError, Growth};
pub use index::{BUCKET_SLOTS, Bucket, Index, LockedPayload, Payloads, SEGMENT_BUCKETS, SEGMENT_BYTES, SEGMENT_SLOTS};
pub use locked::{Locked, Place};
#[cfg(not(any(loom, shuttle)))]
pub use map::{
    Auto, Boxed, Builder, Change, Changed, CuckooMap, Inline, Iter, ManyFull, Plain, RandomState, ReserveError,
    Storage, TableFull, Ways, Width,
};
pub use path::prefetch;
pub use probe::Probe;
pub use segment::{Geometry, SegmentSource};
pub use table::{Contended, Full, Table};
pub use tags::{HalfWord, OneWord, TagWords, TwoWords};

#[cfg(all(test, not(any(loom, shuttle))))]
mod index_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
mod reuse_loom_tests;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
