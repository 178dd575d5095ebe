//! A backend that takes so many requests a second and no more, as the paper's evaluation has them (SwitchKV, section 4.2): for experiments.
//!
//! Always true: requests are taken in the order in which they came; one that comes again while it waits takes no turn of its own; what finds no
//! room is dropped, and comes again.

use std::{
    collections::{HashSet, VecDeque},
    num::NonZero,
};

use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::{Asker, Message, Number};

/// Requests that wait at most: eight seconds of five hundred a second, after which nobody waits for them any more.
const WAITING_MAX: usize = 4_096;

/// What was not used in this time is not made up for later.
const LATE_MAX: Span = Span::from_ms(20);

/// A request's gateway, and its number there.
type Name = (NodeId, Number);

/// The requests that wait for their turn.
#[derive(Debug)]
pub(super) struct Pace {
    gap: Span,
    next_at: Moment,
    waiting: VecDeque<(Name, NodeId, Vec<u8>)>,
    names: HashSet<Name>,
}

impl Pace {
    /// So many requests a second.
    pub(super) fn new(per_s: NonZero<u32>) -> Self {
        Self {
            gap: Span::from_ns(1_000_000_000 / u64::from(per_s.get())),
            next_at: Moment::default(),
            waiting: VecDeque::new(),
            names: HashSet::new(),
        }
    }

    /// A request came.
    pub(super) fn push(&mut self, from: NodeId, asker: &Asker, message: &Message<'_>) {
        let name = (asker.gateway, asker.number);
        if self.waiting.len() < WAITING_MAX && self.names.insert(name) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            self.waiting.push_back((name, from, bytes));
        }
    }

    /// The next request whose turn it is.
    pub(super) fn pop(&mut self, now: Moment) -> Option<(NodeId, Vec<u8>)> {
        if self.next_at > now {
            return None;
        }
        let (name, from, bytes) = self.waiting.pop_front()?;
        self.names.remove(&name);
        // Driven by a clock of a millisecond, turns come late, and some at once.
        self.next_at = if now.since(self.next_at) > LATE_MAX { now } else { self.next_at } + self.gap;
        Some((from, bytes))
    }

    /// When there is a turn, if nothing comes before.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        (!self.waiting.is_empty()).then_some(self.next_at)
    }
}

#[cfg(test)]
mod tests {
    use guira_cluster::{Incarnation, Opening, SessionId};

    use guira_item::Time;

    use super::*;
    use crate::Revision;

    const GATEWAY: NodeId = NodeId(1);

    fn push(pace: &mut Pace, from: u16, number: u64) {
        let session = SessionId { incarnation: Incarnation(1), opening: Opening(1) };
        let asker = Asker { gateway: GATEWAY, session, number: Number(number), done_below: Number(0) };
        pace.push(NodeId(from), &asker, &Message::Flush { asker, at: Time::default(), revision: Revision::default() });
    }

    /// Turns until `until_ms`, looked at each millisecond.
    fn turns(pace: &mut Pace, until_ms: u64) -> Vec<u64> {
        let mut turns = Vec::new();
        for ms in 0..until_ms {
            while pace.pop(Moment::from_ns((1_000 + ms) * 1_000_000)).is_some() {
                turns.push(ms);
            }
        }
        turns
    }

    #[test]
    fn turns_are_as_far_apart_as_the_rate_says() {
        let mut pace = Pace::new(NonZero::new(400).expect("above 0"));
        (0..6).for_each(|number| push(&mut pace, 1, number));
        // Each comes again.
        (0..6).for_each(|number| push(&mut pace, 2, number));
        assert_eq!(turns(&mut pace, 20), [0, 3, 5, 8, 10, 13]);
        assert_eq!(pace.wake_at(), None);
    }

    #[test]
    fn what_waits_is_in_order_and_bounded() {
        let mut pace = Pace::new(NonZero::new(1_000).expect("above 0"));
        (0..5_000).for_each(|from| push(&mut pace, from, from.into()));
        let mut from = Vec::new();
        for ms in 0..6_000 {
            from.extend(pace.pop(Moment::from_ns(ms * 1_000_000)).map(|(from, _)| from.0));
        }
        assert!(from.into_iter().eq(0..WAITING_MAX as u16));
    }
}
