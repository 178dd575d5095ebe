//! Segments and which of them a hash belongs to, before, during and after growth.
//!
//! Positions (the upper 32 bits of a hash) are spread over `n` segments in order: segment `i` of `n` holds positions from
//! `i/n` to `(i+1)/n` of the whole range. To grow from `n` to `m` segments, new segment 0 is built from the old segments it
//! overlaps, then 1, and so on; the first `done` new segments are in force, positions behind them belong to the old ones.
//! Each position lies in exactly one segment at any time, a new segment draws on few old ones, and an old segment is given
//! up as soon as the new ones have passed it: growth by any factor costs two segments of extra memory.
//!
//! ```text
//! layout word:  bit 63     62         41 40        20 19        0
//!               directory  done (21)     next (21)    current (20)
//! ```
//! Always true: the word is only changed by the holder of all stripes; it never returns to an earlier value, because
//! segments are never taken away.

use guira_sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::Bucket;

/// Buckets in a segment: 64 KiB, the engine's page. A key's two buckets lie in one segment, so a segment is as full as its
/// share of the keys: with 12,288 slots the fullest of a thousand is 3 % above the average.
/// The models make do with as few as let threads meet.
pub const SEGMENT_BUCKETS: usize = if cfg!(loom) {
    2
} else if cfg!(shuttle) {
    4
} else {
    1024
};
pub(crate) const BUCKET_MASK: usize = SEGMENT_BUCKETS - 1;
const _: () = assert!(SEGMENT_BUCKETS.is_power_of_two());

/// Slots in a segment.
pub const SEGMENT_SLOTS: usize = SEGMENT_BUCKETS * crate::BUCKET_SLOTS;

/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = SEGMENT_BUCKETS * size_of::<Bucket>();

/// Most segments an index can have: the width of the fields of the layout word.
pub(crate) const SEGMENTS_MAX: usize = (1 << 20) - 1;

/// A segment's buckets.
pub type Segment = [Bucket; SEGMENT_BUCKETS];

/// Where segments come from.
///
/// # Safety
/// The memory behind a segment that was handed out stays mapped for as long as the source lives, also after it has been
/// released, and is from then on only accessed atomically (a reader may still be looking, and will find out). Between
/// `allocate` and `release` nobody but the index writes to it. A segment need not be zeroed.
pub unsafe trait SegmentSource: Send + Sync {
    /// Memory for one segment, or `None` if there is none to be had.
    fn allocate(&self) -> Option<std::ptr::NonNull<Segment>>;

    /// Takes back what `allocate` gave.
    fn release(&self, segment: std::ptr::NonNull<Segment>);
}

const DIRECTORY_SHIFT: u32 = 63;
const CURRENT_MASK: u64 = (1 << 20) - 1;
/// The fields that are zero while no growth is under way.
const GROWING_MASK: u64 = !(1 << DIRECTORY_SHIFT | CURRENT_MASK);

/// What the layout word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Which of the two directories holds the current segments; the other one holds the next.
    pub directory: usize,
    /// Segments in force, or being replaced.
    pub current: usize,
    /// Segments being built, 0 if there is no growth under way.
    pub next: usize,
    /// How many of the next are in force.
    pub done: usize,
}

impl Layout {
    pub fn of_word(word: u64) -> Self {
        let field = |shift: u32, bits: u32| (word >> shift) as usize & ((1 << bits) - 1);
        Self { directory: field(63, 1), current: field(0, 20), next: field(20, 21), done: field(41, 21) }
    }

    pub fn word(self) -> u64 {
        ((self.directory as u64) << 63) | ((self.done as u64) << 41) | ((self.next as u64) << 20) | self.current as u64
    }

    /// Which directory and which place in it hold the segment of `position` under a layout word.
    #[inline]
    pub fn place_of_word(word: u64, position: u32) -> (usize, usize) {
        if word & GROWING_MASK == 0 {
            return ((word >> DIRECTORY_SHIFT) as usize, share(position, (word & CURRENT_MASK) as usize));
        }
        Self::of_word(word).place(position)
    }

    /// The same of a layout.
    pub fn place(self, position: u32) -> (usize, usize) {
        let next = share(position, self.next);
        if next < self.done { (self.directory ^ 1, next) } else { (self.directory, share(position, self.current)) }
    }
}

/// Which of `segments` equal shares of all positions `position` lies in.
#[inline]
pub(crate) fn share(position: u32, segments: usize) -> usize {
    ((u64::from(position) * segments as u64) >> 32) as usize
}

/// The segments of an index.
#[derive(Debug)]
pub(crate) struct Directories {
    word: AtomicU64,
    entries: [Box<[AtomicPtr<Segment>]>; 2],
}

impl Directories {
    pub fn new(segments_max: usize) -> Self {
        let segments_max = segments_max.clamp(1, SEGMENTS_MAX);
        let entries = || (0..segments_max).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let layout = Layout { directory: 0, current: 0, next: 0, done: 0 };
        Self { word: AtomicU64::new(layout.word()), entries: [entries(), entries()] }
    }

    pub fn segments_max(&self) -> usize {
        self.entries[0].len()
    }

    #[inline]
    pub fn word(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`; the segments the word speaks of are filled.
        self.word.load(Ordering::Acquire)
    }

    /// After a fence that orders it behind the reads it is to validate.
    #[inline]
    pub fn word_relaxed(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// The caller holds all stripes, or is alone.
    pub fn publish(&self, layout: Layout) {
        // Release: pairs with the Acquire in `word`.
        self.word.store(layout.word(), Ordering::Release);
    }

    /// The segment at `index` of a directory; null if there never was one.
    #[inline]
    pub fn segment(&self, directory: usize, index: usize) -> *mut Segment {
        self.entries[directory][index].load(Ordering::Relaxed)
    }

    pub fn set_segment(&self, directory: usize, index: usize, segment: *mut Segment) {
        self.entries[directory][index].store(segment, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_word_keeps_every_field() {
        for layout in [
            Layout { directory: 1, current: SEGMENTS_MAX, next: SEGMENTS_MAX, done: SEGMENTS_MAX },
            Layout { directory: 0, current: 7, next: 9, done: 3 },
            Layout { directory: 1, current: 7, next: 0, done: 0 },
        ] {
            assert_eq!(Layout::of_word(layout.word()), layout);
            assert_eq!(Layout::place_of_word(layout.word(), 1 << 31), layout.place(1 << 31));
        }
    }

    #[test]
    fn a_position_stays_put_until_its_new_segment_is_in_force() {
        let (current, next) = (5, 7);
        for position in (0..=u32::MAX).step_by(9_999_991) {
            let mut moves = 0;
            let mut before = (0, share(position, current));
            for done in 0..=next {
                let place = Layout { directory: 0, current, next, done }.place(position);
                moves += usize::from(place != before);
                before = place;
            }
            assert_eq!((moves, before), (1, (1, share(position, next))));
        }
    }
}
