//! Tells whether a history is linearizable: whether there is an order of all that was done, each at some moment between its
//! invocation and its return, in which everybody saw what they saw (Herlihy and Wing, 1990).
//!
//! The search is Wing and Gong's, with Lowe's memory of the places where it has been (`search`). Linearizability is local: a history of many keys
//! is linearizable if that of each key is, so a history here is one key's.
//!
//! Always true: what is said to be linearizable is; a history that is not said to be so within the steps allowed counts as failed.
#![forbid(unsafe_code)]

mod search;

use std::{fmt, hash::Hash};

use search::Search;

/// What may happen, one thing after the other.
pub trait Model {
    /// What is there.
    type State: Clone + Eq + Hash + fmt::Debug;
    /// Something that was done, with what was seen of it, if that is known. Equal ones do the same.
    type Act: PartialEq + fmt::Debug;

    /// What is there at first.
    fn first(&self) -> Self::State;

    /// What is there after an act; `None` if what was seen cannot be seen here.
    fn step(&self, state: &Self::State, act: &Self::Act) -> Option<Self::State>;

    /// What the act itself tells of its place: of two that have one, that of lower rank comes first. It must be so in every order that
    /// `step` allows; it saves looking at the others.
    fn rank(&self, _act: &Self::Act) -> Option<u64> {
        None
    }

    /// The lowest rank that an act may have once `state` is there; it saves looking at states behind which something certain cannot come any more.
    fn floor(&self, _state: &Self::State) -> u64 {
        0
    }
}

/// An act in time. Times are of one clock that goes on with every event.
#[derive(Clone, Debug)]
pub struct Event<A> {
    /// When it was begun.
    pub invoked: u64,
    /// When it was over; `None`: never, so it may have happened at any time since, or not at all.
    pub returned: Option<u64>,
    /// It has happened, if it is over. If not, it may have, and nobody was told.
    pub is_certain: bool,
    /// What was done.
    pub act: A,
}

/// Why a history was not found to be linearizable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// There is no order. The event at this place of the history could not be put behind the longest order that was found.
    Impossible {
        /// From 0.
        at: usize,
        /// Events in the longest order, without those that may not have happened.
        longest: usize,
        /// What was there at its end.
        state: String,
    },
    /// The search took too long.
    OutOfSteps,
}

/// Whether a history of one key is linearizable, looked for in at most `steps_max` steps of the model.
///
/// # Errors
/// [`Violation`].
pub fn check<M: Model>(model: &M, history: &[Event<M::Act>], steps_max: u64) -> Result<(), Violation> {
    Search::new(model, history, steps_max).run()
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
