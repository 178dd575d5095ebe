//! What the experiments measure: names, units, and which way is better.

use serde::{Deserialize, Serialize};

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
    /// It only describes; no ratio is made of it.
    Neither,
}

/// Something measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name in reports and file names.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident: $name:literal, $unit:literal, $better:ident;)*) => {
        $($(#[$doc])* pub const $constant: Metric = Metric { name: $name, unit: $unit, better: Better::$better };)*
    };
}

// Servers, over the network.
metrics! {
    /// Keys asked for or written per second.
    THROUGHPUT: "throughput", "keys/s", More;
    /// The server's CPU time (user and system, all threads) per million keys.
    SERVER_CPU: "server-cpu", "CPU s/M keys", Less;
    /// Share of a core (or of several) that the server used.
    SERVER_BUSY: "server-busy", "cores", Neither;
    /// Share of a core (or of several) that the generator used.
    GENERATOR_BUSY: "generator-busy", "cores", Neither;
    /// Share of the asked keys that were found.
    HIT_RATIO: "hit-ratio", "of gets", Neither;
    /// Share of the asked keys that were not found.
    MISS_RATIO: "miss-ratio", "of gets", Less;
    /// Median latency of a turn.
    P50: "p50", "us", Neither;
    /// 99th percentile of a turn's latency.
    P99: "p99", "us", Less;
    /// 99.9th percentile of a turn's latency.
    P999: "p999", "us", Neither;
    /// 99.99th percentile of a request's latency.
    P9999: "p9999", "us", Less;
    /// The longest wait for an answer.
    LONGEST: "longest", "us", Less;
    /// The 99th percentile over the same server's without what disturbs it, in the same round.
    P99_RATIO: "p99-ratio", "x alone", Less;
    /// What a disturber did to the server.
    HOSTILE_ACTS: "hostile-acts", "1/s", Neither;
    /// Resident memory of the server.
    RSS: "rss", "MiB", Neither;
    /// Resident memory over the promise of `-m`.
    RSS_OVER_LIMIT: "rss-over-limit", "x -m", Neither;
    /// Items held at the end.
    ITEMS: "items", "items", More;
    /// The memory limit divided by the items held.
    BYTES_PER_ITEM: "bytes-per-item", "B", Less;
    /// Throughput over LOCKSERVER's in the same round.
    OVER_LOCKSERVER: "over-lockserver", "x lockserver", More;
    /// Throughput over memcached's in the same round.
    OVER_MEMCACHED: "over-memcached", "x memcached", More;
    /// The highest rate that met the target.
    RATE: "rate", "turns/s", More;
}

// Index and cache, in process.
metrics! {
    /// Bytes of index for each key at its fullest.
    BYTES_PER_KEY: "bytes-per-key", "B", Less;
    /// The least of several [`BYTES_PER_KEY`].
    LEAST_BYTES_PER_KEY: "least-bytes-per-key", "B", Neither;
    /// The most of them.
    MOST_BYTES_PER_KEY: "most-bytes-per-key", "B", Neither;
    /// Keys held when the first insert failed.
    KEYS: "keys", "keys", Neither;
    /// Bytes of the index.
    INDEX_BYTES: "index-bytes", "B", Neither;
    /// Slots in use when the first insert failed.
    LOAD_FACTOR: "load-factor", "of slots", More;
    /// Inserts per second from empty to full.
    INSERTS: "inserts", "inserts/s", More;
    /// Lookups per second beside inserts that are plotted apart.
    LOOKUPS: "lookups", "lookups/s", More;
    /// Keys in the fullest bucket.
    LARGEST_BUCKET: "largest-bucket", "keys", Neither;
    /// Keys that had to move for an insert, on average.
    DISPLACEMENTS: "displacements", "per insert", Less;
    /// Time of an insert.
    INSERT_NS: "insert-time", "ns", Less;
    /// Operations per second, all threads together.
    OPERATIONS: "throughput", "ops/s", More;
    /// Operations per second of CPU time, summed over the threads: what the throughput would be on cores of one's own.
    PER_CPU: "per-cpu-second", "ops/CPU s", Neither;
    /// Throughput over that of one thread in the same round.
    SPEEDUP: "speedup", "x 1 thread", More;
    /// The same by CPU time.
    SPEEDUP_CPU: "speedup-per-cpu", "x 1 thread", Neither;
    /// Throughput over that of the same with what it has by default, in the same round.
    OVER_DEFAULT: "over-default", "x default", More;
    /// Operations per second with the number of threads that does most.
    HIGHEST: "highest-throughput", "ops/s", More;
    /// Threads at which the throughput was best.
    BEST_THREADS: "best-threads", "threads", Neither;
    /// Words of 64 bits in a line of requests to a partition.
    WORDS_PER_LINE: "words-per-line", "words", More;
    /// Cache lines of messages that change hands for each operation, in both directions.
    LINES_PER_OPERATION: "lines-per-operation", "lines/op", Less;
    /// Throughput over LOCKHASH's on the same cores, in the same round.
    OVER_LOCKHASH: "over-lockhash", "x lockhash", More;
    /// Ticks of the processor's own clock that a thread spends for each operation.
    CYCLES_PER_OPERATION: "cycles-per-operation", "cycles/op", Less;
    /// Cache lines that the processor did not find in its last cache, of all threads, for each operation.
    MISSES_PER_OPERATION: "misses-per-operation", "misses/op", Less;
    /// Ticks of the processor's own clock that a server thread spends on each message it serves.
    CYCLES_PER_MESSAGE: "cycles-per-message", "cycles/message", Less;
    /// Messages that server threads serve for each operation.
    MESSAGES_PER_OPERATION: "messages-per-operation", "messages/op", Neither;
    /// Share of its time that a thread has something to do.
    BUSY: "busy", "of its time", Neither;
    /// [`MISS_RATIO`] where it only describes.
    MISS_SHARE: "misses", "of gets", Neither;
}

