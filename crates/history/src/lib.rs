//! Tells whether a history is linearizable: whether there is an order of all that was done, each at some moment between its
//! invocation and its return, in which everybody saw what they saw (Herlihy and Wing, 1990).
//!
//! The search is Wing and Gong's, with Lowe's memory of the places where it has been. Linearizability is local: a history of many keys is
//! linearizable if that of each key is, so a history here is one key's.
//!
//! Always true: what is said to be linearizable is; a history that is not said to be so within the steps allowed counts as failed.
#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    fmt,
    hash::Hash,
};

/// What may happen, one thing after the other.
pub trait Model {
    /// What is there.
    type State: Clone + Eq + Hash + fmt::Debug;
    /// Something that was done, with what was seen of it, if that is known.
    type Act: fmt::Debug;

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
    /// It has happened. If not, it may have, and nobody was told.
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
        /// Events in the longest order.
        longest: usize,
        /// What was there at its end.
        state: String,
    },
    /// The search took too long.
    OutOfSteps,
}

/// A place in time, in a list from which events are taken and to which they come back.
struct Node {
    event: usize,
    is_return: bool,
    previous: usize,
    next: usize,
}

/// The list's end, and the node before its first one.
const EDGE: usize = 0;

struct Times {
    nodes: Vec<Node>,
    /// Of each event, its invocation and its return.
    of_event: Vec<(usize, Option<usize>)>,
    returns: usize,
}

impl Times {
    fn of<A>(history: &[Event<A>]) -> Self {
        let mut times: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * history.len());
        for (event, Event { invoked, returned, .. }) in history.iter().enumerate() {
            times.push((*invoked, false, event));
            times.extend(returned.map(|at| (at, true, event)));
        }
        // What begins at the moment when something else ends may have been there with it.
        times.sort_unstable();
        let last = times.len();
        let mut nodes = vec![Node { event: 0, is_return: false, previous: last, next: usize::from(last > 0) }];
        let mut of_event = vec![(0, None); history.len()];
        for (at, (_, is_return, event)) in times.into_iter().enumerate() {
            let next = if at + 1 == last { EDGE } else { at + 2 };
            nodes.push(Node { event, is_return, previous: at, next });
            if is_return {
                of_event[event].1 = Some(at + 1);
            } else {
                of_event[event].0 = at + 1;
            }
        }
        let returns = history.iter().filter(|event| event.returned.is_some()).count();
        Self { nodes, of_event, returns }
    }

    fn take(&mut self, event: usize) {
        let (invocation, end) = self.of_event[event];
        for node in [Some(invocation), end].into_iter().flatten() {
            let Node { previous, next, .. } = self.nodes[node];
            self.nodes[previous].next = next;
            self.nodes[next].previous = previous;
        }
        self.returns -= usize::from(end.is_some());
    }

    /// Undoes the last `take` that was not undone.
    fn put_back(&mut self, event: usize) {
        let (invocation, end) = self.of_event[event];
        for node in [end, Some(invocation)].into_iter().flatten() {
            let Node { previous, next, .. } = self.nodes[node];
            self.nodes[previous].next = node;
            self.nodes[next].previous = node;
        }
        self.returns += usize::from(end.is_some());
    }
}

/// Whether a history of one key is linearizable, looked for in at most `steps_max` steps.
///
/// # Errors
/// [`Violation`].
pub fn check<M: Model>(model: &M, history: &[Event<M::Act>], steps_max: u64) -> Result<(), Violation> {
    let mut times = Times::of(history);
    let mut state = model.first();
    // What is done, and what was there when it was not.
    let mut done: Vec<(usize, M::State)> = Vec::new();
    let mut is_done = vec![0_u64; history.len().div_ceil(64)];
    // Of what has happened for certain and is not done.
    let mut ranks: BTreeMap<u64, usize> = BTreeMap::new();
    let rank_of = |event: usize| history[event].is_certain.then(|| model.rank(&history[event].act)).flatten();
    for rank in (0..history.len()).filter_map(rank_of) {
        *ranks.entry(rank).or_default() += 1;
    }
    let mut been: HashSet<(Box<[u64]>, M::State)> = HashSet::new();
    let mut deepest: Option<Violation> = None;
    let mut deepest_len = 0;
    let mut at = times.nodes[EDGE].next;
    for _ in 0..steps_max {
        if times.returns == 0 {
            return Ok(());
        }
        let Node { event, is_return, next, .. } = times.nodes[at];
        if at != EDGE && !is_return {
            let lowest = ranks.first_key_value().map_or(u64::MAX, |(rank, _)| *rank);
            let is_next = model.rank(&history[event].act).is_none_or(|rank| rank <= lowest);
            let after = is_next.then(|| model.step(&state, &history[event].act)).flatten();
            let after = after.filter(|after| model.floor(after) <= lowest_but(&ranks, rank_of(event)));
            is_done[event / 64] |= 1 << (event % 64);
            match after {
                Some(after) if been.insert((is_done.clone().into(), after.clone())) => {
                    times.take(event);
                    if let Some(Entry::Occupied(mut left)) = rank_of(event).map(|rank| ranks.entry(rank)) {
                        *left.get_mut() -= 1;
                        if *left.get() == 0 {
                            left.remove();
                        }
                    }
                    done.push((event, std::mem::replace(&mut state, after)));
                    at = times.nodes[EDGE].next;
                }
                _ => {
                    is_done[event / 64] &= !(1 << (event % 64));
                    at = next;
                }
            }
            continue;
        }
        if at != EDGE && !history[event].is_certain {
            // It has not happened, then.
            is_done[event / 64] |= 1 << (event % 64);
            if been.insert((is_done.clone().into(), state.clone())) {
                times.take(event);
                done.push((event, state.clone()));
                at = times.nodes[EDGE].next;
                continue;
            }
            is_done[event / 64] &= !(1 << (event % 64));
        }
        // Whatever ends here should have happened by now: something before was wrong.
        if deepest.is_none() || done.len() > deepest_len {
            deepest_len = done.len();
            deepest = Some(Violation::Impossible { at: event, longest: done.len(), state: format!("{state:?}") });
        }
        let Some((event, before)) = done.pop() else {
            return Err(deepest.expect("set above"));
        };
        state = before;
        is_done[event / 64] &= !(1 << (event % 64));
        times.put_back(event);
        if let Some(rank) = rank_of(event) {
            *ranks.entry(rank).or_default() += 1;
        }
        at = times.nodes[times.of_event[event].0].next;
    }
    Err(Violation::OutOfSteps)
}

/// The lowest rank of those that are left, but for one of `rank`.
fn lowest_but(ranks: &BTreeMap<u64, usize>, rank: Option<u64>) -> u64 {
    let left = ranks.iter().find(|(other, count)| **count > usize::from(rank == Some(**other)));
    left.map_or(u64::MAX, |(other, _)| *other)
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
