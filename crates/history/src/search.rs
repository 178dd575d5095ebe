//! The search for an order, place by place: a place is what has been put in order, and what is there after it.
//!
//! What may not have happened makes it long: each such act may come anywhere, or nowhere. So
//! - a place is left out if another one has the same behind it and there, and has needed nothing of that which this one has not: what can come next depends
//!   on nothing else, and the less was needed, the more is left;
//! - of two such acts that do the same, the one that begins first comes first, if it ends first, too;
//! - places are gone on from in two orders by turns: the one that has got furthest, and the one that has needed least. Either alone may try all there is of
//!   what may not have happened, the first one where two that have were put in the wrong order, the other one where much has to be needed.
//!
//! Always true: a place that is left out can be gone on from to the end only if another one can, which is not left out.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    rc::Rc,
};

use crate::{Event, Model, Violation};

/// The end of what never ended.
const NEVER: u64 = u64::MAX;

/// So many places of which none is better than another are compared with a new one in a step.
const COMPARED_IN_A_STEP: u64 = 16;

/// A history, and the places in it that were found.
pub(crate) struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [Event<M::Act>],
    /// The events that have happened and ended, as they began.
    certain: Vec<usize>,
    /// The others, as they began.
    doubtful: Vec<Doubtful>,
    /// How many different acts these are.
    classes: usize,
    /// Ranks, each with its place in `certain`, the lowest first.
    ranks: Vec<(u64, usize)>,
    places: Vec<Place<M::State>>,
    /// Those with the same behind them and there, none of which has needed all that another one has.
    been: HashMap<Rc<Spot<M::State>>, Vec<usize>>,
    /// All places that are to be gone on from, and others; each time in both.
    furthest: BinaryHeap<Furthest>,
    least: BinaryHeap<Least>,
    is_least_next: bool,
    steps_left: u64,
}

/// How far a place is, what it has needed, what was to be done there, and where it is: the highest is next.
type Furthest = (usize, Reverse<usize>, Reverse<Stage>, Reverse<usize>);

/// The same, with what it has needed first.
type Least = (Reverse<usize>, Reverse<Stage>, usize, Reverse<usize>);

/// An event that may not have happened.
struct Doubtful {
    event: usize,
    until: u64,
    /// Those of one class do the same.
    class: usize,
}

/// What is to be done at a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// What has happened is to be put behind it.
    Certain,
    /// What may have is.
    Doubtful,
    /// Nothing.
    Over,
}

/// Which of `certain` are in order, and what is there.
type Spot<S> = (Passed, S);

struct Place<S> {
    spot: Rc<Spot<S>>,
    len: usize,
    /// The first of `ranks` that is not in order.
    rank: usize,
    /// Which of `doubtful` are in order.
    needed: Bits,
    needed_len: usize,
    /// The latest beginning of what is in order.
    since: u64,
    stage: Stage,
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

impl<'a, M: Model> Search<'a, M> {
    pub(crate) fn new(model: &'a M, history: &'a [Event<M::Act>], steps_max: u64) -> Self {
        let mut as_they_began: Vec<usize> = (0..history.len()).collect();
        as_they_began.sort_by_key(|event| history[*event].invoked);
        let has_happened = |event: &usize| history[*event].is_certain && history[*event].returned.is_some();
        let (certain, others): (Vec<_>, Vec<_>) = as_they_began.into_iter().partition(has_happened);
        let ranked = |(at, event): (usize, &usize)| Some((model.rank(&history[*event].act)?, at));
        let mut ranks: Vec<_> = certain.iter().enumerate().filter_map(ranked).collect();
        ranks.sort_unstable();
        // The first event of each class.
        let mut firsts: Vec<usize> = Vec::new();
        let doubtful = others.into_iter().map(|event| {
            let class = firsts.iter().position(|first| history[*first].act == history[event].act);
            let class = class.unwrap_or_else(|| {
                firsts.push(event);
                firsts.len() - 1
            });
            Doubtful { event, until: history[event].returned.unwrap_or(NEVER), class }
        });
        let doubtful = doubtful.collect();
        let classes = firsts.len();
        let (places, been, furthest, least) = Default::default();
        let (is_least_next, steps_left) = (false, steps_max);
        Self {
            model,
            history,
            certain,
            doubtful,
            classes,
            ranks,
            places,
            been,
            furthest,
            least,
            is_least_next,
            steps_left,
        }
    }

    pub(crate) fn run(mut self) -> Result<(), Violation> {
        let mut deepest: Option<(usize, Violation)> = None;
        let (spot, needed) = (Rc::new((Passed::default(), self.model.first())), Bits::default());
        self.put(Place { spot, len: 0, rank: 0, needed, needed_len: 0, since: 0, stage: Stage::Certain });
        while let Some(at) = self.next_place() {
            let place = &self.places[at];
            if place.len == self.certain.len() {
                return Ok(());
            }
            if self.steps_left == 0 {
                return Err(Violation::OutOfSteps);
            }
            let (until, next) = self.next_of(&place.spot.0);
            if place.stage == Stage::Certain {
                self.places[at].stage = Stage::Doubtful;
                self.line_up(at);
                self.go_on(at, &next);
            } else {
                if deepest.as_ref().is_none_or(|(len, _)| *len < place.len) {
                    deepest = Some((place.len, self.impossible(place, until, &next)));
                }
                self.places[at].stage = Stage::Over;
                self.go_on_with_doubtful(at, until);
            }
        }
        let (_, violation) = deepest.expect("the first place was gone on from, since no other one has needed less");
        Err(violation)
    }

