//! The arena: one reservation of address space of `-m` bytes, cut into pages of 64 KiB, from which an engine's items and its
//! index come. Memory is taken from the operating system when a page is first used.
//!
//! ```text
//! Place (32 bits, a payload of an index):   check bits | granule number
//! ```
//! Always true: the reservation stays mapped as long as the arena lives, with a guard of one page behind it, so reading up to
//! a page's length from any place stays inside; all access to pages that other threads may see is atomic, by words.

mod mapping;

use std::{
    ops::Range,
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use guira_sync::{
    order::{Held, Rank},
    reuse,
};

pub use mapping::{HUGE_PAGE_LEN, Mapping};

/// Bytes of a page: a segment of the cuckoo index, small enough that a size class with few items wastes little.
pub const PAGE_LEN: usize = 64 << 10;

/// Most pages that are lent at a time: each may be a mapping of its own, of which a process has 65,530.
const LENT_MAX: usize = 8 << 10;

/// The part of the pages that may be lent is one in so many.
const LENT_PART: usize = 2;

/// `MADV_DONTNEED` for locked memory (Linux 5.18).
const MADV_DONTNEED_LOCKED: libc::c_int = 24;

/// A page's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PageId(pub u32);

/// Where a chunk begins: its number of granules from the start of the arena.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(pub u32);

/// The operating system does not give that much address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoAddressSpace {
    /// Bytes asked for.
    pub bytes: usize,
}

/// What the arena has to give.
#[derive(Debug)]
struct Pool {
    /// Pages that were given back.
    returned: Vec<PageId>,
    /// Pages that have never been used. Those without memory come from the end: a hole among the others would keep the system
    /// from having a huge page there.
    fresh: Range<u32>,
    /// Pages in use.
    taken: usize,
    /// Most pages in use at a time.
    limit: usize,
    /// Pages set aside for the index, which cannot evict to get one.
    reserved: Vec<PageId>,
    /// Pages that are lent, or about to be.
    lent: usize,
}

/// The reservation and its pages.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    _mapping: Mapping,
    pages: usize,
    granule_shift: u32,
    /// Granule numbers fit into so many bits; the bits above are the check bits.
    place_bits: u32,
    huge_pages: bool,
    pool: Mutex<Pool>,
}

