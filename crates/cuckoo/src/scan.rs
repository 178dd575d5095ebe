//! A walk through a table that goes on beside readers, writers, displacement and growth.
//!
//! The walk goes by *homes*: a step takes one first bucket of one range of positions, holds its stripe, and visits the keys whose
//! first bucket it is, wherever they lie. Under that stripe none of them comes, goes or moves, so a step sees one state of them.
//! ```text
//! range of positions (a segment's share when the walk came to it)  x  number of the first bucket, in reversed binary order
//! ```
//! Neither changes when the table grows: a range may then lie in other segments, and a small segment's bucket becomes two whose
//! numbers end in the same bits, which the reversed order visits one after the other.
//!
//! Always true: a key that is there from the beginning to the end of a walk is visited once; any other at most once for each
//! time that it is added.

use crate::{
    layout::Layout,
    probe::{Probe, alternate},
    residence::Residence,
    segment::{Geometry, SegmentRef, SegmentSource},
    table::Table,
    tags::{Lane, TAG_MAX},
};

const POSITIONS: u64 = 1 << 32;

/// How far a walk has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    start: u64,
    /// Where the range ends; `start` if it has not been begun.
    end: u64,
    bucket: usize,
}

impl Cursor {
    pub fn is_at_end(&self) -> bool {
        self.start == POSITIONS
    }

    /// To the next bucket; after the last one to the next range.
    fn advance(&mut self, mask: usize) {
        self.bucket = (self.bucket | !mask).reverse_bits().wrapping_add(1).reverse_bits();
        if self.bucket == 0 {
            self.start = self.end;
        }
    }
}

impl<G: Geometry, S: SegmentSource, D: Default> Table<G, S, D> {
    /// One step. `visit` and `hash` are called with contents while the stripe of their keys is held.
    pub(crate) fn scan_step<'a>(
        &'a self,
        cursor: &mut Cursor,
        hash: impl Fn(G::Content<'a>) -> u64,
        mut visit: impl FnMut(G::Content<'a>),
    ) {
        let (guard, word, mask) = loop {
            let mask = Self::bucket_mask(self.directories.word());
            let guard = self.stripes.lock_pair(cursor.bucket & mask, cursor.bucket & mask);
            let word = self.directories.word();
            if Self::bucket_mask(word) == mask {
                break (guard, word, mask);
            }
        };
        let layout = Layout::of_word(word);
        if cursor.end == cursor.start {
            cursor.end = share_end(layout, cursor.start);
        }
        let mut from = cursor.start;
        while from < cursor.end {
            let until = share_end(layout, from).min(cursor.end);
            let homes = self.homes(word, from as u32).expect("the layout in force has its segments");
            for segment in homes.each() {
                each_of_home(segment, cursor.bucket & mask, |content| {
                    if (from..until).contains(&u64::from(Probe::new(hash(content)).position())) {
                        visit(content);
                    }
                });
            }
            from = until;
        }
        drop(guard);
        cursor.advance(mask);
    }
}

/// Where the positions end that lie in the same segments as this one.
fn share_end(layout: Layout, position: u64) -> u64 {
    let end = |segments: usize| {
        let segments = segments as u64;
        let share = (position * segments) >> 32;
        ((share + 1) * POSITIONS).div_ceil(segments)
    };
    let old = end(layout.current);
    if layout.next == 0 { old } else { old.min(end(layout.next)) }
}

/// The keys whose first bucket this is. The caller holds its stripe.
fn each_of_home<'a, G: Geometry>(segment: SegmentRef<'a, G>, first: usize, mut visit: impl FnMut(G::Content<'a>)) {
    let tags = segment.tags(first);
    for slot in tags.taken() {
        if tags.lane(slot).is_some_and(|lane| !lane.is_away()) {
            visit(segment.content(first, slot));
        }
    }
    for tag in (1..=TAG_MAX).filter(|tag| tags.may_be_away(*tag)) {
        let second = alternate(first, tag, segment.bucket_mask());
        segment.tags(second).matching(Lane::away(tag)).for_each(|slot| visit(segment.content(second, slot)));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_visits_every_bucket_once_and_every_range() {
        let mut cursor = Cursor { end: 77, ..Cursor::default() };
        let mut seen = std::collections::BTreeSet::new();
        while cursor.start == 0 {
            assert!(seen.insert(cursor.bucket & 15));
            cursor.advance(15);
        }
        assert_eq!((seen.len(), cursor.start, cursor.bucket), (16, 77, 0));
    }

    #[test]
    fn a_cursor_visits_what_is_left_when_the_buckets_double() {
        let mut cursor = Cursor { end: 1, ..Cursor::default() };
        let mut seen = std::collections::BTreeSet::new();
        for step in 0.. {
            let mask = if step < 5 { 7 } else { 15 };
            // A bucket of the small table stands for two of the large one.
            let stands_for: Vec<_> = (0..16).filter(|bucket| bucket & mask == cursor.bucket & mask).collect();
            for bucket in stands_for {
                assert!(seen.insert(bucket), "{bucket} twice");
            }
            cursor.advance(mask);
            if cursor.start == 1 {
                break;
            }
        }
        assert_eq!(seen.len(), 16);
    }

    #[test]
    fn shares_end_where_the_next_ones_begin() {
        let growing = Layout { next: 7, done: 2, moving: true, ..Layout::steady(0, 5) };
        let mut position = 0;
        let mut ranges = 0;
        while position < POSITIONS {
            let end = share_end(growing, position);
            assert_eq!(growing.whereabouts(position as u32), growing.whereabouts((end - 1) as u32));
            position = end;
            ranges += 1;
        }
        assert_eq!((position, ranges), (POSITIONS, 11));
    }
}
