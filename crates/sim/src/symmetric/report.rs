//! What comes of a run.

use guira_item::Moment;
use guira_symmetric::{FlowCounts, NodeCounts};

use super::members::Core;
use crate::{
    clients::Tally,
    simulation::{Together, chained},
};

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// A hash of everything that happened: the same for the same scenario and seed.
    pub trace: u64,
    /// Events.
    pub events: u64,
    /// What clients asked, and were told.
    pub tally: Tally,
    /// What nodes have counted, all of them together.
    pub counts: NodeCounts,
    /// What has waited for credits at nodes, all of them together.
    pub flow: FlowCounts,
    /// Views that were given out.
    pub views: u64,
    /// Times that a key may have been lost with its home.
    pub may_be_lost: u64,
    /// Faults.
    pub faults: u64,
}

impl Report {
    /// Adds what a core has counted, which goes with it.
    pub(super) fn count(&mut self, core: &Core, now: Moment) {
        if let Core::Node(node) = core {
            let status = node.status(now);
            add_counts(&mut self.counts, &status.counts);
            add_flow(&mut self.flow, &status.flow);
        }
    }
}

impl Together for Report {
    fn add(&mut self, other: &Self) {
        self.trace = chained(self.trace, &other.trace.to_le_bytes());
        self.tally.add(&other.tally);
        add_counts(&mut self.counts, &other.counts);
        add_flow(&mut self.flow, &other.flow);
        for (mine, theirs) in [
            (&mut self.events, other.events),
            (&mut self.views, other.views),
            (&mut self.may_be_lost, other.may_be_lost),
            (&mut self.faults, other.faults),
        ] {
            *mine += theirs;
        }
    }

    fn trace(&self) -> u64 {
        self.trace
    }

    fn events(&self) -> u64 {
        self.events
    }
}

fn add_flow(to: &mut FlowCounts, other: &FlowCounts) {
    for (mine, theirs) in [
        (&mut to.requests_waited, other.requests_waited),
        (&mut to.messages_waited, other.messages_waited),
        (&mut to.messages_dropped, other.messages_dropped),
        (&mut to.asked, other.asked),
        (&mut to.beyond, other.beyond),
    ] {
        *mine += theirs;
    }
}

fn add_counts(to: &mut NodeCounts, other: &NodeCounts) {
    for (mine, theirs) in [
        (&mut to.hot_reads, other.hot_reads),
        (&mut to.hot_writes, other.hot_writes),
        (&mut to.at_home, other.at_home),
        (&mut to.forwarded, other.forwarded),
        (&mut to.resent, other.resent),
        (&mut to.for_others, other.for_others),
        (&mut to.busy, other.busy),
        (&mut to.away, other.away),
        (&mut to.unknown, other.unknown),
        (&mut to.elsewhere, other.elsewhere),
        (&mut to.copies, other.copies),
        (&mut to.homecomings, other.homecomings),
        (&mut to.pages, other.pages),
        (&mut to.promotions, other.promotions),
        (&mut to.evictions, other.evictions),
    ] {
        *mine += theirs;
    }
}
