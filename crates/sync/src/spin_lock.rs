//! A lock that is waited for without the system, for what is done in less time than a call to it takes. It is what LOCKHASH puts
//! around a partition: one cache line changes hands to take it, none to give it back (CPHASH, section 6.2).
//!
//! Always true: what is inside is reached by the one guard there is at a time.

use std::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use crate::{
    atomic::{AtomicU32, Ordering},
    hint,
};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A value behind a spinning lock, which comes first, so that what begins the value comes with its cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SpinLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is handed from thread to thread, never reached by two at a time.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// The value, until this is dropped.
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// Shared between threads as little, or as much, as a reference to the value.
    value: PhantomData<&'a mut T>,
}

impl<T> SpinLock<T> {
    /// An unlocked `value`.
    pub fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let mut round = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            // Looked at before it is tried again: a line that is only read stays with all who wait.
            while self.state.load(Ordering::Relaxed) == HELD {
                hint::spin(&mut round);
            }
        }
    }

    /// The value, if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: pairs with the Release in the guard's drop; what the last holder wrote is seen.
        let taken = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| SpinGuard { lock: self, value: PhantomData })
    }

    /// The value of a lock that nobody shares.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock was taken for this guard and is given back when it is dropped.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.lock.state.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_value() {
        let lock = SpinLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..100_000).for_each(|_| *lock.lock() += 1));
            }
        });
        let held = lock.lock();
        assert_eq!((*held, lock.try_lock().is_none(), lock.try_lock().is_none()), (300_000, true, true));
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    #[test]
    fn loom_a_spin_lock_hands_over_what_was_written() {
        loom::model(|| {
            let lock = Arc::new(SpinLock::new(loom::cell::Cell::new(0)));
            let add = |lock: &SpinLock<loom::cell::Cell<u32>>| {
                let held = lock.lock();
                held.set(held.get() + 1);
            };
            let threads = [0, 1].map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || add(&lock))
            });
            threads.into_iter().for_each(|thread| thread.join().expect("adds"));
            assert_eq!(lock.lock().get(), 2);
        });
    }
}
