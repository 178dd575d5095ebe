//! A switch: makes one update of a rule after the other, each of which takes its time (SwitchKV, section 3.3), and may have room for fewer rules
//! than it is told.
//!
//! Always true: what waits has each hash once, and only those that have a rule or are to have one.

use std::collections::{HashMap, VecDeque};

use guira_item::{Moment, Span};
use guira_routing::{Choices, KeyHash, RouteTable, RuleSink, RuleUpdate};

/// What a switch can do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SwitchBounds {
    /// Updates that it makes in a second, above 0; infinity: each at once.
    pub updates_per_s: f64,
    /// Rules that it has room for, however many it is told.
    pub rules_max: usize,
}

impl SwitchBounds {
    /// One that does whatever it is told at once.
    pub const NONE: Self = Self { updates_per_s: f64::INFINITY, rules_max: usize::MAX };

    /// As long as it takes for an update.
    fn takes(&self) -> Span {
        Span::from_ns((1e9 / self.updates_per_s) as u64)
    }
}

/// A switch.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    bounds: SwitchBounds,
    /// Rules that it was told to have room for.
    len_max: usize,
    table: RouteTable,
    /// Hashes whose updates wait, in their order.
    turns: VecDeque<KeyHash>,
    waiting: HashMap<KeyHash, RuleUpdate>,
    /// When it is ready for the next one.
    free_at: Moment,
    counts: SwitchCounts,
}

/// Numbers about a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SwitchCounts {
    /// Updates that were not made at once.
    pub(crate) waited: u64,
    /// Of these, that took the place of an earlier one.
    pub(crate) replaced: u64,
    /// Rules that there was no room for.
    pub(crate) refused: u64,
}

impl Switch {
    /// One without rules.
    ///
    /// # Panics
    /// It never makes a rule.
    pub(crate) fn new(bounds: SwitchBounds, seed: u64) -> Self {
        assert!(bounds.updates_per_s > 0.0, "{} updates a second", bounds.updates_per_s);
        Self {
            bounds,
            len_max: 0,
            table: RouteTable::new(0, seed),
            turns: VecDeque::new(),
            waiting: HashMap::new(),
            free_at: Moment::default(),
            counts: SwitchCounts::default(),
        }
    }

    /// What it can do from now on.
    pub(crate) fn set_bounds(&mut self, bounds: SwitchBounds) {
        self.bounds = bounds;
        self.set_len_max(self.len_max);
    }

    pub(crate) fn counts(&self) -> SwitchCounts {
        self.counts
    }

    fn make(&mut self, update: RuleUpdate) {
        match update {
            RuleUpdate::Install { hash, choices } => {
                self.counts.refused += u64::from(self.table.install(hash, choices).is_err());
            }
            RuleUpdate::Delete { hash } => _ = self.table.remove(hash),
        }
    }
}

impl RuleSink for Switch {
    fn update(&mut self, now: Moment, update: RuleUpdate) {
        self.advance(now);
        if self.bounds.takes() == Span::default() && self.turns.is_empty() {
            self.make(update);
            return;
        }
        let (RuleUpdate::Install { hash, .. } | RuleUpdate::Delete { hash }) = update;
        self.counts.waited += 1;
        if matches!(update, RuleUpdate::Delete { .. }) && self.table.lookup(hash).is_none() {
            // What was still to be made is not to be any more.
            self.counts.replaced += u64::from(self.waiting.remove(&hash).is_some());
            self.turns.retain(|turn| *turn != hash);
            return;
        }
        if self.turns.is_empty() {
            self.free_at = self.free_at.max(now);
        }
        if self.waiting.insert(hash, update).is_some() {
            self.counts.replaced += 1;
        } else {
            self.turns.push_back(hash);
        }
    }

    fn advance(&mut self, now: Moment) {
        let takes = self.bounds.takes();
        while self.free_at + takes <= now
            && let Some(hash) = self.turns.pop_front()
        {
            let update = self.waiting.remove(&hash).expect("whatever has a turn waits");
            let is_install = matches!(update, RuleUpdate::Install { .. }) && self.table.lookup(hash).is_none();
            let deletes = |waiting: &RuleUpdate| matches!(waiting, RuleUpdate::Delete { .. });
            if is_install && self.table.len() >= self.table.len_max() && self.waiting.values().any(deletes) {
                // It had taken the turn of another one: there is room behind a deletion.
                self.turns.push_back(hash);
                self.waiting.insert(hash, update);
                continue;
            }
            self.free_at = self.free_at + takes;
            self.make(update);
        }
    }

