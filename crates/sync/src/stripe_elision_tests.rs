//! Pairs of stripes held by transactions: of a scripted processor, and of the one at hand.

use std::{
    sync::atomic::{AtomicBool, AtomicU32},
    time::{Duration, Instant},
};

use super::*;
use crate::elision::{
    Status,
    tests::{CAPACITY, CONFLICT, Did, Script, has_rtm},
};

fn eliding<P: Transactions>(len: usize, processor: P) -> Stripes<(), P> {
    let Stripes { lines, mask, .. } = Stripes::<()>::new(len);
    Stripes { lines, mask, elides: true, processor }
}

fn scripted(rest: Result<(), Status>) -> Stripes<(), Script> {
    eliding(4, Script::new([], rest))
}

/// A version, and whether the stripe is locked.
fn word<P: Transactions>(stripes: &Stripes<(), P>, stripe: usize) -> (u64, bool) {
    let word = stripes.word(stripe).load(Ordering::Relaxed);
    (word / VERSION_STEP, word & LOCKED != 0)
}

#[test]
fn a_transaction_locks_nothing_and_steps_what_it_wrote_once() {
    let stripes = scripted(Ok(()));
    let [one, two] = [1, 2].map(|stripe| stripes.begin(stripe));
    let mut guard = stripes.lock_pair(2, 1);
    guard.start_writing();
    guard.start_writing();
    assert_eq!([1, 2].map(|stripe| word(&stripes, stripe)), [(0, false); 2]);
    drop(guard);
    assert_eq!([0, 1, 2, 3].map(|stripe| word(&stripes, stripe).0), [0, 1, 1, 0]);
    assert!((0..4).all(|stripe| stripes.try_begin(stripe).is_some()), "no mark stays");
    assert!(!one.is_unchanged() && !two.is_unchanged());
    let mut guard = stripes.lock_pair(3, 3);
    guard.start_writing();
    drop(guard);
    assert_eq!(word(&stripes, 3).0, 1, "a pair of one stripe steps it once");
    assert_eq!(stripes.processor.did(), [Did::Begin, Did::Commit, Did::Begin, Did::Commit]);
}

#[test]
fn a_transaction_that_writes_nothing_leaves_readers_undisturbed() {
    let stripes = scripted(Ok(()));
    let version = stripes.begin(1);
    drop(stripes.lock_pair(1, 2));
    assert!(version.is_unchanged());
    assert_eq!(stripes.processor.did(), [Did::Begin, Did::Commit]);
}

#[test]
fn what_no_transaction_can_do_is_done_under_the_locks() {
    for (rest, begins) in [(CONFLICT, 8), (CAPACITY, 1)] {
        let stripes = scripted(Err(rest));
        let mut guard = stripes.lock_pair(1, 2);
        assert_eq!([1, 2].map(|stripe| word(&stripes, stripe)), [(0, true); 2]);
        guard.start_writing();
        drop(guard);
        assert_eq!([0, 1, 2, 3].map(|stripe| word(&stripes, stripe)), [(0, false), (1, false), (1, false), (0, false)]);
        assert_eq!(stripes.processor.did(), vec![Did::Begin; begins], "no commit");
    }
}

#[test]
fn only_pairs_that_may_be_waited_for_are_held_by_transactions() {
    let stripes = scripted(Ok(()));
    drop(stripes.try_lock_pair(1, 2).expect("nobody holds them"));
    drop(stripes.lock_all());
    assert!(stripes.processor.did().is_empty());
}

#[test]
fn stripes_that_are_not_asked_to_elide_do_not() {
    let stripes = Stripes::<()>::new(4);
    assert!(!stripes.elides());
    drop(stripes.lock_pair(1, 2));
    assert!(!Stripes::<()>::new(4).with_elision(false).elides());
    assert_eq!(Stripes::<()>::new(4).with_elision(true).elides(), Rtm::detect().is_there());
}

/// Runs a section while a pair is held.
type Hold<P> = fn(&Stripes<(), P>, &mut dyn FnMut());

/// As it is.
fn hold<P: Transactions>(stripes: &Stripes<(), P>, section: &mut dyn FnMut()) {
    let _guard = stripes.lock_pair(1, 2);
    section();
}

/// A fault: the transaction does not look whether the stripes are locked.
fn hold_without_a_look<P: Transactions>(stripes: &Stripes<(), P>, section: &mut dyn FnMut()) {
    if !elide(&stripes.processor, || true) {
        return hold(stripes, section);
    }
    section();
    stripes.processor.commit();
}

