//! An element in memory: a header of one cache line, which belongs to whoever serves the partition, and behind it the body,
//! which clients read and fill (CPHASH, section 3.1).
//!
//! ```text
//! line 0     header: kind, class, links, hash, version, references, expiry, lengths
//! line 1..   body:   version << 8 | key_len, flags << 32 | value_len, key, value          (value in one chunk)
//!                    version << 8 | key_len, flags << 32 | value_len, key                  (value in pieces)
//! piece      kind, class, head of its element | next piece, bytes here | bytes            (up to 16 KiB less 16 bytes)
//! ```
//! What a client needs to answer a read lies in the body once more, so that it never takes the header's line from the core
//! that serves the partition. Only where the first piece of a long value lies is told by the header alone.
//!
//! Always true: the first eight bytes of every chunk say what it is; key and value of a body do not change while the element has
//! references, and nobody frees it then; without any, only the holder of the partition changes them, and reads them, as does
//! whoever has shut the element's bucket.

use std::{
    cell::Cell,
    marker::PhantomData,
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
};

use guira_arena::{Arena, NoAddressSpace, PAGE_LEN, PageId};
use guira_item::{KEY_LEN_MAX, Time};
use guira_sync::{prefetch, prefetch_to_write};

use crate::{heap::PageInfo, table::Buckets};

/// Bytes of a cache line, the unit of memory.
pub(crate) const LINE_LEN: usize = 64;

/// Lines of a page.
pub(crate) const PAGE_LINES: usize = PAGE_LEN / LINE_LEN;

/// Bytes of a body before the key.
pub(crate) const BODY_HEADER_LEN: usize = 16;

/// Bytes of a piece before its part of the value.
pub(crate) const PIECE_HEADER_LEN: usize = 16;

/// A chunk, by the number of its first line in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub u32);

impl Slot {
    /// No chunk.
    pub const NONE: Self = Self(u32::MAX);

    /// The slot, unless it is none.
    #[inline]
    pub fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }

    /// The page it lies in, and its line there.
    #[inline]
    pub fn locate(self) -> (PageId, usize) {
        (PageId(self.0 / PAGE_LINES as u32), self.0 as usize % PAGE_LINES)
    }
}

/// What a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Free, or never used: memory from the system is zero.
    Free,
    /// Somebody has it and fills it (the paper's NOT READY): in no bucket.
    Filling,
    /// In its bucket (the paper's READY).
    Ready,
    /// Taken out of its bucket, and still read by somebody.
    Dead,
    /// Part of a large element's value.
    Piece,
}

/// The first line of an element. What readers of a bucket change while somebody else has the partition is atomic.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Header {
    /// A [`Kind`] by its number; what a page was used for before may have left any.
    kind: Cell<u8>,
    pub class: Cell<u8>,
    pub key_len: Cell<u8>,
    marks: AtomicU8,
    /// The next element of the bucket, the next free chunk of the page, or a piece's element.
    pub link: Cell<Slot>,
    /// The 60-bit hash key.
    pub hash: Cell<u64>,
    pub version: Cell<u64>,
    /// Neighbours in the order of use.
    pub newer: Cell<Slot>,
    pub older: Cell<Slot>,
    pub references: Cell<u32>,
    /// As [`guira_item::Expiry::to_raw`] says.
    pub expiry: Cell<u32>,
    /// When it was last used, as [`Time::since_s`] understands it.
    used_s: AtomicU32,
    pub flags: Cell<u32>,
    pub value_len: Cell<u32>,
    /// The first piece of a large value.
    pub pieces: Cell<Slot>,
}

const _: () = assert!(size_of::<Header>() == LINE_LEN);

/// Marks of an element.
pub(crate) mod mark {
    /// Has been read since it was stored.
    pub const FETCHED: u8 = 1;
    /// Is stale.
    pub const STALE: u8 = 2;
    /// A win has been handed out.
    pub const WON: u8 = 4;
}

impl Header {
    #[inline]
    pub fn kind(&self) -> Kind {
        const KINDS: [Kind; 4] = [Kind::Free, Kind::Filling, Kind::Ready, Kind::Dead];
        KINDS.get(usize::from(self.kind.get())).copied().unwrap_or(Kind::Piece)
    }

    #[inline]
    pub fn set_kind(&self, kind: Kind) {
        self.kind.set(kind as u8);
    }

