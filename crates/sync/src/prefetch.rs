//! Asking for memory ahead of its use.

/// Asks for the cache line of `target`, to be read.
#[inline(always)]
pub fn prefetch<T>(target: *const T) {
    ask::<{ hint::FIRST_CACHE }, T>(target);
}

/// The same for one of dozens of lines: they come to the second cache, because a core waits for more of those at once than of
/// lines for the first.
#[inline(always)]
pub fn prefetch_of_many<T>(target: *const T) {
    ask::<{ hint::SECOND_CACHE }, T>(target);
}

/// Asks for the cache line of `target`, to be written: it is taken from the other cores at once.
#[inline(always)]
pub fn prefetch_to_write<T>(target: *const T) {
    ask::<{ hint::TO_WRITE }, T>(target);
}

#[cfg(all(target_arch = "x86_64", not(loom)))]
mod hint {
    pub use std::arch::x86_64::{_MM_HINT_ET0 as TO_WRITE, _MM_HINT_T0 as FIRST_CACHE, _MM_HINT_T1 as SECOND_CACHE};
}

#[cfg(not(all(target_arch = "x86_64", not(loom))))]
mod hint {
    pub const FIRST_CACHE: i32 = 0;
    pub const SECOND_CACHE: i32 = 1;
    pub const TO_WRITE: i32 = 2;
}

#[inline(always)]
fn ask<const HINT: i32, T>(target: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch is a hint; it faults on no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<HINT>(target.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = target;
}
