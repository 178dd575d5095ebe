//! Random eviction: no order, no marks; the baseline below which no policy should fall.

use super::{Ordered, Policy, clock};
use guira_arena::Place;
use guira_item::OrderCursor;

use crate::{item::Header, large, slabs::ClassMemory};

/// A generator (SplitMix64) is all the state there is.
#[derive(Debug, Default)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * below as u128) >> 64) as usize
    }
}

impl Policy for Random {
    fn victims(&mut self, memory: &ClassMemory<'_>, wanted: usize, victims: &mut Vec<Place>) {
        let pages = memory.pages().len();
        if pages == 0 {
            return;
        }
        // Most chunks of a full class hold an item; a few misses are allowed for each.
        for _ in 0..16 * wanted {
            let page = memory.pages()[self.next(pages)];
            let used = memory.chunks_used(page);
            if used == 0 {
                continue;
            }
            let place = memory.chunk(page, self.next(used));
            memory.swept(page);
            let Some(words) = memory.words(place) else { continue };
            victims.extend(if Header::of(words).is_item() { Some(place) } else { large::judged_owner(words) });
            if victims.len() >= wanted {
                return;
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
        clock::round(memory, (0, 0), from, limit, found)
    }
}
