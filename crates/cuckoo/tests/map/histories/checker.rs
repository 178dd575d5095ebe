//! Whether a history of one key could have come about one operation after the other: tries every order that respects who had
//! answered before whom was asked (Wing and Gong, 1993), and tries none twice (Lowe's memory of what has been tried, 2017).
//!
//! Keys are independent of each other, so a history is right if that of each key is.

use std::collections::HashSet;

/// What is asked of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Get,
    Insert(u64),
    InsertIfAbsent(u64),
    Remove,
    RemoveIf(u64),
    /// Adds to what is there, which is at least something.
    Update(u64),
    /// Adds to what is there, or puts it there.
    Add(u64),
    /// Removes what is there, or puts something there.
    Toggle(u64),
}

/// What came of it: a value, and a yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The value that was there, or has come to be there.
    Value(Option<u64>),
    /// Whether it was done.
    Done(bool),
}

/// An operation, from when it was asked for until it was answered, on a clock that never shows the same twice.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub key: usize,
    pub operation: Operation,
    pub outcome: Outcome,
    pub asked: u64,
    pub answered: u64,
}

/// What becomes of a key, and what is answered.
fn step(state: Option<u64>, operation: Operation) -> (Option<u64>, Outcome) {
    match operation {
        Operation::Get => (state, Outcome::Value(state)),
        Operation::Insert(value) => (Some(value), Outcome::Value(state)),
        Operation::InsertIfAbsent(value) => (state.or(Some(value)), Outcome::Done(state.is_none())),
        Operation::Remove => (None, Outcome::Value(state)),
        Operation::RemoveIf(value) if state == Some(value) => (None, Outcome::Done(true)),
        Operation::RemoveIf(_) => (state, Outcome::Done(false)),
        Operation::Update(more) => {
            let new = state.map(|old| old + more);
            (new, Outcome::Value(new))
        }
        Operation::Add(more) => (Some(state.unwrap_or(0) + more), Outcome::Value(state)),
        Operation::Toggle(value) => (if state.is_some() { None } else { Some(value) }, Outcome::Value(state)),
    }
}

/// Whether some order of the events explains them all, from keys that are not there.
///
/// # Panics
/// If a key has more than 64 events.
pub fn is_linearizable(history: &[Event]) -> bool {
    let keys: HashSet<usize> = history.iter().map(|event| event.key).collect();
    keys.into_iter().all(|key| {
        let events: Vec<Event> = history.iter().filter(|event| event.key == key).copied().collect();
        assert!(events.len() <= 64, "{} events", events.len());
        explains(&events, 0, None, &mut HashSet::new())
    })
}

/// Whether the events that are not in `done` can follow on `state`.
fn explains(events: &[Event], done: u64, state: Option<u64>, tried: &mut HashSet<(u64, Option<u64>)>) -> bool {
    if done.count_ones() as usize == events.len() {
        return true;
    }
    if !tried.insert((done, state)) {
        return false;
    }
    let left = || events.iter().enumerate().filter(|(at, _)| done >> at & 1 == 0);
    let first_answer = left().map(|(_, event)| event.answered).min().unwrap_or(u64::MAX);
    // Next comes one that was asked for before any of the others was answered.
    left().filter(|(_, event)| event.asked < first_answer).any(|(at, event)| {
        let (next, outcome) = step(state, event.operation);
        outcome == event.outcome && explains(events, done | 1 << at, next, tried)
    })
}

mod tests {
    use super::{Operation::*, Outcome::*, *};

    fn history(events: &[(Operation, Outcome, u64, u64)]) -> Vec<Event> {
        let event = |&(operation, outcome, asked, answered)| Event { key: 0, operation, outcome, asked, answered };
        events.iter().map(event).collect()
    }

    #[test]
    fn what_happens_one_after_the_other_is_right() {
        assert!(is_linearizable(&[]));
        assert!(is_linearizable(&history(&[
            (Get, Value(None), 0, 1),
            (Insert(1), Value(None), 2, 3),
            (InsertIfAbsent(7), Done(false), 4, 5),
            (Add(2), Value(Some(1)), 6, 7),
            (Update(1), Value(Some(4)), 8, 9),
            (RemoveIf(3), Done(false), 10, 11),
            (RemoveIf(4), Done(true), 12, 13),
            (Toggle(6), Value(None), 14, 15),
            (Toggle(9), Value(Some(6)), 16, 17),
            (Remove, Value(None), 18, 19),
            (Update(1), Value(None), 20, 21),
            (InsertIfAbsent(7), Done(true), 22, 23),
        ])));
    }

    #[test]
    fn what_overlaps_may_have_happened_in_either_order() {
        for seen in [None, Some(1)] {
            assert!(is_linearizable(&history(&[(Insert(1), Value(None), 0, 3), (Get, Value(seen), 1, 2)])));
        }
        // Three at once, explained by one order only: the last first.
        assert!(is_linearizable(&history(&[
            (Remove, Value(Some(3)), 0, 10),
            (Add(2), Value(Some(1)), 1, 11),
            (Insert(1), Value(None), 2, 12),
            (Get, Value(None), 13, 14),
        ])));
    }

    #[test]
    fn a_stale_read_is_refused() {
        assert!(!is_linearizable(&history(&[(Insert(1), Value(None), 0, 1), (Get, Value(None), 2, 3)])));
        assert!(!is_linearizable(&history(&[
            (Insert(1), Value(None), 0, 1),
            (Insert(2), Value(Some(1)), 2, 3),
            (Get, Value(Some(1)), 4, 5),
        ])));
        // Two readers beside one writer may not see old after new.
        assert!(!is_linearizable(&history(&[
            (Insert(1), Value(None), 0, 9),
            (Get, Value(Some(1)), 1, 2),
            (Get, Value(None), 3, 4),
        ])));
    }

    #[test]
    fn a_lost_update_is_refused() {
        assert!(!is_linearizable(&history(&[(Add(1), Value(None), 0, 2), (Add(2), Value(None), 1, 3)])));
        assert!(!is_linearizable(&history(&[
            (Add(1), Value(None), 0, 2),
            (Add(2), Value(Some(1)), 1, 3),
            (Get, Value(Some(2)), 4, 5),
        ])));
    }

    #[test]
    fn a_value_from_nowhere_is_refused() {
        assert!(!is_linearizable(&history(&[(Insert(1), Value(None), 0, 3), (Get, Value(Some(2)), 1, 2)])));
        assert!(!is_linearizable(&history(&[(Get, Value(Some(1)), 0, 1), (Insert(1), Value(None), 2, 3)])));
    }

    #[test]
    fn what_is_removed_or_inserted_twice_is_refused() {
        assert!(!is_linearizable(&history(&[
            (Insert(1), Value(None), 0, 1),
            (Remove, Value(Some(1)), 2, 4),
            (Remove, Value(Some(1)), 3, 5),
        ])));
        assert!(!is_linearizable(&history(&[
            (InsertIfAbsent(1), Done(true), 0, 2),
            (InsertIfAbsent(2), Done(true), 1, 3)
        ])));
    }

    #[test]
    fn each_key_is_looked_at_by_itself() {
        let event = |key, operation, outcome, asked| Event { key, operation, outcome, asked, answered: asked + 1 };
        let mut two =
            vec![event(0, Insert(1), Value(None), 0), event(1, Get, Value(None), 2), event(0, Get, Value(Some(1)), 4)];
        assert!(is_linearizable(&two));
        two.push(event(1, Remove, Value(Some(1)), 6));
        assert!(!is_linearizable(&two));
    }
}
