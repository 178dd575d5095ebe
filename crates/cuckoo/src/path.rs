//! Displacement search: finds a short chain of moves that frees a slot in one of two buckets, breadth first and without a
//! lock (Li 3.3.3), so a chain is at most a few moves long even in a nearly full segment.
//!
//! Always true: the search changes nothing; the moves are carried out from the free end backwards, each one validated
//! under its own pair of stripes, so a key is visible in at least one of its two buckets throughout.

use std::ops::Range;

use crate::{
    modelled,
    probe::{Probe, alternate},
    segment::{Geometry, SegmentRef, ways},
    tags::Lane,
};

/// Buckets examined before a segment counts as full: the papers' M of 2,000 slots, in buckets of four. Wider buckets get as many, not
/// as many slots: ways to the same bucket differ in the order of two tags, so 250 buckets are far fewer different ones, and of maps
/// at 95 % one in some thousands met a key for which all were full. A model's segment has no more than these.
const NODES_MAX: usize = modelled(500, 16);

/// Slots of each root that are tried before the others.
const TURNS_FIRST: usize = 2;

/// Moves in a path: the papers' four, and the insert. With four ways two roots have 8 children, 32, 128 and 512 descendants, of
/// which 500 nodes hold part of the fourth generation. Wider buckets take fewer.
const MOVES_MAX: usize = 4;

/// One displacement: the key in `slot` of `bucket` goes to its other bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub bucket: u16,
    pub slot: u8,
    pub lane: Lane,
}

impl Move {
    /// Moves the key, unless it is gone or its other bucket has filled up. The caller is the only writer to both buckets;
    /// `before` is called before the first store.
    pub fn carry_out<G: Geometry>(&self, segment: SegmentRef<'_, G>, before: impl FnOnce()) -> bool {
        let (from, slot) = (usize::from(self.bucket), usize::from(self.slot));
        if segment.tags(from).lane(slot) != Some(self.lane) {
            return false;
        }
        let to = alternate(from, self.lane.tag(), segment.bucket_mask());
        let Some(free) = segment.tags(to).free().first() else { return false };
        before();
        segment.receive((to, free), self.lane.in_other_bucket(), segment, (from, slot));
        true
    }
}

/// The moves in the order in which they must be carried out: the first one has a free slot to go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    moves: [Option<Move>; MOVES_MAX],
    len: usize,
}

impl Path {
    pub fn moves(&self) -> impl DoubleEndedIterator<Item = &Move> {
        self.moves[..self.len].iter().flatten()
    }

    /// Carries out every move. The caller is the only writer to the whole segment.
    pub fn carry_out<G: Geometry>(&self, segment: SegmentRef<'_, G>) {
        for step in self.moves() {
            let moved = step.carry_out(segment, || ());
            assert!(moved, "nobody else changes the segment");
        }
    }
}

#[derive(Clone, Copy)]
struct Node {
    bucket: u16,
    /// Index of the node moved from; a root is its own parent.
    parent: u16,
    /// Slot and lane of the key whose move leads here; meaningless in a root.
    slot: u8,
    lane: Lane,
}

/// A path that frees a slot in one of the two buckets of `probe`; empty if one has a free slot already; `None` if the
/// segment is too full.
pub(crate) fn search<G: Geometry>(segment: SegmentRef<'_, G>, probe: &Probe) -> Option<Path> {
    let mask = segment.bucket_mask();
    let roots = [probe.first(mask), probe.second(mask)];
    one_move(segment, roots).or_else(|| breadth_first(segment, roots))
}

/// The first generation of the search, which nine of ten searches do not get beyond, without the book-keeping of the others. A
/// few children are looked at first, because a search waits for the lines that it asks for, and one free slot is enough.
fn one_move<G: Geometry>(segment: SegmentRef<'_, G>, roots: [usize; 2]) -> Option<Path> {
    if roots.into_iter().any(|bucket| segment.tags(bucket).free().first().is_some()) {
        return Some(Path { moves: [None; MOVES_MAX], len: 0 });
    }
    for turns in [0..TURNS_FIRST, TURNS_FIRST..ways::<G>()] {
        let both = || {
            let of = |bucket| children(segment, bucket, turns.clone()).map(move |(slot, to)| (bucket, slot, to));
            of(roots[0]).chain(of(roots[1]))
        };
        both().for_each(|(_, _, to)| segment.prefetch_tags(to));
        let roomy = both().find_map(|(bucket, slot, to)| Some((bucket, slot, to, segment.tags(to).free().first()?)));
        if let Some((bucket, slot, to, free)) = roomy {
            segment.prefetch_slot(to, free);
            segment.prefetch_slot(bucket, slot);
            let lane = segment.tags(bucket).lane(slot)?;
            let mut path = Path { moves: [None; MOVES_MAX], len: 1 };
            path.moves[0] = Some(Move { bucket: bucket as u16, slot: slot as u8, lane });
            return Some(path);
        }
    }
    None
}

/// Slots of a bucket and where their keys would go. Which comes first depends on the bucket, so that slots are displaced evenly.
#[inline(always)]
fn children<G: Geometry>(
    segment: SegmentRef<'_, G>,
    bucket: usize,
    turns: Range<usize>,
) -> impl Iterator<Item = (usize, usize)> {
    let tags = segment.tags(bucket);
    let mask = segment.bucket_mask();
    turns.filter_map(move |turn| {
        let slot = (turn + bucket) % ways::<G>();
        let lane = tags.lane(slot)?;
        Some((slot, alternate(bucket, lane.tag(), mask)))
    })
}

#[inline(never)]
fn breadth_first<G: Geometry>(segment: SegmentRef<'_, G>, roots: [usize; 2]) -> Option<Path> {
    let root = |bucket: usize, parent| Node { bucket: bucket as u16, parent, slot: 0, lane: Lane::home(1) };
    let mut nodes = [root(0, 0); NODES_MAX];
    nodes[0] = root(roots[0], 0);
    nodes[1] = root(roots[1], 1);
    let mut len = 2;
    for at in 0..NODES_MAX {
        if at == len {
            return None;
        }
        let bucket = usize::from(nodes[at].bucket);
        let tags = segment.tags(bucket);
        if tags.free().first().is_some() {
            return path_to(&nodes, at);
        }
        for (slot, to) in children(segment, bucket, 0..ways::<G>()) {
            if len == NODES_MAX {
                break;
            }
            let Some(lane) = tags.lane(slot) else { continue };
            segment.prefetch_tags(to);
            nodes[len] = Node { bucket: to as u16, parent: at as u16, slot: slot as u8, lane };
            len += 1;
        }
    }
    None
}

/// The moves from a root to `leaf`; `None` if keys went away during the search so that it got deeper than a path may be.
fn path_to(nodes: &[Node; NODES_MAX], leaf: usize) -> Option<Path> {
    let mut path = Path { moves: [None; MOVES_MAX], len: 0 };
    let mut at = leaf;
    while usize::from(nodes[at].parent) != at {
        let Node { parent, slot, lane, .. } = nodes[at];
        *path.moves.get_mut(path.len)? = Some(Move { bucket: nodes[usize::from(parent)].bucket, slot, lane });
        path.len += 1;
        at = usize::from(parent);
    }
    Some(path)
}
