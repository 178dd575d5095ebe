//! Which buckets of a share that growth moves have had their turn. They are dealt out to whoever helps, so that helpers work beside
//! each other and none waits for one that stands still.
//!
//! ```text
//! waiting ──claim──> taken ──> moved, which is waiting in the next turn
//!    ^────given back───┘
//! ```
//! Always true: a bucket is taken by one thread at a time; a turn is complete once all are moved, so the turn, and with it the
//! layout, stays as it is while a bucket is taken.

use std::ops::Range;

use crossbeam_utils::CachePadded;
use guira_sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Moves {
    /// Twice the last turn in which the bucket has been moved, or that and one while it is taken; modulo 256.
    states: Box<[AtomicU8]>,
    /// Modulo 128.
    turn: AtomicU8,
    /// None waits before this one.
    next: CachePadded<AtomicUsize>,
    /// How many are moved.
    moved: CachePadded<AtomicUsize>,
}

/// Buckets that are dealt to this thread. Who asks for the next one has moved the one before. What it does not come to, or does
/// not move, is given back.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    moves: &'a Moves,
    taken: Option<usize>,
    /// Taken when this thread comes to them, if they still wait.
    rest: Range<usize>,
    moved: usize,
}

impl Moves {
    /// No share is being moved.
    pub fn new(buckets: usize) -> Self {
        Self {
            states: (0..buckets).map(|_| AtomicU8::new(0)).collect(),
            turn: AtomicU8::new(0),
            next: CachePadded::new(AtomicUsize::new(buckets)),
            moved: CachePadded::new(AtomicUsize::new(buckets)),
        }
    }

    /// All buckets wait: to be called before the layout that says so is published. The turn before is complete.
    pub fn begin(&self) {
        self.moved.store(0, Ordering::Relaxed);
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        // Release: pairs with the Acquire in `states_now`.
        self.turn.store(turn, Ordering::Release);
    }

    /// Deals them out: to be called after that.
    pub fn deal(&self) {
        // Release: pairs with the Acquire in `next_run`; who is dealt a bucket sees the layout.
        self.next.store(0, Ordering::Release);
    }

    /// A bucket's state while it waits, is taken, and is moved.
    fn states_now(&self) -> [u8; 3] {
        // Acquire: pairs with the Release in `begin`.
        let moved = self.turn.load(Ordering::Acquire).wrapping_mul(2);
        [moved.wrapping_sub(2), moved.wrapping_sub(1), moved]
    }

    /// The next so many buckets: in one run, so that neighbours, which share cache lines, are one thread's.
    pub fn next_run(&self, len: usize) -> Run<'_> {
        // Acquire: pairs with the Release in `deal`.
        let mut next = self.next.load(Ordering::Acquire);
        while next < self.states.len() {
            let end = next.saturating_add(len).min(self.states.len());
            match self.next.compare_exchange_weak(next, end, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return self.run(None, next..end),
                Err(now) => next = now,
            }
        }
        self.run(None, 0..0)
    }

    fn run(&self, taken: Option<usize>, rest: Range<usize>) -> Run<'_> {
        Run { moves: self, taken, rest, moved: 0 }
    }

    /// This bucket, if it waits.
    pub fn take(&self, bucket: usize) -> Option<Run<'_>> {
        self.claim(bucket).then(|| self.run(Some(bucket), 0..0))
    }

    fn claim(&self, bucket: usize) -> bool {
        let [waiting, taken, _] = self.states_now();
        // Acquire: pairs with the Release in `drop` of who gave it back, and of who moved it in the turn before.
        self.states[bucket].compare_exchange(waiting, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether there are none that have not been dealt.
    pub fn are_dealt(&self) -> bool {
        // Acquire: as in `next_run`.
        self.next.load(Ordering::Acquire) >= self.states.len()
    }

    /// Whether the bucket is moved.
    pub fn is_moved(&self, bucket: usize) -> bool {
        let [.., moved] = self.states_now();
        // Acquire: pairs with the Release in `finish`.
        self.states[bucket].load(Ordering::Acquire) == moved
    }

    /// Whether all are.
    pub fn is_complete(&self) -> bool {
        // Acquire: pairs with the Release in `drop`; all that was moved is seen to be.
        self.moved.load(Ordering::Acquire) == self.states.len()
    }
}

impl Run<'_> {
    /// What was taken last has been moved.
    pub fn done(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if let Some(bucket) = self.taken.take() {
            // Release: pairs with the Acquire in `is_moved` and `claim`.
            self.moves.states[bucket].store(self.moves.states_now()[2], Ordering::Release);
            self.moved += 1;
        }
    }
}

