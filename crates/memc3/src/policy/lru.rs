//! Strict LRU: every read moves its item to the end of a list, under the class's lock. The baseline of MemC3's Table 3, exact
//! and slow with several threads.

use super::{
    Judged, Ordered, Policy,
    list::{self, List, Stretch},
};
use guira_arena::Place;
use guira_item::OrderCursor;

use crate::slabs::ClassMemory;

/// Items by last use.
#[derive(Debug, Default)]
pub(crate) struct Lru {
    list: List,
}

impl Policy for Lru {
    fn stored(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        self.removed(memory, chunk);
        self.list.push(memory, chunk);
    }

    fn removed(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        if list::is_linked(memory, chunk) {
            self.list.remove(memory, chunk);
        }
    }

    fn moved(&mut self, memory: &ClassMemory<'_>, from: Place, to: Place) {
        match (list::is_linked(memory, from), list::is_linked(memory, to)) {
            (_, true) => {}
            (true, false) => self.list.replace(memory, from, to),
            (false, false) => self.stored(memory, to),
        }
    }

    fn used(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        if list::is_linked(memory, chunk) {
            self.list.remove(memory, chunk);
            self.list.push(memory, chunk);
        }
    }

    fn victims(&mut self, memory: &ClassMemory<'_>, wanted: usize, victims: &mut Vec<Place>) {
        for _ in 0..wanted.min(self.list.len()) {
            let Some(oldest) = self.list.oldest() else { return };
            // A victim that cannot go, or that somebody else is taking, must not be named again at once.
            self.list.remove(memory, oldest);
            self.list.push(memory, oldest);
            victims.extend(Judged::at(memory, oldest).map(|judged| judged.item));
        }
    }

    fn in_order(
        &self,
        memory: &ClassMemory<'_>,
        from: OrderCursor,
        limit: usize,
        found: &mut Vec<Ordered>,
    ) -> Option<OrderCursor> {
        let all = Stretch { first: self.list.oldest(), end: None, is_spared: false };
        list::in_order(memory, &[all], self.list.len(), from, limit, found)
    }

    #[cfg(test)]
    fn nodes(&self) -> usize {
        self.list.len()
    }
}
