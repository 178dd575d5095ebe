//! The search for an order, place by place: a place is what has been put in order, and what is there after it.
//!
//! What may not have happened makes it long: each such act may come anywhere, or nowhere. So
//! - a place is left out if another one has the same behind it and there, and has needed nothing of that which this one has not;
//! - of two such acts that do the same, the one that begins first comes first, if it ends first, too;
//! - the place with most behind it is gone on from first, with what has happened, and only then with what may have.
//!
//! Always true: a place that is left out can be gone on from to the end only if another one can, which is not left out.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, HashMap},
};

use crate::{Event, Model, Violation};

/// Never.
const NEVER: u64 = u64::MAX;

/// A history, and the places in it that were found.
pub(crate) struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [Event<M::Act>],
    /// The events that have happened and ended, as they began.
    certain: Vec<usize>,
    /// The others, as they began.
    doubtful: Vec<Doubtful>,
    /// The ranks of `certain`, and where there, by rank.
    ranks: Vec<(u64, usize)>,
    /// For what is in order of `certain`, and what is there: what it needed of `doubtful`, none of them more than another one.
    been: HashMap<(Passed, M::State), Vec<Bits>>,
    open: BinaryHeap<Place<M::State>>,
}

/// An event that may not have happened.
struct Doubtful {
    event: usize,
    until: u64,
    /// One in `doubtful` that does the same, and begins and ends no later.
    twin: Option<usize>,
}

/// Numbers, as bits.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Bits(Vec<u64>);

/// Which of `certain` are in order.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Passed {
    /// The first so many times 64 are.
    words: usize,
    /// Those behind.
    behind: Bits,
}

struct Place<S> {
    passed: Passed,
    len: usize,
    /// The first of `ranks` that is not in order.
    rank: usize,
    needed: Bits,
    needed_len: usize,
    state: S,
    /// The latest beginning of what is in order.
    since: u64,
    /// All of `certain` that fit were put behind it.
    is_certain_done: bool,
}

impl<'a, M: Model> Search<'a, M> {
    pub(crate) fn new(model: &'a M, history: &'a [Event<M::Act>]) -> Self {
        let mut as_they_began: Vec<usize> = (0..history.len()).collect();
        as_they_began.sort_by_key(|event| history[*event].invoked);
        let has_happened = |event: &usize| history[*event].is_certain && history[*event].returned.is_some();
        let (certain, others): (Vec<_>, Vec<_>) = as_they_began.into_iter().partition(has_happened);
        let mut ranks: Vec<_> = certain
            .iter()
            .enumerate()
            .filter_map(|(at, event)| Some((model.rank(&history[*event].act)?, at)))
            .collect();
        ranks.sort_unstable();
        let mut doubtful: Vec<Doubtful> = Vec::with_capacity(others.len());
        for event in others {
            let until = history[event].returned.unwrap_or(NEVER);
            let does_the_same =
                |other: &Doubtful| other.until <= until && history[other.event].act == history[event].act;
            let twin = doubtful.iter().rposition(does_the_same);
            doubtful.push(Doubtful { event, until, twin });
        }
        Self { model, history, certain, doubtful, ranks, been: HashMap::new(), open: BinaryHeap::new() }
    }

    pub(crate) fn run(mut self, steps_max: u64) -> Result<(), Violation> {
        let mut steps_left = steps_max;
        let mut deepest: Option<(usize, Violation)> = None;
        self.open.push(Place::first(self.model.first()));
        while let Some(mut place) = self.open.pop() {
            if place.len == self.certain.len() {
                return Ok(());
            }
            let (until, next) = self.next(&place.passed);
            if place.is_certain_done {
                if deepest.as_ref().is_none_or(|(len, _)| *len < place.len) {
                    deepest = Some((place.len, self.impossible(&place, until, &next)));
                }
                self.go_on_with_doubtful(&place, until, &mut steps_left);
            } else {
                self.go_on(&place, &next, &mut steps_left);
                place.is_certain_done = true;
                self.open.push(place);
            }
            if steps_left == 0 {
                return Err(Violation::OutOfSteps);
            }
        }
        Err(deepest.map_or(Violation::OutOfSteps, |(_, violation)| violation))
    }

    /// When the first of what is not in order ends, and what of that begins before.
    fn next(&self, passed: &Passed) -> (u64, Vec<usize>) {
        let (mut until, mut next) = (NEVER, Vec::new());
        for at in passed.first()..self.certain.len() {
            let Event { invoked, returned, .. } = &self.history[self.certain[at]];
            if *invoked > until {
                break;
            }
            if !passed.has(at) {
                until = until.min(returned.unwrap_or(NEVER));
                next.push(at);
            }
        }
        (until, next)
    }