    #[inline]
    pub fn has(&self, mark: u8) -> bool {
        self.marks.load(Ordering::Relaxed) & mark != 0
    }

    #[inline]
    pub fn set(&self, mark: u8, on: bool) {
        let others = self.marks.load(Ordering::Relaxed) & !mark;
        self.marks.store(if on { others | mark } else { others }, Ordering::Relaxed);
    }

    /// Takes all marks away.
    #[inline]
    pub fn clear_marks(&self) {
        self.marks.store(0, Ordering::Relaxed);
    }

    /// Seconds since it was last used.
    #[inline]
    pub fn idle_s(&self, now: Time) -> u32 {
        now.since_s(Time(self.used_s.load(Ordering::Relaxed)))
    }

    /// It was used at `at`: now, or, if it is put back, at some time before.
    #[inline]
    pub fn set_used(&self, at: Time) {
        self.used_s.store(at.0, Ordering::Relaxed);
    }

    pub fn is_large(&self) -> bool {
        self.pieces.get() != Slot::NONE
    }

    /// Bytes of header, key and value, as statistics count them.
    pub fn total_len(&self) -> usize {
        LINE_LEN + BODY_HEADER_LEN + usize::from(self.key_len.get()) + self.value_len.get() as usize
    }
}

/// A piece's second word.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PieceLink {
    pub next: Cell<Slot>,
    pub len: Cell<u32>,
}

/// The memory of an engine: an arena, what is known of its pages, and the tables of all partitions.
pub(crate) struct Memory {
    pub arena: Arc<Arena>,
    base: NonNull<u8>,
    /// Lines of the arena.
    lines: usize,
    pages: Box<[PageInfo]>,
    pub buckets: Buckets,
    index: Mutex<IndexShare>,
}

/// What the tables of all partitions take of the arena: their memory comes from the system, and pages without memory behind
/// them are kept for it.
#[derive(Debug, Default)]
struct IndexShare {
    bytes: usize,
    pages: Vec<PageId>,
}

// SAFETY: the arena is shared as it is; the rest is reached through `Chunks`, whose maker promises to be alone with what it
// touches, and through bodies, which are written by one thread before they are shown to others.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("arena", &self.arena).finish_non_exhaustive()
    }
}

impl Memory {
    /// The memory of so many partitions, whose buckets have locks or not; an element has two lines or more.
    ///
    /// # Errors
    /// [`NoAddressSpace`] if the system does not give enough for the tables.
    pub fn new(arena: Arc<Arena>, partitions: usize, buckets_shared: bool) -> Result<Self, NoAddressSpace> {
        let base = NonNull::new(arena.page(PageId(0))).expect("an arena is not at null");
        let pages = (0..arena.pages()).map(|_| PageInfo::default()).collect();
        let lines = arena.pages() * PAGE_LINES;
        let buckets = Buckets::new(partitions, lines / 2, lines, buckets_shared)?;
        let memory = Self { arena, base, lines, pages, buckets, index: Mutex::default() };
        let is_counted = memory.charge(memory.buckets.first_bytes());
        assert!(is_counted, "the limit has room for the first buckets of as many partitions as `Config` allows");
        Ok(memory)
    }

    #[cfg(test)]
    pub fn with_pages(pages: usize, partitions: usize) -> Self {
        let arena = Arc::new(Arena::new(pages, false).expect("address space"));
        Self::new(arena, partitions, true).expect("address space")
    }

    /// Has `bytes` more of the tables counted against the limit; false if there is no memory for that.
    pub fn charge(&self, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        while index.pages.len() * PAGE_LEN < index.bytes + bytes {
            // Without memory behind it if the system takes that back, which it may refuse.
            match self.arena.take_page_to_lend().or_else(|| self.arena.take_page()) {
                Some(page) => index.pages.push(page),
                None => return false,
            }
        }
        index.bytes += bytes;
        true
    }

