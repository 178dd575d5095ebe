//! The orders in which what clients have done with one key may have taken effect, as far as they tell states apart.
//!
//! Always true: for each order that fits all that was told there is what it leaves in the key and what the open operations that it has will be
//! told; so when there is none left, nobody can say in which order things have happened: they are not linearizable (Herlihy and Wing, 1990).

use std::collections::BTreeSet;

use guira_chain::Reply;
use guira_item::{Answer, CasRule, Delete, Expiry, Failure, Get, Invalidate, Operation, Store, StoreMode};
use serde::Serialize;

/// What a client wants of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum Wish {
    /// Read it.
    Get,
    /// Store a digit.
    Set(u8),
    /// Remove it.
    Delete,
    /// Mark it as stale: one of those who contend for it next is to store it anew.
    Invalidate,
    /// Read it, and win if it is stale and nobody has.
    Contend,
    /// Have all items gone, of which this is one.
    Flush,
    /// Have them gone so many ticks from when that is asked for: then that is an act of its own.
    FlushIn(u64),
    /// Store a digit, if nothing has changed since it was read.
    Swap {
        /// The digit.
        to: u8,
        /// What the client has read last: none before it asks.
        read: Option<Read>,
    },
}

/// A digit that was read, with its version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Read {
    digit: u8,
    version: u64,
}

impl Read {
    pub(crate) fn of(reply: &Reply) -> Option<Self> {
        let Reply::Hit(hit, Some(value)) = reply else { return None };
        Some(Self { digit: *value.first()?, version: hit.cas })
    }
}

impl Wish {
    /// What is asked about the key; nothing, if it is about all.
    pub(crate) fn operation(&self) -> Option<Operation<'_>> {
        match self {
            Self::Get => Some(Operation::Get(Get::PLAIN)),
            Self::Set(digit) => Some(Self::store(digit, None)),
            // No version is 0: nothing that was not read is replaced.
            Self::Swap { to, read } => Some(Self::store(to, Some(read.map_or(0, |read| read.version)))),
            Self::Delete => Some(Operation::Delete(Delete { cas: None, invalidate: None })),
            Self::Invalidate => {
                let invalidate = Some(Invalidate { touch: None });
                Some(Operation::Delete(Delete { cas: None, invalidate }))
            }
            Self::Contend => Some(Operation::Get(Get { wins: true, ..Get::PLAIN })),
            Self::Flush | Self::FlushIn(_) => None,
        }
    }

    fn store(digit: &u8, expected: Option<u64>) -> Operation<'_> {
        Operation::Store(Store {
            mode: StoreMode::Set,
            flags: 0,
            expiry: Expiry::NEVER,
            cas: expected.map(|expected| CasRule { expected, or_stale: false }),
            vivify: None,
            value: std::slice::from_ref(digit),
        })
    }

    /// A digit is stored once in a scenario, and none is marked where somebody swaps: a version tells what a digit does.
    fn apply(self, held: Option<Held>) -> (Option<Held>, Seen) {
        match (self, held) {
            (Self::Contend, Some(Held { digit, mark: Mark::Stale })) => {
                (Some(Held { digit, mark: Mark::Won }), Seen::Won(digit))
            }
            (Self::Get | Self::Contend, held) => (held, Seen::Value(held)),
            (Self::Set(digit), _) => (Some(Held::fresh(digit)), Seen::Stored),
            (Self::Delete, held) => (None, Seen::Removed(held.is_some())),
            (Self::Flush, _) => (None, Seen::Removed(true)),
            (Self::FlushIn(_), held) => (held, Seen::Removed(true)),
            (Self::Invalidate, held) => {
                let seen = if held.is_some() { Seen::Marked } else { Seen::Removed(false) };
                (held.map(|held| Held { mark: Mark::Stale, ..held }), seen)
            }
            (Self::Swap { .. }, None) => (None, Seen::Removed(false)),
            (Self::Swap { to, read: Some(read) }, Some(held)) if held.digit == read.digit => {
                (Some(Held::fresh(to)), Seen::Stored)
            }
            (Self::Swap { .. }, held) => (held, Seen::Changed),
        }
    }
}

