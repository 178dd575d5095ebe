//! A switch: makes one update of a rule after the other, each of which takes its time (SwitchKV, section 3.3), and may have room for fewer rules
//! than it is told.

use std::collections::VecDeque;

use guira_item::{Moment, Span};
use guira_routing::{Choices, KeyHash, RouteTable, Router, RuleSink, RuleUpdate, TooFarBehind};

/// What a switch can do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SwitchBounds {
    /// Updates that it makes in a second; infinity: each at once.
    pub updates_per_s: f64,
    /// Rules that it has room for, however many it is told.
    pub rules_max: usize,
    /// Updates that may wait.
    pub waiting_max: usize,
}

impl SwitchBounds {
    /// One that does whatever it is told at once.
    pub const NONE: Self = Self { updates_per_s: f64::INFINITY, rules_max: usize::MAX, waiting_max: usize::MAX };

    fn update_takes(&self) -> Span {
        Span::from_ns((1e9 / self.updates_per_s) as u64)
    }
}

/// A switch.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    bounds: SwitchBounds,
    table: RouteTable,
    waiting: VecDeque<RuleUpdate>,
    /// When the first of these is made.
    made_at: Moment,
    counts: SwitchCounts,
}

/// Numbers about a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SwitchCounts {
    /// Updates that had to wait.
    pub(crate) waited: u64,
    /// Times that there was no room for one more.
    pub(crate) behind: u64,
    /// Rules that there was no room for.
    pub(crate) refused: u64,
}

impl Switch {
    /// One without rules, told to have room for `rules_max`.
    pub(crate) fn new(bounds: SwitchBounds, rules_max: usize, seed: u64) -> Self {
        Self {
            bounds,
            table: RouteTable::new(rules_max.min(bounds.rules_max), seed),
            waiting: VecDeque::new(),
            made_at: Moment::default(),
            counts: SwitchCounts::default(),
        }
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
    fn update(&mut self, now: Moment, update: RuleUpdate) -> Result<(), TooFarBehind> {
        self.advance(now);
        let takes = self.bounds.update_takes();
        if takes == Span::default() {
            self.make(update);
            return Ok(());
        }
        if self.waiting.len() >= self.bounds.waiting_max {
            self.counts.behind += 1;
            return Err(TooFarBehind);
        }
        if self.waiting.is_empty() {
            // Made from now on, unless it is still at the one before.
            self.made_at = self.made_at.max(now + takes);
        }
        self.counts.waited += u64::from(!self.waiting.is_empty());
        self.waiting.push_back(update);
        Ok(())
    }

    fn clear(&mut self) {
        self.table.clear();
        self.waiting.clear();
    }
}

impl Router for Switch {
    fn advance(&mut self, now: Moment) {
        while self.made_at <= now
            && let Some(update) = self.waiting.pop_front()
        {
            self.make(update);
            self.made_at = self.made_at + self.bounds.update_takes();
        }
    }

    fn lookup(&self, hash: KeyHash) -> Option<Choices> {
        self.table.lookup(hash)
    }

    fn set_len_max(&mut self, len_max: usize) {
        self.table.set_len_max(len_max.min(self.bounds.rules_max));
    }

    fn rules(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use guira_routing::NodeId;

    use super::*;

    const TEN_A_SECOND: SwitchBounds = SwitchBounds { updates_per_s: 10.0, rules_max: 2, waiting_max: 3 };

    fn install(hash: u64) -> RuleUpdate {
        RuleUpdate::Install { hash: KeyHash(hash), choices: NodeId(1).into() }
    }

    fn has(switch: &Switch, hash: u64) -> bool {
        switch.lookup(KeyHash(hash)).is_some()
    }

    #[test]
    fn it_makes_one_after_the_other_each_in_its_time() {
        let mut switch = Switch::new(TEN_A_SECOND, 1_000, 1);
        let at = |ms| Moment::default() + Span::from_ms(ms);
        for hash in 1..=2 {
            switch.update(at(0), install(hash)).expect("there is room");
        }
        switch.update(at(0), RuleUpdate::Delete { hash: KeyHash(1) }).expect("there is room");
        assert_eq!(switch.update(at(0), install(3)), Err(TooFarBehind));
        for (ms, first, second) in [(99, false, false), (100, true, false), (200, true, true), (300, false, true)] {
            switch.advance(at(ms));
            assert_eq!((has(&switch, 1), has(&switch, 2)), (first, second), "after {ms} ms");
        }
        // Nothing waits: the next takes as long as any, from when it came.
        switch.update(at(1_000), install(3)).expect("there is room");
        switch.advance(at(1_099));
        assert!(!has(&switch, 3));
        switch.advance(at(1_100));
        assert!(has(&switch, 3));
        assert_eq!(switch.counts(), SwitchCounts { waited: 2, behind: 1, refused: 0 });
    }

    #[test]
    fn it_has_the_rules_that_it_has_room_for_and_forgets_all_at_once() {
        let mut switch = Switch::new(TEN_A_SECOND, 1_000, 1);
        switch.set_len_max(2_000);
        (1..=3).for_each(|hash| switch.update(Moment::default(), install(hash)).expect("there is room"));
        switch.advance(Moment::from_ns(10_000_000_000));
        assert_eq!((switch.rules(), switch.counts().refused), (2, 1));
        switch.update(Moment::from_ns(10_000_000_000), install(4)).expect("there is room");
        switch.clear();
        switch.advance(Moment::from_ns(20_000_000_000));
        assert_eq!(switch.rules(), 0);
    }

    #[test]
    fn one_without_bounds_makes_all_at_once() {
        let mut switch = Switch::new(SwitchBounds::NONE, 1_000, 1);
        (1..=1_000).for_each(|hash| switch.update(Moment::default(), install(hash)).expect("there is room"));
        assert_eq!((switch.rules(), switch.counts()), (1_000, SwitchCounts::default()));
    }
}
