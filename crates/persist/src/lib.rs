//! What outlives the process.
//!
//! ```text
//! MemoryFile   the items of an engine in a file, over a restart
//!   └── format how that file is written and read; knows no engine
//! WriteThrough an engine before a store, as a service
//! RocksStore   the items themselves, on one machine's disk (feature `rocksdb`)
//!   └── record how an item is written as a value
//! ```
#![forbid(unsafe_code)]

mod durability;
pub mod format;
mod memory_file;
mod memory_store;
mod partition;
#[cfg(feature = "rocksdb")]
mod queue;
pub mod record;
#[cfg(feature = "rocksdb")]
pub mod rocks;
mod write_through;

pub use durability::Durability;
pub use format::FormatError;
pub use memory_file::{Loaded, MemoryFile, MemoryFileError, Saved};
pub use memory_store::{Fault, MemoryStore};
pub use partition::hash_partition;
pub use write_through::{ClockNow, WriteThrough, WriteThroughConfig};
