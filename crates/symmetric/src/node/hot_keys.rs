//! Which keys are hot, as a node sees it: it counts what it is asked, and as home has keys come and go as the coordinator's set says.

use std::collections::{BTreeSet, VecDeque};

use guira_consistency::{Happened, Key};
use guira_hotkeys::{Alpha, Sampler, TopKeys};
use guira_item::{Moment, Span};

use super::{Node, NodeConfig, NodeOutbox};
use crate::{HotSet, Items};

/// What the load of the last segment counts for beside that of those before it (SwitchKV, section 3.2.1).
const ALPHA: f64 = 0.5;

/// Keys that are counted beside those that may be hot: so one that is rarely seen seldom takes the place of one that is often.
const TRACKED_TIMES: usize = 4;

/// How often it is looked what is to be hot and is not, or the other way.
const TEND_EVERY: Span = Span::from_ms(100);

/// Evictions that are under way at a time: each is three rounds of all nodes, in which nobody serves the key.
const EVICTIONS_MAX: usize = 64;

/// The hot keys' side of a node.
#[derive(Clone, Debug)]
pub(super) struct HotKeys {
    set: HotSet,
    tracker: TopKeys,
    sampler: Sampler,
    segment_began: Moment,
    to_promote: VecDeque<Key>,
    tended_at: Moment,
}

impl HotKeys {
    pub(super) fn new(now: Moment, config: &NodeConfig) -> Self {
        let reported = config.hot_keys_max + config.hot_keys_max / 4 + 8;
        let alpha = Alpha::new(ALPHA).expect("between 0 and 1");
        Self {
            set: HotSet::default(),
            tracker: TopKeys::new(reported, reported * TRACKED_TIMES, alpha, config.life.seed),
            sampler: Sampler::new(config.sample_one_in.max(1), config.life.seed),
            segment_began: now,
            to_promote: VecDeque::new(),
            tended_at: now,
        }
    }

    /// Something is asked of a key.
    pub(super) fn see(&mut self, key: &[u8]) {
        if self.sampler.picks() {
            self.count(key);
        }
    }

    /// A read that was picked.
    pub(super) fn count(&mut self, key: &[u8]) {
        self.tracker.see(key);
    }

    /// The hottest keys of late, and the set.
    pub(super) fn end_segment(&mut self, now: Moment) -> (Vec<(Key, f64)>, HotSet) {
        let s = now.since(self.segment_began).ns() as f64 / 1e9;
        self.segment_began = now;
        self.tracker.end_segment(f64::from(self.sampler.one_in()) / s.max(1e-3));
        let keys = self.tracker.hottest().iter().map(|hot| (Key::from(&hot.key[..]), hot.per_s)).collect();
        (keys, self.set.clone())
    }

    /// The coordinator says which keys are to be hot.
    pub(super) fn set(&mut self, set: HotSet) {
        if set.number > self.set.number {
            self.set = set;
        }
    }

    pub(super) fn set_number(&self) -> u64 {
        self.set.number
    }
}

impl<I: Items> Node<I> {
    /// Now and then: what could not be begun before may be now.
    pub(super) fn tend_hot_keys_again(&mut self, now: Moment, out: &mut NodeOutbox) {
        if now.since(self.hot.tended_at) >= TEND_EVERY {
            self.tend_hot_keys(now, out);
        }
    }

    /// Begins what is to be done for the set: evictions at once, promotions one after the other.
    pub(super) fn tend_hot_keys(&mut self, now: Moment, out: &mut NodeOutbox) {
        self.hot.tended_at = now;
        // Who has never heard of a set has nothing to say of what is hot.
        if !self.serves(now) || self.hot.set.number == 0 {
            self.hot.to_promote.clear();
            return;
        }
        let there: BTreeSet<&Key> = self.replica.keys().map(|(key, _)| key).collect();
        let is_cold = |key: &&Key| !there.contains(*key) && self.is_home_of(key) && self.is_open(key);
        let to_promote = self.hot.set.keys.iter().filter(is_cold).cloned().collect();
        let home = |key: &Key| self.holder.view().home_of(super::hash_of(key));
        let is_to_go = |(key, is_hot): (&Key, bool)| {
            let goes = is_hot && !self.hot.set.keys.contains(key) && home(key) == Some(self.config.me);
            let goes = goes && self.is_open(key);
            goes.then(|| key.clone())
        };
        let going = self.replica.keys().filter(|(key, is_hot)| !is_hot && home(key) == Some(self.config.me)).count();
        let more = EVICTIONS_MAX.saturating_sub(going);
        let to_evict: Vec<Key> = self.replica.keys().filter_map(is_to_go).take(more).collect();
        self.hot.to_promote = to_promote;
        for key in to_evict {
            self.step_replica(now, Happened::Evict(key), out);
        }
    }

    /// Promotes what can be now.
    pub(super) fn promote_next(&mut self, now: Moment, out: &mut NodeOutbox) {
        while let Some(key) = self.hot.to_promote.front()
            && self.serves(now)
        {
            if !self.is_home_of(key) || !self.is_open(key) || self.replica.has(key) {
                self.hot.to_promote.pop_front();
                continue;
            }
            if !self.replica.can_promote(key) {
                break;
            }
            let Some(key) = self.hot.to_promote.pop_front() else { break };
            // Before it leaves the shard, which other threads read.
            self.shown.cache.withhold(&key, super::hash_of(&key));
            let (version, done) = self.shard.take(&key, self.writer(), self.time(now));
            self.counts.promotions += 1;
            self.step_replica(now, Happened::Promote(key, Box::new(version), done), out);
        }
    }
}
