//! Version stripes: an array of words, each a spinlock for writers and a version for readers (MemC3 3.2.1; Li 3.3.4), and
//! beside each what is counted under it, so that a write takes one cache line from the other cores instead of two.
//!
//! ```text
//! bit 63 ................ 2   1         0
//!     version                 writing   locked
//! ```
//! Always true: only the holder of `locked` changes the word; `writing` is set before the first change that readers could
//! see and cleared together with the step to the next version; so a reader that saw the same version without `writing`
//! before and after its reads has seen one state. A lock that was held without writing leaves readers undisturbed.
//!
//! Lock order: ascending stripe number; [`Stripes::lock_pair`] and [`Stripes::lock_all`] keep it.
//!
//! Stripes may be built to elide locks ([`Stripes::with_elision`]): a pair is then held by a transaction, which neither locks nor
//! marks its words, but reads them, and steps the versions of what it has written before it commits. Its stores, the steps
//! among them, are seen at one moment. So a reader whose second look at the version finds the first one's value has read
//! all from before that moment or all from after it, and `writing` has nothing to tell. Whoever locks a word of the pair
//! for real writes it, and so aborts the transaction.

mod lock_guard;

pub use lock_guard::{HeldStripes, LockGuard};

use crate::{
    atomic::{AtomicU64, Ordering, fence},
    elision::{Rtm, Transactions, elide},
    hint,
    order::{Held, Rank},
};

const LOCKED: u64 = 1;
const WRITING: u64 = 2;
const VERSION_STEP: u64 = 4;

/// What a reader saw of a stripe before it read.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    word: &'a AtomicU64,
    /// The word; whether it was locked says nothing.
    seen: u64,
}

impl Version<'_> {
    /// Whether everything read since the version was asked for belongs to one state.
    #[inline(always)]
    pub fn is_unchanged(self) -> bool {
        // Acquire: pairs with the Release fence in `start_writing`; a read that saw a writer's store sees `writing`, or the
        // next version, in the load below.
        fence(Ordering::Acquire);
        (self.word.load(Ordering::Relaxed) ^ self.seen) & !LOCKED == 0
    }
}

/// A word and its data: a quarter or half of a cache line, so that a thousand or two of them stay in the first two caches.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Stripe<T> {
    word: AtomicU64,
    data: T,
}

/// Stripes of a line.
const STRIPES_PER_LINE: usize = 4;

/// Stripes that lie as cache lines do, so that none of a quarter or half of a line lies in two of them.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>([Stripe<T>; STRIPES_PER_LINE]);

/// The stripes of one table, with a `T` each. Transactions are the processor's, but in tests.
#[derive(Debug)]
pub struct Stripes<T = (), P: Transactions = Rtm> {
    lines: Box<[Line<T>]>,
    /// One less than there are.
    mask: usize,
    /// Whether `lock_pair` tries a transaction first.
    elides: bool,
    processor: P,
}

impl<T: Default> Stripes<T> {
    /// `len` stripes, a power of two.
    ///
    /// # Panics
    /// If `len` is not a power of two.
    pub fn new(len: usize) -> Self {
        assert!(len.is_power_of_two(), "{len} stripes");
        let stripe = |_| Stripe { word: AtomicU64::new(0), data: T::default() };
        let lines = (0..len.div_ceil(STRIPES_PER_LINE)).map(|_| Line(std::array::from_fn(stripe))).collect();
        Self { lines, mask: len - 1, elides: false, processor: Rtm::default() }
    }
}

impl<T> Stripes<T> {
    /// Lets [`Stripes::lock_pair`] hold pairs by transactions if `is_wanted` and the processor has them. What the holder does is
    /// then begun up to nine times for each pair, the last of them under the locks; its effects on memory are those of one time,
    /// and a system call is only ever made under the locks, since it aborts a transaction.
    #[must_use]
    pub fn with_elision(mut self, is_wanted: bool) -> Self {
        self.processor = if is_wanted { Rtm::detect() } else { Rtm::default() };
        self.elides = self.processor.is_there();
        self
    }
}

impl<T, P: Transactions> Stripes<T, P> {
    /// Whether pairs are held by transactions.
    #[inline]
    pub fn elides(&self) -> bool {
        P::POSSIBLE && self.elides
    }

