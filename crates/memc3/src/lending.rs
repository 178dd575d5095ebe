//! Lending: pages of the arena that the server's buffers stand in for, so that what clients are still sending counts inside
//! `-m`, as it would if it went into slab memory at once.
//!
//! Always true: a lent page is taken from the pool and has no memory behind it; at most half of the pages that `-m` allows
//! are lent, so that clients who upload cannot drive out all items.

use std::sync::Arc;

use guira_arena::{PageId, PageLoan};
use guira_item::Time;

use crate::{engine::Shared, magazine::Station};

/// Attempts to find one page: each moves one, unless other threads are faster.
const ATTEMPTS_MAX: usize = 8;

/// Lends `bytes` of the arena, evicting for it if that is allowed.
pub(crate) fn lend(shared: &Arc<Shared>, bytes: usize, now: Time, station: &Station) -> Option<PageLoan> {
    PageLoan::new(&shared.arena, bytes, || shared.page_to_lend(now, station))
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
