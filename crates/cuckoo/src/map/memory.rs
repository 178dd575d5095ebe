//! The memory of a map's segments: large pieces from the system, cut up, and kept until the map is dropped, because a reader
//! may still look at a segment that has been given back. What comes back is used for the next segment of its size.

use std::{
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::segment::SegmentSource;

const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// A new piece is at least this share of what there is already, so that there are few, and at most so many bytes more.
const GROWTH_SHARE: usize = 16;
const GROWTH_BYTES_MAX: usize = 64 << 20;

/// See the head of the file.
#[derive(Debug)]
pub struct Memory {
    huge_pages: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    pieces: Vec<Piece>,
    /// What is left of the last piece.
    tail: Option<(NonNull<u8>, usize)>,
    /// What came back, with its length.
    free: Vec<(NonNull<u8>, usize)>,
    /// Bytes of all pieces.
    bytes: usize,
}

// SAFETY: the pointers are into pieces that belong to this value alone.
unsafe impl Send for Inner {}

impl Memory {
    /// None yet. `huge_pages` asks the kernel for pages of 2 MiB.
    pub fn new(huge_pages: bool) -> Self {
        Self { huge_pages, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that the next segments, of so many bytes in all, come from one piece. False if there is no such memory.
    pub fn reserve(&self, bytes: usize) -> bool {
        let mut inner = self.inner();
        inner.tail.is_some_and(|(_, left)| left >= bytes) || inner.add_piece(bytes, self.huge_pages)
    }

    /// Whether it asks for huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.huge_pages
    }
}

impl Inner {
    fn add_piece(&mut self, bytes: usize, huge_pages: bool) -> bool {
        let Some(piece) = Piece::new(bytes, huge_pages) else { return false };
        self.tail = Some((piece.start, piece.bytes));
        self.bytes += piece.bytes;
        self.pieces.push(piece);
        true
    }
}

// SAFETY: pieces stay mapped until `self` is dropped and begin as zeros; what is cut from them begins on a cache line, and is
// handed out to one holder at a time.
unsafe impl SegmentSource for Memory {
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.checked_next_multiple_of(LINE)?;
        let mut inner = self.inner();
        if let Some(at) = inner.free.iter().position(|(_, free)| *free == bytes) {
            return Some(inner.free.swap_remove(at).0);
        }
        if inner.tail.is_none_or(|(_, left)| left < bytes) {
            let more = (inner.bytes / GROWTH_SHARE).min(GROWTH_BYTES_MAX).max(bytes);
            if !inner.add_piece(more, self.huge_pages) && !inner.add_piece(bytes, self.huge_pages) {
                return None;
            }
        }
        let (start, left) = inner.tail?;
        // SAFETY: at least `bytes` are left from `start` on.
        inner.tail = Some((unsafe { start.add(bytes) }, left - bytes));
        Some(start)
    }

    fn release(&self, segment: NonNull<u8>, bytes: usize) {
        self.inner().free.push((segment, bytes.next_multiple_of(LINE)));
    }
}

/// Zeroed memory from the system.
#[derive(Debug)]
struct Piece {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

#[cfg(unix)]
impl Piece {
    fn new(bytes: usize, huge_pages: bool) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

        let align = if huge_pages && bytes >= HUGE_PAGE { HUGE_PAGE } else { 4096 };
        let bytes = bytes.max(1).checked_next_multiple_of(align)?;
        let mapped_bytes = if align == HUGE_PAGE { bytes.checked_add(HUGE_PAGE)? } else { bytes };
        if isize::try_from(mapped_bytes).is_err() {
            return None;
        }
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches no memory of ours.
        let mapped = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let mapped = NonNull::new(mapped.ok()?.cast::<u8>())?;
        // SAFETY: the border of a huge page is less than a huge page away, which was added to the length.
        let start = unsafe { mapped.add(mapped.align_offset(align)) };
        let piece = Self { mapped, mapped_bytes, start, bytes };
        if align == HUGE_PAGE {
            piece.advise_huge_pages();
        }
        Some(piece)
    }

    #[cfg(target_os = "linux")]
    fn advise_huge_pages(&self) {
        // SAFETY: the range is our own mapping; advice changes no contents. A kernel that has no huge pages says so, and that is
        // all right.
        let _refused =
            unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.bytes, rustix::mm::Advice::LinuxHugepage) };
    }

    #[cfg(not(target_os = "linux"))]
    fn advise_huge_pages(&self) {}
}

#[cfg(unix)]
impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which nobody can refer to any more.
        let unmapped = unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(not(unix))]
impl Piece {
    fn layout(bytes: usize) -> Option<std::alloc::Layout> {
        std::alloc::Layout::from_size_align(bytes.max(1), LINE).ok()
    }

    fn new(bytes: usize, _huge_pages: bool) -> Option<Self> {
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)?) })?;
        Some(Self { mapped: start, mapped_bytes: bytes, start, bytes })
    }
}

#[cfg(not(unix))]
impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.mapped_bytes) {
            // SAFETY: allocated in `new` with this layout; nobody can refer to it any more.
            unsafe { std::alloc::dealloc(self.mapped.as_ptr(), layout) };
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_used_again_and_what_was_reserved_lies_together() {
        for huge_pages in [false, true] {
            let memory = Memory::new(huge_pages);
            assert!(memory.reserve(3 << 20));
            let [first, second] = [(); 2].map(|()| memory.allocate(1 << 20).expect("memory"));
            assert_eq!(second.as_ptr().addr() - first.as_ptr().addr(), 1 << 20);
            assert_eq!(first.as_ptr().addr() % LINE, 0);
            memory.release(first, 1 << 20);
            assert_eq!(memory.allocate(1 << 20), Some(first));
            let other = memory.allocate(100).expect("memory");
            assert_ne!(other, first);
        }
    }

    #[test]
    fn memory_that_there_is_not_is_refused() {
        let memory = Memory::new(false);
        assert!(!memory.reserve(1 << 62) && !memory.reserve(usize::MAX - 7));
        assert_eq!(memory.allocate(usize::MAX - 100), None);
        assert_eq!(memory.inner().bytes, 0);
    }
}
