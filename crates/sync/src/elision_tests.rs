//! Elision against scripts of what a processor may do, and on the processor at hand.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    hint::black_box,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::*;

/// Somebody else wrote what the transaction has read, or looked at what it has written.
pub(crate) const CONFLICT: Status = Status(Status::RETRY | 1 << 2);
pub(crate) const CAPACITY: Status = Status(Status::CAPACITY);
/// An interrupt, a system call, a page that is not there.
pub(crate) const NO_REASON: Status = Status(0);

/// What was asked of a stand-in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Did {
    Begin,
    Commit,
    AbortHeld,
}

/// A processor whose transactions end as a script says. They are none: what is done in them is seen at once.
#[derive(Debug)]
pub(crate) struct Script {
    /// What each `begin` says.
    begins: Mutex<VecDeque<Result<(), Status>>>,
    /// What it says when those have been used up.
    rest: Result<(), Status>,
    is_open: AtomicBool,
    did: Mutex<Vec<Did>>,
}

impl Script {
    pub fn new(begins: impl IntoIterator<Item = Result<(), Status>>, rest: Result<(), Status>) -> Self {
        Self {
            begins: Mutex::new(begins.into_iter().collect()),
            rest,
            is_open: AtomicBool::new(false),
            did: Mutex::default(),
        }
    }

    /// What has been asked of it.
    pub fn did(&self) -> Vec<Did> {
        self.did.lock().expect("nobody panics with it").clone()
    }

    fn note(&self, what: Did) {
        self.did.lock().expect("nobody panics with it").push(what);
    }
}

// SAFETY: one step for all others, because tests let nobody else run between `begin` and `commit`; and a `begin` that says `Err` was
// never said to have begun.
unsafe impl Transactions for Script {
    const POSSIBLE: bool = true;

    fn begin(&self) -> Result<(), Status> {
        self.note(Did::Begin);
        let begun = self.begins.lock().expect("nobody panics with it").pop_front().unwrap_or(self.rest);
        self.is_open.store(begun.is_ok(), Ordering::Relaxed);
        begun
    }

    fn commit(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            self.note(Did::Commit);
        }
    }

    fn abort_held(&self) -> Status {
        self.is_open.store(false, Ordering::Relaxed);
        self.note(Did::AbortHeld);
        Status::HELD
    }
}

/// The steps that the policy takes until it takes the lock.
fn steps(statuses: impl IntoIterator<Item = Status>) -> Vec<Step> {
    let mut policy = Policy::default();
    let mut steps = Vec::new();
    for status in statuses {
        steps.push(policy.step(status));
        if steps.last() == Some(&Step::TakeLock) {
            break;
        }
    }
    steps
}

#[test]
fn a_conflict_is_tried_again_a_bounded_number_of_times() {
    let steps = steps(std::iter::repeat(CONFLICT));
    assert_eq!(steps.len() as u32, ATTEMPTS_MAX);
    assert!(steps[..steps.len() - 1].iter().all(|step| *step == Step::Retry));
}

#[test]
fn a_held_lock_is_waited_for_a_bounded_number_of_times() {
    let steps = steps(std::iter::repeat(Status::HELD));
    assert_eq!(steps.len() as u32, ATTEMPTS_MAX);
    assert!(steps[..steps.len() - 1].iter().all(|step| *step == Step::WaitForLock));
}

#[test]
fn an_abort_without_the_hint_is_tried_again_too_but_less_often() {
    assert_eq!(steps([NO_REASON; 9]), [Step::Retry, Step::Retry, Step::TakeLock]);
    let not_ours = Status(Status::EXPLICIT | 0x7f << Status::CODE_SHIFT);
    assert_eq!(steps([not_ours; 9]), steps([NO_REASON; 9]), "another code than that of a held lock");
    // What is hinted at, or has another cause, does not count.
    let mixed = [NO_REASON, CONFLICT, Status::HELD, NO_REASON, CONFLICT, NO_REASON];
    assert_eq!(steps(mixed), [Step::Retry, Step::Retry, Step::WaitForLock, Step::Retry, Step::Retry, Step::TakeLock]);
}

