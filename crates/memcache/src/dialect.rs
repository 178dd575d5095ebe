//! What a connection speaks, which the port it came to decides.

/// A client protocol. All of them are about the same items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// memcached's text commands, classic and meta.
    Memcached,
    /// CPSERVER's binary requests (`guira_cpwire`).
    Cp,
}

impl Dialect {
    /// Whether a client expects lines, and so can be told in one what is wrong.
    pub fn has_lines(self) -> bool {
        self == Self::Memcached
    }
}
