//! What can go wrong with a map.

use std::fmt;

/// There is no room for a pair, which is given back: the map may not grow, memory is short, or half a bucket of keys, four in a map
/// of eight ways, has the very same hash already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull<K, V> {
    /// The key that was not stored.
    pub key: K,
    /// Its value.
    pub value: V,
}

impl<K, V> fmt::Display for TableFull<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the map has no room for the key: its capacity is fixed, memory is short, or too many keys have one hash",
        )
    }
}

impl<K: fmt::Debug, V: fmt::Debug> std::error::Error for TableFull<K, V> {}

/// Of many pairs some found no room: these, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManyFull<K, V> {
    /// The pair that found no room, and those of its batch behind it.
    pub rest: Vec<(K, V)>,
    /// New keys among those that were stored.
    pub inserted: usize,
}

impl<K, V> fmt::Display for ManyFull<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the map has no room for {} of a batch of pairs", self.rest.len())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> std::error::Error for ManyFull<K, V> {}

/// There is no memory for so many keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveError;

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system has no memory for a table of this capacity")
    }
}

impl std::error::Error for ReserveError {}