// Restarts.
metrics! {
    /// Time to save what an engine has.
    SAVE: "save", "s", Less;
    /// Time to load it into a new one.
    LOAD: "load", "s", Less;
}

// Stores.
metrics! {
    /// Operations per second over those of RocksDB called directly, in the same round.
    OVER_ROCKSDB: "over-rocksdb", "x rocksdb", More;
    /// Share of the reads that took no input.
    AT_ONCE: "at-once", "of reads", Neither;
    /// Records that share a sync.
    WRITES_PER_SYNC: "writes-per-sync", "writes/sync", More;
    /// Operations per second over those with `--durability os`, in the same round.
    OVER_OS: "over-os", "x os", More;
    /// Throughput over that of the same server without a store, in the same round.
    OVER_IN_MEMORY: "over-in-memory", "x in-memory", More;
    /// Share of the asked keys that the store was asked for.
    STORE_READS: "store-reads", "of gets", Neither;
    /// Share of the asked keys for which the store needed its disk, or the system's memory of it.
    STORE_WAITS: "store-waits", "of gets", Neither;
    /// Reads a second that wait for the store, beside what is measured.
    SLOW_READS: "slow-reads", "1/s", Neither;
    /// The median time that they take.
    SLOW_P50: "slow-p50", "us", Neither;
    /// From the start of the process to its first answer.
    START: "start", "s", Less;
    /// Log that is replayed at the start.
    LOG: "log", "MiB", Neither;
    /// Data on disk.
    ON_DISK: "on-disk", "MiB", Neither;
}

// Messages between cores.
metrics! {
    /// From the first message of a window to its last reply, for each message of it.
    ROUND_TRIP_NS: "round-trip", "ns/message", Less;
    /// The same by the processor's own clock.
    ROUND_TRIP_CYCLES: "round-trip-cycles", "cycles/message", Neither;
    /// The same over what a cache line takes from one core to the other, in the same round.
    ROUND_TRIP_TRANSFERS: "round-trip-transfers", "transfers/message", Less;
    /// Messages answered per second.
    MESSAGES: "messages", "messages/s", More;
    /// Lines of messages and replies that change hands for each message.
    LINES_PER_MESSAGE: "lines-per-message", "lines/message", Less;
}

