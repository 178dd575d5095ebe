//! A concurrent hash map that fills 95 % of its slots, and the table core under it.
//!
//! ```
//! use guira_cuckoo::CuckooMap;
//!
//! let map = CuckooMap::new();
//! std::thread::scope(|scope| {
//!     for thread in 0..4u64 {
//!         let map = &map;
//!         scope.spawn(move || {
//!             for number in 0..1000 {
//!                 map.insert(thread * 1000 + number, number);
//!             }
//!         });
//!     }
//! });
//! assert_eq!((map.len(), map.get(&2007)), (4000, Some(7)));
//! ```
//!
//! # What it promises
//! - *Reads* take no lock and write no shared memory, whatever the types (one that writers have spoilt 256 times on end takes
//!   the key's lock); a read waits for a writer at most for one change of one bucket, but in three cases: [`CuckooMap::clear`];
//!   a map of less than half a segment (16,384 slots of eight ways) that is doubled, at whose end its old slots are emptied;
//!   and the up to four moves of an insert whose searches other writers have spoilt sixteen times. The operations on a key are
//!   linearizable; `len` and walks are not one moment's.
//! - *Space*: 8-byte keys and values take 17.9 bytes a key at 95 % occupancy, tags and stripes counted; a fixed map gets there,
//!   one that grows begins to at 92 % (88 with four ways).
//! - *Growth* moves a few buckets with each insert of a new key, half as many segments again at a time; threads that insert do
//!   it side by side, and nobody waits for the whole of it; only a map of less than half a segment is rebuilt in one go.
//!   Updates and removals move a bucket each. Reads take longer meanwhile, so whoever only reads from now on should have a
//!   growth that has begun finished: `reserve(0)` ([`CuckooMap::reserve`]).
//! - *Your code*: closures that are called under a lock say so; hashing, comparing and cloning happen under it too. What is
//!   called there must not use this map or another. In a map that elides locks ([`Builder::elide_locks`]) it may be begun more
//!   than once; what it does is seen once.
//! - *Memory*: what is removed from the heap is dropped some operations later, at the latest with the map; `remove` gives a
//!   copy. The default hasher is fast, and no strong defence against keys chosen to collide.
//! - *Colliding keys*: of keys with one and the same 64-bit hash the map takes half a bucket, four with its eight ways, and refuses
//!   more. The others neither lose room to them nor wait for a growth that cannot go on. Of good hashes no two are the same;
//!   one of 32 bits gives five keys the same from a hundred million keys on, and three, more than a map of four ways takes, from
//!   a few million. Keys that are chosen to agree in everything but the rest of their hash can still stop a growth: then new keys
//!   are refused. Where others choose the keys, use a hasher with a secret that they cannot learn.
//! - *Errors*: no room is [`TableFull`] with the pair, no memory is [`ReserveError`]; only the methods that say so panic.
//! - *Where*: pointers of 64 bits, of which the system uses 48: a heap of tagged pointers (HWASan, Android's) makes every
//!   insert on the heap panic. Feature `serde` reads maps, and writes copies of them.
//! - A hasher, comparison or closure that panics leaves the map as it was before the operation, or after it.
//!
//! # How it works
//! A hash names a segment, two buckets in it and a six-bit tag. The second bucket follows from the first and the tag, so a key
//! can be moved without looking at it.
//! ```text
//!   hash ── upper half ──> segment ── lower bits ──> first bucket ── xor f(tag) ──> second bucket
//!
//!   segment:  tags of bucket 0, 1, 2, ...       8 bytes each, eight buckets to a cache line
//!             slots of bucket 0 | 1 | 2 | ...   8 slots each, key and value side by side (or a pointer)
//!
//!   a bucket's tags:  byte of slot i = [filter bit i | away | tag]
//! ```
//! *Away* marks a key that lies in its second bucket, and the eight filter bits say which classes of tags have such keys: so
//! a miss reads one bucket's tags six times in seven at 95 % occupancy, and a hit one line of tags and one of slots five times
//! in six. Tags are compared with SSE2, eight or sixteen at once, or with word arithmetic where there is none.
//!
//! Each first bucket has a *stripe*: a spinlock and a version in one word. Whatever becomes of a key happens under its stripe
//! and steps the version:
//! ```text
//!   reader:  version ── layout ── tags ── slot ── version again: unchanged, so what was read is one state of the key
//!   writer:  lock ── find ── mark ── change ── unlock with the next version
//! ```
//! A write holds one stripe as a rule. The key's tags and slots are asked for before it is taken, so that the memory of one write
//! is waited for while the next one begins.
//!
//! A pair of plain data ([`Plain`], up to 80 bytes) lies in its slot and is copied as atomic words. Other types lie on the heap;
//! a reader announces itself to a collector (crate `seize`), follows the pointer, and what is taken out is freed when no reader
//! can be looking any more; [`CuckooMap::pin`] announces it once for a few dozen reads. [`Auto`] chooses slots for primitive types
//! and short arrays; [`Inline`] is for plain types of one's own.
//!
//! An insert that finds both buckets full searches breadth first, without a lock, for a short chain of keys that can go to
//! their other buckets, and moves them from the free end backwards, each under its own pair of stripes: no key is ever missing
//! on the way. After sixteen searches that other writers have spoilt it takes all stripes.
//!
//! To grow from *n* segments to *m* the table fills new segment 0 from the old ones it overlaps, then 1, and so on:
//! ```text
//!   old   |     0     |     1     |     2     |     3     |
//!   new   |   0    |   1    |   2  ...          new 0 and 1 are in force, 2 is being filled bucket by bucket:
//!                           ^^^^^^^^            its keys are looked for in old 1, old 2 and new 2
//! ```
//! and gives old segments back as soon as they have been passed, so that growth takes two segments more than the larger table.
//!
//! # The core
//! [`Table`] is what the map and the server's [`Index`] share: buckets of any [`Geometry`], locked changes, displacement, growth.
//!
//! After Li's dissertation (CMU 2016, chapter 3), MemC3 (NSDI'13) and, for the filter, Cuckoo++ (ANCS'18).