/// How an item is marked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) enum Mark {
    /// It is not.
    Fresh,
    /// It was invalidated, and who contends for it wins.
    Stale,
    /// The same, and somebody has won.
    Won,
}

/// What there is of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Held {
    digit: u8,
    mark: Mark,
}

impl Held {
    const fn fresh(digit: u8) -> Self {
        Self { digit, mark: Mark::Fresh }
    }
}

/// What a client is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) enum Seen {
    /// What was read.
    Value(Option<Held>),
    /// It was read, stale, and is to be stored anew by who is told this.
    Won(u8),
    /// It is stored.
    Stored,
    /// There was something, and is not any more.
    Removed(bool),
    /// It is stale now.
    Marked,
    /// It has changed since it was read.
    Changed,
    /// It has failed; or nobody knows.
    Failed { unknown: bool },
}

impl Seen {
    pub(crate) fn of(reply: &Reply) -> Self {
        match reply {
            Reply::Hit(hit, value) => {
                let digit = value.as_deref().and_then(<[u8]>::first).copied().expect("a digit is a byte");
                let mark = match (hit.stale, hit.win_sent) {
                    (false, _) => Mark::Fresh,
                    (true, false) => Mark::Stale,
                    (true, true) => Mark::Won,
                };
                if hit.won { Self::Won(digit) } else { Self::Value(Some(Held { digit, mark })) }
            }
            Reply::Answer(Answer::Miss, _) => Self::Value(None),
            Reply::Answer(Answer::Stored { .. }, _) => Self::Stored,
            Reply::Answer(Answer::Deleted, _) => Self::Removed(true),
            Reply::Answer(Answer::Invalidated, _) => Self::Marked,
            Reply::Answer(Answer::Exists, _) => Self::Changed,
            Reply::Answer(Answer::NotFound, _) => Self::Removed(false),
            Reply::Answer(Answer::Failed(why), _) => Self::Failed { unknown: *why == Failure::Unknown },
            Reply::Answer(other, _) => panic!("nobody has asked for {other:?}"),
        }
    }
}

/// The number of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Number(pub(crate) u8);

/// That of a `flush_all` that was to come, and may by now: no client's.
pub(crate) const FLUSH_TO_COME: Number = Number(u8::MAX);

/// What some orders come to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
struct Outcome {
    held: Option<Held>,
    /// Of the open operations those that have taken effect, in the order of their numbers, with what they will be told.
    taken: Vec<(Number, Seen)>,
}

/// All orders of one key.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Orders {
    open: Vec<(Number, Wish)>,
    outcomes: BTreeSet<Outcome>,
}

impl Orders {
    /// Nothing was done, and there is nothing.
    pub(crate) fn new() -> Self {
        Self { open: Vec::new(), outcomes: BTreeSet::from([Outcome::default()]) }
    }

    /// An operation has begun.
    pub(crate) fn begin(&mut self, number: Number, wish: Wish) {
        self.open.push((number, wish));
        self.open.sort_unstable();
        let mut new: Vec<Outcome> = self.outcomes.iter().cloned().collect();
        while let Some(outcome) = new.pop() {
            for (number, wish) in &self.open {
                let Err(at) = outcome.taken.binary_search_by_key(number, |(number, _)| *number) else { continue };
                let (held, seen) = wish.apply(outcome.held);
                let mut taken = outcome.taken.clone();
                taken.insert(at, (*number, seen));
                let after = Outcome { held, taken };
                if self.outcomes.insert(after.clone()) {
                    new.push(after);
                }
            }
        }
    }

    /// A client was told what became of an operation.
    pub(crate) fn end(&mut self, number: Number, told: Seen) {
        if told == (Seen::Failed { unknown: true }) {
            // It may take effect at any time to come, or never.
            return;
        }
        self.open.retain(|(other, _)| *other != number);
        let outcomes = std::mem::take(&mut self.outcomes);
        self.outcomes = outcomes
            .into_iter()
            .filter_map(|mut outcome| {
                let at = outcome.taken.binary_search_by_key(&number, |(number, _)| *number).ok();
                let seen = at.map(|at| outcome.taken.remove(at).1);
                let fits = match told {
                    Seen::Failed { .. } => seen.is_none(),
                    told => seen == Some(told),
                };
                fits.then_some(outcome)
            })
            .collect();
    }

