//! What backends have told a gateway of what they have: asked for once a second, of those that own partitions.
//!
//! Always true: there is one set of numbers a backend, the last that it has told; of one that owns nothing any more there is none. What they have done is
//! counted from when each was first heard of, and never becomes less. What is lost is asked for again.

use std::collections::BTreeMap;

use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::{Done, Holdings};

/// Between two askings.
const ASK_EVERY: Span = Span::from_s(1);

/// Numbers that are older are those of a backend that is not heard of: it was asked three times meanwhile.
const HEARD_WITHIN: Span = Span::from_s(3);

/// The last that each has told.
#[derive(Debug, Default)]
pub(super) struct Heard {
    ask_at: Moment,
    told: BTreeMap<NodeId, Option<(Moment, Holdings)>>,
    /// By all together, owners or not, while they were heard of.
    done: Done,
}

/// What all owners of partitions have, together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterHoldings {
    /// What they have told, each the last time, and what was done since they were first heard of; `None` if nobody has told anything yet.
    pub holdings: Option<Holdings>,
    /// Backends that own partitions.
    pub backends: usize,
    /// Those of them that have told it of late.
    pub heard: usize,
}

impl Heard {
    /// These own partitions, and no others. Who is new among them is asked next.
    pub(super) fn set_owners(&mut self, owners: &[NodeId]) {
        if owners.iter().any(|owner| !self.told.contains_key(owner)) {
            self.ask_at = Moment::default();
        }
        let of_owner = |owner: &NodeId| (*owner, self.told.get(owner).copied().flatten());
        self.told = owners.iter().map(of_owner).collect();
    }

    /// Whom to ask now, if it is time.
    pub(super) fn due(&mut self, now: Moment) -> impl Iterator<Item = NodeId> {
        let is_due = now >= self.ask_at;
        if is_due {
            self.ask_at = now + ASK_EVERY;
        }
        self.told.keys().copied().filter(move |_| is_due)
    }

    /// When it is time.
    pub(super) fn ask_at(&self) -> Moment {
        self.ask_at
    }

    /// One has told. Who owns nothing is not heeded.
    pub(super) fn on_told(&mut self, now: Moment, from: NodeId, holdings: Holdings) {
        if let Some(told) = self.told.get_mut(&from)
            && let Some((_, before)) = told.replace((now, holdings))
        {
            self.done = self.done.and(&holdings.done.since(&before.done));
        }
    }

    /// All together.
    pub(super) fn sum(&self, now: Moment) -> ClusterHoldings {
        let told = || self.told.values().flatten();
        let sum = told().map(|(_, holdings)| *holdings).reduce(|sum, holdings| sum.and(&holdings));
        ClusterHoldings {
            // What was done stays, also while nobody of those who own partitions now has told anything.
            holdings: sum
                .or_else(|| (self.done != Done::default()).then(Holdings::default))
                .map(|sum| Holdings { done: self.done, ..sum }),
            backends: self.told.len(),
            heard: told().filter(|(at, _)| now < *at + HEARD_WITHIN).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many records, after so many writes.
    fn records(records: u64, writes: u64) -> Holdings {
        let done = Done { writes, ..Done::default() };
        Holdings { records: Some(records), done, ..Holdings::default() }
    }

    #[test]
    fn owners_are_asked_once_a_second_and_their_last_numbers_count() {
        let mut heard = Heard::default();
        heard.set_owners(&[NodeId(1), NodeId(2)]);
        let mut now = Moment::from_ns(1);
        assert_eq!(heard.sum(now), ClusterHoldings { holdings: None, backends: 2, heard: 0 });
        assert_eq!(heard.due(now).collect::<Vec<_>>(), [NodeId(1), NodeId(2)]);
        assert_eq!((heard.due(now).count(), heard.ask_at()), (0, now + ASK_EVERY));
        heard.on_told(now, NodeId(1), records(3, 10));
        heard.on_told(now, NodeId(7), records(100, 10));
        assert_eq!(heard.sum(now), ClusterHoldings { holdings: Some(records(3, 0)), backends: 2, heard: 1 });
        now = now + ASK_EVERY;
        assert_eq!(heard.due(now).count(), 2);
        heard.on_told(now, NodeId(1), records(4, 12));
        heard.on_told(now, NodeId(2), records(5, 20));
        assert_eq!(heard.sum(now), ClusterHoldings { holdings: Some(records(9, 2)), backends: 2, heard: 2 });
    }

    #[test]
    fn who_falls_silent_keeps_its_items_and_who_owns_nothing_does_not() {
        let mut heard = Heard::default();
        heard.set_owners(&[NodeId(1), NodeId(2)]);
        let at = Moment::from_ns(1);
        heard.on_told(at, NodeId(1), records(3, 10));
        heard.on_told(at, NodeId(1), records(3, 14));
        let later = at + HEARD_WITHIN;
        heard.on_told(later, NodeId(2), records(5, 0));
        assert_eq!(heard.sum(later), ClusterHoldings { holdings: Some(records(8, 4)), backends: 2, heard: 1 });
        // It was started again meanwhile.
        heard.on_told(later, NodeId(1), records(3, 1));
        heard.set_owners(&[NodeId(2), NodeId(3)]);
        assert_eq!(heard.sum(later), ClusterHoldings { holdings: Some(records(5, 5)), backends: 2, heard: 1 });
        // Another has all.
        assert_eq!(heard.due(later).count(), 2);
        heard.set_owners(&[NodeId(4)]);
        let done = Holdings { done: records(0, 5).done, ..Holdings::default() };
        assert_eq!(heard.sum(later), ClusterHoldings { holdings: Some(done), backends: 1, heard: 0 });
        assert_eq!(heard.due(later).collect::<Vec<_>>(), [NodeId(4)], "who is new is asked at once");
    }
}