impl Iterator for Run<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.finish();
        self.taken = self.rest.find(|bucket| self.moves.claim(*bucket));
        self.taken
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let Some(bucket) = self.taken {
            // Release: pairs with the Acquire in `claim`.
            self.moves.states[bucket].store(self.moves.states_now()[0], Ordering::Release);
        }
        let given_back = self.taken.or((!self.rest.is_empty()).then_some(self.rest.start));
        if let Some(first) = given_back {
            // Release: pairs with the Acquire in `next_run`.
            self.moves.next.fetch_min(first, Ordering::AcqRel);
        }
        // One step for all of them: every thread that helps writes this.
        if self.moved > 0 {
            // Release: pairs with the Acquire in `is_complete`.
            self.moves.moved.fetch_add(self.moved, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Moves the next one.
    fn step(moves: &Moves) -> Option<usize> {
        let mut run = moves.next_run(1);
        let bucket = run.next();
        run.done();
        bucket
    }

    #[test]
    fn each_bucket_is_moved_once_and_what_is_given_back_has_another_turn() {
        let moves = Moves::new(5);
        assert!(step(&moves).is_none() && moves.take(1).is_none() && moves.is_complete() && moves.is_moved(3));
        for _ in 0..300 {
            moves.begin();
            assert!(moves.are_dealt());
            moves.deal();
            assert!(!moves.is_complete() && !moves.is_moved(3) && !moves.are_dealt());
            let mut first = moves.next_run(1);
            assert_eq!(first.next(), Some(0));
            moves.take(2).expect("none but the first is").done();
            assert!(moves.take(0).is_none() && moves.take(2).is_none() && moves.is_moved(2) && !moves.is_moved(0));
            let mut run = moves.next_run(usize::MAX);
            assert_eq!([run.next(), run.next()], [Some(1), Some(3)], "the third has been moved early");
            assert!(moves.is_moved(1) && moves.are_dealt() && step(&moves).is_none());
            drop(run);
            assert!(!moves.is_moved(3) && !moves.are_dealt(), "given back");
            assert_eq!(first.next(), None);
            drop(first);
            assert!(moves.is_moved(0) && !moves.is_complete());
            assert_eq!([step(&moves), step(&moves), step(&moves)], [Some(3), Some(4), None]);
            assert!(moves.is_complete());
        }
    }

    #[test]
    fn threads_share_the_buckets() {
        let moves = Moves::new(1000);
        let turns: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        moves.begin();
        moves.deal();
        let share = || {
            while !moves.are_dealt() {
                let given_back = moves.next_run(5).find(|bucket| {
                    let turns_before = turns[*bucket].fetch_add(1, Ordering::Relaxed);
                    bucket % 7 == 0 && turns_before == 0
                });
                assert!(given_back.is_none_or(|bucket| bucket % 7 == 0));
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(share))));
        // Who was last to look may have looked before another gave its bucket back.
        share();
        assert!(moves.is_complete());
        let expected = |bucket| if bucket % 7 == 0 { 2 } else { 1 };
        assert!(turns.iter().enumerate().all(|(bucket, turns)| turns.load(Ordering::Relaxed) == expected(bucket)));
    }
}