// Clusters.
metrics! {
    /// Throughput over that of the gateway that asks no cache node, in the same round.
    OVER_NO_CACHE: "over-no-cache", "x no cache", More;
    /// What backends have done over what they can do together.
    BACKENDS_BUSY: "backends-busy", "of their limit", Neither;
    /// Share of the reads that cache nodes have answered.
    CACHE_HITS: "cache-hits", "of gets", Neither;
    /// Share of the reads that crossed a cache node and were not answered there.
    PASSED_ON: "passed-on", "of gets", Neither;
    /// Operations of the busiest backend over those of all on average.
    BUSIEST_BACKEND: "busiest-backend", "x mean", Neither;
    /// Items at cache nodes.
    CACHED: "cached", "items", Neither;
    /// Reads answered per second in a stretch of time.
    SERVED: "served", "gets/s", More;
    /// The same before what is looked at.
    SERVED_BEFORE: "served-before", "gets/s", Neither;
    /// The least of a stretch of time.
    SERVED_LEAST: "served-least", "gets/s", Neither;
    /// Until nine tenths of what was before are served again.
    BACK_AFTER: "back-after", "s", Neither;
    /// Answers that were errors.
    FAILED: "failed", "answers", Less;
    /// Instructions of a backend's process for each read.
    INSTRUCTIONS: "instructions", "instr/read", Neither;
    /// Share of them that trackers take.
    TRACKERS: "trackers", "of instructions", Less;
}

// Symmetric clusters.
metrics! {
    /// Share of the requests that the node which was asked has answered by what is hot there.
    HOT_HITS: "hot-hits", "of requests", Neither;
    /// Share of the requests that the node which was asked has sent to their key's home.
    FORWARDED: "forwarded", "of requests", Neither;
    /// Messages from node to node for each request: requests, their answers, and what keeps hot keys the same.
    MESSAGES_PER_REQUEST: "messages-per-request", "messages/request", Less;
    /// The same over that of the cluster without hot keys, in the same round.
    MESSAGES_OVER_NO_CACHE: "messages-over-no-cache", "x no cache", Less;
    /// Requests and answers from node to node for each request that was sent to its key's home.
    MESSAGES_PER_MISS: "messages-per-miss", "messages/forwarded", Less;
    /// Messages that keep hot keys the same, for each request.
    CONSISTENCY_MESSAGES: "consistency-messages", "messages/request", Neither;
    /// Packets from node to node for each message.
    PACKETS_PER_MESSAGE: "packets-per-message", "packets/message", Less;
    /// Keys a second that come to be hot.
    PROMOTED: "promoted", "keys/s", Neither;
    /// Throughput over that of the same cluster that sends each message by itself, in the same round.
    OVER_UNCOALESCED: "over-uncoalesced", "x uncoalesced", More;
    /// Throughput over that with SC, in the same round.
    OVER_SC: "over-sc", "x sc", More;
    /// Throughput over that of shards that are each a thread's own, in the same round.
    OVER_EREW: "over-erew", "x erew", More;
    /// Share of all nodes' CPU time that one of them has used.
    NODE_CPU: "node-cpu", "of all nodes'", Neither;
    /// CPU time of the busiest node over what nodes have used on average.
    BUSIEST_NODE: "busiest-node", "x mean", Less;
    /// The longest that anybody has waited for a key's answer, in lease times.
    LONGEST_PAUSE: "longest-pause", "leases", Less;
    /// Share of the keys that somebody has waited for longer than half a lease.
    PAUSED_KEYS: "paused-keys", "of keys", Neither;
    /// 99.9th percentile of the wait before what is looked at.
    P999_BEFORE: "p999-before", "us", Neither;
    /// [`P999`] over that.
    P999_OVER_BEFORE: "p999-over-before", "x before", Less;
}

// Routers.
metrics! {
    /// Packets that a core routes per second: of a program in the kernel, its core's; of a process, a second of its CPU time.
    PACKETS: "packets", "packets/s", More;
    /// The program alone, for each packet.
    PACKET_NS: "packet-time", "ns/packet", Less;
    /// Packets per second over those of the gateway's router, in the same round.
    OVER_GATEWAY: "over-gateway", "x gateway", More;
    /// Packets per second of a program that only forwards over those of the router, in the same round.
    FORWARDING_OVER: "forwarding-over", "x router", Less;
    /// Gets that a gateway answers in a second of its CPU time.
    GETS_PER_CPU: "gets-per-cpu-second", "gets/CPU s", Neither;
    /// Rules made and taken back per second.
    UPDATES: "updates", "updates/s", More;
    /// Rules made per second.
    MADE: "made", "rules/s", More;
    /// Rules taken back per second.
    TAKEN_BACK: "taken-back", "rules/s", More;
    /// Until a switch has what it is to have, and nothing else.
    AGREED_AFTER: "agreed-after", "ms", Less;
    /// The longest of all rounds.
    AGREED_AT_WORST: "agreed-at-worst", "ms", Less;
    /// The part of it after the switch has called and said who it is, which is told when others have had their turn: at least.
    SINCE_IT_CALLED: "since-it-called", "ms", Neither;
}