// SAFETY: the memory behind `base` belongs to the arena, is only accessed as atomics (or by whoever alone holds a chunk),
// and the pool is behind a mutex.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `pages` pages; takes no memory yet.
    pub fn new(pages: usize, huge_pages: bool) -> Result<Self, NoAddressSpace> {
        let len = pages * PAGE_LEN;
        let mapping = Mapping::new(len + PAGE_LEN, huge_pages)?;
        let mut granule_shift = 3;
        while (len - 1) >> granule_shift > u32::MAX as usize {
            granule_shift += 1;
        }
        let granules = len >> granule_shift;
        Ok(Self {
            base: mapping.start(),
            _mapping: mapping,
            pages,
            granule_shift,
            place_bits: usize::BITS - granules.saturating_sub(1).leading_zeros(),
            huge_pages,
            pool: Mutex::new(Pool {
                returned: Vec::new(),
                fresh: 0..pages as u32,
                taken: 0,
                limit: pages,
                reserved: Vec::new(),
                lent: 0,
            }),
        })
    }

    fn with_pool<R>(&self, work: impl FnOnce(&mut Pool) -> R) -> R {
        let _held = Held::note(Rank::Pool);
        work(&mut self.pool.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Pages in all.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Whether the system is asked for huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// Bytes to which every chunk is aligned: 8, or more in an arena above 32 GiB.
    pub fn granule(&self) -> usize {
        1 << self.granule_shift
    }

    /// Takes a page from the pool.
    pub fn take_page(&self) -> Option<PageId> {
        self.take(|pool| pool.returned.pop().or_else(|| pool.fresh.next().map(PageId)))
    }

    /// Takes the page that `choose` finds, if the limit allows one more.
    fn take(&self, choose: impl FnOnce(&mut Pool) -> Option<PageId>) -> Option<PageId> {
        let page = self.with_pool(|pool| {
            if pool.taken >= pool.limit {
                return None;
            }
            let page = choose(pool)?;
            pool.taken += 1;
            Some(page)
        })?;
        reuse::before_reuse();
        Some(page)
    }

    /// Gives a page back; whoever still reads from it will find out by its stripe.
    pub fn give_page(&self, page: PageId) {
        let is_above_limit = self.with_pool(|pool| pool.taken > pool.limit);
        if is_above_limit {
            self.let_go(page);
        }
        self.with_pool(|pool| {
            pool.taken -= 1;
            pool.returned.push(page);
        });
    }

    /// Gives a taken page's memory to the system; the page stays taken. False if the system does not take it.
    fn let_go(&self, page: PageId) -> bool {
        // The second is for memory that is locked (`-k`), where the first is refused.
        [libc::MADV_DONTNEED, MADV_DONTNEED_LOCKED].into_iter().any(|advice| self.advise(page, advice))
    }

    fn advise(&self, page: PageId, advice: libc::c_int) -> bool {
        // SAFETY: the page is a whole number of the system's pages, in the mapping, and in the hands of the caller: nobody holds
        // anything in it, and an optimistic reader that sees it turn to zeros does not validate.
        unsafe { libc::madvise(self.page(page).cast(), PAGE_LEN, advice) == 0 }
    }

    /// Counts `pages` as lent, if no more than `part_max` of the limit's pages, and no more than the system can map apart, are then.
    fn start_lending(&self, pages: usize, part_max: usize) -> bool {
        self.with_pool(|pool| {
            let may = pool.lent + pages <= (pool.limit / part_max).min(LENT_MAX);
            pool.lent += if may { pages } else { 0 };
            may
        })
    }

    /// Counts `pages` as lent no longer.
    fn end_lending(&self, pages: usize) {
        self.with_pool(|pool| pool.lent -= pages);
    }

    /// Takes a page without memory, which somebody else uses until it is given back by `give_lent_page`.
    pub fn take_page_to_lend(&self) -> Option<PageId> {
        let page = self.take(|pool| {
            // One that was returned has memory, which counts while the limit is lower than all pages.
            let has_room = pool.taken + pool.returned.len() < pool.limit;
            let fresh = if has_room { pool.fresh.next_back() } else { None };
            fresh.map(PageId).or_else(|| pool.returned.pop())
        })?;
        // The system would fill the hole in a huge page again otherwise.
        let stays = !self.huge_pages || self.advise(page, libc::MADV_NOHUGEPAGE);
        if stays && self.let_go(page) {
            return Some(page);
        }
        self.give_lent_page(page);
        None
    }

    /// Gives back a page that was taken to be lent.
    fn give_lent_page(&self, page: PageId) {
        if self.huge_pages {
            self.advise(page, libc::MADV_HUGEPAGE);
        }
        self.give_page(page);
    }

    /// Sets a taken page aside for the index.
    pub fn reserve_for_index(&self, page: PageId) {
        self.with_pool(|pool| pool.reserved.push(page));
    }

    /// A page for the index: one that was set aside, or one from the pool.
    pub fn take_page_for_index(&self) -> Option<PageId> {
        let reserved = self.with_pool(|pool| pool.reserved.pop());
        let page = reserved.or_else(|| self.take_page())?;
        reuse::before_reuse();
        Some(page)
    }

    /// The page that begins at `address`, which [`Arena::page`] has told.
    pub fn page_at(&self, address: *const u8) -> PageId {
        PageId(((address as usize - self.base.as_ptr() as usize) / PAGE_LEN) as u32)
    }

    /// Pages set aside for the index.
    pub fn reserved_for_index(&self) -> usize {
        self.with_pool(|pool| pool.reserved.len())
    }

    /// Pages in use, and the limit.
    pub fn usage(&self) -> (usize, usize) {
        self.with_pool(|pool| (pool.taken, pool.limit))
    }

    /// Whether a page can be had without taking it from someone.
    pub fn has_free_page(&self) -> bool {
        self.free_pages() > 0
    }

    /// Pages that can be had without taking them from someone.
    pub fn free_pages(&self) -> usize {
        self.with_pool(|pool| pool.limit.saturating_sub(pool.taken))
    }

    /// Changes the limit, in pages, up to what was reserved.
    pub fn set_limit(&self, pages: usize) {
        self.with_pool(|pool| pool.limit = pages.min(self.pages));
    }

    /// First byte of a page.
    #[inline]
    pub fn page(&self, page: PageId) -> *mut u8 {
        debug_assert!((page.0 as usize) < self.pages);
        // SAFETY: page numbers come from the pool, which counts up to `pages`, all inside the mapping.
        unsafe { self.base.as_ptr().add(page.0 as usize * PAGE_LEN) }
    }

    /// The place `offset` bytes into a page; `offset` is a multiple of the granule.
    #[inline]
    pub fn place(&self, page: PageId, offset: usize) -> Place {
        Place(((page.0 as usize * PAGE_LEN + offset) >> self.granule_shift) as u32)
    }

    /// The page a place lies in, and the offset in it in bytes.
    #[inline]
    pub fn locate(&self, place: Place) -> (PageId, usize) {
        let at = (place.0 as usize) << self.granule_shift;
        (PageId((at / PAGE_LEN) as u32), at % PAGE_LEN)
    }

    /// The words from a place on, or `None` for a place outside, as a torn read may deliver.
    #[inline]
    pub fn words(&self, place: Place) -> Option<Words<'_>> {
        let at = (place.0 as usize) << self.granule_shift;
        if at >= self.pages * PAGE_LEN {
            return None;
        }
        // SAFETY: inside the mapping, by the comparison above.
        let start = unsafe { NonNull::new_unchecked(self.base.as_ptr().add(at)) };
        Some(Words { start: start.cast(), arena: std::marker::PhantomData })
    }

    /// Payload of the index: the place, and above it as many of the hash's spare bits as there is room for.
    #[inline]
    pub fn payload(&self, place: Place, spare_bits: u8) -> u32 {
        place.0 | u32::from(spare_bits).checked_shl(self.place_bits).unwrap_or(0)
    }

    /// The place in a payload, whatever its check bits.
    #[inline]
    pub fn payload_place(&self, payload: u32) -> Place {
        Place(payload & self.place_mask())
    }

    /// The place in a payload whose check bits fit the hash.
    #[inline]
    pub fn checked_place(&self, payload: u32, spare_bits: u8) -> Option<Place> {
        let check = u32::from(spare_bits).checked_shl(self.place_bits).unwrap_or(0);
        let mask = self.place_mask();
        (payload & !mask == check & !mask).then_some(Place(payload & mask))
    }

    #[inline]
    fn place_mask(&self) -> u32 {
        1u32.checked_shl(self.place_bits).map_or(u32::MAX, |bit| bit - 1)
    }

    /// The whole arena, for tests that forbid writing to it.
    pub fn span(&self) -> (*mut u8, usize) {
        (self.base.as_ptr(), self.pages * PAGE_LEN)
    }
}

