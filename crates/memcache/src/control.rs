//! Commands that are not about single keys: what a session hands to the server instead of a request.

use guira_item::Time;

use crate::ClassSet;

/// A command the server carries out once everything before it has been answered. Unless it says otherwise the answer is
/// one line, left out if `noreply`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control<'a> {
    /// `stats ...`. Never noreply.
    Stats(Stats<'a>),
    /// `flush_all`: from `at` on, nothing older is visible. Answer: `OK`.
    FlushAll {
        /// When it takes effect: now or later.
        at: Time,
        /// No answer.
        noreply: bool,
    },
    /// `version`. Answer: `VERSION 1.6...`.
    Version,
    /// `verbosity`. Answer: `OK`.
    Verbosity {
        /// As with `-v`.
        level: u32,
        /// No answer.
        noreply: bool,
    },
    /// `shutdown`: memcached closes this connection without an answer and stops.
    Shutdown {
        /// Let connections finish first.
        graceful: bool,
    },
    /// `lru_crawler ...`. Answer: `OK`, except for the dumps.
    Crawler(Crawler),
    /// `slabs reassign`. Answer: `OK`, or why not.
    SlabsReassign {
        /// Class to take a page from; -1: any.
        source: i32,
        /// Class to give it to.
        destination: i32,
    },
    /// `watch`: the connection becomes a watcher. Answer: `OK`, then log lines until it closes.
    Watch {
        /// What is watched.
        set: WatchSet,
    },
    /// `cache_memlimit`. Answer: `OK`, or `MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust`.
    CacheMemlimit {
        /// Megabytes, from 8 to 1e9.
        megabytes: u32,
        /// No answer.
        noreply: bool,
    },
}

/// A sub-command of `stats`. The answer ends with `END` unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stats<'a> {
    /// `stats`: about the server.
    General,
    /// `stats settings`.
    Settings,
    /// `stats items`.
    Items,
    /// `stats slabs`.
    Slabs,
    /// `stats sizes`.
    Sizes,
    /// `stats sizes_enable`. Answer: one line, no `END`.
    SizesEnable,
    /// `stats sizes_disable`. Answer: one line, no `END`.
    SizesDisable,
    /// `stats conns`.
    Conns,
    /// `stats reset`. Answer: `RESET`.
    Reset,
    /// `stats detail on|off`. Answer: `OK`.
    DetailSwitch {
        /// On or off.
        on: bool,
    },
    /// `stats detail dump`.
    DetailDump,
    /// `stats cachedump <class> <limit>`: `ITEM <key> [<bytes> b; <unix time> s]` each.
    Cachedump {
        /// Slab class, 0 to 255.
        class: u32,
        /// At most so many; 0: no limit.
        limit: u32,
    },
    /// Another word, for what the server itself may add. Answer if it does not know it: `ERROR`.
    Other(&'a [u8]),
}

/// A sub-command of `lru_crawler`. What tunes memcached's crawler is checked and answered with `OK`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crawler {
    /// `lru_crawler enable`.
    Enable,
    /// `lru_crawler disable`.
    Disable,
    /// `lru_crawler sleep <microseconds>`.
    Sleep {
        /// At most a second.
        micros: u32,
    },
    /// `lru_crawler tocrawl <items>`.
    ToCrawl {
        /// Items a run.
        items: u32,
    },
    /// `lru_crawler crawl <classes>`: look for expired items now.
    Crawl {
        /// Where to look: at least one class.
        classes: ClassSet,
    },
    /// `lru_crawler metadump <classes>`: a line an item, then `END`.
    Metadump {
        /// Whose items: at least one class; all of them for `hash` too.
        classes: ClassSet,
    },
}

/// What a watcher wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WatchSet {
    /// Commands as they come in.
    pub rawcmds: bool,
    /// Items removed to make room.
    pub evictions: bool,
    /// Keys read. The default.
    pub fetchers: bool,
    /// Items stored.
    pub mutations: bool,
    /// What happens in the server.
    pub sysevents: bool,
    /// Connections opened and closed.
    pub connevents: bool,
    /// Proxy requests (accepted; there are none).
    pub proxyreqs: bool,
    /// Proxy events (accepted; there are none).
    pub proxyevents: bool,
    /// Proxy users' events (accepted; there are none).
    pub proxyuser: bool,
}