    /// What belongs to a stripe.
    #[inline]
    pub fn data(&self, stripe: usize) -> &T {
        &self.stripe(stripe).data
    }

    /// What belongs to each stripe.
    pub fn all_data(&self) -> impl Iterator<Item = &T> {
        self.all().map(|stripe| &stripe.data)
    }

    /// Where the word of a stripe lies, to be asked for ahead of its use.
    #[inline(always)]
    pub fn address(&self, stripe: usize) -> *const u8 {
        std::ptr::from_ref(self.word(stripe)).cast()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.mask + 1
    }

    /// Never: there is at least one.
    pub fn is_empty(&self) -> bool {
        false
    }

    #[inline(always)]
    fn stripe(&self, stripe: usize) -> &Stripe<T> {
        let stripe = stripe & self.mask;
        // Lines are nothing but stripes, so all of them are one array of stripes.
        const { assert!(size_of::<Line<T>>() == STRIPES_PER_LINE * size_of::<Stripe<T>>()) };
        // SAFETY: `mask` is one less than the number of stripes, which is a power of two and has its lines (`new`); neither ever
        // changes.
        unsafe { &*self.lines.as_ptr().cast::<Stripe<T>>().add(stripe) }
    }

    /// In order.
    fn all(&self) -> impl DoubleEndedIterator<Item = &Stripe<T>> {
        (0..self.len()).map(|stripe| self.stripe(stripe))
    }

    #[inline(always)]
    fn word(&self, stripe: usize) -> &AtomicU64 {
        &self.stripe(stripe).word
    }

    /// The version before an optimistic read; waits while a writer is at work.
    #[inline]
    pub fn begin(&self, stripe: usize) -> Version<'_> {
        let mut round = 0;
        loop {
            if let Some(version) = self.try_begin(stripe) {
                return version;
            }
            hint::spin(&mut round);
        }
    }

    /// The same; `None` if a writer is at work.
    #[inline(always)]
    pub fn try_begin(&self, stripe: usize) -> Option<Version<'_>> {
        let word = self.word(stripe);
        // Acquire: pairs with the Release in `unlock`; what that writer wrote is visible.
        let seen = word.load(Ordering::Acquire);
        (seen & WRITING == 0).then_some(Version { word, seen })
    }

    /// Locks the stripes of two buckets, which may be one and the same, or holds them by a transaction.
    #[inline]
    pub fn lock_pair(&self, first: usize, second: usize) -> PairGuard<'_, T, P> {
        let held = Held::note(Rank::Stripes);
        let mask = self.mask;
        let (low, high) = ((first & mask).min(second & mask), (first & mask).max(second & mask));
        if self.elides() && self.elide_pair(low, high) {
            return PairGuard { stripes: self, low, high, by: By::Transaction, writing: false, _held: held };
        }
        lock(self.word(low));
        let by = if high == low {
            By::OneLock
        } else {
            lock(self.word(high));
            By::TwoLocks
        };
        PairGuard { stripes: self, low, high, by, writing: false, _held: held }
    }

    /// Begins a transaction in which neither is locked. Apart and cold, so that those who do not want it carry none of it.
    #[cold]
    #[inline(never)]
    fn elide_pair(&self, low: usize, high: usize) -> bool {
        elide(&self.processor, || self.is_free(low) && self.is_free(high))
    }

    /// Whether nobody holds the lock of a stripe.
    fn is_free(&self, stripe: usize) -> bool {
        // Acquire: pairs with the Release in `unlock`; what the last holder wrote is visible.
        self.word(stripe).load(Ordering::Acquire) & LOCKED == 0
    }

    /// The same if nobody else holds either.
    #[inline]
    pub fn try_lock_pair(&self, first: usize, second: usize) -> Option<PairGuard<'_, T, P>> {
        let held = Held::note(Rank::Stripes);
        let mask = self.mask;
        let (low, high) = ((first & mask).min(second & mask), (first & mask).max(second & mask));
        if !try_lock(self.word(low)) {
            return None;
        }
        if high != low && !try_lock(self.word(high)) {
            unlock(self.word(low));
            return None;
        }
        let by = if high == low { By::OneLock } else { By::TwoLocks };
        Some(PairGuard { stripes: self, low, high, by, writing: false, _held: held })
    }

    /// Locks every stripe: writers wait, readers go on. It writes every word, so no transaction that holds a pair survives it.
    pub fn lock_all(&self) -> AllGuard<'_, T, P> {
        let held = Held::note(Rank::Stripes);
        for stripe in self.all() {
            lock(&stripe.word);
        }
        AllGuard { stripes: self, _held: held }
    }
}