/// One thread changes two words under all locks, `pause` between them; another looks at both, under its pair. How often the two
/// words differed before the first did so, or until `rounds` were done.
fn differences<P: Transactions + Sync>(
    stripes: &Stripes<(), P>,
    hold: Hold<P>,
    rounds: u32,
    pause: impl Fn(&AtomicU32) + Sync,
) -> u32 {
    let (left, right) = (AtomicU64::new(0), AtomicU64::new(0));
    let (looks, differing, is_half_done, is_done) =
        (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_half_done.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            while !is_done.load(Ordering::Relaxed) {
                let mut seen = (0, 0);
                hold(stripes, &mut || seen = (left.load(Ordering::Relaxed), right.load(Ordering::Relaxed)));
                differing.fetch_add(u32::from(seen.0 != seen.1), Ordering::Relaxed);
                looks.fetch_add(1, Ordering::Release);
            }
        });
        for round in 1..=rounds {
            let guard = stripes.lock_all();
            left.store(u64::from(round), Ordering::Relaxed);
            is_half_done.store(true, Ordering::Release);
            pause(&looks);
            right.store(u64::from(round), Ordering::Relaxed);
            drop(guard);
            if differing.load(Ordering::Relaxed) > 0 {
                break;
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    differing.into_inner()
}

/// The second word is changed when the other thread has been turned away, or has looked.
fn differences_by_script(hold: Hold<Script>) -> u32 {
    // The first transaction begins while all is locked, and there is no other.
    let stripes = eliding(4, Script::new([Ok(())], Err(CAPACITY)));
    let waits = |looks: &AtomicU32| {
        while !stripes.processor.did().contains(&Did::AbortHeld) && looks.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
    };
    differences(&stripes, hold, 1, waits)
}

#[test]
fn a_transaction_keeps_out_of_what_is_locked() {
    assert_eq!(differences_by_script(hold), 0);
}

#[test]
fn a_transaction_that_does_not_look_at_the_lock_is_caught() {
    assert_ne!(differences_by_script(hold_without_a_look), 0);
}

fn spin_a_little(_: &AtomicU32) {
    (0..50).for_each(|_| std::hint::spin_loop());
}

#[test]
fn the_processors_transactions_keep_out_of_what_is_locked() {
    if has_rtm() {
        let stripes = Stripes::new(4).with_elision(true);
        assert_eq!(differences(&stripes, hold, 20_000, spin_a_little), 0);
    }
}

#[test]
fn the_processors_transactions_are_caught_if_they_do_not_look_at_the_lock() {
    if has_rtm() {
        let stripes = Stripes::new(4).with_elision(true);
        let deadline = Instant::now() + Duration::from_secs(30);
        while differences(&stripes, hold_without_a_look, 20_000, spin_a_little) == 0 {
            assert!(Instant::now() < deadline, "the fault is not noticed");
        }
    }
}

#[test]
fn threads_that_elide_and_threads_that_lock_count_right_and_readers_see_no_half() {
    const TURNS: u64 = 50_000;
    let stripes = Stripes::<()>::new(4).with_elision(true);
    println!("elided: {}", stripes.elides());
    let (left, right) = (AtomicU64::new(0), AtomicU64::new(0));
    let count = |guard: &mut dyn FnMut()| {
        guard();
        let next = left.load(Ordering::Relaxed) + 1;
        left.store(next, Ordering::Relaxed);
        right.store(next, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for turn in 0..TURNS {
                    if turn % 64 == 0 {
                        let mut guard = stripes.lock_all();
                        count(&mut || guard.start_writing());
                    } else {
                        let mut guard = stripes.lock_pair(1, 2);
                        count(&mut || guard.start_writing());
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut last = 0;
            while last < 2 * TURNS {
                let version = stripes.begin(2);
                let seen = (left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
                if version.is_unchanged() {
                    assert_eq!(seen.0, seen.1);
                    assert!(seen.0 >= last);
                    last = seen.0;
                }
            }
        });
    });
    assert_eq!((left.into_inner(), right.into_inner()), (2 * TURNS, 2 * TURNS));
    assert_eq!(word(&stripes, 1).0, 2 * TURNS, "each stepped it once");
    assert_eq!(word(&stripes, 2), word(&stripes, 1));
}
