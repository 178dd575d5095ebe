//! Reads that the network routes (SwitchKV, section 3.1.2): this gateway knows no rules, and its table has who has answered last for what.
//!
//! A read that is sent for the first time goes by its content, and whoever the network brings it to answers. Who is thought to be asked is only remembered to
//! know by whom it was left unanswered: then it goes to its backend itself, and so do, for a while, others of the same hash, or of whatever that cache node
//! answered for. What may change something goes by no content: a cache node that is known to have had the key is probed for it, and then its backend asked.
//!
//! Always true: what is remembered is bounded by the rules that there may be, and of silent hashes by [`SILENT_MAX`].

use std::collections::{BTreeMap, VecDeque};

use guira_item::Moment;
use guira_routing::{KeyHash, NodeId, RuleSink, RuleUpdate};
use serde::Serialize;

use super::{Gateway, SUSPECT_FOR};
use crate::CacheMode;

/// Hashes of which it is remembered that nobody has answered for them: as many as there are reads under way at a time, about.
const SILENT_MAX: usize = 1_024;

/// Hashes for which nobody has answered, and until when they go to their backends.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Silent {
    until: BTreeMap<KeyHash, Moment>,
    /// In the order in which they end.
    order: VecDeque<(Moment, KeyHash)>,
}

impl Silent {
    fn add(&mut self, now: Moment, hash: KeyHash) {
        let until = now + SUSPECT_FOR;
        while self.order.len() >= SILENT_MAX || self.order.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, hash)) = self.order.pop_front() else { break };
            if self.until.get(&hash) == Some(&at) {
                self.until.remove(&hash);
            }
        }
        self.until.insert(hash, until);
        self.order.push_back((until, hash));
    }

    fn has(&self, now: Moment, hash: KeyHash) -> bool {
        self.until.get(&hash).is_some_and(|until| now < *until)
    }
}

impl<R: RuleSink> Gateway<R> {
    /// Whether the network routes what this gateway reads.
    pub(super) fn leaves_reads_to_network(&self) -> bool {
        self.config.network_routes && self.config.cache_mode == CacheMode::Switched
    }

    /// Whether a read goes by its content; `cache` is who is thought to have its key, and not silent.
    pub(super) fn goes_by_content(
        &self,
        now: Moment,
        backend: NodeId,
        hash: KeyHash,
        only_reads: bool,
        cache: Option<NodeId>,
    ) -> bool {
        self.leaves_reads_to_network()
            && only_reads
            // Nothing is brought to a backend that is away.
            && !self.is_away(now, backend)
            // Where a cache node had it, that is silent.
            && (cache.is_some() || self.rules.lookup(hash).is_none())
            && !self.silent.has(now, hash)
    }

    /// A read that went by its content was answered by a backend or, if `cache`, by that one, or by way of it.
    pub(super) fn learn(&mut self, now: Moment, hash: KeyHash, cache: Option<NodeId>) {
        let Some(cache) = cache else {
            if self.rules.lookup(hash).is_some() {
                self.rules.update(now, RuleUpdate::Delete { hash });
            }
            return;
        };
        if self.rules.lookup(hash).is_none() && self.rules.rules() >= self.config.routes_max {
            // What is still of use is soon learned again.
            self.rules.clear();
        }
        if self.rules.lookup(hash) != Some(cache.into()) {
            self.rules.update(now, RuleUpdate::Install { hash, choices: cache.into() });
        }
    }

    /// Nobody has answered a read that went by its content, and nobody is known who should have.
    pub(super) fn nobody_answers(&mut self, now: Moment, hash: KeyHash) {
        self.silent.add(now, hash);
    }
}

#[cfg(test)]
mod tests {
    use guira_item::Span;

    use super::*;

    #[test]
    fn hashes_are_silent_for_a_while_and_no_more_than_there_may_be() {
        let at = |ms| Moment::default() + Span::from_ms(ms);
        let mut silent = Silent::default();
        silent.add(at(0), KeyHash(1));
        silent.add(at(500), KeyHash(1));
        assert!(silent.has(at(1_499), KeyHash(1)) && !silent.has(at(1_500), KeyHash(1)));
        assert!(!silent.has(at(0), KeyHash(2)));
        // The first time that it was silent does not end the second.
        silent.add(at(1_200), KeyHash(2));
        assert!(silent.has(at(1_200), KeyHash(1)));
        (0..2 * SILENT_MAX as u64).for_each(|hash| silent.add(at(1_300), KeyHash(100 + hash)));
        assert!(silent.until.len() <= SILENT_MAX && silent.order.len() == SILENT_MAX);
        assert!(!silent.has(at(1_300), KeyHash(100)) && silent.has(at(1_300), KeyHash(99 + 2 * SILENT_MAX as u64)));
        silent.add(at(9_000), KeyHash(1));
        assert_eq!((silent.until.len(), silent.order.len()), (1, 1));
    }
}
