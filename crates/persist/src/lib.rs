//! What outlives the process.
//!
//! ```text
//! MemoryFile   the items of an engine in a file, over a restart
//!   └── format how that file is written and read; knows no engine
//! WriteThrough an engine before a store, as a service
//! Limited      a store that does at most so many operations a second
//! dump         the items of a store as a memory file, and back
//! BackupSocket through which a server is asked for a copy of its store
//! RocksStore   the items themselves, on one machine's disk (feature `rocksdb`); looked at and copied while no server has it
//! CassandraStore the items in a Cassandra, on many machines (feature `cassandra`)
//!   └── record, state  how an item, and what a store keeps beside the items, are written as bytes
//! ```
#![forbid(unsafe_code)]

pub mod backup_socket;
#[cfg(feature = "cassandra")]
pub mod cassandra;
pub mod dump;
mod durability;
mod folder;
pub mod format;
mod limited;
mod memory_file;
mod memory_store;
mod pace;
mod partition;
#[cfg(feature = "rocksdb")]
mod queue;
pub mod record;
#[cfg(feature = "rocksdb")]
pub mod rocks;
#[cfg(any(feature = "rocksdb", feature = "cassandra"))]
mod state;
mod write_through;

pub use durability::Durability;
pub use format::FormatError;
pub use limited::Limited;
pub use memory_file::{Loaded, MemoryFile, MemoryFileError, Saved};
pub use memory_store::{Fault, MemoryStore};
pub use pace::Limit;
pub use partition::hash_partition;
pub use write_through::{ClockNow, WriteThrough, WriteThroughConfig};

/// Reads the wall clock: Unix time in seconds.
pub type UnixNow = std::sync::Arc<dyn Fn() -> u64 + Send + Sync>;
