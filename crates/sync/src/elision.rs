//! Lock elision: a critical section runs as a transaction of the processor (Intel's RTM), and the lock is only looked at, so that
//! sections which touch different data run beside each other under one lock (Li 3.4).
//!
//! ```text
//!   begin ── started ── lock is free ── critical section ── commit
//!     ^         │             └ held: abort ─┐
//!     │         └ conflict, interrupt, ... ──┤  all that was done since `begin` is undone
//!     │                                      v
//!     ├── Retry ─────────────────────── Policy::step ── TakeLock: the lock itself
//!     └── WaitForLock: until it is free ─────┘
//! ```
//! Always true: a transaction has read the lock's word and found it free, so it is undone as soon as somebody takes the lock; and
//! what it stores is seen by others all at once, when it commits, or never. So whatever others can see of a section that has
//! been committed they could have seen of one that ran under the lock while everybody else stood still.

use crate::hint;

/// Transactions begun for one section before its lock is taken. More than two threads that get into each other's way over one line
/// take; few enough that a section which can never commit costs a microsecond more, not ten.
const ATTEMPTS_MAX: u32 = 8;

/// Of these, attempts that end without the processor's hint that another may succeed. Another often does (Li 3.4.1: an interrupt,
/// say); a page that is not there, or a system call, ends each.
const UNHINTED_MAX: u32 = 2;

/// Why a transaction was undone: what the processor leaves in EAX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(u32);

impl Status {
    /// By the abort instruction, with the code in the upper eight bits.
    const EXPLICIT: u32 = 1;
    /// It may succeed if it is tried again.
    const RETRY: u32 = 1 << 1;
    /// It read or wrote more than the processor keeps track of.
    const CAPACITY: u32 = 1 << 3;
    const CODE_SHIFT: u32 = 24;

    /// The code with which a section ends its transaction because the lock is held.
    const HELD_CODE: u8 = 0xff;
    /// What comes of that.
    pub const HELD: Self = Self(Self::EXPLICIT | (Self::HELD_CODE as u32) << Self::CODE_SHIFT);

    fn is_held(self) -> bool {
        self.has(Self::EXPLICIT) && self.0 >> Self::CODE_SHIFT == u32::from(Self::HELD_CODE)
    }

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// What to do after a transaction has been undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Begin another at once.
    Retry,
    /// Begin another when the lock is free: before that it could only be undone again, and once one section has taken the lock, all
    /// the others would follow.
    WaitForLock,
    /// Take the lock.
    TakeLock,
}

/// How one section has fared so far.
#[derive(Clone, Copy, Default, Debug)]
struct Policy {
    attempts: u32,
    unhinted: u32,
}

impl Policy {
    /// The wrapper of Li 3.4.1 (Figure 3.5), which retries without the hint too; here a transaction that was too large is not
    /// tried again, since it would be as large, and one that met the lock waits for it.
    fn step(&mut self, status: Status) -> Step {
        self.attempts += 1;
        if self.attempts >= ATTEMPTS_MAX || status.has(Status::CAPACITY) {
            return Step::TakeLock;
        }
        if status.is_held() {
            return Step::WaitForLock;
        }
        if !status.has(Status::RETRY) {
            self.unhinted += 1;
            if self.unhinted > UNHINTED_MAX {
                return Step::TakeLock;
            }
        }
        Step::Retry
    }
}

/// The three instructions.
///
/// # Safety
/// What a thread does from a `begin` that says `Ok` to its `commit` is one step for all others, before or after each of theirs;
/// or it is undone, as if it had never been, and that `begin` says `Err` instead.
pub unsafe trait Transactions {
    /// Whether this program can have any; where it cannot, no code is made for them.
    const POSSIBLE: bool;

    /// Begins a transaction, or says why the one that was begun here has been undone.
    fn begin(&self) -> Result<(), Status>;

    /// Ends it: what was done is done. Nothing if there is none.
    fn commit(&self);

    /// Undoes it, because the lock is held: its `begin` says [`Status::HELD`]. A stand-in that cannot go back there returns the status
    /// here.
    fn abort_held(&self) -> Status;
}

/// Begins a transaction in which `is_free` has said so of a lock. False: the lock is to be taken.
pub(crate) fn elide(processor: &impl Transactions, is_free: impl Fn() -> bool) -> bool {
    let mut policy = Policy::default();
    loop {
        let status = match processor.begin() {
            Ok(()) if is_free() => return true,
            Ok(()) => processor.abort_held(),
            Err(status) => status,
        };
        match policy.step(status) {
            Step::Retry => {}
            Step::WaitForLock => {
                let mut round = 0;
                while !is_free() {
                    hint::spin(&mut round);
                }
            }
            Step::TakeLock => {
                // There is nothing to commit; but were the page of that code not in memory, every transaction would end in that
                // fault, and nobody would ever see to it.
                processor.commit();
                return false;
            }
        }
    }
}

