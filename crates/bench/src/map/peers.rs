//! Guira's map and the crates that it is compared with. All hash with rapidhash, seeded at random, so that none is slow for its hash.

pub(super) mod dashmap;
pub(super) mod guira_map;
pub(super) mod locked;
pub(super) mod no_map;
pub(super) mod papaya;
pub(super) mod scc;
pub(super) mod step_cuckoo;

pub(super) use rapidhash::fast::RandomState;

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
