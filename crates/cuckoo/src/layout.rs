//! Segments and which of them a hash belongs to, before, during and after growth.
//!
//! Positions (the upper 32 bits of a hash) are spread over `n` segments in order: segment `i` of `n` holds positions from
//! `i/n` to `(i+1)/n` of the whole range. To grow from `n` to `m` segments, new segment 0 is filled from the old segments it
//! overlaps, then 1, and so on; the first `done` new segments are in force, positions behind them belong to the old ones, and
//! those of the one that is being filled to both. A new segment draws on few old ones, and an old segment is given up as soon
//! as the new ones have passed it: growth by any factor costs two segments of extra memory.
//!
//! ```text
//! layout word:  bit 63     62      61     60         40 39        20 19        0
//!               directory  moving  small  done (20)     next (20)    current (20)
//! ```
//! A table too small for one full-sized segment has a single small one, whose number of buckets is two to the power of `next`.
//!
//! Always true: a change of the word that gives a key another place comes before the first move of such a key, which marks the
//! key's stripe.

use std::{ptr::NonNull, sync::Mutex};

use guira_sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Most segments a table can have: the width of the fields of the layout word.
pub(crate) const SEGMENTS_MAX: usize = (1 << 20) - 1;

const FIELD_BITS: u32 = 20;
const FIELD_MASK: u64 = (1 << FIELD_BITS) - 1;
const NEXT_SHIFT: u32 = FIELD_BITS;
const DONE_SHIFT: u32 = 2 * FIELD_BITS;
const SMALL: u64 = 1 << 61;
const MOVING: u64 = 1 << 62;
const DIRECTORY_SHIFT: u32 = 63;

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
    /// Whether the next one after these is being filled.
    pub moving: bool,
    /// If the one segment is a small one: two to this power is the number of its buckets.
    pub small_bits: Option<u32>,
}

/// A segment by directory and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentId {
    pub directory: usize,
    pub at: usize,
}

/// Where the keys of a position may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Whereabouts {
    /// Where they are, or come from.
    pub from: SegmentId,
    /// Where they are being moved to, and new ones go.
    pub to: Option<SegmentId>,
}

/// Whether a layout is the plain one: full-sized segments, no growth.
#[inline]
pub(crate) fn is_steady(word: u64) -> bool {
    word & !(1 << DIRECTORY_SHIFT | FIELD_MASK) == 0
}

/// The segment of a position in a steady layout.
#[inline]
pub(crate) fn steady_place(word: u64, position: u32) -> SegmentId {
    SegmentId { directory: (word >> DIRECTORY_SHIFT) as usize, at: share(position, (word & FIELD_MASK) as usize) }
}

impl Layout {
    /// `segments` full-sized ones.
    pub fn steady(directory: usize, segments: usize) -> Self {
        Self { directory, current: segments, next: 0, done: 0, moving: false, small_bits: None }
    }

    /// One small segment.
    pub fn small(directory: usize, bits: u32) -> Self {
        Self { small_bits: Some(bits), ..Self::steady(directory, 1) }
    }

    pub fn of_word(word: u64) -> Self {
        let field = |shift: u32| (word >> shift & FIELD_MASK) as usize;
        let is_small = word & SMALL != 0;
        Self {
            directory: (word >> DIRECTORY_SHIFT) as usize,
            current: field(0),
            next: if is_small { 0 } else { field(NEXT_SHIFT) },
            done: field(DONE_SHIFT),
            moving: word & MOVING != 0,
            small_bits: is_small.then(|| field(NEXT_SHIFT) as u32),
        }
    }

    pub fn word(self) -> u64 {
        let next = self.small_bits.map_or(self.next as u64, u64::from);
        (self.directory as u64) << DIRECTORY_SHIFT
            | if self.moving { MOVING } else { 0 }
            | if self.small_bits.is_some() { SMALL } else { 0 }
            | (self.done as u64) << DONE_SHIFT
            | next << NEXT_SHIFT
            | self.current as u64
    }

    /// Buckets of each segment, less one, in a table whose full-sized ones have `full_mask + 1`.
    pub fn bucket_mask(self, full_mask: usize) -> usize {
        self.small_bits.map_or(full_mask, |bits| (1 << bits) - 1)
    }

    /// A small segment that were as large as a full-sized one could not be outgrown.
    ///
    /// # Panics
    /// If there is one.
    pub fn assert_small_is_smaller(self, full_mask: usize) {
        assert!(self.small_bits.is_none() || self.bucket_mask(full_mask) < full_mask, "{self:?}");
    }

    /// Where the keys of a position may be.
    pub fn whereabouts(self, position: u32) -> Whereabouts {
        let next = share(position, self.next);
        let new = SegmentId { directory: self.directory ^ 1, at: next };
        let old = SegmentId { directory: self.directory, at: share(position, self.current) };
        if next < self.done {
            Whereabouts { from: new, to: None }
        } else {
            Whereabouts { from: old, to: (self.moving && next == self.done).then_some(new) }
        }
    }

