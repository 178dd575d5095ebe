//! What a flush leaves to be done: each page is looked through once, since any item in it may be dead.
//!
//! Always true: while a flush is under way, or a page is still to be looked through, [`Sweep::is_over`] says no. Items that a flush
//! made dead stay in the page in which it met them, so once it says yes there are none.

use std::sync::atomic::{AtomicU64, Ordering};

use guira_arena::PageId;

/// In the upper half of the word: flushes under way, and pages that are being looked through.
const AT_WORK: u64 = 1 << 32;

/// Pages to be looked through, in the lower half of a word; and in the upper half who is at work.
#[derive(Debug)]
pub(crate) struct Sweep {
    word: AtomicU64,
    /// Pages there are.
    pages: u64,
}

impl Sweep {
    /// Nothing to be done, of so many pages.
    pub fn new(pages: usize) -> Self {
        Self { word: AtomicU64::new(0), pages: pages as u64 }
    }

    /// Calls `flush`, which makes items dead, and has all pages looked through afterwards: behind those that are left of the lap under
    /// way, so that flushes that come fast do not keep its last pages waiting for ever.
    pub fn after(&self, flush: impl FnOnce()) {
        // Relaxed: whoever meets what `flush` did has taken a lock after it.
        self.word.fetch_add(AT_WORK, Ordering::Relaxed);
        flush();
        let one_more_lap = |word: u64| {
            let left_of_lap = (word & (AT_WORK - 1)) % self.pages;
            Some(((word & !(AT_WORK - 1)) - AT_WORK) | (left_of_lap + self.pages))
        };
        // Release: pairs with the Acquire in `take`; who looks through a page finds dead what `flush` made so.
        let _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, one_more_lap);
    }

    /// Calls `look_through` with the next page; `None` if there is none.
    pub fn take<R>(&self, look_through: impl FnOnce(PageId) -> R) -> Option<R> {
        let one = |word: u64| (word & (AT_WORK - 1) > 0).then(|| word + AT_WORK - 1);
        // Acquire: pairs with the Release in `after`.
        let before = self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, one).ok()?;
        let result = look_through(PageId((((before & (AT_WORK - 1)) - 1) % self.pages) as u32));
        // Release: pairs with the Acquire in `is_over`; the page's dead items have left the index.
        self.word.fetch_sub(AT_WORK, Ordering::Release);
        Some(result)
    }

    /// Whether there are pages left to be taken.
    pub fn has_pages(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (AT_WORK - 1) > 0
    }

    /// Whether every flush so far has been followed by a look through every page.
    pub fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `take`.
        self.word.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_over_when_its_last_page_has_been_looked_through() {
        let sweep = Sweep::new(3);
        assert!(sweep.is_over() && sweep.take(|page| page).is_none());
        sweep.after(|| assert!(!sweep.is_over() && !sweep.has_pages()));
        assert!(sweep.has_pages());
        let mut seen: Vec<u32> = (0..2).filter_map(|_| sweep.take(|page| page.0)).collect();
        seen.extend(sweep.take(|page| {
            assert!(!sweep.has_pages() && !sweep.is_over(), "it is being looked through");
            page.0
        }));
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
        assert!(sweep.is_over());
    }

    #[test]
    fn another_flush_begins_again() {
        let sweep = Sweep::new(3);
        sweep.after(|| {});
        sweep.take(|_| {
            sweep.after(|| {});
            assert!(!sweep.is_over());
        });
        sweep.after(|| {});
        let seen: Vec<u32> = std::iter::from_fn(|| sweep.take(|page| page.0)).collect();
        assert_eq!(seen, [1, 0, 2, 1, 0], "the lap under way, and one more");
        assert!(sweep.is_over());
    }
}
