//! Which buckets of the share that growth is at have been migrated. They are dealt out in short runs to whoever helps, so that
//! helpers work beside each other; one that stands still keeps the buckets that it has claimed, and with them the end of the
//! round, but nobody from migrating the others.
//!
//! ```text
//! waiting ──claim──> claimed ──done──> migrated, which is waiting in the next round
//!    ^──── given back ────┘
//! ```
//! Always true: a bucket is claimed by one thread at a time; a round is complete once all are migrated, so the round, and with it
//! the layout, stays as it is while a bucket is claimed.

use std::ops::Range;

use crossbeam_utils::CachePadded;
use guira_sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Buckets of a run: their tags and their stripes are one thread's cache lines meanwhile.
const RUN_LEN: usize = 8;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Migration {
    /// Twice the last round in which the bucket has been migrated, or that and one while it is claimed; modulo 256.
    states: Box<[AtomicU8]>,
    /// Modulo 128.
    round: AtomicU8,
    /// None waits before this one but those of runs that are under way.
    next: CachePadded<AtomicUsize>,
    migrated: CachePadded<AtomicUsize>,
}

/// Buckets dealt to this thread, which claims one after the other. What it has claimed and not migrated, and what it has not come
/// to, is given back in the end.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    migration: &'a Migration,
    rest: Range<usize>,
    claimed: Option<usize>,
    migrated: usize,
}

/// A bucket's states in a round.
#[derive(Clone, Copy, Debug)]
struct States {
    waiting: u8,
    claimed: u8,
    migrated: u8,
}

impl States {
    fn of_round(round: u8) -> Self {
        let migrated = round.wrapping_mul(2);
        Self { waiting: migrated.wrapping_sub(2), claimed: migrated.wrapping_sub(1), migrated }
    }
}

impl Migration {
    /// No share is being migrated.
    pub fn new(buckets: usize) -> Self {
        Self {
            states: (0..buckets).map(|_| AtomicU8::new(0)).collect(),
            round: AtomicU8::new(0),
            next: CachePadded::new(AtomicUsize::new(buckets)),
            migrated: CachePadded::new(AtomicUsize::new(buckets)),
        }
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.states[..])
    }

    /// All buckets wait: to be called before the layout that says so is published, once the round before is complete.
    pub fn begin(&self) {
        self.migrated.store(0, Ordering::Relaxed);
        let round = self.round.load(Ordering::Relaxed).wrapping_add(1);
        // Release: pairs with the Acquire in `round`.
        self.round.store(round, Ordering::Release);
    }

    /// Deals them out: to be called after that.
    pub fn deal(&self) {
        // Release: pairs with the Acquire in `next_run`; who is dealt a bucket sees the layout. Others may be giving back what they
        // claimed too early: loom takes a plain store for one that may come before what they have read.
        self.next.swap(0, Ordering::AcqRel);
    }

    fn round(&self) -> u8 {
        // Acquire: pairs with the Release in `begin`.
        self.round.load(Ordering::Acquire)
    }

    /// The next buckets, at most so many, and no more than the rest of a run.
    pub fn next_run(&self, len: usize) -> Run<'_> {
        // Acquire: pairs with the Release in `deal`.
        let mut next = self.next.load(Ordering::Acquire);
        while next < self.states.len() && len > 0 {
            let run_end = (next / RUN_LEN + 1) * RUN_LEN;
            let end = next.saturating_add(len).min(run_end).min(self.states.len());
            match self.next.compare_exchange_weak(next, end, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return self.run(next..end, None),
                Err(now) => next = now,
            }
        }
        self.run(0..0, None)
    }

    fn run(&self, rest: Range<usize>, claimed: Option<usize>) -> Run<'_> {
        Run { migration: self, rest, claimed, migrated: 0 }
    }

    /// This bucket alone, claimed, if it waits.
    pub fn claim(&self, bucket: usize) -> Option<Run<'_>> {
        self.claim_in(self.round(), bucket).then(|| self.run(0..0, Some(bucket)))
    }

    /// Claims a bucket that waits in the round that is, or was when the caller looked.
    fn claim_in(&self, round: u8, bucket: usize) -> bool {
        let States { waiting, claimed, .. } = States::of_round(round);
        let state = &self.states[bucket];
        // Acquire: pairs with the Release in `done`, of the round before, and in `drop` of who gave it back.
        if state.compare_exchange(waiting, claimed, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // A thread that stood still for 127 rounds takes for waiting what has been migrated. Whoever did that had seen the
        // round, so this sees it too.
        if self.round() == round {
            return true;
        }
        self.give_back(bucket, waiting);
        false
    }

    fn give_back(&self, bucket: usize, waiting: u8) {
        // Release: pairs with the Acquire in `claim_in`.
        self.states[bucket].store(waiting, Ordering::Release);
        // Release: pairs with the Acquire in `next_run`.
        self.next.fetch_min(bucket, Ordering::AcqRel);
    }

    /// Whether there are none that have not been dealt.
    pub fn are_dealt(&self) -> bool {
        // Acquire: as in `next_run`.
        self.next.load(Ordering::Acquire) >= self.states.len()
    }

    /// Whether the bucket is migrated.
    pub fn is_migrated(&self, bucket: usize) -> bool {
        // Acquire: pairs with the Release in `done`.
        self.states[bucket].load(Ordering::Acquire) == States::of_round(self.round()).migrated
    }

    /// Whether all are.
    pub fn is_complete(&self) -> bool {
        // Acquire: pairs with the Release in `drop`; all that was migrated is seen to be.
        self.migrated.load(Ordering::Acquire) == self.states.len()
    }
}

