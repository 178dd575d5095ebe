//! Address space from the system: zeroed memory that is taken when it is first touched.
//!
//! Always true: it begins on a huge page's border and stays mapped as long as it lives.

use std::ptr::NonNull;

use crate::NoAddressSpace;

/// Bytes of a huge page.
pub const HUGE_PAGE_LEN: usize = 2 << 20;

/// A reservation of address space.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory that nobody else has; who may touch which part of it when is for its owner to say.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes, for which the system is asked for huge pages or not.
    ///
    /// # Errors
    /// [`NoAddressSpace`] if the system does not give that much.
    pub fn new(len: usize, huge_pages: bool) -> Result<Self, NoAddressSpace> {
        let reserved_len = len.checked_add(HUGE_PAGE_LEN).ok_or(NoAddressSpace { bytes: len })?;
        // SAFETY: a fresh anonymous private mapping at an address of the kernel's choice touches no memory of ours.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(NoAddressSpace { bytes: reserved_len });
        }
        let skipped = mapped.align_offset(HUGE_PAGE_LEN);
        // SAFETY: `skipped` is less than a huge page, which was added to the length.
        let aligned = unsafe { mapped.cast::<u8>().add(skipped) };
        if huge_pages {
            // SAFETY: the range lies in the mapping; advice changes no contents. Without effect if the kernel has none.
            unsafe { libc::madvise(aligned.cast(), len, libc::MADV_HUGEPAGE) };
        }
        if skipped > 0 {
            // SAFETY: the first `skipped` bytes of the mapping, a multiple of the page size, which nothing uses.
            unsafe { libc::munmap(mapped, skipped) };
        }
        let start = NonNull::new(aligned).expect("a mapping is not null");
        Ok(Self { start, len: reserved_len - skipped })
    }

    /// Its first byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what is left of the mapping made in `new`; every borrow of its memory has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
