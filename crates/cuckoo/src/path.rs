//! Displacement search: finds a short chain of moves that frees a slot in one of two buckets, breadth first and without a
//! lock (Li 3.3.3), so a chain is at most a few moves long even in a nearly full segment.
//!
//! Always true: the search changes nothing; the moves are carried out from the free end backwards, each one validated
//! under its own pair of stripes, so a key is visible in at least one of its two buckets throughout.

use crate::{
    bucket::BUCKET_SLOTS,
    layout::Segment,
    probe::{Probe, alternate},
};

/// Buckets examined before a segment counts as full: the papers' M = 2,000 slots. At 99 % occupancy such a search fails
/// three times in a thousand million. A model's two roots have four children and eight grandchildren.
const NODES_MAX: usize = if cfg!(shuttle) { 14 } else { 2_000 / BUCKET_SLOTS };

/// Moves in a path: two roots have 24 children and 288 grandchildren, more than are examined, so no path is longer.
const MOVES_MAX: usize = 2;

/// One displacement: the item in `slot` of `bucket` goes to its other bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Move {
    pub bucket: u16,
    pub slot: u8,
    pub tag: u8,
    pub payload: u32,
}

/// The moves in the order in which they must be carried out: the first one has a free slot to go to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    moves: [Move; MOVES_MAX],
    len: usize,
}

impl Path {
    pub fn moves(&self) -> &[Move] {
        &self.moves[..self.len]
    }
}

#[derive(Clone, Copy, Default)]
struct Node {
    bucket: u16,
    /// The move that leads here; meaningless in a root.
    from: Move,
    /// Index of the node moved from; a root is its own parent.
    parent: u16,
}

/// A path that frees a slot in one of the two buckets of `probe`; empty if one has a free slot already; `None` if the
/// segment is too full.
pub(crate) fn search(segment: &Segment, probe: &Probe) -> Option<Path> {
    let mut nodes = [Node::default(); NODES_MAX];
    for (index, bucket) in [probe.first, probe.second].into_iter().enumerate() {
        nodes[index] = Node { bucket, from: Move::default(), parent: index as u16 };
    }
    let mut len = 2;
    for at in 0..NODES_MAX {
        if at == len {
            return None;
        }
        let Node { bucket, .. } = nodes[at];
        let here = &segment[usize::from(bucket)];
        if here.free().first().is_some() {
            return path_to(&nodes, at);
        }
        // Which child comes first depends on the bucket, so that slots are displaced evenly.
        for turn in 0..BUCKET_SLOTS {
            if len == NODES_MAX {
                break;
            }
            let slot = (turn + usize::from(bucket)) % BUCKET_SLOTS;
            let tag = here.tag(slot);
            if tag == 0 {
                continue;
            }
            let to = alternate(bucket, tag);
            prefetch(&segment[usize::from(to)]);
            let from = Move { bucket, slot: slot as u8, tag, payload: here.payload(slot) };
            nodes[len] = Node { bucket: to, from, parent: at as u16 };
            len += 1;
        }
    }
    None
}

/// The moves from a root to `leaf`; `None` if keys went away during the search so that it got deeper than a path may be.
fn path_to(nodes: &[Node; NODES_MAX], leaf: usize) -> Option<Path> {
    let mut path = Path::default();
    let mut at = leaf;
    while usize::from(nodes[at].parent) != at {
        *path.moves.get_mut(path.len)? = nodes[at].from;
        path.len += 1;
        at = usize::from(nodes[at].parent);
    }
    Some(path)
}

/// Asks for the cache line of `target` ahead of its use.
#[inline]
pub fn prefetch<T>(target: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch is a hint; it faults on no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(target.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = target;
}
