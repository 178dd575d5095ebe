//! Where RocksDB's store has its state: under one key of a column family of its own, where no merge looks for dead items.

pub(super) use crate::state::{FORMAT, StateError, decode, encode};

/// The column family.
pub(super) const FAMILY: &str = "guira";

/// The only key in it.
pub(super) const KEY: &[u8] = b"state";
