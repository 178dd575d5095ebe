//! Fills cache nodes with the hottest keys by what the protocol has for it: reads, so that their backends report them.

use std::collections::BTreeSet;

use guira_item::Span;
use guira_switched::{CacheMode, backend::Reports};

use super::{
    cluster::Cluster,
    key_name::{KeyName, name_of},
    members::{BURST_VISITS, REPORTED},
};

/// A backend is asked for a fifth of what it can do: its queue does not fill.
pub(super) const WARMED_USE: f64 = 0.2;

/// Times that what is still missing is asked for.
const PASSES: usize = 4;

/// How long the switch may take for all rules at most.
const RULES_WITHIN: Span = Span::from_s(120);

impl Cluster {
    /// Has the hottest keys cached, and their rules made.
    pub(super) fn warm(&mut self) {
        let ranks = 0..self.scenario.cache_items as u64;
        let mut missing: Vec<KeyName> = ranks.map(|rank| name_of(self.popularity.key(rank))).collect();
        for _ in 0..PASSES {
            match self.scenario.reports {
                Reports::Periodic => self.report_all(&missing),
                Reports::EveryQuery => self.ask_each(&missing, 1),
                Reports::Instant | Reports::Both => self.ask_each(&missing, BURST_VISITS as usize + 2),
                Reports::None => {}
            }
            let cached: BTreeSet<Box<[u8]>> = self.cached_keys();
            missing.retain(|key| !cached.contains(&key[..]));
            if missing.is_empty() {
                break;
            }
        }
        if self.scenario.cache_mode == CacheMode::Switched {
            self.await_rules();
        }
    }

    /// Asks for each of some keys so many times in a row, and waits for the answers.
    fn ask_each(&mut self, keys: &[KeyName], times: usize) {
        let per_s = f64::from(self.scenario.backends) * self.scenario.backend_per_s / self.scenario.scale * WARMED_USE;
        let gap = Span::from_ns((1e9 / per_s) as u64);
        for key in keys {
            for _ in 0..times {
                self.read(*key);
                self.idle(gap);
            }
        }
        self.idle(Span::from_ms(20));
    }

    /// Asks in each segment for as many keys of each backend as it reports.
    fn report_all(&mut self, keys: &[KeyName]) {
        let mut of_backends = vec![Vec::new(); usize::from(self.scenario.backends)];
        for key in keys {
            of_backends[self.backend_of(key)].push(*key);
        }
        let segments = of_backends.iter().map(Vec::len).max().unwrap_or(0).div_ceil(REPORTED);
        for segment in 0..segments {
            let some: Vec<KeyName> = of_backends
                .iter()
                .flat_map(|keys| keys.iter().skip(segment * REPORTED).take(REPORTED))
                .copied()
                .collect();
            self.ask_each(&some, 1);
            self.idle_to_next_segment();
        }
    }

    /// Waits until the switch has the rules of all that is cached.
    fn await_rules(&mut self) {
        const STEP: Span = Span::from_ms(100);
        for _ in 0..RULES_WITHIN.ns() / STEP.ns() {
            if self.rules() >= self.cached_keys().len() {
                break;
            }
            self.idle(STEP);
        }
    }
}
