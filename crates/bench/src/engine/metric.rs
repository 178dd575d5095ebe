//! What the experiments measure.

use crate::server::report::{Better, Metric};

macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident: $name:literal, $unit:literal, $better:ident;)*) => {
        $($(#[$doc])* pub const $constant: Metric = Metric { name: $name, unit: $unit, better: Better::$better };)*
    };
}

metrics! {
    /// Bytes of index for each key at its fullest.
    BYTES_PER_KEY: "bytes-per-key", "B", Less;
    /// Keys held when the first insert failed.
    KEYS: "keys", "keys", Neither;
    /// Bytes of the index.
    INDEX_BYTES: "index-bytes", "B", Neither;
    /// Slots in use when the first insert failed.
    LOAD_FACTOR: "load-factor", "of slots", More;
    /// Inserts per second from empty to full.
    INSERTS: "inserts", "inserts/s", More;
    /// Keys in the fullest bucket.
    LARGEST_BUCKET: "largest-bucket", "keys", Neither;
    /// Keys that had to move for an insert, on average.
    DISPLACEMENTS: "displacements", "an insert", Less;
    /// Time of an insert.
    INSERT_NS: "insert-time", "ns", Less;
    /// Operations per second, all threads together.
    THROUGHPUT: "throughput", "ops/s", More;
    /// Operations per second of CPU time, summed over the threads: what the throughput would be on cores of one's own.
    PER_CPU: "per-cpu-second", "ops/CPU s", Neither;
    /// Throughput over that of one thread in the same round.
    SPEEDUP: "speedup", "x 1 thread", More;
    /// The same by CPU time.
    SPEEDUP_CPU: "speedup-per-cpu", "x 1 thread", Neither;
    /// Threads at which the throughput was best.
    BEST_THREADS: "best-threads", "threads", Neither;
    /// Items held at the end.
    ITEMS: "items", "items", More;
    /// The same, where it only describes.
    MISS_SHARE: "misses", "of gets", Neither;
    /// Share of the asked keys that were not found.
    MISS_RATIO: "miss-ratio", "of gets", Less;
}