/// Pages that somebody else uses the memory of; given back when dropped.
#[derive(Debug)]
pub struct PageLoan {
    arena: Arc<Arena>,
    pages: Vec<PageId>,
    /// Pages counted as lent.
    counted: usize,
}

impl PageLoan {
    /// Lends `bytes`, rounded up to pages, each from `page`, which has [`Arena::take_page_to_lend`] and ways to make it succeed.
    /// `None` if a page is not to be had, or if more than half of the limit would be lent, so that clients who upload cannot drive
    /// out all items.
    pub fn new(arena: &Arc<Arena>, bytes: usize, mut page: impl FnMut() -> Option<PageId>) -> Option<Self> {
        let wanted = bytes.div_ceil(PAGE_LEN);
        if !arena.start_lending(wanted, LENT_PART) {
            return None;
        }
        // Dropped, and what it holds given back, if a page is not to be had.
        let mut loan = Self { arena: Arc::clone(arena), pages: Vec::with_capacity(wanted), counted: wanted };
        for _ in 0..wanted {
            loan.pages.push(page()?);
        }
        Some(loan)
    }
}

impl Drop for PageLoan {
    fn drop(&mut self) {
        for page in self.pages.drain(..) {
            self.arena.give_lent_page(page);
        }
        self.arena.end_lending(self.counted);
    }
}

/// The words of memory from some place on: atomic, and readable for at least a page's length.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    start: NonNull<AtomicU64>,
    arena: std::marker::PhantomData<&'a Arena>,
}

/// Words that may be read from any place: a page's length, which the guard page makes safe everywhere.
pub const WORDS_MAX: usize = PAGE_LEN / 8;

