//! The MemC3 engine (Fan, Andersen, Kaminsky, NSDI'13): a cache in memory under a hard limit, many readers and writers.
//!
//! ```text
//! Memc3 ── guira_cuckoo::Index ── payload (32 bits) ──> Place of an item
//!    │            └── segments ┐
//!    └── Slabs ── classes ── pages of 64 KiB in one Arena of `-m` bytes
//! ```
//! Always true:
//! - everything that grows with the number of items, index included, lies in the arena; the arena never grows;
//! - what a payload names changes, or is used for something else, only after its key's stripe has been marked as being
//!   written; readers copy with atomic loads and believe the copy only if the stripe did not change;
//! - a GET writes no shared memory, but for the first one after an item was stored or after the eviction hand passed it, a large
//!   value's references, and strict LRU's list;
//! - locks are taken in this order: class, then pool; stripes are taken while holding neither, and neither while holding
//!   stripes.

mod config;
mod counters;
mod crawler;
mod engine;
mod eviction;
mod item;
mod large;
mod lending;
mod magazine;
mod page_set;
mod policy;
mod read;
mod rebalance;
mod size_classes;
mod slabs;
mod sweep;
mod versions;
mod write;

pub use config::{Config, ConfigError, Eviction};
pub use engine::{Memc3, Worker};

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod eviction_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod stress_tests;
