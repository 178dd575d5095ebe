//! Guira's map and the crates that it is compared with. All hash with rapidhash, seeded at random, so that none is slow for its hash;
//! those that come with a slower hash are there with that too, as most of their users have them.

use std::hash::BuildHasher;

pub(super) mod dashmap;
pub(super) mod guira_map;
pub(super) mod locked;
pub(super) mod no_map;
pub(super) mod papaya;
pub(super) mod scc;
pub(super) mod step_cuckoo;

pub(super) use rapidhash::fast::RandomState;
/// The standard library's `RandomState`: SipHash-1-3, seeded at random.
pub(super) use std::hash::RandomState as SipHash;

/// How a map hashes.
pub(super) trait Hashing: BuildHasher + Default + Clone + Send + Sync + 'static {}

impl<S: BuildHasher + Default + Clone + Send + Sync + 'static> Hashing for S {}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
