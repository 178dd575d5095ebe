//! Memory that is used again while optimistic readers may still be looking at what it held.
//!
//! Always true: before the first store into such memory the thread that stores has passed a Release fence here, and it has
//! learnt before that (by a lock, say) that what the memory held has been given up under its stripe. So a reader that sees
//! any such store sees the stripe changed too, and does not believe what it read.

use crate::atomic::{AtomicU64, Ordering, fence};

/// To be called before the first store into memory that held something else.
#[inline]
pub fn before_reuse() {
    // Release: pairs with the Acquire fence in `Stripes::is_unchanged`; whoever reads what is stored from here on also sees
    // that what was there has been given up.
    fence(Ordering::Release);
}

/// The same, and says in `header` that nothing is there: zero.
#[inline]
pub fn vacate(header: &AtomicU64) {
    // The fence comes first: "nothing" is an answer too, which a reader must not believe of a key that has moved on.
    before_reuse();
    header.store(0, Ordering::Relaxed);
}
