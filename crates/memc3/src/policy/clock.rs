//! CLOCK (Corbató 1968; MemC3, section 4): a hand goes round the chunks of a class and takes the first item whose recency
//! bit, set by a read, is not set; it clears the bits it passes.

use super::{JUDGED_MAX, Judged, Policy};
use guira_arena::Place;

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

    fn page_left(&mut self, index: usize) {
        if self.page == index {
            self.chunk = 0;
        }
    }
}

/// The item to take if the hand at `place` finds one, or the piece at which one is judged, that was not read since it last came
/// by.
fn judge(memory: &ClassMemory<'_>, place: Place, in_any_case: bool) -> Option<Place> {
    let judged = Judged::at(memory, place)?;
    judged.goes(in_any_case).then_some(judged.item)
}
