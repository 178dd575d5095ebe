//! What is going to happen, and when: of one moment in the order in which it was brought about.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use guira_item::Moment;

/// What is going to happen.
#[derive(Debug)]
pub(crate) struct Agenda<C> {
    order: u64,
    entries: BinaryHeap<Reverse<Entry<C>>>,
}

impl<C> Default for Agenda<C> {
    fn default() -> Self {
        Self { order: 0, entries: BinaryHeap::new() }
    }
}

impl<C> Agenda<C> {
    /// This happens then.
    pub(crate) fn put(&mut self, at: Moment, coming: C) {
        self.order += 1;
        self.entries.push(Reverse(Entry { at, order: self.order, coming }));
    }

    /// What happens next, if it does by then.
    pub(crate) fn next(&mut self, until: Moment) -> Option<(Moment, C)> {
        if self.entries.peek().is_none_or(|Reverse(entry)| entry.at > until) {
            return None;
        }
        self.entries.pop().map(|Reverse(Entry { at, coming, .. })| (at, coming))
    }
}

#[derive(Debug)]
struct Entry<C> {
    at: Moment,
    order: u64,
    coming: C,
}

impl<C> PartialEq for Entry<C> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<C> Eq for Entry<C> {}

impl<C> PartialOrd for Entry<C> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> Ord for Entry<C> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
