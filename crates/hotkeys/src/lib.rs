//! Trackers of hot keys, as SwitchKV has them (NSDI 2016, sections 3.2.1 and 3.2.2).
//!
//! ```text
//! at a backend, for each query
//!   Sampler ----> TopKeys       the keys with the most load, smoothed over segments of time
//!                   SpaceSaving   counts of one segment: so many keys at most, O(1) a query
//!   BurstLog                    how often a key is among the last queries: who has just become hot
//! at a cache node
//!   KeyLoad                     the load of a key that is cached, in the same units
//!   admission_threshold         the load from which on another one is worth its place
//! ```
//! No input or output, no clock and no randomness of its own: segments are ended by whoever has the time, and seeds are given. So a run
//! repeats itself. Memory is bounded by the keys that a tracker is made for and the longest there are, whatever comes; a key's hash is seeded, so that nobody who does
//! not know the seed can choose keys that are slow to find.
#![forbid(unsafe_code)]

mod burst_log;
mod key_slots;
mod load;
mod sampler;
mod space_saving;
mod threshold;
mod top_keys;

pub use burst_log::BurstLog;
pub use key_slots::{HashedKey, KeyHasher};
pub use load::{Alpha, KeyLoad};
pub use sampler::Sampler;
pub use space_saving::{Count, SpaceSaving};
pub use threshold::admission_threshold;
pub use top_keys::{HotKey, TopKeys};