    fn go_on(&mut self, place: &Place<M::State>, next: &[usize], steps_left: &mut u64) {
        for &at in next {
            let Event { invoked, act, .. } = &self.history[self.certain[at]];
            let mut passed = place.passed.clone();
            passed.insert(at);
            let rank = self.rank_from(place.rank, &passed);
            if let Some(state) = self.step(place, act, self.ranks.get(rank), steps_left) {
                let since = place.since.max(*invoked);
                self.put(Place {
                    passed,
                    len: place.len + 1,
                    rank,
                    needed: place.needed.clone(),
                    since,
                    state,
                    is_certain_done: false,
                    ..*place
                });
            }
        }
    }

    fn go_on_with_doubtful(&mut self, place: &Place<M::State>, until: u64, steps_left: &mut u64) {
        for at in 0..self.doubtful.len() {
            let Doubtful { event, until: its_end, twin } = self.doubtful[at];
            let Event { invoked, act, .. } = &self.history[event];
            if *invoked > until {
                break;
            }
            let can_be_next = |at: usize, until| !place.needed.has(at) && until >= place.since;
            let twin_is_next = twin.is_some_and(|twin| can_be_next(twin, self.doubtful[twin].until));
            if twin_is_next || !can_be_next(at, its_end) {
                continue;
            }
            if let Some(state) = self.step(place, act, self.ranks.get(place.rank), steps_left) {
                let mut needed = place.needed.clone();
                needed.insert(at);
                let since = place.since.max(*invoked);
                self.put(Place {
                    passed: place.passed.clone(),
                    needed,
                    needed_len: place.needed_len + 1,
                    since,
                    state,
                    is_certain_done: false,
                    ..*place
                });
            }
        }
    }

    /// What is there after an act, if it fits, and if what has the lowest rank then can still come.
    fn step(
        &self,
        place: &Place<M::State>,
        act: &M::Act,
        lowest: Option<&(u64, usize)>,
        steps_left: &mut u64,
    ) -> Option<M::State> {
        *steps_left = steps_left.saturating_sub(1);
        let rank_of = |ranked: Option<&(u64, usize)>| ranked.map_or(u64::MAX, |(rank, _)| *rank);
        if self.model.rank(act).is_some_and(|rank| rank > rank_of(self.ranks.get(place.rank))) {
            return None;
        }
        self.model.step(&place.state, act).filter(|state| self.model.floor(state) <= rank_of(lowest))
    }

    fn rank_from(&self, from: usize, passed: &Passed) -> usize {
        (from..self.ranks.len()).find(|at| !passed.has(self.ranks[*at].1)).unwrap_or(self.ranks.len())
    }

    /// Goes on from there some time, if nothing that is known is as good.
    fn put(&mut self, place: Place<M::State>) {
        let known = self.been.entry((place.passed.clone(), place.state.clone())).or_default();
        if known.iter().any(|needed| needed.is_within(&place.needed)) {
            return;
        }
        known.retain(|needed| !place.needed.is_within(needed));
        known.push(place.needed.clone());
        self.open.push(place);
    }

    fn impossible(&self, place: &Place<M::State>, until: u64, next: &[usize]) -> Violation {
        let mut events = next.iter().map(|at| self.certain[*at]);
        let at = events.find(|event| self.history[*event].returned == Some(until)).unwrap_or_default();
        Violation::Impossible { at, longest: place.len, state: format!("{:?}", place.state) }
    }
}

impl<S> Place<S> {
    fn first(state: S) -> Self {
        let (passed, needed) = Default::default();
        Self { passed, len: 0, rank: 0, needed, needed_len: 0, state, since: 0, is_certain_done: false }
    }

    /// Higher is sooner.
    fn turn(&self) -> (usize, Reverse<usize>, bool) {
        (self.len, Reverse(self.needed_len), !self.is_certain_done)
    }
}

impl Bits {
    fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn insert(&mut self, number: usize) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn is_within(&self, other: &Self) -> bool {
        let at = |word: usize| other.0.get(word).copied().unwrap_or(0);
        self.0.iter().enumerate().all(|(word, bits)| bits & !at(word) == 0)
    }
}

impl Passed {
    /// All before this one are in order.
    fn first(&self) -> usize {
        64 * self.words
    }

    fn has(&self, at: usize) -> bool {
        at.checked_sub(self.first()).is_none_or(|at| self.behind.has(at))
    }

    fn insert(&mut self, at: usize) {
        self.behind.insert(at - self.first());
        while self.behind.0.first() == Some(&u64::MAX) {
            self.behind.0.remove(0);
            self.words += 1;
        }
    }
}

impl<S> Ord for Place<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.turn().cmp(&other.turn())
    }
}

impl<S> PartialOrd for Place<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> PartialEq for Place<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S> Eq for Place<S> {}