    /// Bytes of all tables.
    pub fn index_bytes(&self) -> usize {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// First byte of a chunk.
    #[inline]
    fn start(&self, slot: Slot) -> NonNull<u8> {
        assert!((slot.0 as usize) < self.lines, "a slot lies in the arena");
        // SAFETY: inside the mapping, by the comparison above.
        unsafe { self.base.add(slot.0 as usize * LINE_LEN) }
    }

    /// Where a chunk begins, for asking the memory for it.
    #[inline]
    pub fn address(&self, slot: Slot) -> *const u8 {
        self.base.as_ptr().wrapping_add(slot.0 as usize * LINE_LEN)
    }

    /// Asks the memory for an element's header, to be written, and for the beginning of its body.
    #[inline]
    pub fn prefetch_element(&self, slot: Slot) {
        let address = self.address(slot);
        prefetch_to_write(address);
        prefetch(address.wrapping_add(LINE_LEN));
    }

    /// The body of an element.
    #[inline]
    pub fn body(&self, slot: Slot) -> Body<'_> {
        let header = self.start(slot);
        // SAFETY: an element has at least two lines, and the arena a guard of a page behind it.
        Body { start: unsafe { header.add(LINE_LEN) }, memory: PhantomData }
    }

    /// Headers and pages, for whoever is alone with those it touches, but for readers of buckets.
    ///
    /// # Safety
    /// As long as the result lives, what is touched through it is the caller's in one of two ways.
    /// - It holds the partitions and the heaps to which headers and pages belong. While others may read an element's bucket under
    ///   its lock, it shuts that bucket to write what they read: links of the chain, hash, version, expiry, lengths, pieces, flags,
    ///   class, key and value. The rest they do not touch, but for marks and the time of use, which are atomic.
    /// - It has shut a bucket, and of the elements in its chain only reads what was just named, or changes what is atomic.
    #[inline]
    pub unsafe fn chunks(&self) -> Chunks<'_> {
        Chunks { memory: self, not_shared: PhantomData }
    }

    /// The first piece of a large element, which does not change from its allocation on.
    pub fn first_piece(&self, slot: Slot) -> Slot {
        let header = self.start(slot).cast::<Header>().as_ptr();
        // SAFETY: the field lies in the arena, and nobody writes it while the element is filled, ready, or referenced.
        unsafe { (&raw const (*header).pieces).cast::<Slot>().read() }
    }

    /// Writes key and value into an element that is being filled.
    ///
    /// # Safety
    /// The caller alone has the element, which was allocated for a key and a value of these lengths.
    #[inline]
    pub unsafe fn fill(&self, slot: Slot, key: &[u8], flags: u32, mut parts: Parts<'_>) {
        let (body, value_len) = (self.body(slot), parts.len());
        body.word(0).store(key.len() as u64, Ordering::Relaxed);
        body.word(1).store(u64::from(flags) << 32 | value_len as u64, Ordering::Relaxed);
        let mut piece = self.first_piece(slot);
        // SAFETY: the chunk has room for the body's header, the key, and a value that is not in pieces; a piece has room for the
        // bytes that it says; all of them are the caller's.
        unsafe {
            let to = body.start.add(BODY_HEADER_LEN);
            std::ptr::copy_nonoverlapping(key.as_ptr(), to.as_ptr(), key.len());
            if piece == Slot::NONE {
                return parts.copy_into(std::slice::from_raw_parts_mut(to.add(key.len()).as_ptr(), value_len));
            }
            while let Some(at) = piece.some() {
                let (bytes, next) = self.piece(at);
                let (len, to) = (bytes.len(), self.start(at).add(PIECE_HEADER_LEN));
                parts.copy_into(std::slice::from_raw_parts_mut(to.as_ptr(), len));
                piece = next;
            }
        }
    }

    /// A large value that somebody holds a reference to, or fills: the piece at `slot` and the next one.
    #[inline]
    pub fn piece(&self, slot: Slot) -> (&[u8], Slot) {
        let start = self.start(slot);
        // SAFETY: a piece's link and bytes are written before its element is ready and stay until it is freed, which the
        // caller's reference prevents; a piece is at most a chunk long and lies in the arena.
        unsafe {
            let link = start.add(size_of::<u64>()).cast::<PieceLink>().as_ref();
            let len = (link.len.get() as usize).min(PAGE_LEN);
            (std::slice::from_raw_parts(start.add(PIECE_HEADER_LEN).as_ptr(), len), link.next.get())
        }
    }
}

/// The headers of all elements, in the hands of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Chunks<'a> {
    pub memory: &'a Memory,
    not_shared: PhantomData<*const ()>,
}

