//! One stripe, or two, held by their locks and never by a transaction: the guard of the short way of a write, of which taking and
//! giving back a stripe is a good part. A guard that may be either has more to ask when it is dropped.

use super::{PairGuard, Stripes, lock, start_writing, try_lock, unlock};
use crate::{
    atomic::{Ordering, fence},
    elision::{Rtm, Transactions},
    order::{Held, Rank},
};

/// Stripes held until this is dropped.
pub trait HeldStripes {
    /// To be called before the first store that readers could see.
    fn start_writing(&mut self);
}

impl<T, P: Transactions> HeldStripes for PairGuard<'_, T, P> {
    #[inline]
    fn start_writing(&mut self) {
        self.start_writing();
    }
}

/// See the head of the file.
#[derive(Debug)]
pub struct LockGuard<'a, T, P: Transactions = Rtm> {
    stripes: &'a Stripes<T, P>,
    one: usize,
    /// The same again if there is no other.
    other: usize,
    writing: bool,
    _held: Held,
}

impl<T, P: Transactions> Stripes<T, P> {
    /// Locks the stripe of one bucket.
    #[inline(always)]
    pub fn lock_one(&self, bucket: usize) -> LockGuard<'_, T, P> {
        let held = Held::note(Rank::Stripes);
        let stripe = bucket & self.mask;
        lock(self.word(stripe));
        LockGuard { stripes: self, one: stripe, other: stripe, writing: false, _held: held }
    }
}

impl<T, P: Transactions> LockGuard<'_, T, P> {
    /// Locks the stripe of another bucket beside the one that is held, unless somebody else holds it: who does not wait may lock in
    /// any order. To be called once, before `start_writing`.
    #[inline]
    pub fn try_add(&mut self, bucket: usize) -> bool {
        debug_assert!(self.one == self.other && !self.writing, "two stripes at most, both before the first store");
        let stripe = bucket & self.stripes.mask;
        if stripe != self.one && !try_lock(self.stripes.word(stripe)) {
            return false;
        }
        self.other = stripe;
        true
    }
}

impl<T, P: Transactions> HeldStripes for LockGuard<'_, T, P> {
    #[inline]
    fn start_writing(&mut self) {
        if self.writing {
            return;
        }
        self.writing = true;
        start_writing(self.stripes.word(self.one));
        if self.other != self.one {
            start_writing(self.stripes.word(self.other));
        }
        // Release: pairs with the Acquire fence in `Version::is_unchanged`; whoever sees a later store sees `writing`.
        fence(Ordering::Release);
    }
}

impl<T, P: Transactions> Drop for LockGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        if self.other != self.one {
            unlock(self.stripes.word(self.other));
        }
        unlock(self.stripes.word(self.one));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_second_stripe_is_added_if_nobody_holds_it() {
        let stripes = Stripes::<()>::new(4);
        let versions = [1, 2, 3].map(|stripe| stripes.begin(stripe));
        let mut guard = stripes.lock_one(2);
        let is_taken = |stripe: usize| {
            // From another thread: this one would break the lock order.
            std::thread::scope(|scope| {
                scope.spawn(|| stripes.try_lock_pair(stripe, stripe).is_none()).join().expect("no panic")
            })
        };
        assert!(is_taken(2) && !is_taken(1));
        assert!(guard.try_add(1), "a lower one too");
        assert!(is_taken(1) && is_taken(2) && !is_taken(3));
        guard.start_writing();
        drop(guard);
        assert_eq!(versions.map(|version| version.is_unchanged()), [false, false, true]);
        assert!(!is_taken(1) && !is_taken(2));
    }

    #[test]
    fn a_second_stripe_that_is_held_or_the_same_is_not_locked_again() {
        let stripes = Stripes::<()>::new(4);
        let (held, is_tried) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = stripes.lock_one(3);
                held.wait();
                is_tried.wait();
            });
            held.wait();
            let mut guard = stripes.lock_one(1);
            let is_added = guard.try_add(3);
            is_tried.wait();
            assert!(!is_added);
            assert!(guard.try_add(5), "the same stripe");
        });
        drop(stripes.lock_pair(1, 3));
    }
}