impl Run<'_> {
    /// Those that have not been come to.
    pub fn rest(&self) -> Range<usize> {
        self.rest.clone()
    }

    /// Claims the next one that waits.
    pub fn claim_next(&mut self) -> Option<usize> {
        debug_assert!(self.claimed.is_none(), "one after the other");
        let round = self.migration.round();
        self.claimed = self.rest.find(|bucket| self.migration.claim_in(round, *bucket));
        self.claimed
    }

    /// What was claimed has been migrated.
    pub fn done(&mut self) {
        let bucket = self.claimed.take().expect("a bucket is claimed");
        let migrated = States::of_round(self.migration.round()).migrated;
        // Release: pairs with the Acquire in `is_migrated` and `claim_in`.
        self.migration.states[bucket].store(migrated, Ordering::Release);
        self.migrated += 1;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.rest.is_empty() {
            // Release: pairs with the Acquire in `next_run`.
            self.migration.next.fetch_min(self.rest.start, Ordering::AcqRel);
        }
        if let Some(bucket) = self.claimed {
            self.migration.give_back(bucket, States::of_round(self.migration.round()).waiting);
        }
        // One step for all of them: every thread that helps writes this.
        if self.migrated > 0 {
            // Release: pairs with the Acquire in `is_complete`.
            self.migration.migrated.fetch_add(self.migrated, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Migrates the next one.
    fn step(migration: &Migration) -> Option<usize> {
        let mut run = migration.next_run(1);
        let bucket = run.claim_next()?;
        run.done();
        Some(bucket)
    }

    fn begun(buckets: usize) -> Migration {
        let migration = Migration::new(buckets);
        migration.begin();
        assert!(migration.are_dealt());
        migration.deal();
        migration
    }

    #[test]
    fn each_bucket_is_migrated_once_and_what_is_given_back_is_dealt_again() {
        let migration = Migration::new(5);
        assert!(step(&migration).is_none() && migration.claim(1).is_none() && migration.is_complete());
        for _ in 0..300 {
            migration.begin();
            migration.deal();
            assert!(!migration.is_complete() && !migration.is_migrated(3) && !migration.are_dealt());
            let mut first = migration.next_run(1);
            assert_eq!(first.claim_next(), Some(0));
            migration.claim(2).expect("none but the first is claimed").done();
            assert!(migration.claim(0).is_none() && migration.claim(2).is_none());
            assert!(migration.is_migrated(2) && !migration.is_migrated(0));
            let mut run = migration.next_run(usize::MAX);
            assert_eq!(run.claim_next(), Some(1));
            run.done();
            assert_eq!(run.claim_next(), Some(3), "the third has been migrated early");
            assert!(migration.is_migrated(1) && migration.are_dealt() && step(&migration).is_none());
            drop(run);
            assert!(!migration.is_migrated(3) && !migration.are_dealt(), "given back");
            first.done();
            assert_eq!(first.claim_next(), None);
            drop(first);
            assert!(migration.is_migrated(0) && !migration.is_complete());
            assert_eq!([step(&migration), step(&migration), step(&migration)], [Some(3), Some(4), None]);
            assert!(migration.is_complete());
        }
    }

    #[test]
    fn runs_end_where_their_cache_lines_do() {
        let migration = begun(20);
        let lens = [3, usize::MAX, 100, 8, 8].map(|len| {
            let mut run = migration.next_run(len);
            let dealt = run.rest();
            while run.claim_next().is_some() {
                run.done();
            }
            dealt
        });
        assert_eq!(lens, [0..3, 3..8, 8..16, 16..20, 0..0]);
        assert!(migration.is_complete());
    }

    #[test]
    fn who_stood_still_for_127_rounds_claims_nothing_that_is_migrated() {
        let migration = Migration::new(1);
        let mut stale = migration.round();
        for round in 0..600 {
            migration.begin();
            migration.deal();
            if round == 300 {
                stale = migration.round();
            }
            assert_eq!(step(&migration), Some(0));
            // The round's own number comes again every 128 rounds, and then the claim is as good as any; one too early it is not.
            assert!(!migration.claim_in(stale, 0), "round {round}");
            assert!(migration.is_complete() && migration.is_migrated(0), "round {round}");
        }
    }

    #[test]
    fn threads_share_the_buckets() {
        let migration = begun(1000);
        let claims: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        let share = || {
            while !migration.are_dealt() {
                let mut run = migration.next_run(5);
                while let Some(bucket) = run.claim_next() {
                    if claims[bucket].fetch_add(1, Ordering::Relaxed) == 0 && bucket % 7 == 0 {
                        break;
                    }
                    run.done();
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(share))));
        // Who was last to look may have looked before another gave its bucket back.
        share();
        assert!(migration.is_complete());
        let expected = |bucket| if bucket % 7 == 0 { 2 } else { 1 };
        assert!(claims.iter().enumerate().all(|(bucket, claims)| claims.load(Ordering::Relaxed) == expected(bucket)));
    }
}

/// Helpers, one of which comes early and gives back what it claimed before the layout was published.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;
    use crate::loom_tests::model_within;

    struct Share {
        migration: Migration,
        is_published: AtomicBool,
        /// How often each bucket has been migrated.
        migrated: [AtomicUsize; 2],
    }

    impl Share {
        /// Migrates what the run claims next, unless the layout does not say so yet.
        fn migrate(&self, run: &mut Run<'_>, bucket: usize) {
            if self.is_published.load(Ordering::Acquire) {
                self.migrated[bucket].fetch_add(1, Ordering::Relaxed);
                run.done();
            }
        }

        fn help(&self) {
            let mut run = self.migration.next_run(usize::MAX);
            while let Some(bucket) = run.claim_next() {
                self.migrate(&mut run, bucket);
                if run.claimed.is_some() {
                    break;
                }
            }
        }
    }

    #[test]
    fn loom_every_bucket_is_migrated_once_beside_a_helper_that_comes_early() {
        model_within(3, || {
            let share = Arc::new(Share {
                migration: Migration::new(2),
                is_published: AtomicBool::new(false),
                migrated: [AtomicUsize::new(0), AtomicUsize::new(0)],
            });
            let early = {
                let share = Arc::clone(&share);
                thread::spawn(move || {
                    if let Some(mut run) = share.migration.claim(1) {
                        share.migrate(&mut run, 1);
                    }
                    share.help();
                })
            };
            share.migration.begin();
            share.is_published.store(true, Ordering::Release);
            share.migration.deal();
            share.help();
            early.join().expect("the early one");
            while !share.migration.are_dealt() {
                share.help();
            }
            assert!(share.migration.is_complete());
            assert_eq!(share.migrated.each_ref().map(|times| times.load(Ordering::Relaxed)), [1, 1]);
        });
    }
}
