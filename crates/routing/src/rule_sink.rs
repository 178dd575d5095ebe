//! Where updates of rules go: a switch, which takes its time for each, or a table, which takes none.

use std::fmt;

use guira_item::Moment;

use crate::{Choices, KeyHash, RouteTable, RuleUpdate};

/// More updates wait than there is room for. This one was not taken; those before it are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFarBehind;

impl fmt::Display for TooFarBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("more updates of rules wait than there is room for")
    }
}

impl std::error::Error for TooFarBehind {}

/// Takes updates of rules, and makes them in the order in which they come.
pub trait RuleSink {
    /// Makes an update that has come by `now`, then or later.
    ///
    /// # Errors
    /// [`TooFarBehind`]: who has told it begins again, with [`RuleSink::clear`] and all rules that there are by then.
    fn update(&mut self, now: Moment, update: RuleUpdate) -> Result<(), TooFarBehind>;

    /// Forgets all rules, those that are still to be made among them.
    fn clear(&mut self);
}

/// Routes by the rules that it was told and has made.
pub trait Router: RuleSink {
    /// Makes what it has had the time to make by `now`.
    fn advance(&mut self, now: Moment);

    /// The cache nodes that a hash is routed to; `None`: to the owner of its partition.
    fn lookup(&self, hash: KeyHash) -> Option<Choices>;

    /// Has room for so many rules from now on, if it can have.
    fn set_len_max(&mut self, len_max: usize);

    /// How many rules it has made, and not taken back.
    fn rules(&self) -> usize;
}

impl RuleSink for RouteTable {
    /// A rule that there is no room for is not installed, as none is that a switch has lost: rules are hints. A plan for a table of its
    /// length never asks for one; who has a shorter one for a while is told all rules once it has as much room.
    fn update(&mut self, _now: Moment, update: RuleUpdate) -> Result<(), TooFarBehind> {
        match update {
            RuleUpdate::Install { hash, choices } => _ = self.install(hash, choices),
            RuleUpdate::Delete { hash } => _ = self.remove(hash),
        }
        Ok(())
    }

    fn clear(&mut self) {
        RouteTable::clear(self);
    }
}

impl Router for RouteTable {
    fn advance(&mut self, _now: Moment) {}

    fn lookup(&self, hash: KeyHash) -> Option<Choices> {
        RouteTable::lookup(self, hash)
    }

    fn set_len_max(&mut self, len_max: usize) {
        RouteTable::set_len_max(self, len_max);
    }

    fn rules(&self) -> usize {
        self.len()
    }
}
