//! A doubly linked list through the nodes that stand in front of a page's chunks, for the policies that keep an order.
//!
//! Always true: a chunk is in at most one list of its class; a node of zero is in none; links are places plus one, so that
//! zero is the end.

use guira_arena::Place;
use guira_item::{OrderCursor, Rank, Standing};

use super::Ordered;
use crate::slabs::ClassMemory;

/// Bytes of a node: the neighbours on both sides and nothing else.
pub(super) const NODE_LEN: usize = 8;

/// Marks a node that is in a list even when it has no neighbour; places are below 2^32 - 2, so it is no link.
const ALONE: u32 = u32::MAX;

/// One end and the other, and how many there are.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Link to the newest.
    newest: u32,
    /// Link to the oldest.
    oldest: u32,
    len: usize,
}

/// The two links of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Links {
    newer: u32,
    older: u32,
}

fn links(memory: &ClassMemory<'_>, chunk: Place) -> Links {
    let word = memory.node(chunk);
    let (newer, older) = ((word >> 32) as u32, word as u32);
    let end = |link| if link == ALONE { 0 } else { link };
    Links { newer: end(newer), older: end(older) }
}

fn set_links(memory: &ClassMemory<'_>, chunk: Place, links: Links) {
    let end = |link| if link == 0 { ALONE } else { link };
    memory.set_node(chunk, u64::from(end(links.newer)) << 32 | u64::from(end(links.older)));
}

fn link(chunk: Place) -> u32 {
    chunk.0 + 1
}

fn place(link: u32) -> Option<Place> {
    (link != 0).then(|| Place(link - 1))
}

/// Whether `chunk` is in a list.
pub(super) fn is_linked(memory: &ClassMemory<'_>, chunk: Place) -> bool {
    memory.node(chunk) != 0
}

/// What of a list comes one after the other: from `first` on, as far as but without `end`.
pub(super) struct Stretch {
    pub first: Option<Place>,
    pub end: Option<Place>,
    pub is_spared: bool,
}

/// The items of one stretch after the other, which have `all` nodes together ([`super::Policy::in_order`]). A cursor is a stretch and
/// a link, which is 0 at the beginning.
pub(super) fn in_order(
    memory: &ClassMemory<'_>,
    stretches: &[Stretch],
    all: usize,
    from: OrderCursor,
    limit: usize,
    found: &mut Vec<Ordered>,
) -> Option<OrderCursor> {
    let (mut at, mut before) = (place(from.at as u32), from.before);
    let stop = before + limit as u64;
    for (number, stretch) in stretches.iter().enumerate().skip((from.at >> 32) as usize) {
        let mut next = at.take().or(stretch.first);
        while let Some(chunk) = next.filter(|chunk| Some(*chunk) != stretch.end) {
            if before == stop {
                return Some(OrderCursor { at: (number as u64) << 32 | u64::from(link(chunk)), before, ..from });
            }
            let standing = Standing { rank: Rank::of(before, all as u64), is_spared: stretch.is_spared };
            found.extend(Ordered::at(memory, chunk, standing));
            before += 1;
            next = place(links(memory, chunk).newer);
        }
    }
    None
}

impl List {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn oldest(&self) -> Option<Place> {
        place(self.oldest)
    }

    /// The neighbour that came after `chunk`.
    pub fn newer(&self, memory: &ClassMemory<'_>, chunk: Place) -> Option<Place> {
        place(links(memory, chunk).newer)
    }

    /// Puts `chunk`, which is in no list, at the newest end.
    pub fn push(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        debug_assert!(!is_linked(memory, chunk));
        if let Some(newest) = place(self.newest) {
            set_links(memory, newest, Links { newer: link(chunk), ..links(memory, newest) });
        } else {
            self.oldest = link(chunk);
        }
        set_links(memory, chunk, Links { newer: 0, older: self.newest });
        self.newest = link(chunk);
        self.len += 1;
    }

    /// Puts `chunk`, which is in no list, in front of `newer`, which is in this one: as the next older one.
    pub fn push_before(&mut self, memory: &ClassMemory<'_>, newer: Place, chunk: Place) {
        debug_assert!(!is_linked(memory, chunk));
        let Links { newer: after, older } = links(memory, newer);
        match place(older) {
            Some(older) => set_links(memory, older, Links { newer: link(chunk), ..links(memory, older) }),
            None => self.oldest = link(chunk),
        }
        set_links(memory, chunk, Links { newer: link(newer), older });
        set_links(memory, newer, Links { newer: after, older: link(chunk) });
        self.len += 1;
    }

    /// Puts `to`, which is in no list, where `from` is in this one, and takes `from` out.
    pub fn replace(&mut self, memory: &ClassMemory<'_>, from: Place, to: Place) {
        let Links { newer, older } = links(memory, from);
        set_links(memory, to, Links { newer, older });
        match place(newer) {
            Some(newer) => set_links(memory, newer, Links { older: link(to), ..links(memory, newer) }),
            None => self.newest = link(to),
        }
        match place(older) {
            Some(older) => set_links(memory, older, Links { newer: link(to), ..links(memory, older) }),
            None => self.oldest = link(to),
        }
        memory.set_node(from, 0);
    }

    /// Takes `chunk`, which is in this list, out of it.
    pub fn remove(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        let Links { newer, older } = links(memory, chunk);
        match place(newer) {
            Some(newer) => set_links(memory, newer, Links { older, ..links(memory, newer) }),
            None => self.newest = older,
        }
        match place(older) {
            Some(older) => set_links(memory, older, Links { newer, ..links(memory, older) }),
            None => self.oldest = newer,
        }
        memory.set_node(chunk, 0);
        self.len -= 1;
    }
}
