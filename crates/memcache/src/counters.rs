//! Numbers about commands, under memcached's names. Plain words: every worker has its own, the server adds them up.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($name:ident: $meaning:literal,)*) => {
        /// Numbers about commands, as `stats` shows them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $(#[doc = $meaning] pub $name: u64,)*
        }

        impl Counters {
            /// Name and number, in the order in which `stats` shows them.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }

        impl AddAssign<&Counters> for Counters {
            fn add_assign(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    cmd_get: "Keys asked for by get, gets and mg.",
    cmd_set: "Values that arrived whole to be stored.",
    cmd_flush: "flush_all commands, the refused ones too.",
    cmd_touch: "Keys touched by touch, gat and gats.",
    cmd_meta: "Meta commands.",
    get_hits: "Keys found by a read.",
    get_misses: "Keys not found by a read.",
    get_expired: "Keys whose item lay in memory and had expired, whatever asked for them.",
    get_flushed: "The same of items that a flush_all had removed.",
    delete_misses: "Deletes of what was not there.",
    delete_hits: "Deletes that removed something.",
    incr_misses: "incr of what was not there.",
    incr_hits: "incr that changed a number.",
    decr_misses: "decr of what was not there.",
    decr_hits: "decr that changed a number.",
    cas_misses: "cas of what was not there.",
    cas_hits: "cas that stored.",
    cas_badval: "cas with another version.",
    touch_hits: "Touched keys that were there.",
    touch_misses: "Touched keys that were not there.",
    store_too_large: "Values refused for their length.",
    store_no_memory: "Values refused for lack of memory.",
    auth_cmds: "Authentication attempts.",
    auth_errors: "Failed authentication attempts.",
}

macro_rules! class_counters {
    ($($counter:ident: $name:literal,)*) => {
        /// What is counted by slab class, under memcached's names and in the order of `stats slabs`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum ClassCounter {
            $(#[doc = concat!("`", $name, "` of [`Counters`], for the items of a class.")] $counter,)*
        }

        impl ClassCounter {
            /// The name of each.
            pub const NAMES: [&str; CLASS_COUNTERS] = [$($name),*];
        }
    };
}

class_counters! {
    GetHits: "get_hits",
    CmdSet: "cmd_set",
    DeleteHits: "delete_hits",
    IncrHits: "incr_hits",
    DecrHits: "decr_hits",
    CasHits: "cas_hits",
    CasBadval: "cas_badval",
    TouchHits: "touch_hits",
}

/// How many counters a class has: a cache line.
const CLASS_COUNTERS: usize = 8;

/// Slab classes have numbers below this (memcached's, which are fewer, below 64).
pub(crate) const CLASSES_MAX: usize = 256;

#[repr(align(64))]
#[derive(Debug, Default)]
struct ClassLine([AtomicU64; CLASS_COUNTERS]);

/// One worker's counts by slab class, a cache line a class. The worker alone counts; anyone may read meanwhile, so that there
/// are not thousands of numbers to be shown to others with every batch.
#[derive(Debug)]
pub struct ClassCounters {
    lines: Box<[ClassLine; CLASSES_MAX]>,
}

impl Default for ClassCounters {
    fn default() -> Self {
        Self { lines: Box::new(std::array::from_fn(|_| ClassLine::default())) }
    }
}

impl ClassCounters {
    /// One more. Class 0 stands for no class: nobody asks for it.
    #[inline]
    pub(crate) fn count(&self, class: u32, what: ClassCounter) {
        if let Some(line) = self.lines.get(class as usize) {
            let counter = &line.0[what as usize];
            // One writer: a plain addition in two steps.
            counter.store(counter.load(Relaxed) + 1, Relaxed);
        }
    }

    /// The counts of each class, in the order of [`ClassCounter::NAMES`].
    pub fn iter(&self) -> impl Iterator<Item = [u64; CLASS_COUNTERS]> {
        self.lines.iter().map(|line| std::array::from_fn(|index| line.0[index].load(Relaxed)))
    }
}
