//! A heap: the memory of one partition (CPHASH) or of a group of them (LOCKHASH), in pages that come from the arena they all
//! share and go back to it. Single-threaded: whoever has the heap is alone with its pages.
//!
//! ```text
//! arena: pages of 64 KiB ──> heap: by size class, pages with room ──> chunks of 2 to 256 lines
//! ```
//! Always true: a page belongs to one heap and one class; the pages of a class that have room are in its list; a page without
//! an element goes back to the arena at once, so that memory goes where it is needed.

use std::cell::Cell;

use guira_arena::PageId;
use guira_item::ClassStats;

use crate::{
    balance::Need,
    element::{Chunks, Kind, LINE_LEN, PAGE_LINES, PIECE_HEADER_LEN, Slot},
};

/// Lines of the largest chunk: a quarter of a page. Longer elements keep their value in pieces.
const CHUNK_LINES_MAX: usize = PAGE_LINES / 4;

/// Up to this many lines every number of them has a class of its own; from there on classes are an eighth apart.
const FINE_LINES_MAX: usize = 16;

/// Free chunks from which on a class gives up its emptiest pages before elements are evicted for one: two pages' worth.
const SPARE_PAGES: usize = 2;

/// Classes there are, and lines of a chunk in each.
const CLASSES: usize = CLASS_LINES.len();
const CLASS_LINES: [u16; class_count()] = class_lines();

const fn next_lines(lines: usize) -> usize {
    let wanted = if lines < FINE_LINES_MAX { lines + 1 } else { lines + lines / 8 };
    // The longest chunk of which as many fit into a page.
    let stretched = if wanted <= FINE_LINES_MAX { wanted } else { PAGE_LINES / (PAGE_LINES / wanted) };
    if stretched < CHUNK_LINES_MAX { stretched } else { CHUNK_LINES_MAX }
}

const fn class_count() -> usize {
    let (mut count, mut lines) = (1, 2);
    while lines < CHUNK_LINES_MAX {
        lines = next_lines(lines);
        count += 1;
    }
    count
}

const fn class_lines() -> [u16; class_count()] {
    let mut all = [2; class_count()];
    let mut class = 1;
    while class < all.len() {
        all[class] = next_lines(all[class - 1] as usize) as u16;
        class += 1;
    }
    all
}

/// A size class, from 0; users see it plus one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClassId(pub u8);

impl ClassId {
    /// The class of chunks that hold `len` bytes; `None` for more than a chunk can.
    #[inline]
    pub fn fitting(len: usize) -> Option<Self> {
        let lines = len.div_ceil(LINE_LEN);
        if lines <= FINE_LINES_MAX {
            return Some(Self(lines.saturating_sub(2) as u8));
        }
        let class = CLASS_LINES.partition_point(|class_lines| usize::from(*class_lines) < lines);
        (class < CLASSES).then_some(Self(class as u8))
    }

    /// The class that users call `number`.
    pub fn numbered(number: u32) -> Option<Self> {
        (1..=CLASSES as u32).contains(&number).then(|| Self((number - 1) as u8))
    }

    pub fn number(self) -> u32 {
        u32::from(self.0) + 1
    }

    /// Whether a chunk takes the room of many small ones, so that evicting some of those makes none.
    pub fn is_coarse(self) -> bool {
        self.lines() > FINE_LINES_MAX
    }

    fn lines(self) -> usize {
        usize::from(CLASS_LINES[usize::from(self.0)])
    }

    fn chunks_per_page(self) -> usize {
        PAGE_LINES / self.lines()
    }

    /// All classes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }
}

/// Bytes of a value that the largest piece holds.
pub(crate) const PIECE_LEN_MAX: usize = CHUNK_LINES_MAX * LINE_LEN - PIECE_HEADER_LEN;

/// What is known of a page.
#[derive(Default)]
pub(crate) struct PageInfo {
    class: Cell<u8>,
    /// Chunks in use.
    used: Cell<u16>,
    /// Chunks from here on have never been used.
    fresh: Cell<u16>,
    /// Chunk that was freed last, plus one.
    free: Cell<u16>,
    /// Neighbours in the list of pages with room, plus one.
    next: Cell<u32>,
    previous: Cell<u32>,
    /// Which heap it belongs to, plus one; 0: none.
    heap: Cell<u16>,
}

