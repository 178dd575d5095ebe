//! Where updates of rules go: a switch behind its driver, or a table.

use crate::{RouteTable, RuleUpdate};

/// Takes updates of rules, in order.
pub trait RuleSink {
    /// Makes one.
    fn update(&mut self, update: RuleUpdate);
}

impl RuleSink for RouteTable {
    /// A rule that there is no room for is not installed, as none is that a switch has lost: rules are hints. A plan for a table of its
    /// length never asks for one; who has a shorter one for a while is told all rules once it has as much room.
    fn update(&mut self, update: RuleUpdate) {
        match update {
            RuleUpdate::Install { hash, choices } => _ = self.install(hash, choices),
            RuleUpdate::Delete { hash } => _ = self.remove(hash),
        }
    }
}