/// The processor's own, if it has been found to have them.
#[derive(Clone, Copy, Default, Debug)]
pub struct Rtm {
    is_there: bool,
}

impl Rtm {
    /// Whether there are transactions that commit.
    pub fn is_there(self) -> bool {
        self.is_there
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
mod rtm {
    use std::{
        arch::{asm, x86_64::__cpuid_count},
        sync::OnceLock,
    };

    use super::{Rtm, Status, Transactions};

    /// Transactions tried to see whether any commits: an interrupt undoes one, not all of them.
    const TRIALS: u32 = 64;

    /// What no abort leaves in EAX: its upper bits say nothing unless bit 0 is set, and then bit 1 is not.
    const STARTED: u32 = u32::MAX;

    impl Rtm {
        /// Asks the processor, once.
        pub fn detect() -> Self {
            static IS_THERE: OnceLock<bool> = OnceLock::new();
            let is_there = *IS_THERE.get_or_init(|| {
                let says_so = || {
                    let features = __cpuid_count(7, 0);
                    // RTM; and not RTM_ALWAYS_ABORT, which processors have for which transactions have been switched off.
                    features.ebx & 1 << 11 != 0 && features.edx & 1 << 11 == 0
                };
                let commits = || {
                    // The instructions are there by now, whether or not they ever commit.
                    let processor = Self { is_there: true };
                    let is_begun = processor.begin().is_ok();
                    processor.commit();
                    is_begun
                };
                __cpuid_count(0, 0).eax >= 7 && says_so() && (0..TRIALS).any(|_| commits())
            });
            Self { is_there }
        }
    }

    // SAFETY: what RTM is (Intel's manual, volume 1, chapter 16): what a transaction reads and writes is one step for all other
    // threads, and an abort restores registers and memory. System calls and whatever else has effects beside memory abort it before.
    unsafe impl Transactions for Rtm {
        const POSSIBLE: bool = true;

        #[inline(always)]
        fn begin(&self) -> Result<(), Status> {
            if !self.is_there {
                return Err(Status(Status::CAPACITY));
            }
            let mut status = STARTED;
            // SAFETY: the processor has the instruction: `detect` has asked CPUID. It touches no
            // memory and, of the registers, EAX alone. An abort continues behind it, possibly long after this function has
            // returned: with the registers of that moment, stack pointer included, and with every byte that the thread has
            // written since, stack included, as it was then. So the program goes on from the one moment at which this block ends,
            // knowing nothing of the other time; to the compiler the block ends once, with one of two results. What the
            // compiler keeps in memory it may not move across the block, which says nothing of leaving memory alone.
            unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
            if status == STARTED { Ok(()) } else { Err(Status(status)) }
        }

        // One piece of code for all, so that it is in memory for all: see `elide`.
        #[inline(never)]
        fn commit(&self) {
            if !self.is_there {
                return;
            }
            // SAFETY: the processor has both instructions, as in `begin`; outside of a transaction, where the second would fault, it
            // is passed over. No access moves across the block. For others it is a barrier like a locked instruction's.
            unsafe { asm!("xtest", "jz 2f", "xend", "2:", options(nostack)) };
        }

        #[inline(always)]
        fn abort_held(&self) -> Status {
            if !self.is_there {
                return Status::HELD;
            }
            // SAFETY: the processor has the instruction, as in `begin`. In a transaction it restores the state of `begin`, as is
            // argued there; outside of one it does nothing.
            unsafe { asm!("xabort {code}", code = const Status::HELD_CODE, options(nostack)) };
            Status::HELD
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
mod rtm {
    use super::{Rtm, Status, Transactions};

    impl Rtm {
        /// None: this is no processor, or a model of one, that has transactions.
        pub fn detect() -> Self {
            Self::default()
        }
    }

    // SAFETY: none ever begins.
    unsafe impl Transactions for Rtm {
        const POSSIBLE: bool = false;

        fn begin(&self) -> Result<(), Status> {
            Err(Status(Status::CAPACITY))
        }

        fn commit(&self) {}

        fn abort_held(&self) -> Status {
            Status::HELD
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "elision_tests.rs"]
pub(crate) mod tests;
