//! Where updates of rules go: a switch, which takes its time for each, or a table, which takes none.

use guira_item::Moment;

use crate::{Choices, KeyHash, RouteTable, RuleUpdate};

/// Makes rules as it is told, and routes by those that it has made.
///
/// It takes whatever it is told: a later update of a hash takes the place of one that is still to be made, so that what waits is bounded by the rules that it had
/// and those that are wanted. A rule that there is no room for is not made, as none is that a switch has lost: rules are hints. A plan for a table of its length never asks
/// for one; who has a shorter one for a while is told all rules once it has as much room.
pub trait RuleSink {
    /// Makes an update that has come by `now`, then or later.
    fn update(&mut self, now: Moment, update: RuleUpdate);

    /// Makes what it has had the time to make by `now`.
    fn advance(&mut self, now: Moment);

    /// Forgets all rules, those that are still to be made among them: all are told anew.
    fn clear(&mut self);

    /// Has room for so many rules from now on, if it can have.
    fn set_len_max(&mut self, len_max: usize);

    /// The cache nodes that a hash is routed to; `None`: to the owner of its partition.
    fn lookup(&self, hash: KeyHash) -> Option<Choices>;

    /// How many rules it has made, and not taken back.
    fn rules(&self) -> usize;
}

impl RuleSink for RouteTable {
    fn update(&mut self, _now: Moment, update: RuleUpdate) {
        match update {
            RuleUpdate::Install { hash, choices } => _ = self.install(hash, choices),
            RuleUpdate::Delete { hash } => _ = self.remove(hash),
        }
    }

    fn advance(&mut self, _now: Moment) {}

    fn clear(&mut self) {
        RouteTable::clear(self);
    }

    fn set_len_max(&mut self, len_max: usize) {
        RouteTable::set_len_max(self, len_max);
    }

    fn lookup(&self, hash: KeyHash) -> Option<Choices> {
        RouteTable::lookup(self, hash)
    }

    fn rules(&self) -> usize {
        self.len()
    }
}
