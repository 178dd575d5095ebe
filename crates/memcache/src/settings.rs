//! What an operator may switch: the part of the server's options that the protocol itself obeys.

use crate::Credentials;

/// The largest item unless `-I` says otherwise, in bytes: 1 MiB, as in memcached.
const ITEM_LEN_MAX_DEFAULT: usize = 1 << 20;

/// Shared by all sessions; nothing but the credentials changes while the server runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest item in bytes (`-I`), counted as memcached counts it: its 48-byte header, key and value. What a client
    /// announces beyond that is swallowed unread.
    pub item_len_max: usize,
    /// Versions are kept (off with `-C`).
    pub cas_enabled: bool,
    /// `flush_all` is allowed (off with `-F`).
    pub flush_enabled: bool,
    /// `stats cachedump` and `lru_crawler metadump` are allowed (off with `-X`).
    pub dump_enabled: bool,
    /// `watch` is allowed (off with `-W`).
    pub watch_enabled: bool,
    /// `shutdown` is allowed (on with `-A`).
    pub shutdown_enabled: bool,
    /// Clients must first authenticate with one of these (`-Y`).
    pub auth: Option<Credentials>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            item_len_max: ITEM_LEN_MAX_DEFAULT,
            cas_enabled: true,
            flush_enabled: true,
            dump_enabled: true,
            watch_enabled: true,
            shutdown_enabled: false,
            auth: None,
        }
    }
}
