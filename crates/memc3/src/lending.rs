//! Lending: pages of the arena that the server's buffers stand in for, so that what clients are still sending counts inside
//! `-m`, as it would if it went into slab memory at once.
//!
//! Always true: a lent page is taken from the pool and has no memory behind it; at most half of the pages that `-m` allows
//! are lent, so that clients who upload cannot drive out all items.

use std::sync::Arc;

use guira_arena::{PAGE_LEN, PageId};
use guira_item::Time;

use crate::{engine::Shared, magazine::Station};

/// The part of the pages that may be lent is one in so many.
const LENT_PART: usize = 2;

/// Attempts to find one page: each moves one, unless other threads are faster.
const ATTEMPTS_MAX: usize = 8;

/// Pages that are lent; given back when dropped.
pub(crate) struct PageLoan {
    shared: Arc<Shared>,
    pages: Vec<PageId>,
    /// Pages counted as lent.
    counted: usize,
}

impl PageLoan {
    /// Lends `bytes`, rounded up to pages.
    pub(crate) fn new(shared: &Arc<Shared>, bytes: usize, now: Time, station: &Station) -> Option<Self> {
        let wanted = bytes.div_ceil(PAGE_LEN);
        if !shared.arena.start_lending(wanted, LENT_PART) {
            return None;
        }
        // Dropped, and what it holds given back, if a page is not to be had.
        let mut loan = Self { shared: Arc::clone(shared), pages: Vec::with_capacity(wanted), counted: wanted };
        for _ in 0..wanted {
            loan.pages.push(shared.page_to_lend(now, station)?);
        }
        Some(loan)
    }
}

impl Drop for PageLoan {
    fn drop(&mut self) {
        for page in self.pages.drain(..) {
            self.shared.arena.give_lent_page(page);
        }
        self.shared.arena.end_lending(self.counted);
    }
}

impl Shared {
    fn page_to_lend(&self, now: Time, station: &Station) -> Option<PageId> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(page) = self.arena.take_page_to_lend() {
                return Some(page);
            }
            if !self.config.evictions_enabled || !self.steal_page(None, now, station) {
                return None;
            }
        }
        None
    }
}
