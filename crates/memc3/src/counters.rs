//! Counters of one worker: written by it alone, read by whoever asks for statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// What a worker counts. Differences wrap around; the sum over all workers is right.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    inner: CachePadded<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    total_items: AtomicU64,
    bytes: AtomicU64,
    reclaimed: AtomicU64,
    expired_unfetched: AtomicU64,
    crawler_reclaimed: AtomicU64,
    crawler_checked: AtomicU64,
    out_of_memory: AtomicU64,
}

macro_rules! counters {
    ($($name:ident: $doc:literal),+ $(,)?) => {
        impl Counters {
            $(
                #[doc = $doc]
                #[inline]
                pub fn $name(&self, more: u64) {
                    let counter = &self.inner.$name;
                    // One writer: a plain addition in two steps is enough, and cheaper than an atomic one.
                    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
                }
            )+
        }

        /// The sum over workers.
        #[derive(Clone, Copy, Default, Debug)]
        pub(crate) struct Totals {
            $(#[doc = $doc] pub $name: u64),+
        }

        impl Totals {
            /// Adds one worker's counters.
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.inner.$name.load(Ordering::Relaxed));)+
            }
        }
    };
}

counters! {
    total_items: "Items ever stored.",
    bytes: "Bytes of items held.",
    reclaimed: "Expired items whose memory was taken back.",
    expired_unfetched: "Of these, never read.",
    crawler_reclaimed: "Expired items freed by the crawler.",
    crawler_checked: "Items the crawler has looked at.",
    out_of_memory: "Requests refused for lack of memory.",
}