impl<'a> Words<'a> {
    /// The word at `index`, below [`WORDS_MAX`].
    #[inline]
    pub fn word(self, index: usize) -> &'a AtomicU64 {
        assert!(index < WORDS_MAX);
        // SAFETY: `start` lies in the arena and is 8-byte aligned (places are); a page's length behind any place is mapped,
        // by the guard page; the arena outlives 'a; an AtomicU64 may have any bits.
        unsafe { &*self.start.as_ptr().add(index) }
    }

    /// `count` words from `index` on, which together end below [`WORDS_MAX`].
    #[inline]
    pub fn run(self, index: usize, count: usize) -> &'a [AtomicU64] {
        assert!(index <= WORDS_MAX && count <= WORDS_MAX - index);
        // SAFETY: as for `word`, for each of them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(index), count) }
    }

    /// The word at `index`, relaxed.
    #[inline]
    pub fn load(self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    /// Sets the word at `index`, relaxed. The caller holds the chunk, or its key's stripe.
    #[inline]
    pub fn store(self, index: usize, word: u64) {
        self.word(index).store(word, Ordering::Relaxed);
    }

    /// Address of the byte at `offset`.
    #[inline]
    pub fn address(self, offset: usize) -> *const u8 {
        assert!(offset <= PAGE_LEN);
        // SAFETY: as for `word`.
        unsafe { self.start.as_ptr().cast::<u8>().add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go_within_the_limit() {
        let arena = Arena::new(3, false).expect("address space");
        let pages: Vec<_> = std::iter::from_fn(|| arena.take_page()).collect();
        assert_eq!(pages.len(), 3);
        arena.give_page(pages[1]);
        assert_eq!(arena.take_page(), Some(pages[1]));
        arena.set_limit(2);
        arena.give_page(pages[0]);
        assert_eq!((arena.take_page(), arena.usage()), (None, (2, 2)));
    }

    /// Pages of the buckets of a growing table came between those of its elements, one in 33, and no huge page was had.
    #[test]
    fn pages_without_memory_come_from_the_end() {
        const LEN: usize = 8;
        let arena = Arc::new(Arena::new(LEN, true).expect("address space"));
        let lent: Vec<_> = (0..3).filter_map(|_| arena.take_page_to_lend()).collect();
        assert_eq!(lent, [PageId(7), PageId(6), PageId(5)]);
        let taken: Vec<_> = std::iter::from_fn(|| arena.take_page()).collect();
        assert_eq!(taken, (0..5).map(PageId).collect::<Vec<_>>());
        assert_eq!(arena.take_page_to_lend(), None);
        arena.give_page(taken[2]);
        assert_eq!(arena.take_page_to_lend(), Some(taken[2]));
    }

    /// Pages that were returned keep their memory: with fresh ones beside them there is more of it than a lowered limit allows.
    #[test]
    fn under_a_lowered_limit_a_returned_page_is_lent_first() {
        let arena = Arc::new(Arena::new(8, false).expect("address space"));
        let taken: Vec<_> = (0..3).filter_map(|_| arena.take_page()).collect();
        arena.set_limit(3);
        arena.give_page(taken[1]);
        assert_eq!(arena.take_page_to_lend(), Some(taken[1]));
        assert_eq!(arena.take_page_to_lend(), None);
    }

    #[test]
    fn payloads_carry_place_and_check_bits() {
        let arena = Arena::new(16, false).expect("address space");
        let place = arena.place(PageId(15), PAGE_LEN - 8);
        assert_eq!(arena.locate(place), (PageId(15), PAGE_LEN - 8));
        let payload = arena.payload(place, 0xa5);
        assert_eq!(arena.payload_place(payload), place);
        assert_eq!(arena.checked_place(payload, 0xa5), Some(place));
        assert_eq!(arena.checked_place(payload, 0x5a), None);
        assert!(arena.words(place).is_some());
        assert!(arena.words(Place(place.0 + 1)).is_none());
    }

    #[test]
    fn large_arenas_have_coarser_granules() {
        for (gigabytes, granule) in [(1usize, 8), (32, 8), (33, 16), (64, 16), (65, 32), (256, 64)] {
            let Ok(arena) = Arena::new(gigabytes * (1 << 30) / PAGE_LEN, false) else { continue };
            assert_eq!(arena.granule(), granule, "{gigabytes} GiB");
            let last = arena.place(PageId(arena.pages() as u32 - 1), 0);
            assert_eq!(arena.checked_place(arena.payload(last, 0xff), 0xff), Some(last));
        }
    }
}