    /// The old segments that the next new one draws on.
    pub fn overlap(self) -> Overlap {
        let Self { current, next, done, .. } = self;
        // New segment `done` of `next` begins where old segment `done * current / next` reaches to.
        let first = done * current / next;
        let last = ((done + 1) * current).div_ceil(next).max(first + 1) - 1;
        Overlap { first, last: last.min(current - 1), passed: (done + 1) * current / next }
    }

    /// Every segment that holds keys.
    pub fn segments(self) -> impl Iterator<Item = SegmentId> {
        // Old segments that have been passed are empty, and may be somebody else's by now.
        let passed = (self.done * self.current).checked_div(self.next).unwrap_or(0);
        let old = (passed..self.current).map(move |at| SegmentId { directory: self.directory, at });
        let new =
            (0..self.done + usize::from(self.moving)).map(move |at| SegmentId { directory: self.directory ^ 1, at });
        old.chain(new)
    }

    /// Whether keys are being moved out of this segment.
    pub fn is_emptying(self, segment: SegmentId) -> bool {
        self.moving && segment.directory == self.directory && {
            let overlap = self.overlap();
            (overlap.first..=overlap.last).contains(&segment.at)
        }
    }
}

/// See [`Layout::overlap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overlap {
    pub first: usize,
    pub last: usize,
    /// Old segments before this one are behind the new ones once the step is done.
    pub passed: usize,
}

/// Which of `segments` equal shares of all positions `position` lies in.
#[inline]
pub(crate) fn share(position: u32, segments: usize) -> usize {
    ((u64::from(position) * segments as u64) >> 32) as usize
}

type Entries = Box<[AtomicPtr<u8>]>;

/// The segments of a table.
///
/// Always true: a directory's table is only ever replaced by a larger one, and all stay until the end; so a number that was
/// good under any layout is good for every later table.
#[derive(Debug)]
pub(crate) struct Directories {
    word: AtomicU64,
    tables: [AtomicPtr<AtomicPtr<u8>>; 2],
    capacities: [AtomicUsize; 2],
    /// What `tables` point into. Each is larger than the one before by the factor of a growth, so all together are as large as
    /// a few of the last.
    kept: Mutex<Vec<Entries>>,
    /// While the layout is steady, how many segments there are, and the table of their directory; otherwise zero, and any. Both
    /// follow from the word: they save readers some instructions.
    steady_segments: AtomicU64,
    steady_table: AtomicPtr<AtomicPtr<u8>>,
}

impl Directories {
    /// With room for so many segments in both directories.
    pub fn new(segments: usize, layout: Layout) -> Self {
        let directories = Self {
            word: AtomicU64::new(layout.word()),
            tables: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            capacities: std::array::from_fn(|_| AtomicUsize::new(0)),
            kept: Mutex::default(),
            steady_segments: AtomicU64::new(0),
            steady_table: AtomicPtr::new(std::ptr::null_mut()),
        };
        (0..2).for_each(|directory| directories.make_room(directory, segments));
        directories.publish(layout);
        directories
    }

    /// Sees to it that a directory has room for so many segments. It is not in force, and the caller alone grows the table.
    pub fn make_room(&self, directory: usize, segments: usize) {
        if self.capacities[directory].load(Ordering::Relaxed) >= segments {
            return;
        }
        let entries: Entries = (0..segments).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        // Release: pairs with the Acquire in `segment`; the entries are there.
        self.tables[directory].store(entries.as_ptr().cast_mut(), Ordering::Release);
        self.capacities[directory].store(segments, Ordering::Relaxed);
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(entries);
    }

