//! CLOCK (Corbató 1968; MemC3, section 4): a hand goes round the chunks of a class and takes the first item whose recency
//! bit, set by a read, is not set; it clears the bits it passes.

use super::{JUDGED_MAX, Judged, Ordered, Policy};
use guira_arena::Place;
use guira_item::{OrderCursor, Rank, Standing};

use crate::slabs::ClassMemory;

/// The hand.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Page, by its number in the class.
    page: usize,
    /// Chunk in the page.
    chunk: usize,
}

impl Policy for Clock {
    fn victims(&mut self, memory: &ClassMemory<'_>, wanted: usize, victims: &mut Vec<Place>) {
        // After two rounds every bit has been seen cleared.
        let mut pages_left = 2 * memory.pages().len() + 1;
        let mut missing = wanted;
        let mut judged = 0;
        while missing > 0 && pages_left > 0 {
            let Some(page) = memory.pages().get(self.page).copied() else {
                if self.page == 0 {
                    return;
                }
                (self.page, self.chunk) = (0, 0);
                continue;
            };
            let used = memory.chunks_used(page);
            while self.chunk < used && missing > 0 {
                let place = memory.chunk(page, self.chunk);
                self.chunk += 1;
                judged += 1;
                if let Some(victim) = judge(memory, place, judged > JUDGED_MAX) {
                    victims.push(victim);
                    missing -= 1;
                }
            }
            if self.chunk >= used {
                memory.swept(page);
                self.chunk = 0;
                self.page += 1;
                pages_left -= 1;
            }
        }
    }

    fn in_order(
        &self,
        memory: &ClassMemory<'_>,
        from: OrderCursor,
        limit: usize,
        found: &mut Vec<Ordered>,
    ) -> Option<OrderCursor> {
        round(memory, (self.page, self.chunk), from, limit, found)
    }

    fn page_left(&mut self, index: usize) {
        if self.page == index {
            self.chunk = 0;
        }
    }
}

/// One round through all chunks of a class from a page and a chunk of it on: what a policy without a list has for an order. A cursor is
/// how many pages come before, and a chunk.
pub(super) fn round(
    memory: &ClassMemory<'_>,
    (first_page, first_chunk): (usize, usize),
    from: OrderCursor,
    limit: usize,
    found: &mut Vec<Ordered>,
) -> Option<OrderCursor> {
    let pages = memory.pages();
    let (first_page, first_chunk) = if first_page < pages.len() { (first_page, first_chunk) } else { (0, 0) };
    let (begin, mut chunk) = ((from.at >> 32) as usize, from.at as u32 as usize);
    let mut left = limit;
    // The first page comes twice: from the first chunk on, and up to it.
    for turn in begin..=pages.len() {
        let page = *pages.get((first_page + turn) % pages.len().max(1))?;
        let used = memory.chunks_used(page);
        let end = if turn == pages.len() { first_chunk.min(used) } else { used };
        chunk = if turn == 0 { chunk.max(first_chunk) } else { chunk };
        let standing = Standing { rank: Rank::of(turn as u64, pages.len() as u64), is_spared: false };
        while chunk < end {
            if left == 0 {
                return Some(OrderCursor { at: (turn as u64) << 32 | chunk as u64, ..from });
            }
            left -= 1;
            found.extend(Ordered::at(memory, memory.chunk(page, chunk), standing));
            chunk += 1;
        }
        chunk = 0;
    }
    None
}

/// The item to take if the hand at `place` finds one, or the piece at which one is judged, that was not read since it last came
/// by.
fn judge(memory: &ClassMemory<'_>, place: Place, in_any_case: bool) -> Option<Place> {
    let judged = Judged::at(memory, place)?;
    judged.goes(in_any_case).then_some(judged.item)
}