    fn clear(&mut self) {
        self.table.clear();
        self.turns.clear();
        self.waiting.clear();
    }

    fn set_len_max(&mut self, len_max: usize) {
        self.len_max = len_max;
        self.table.set_len_max(len_max.min(self.bounds.rules_max));
    }

    fn lookup(&self, hash: KeyHash) -> Option<Choices> {
        self.table.lookup(hash)
    }

    fn rules(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use guira_routing::NodeId;

    use super::*;

    const TEN_A_SECOND: SwitchBounds = SwitchBounds { updates_per_s: 10.0, rules_max: 2 };

    fn install(hash: u64) -> RuleUpdate {
        RuleUpdate::Install { hash: KeyHash(hash), choices: NodeId(1).into() }
    }

    fn delete(hash: u64) -> RuleUpdate {
        RuleUpdate::Delete { hash: KeyHash(hash) }
    }

    fn at(ms: u64) -> Moment {
        Moment::from_ns(1_000_000_000) + Span::from_ms(ms)
    }

    fn switch(bounds: SwitchBounds) -> Switch {
        let mut switch = Switch::new(bounds, 1);
        switch.set_len_max(1_000);
        switch
    }

    fn has(switch: &mut Switch, ms: u64, hash: u64) -> bool {
        switch.advance(at(ms));
        switch.lookup(KeyHash(hash)).is_some()
    }

    #[test]
    fn it_makes_one_after_the_other_each_in_its_time() {
        let mut switch = switch(TEN_A_SECOND);
        [install(1), install(2)].into_iter().for_each(|update| switch.update(at(0), update));
        assert!(!has(&mut switch, 99, 1) && has(&mut switch, 100, 1));
        // It is at the second until 200, and then at this.
        switch.update(at(150), delete(1));
        assert!(!has(&mut switch, 199, 2) && has(&mut switch, 200, 2));
        assert!(has(&mut switch, 299, 1) && !has(&mut switch, 300, 1));
        // It has done all: the next takes as long as any, from when it came.
        switch.update(at(1_000), install(3));
        assert!(!has(&mut switch, 1_099, 3) && has(&mut switch, 1_100, 3));
        assert_eq!(switch.counts(), SwitchCounts { waited: 4, replaced: 0, refused: 0 });
    }

    #[test]
    fn an_update_takes_the_place_of_what_waits_for_its_hash() {
        let mut switch = switch(TEN_A_SECOND);
        for _ in 0..1_000 {
            [install(1), install(2), delete(1), delete(2), install(2)]
                .into_iter()
                .for_each(|update| switch.update(at(0), update));
        }
        assert_eq!((switch.turns.len(), switch.waiting.len()), (1, 1));
        assert!(has(&mut switch, 100, 2) && !has(&mut switch, 200, 1));
    }

    #[test]
    fn a_rule_that_there_is_room_for_in_the_end_is_made() {
        let mut switch = switch(TEN_A_SECOND);
        [install(1), install(2)].into_iter().for_each(|update| switch.update(at(0), update));
        switch.advance(at(200));
        [delete(1), install(3), delete(2), install(1)].into_iter().for_each(|update| switch.update(at(200), update));
        switch.advance(at(600));
        assert_eq!(switch.counts().refused, 0);
        assert_eq!([1, 2, 3].map(|hash| has(&mut switch, 600, hash)), [true, false, true]);
    }

    #[test]
    fn it_has_the_rules_that_it_has_room_for_and_forgets_all_at_once() {
        let mut switch = switch(TEN_A_SECOND);
        switch.set_len_max(2_000);
        (1..=3).for_each(|hash| switch.update(at(0), install(hash)));
        switch.advance(at(300));
        assert_eq!((switch.rules(), switch.counts().refused), (2, 1));
        switch.update(at(300), install(4));
        switch.clear();
        switch.advance(at(1_000));
        assert_eq!(switch.rules(), 0);
    }

    #[test]
    fn one_without_bounds_makes_all_at_once_until_it_has_some() {
        let mut switch = switch(SwitchBounds::NONE);
        (1..=1_000).for_each(|hash| switch.update(at(0), install(hash)));
        assert_eq!((switch.rules(), switch.counts()), (1_000, SwitchCounts::default()));
        switch.set_bounds(SwitchBounds { rules_max: usize::MAX, ..TEN_A_SECOND });
        switch.update(at(0), delete(1));
        assert!(has(&mut switch, 99, 1) && !has(&mut switch, 100, 1));
    }
}