    #[inline]
    pub fn word(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`; the segments the word speaks of are filled.
        self.word.load(Ordering::Acquire)
    }

    pub fn layout(&self) -> Layout {
        Layout::of_word(self.word())
    }

    /// The caller alone grows the table.
    pub fn publish(&self, layout: Layout) {
        let is_steady = is_steady(layout.word());
        if is_steady {
            let table = self.tables[layout.directory].load(Ordering::Relaxed);
            // Release: pairs with the Acquire in `steady_segment`.
            self.steady_table.store(table, Ordering::Release);
        } else {
            self.steady_segments.store(0, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `word`.
        self.word.store(layout.word(), Ordering::Release);
        if is_steady {
            // Release: pairs with the Acquire in `steady_segment`; the table is the one that was just stored, or a later one.
            self.steady_segments.store(layout.current as u64, Ordering::Release);
        }
    }

    /// Whether the layout is steady now: a guess at what whoever holds a stripe will find.
    #[inline(always)]
    pub fn is_steady(&self) -> bool {
        self.steady_segments.load(Ordering::Relaxed) != 0
    }

    /// The segment of a position, if the layout is steady. If it changes at the very moment the segment may be a wrong one: the
    /// caller asked for the version of the key's stripe before, and finds it changed, because growth marks every stripe on its
    /// way from one steady layout to the next.
    #[inline(always)]
    pub fn steady_segment(&self, position: u32) -> Option<NonNull<u8>> {
        // Acquire: pairs with the Release in `publish`.
        let segments = self.steady_segments.load(Ordering::Acquire);
        if segments == 0 {
            return None;
        }
        let at = ((u64::from(position) * segments) >> 32) as usize;
        // Acquire: pairs with the Release in `publish`.
        let table = self.steady_table.load(Ordering::Acquire);
        // SAFETY: the table has room for as many segments as there were when it was stored, or more, and that was no earlier
        // than the number was; tables stay in `kept` until `self` is dropped.
        let entry = unsafe { &*table.add(at) };
        // Acquire: pairs with the Release in `set_segment`.
        // SAFETY: all entries of a steady layout were set before it was published.
        Some(unsafe { NonNull::new_unchecked(entry.load(Ordering::Acquire)) })
    }

    #[inline]
    fn entry(&self, id: SegmentId) -> &AtomicPtr<u8> {
        // Acquire: pairs with the Release in `make_room`.
        let table = self.tables[id.directory].load(Ordering::Acquire);
        // SAFETY: `id` comes from a layout word, whose segments the table of that time had room for; tables only get larger
        // and stay in `kept` until `self` is dropped.
        unsafe { &*table.add(id.at) }
    }

    /// A segment; `None` if the layout it was asked for is long gone.
    #[inline]
    pub fn segment(&self, id: SegmentId) -> Option<NonNull<u8>> {
        // Acquire: pairs with the Release in `set_segment`.
        NonNull::new(self.entry(id).load(Ordering::Acquire))
    }

    pub fn set_segment(&self, id: SegmentId, segment: NonNull<u8>) {
        // Release: pairs with the Acquire in `segment`; its buckets are cleared or filled.
        self.entry(id).store(segment.as_ptr(), Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_word_keeps_every_field() {
        for layout in [
            Layout {
                directory: 1,
                current: SEGMENTS_MAX,
                next: SEGMENTS_MAX,
                done: SEGMENTS_MAX - 1,
                moving: true,
                small_bits: None,
            },
            Layout { directory: 0, current: 7, next: 9, done: 3, moving: false, small_bits: None },
            Layout::steady(1, 7),
            Layout::small(1, 11),
        ] {
            assert_eq!(Layout::of_word(layout.word()), layout);
            let steady = layout.next == 0 && layout.small_bits.is_none();
            assert_eq!(is_steady(layout.word()), steady);
            if steady {
                assert_eq!(steady_place(layout.word(), 1 << 31), layout.whereabouts(1 << 31).from);
            }
        }
    }

    /// The layouts that a growth goes through, each with whether the step of `done` is being moved.
    fn growth(current: usize, next: usize) -> impl Iterator<Item = Layout> {
        let base = Layout { next, ..Layout::steady(0, current) };
        (0..next).flat_map(move |done| [false, true].map(|moving| Layout { done, moving, ..base }))
    }

    #[test]
    fn a_position_is_in_both_segments_while_it_moves_and_moves_once() {
        let (current, next) = (5, 7);
        for position in (0..=u32::MAX).step_by(9_999_991) {
            let old = SegmentId { directory: 0, at: share(position, current) };
            let new = SegmentId { directory: 1, at: share(position, next) };
            let mut seen = Vec::new();
            for layout in growth(current, next) {
                let whereabouts = layout.whereabouts(position);
                if seen.last() != Some(&whereabouts) {
                    seen.push(whereabouts);
                }
                assert!(whereabouts.to.is_none() || layout.is_emptying(old));
            }
            seen.push(Whereabouts { from: new, to: None });
            seen.dedup();
            let expected = [(old, None), (old, Some(new)), (new, None)].map(|(from, to)| Whereabouts { from, to });
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn each_old_segment_is_passed_once() {
        for (current, next) in [(1, 2), (4, 5), (5, 7), (100, 125)] {
            let mut released = Vec::new();
            for layout in growth(current, next).filter(|layout| layout.moving) {
                let overlap = layout.overlap();
                assert!(overlap.passed <= overlap.last + 1);
                released.extend(overlap.first..overlap.passed);
            }
            assert_eq!(released, (0..current).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_larger_directory_takes_the_place_of_a_smaller_one() {
        let directories = Directories::new(1, Layout::steady(0, 1));
        let id = SegmentId { directory: 1, at: 0 };
        let segment = NonNull::<u8>::dangling();
        directories.set_segment(id, segment);
        directories.make_room(1, 1);
        assert_eq!(directories.segment(id), Some(segment), "large enough already");
        directories.make_room(1, 9);
        assert_eq!(directories.segment(SegmentId { at: 8, ..id }), None);
    }
}