/// A class's part of a heap.
#[derive(Clone, Copy, Debug, Default)]
struct ClassHeap {
    /// The first page with room, plus one.
    with_room: u32,
    pages: u32,
    used: u32,
    evicted: u64,
    /// Cache lines of what was evicted, and the sum of their squares.
    evicted_lines: u64,
    evicted_squares: u64,
    evicted_unfetched: u64,
    out_of_memory: u64,
}

/// The memory of a partition, or of some.
#[derive(Debug)]
pub(crate) struct Heap {
    number: u16,
    classes: [ClassHeap; CLASSES],
    /// A page that is being emptied: neither used for new chunks nor given back meanwhile.
    draining: Option<PageId>,
    /// Pages in all.
    pages: usize,
    /// The sum of the squares of the lines of values that lie in pieces.
    squares_in_pieces: u64,
    /// Pages that were emptied to be used elsewhere.
    pages_emptied: u64,
}

impl Heap {
    pub fn new(number: u16) -> Self {
        Self {
            number: number + 1,
            classes: [ClassHeap::default(); CLASSES],
            draining: None,
            pages: 0,
            squares_in_pieces: 0,
            pages_emptied: 0,
        }
    }

    /// Pages that were emptied so far to be used elsewhere: by another class or heap, for what is lent or tables take, or not at all.
    pub fn pages_emptied(&self) -> u64 {
        self.pages_emptied
    }

    /// Pages it has.
    #[cfg(test)]
    pub fn pages(&self) -> usize {
        self.pages
    }

    fn class(&mut self, class: ClassId) -> &mut ClassHeap {
        &mut self.classes[usize::from(class.0)]
    }

    /// A chunk, if there is one or a page for it.
    #[inline]
    pub fn allocate(&mut self, chunks: Chunks<'_>, class: ClassId) -> Option<Slot> {
        if self.class(class).with_room == 0 {
            let page = chunks.memory.arena.take_page()?;
            self.adopt(chunks, page, class);
        }
        let page = PageId(self.class(class).with_room - 1);
        let info = chunks.page(page);
        let index = match info.free.get() {
            0 => {
                info.fresh.set(info.fresh.get() + 1);
                info.fresh.get() - 1
            }
            free => {
                let next = chunks.header(slot_in(page, class, free - 1)).link.get();
                info.free.set(next.0 as u16);
                free - 1
            }
        };
        info.used.set(info.used.get() + 1);
        self.class(class).used += 1;
        if usize::from(info.used.get()) == class.chunks_per_page() {
            self.unlist(chunks, page);
        }
        let slot = slot_in(page, class, index);
        let header = chunks.header(slot);
        header.set_kind(Kind::Filling);
        header.class.set(class.0);
        Some(slot)
    }

    /// Whether there is a chunk without another page.
    #[inline]
    pub fn has_chunk(&self, class: ClassId) -> bool {
        self.classes[usize::from(class.0)].with_room != 0
    }

    /// Takes a chunk back.
    #[inline]
    pub fn free(&mut self, chunks: Chunks<'_>, slot: Slot) {
        let header = chunks.header(slot);
        debug_assert_ne!(header.kind(), Kind::Free, "a chunk is freed once");
        let class = ClassId(header.class.get());
        let (page, line) = slot.locate();
        let info = chunks.page(page);
        debug_assert_eq!(info.heap.get(), self.number, "a chunk goes back to its heap");
        let was_full = usize::from(info.used.get()) == class.chunks_per_page();
        header.set_kind(Kind::Free);
        header.link.set(Slot(info.free.get().into()));
        info.free.set((line / class.lines()) as u16 + 1);
        info.used.set(info.used.get() - 1);
        self.class(class).used -= 1;
        if self.draining == Some(page) {
            return;
        }
        if was_full {
            self.list(chunks, page, class);
        }
        if info.used.get() == 0 {
            self.unlist(chunks, page);
            self.let_go(chunks, page);
        }
    }

    /// A page becomes this heap's, for chunks of a class.
    pub fn adopt(&mut self, chunks: Chunks<'_>, page: PageId, class: ClassId) {
        let info = chunks.page(page);
        debug_assert_eq!(info.heap.get(), 0, "a page from the arena is nobody's");
        info.class.set(class.0);
        info.used.set(0);
        info.fresh.set(0);
        info.free.set(0);
        info.heap.set(self.number);
        self.pages += 1;
        self.class(class).pages += 1;
        self.list(chunks, page, class);
    }

    /// Gives a page without elements, which is in no list, back to the arena.
    fn let_go(&mut self, chunks: Chunks<'_>, page: PageId) {
        let info = chunks.page(page);
        info.heap.set(0);
        self.pages -= 1;
        self.class(ClassId(info.class.get())).pages -= 1;
        chunks.memory.arena.give_page(page);
    }

