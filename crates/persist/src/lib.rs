//! What outlives the process.
//!
//! ```text
//! MemoryFile   the items of an engine in a file, over a restart
//!   └── format how that file is written and read; knows no engine
//! ```
#![forbid(unsafe_code)]

pub mod format;
mod memory_file;

pub use format::FormatError;
pub use memory_file::{Loaded, MemoryFile, MemoryFileError, Saved};
