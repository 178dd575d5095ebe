//! Where records are: segments of words, each taken from the system when the first record comes into it.
//!
//! ```text
//! unit (64 bytes):  number = segment x units of a segment + unit in it
//! ```
//! Always true: a segment stays where it is, and a record lies in one.

use std::sync::OnceLock;

use guira_sync::atomic::AtomicU64;

/// Words of a unit.
pub(crate) const UNIT_WORDS: usize = 8;

/// Bytes of a unit: a cache line.
pub(crate) const UNIT_LEN: usize = UNIT_WORDS * size_of::<u64>();

/// Bytes of a segment at least: so that one is seldom taken.
const SEGMENT_LEN_MIN: usize = if cfg!(loom) { 4 * UNIT_LEN } else { 1 << 20 };

/// A unit, of all segments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Unit(pub(crate) u32);

/// All segments.
#[derive(Debug)]
pub(crate) struct Segments {
    segments: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Units of a segment are two to this.
    order: u32,
}

impl Segments {
    /// For so many bytes of records, of which none is longer than `record_len_max`.
    pub(crate) fn new(len_max: usize, record_len_max: usize) -> Self {
        let segment_len = record_len_max.next_power_of_two().max(SEGMENT_LEN_MIN);
        let order = (segment_len / UNIT_LEN).ilog2();
        // Units have 32 bits.
        let segments = (len_max / segment_len).clamp(1, 1 << (32 - order));
        Self { segments: (0..segments).map(|_| OnceLock::new()).collect(), order }
    }

    /// How many there may be.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Units of a segment are two to this.
    pub(crate) fn order(&self) -> u32 {
        self.order
    }

    /// The words from a unit to the end of its segment; `None`: nothing has ever been there.
    #[inline]
    pub(crate) fn words(&self, Unit(unit): Unit) -> Option<&[AtomicU64]> {
        let segment = self.segments.get((unit >> self.order) as usize)?.get()?;
        Some(&segment[self.first_word(unit)..])
    }

    /// The same, of a segment that may not have been taken yet.
    ///
    /// # Panics
    /// There is no such unit.
    pub(crate) fn words_to_write(&self, Unit(unit): Unit) -> &[AtomicU64] {
        let words = UNIT_WORDS << self.order;
        let taken = || (0..words).map(|_| AtomicU64::new(0)).collect();
        &self.segments[(unit >> self.order) as usize].get_or_init(taken)[self.first_word(unit)..]
    }

    fn first_word(&self, unit: u32) -> usize {
        (unit & ((1 << self.order) - 1)) as usize * UNIT_WORDS
    }
}