    fn list(&mut self, chunks: Chunks<'_>, page: PageId, class: ClassId) {
        let first = &mut self.class(class).with_room;
        let info = chunks.page(page);
        info.previous.set(0);
        info.next.set(*first);
        if *first != 0 {
            chunks.page(PageId(*first - 1)).previous.set(page.0 + 1);
        }
        *first = page.0 + 1;
    }

    fn unlist(&mut self, chunks: Chunks<'_>, page: PageId) {
        let info = chunks.page(page);
        let (previous, next) = (info.previous.get(), info.next.get());
        match previous {
            0 => self.class(ClassId(info.class.get())).with_room = next,
            some => chunks.page(PageId(some - 1)).next.set(next),
        }
        if next != 0 {
            chunks.page(PageId(next - 1)).previous.set(previous);
        }
    }

    /// Whether a page is this heap's.
    pub fn owns(&self, chunks: Chunks<'_>, page: PageId) -> bool {
        chunks.page(page).heap.get() == self.number
    }

    /// A page of a class that has free chunks for two pages or more.
    pub fn spare_page(&self) -> Option<PageId> {
        ClassId::all().find_map(|class| {
            let heap = &self.classes[usize::from(class.0)];
            let free = heap.pages as usize * class.chunks_per_page() - heap.used as usize;
            (free >= SPARE_PAGES * class.chunks_per_page()).then(|| PageId(heap.with_room - 1))
        })
    }

    /// A page of `class`, with room if there is one.
    pub fn any_page(&self, class: ClassId) -> Option<PageId> {
        let first = self.classes[usize::from(class.0)].with_room;
        (first != 0).then(|| PageId(first - 1))
    }

    /// Whether a page has no element.
    pub fn is_empty(&self, chunks: Chunks<'_>, page: PageId) -> bool {
        chunks.page(page).used.get() == 0
    }

    /// Pages of a class.
    pub fn class_pages(&self, class: ClassId) -> usize {
        self.classes[usize::from(class.0)].pages as usize
    }

    /// Empties a page through `evict`, which takes the element away that a chunk is, or is a piece of, if it can; true if the
    /// page went back to the arena. Elements that are being read or filled keep their page.
    pub fn drain(&mut self, chunks: Chunks<'_>, page: PageId, mut evict: impl FnMut(&mut Self, Slot)) -> bool {
        let info = chunks.page(page);
        let class = ClassId(info.class.get());
        let had_room = usize::from(info.used.get()) < class.chunks_per_page();
        if had_room {
            self.unlist(chunks, page);
        }
        self.draining = Some(page);
        for index in 0..info.fresh.get() {
            let slot = slot_in(page, class, index);
            match chunks.header(slot).kind() {
                Kind::Ready => evict(self, slot),
                Kind::Piece => evict(self, chunks.header(slot).link.get()),
                Kind::Free | Kind::Filling | Kind::Dead => {}
            }
        }
        self.draining = None;
        if info.used.get() == 0 {
            self.let_go(chunks, page);
            self.pages_emptied += 1;
            return true;
        }
        if usize::from(info.used.get()) < class.chunks_per_page() {
            self.list(chunks, page, class);
        }
        false
    }

    /// Counts an element whose value of so many bytes lies in pieces, while it is there.
    pub fn count_in_pieces(&mut self, value_len: usize, is_there: bool) {
        let square = (value_len.div_ceil(LINE_LEN) as u64).pow(2);
        let squares = self.squares_in_pieces;
        self.squares_in_pieces = if is_there { squares + square } else { squares - square };
    }

    /// Counts an eviction of `len` bytes.
    pub fn count_evicted(&mut self, class: ClassId, len: usize, is_fetched: bool) {
        let (class, lines) = (self.class(class), len.div_ceil(LINE_LEN) as u64);
        class.evicted += 1;
        class.evicted_lines += lines;
        class.evicted_squares += lines.pow(2);
        class.evicted_unfetched += u64::from(!is_fetched);
    }

    /// Counts an operation that found no memory.
    pub fn count_out_of_memory(&mut self, class: ClassId) {
        self.class(class).out_of_memory += 1;
    }

    /// What its elements have needed so far, and what it has.
    pub fn need(&self) -> Need {
        let mut need = Need { pages: self.pages, squares: self.squares_in_pieces, ..Need::default() };
        for (class, heap) in ClassId::all().zip(&self.classes) {
            let (used, lines) = (u64::from(heap.used), class.lines() as u64);
            need.lines += used * lines + heap.evicted_lines;
            need.squares += used * lines.pow(2) + heap.evicted_squares;
            need.evictions += heap.evicted;
        }
        need
    }