#[test]
fn what_was_too_large_is_not_tried_again() {
    assert_eq!(steps([CAPACITY]), [Step::TakeLock]);
    assert_eq!(steps([Status(Status::CAPACITY | Status::RETRY)]), [Step::TakeLock]);
    assert_eq!(steps([CONFLICT, CAPACITY]), [Step::Retry, Step::TakeLock]);
}

#[test]
fn a_section_begins_in_the_first_transaction_that_finds_the_lock_free() {
    let script = Script::new([Err(CONFLICT), Err(NO_REASON)], Ok(()));
    assert!(elide(&script, || true));
    assert_eq!(script.did(), [Did::Begin; 3]);
}

#[test]
fn a_transaction_that_finds_the_lock_held_is_undone_and_another_begins_when_it_is_free() {
    // Held when the transaction looks, and at two more looks while it is waited for.
    let looks = RefCell::new(VecDeque::from([false, false, false, true, true]));
    let script = Script::new([], Ok(()));
    assert!(elide(&script, || looks.borrow_mut().pop_front().expect("no more looks than that")));
    assert_eq!(script.did(), [Did::Begin, Did::AbortHeld, Did::Begin]);
    assert!(looks.borrow().is_empty());
}

#[test]
fn sections_that_cannot_commit_end_in_the_lock() {
    for (status, begins) in [(CONFLICT, ATTEMPTS_MAX), (NO_REASON, UNHINTED_MAX + 1), (CAPACITY, 1)] {
        let script = Script::new([], Err(status));
        let looks = Cell::new(0);
        assert!(!elide(&script, || {
            looks.set(looks.get() + 1);
            true
        }));
        assert_eq!(script.did().len() as u32, begins, "{status:?}");
        assert_eq!(looks.get(), 0, "outside of a transaction nobody asks");
    }
}

/// False, and says so, where the processor has no transactions.
pub(crate) fn has_rtm() -> bool {
    if !Rtm::detect().is_there() {
        println!("skipped: this processor has no transactions (RTM)");
    }
    Rtm::detect().is_there()
}

/// Begins and returns, and its frame with it.
#[inline(never)]
fn begin_in_a_frame_of_its_own() -> Result<(), Status> {
    black_box(&mut [7u64; 16]);
    Rtm::detect().begin()
}

/// Writes over what `begin_in_a_frame_of_its_own` left on the stack.
#[inline(never)]
fn write_over_the_stack(depth: u64) -> u64 {
    let mut frame = [depth; 64];
    black_box(&mut frame);
    if depth == 0 { 0 } else { frame[63] + write_over_the_stack(depth - 1) }
}

#[test]
fn an_abort_undoes_all_that_was_done_since_begin_returned() {
    if !has_rtm() {
        return;
    }
    let (cell, heap) = (AtomicU64::new(1), vec![AtomicU64::new(2)]);
    let mut undone = 0;
    for _ in 0..1000 {
        match begin_in_a_frame_of_its_own() {
            Ok(()) => {
                cell.store(write_over_the_stack(8), Ordering::Relaxed);
                heap[0].store(9, Ordering::Relaxed);
                Rtm::detect().abort_held();
                unreachable!("this time never was");
            }
            Err(status) => undone += u32::from(status.is_held()),
        }
        assert_eq!((cell.load(Ordering::Relaxed), heap[0].load(Ordering::Relaxed)), (1, 2));
    }
    assert!(undone > 0, "nothing but interrupts");
}

#[test]
fn what_the_processor_commits_is_done() {
    if !has_rtm() {
        return;
    }
    let cell = AtomicU64::new(0);
    let mut committed = 0;
    for _ in 0..1000 {
        if Rtm::detect().begin().is_ok() {
            cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            Rtm::detect().commit();
            committed += 1;
        }
    }
    assert_eq!(cell.load(Ordering::Relaxed), committed);
    assert!(committed > 0, "the trial saw one commit");
    Rtm::detect().commit();
    assert_eq!(cell.load(Ordering::Relaxed), committed, "nothing, outside of a transaction");
}