impl<'a> Chunks<'a> {
    #[inline]
    pub fn header(&self, slot: Slot) -> &'a Header {
        // SAFETY: the slot lies in the arena (`start` asserts it) and is a line long, aligned as lines are; any bytes that chunks
        // are given are a header; who made `self` promised not to touch it beside others
        // ([`Memory::chunks`]), and cells may change behind shared references.
        unsafe { self.memory.start(slot).cast::<Header>().as_ref() }
    }

    #[inline]
    pub fn page(&self, page: PageId) -> &'a PageInfo {
        &self.memory.pages[page.0 as usize]
    }

    /// Makes a chunk a piece of `head`'s value with room for `len` bytes, in front of `next`.
    pub fn link_piece(&self, slot: Slot, head: Slot, next: Slot, len: usize) {
        let header = self.header(slot);
        header.set_kind(Kind::Piece);
        header.link.set(head);
        // SAFETY: the second word of a chunk lies in it, and is in the caller's hands.
        let link = unsafe { self.memory.start(slot).add(size_of::<u64>()).cast::<PieceLink>().as_ref() };
        link.next.set(next);
        link.len.set(len as u32);
    }
}

/// What clients see of an element: key and value.
#[derive(Clone, Copy)]
pub(crate) struct Body<'a> {
    start: NonNull<u8>,
    memory: PhantomData<&'a Memory>,
}

impl<'a> Body<'a> {
    #[inline]
    fn word(self, index: usize) -> &'a AtomicU64 {
        debug_assert!(index < BODY_HEADER_LEN / 8);
        // SAFETY: a body begins on a line and has at least two words; all access to them is atomic.
        unsafe { self.start.cast::<AtomicU64>().add(index).as_ref() }
    }

    /// Sets the version that clients see.
    #[inline]
    pub fn set_version(self, version: u64) {
        let word = self.word(0);
        word.store(version << 8 | word.load(Ordering::Relaxed) & 0xff, Ordering::Relaxed);
    }

    #[inline]
    pub fn version(self) -> u64 {
        self.word(0).load(Ordering::Relaxed) >> 8
    }

    #[inline]
    pub fn key_len(self) -> usize {
        self.word(0).load(Ordering::Relaxed) as usize & 0xff
    }

    #[inline]
    pub fn flags(self) -> u32 {
        (self.word(1).load(Ordering::Relaxed) >> 32) as u32
    }

    #[inline]
    pub fn value_len(self) -> usize {
        self.word(1).load(Ordering::Relaxed) as u32 as usize
    }

    /// The key. The caller holds a reference to the ready element, or its partition, or has shut its bucket.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        let len = self.key_len().min(KEY_LEN_MAX);
        // SAFETY: the key lies in the element's chunk and does not change while the caller has a reference, the partition,
        // or the bucket.
        unsafe { std::slice::from_raw_parts(self.start.add(BODY_HEADER_LEN).as_ptr(), len) }
    }

    /// The value that lies in the chunk. The caller holds a reference to the ready element, which is not large, or its
    /// partition, or has shut its bucket.
    #[inline]
    pub fn value(self) -> &'a [u8] {
        let (key_len, len) = (self.key_len(), self.value_len().min(PAGE_LEN));
        // SAFETY: as for the key; `value_len` bytes were written behind it before the element was ready.
        unsafe { std::slice::from_raw_parts(self.start.add(BODY_HEADER_LEN + key_len).as_ptr(), len) }
    }
}

/// Several byte strings, taken as one.
pub(crate) struct Parts<'a> {
    parts: [&'a [u8]; 3],
    /// Spaces behind them.
    padding: usize,
}

impl<'a> Parts<'a> {
    pub fn new(parts: [&'a [u8]; 3], padding: usize) -> Self {
        Self { parts, padding }
    }

    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() + self.padding
    }

    /// Takes as many bytes as fill `to`, of which there are at least so many.
    pub fn copy_into(&mut self, to: &mut [u8]) {
        let mut at = 0;
        for part in &mut self.parts {
            let (now, later) = part.split_at(part.len().min(to.len() - at));
            to[at..at + now.len()].copy_from_slice(now);
            at += now.len();
            *part = later;
        }
        self.padding -= to.len() - at;
        to[at..].fill(b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_across_their_borders() {
        let mut parts = Parts::new([b"abc", b"", b"defg"], 2);
        assert_eq!(parts.len(), 9);
        let mut bytes = [0; 9];
        parts.copy_into(&mut bytes[..2]);
        parts.copy_into(&mut bytes[2..8]);
        parts.copy_into(&mut bytes[8..]);
        assert_eq!((&bytes, parts.len()), (b"abcdefg  ", 0));
    }
}