#[inline]
fn lock(word: &AtomicU64) {
    let mut round = 0;
    // loom remembers only the last access of a word, so a look before the exchange would hide from it that the exchange meets
    // other threads' accesses: there the first attempt is a guess.
    let mut seen = if cfg!(loom) { 0 } else { word.load(Ordering::Relaxed) };
    loop {
        if seen & LOCKED != 0 {
            hint::spin(&mut round);
            seen = word.load(Ordering::Relaxed);
            continue;
        }
        // Acquire: pairs with the Release in `unlock`; what the last holder wrote is visible.
        match word.compare_exchange_weak(seen, seen | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Locks if nobody holds the lock; may fail all the same.
#[inline]
fn try_lock(word: &AtomicU64) -> bool {
    // As in `lock`: under loom the first attempt is a guess, so there is a second.
    let (mut seen, attempts) = if cfg!(loom) { (0, 2) } else { (word.load(Ordering::Relaxed), 1) };
    for _ in 0..attempts {
        if seen & LOCKED != 0 {
            return false;
        }
        // Acquire: as in `lock`.
        match word.compare_exchange_weak(seen, seen | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// The caller holds the lock, so nobody else changes the word.
#[inline]
fn start_writing(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed) | WRITING, Ordering::Relaxed);
}

/// The caller holds the lock. Steps the version if something was written.
#[inline]
fn unlock(word: &AtomicU64) {
    let held = word.load(Ordering::Relaxed);
    let stepped = (held & !(LOCKED | WRITING)).wrapping_add((held & WRITING) * (VERSION_STEP / WRITING));
    // Release: pairs with the Acquire in `begin` and `lock`; publishes what was written under the lock.
    word.store(stepped, Ordering::Release);
}

/// How a pair is held. A whole word, since the guard is handed on in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
enum By {
    /// By the lock of its only stripe.
    OneLock,
    /// By both locks.
    TwoLocks,
    /// By an open transaction of this thread, which has seen both free.
    Transaction,
}

/// Two stripes held; released on drop. One that is held by a transaction stays with its thread: another could see it only after it
/// has been dropped.
#[derive(Debug)]
pub struct PairGuard<'a, T, P: Transactions = Rtm> {
    stripes: &'a Stripes<T, P>,
    low: usize,
    high: usize,
    by: By,
    writing: bool,
    _held: Held,
}

impl<T, P: Transactions> PairGuard<'_, T, P> {
    /// To be called before the first store that readers could see.
    #[inline]
    pub fn start_writing(&mut self) {
        if self.writing {
            return;
        }
        self.writing = true;
        match self.by {
            By::OneLock => start_writing(self.stripes.word(self.low)),
            By::TwoLocks => {
                start_writing(self.stripes.word(self.low));
                start_writing(self.stripes.word(self.high));
            }
            // Nobody can see anything before `commit`.
            By::Transaction => {}
        }
        // Release: pairs with the Acquire fence in `Version::is_unchanged`; whoever sees a later store sees `writing`.
        fence(Ordering::Release);
    }

    /// Ends the transaction by which the pair is held.
    #[cold]
    #[inline(never)]
    fn commit(&self) {
        if self.writing {
            step(self.stripes.word(self.low));
            if self.high != self.low {
                step(self.stripes.word(self.high));
            }
        }
        // `lock_pair` began it on this thread, which alone can see this guard until now. Had it been undone since, the guard would
        // not be there.
        self.stripes.processor.commit();
    }
}

/// Steps the version in the transaction that has seen the word unlocked: at the moment at which the others see this they see all
/// that the transaction has stored.
#[inline]
fn step(word: &AtomicU64) {
    // Release: pairs with the Acquire in `begin` and `lock`, as in `unlock`.
    word.store(word.load(Ordering::Relaxed).wrapping_add(VERSION_STEP), Ordering::Release);
}

impl<T, P: Transactions> Drop for PairGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        match self.by {
            By::OneLock => unlock(self.stripes.word(self.low)),
            By::TwoLocks => {
                unlock(self.stripes.word(self.high));
                unlock(self.stripes.word(self.low));
            }
            By::Transaction => self.commit(),
        }
    }
}