    /// Where to go on, by turns in one order and in the other.
    fn next_place(&mut self) -> Option<usize> {
        loop {
            // Both have all that is to be done.
            let (stage, at) = if self.is_least_next {
                self.least.pop().map(|(_, stage, _, at)| (stage, at))?
            } else {
                self.furthest.pop().map(|(_, _, stage, at)| (stage, at))?
            };
            self.is_least_next = !self.is_least_next;
            if self.places[at.0].stage == stage.0 {
                return Some(at.0);
            }
        }
    }

    fn line_up(&mut self, at: usize) {
        let Place { len, needed_len, stage, .. } = self.places[at];
        self.furthest.push((len, Reverse(needed_len), Reverse(stage), Reverse(at)));
        self.least.push((Reverse(needed_len), Reverse(stage), len, Reverse(at)));
    }

    /// When the first of what is not in order ends, and what of that begins before.
    fn next_of(&self, passed: &Passed) -> (u64, Vec<usize>) {
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

    fn go_on(&mut self, from: usize, next: &[usize]) {
        for &at in next {
            let Event { invoked, act, .. } = &self.history[self.certain[at]];
            let place = &self.places[from];
            let mut passed = place.spot.0.clone();
            passed.insert(at);
            let rank = self.rank_from(place.rank, &passed);
            let (since, needed) = (place.since.max(*invoked), place.needed.clone());
            let (len, needed_len) = (place.len + 1, place.needed_len);
            if let Some(state) = self.step(from, act, rank) {
                let spot = Rc::new((passed, state));
                self.put(Place { spot, len, rank, needed, needed_len, since, stage: Stage::Certain });
            }
        }
    }

    fn go_on_with_doubtful(&mut self, from: usize, until: u64) {
        // Of each class, the first end of those that can be next.
        let mut ends = vec![None; self.classes];
        for at in 0..self.doubtful.len() {
            let Doubtful { event, until: end, class } = self.doubtful[at];
            let Event { invoked, act, .. } = &self.history[event];
            if *invoked > until {
                break;
            }
            let place = &self.places[from];
            if place.needed.has(at) || end < place.since || ends[class].is_some_and(|first| first <= end) {
                continue;
            }
            ends[class] = Some(end);
            let (mut needed, needed_len) = (place.needed.clone(), place.needed_len + 1);
            needed.insert(at);
            let (since, len, rank) = (place.since.max(*invoked), place.len, place.rank);
            if let Some(state) = self.step(from, act, rank) {
                let spot = Rc::new((self.places[from].spot.0.clone(), state));
                self.put(Place { spot, len, rank, needed, needed_len, since, stage: Stage::Certain });
            }
        }
    }

    /// What is there after an act, if it fits, and if what has the lowest rank then, which is at `rank`, can still come.
    fn step(&mut self, from: usize, act: &M::Act, rank: usize) -> Option<M::State> {
        self.steps_left = self.steps_left.saturating_sub(1);
        let place = &self.places[from];
        let rank_at = |at: usize| self.ranks.get(at).map_or(u64::MAX, |(rank, _)| *rank);
        if self.model.rank(act).is_some_and(|rank| rank > rank_at(place.rank)) {
            return None;
        }
        self.model.step(&place.spot.1, act).filter(|state| self.model.floor(state) <= rank_at(rank))
    }

    fn rank_from(&self, from: usize, passed: &Passed) -> usize {
        (from..self.ranks.len()).find(|at| !passed.has(self.ranks[*at].1)).unwrap_or(self.ranks.len())
    }

    /// Goes on from there some time, if nothing that is known is as good, and not from what is worse.
    fn put(&mut self, place: Place<M::State>) {
        let (at, places) = (self.places.len(), &mut self.places);
        let known = self.been.entry(Rc::clone(&place.spot)).or_default();
        self.steps_left = self.steps_left.saturating_sub(known.len() as u64 / COMPARED_IN_A_STEP);
        if known.iter().any(|other| places[*other].needed.is_within(&place.needed)) {
            return;
        }
        known.retain(|other| {
            let is_worse = place.needed.is_within(&places[*other].needed);
            if is_worse {
                places[*other].stage = Stage::Over;
            }
            !is_worse
        });
        known.push(at);
        places.push(place);
        self.line_up(at);
    }

    fn impossible(&self, place: &Place<M::State>, until: u64, next: &[usize]) -> Violation {
        let mut events = next.iter().map(|at| self.certain[*at]);
        let at = events.find(|event| self.history[*event].returned == Some(until));
        let at = at.expect("it ends first of what is not in order");
        Violation::Impossible { at, longest: place.len, state: format!("{:?}", place.spot.1) }
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
