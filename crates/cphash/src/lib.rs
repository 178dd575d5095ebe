//! The engines of CPHASH (Metreveli, Zeldovich, Kaashoek, PPoPP'12): a hash table split into partitions, each a single-threaded
//! table with an order of use and memory of its own.
//!
//! ```text
//! Cphash:    clients ── messages ──> stations ── partition + heap          (a server thread for some stations)
//! Lockhash:  threads ── lock ──────> partitions ── a heap for some of them
//!                                         └── elements in pages of 64 KiB in one Arena of `-m` bytes
//! ```
//! - [`Cphash`]: operations go to where the data is, as messages in cache lines.
//! - [`Lockhash`]: the same partitions behind locks, the fair baseline; [`BucketLockhash`] has locks in their buckets too.
//!
//! Always true:
//! - everything that grows with the number of items counts against `-m`: elements in the arena's pages, and the buckets;
//! - whoever touches a partition's elements has the partition: as its server, or by its lock; a client that only has a reference
//!   reads key and value, which do not change while it has it;
//! - locks are taken in this order: partition or station, heap, pool of pages; of partitions one at a time, or a group's in order;
//!   where buckets have locks see `lockhash`.

#![cfg_attr(shuttle, allow(dead_code, reason = "a model uses what it is of"))]

/// How much of something there is, and how much in shuttle's models, where few operations must come upon everything.
const fn modelled(really: usize, in_model: usize) -> usize {
    if cfg!(shuttle) { in_model } else { really }
}

mod balance;
mod batch;
mod bucket_reads;
mod client;
mod config;
mod context;
mod cphash;
mod crew;
mod direct;
mod element;
mod element_ops;
mod group;
mod heap;
mod lockhash;
mod message;
mod partition;
mod pin;
mod shards;
mod station;
mod table;
mod traffic;

pub use client::Worker as CphashWorker;
pub use config::{Config, ConfigError, Eviction};
pub use cphash::Cphash;
pub use lockhash::{BucketLockhash, LockedPartitions, Lockhash, Worker as LockhashWorker};
pub use station::Served;
pub use traffic::{ClientCycles, Traffic};

#[cfg(test)]
mod cphash_tests;
#[cfg(test)]
mod lockhash_tests;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
