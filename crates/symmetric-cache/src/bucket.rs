//! Buckets: which keys are here, by a tag of their hash, and where their records are.
//!
//! Always true: entries change only while the stamp says so, and the stamp is another after each change; it is the writer's alone to change.

use guira_sync::atomic::{AtomicU64, Ordering, fence};

use crate::segments::Unit;

/// Entries of a bucket: with the stamp a cache line.
pub(crate) const ENTRIES: usize = 7;

/// Entries for each key there may be: with buckets filled to 2 of 7 on average, one key in a thousand finds none.
const KEYS_A_BUCKET: usize = 2;

const CHANGING: u64 = 1;
const HAS_MORE: u64 = 2;
const STEP: u64 = 4;

/// A key's place in a bucket.
///
/// ```text
/// bit 63: taken | 62: has a record | 47 ... 32: tag | 31 ... 0: unit
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) const FREE: Self = Self(0);
    const TAKEN: u64 = 1 << 63;
    const HAS_RECORD: u64 = 1 << 62;
    const TAG_SHIFT: u32 = 32;

    pub(crate) fn new(hash: u64, record: Option<Unit>) -> Self {
        let tagged = Self::TAKEN | u64::from(hash as u16) << Self::TAG_SHIFT;
        Self(record.map_or(tagged, |Unit(unit)| tagged | Self::HAS_RECORD | u64::from(unit)))
    }

    /// Whether it may be a key's with this hash.
    pub(crate) fn is_tagged(self, hash: u64) -> bool {
        self.0 & Self::TAKEN != 0 && (self.0 >> Self::TAG_SHIFT) as u16 == hash as u16
    }

    pub(crate) fn record(self) -> Option<Unit> {
        (self.0 & Self::HAS_RECORD != 0).then_some(Unit(self.0 as u32))
    }
}

/// A bucket.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Bucket {
    stamp: AtomicU64,
    entries: [AtomicU64; ENTRIES],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

/// A bucket's stamp, as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// There are keys that found no entry.
    pub(crate) fn has_more(self) -> bool {
        self.0 & HAS_MORE != 0
    }
}

impl Bucket {
    fn new() -> Self {
        Self { stamp: AtomicU64::new(0), entries: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// What a reader begins with; `None`: it is being changed.
    #[inline]
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        // Acquire: pairs with the Release store in `change`; what was changed before is seen, and what was done before that.
        let stamp = self.stamp.load(Ordering::Acquire);
        (stamp & CHANGING == 0).then_some(Stamp(stamp))
    }

    /// Whether nothing has changed since, of all that was read meanwhile. The caller has put an Acquire fence between, which pairs with the Release fence in `change`.
    #[inline]
    pub(crate) fn is_still(&self, Stamp(stamp): Stamp) -> bool {
        self.stamp.load(Ordering::Relaxed) == stamp
    }

    #[inline]
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.entries.iter().map(|entry| Entry(entry.load(Ordering::Relaxed)))
    }

    /// Whose entries the writer may take.
    pub(crate) fn free_entry(&self) -> Option<usize> {
        self.entries().position(|entry| entry == Entry::FREE)
    }

    /// The writer's: changes an entry, if one is named, and says whether there are more keys than entries.
    pub(crate) fn change(&self, entry: Option<(usize, Entry)>, has_more: bool) {
        let stamp = self.stamp.load(Ordering::Relaxed) & !HAS_MORE;
        self.stamp.store(stamp | CHANGING, Ordering::Relaxed);
        // Release: pairs with readers' Acquire fences; who sees what is stored from here on sees that the stamp is another.
        fence(Ordering::Release);
        if let Some((at, Entry(entry))) = entry {
            self.entries[at].store(entry, Ordering::Relaxed);
        }
        let more = if has_more { HAS_MORE } else { 0 };
        // Release: pairs with the Acquire load in `stamp`.
        self.stamp.store(stamp.wrapping_add(STEP) | more, Ordering::Release);
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Buckets {
    buckets: Box<[Bucket]>,
}

impl Buckets {
    pub(crate) fn new(keys_max: usize) -> Self {
        let buckets = keys_max.div_ceil(KEYS_A_BUCKET).next_power_of_two();
        Self { buckets: (0..buckets).map(|_| Bucket::new()).collect() }
    }

    /// The bucket of a hash, of which its lowest bits are the tag.
    #[inline]
    pub(crate) fn number(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> &Bucket {
        &self.buckets[number]
    }
}
