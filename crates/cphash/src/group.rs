//! A group: a heap and the partitions that take their memory from it, all in the hands of one thread. For CPHASH a group is one
//! partition; LOCKHASH has more partitions than there are pages to go round, so that some of them share a heap.
//!
//! Always true: emptying a page evicts elements of this group only, since a page is one heap's.

use guira_arena::PageId;
use guira_item::ReassignError;

use crate::{
    context::{Context, Shortage},
    element::{Kind, Slot},
    heap::{ClassId, Heap},
    partition::Partition,
};

/// Pages tried for one that can be emptied: elements that are being read or filled keep theirs.
const PAGES_TRIED_MAX: usize = 8;

/// A heap and its partitions.
pub(crate) struct Group<'g> {
    pub heap: &'g mut Heap,
    /// The partitions, and the number of the first one.
    pub partitions: &'g mut [&'g mut Partition],
    pub first: usize,
}

impl Group<'_> {
    /// Makes room for what found none; returns how many pages' worth can be had now.
    pub fn make_room(&mut self, cx: &Context<'_>, Shortage { class, pages }: Shortage) -> usize {
        if pages == 1 && self.heap.has_chunk(class) {
            return 1;
        }
        let free = cx.chunks.memory.arena.free_pages();
        let given = (free..pages).take_while(|_| self.give_page(cx)).count();
        // Elements may have gone though no page did.
        let left = usize::from(self.heap.has_chunk(class));
        (free + given).max(left)
    }

    /// Empties a page and gives it back to the arena.
    pub fn give_page(&mut self, cx: &Context<'_>) -> bool {
        if let Some(page) = self.heap.spare_page()
            && self.drain(cx, page)
        {
            return true;
        }
        cx.settings.config.evictions_enabled
            && (0..PAGES_TRIED_MAX).any(|_| self.victim_page(cx).is_some_and(|page| self.drain(cx, page)))
    }

    /// The page of the element that goes next in the partition that has most.
    fn victim_page(&mut self, cx: &Context<'_>) -> Option<PageId> {
        let partition = self.partitions.iter_mut().max_by_key(|partition| partition.len())?;
        let slot = partition.victim(cx)?;
        let header = cx.chunks.header(slot);
        // A large element's memory is its pieces'.
        let chunk = header.pieces.get().some().unwrap_or(slot);
        if header.references.get() > 0 {
            // It cannot make room yet, and would be the next one again.
            partition.evict(cx, self.heap, slot);
        }
        Some(chunk.locate().0)
    }

    /// Evicts what is in a page; true if the page went back to the arena.
    fn drain(&mut self, cx: &Context<'_>, page: PageId) -> bool {
        if !self.heap.owns(cx.chunks, page) {
            return true;
        }
        let may_evict = cx.settings.config.evictions_enabled;
        let (partitions, first) = (&mut *self.partitions, self.first);
        self.heap.drain(cx.chunks, page, |heap, slot: Slot| {
            let header = cx.chunks.header(slot);
            if header.kind() == Kind::Ready && may_evict {
                let partition = cx.chunks.memory.buckets.partition_of(header.hash.get()) - first;
                partitions[partition].evict(cx, heap, slot);
            }
        })
    }

    /// Has a page go from one class to another, or to the arena; see [`guira_item::Engine::reassign_page`].
    pub fn reassign(
        &mut self,
        cx: &Context<'_>,
        from: Option<ClassId>,
        to: Option<ClassId>,
    ) -> Result<(), ReassignError> {
        if let Some(from) = from {
            let page = self.page_of(cx, from).ok_or(ReassignError::NoSpare)?;
            if self.heap.class_pages(from) == 1 && !self.heap.is_empty(cx.chunks, page) {
                return Err(ReassignError::NoSpare);
            }
            if !self.drain(cx, page) {
                return Err(ReassignError::NoSpare);
            }
        }
        if let Some(to) = to {
            let page = cx.chunks.memory.arena.take_page().ok_or(ReassignError::NoSpare)?;
            self.heap.adopt(cx.chunks, page, to);
        }
        Ok(())
    }

    fn page_of(&mut self, cx: &Context<'_>, class: ClassId) -> Option<PageId> {
        self.heap.any_page(class).or_else(|| {
            let mut victims = self.partitions.iter_mut().filter_map(|partition| partition.victim(cx));
            let of_class = |slot: &Slot| ClassId(cx.chunks.header(*slot).class.get()) == class;
            victims.find(of_class).map(|slot| slot.locate().0)
        })
    }
}
