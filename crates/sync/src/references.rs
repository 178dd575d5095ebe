//! References to memory that is freed by whoever gives up the last one: a count in one half of a word, whose other half is the
//! caller's.
//!
//! ```text
//! bit 63 ........... 32 31 ........... 0
//!     the caller's      references
//! ```
//! Always true: whoever takes a reference holds another one, or keeps others from giving up the last one meanwhile (by the
//! stripe under which an index names the memory, say, when the index has a reference itself).

use crate::atomic::{AtomicU64, Ordering, fence};

/// Where the caller's half begins.
const BESIDE_SHIFT: u32 = 32;

/// The references that a word counts.
#[derive(Clone, Copy, Debug)]
pub struct References<'a>(&'a AtomicU64);

impl<'a> References<'a> {
    /// Those that `word` counts.
    #[inline]
    pub fn of(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// A word with one reference, and `beside` in its other half.
    #[inline]
    pub fn first(beside: u32) -> u64 {
        u64::from(beside) << BESIDE_SHIFT | 1
    }

    /// The caller's half, which never changes.
    #[inline]
    pub fn beside(self) -> u32 {
        (self.0.load(Ordering::Relaxed) >> BESIDE_SHIFT) as u32
    }

    /// Takes one more.
    #[inline]
    pub fn take(self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives one up. True if it was the last: the memory is the caller's alone, and what others read of it they have read.
    #[inline]
    #[must_use = "whoever gives up the last reference frees"]
    pub fn give_up(self) -> bool {
        // Release: pairs with the Acquire fence below; what this holder read happens before the memory is used again.
        let is_last = self.0.fetch_sub(1, Ordering::Release) as u32 == 1;
        if is_last {
            // Acquire: pairs with the Release above of everyone who gave up a reference before.
            fence(Ordering::Acquire);
        }
        is_last
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_three_frees_and_the_other_half_stays() {
        let word = AtomicU64::new(References::first(u32::MAX));
        let references = References::of(&word);
        references.take();
        references.take();
        assert_eq!([(); 3].map(|()| references.give_up()), [false, false, true]);
        assert_eq!(references.beside(), u32::MAX);
    }
}