    /// There is one.
    pub(crate) fn are_possible(&self) -> bool {
        !self.outcomes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn possible(events: &[(u8, Result<Wish, Seen>)]) -> bool {
        let mut orders = Orders::new();
        for (number, event) in events {
            match event {
                Ok(wish) => orders.begin(Number(*number), *wish),
                Err(seen) => orders.end(Number(*number), *seen),
            }
        }
        orders.are_possible()
    }

    const fn sees(digit: u8) -> Result<Wish, Seen> {
        Err(Seen::Value(Some(Held::fresh(digit))))
    }

    #[test]
    fn what_was_seen_is_not_taken_back() {
        let begun = [(1, Ok(Wish::Set(1))), (1, Err(Seen::Stored)), (2, Ok(Wish::Set(2))), (3, Ok(Wish::Get))];
        let then = |more: &[(u8, Result<Wish, Seen>)]| possible(&[&begun[..], more].concat());
        assert!(then(&[(3, sees(1))]) && then(&[(3, sees(2))]), "either, while it is on its way");
        assert!(!then(&[(2, Err(Seen::Stored)), (4, Ok(Wish::Get)), (4, sees(1))]));
        assert!(!then(&[(3, sees(2)), (4, Ok(Wish::Get)), (4, sees(1))]), "nor what another has seen");
        assert!(then(&[(3, sees(1)), (4, Ok(Wish::Get)), (4, sees(2))]));
    }

    #[test]
    fn what_nobody_knows_of_may_come_late_but_once() {
        let begun = [(1, Ok(Wish::Set(1))), (1, Err(Seen::Failed { unknown: true })), (2, Ok(Wish::Delete))];
        let then = |more: &[(u8, Result<Wish, Seen>)]| possible(&[&begun[..], more].concat());
        let reads = |number, seen| [(number, Ok(Wish::Get)), (number, seen)];
        let gone = (2, Err(Seen::Removed(false)));
        assert!(then(&[&[gone][..], &reads(3, sees(1))].concat()));
        assert!(then(&[&[gone][..], &reads(3, Err(Seen::Value(None))), &reads(4, sees(1))].concat()));
        assert!(!then(&[&[gone][..], &reads(3, sees(1)), &reads(4, Err(Seen::Value(None)))].concat()));
        assert!(!then(&[&[(2, Err(Seen::Removed(true)))][..], &reads(3, sees(1))].concat()), "it was there before");
    }

    #[test]
    fn what_has_failed_has_not_happened() {
        let failed = [(1, Ok(Wish::Set(1))), (2, Ok(Wish::Get)), (1, Err(Seen::Failed { unknown: false }))];
        assert!(possible(&[&failed[..], &[(2, Err(Seen::Value(None)))]].concat()));
        assert!(!possible(&[&failed[..], &[(2, sees(1))]].concat()));
    }

    #[test]
    fn one_of_those_who_contend_for_what_is_stale_wins() {
        let stale = [(1, Ok(Wish::Set(1))), (1, Err(Seen::Stored)), (2, Ok(Wish::Invalidate))];
        let contends = |number, seen| [(number, Ok(Wish::Contend)), (number, Err(seen))];
        let marked = |mark| Seen::Value(Some(Held { digit: 1, mark }));
        let then = |more: &[(u8, Result<Wish, Seen>)]| possible(&[&stale[..], more].concat());
        assert!(then(&[contends(3, Seen::Won(1)), contends(4, marked(Mark::Won))].concat()));
        assert!(then(&contends(3, marked(Mark::Fresh))), "it is on its way");
        assert!(!then(&[contends(3, Seen::Won(1)), contends(4, Seen::Won(1))].concat()), "two");
        assert!(!then(&contends(3, marked(Mark::Won))), "nobody");
        assert!(!then(&[&[(2, Err(Seen::Marked))][..], &contends(3, marked(Mark::Fresh))].concat()));
    }
}