/// Every stripe held; released on drop.
#[derive(Debug)]
pub struct AllGuard<'a, T, P: Transactions = Rtm> {
    stripes: &'a Stripes<T, P>,
    _held: Held,
}

impl<T, P: Transactions> AllGuard<'_, T, P> {
    /// As [`PairGuard::start_writing`].
    pub fn start_writing(&mut self) {
        for stripe in self.stripes.all() {
            start_writing(&stripe.word);
        }
        // Release: pairs with the Acquire fence in `Version::is_unchanged`; whoever sees a later store sees `writing`.
        fence(Ordering::Release);
    }
}

impl<T, P: Transactions> Drop for AllGuard<'_, T, P> {
    fn drop(&mut self) {
        for stripe in self.stripes.all().rev() {
            unlock(&stripe.word);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_without_writing_leaves_readers_undisturbed() {
        let stripes = Stripes::<()>::new(4);
        let version = stripes.begin(1);
        drop(stripes.lock_pair(1, 2));
        drop(stripes.try_lock_pair(1, 2).expect("nobody holds them"));
        let guard = stripes.lock_all();
        // From another thread: this one would break the lock order.
        let is_taken = std::thread::scope(|scope| scope.spawn(|| stripes.try_lock_pair(1, 2).is_none()).join());
        assert!(is_taken.expect("no panic"));
        assert!(stripes.begin(1).is_unchanged(), "readers do not wait for the lock");
        drop(guard);
        assert!(version.is_unchanged());
    }

    #[test]
    fn writing_steps_both_versions() {
        let stripes = Stripes::<()>::new(4);
        let (one, two, three) = (stripes.begin(1), stripes.begin(2), stripes.begin(3));
        let mut guard = stripes.lock_pair(2, 1);
        guard.start_writing();
        assert!(!one.is_unchanged(), "already while writing");
        drop(guard);
        assert!(!one.is_unchanged() && !two.is_unchanged());
        assert!(three.is_unchanged());
    }

    #[test]
    fn a_pair_may_be_one_stripe() {
        let stripes = Stripes::<()>::new(2);
        let before = stripes.begin(1);
        let mut guard = stripes.lock_pair(1, 3);
        guard.start_writing();
        drop(guard);
        assert!(!before.is_unchanged());
        drop(stripes.lock_pair(1, 1));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "stripe_elision_tests.rs"]
mod elision_tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;

    use super::*;

    /// Two words that only ever change together, under a pair of stripes.
    struct Twins {
        stripes: Stripes<()>,
        left: AtomicU64,
        right: AtomicU64,
    }

    fn twins() -> Arc<Twins> {
        Arc::new(Twins { stripes: Stripes::new(2), left: AtomicU64::new(0), right: AtomicU64::new(0) })
    }

    fn change(twins: &Twins) {
        let mut guard = twins.stripes.lock_pair(0, 1);
        guard.start_writing();
        let next = twins.left.load(Ordering::Relaxed) + 1;
        twins.left.store(next, Ordering::Relaxed);
        twins.right.store(next, Ordering::Relaxed);
    }

    fn read(twins: &Twins, stripe: usize) -> Option<(u64, u64)> {
        let version = twins.stripes.begin(stripe);
        let seen = (twins.left.load(Ordering::Relaxed), twins.right.load(Ordering::Relaxed));
        version.is_unchanged().then_some(seen)
    }

    #[test]
    fn loom_a_validated_read_is_never_torn() {
        loom::model(|| {
            let twins = twins();
            let writer = {
                let twins = Arc::clone(&twins);
                loom::thread::spawn(move || change(&twins))
            };
            for stripe in [0, 1] {
                if let Some((left, right)) = read(&twins, stripe) {
                    assert_eq!(left, right);
                }
            }
            writer.join().expect("writer");
        });
    }

    #[test]
    fn loom_writers_exclude_each_other() {
        loom::model(|| {
            let twins = twins();
            let other = {
                let twins = Arc::clone(&twins);
                loom::thread::spawn(move || change(&twins))
            };
            change(&twins);
            other.join().expect("writer");
            assert_eq!(read(&twins, 0), Some((2, 2)));
        });
    }
}
