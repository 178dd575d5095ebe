//! Why a store cannot be opened: one line for whoever has given its address.

use std::fmt;

use crate::state;

/// Why a store cannot be opened; in words for whoever has given its address.
#[derive(Debug)]
pub enum CassandraError {
    /// No node answers.
    Unreachable(String),
    /// A node says no.
    Failed(String),
    /// Another server has it.
    InUse(String),
    /// It was written by another version of guira.
    OtherFormat(u32),
    /// What is there is not what a store writes.
    Damaged,
    /// The system gives no threads.
    Threads(std::io::Error),
}

impl fmt::Display for CassandraError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(told) => write!(f, "cannot be reached ({told})"),
            Self::Failed(told) => write!(f, "cannot be used ({told})"),
            Self::InUse(holder) => write!(f, "is in use by {holder}: stop that one, or choose another keyspace"),
            Self::OtherFormat(found) => {
                write!(f, "is of format {found}, and this guira reads {}: use the version that wrote it", state::FORMAT)
            }
            Self::Damaged => f.write_str("has a state that no guira has written"),
            Self::Threads(error) => write!(f, "cannot be used: no thread could be started ({error})"),
        }
    }
}

impl std::error::Error for CassandraError {}
