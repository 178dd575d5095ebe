//! SIEVE (Zhang et al., NSDI'24): items stay in order of arrival; a hand goes from old to new, spares and unmarks what was
//! read, takes what was not, and stays where it is, so that new items are tried before old ones are tried again.

use super::{
    JUDGED_MAX, Judged, Ordered, Policy, judged_max,
    list::{self, List, Stretch},
};
use guira_arena::Place;
use guira_item::OrderCursor;

use crate::slabs::ClassMemory;

/// The queue and the hand.
#[derive(Debug, Default)]
pub(crate) struct Sieve {
    list: List,
    /// The next one to be judged; none: the oldest.
    hand: Option<Place>,
}

impl Policy for Sieve {
    fn stored(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        self.removed(memory, chunk);
        self.list.push(memory, chunk);
    }

    fn restored(&mut self, memory: &ClassMemory<'_>, chunk: Place, is_spared: bool) {
        self.removed(memory, chunk);
        match self.hand {
            // Those ahead of the hand came before.
            Some(hand) if is_spared => self.list.push_before(memory, hand, chunk),
            hand => {
                self.list.push(memory, chunk);
                self.hand = hand.or((!is_spared).then_some(chunk));
            }
        }
    }

    fn removed(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        if list::is_linked(memory, chunk) {
            if self.hand == Some(chunk) {
                self.hand = self.list.newer(memory, chunk);
            }
            self.list.remove(memory, chunk);
        }
    }

    fn moved(&mut self, memory: &ClassMemory<'_>, from: Place, to: Place) {
        match (list::is_linked(memory, from), list::is_linked(memory, to)) {
            (_, true) => {}
            (true, false) => {
                self.list.replace(memory, from, to);
                if self.hand == Some(from) {
                    self.hand = Some(to);
                }
            }
            (false, false) => self.stored(memory, to),
        }
    }

    fn victims(&mut self, memory: &ClassMemory<'_>, wanted: usize, victims: &mut Vec<Place>) {
        let mut missing = wanted.min(self.list.len());
        for judged in 0..judged_max(self.list.len(), wanted) {
            if missing == 0 {
                return;
            }
            let Some(chunk) = self.hand.or(self.list.oldest()) else { return };
            self.hand = self.list.newer(memory, chunk);
            let Some(found) = Judged::at(memory, chunk) else { continue };
            if found.goes(judged >= JUDGED_MAX) {
                victims.push(found.item);
                missing -= 1;
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
        let ahead = Stretch { first: self.hand.or(self.list.oldest()), end: None, is_spared: false };
        let behind = Stretch { first: self.hand.and(self.list.oldest()), end: self.hand, is_spared: true };
        list::in_order(memory, &[ahead, behind], self.list.len(), from, limit, found)
    }

    #[cfg(test)]
    fn nodes(&self) -> usize {
        self.list.len()
    }
}
