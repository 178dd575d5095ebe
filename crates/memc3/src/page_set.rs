//! A set of pages that one joins or leaves, and of which a few are looked at, in a time that does not depend on how many there
//! are: a gigabyte has sixteen thousand pages, and their class is locked meanwhile.
//!
//! Always true: a page that is in a set has its place there noted at its seat in that set.

use std::sync::atomic::{AtomicU32, Ordering};

use guira_arena::PageId;

/// Pages of one class.
#[derive(Debug)]
pub(crate) struct PageSet<P> {
    ids: Vec<PageId>,
    /// Where a page of this set has its seat's number.
    seat: fn(&P) -> &AtomicU32,
    /// The number at which the next sample begins.
    cursor: usize,
}

impl<P> PageSet<P> {
    /// An empty set.
    pub fn new(seat: fn(&P) -> &AtomicU32) -> Self {
        Self { ids: Vec::new(), seat, cursor: 0 }
    }

    /// The pages; the numbers of all but the last stay as they are until one leaves.
    pub fn ids(&self) -> &[PageId] {
        &self.ids
    }

    /// The page that joined last, of those that have not changed their places since.
    pub fn last(&self) -> Option<PageId> {
        self.ids.last().copied()
    }

    fn seat<'p>(&self, pages: &'p [P], id: PageId) -> &'p AtomicU32 {
        (self.seat)(&pages[id.0 as usize])
    }

    /// Adds a page that is not in it.
    pub fn insert(&mut self, pages: &[P], id: PageId) {
        // Relaxed, as all seats: read and written under the lock of the class.
        self.seat(pages, id).store(self.ids.len() as u32, Ordering::Relaxed);
        self.ids.push(id);
    }

    /// Takes out a page that is in it; the last one takes its number, which is returned.
    pub fn remove(&mut self, pages: &[P], id: PageId) -> usize {
        let number = self.seat(pages, id).load(Ordering::Relaxed) as usize;
        assert_eq!(self.ids[number], id, "the page is in the set");
        self.ids.swap_remove(number);
        if let Some(moved) = self.ids.get(number) {
            self.seat(pages, *moved).store(number as u32, Ordering::Relaxed);
        }
        number
    }

    /// Up to `len` pages, others at every call until all have had their turn.
    pub fn sample(&mut self, len: usize) -> impl Iterator<Item = PageId> + '_ {
        let all = self.ids.len();
        let len = len.min(all);
        let start = if self.cursor < all { self.cursor } else { 0 };
        self.cursor = start + len;
        (start..start + len).map(move |number| self.ids[number % all])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go_and_all_are_sampled_in_turn() {
        let pages: Vec<AtomicU32> = (0..10).map(|_| AtomicU32::new(u32::MAX)).collect();
        let mut set = PageSet::new(|seat: &AtomicU32| seat);
        assert_eq!((set.last(), set.sample(4).count()), (None, 0));
        (0..10).for_each(|id| set.insert(&pages, PageId(id)));
        assert_eq!(set.remove(&pages, PageId(2)), 2);
        assert_eq!(set.ids()[2], PageId(9), "the last one took its number");
        assert_eq!(set.remove(&pages, PageId(9)), 2);
        assert_eq!(set.remove(&pages, PageId(7)), 7);
        assert_eq!(set.last(), Some(PageId(6)));
        set.insert(&pages, PageId(7));
        assert_eq!(set.last(), Some(PageId(7)));
        let mut seen: Vec<u32> = (0..2).flat_map(|_| set.sample(4).map(|id| id.0).collect::<Vec<_>>()).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 3, 4, 5, 6, 7, 8]);
        assert_eq!(set.sample(100).count(), 8, "each once");
    }
}