    /// Adds its numbers to those of all heaps, a place for each class.
    pub fn add_stats(&self, all: &mut [ClassStats]) {
        for ((class, heap), sum) in ClassId::all().zip(&self.classes).zip(all) {
            sum.class = class.number();
            sum.chunk_size = class.lines() * LINE_LEN;
            sum.chunks_per_page = class.chunks_per_page();
            sum.total_pages += u64::from(heap.pages);
            sum.used_chunks += u64::from(heap.used);
            sum.free_chunks += u64::from(heap.pages) * class.chunks_per_page() as u64 - u64::from(heap.used);
            sum.evicted += heap.evicted;
            sum.evicted_unfetched += heap.evicted_unfetched;
            sum.out_of_memory += heap.out_of_memory;
        }
    }
}

#[inline]
fn slot_in(page: PageId, class: ClassId, index: u16) -> Slot {
    Slot((page.0 as usize * PAGE_LINES + usize::from(index) * class.lines()) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Memory;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        let len_max = CHUNK_LINES_MAX * LINE_LEN;
        for len in LINE_LEN + 1..=len_max {
            let class = ClassId::fitting(len).expect("fits");
            assert!(class.lines() * LINE_LEN >= len, "{len}");
            assert!(class.0 == 0 || ClassId(class.0 - 1).lines() * LINE_LEN < len, "{len}");
        }
        assert_eq!(ClassId::fitting(len_max + 1), None);
        assert!(CLASS_LINES.is_sorted_by(|one, next| one < next) && CLASSES < 64, "{CLASS_LINES:?}");
    }

    #[test]
    fn pages_come_and_go_with_their_chunks() {
        let memory = Memory::with_pages(4, 1);
        // SAFETY: this thread is alone with the memory.
        let chunks = unsafe { memory.chunks() };
        let mut heap = Heap::new(0);
        let (small, large) = (ClassId::fitting(128).expect("fits"), ClassId::fitting(16_384).expect("fits"));
        let mut slots: Vec<Slot> = (0..3 * 512).map(|_| heap.allocate(chunks, small).expect("room")).collect();
        assert_eq!((heap.allocate(chunks, small), heap.allocate(chunks, large), heap.pages()), (None, None, 3));
        slots.sort_by_key(|slot| slot.0);
        assert!(slots.is_sorted_by(|one, next| one.0 + 2 <= next.0), "chunks lie beside each other");
        for slot in slots.drain(..512) {
            heap.free(chunks, slot);
        }
        assert_eq!((heap.pages(), memory.arena.usage().0), (2, 3), "an empty page goes back");
        let pieces: Vec<Slot> = (0..4).map(|_| heap.allocate(chunks, large).expect("room")).collect();
        assert_eq!(heap.allocate(chunks, large), None);
        slots.into_iter().chain(pieces).for_each(|slot| heap.free(chunks, slot));
        assert_eq!((heap.pages(), memory.arena.usage().0), (0, 1), "but for the buckets'");
    }

    #[test]
    fn a_page_that_is_emptied_goes_back_unless_an_element_is_in_use() {
        let memory = Memory::with_pages(3, 1);
        // SAFETY: this thread is alone with the memory.
        let chunks = unsafe { memory.chunks() };
        let mut heap = Heap::new(0);
        let class = ClassId::fitting(16_384).expect("fits");
        let slots: Vec<Slot> = (0..4).map(|_| heap.allocate(chunks, class).expect("room")).collect();
        slots[1..].iter().for_each(|slot| chunks.header(*slot).set_kind(Kind::Ready));
        let page = slots[0].locate().0;
        assert!(!heap.drain(chunks, page, |heap, slot| heap.free(chunks, slot)), "one is being filled");
        let last = heap.allocate(chunks, class).expect("the page has room");
        chunks.header(slots[0]).set_kind(Kind::Ready);
        heap.drain(chunks, page, |heap, slot| heap.free(chunks, slot));
        assert_eq!((heap.pages(), heap.pages_emptied()), (1, 0), "the last chunk taken is being filled");
        chunks.header(last).set_kind(Kind::Ready);
        assert!(heap.drain(chunks, page, |heap, slot| heap.free(chunks, slot)));
        assert_eq!((heap.pages(), heap.pages_emptied()), (0, 1));
    }
}
