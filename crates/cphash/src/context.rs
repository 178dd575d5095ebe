//! What an operation on a partition goes by, and what comes of it: settings, time, where memory comes from, answers, numbers.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use guira_item::{Answer, Death, EvictionLog, Footprints, Hit, Time};

use crate::{
    config::Config,
    element::{BODY_HEADER_LEN, Chunks, LINE_LEN, Slot},
    heap::{ClassId, Heap},
};

/// Bytes that an item counts besides key and value when it is compared with the largest.
const ITEM_HEADER_LEN: usize = 8;

/// What all partitions of an engine share.
pub(crate) struct Settings {
    pub config: Config,
    pub is_logging: AtomicBool,
    pub eviction_log: Mutex<Option<EvictionLog>>,
}

impl Settings {
    pub fn new(config: Config) -> Self {
        Self { config, is_logging: AtomicBool::new(false), eviction_log: Mutex::new(None) }
    }

    pub fn set_log(&self, log: Option<EvictionLog>) {
        self.is_logging.store(log.is_some(), Ordering::Relaxed);
        *self.eviction_log.lock().unwrap_or_else(PoisonError::into_inner) = log;
    }

    /// A version as clients know it.
    #[inline]
    pub fn shown(&self, version: u64) -> u64 {
        if self.config.versions_shown { version } else { 0 }
    }

    /// The shape of an item; `None` if it is larger than the largest.
    #[inline]
    pub fn shape(&self, key_len: usize, value_len: usize) -> Option<Shape> {
        if ITEM_HEADER_LEN + key_len + value_len > self.config.item_len_max {
            return None;
        }
        let head_len = LINE_LEN + BODY_HEADER_LEN + key_len;
        match ClassId::fitting(head_len + value_len) {
            Some(class) => Some(Shape { class, in_pieces: false }),
            None => Some(Shape { class: ClassId::fitting(head_len)?, in_pieces: true }),
        }
    }
}

/// How an item lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Class of its chunk, or of its head.
    pub class: ClassId,
    /// Its value lies in pieces.
    pub in_pieces: bool,
}

/// What an operation on a partition goes by.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    pub chunks: Chunks<'c>,
    pub settings: &'c Settings,
    pub now: Time,
}

/// Where a partition's memory comes from: its heap, or one that it shares with others.
pub(crate) trait Supply {
    /// A chunk, without evicting anything.
    fn allocate(&mut self, chunks: Chunks<'_>, class: ClassId) -> Option<Slot>;

    /// Takes chunks back.
    fn free(&mut self, chunks: Chunks<'_>, slots: impl Iterator<Item = Slot>);

    /// Counts an element whose value of so many bytes lies in pieces, while it is there.
    fn count_in_pieces(&mut self, value_len: usize, is_there: bool);

    /// Counts an eviction of `len` bytes.
    fn count_evicted(&mut self, class: ClassId, len: usize, is_fetched: bool);

    /// Counts an operation that found no memory.
    fn count_out_of_memory(&mut self, class: ClassId);
}

impl Supply for Heap {
    #[inline]
    fn allocate(&mut self, chunks: Chunks<'_>, class: ClassId) -> Option<Slot> {
        Heap::allocate(self, chunks, class)
    }

    #[inline]
    fn free(&mut self, chunks: Chunks<'_>, slots: impl Iterator<Item = Slot>) {
        slots.for_each(|slot| Heap::free(self, chunks, slot));
    }

    fn count_in_pieces(&mut self, value_len: usize, is_there: bool) {
        Heap::count_in_pieces(self, value_len, is_there);
    }

    fn count_evicted(&mut self, class: ClassId, len: usize, is_fetched: bool) {
        Heap::count_evicted(self, class, len, is_fetched);
    }

    fn count_out_of_memory(&mut self, class: ClassId) {
        Heap::count_out_of_memory(self, class);
    }
}

/// No chunk of a class is to be had by evicting elements of the partition one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shortage {
    pub class: ClassId,
    /// Pages that the whole element takes, rounded up.
    pub pages: usize,
}

/// What came of an operation.
pub(crate) enum Outcome {
    /// A read found this, and wants the value.
    Hit(Hit, Slot),
    /// A read found this, and wants no more.
    Metadata(Hit),
    /// Anything else.
    Answer(Answer, Footprints),
}

/// What came of a plain read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    Hit(Slot),
    Miss(Option<Death>),
}

/// Numbers of a partition, as [`guira_item::EngineStats`] has them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub total_items: u64,
    pub bytes: u64,
    pub reclaimed: u64,
    pub expired_unfetched: u64,
    pub crawler_reclaimed: u64,
    pub crawler_checked: u64,
    pub out_of_memory: u64,
    pub evicted: u64,
}

impl std::ops::AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.total_items, other.total_items),
            (&mut self.bytes, other.bytes),
            (&mut self.reclaimed, other.reclaimed),
            (&mut self.expired_unfetched, other.expired_unfetched),
            (&mut self.crawler_reclaimed, other.crawler_reclaimed),
            (&mut self.crawler_checked, other.crawler_checked),
            (&mut self.out_of_memory, other.out_of_memory),
            (&mut self.evicted, other.evicted),
        ] {
            *sum += more;
        }
    }
}