#![cfg_attr(any(loom, shuttle), allow(dead_code, reason = "a model uses what it is of"))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;

/// How much of something there is, and how much in shuttle's models, where few operations must come upon everything.
const fn modelled(really: usize, in_model: usize) -> usize {
    if cfg!(shuttle) { in_model } else { really }
}

mod growth;
mod index;
mod layout;
mod locked;
#[cfg(not(loom))]
mod map;
mod migration;
mod path;
mod probe;
mod read;
mod residence;
#[cfg(not(loom))]
mod scan;
mod segment;
mod steady;
mod table;
mod tags;

pub use growth::{GrowError, Growth};
pub use guira_sync::prefetch;
pub use index::{BUCKET_SLOTS, Bucket, Index, LockedPayload, Payloads, SEGMENT_BUCKETS, SEGMENT_BYTES, SEGMENT_SLOTS};
pub use locked::{Locked, Place};
#[cfg(not(loom))]
pub use map::{
    Auto, Boxed, Builder, Change, Changed, CuckooMap, Inline, Iter, ManyFull, Pinned, Plain, RandomState, ReserveError,
    Storage, TableFull, Ways, Width,
};
pub use probe::Probe;
pub use read::Contended;
pub use segment::{Geometry, SegmentSource};
pub use table::{Full, Table};
pub use tags::{HalfWord, OneWord, TagWords, TwoWords};

#[cfg(all(test, loom))]
mod forgery_loom_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod index_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, any(loom, shuttle)))]
mod model_heap;
#[cfg(all(test, any(loom, shuttle)))]
mod model_reads;
#[cfg(all(test, loom))]
mod reuse_loom_tests;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
