//! Memory for the peers: zeroed words, in huge pages or expressly not, and segments for a `guira_cuckoo::Index`.
//!
//! A crate of its own because the kernel's advice and the index's memory need unsafe code, which `guira-bench` forbids.
//!
//! Always true: a mapping is touched before it is handed out, so that no page fault falls into a measurement, and stays
//! mapped until its owner is dropped; it is only seen as atomics.

use std::{
    io,
    ops::Deref,
    ptr::NonNull,
    sync::{Mutex, PoisonError, atomic::AtomicU64},
};

use guira_cuckoo::{SEGMENT_BYTES, SegmentSource};

const HUGE_PAGE_LEN: usize = 2 << 20;

/// Which pages a mapping asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// 4 KiB, also where the kernel would give huge ones unasked.
    Small,
    /// 2 MiB, if the kernel has any.
    Huge,
}

/// Zeroed words.
#[derive(Debug)]
pub struct Words {
    mapped: NonNull<u8>,
    mapped_len: usize,
    words: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is only seen as atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// `len` words, all zero and all touched.
    ///
    /// # Errors
    /// The operating system's, if it has no memory.
    pub fn new(len: usize, pages: Pages) -> io::Result<Self> {
        let bytes = (len * size_of::<u64>()).next_multiple_of(HUGE_PAGE_LEN);
        let mapped_len = bytes + HUGE_PAGE_LEN;
        // SAFETY: a fresh anonymous private mapping at an address of the kernel's choice touches no memory of ours.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = NonNull::new(mapped.cast::<u8>()).expect("a mapping is not null");
        // SAFETY: the border of a huge page is less than a huge page away, which was added to the length.
        let base = unsafe { mapped.add(mapped.align_offset(HUGE_PAGE_LEN)) };
        let advice = if pages == Pages::Huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range lies in the mapping; advice changes no contents. Without effect if the kernel has none.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) };
        // SAFETY: `bytes` bytes from `base` are mapped and ours alone. A write, since a page only read would stay the
        // kernel's one page of zeros.
        unsafe { base.write_bytes(0, bytes) };
        Ok(Self { mapped, mapped_len, words: base.cast(), len })
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `len` words from `words`, which is aligned to a huge page, are mapped and written until `self` is dropped;
        // an atomic may have any bits.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which nobody can refer to any more.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

/// Segments for an index, a fixed number of them.
#[derive(Debug)]
pub struct HeapSegments {
    words: Words,
    free: Mutex<Vec<usize>>,
}

impl HeapSegments {
    /// Memory for `segments` segments.
    ///
    /// # Errors
    /// The operating system's, if it has no memory.
    pub fn new(segments: usize, pages: Pages) -> io::Result<Self> {
        let words = Words::new(segments * SEGMENT_BYTES / size_of::<u64>(), pages)?;
        Ok(Self { words, free: Mutex::new((0..segments).rev().collect()) })
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the memory stays mapped until `self` is dropped, is aligned to a huge page and so every segment to a bucket, and is
// only seen as atomics; a segment's number is in `free` or handed out, never both, and nobody else writes to it.
unsafe impl SegmentSource for HeapSegments {
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        assert_eq!(bytes, SEGMENT_BYTES);
        let at = self.free().pop()?;
        // SAFETY: `at` is below the number of segments that the words have room for.
        Some(unsafe { self.words.words.cast::<u8>().add(at * SEGMENT_BYTES) })
    }

    fn release(&self, segment: NonNull<u8>, _bytes: usize) {
        let at = (segment.as_ptr() as usize - self.words.words.as_ptr() as usize) / SEGMENT_BYTES;
        self.free().push(at);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn words_begin_as_zero_and_keep_what_is_written() {
        for pages in [Pages::Small, Pages::Huge] {
            let words = Words::new(100_000, pages).expect("memory");
            assert_eq!(words.len(), 100_000);
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            words[99_999].store(7, Ordering::Relaxed);
            assert_eq!(words[99_999].load(Ordering::Relaxed), 7);
        }
    }

    #[test]
    fn segments_are_handed_out_once_and_taken_back() {
        let source = HeapSegments::new(2, Pages::Small).expect("memory");
        let (first, second) =
            (source.allocate(SEGMENT_BYTES).expect("one"), source.allocate(SEGMENT_BYTES).expect("two"));
        assert_ne!(first, second);
        assert_eq!(source.allocate(SEGMENT_BYTES), None);
        source.release(first, SEGMENT_BYTES);
        assert_eq!(source.allocate(SEGMENT_BYTES), Some(first));
    }
}
