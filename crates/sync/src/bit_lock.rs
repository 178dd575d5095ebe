//! A lock in the highest bit of a word that says something besides: whoever takes it has the rest with the same cache line. LOCKHASH
//! has one in every bucket under random eviction (CPHASH, section 4.2).
//!
//! Always true: while the bit is set, only the thread that has set it changes the word.

use crate::{
    atomic::{AtomicU32, Ordering},
    hint,
};

/// The bit.
pub const LOCK_BIT: u32 = 1 << 31;

/// A word that no other thread changes or locks until this is dropped.
#[derive(Debug)]
pub struct LockedWord<'a> {
    word: &'a AtomicU32,
}

impl<'a> LockedWord<'a> {
    /// Waits for a word.
    #[inline]
    pub fn lock(word: &'a AtomicU32) -> Self {
        let mut round = 0;
        loop {
            if let Some(locked) = Self::try_lock(word) {
                return locked;
            }
            hint::spin(&mut round);
        }
    }

    /// A word, if nobody has it.
    #[inline]
    pub fn try_lock(word: &'a AtomicU32) -> Option<Self> {
        let rest = word.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in drop; what the last holder wrote is seen.
        let is_taken = rest & LOCK_BIT == 0
            && word.compare_exchange(rest, rest | LOCK_BIT, Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_taken.then(|| Self { word })
    }

    /// What the word says, without the bit.
    #[inline]
    pub fn rest(&self) -> u32 {
        self.word.load(Ordering::Relaxed) & !LOCK_BIT
    }
}

impl Drop for LockedWord<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.word.store(self.rest(), Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_changes_the_rest() {
        let word = AtomicU32::new(5);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        let locked = LockedWord::lock(&word);
                        word.store((locked.rest() + 1) | LOCK_BIT, Ordering::Relaxed);
                    }
                });
            }
        });
        let locked = LockedWord::lock(&word);
        assert_eq!((locked.rest(), LockedWord::try_lock(&word).is_none()), (300_005, true));
        drop(locked);
        assert_eq!(word.load(Ordering::Relaxed), 300_005);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::{cell::Cell, thread};

    use super::*;

    struct Shared {
        word: AtomicU32,
        behind: Cell<u32>,
    }

    // SAFETY: what is behind the word is touched by whoever has locked it, which is what the model checks.
    unsafe impl Sync for Shared {}

    /// Two threads that change the word and what is behind it, by a lock that `lock` takes.
    fn model(lock: fn(&AtomicU32) -> Option<LockedWord<'_>>) {
        loom::model(move || {
            let shared = Arc::new(Shared { word: AtomicU32::new(0), behind: Cell::new(0) });
            let threads = [0, 1].map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let locked = lock(&shared.word);
                    shared.behind.set(shared.behind.get() + 1);
                    let rest = shared.word.load(Ordering::Relaxed);
                    shared.word.store(rest + 1, Ordering::Relaxed);
                    drop(locked);
                })
            });
            threads.into_iter().for_each(|thread| thread.join().expect("adds"));
            assert_eq!((shared.behind.get(), shared.word.load(Ordering::Relaxed)), (2, 2));
        });
    }

    #[test]
    fn loom_a_locked_word_hands_over_what_was_written() {
        model(|word| Some(LockedWord::lock(word)));
    }

    /// The seeded fault: nobody locks.
    #[test]
    #[should_panic(expected = "ausality")]
    fn loom_a_word_that_is_not_locked_is_noticed() {
        model(|_| None);
    }
}
