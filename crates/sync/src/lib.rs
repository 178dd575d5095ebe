//! Guira's synchronisation kernels.
//!
//! - [`Stripes`]: words that are spinlock and version at once; writers lock a pair, readers only look. Where the processor has
//!   transactions they may stand in for the locks.
//! - [`References`]: a count whose last holder frees what it counts for.
//! - [`SpinLock`]: a value for one thread at a time, waited for without the system.
//! - [`LockedWord`]: the same in a bit of a word that says something besides.
//! - [`ring`]: cache lines of messages from one thread to another.
//! - [`prefetch()`]: asking for memory ahead of its use.
//! - [`cycles()`]: the processor's own clock.
//! - [`reuse`]: how memory is used again that optimistic readers may still be looking at.
//! - [`atomic`], [`thread`] and [`hint`]: the standard ones, or those of loom or shuttle under `--cfg loom` or `--cfg shuttle`, so
//!   that the kernels that production runs are the ones that the models check.

mod bit_lock;
mod cycles;
mod elision;
pub mod order;
mod prefetch;
mod references;
pub mod reuse;
pub mod ring;
#[cfg(shuttle)]
mod scheduled;
#[cfg(shuttle)]
pub mod schedules;
mod spin_lock;
mod stripe;

pub use bit_lock::{LOCK_BIT, LockedWord};
pub use cycles::cycles;
pub use prefetch::{prefetch, prefetch_of_many, prefetch_to_write};
pub use references::References;
pub use spin_lock::{SpinGuard, SpinLock};
pub use stripe::{AllGuard, HeldStripes, LockGuard, PairGuard, Stripes, Version};

/// The atomics every kernel uses.
#[cfg(not(any(loom, shuttle)))]
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

/// The atomics every kernel uses, as loom checks them.
#[cfg(loom)]
pub mod atomic {
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

/// The atomics every kernel uses, as shuttle schedules them.
#[cfg(shuttle)]
pub mod atomic {
    pub use crate::scheduled::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub use std::sync::atomic::Ordering;
}

/// Threads, as they are scheduled.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::{Builder, JoinHandle, Thread, current, park, yield_now};
    #[cfg(shuttle)]
    pub use shuttle::thread::{Builder, JoinHandle, Thread, current, park, yield_now};
    #[cfg(not(any(loom, shuttle)))]
    pub use std::thread::{Builder, JoinHandle, Thread, current, park, yield_now};
}

/// The mutex of what the models look into: they must know what one holder leaves to the next.
pub mod mutex {
    #[cfg(loom)]
    pub use loom::sync::{Mutex, MutexGuard};
    #[cfg(shuttle)]
    pub use shuttle::sync::{Mutex, MutexGuard};
    #[cfg(not(any(loom, shuttle)))]
    pub use std::sync::{Mutex, MutexGuard};
}

/// How to wait for another thread, and what the models must be told.
pub mod hint {
    /// Rounds of spinning before the processor is given away: longer than most critical sections take.
    const SPINS_MAX: u32 = 128;

    /// Waits a little without a system call, the `round`th time in a row; gives the processor away when that was not enough. In a
    /// model there is nothing to gain by waiting for who does not run.
    #[inline]
    pub fn spin(round: &mut u32) {
        if cfg!(any(loom, shuttle)) || *round >= SPINS_MAX {
            yield_now();
        } else {
            *round += 1;
            std::hint::spin_loop();
        }
    }

    /// Gives the processor away.
    pub fn yield_now() {
        crate::thread::yield_now();
    }

    /// To be called before a standard atomic is accessed that threads share: shuttle may let another one go first.
    #[inline(always)]
    pub fn schedule() {
        #[cfg(shuttle)]
        crate::scheduled::schedule();
    }
}
