//! The time-segmented top-k tracker (SwitchKV, section 3.2.1): the keys with the most load of late.

use std::collections::BTreeMap;

use crate::{Alpha, Count, HashedKey, SpaceSaving};

/// A key with its load.
#[derive(Clone, PartialEq, Debug)]
pub struct HotKey {
    /// Its bytes.
    pub key: Box<[u8]>,
    /// Queries a second.
    pub per_s: f64,
}

/// Keys with the most load, found anew at the end of each segment.
///
/// Always true: there are at most `len_max`, hottest first, and all of them were among the `len_max` of the last segment that may have been seen
/// most often.
#[derive(Clone, Debug)]
pub struct TopKeys {
    counter: SpaceSaving,
    hottest: Vec<HotKey>,
    len_max: usize,
    alpha: Alpha,
}

impl TopKeys {
    /// Keeps the loads of `len_max` keys, and counts `tracked_max` in a segment: the more, the less one that is rarely seen takes the
    /// place of one that is often.
    ///
    /// # Panics
    /// `tracked_max` is 0 or beyond 2^32, or less than `len_max`.
    pub fn new(len_max: usize, tracked_max: usize, alpha: Alpha, seed: u64) -> Self {
        assert!(len_max <= tracked_max, "{len_max} of {tracked_max} keys");
        Self { counter: SpaceSaving::new(tracked_max, seed), hottest: Vec::new(), len_max, alpha }
    }

    /// Counts a query. O(1).
    pub fn see(&mut self, key: &[u8]) {
        self.counter.see(key);
    }

    /// The same of a key that was hashed by this tracker's seed.
    pub fn see_hashed(&mut self, key: HashedKey<'_>) {
        self.counter.see_hashed(key);
    }

    /// The keys that are tracked in this segment, those seen most often first.
    pub fn seen(&self) -> impl Iterator<Item = &[u8]> {
        self.counter.descending().map(|(key, _)| key)
    }

    /// How often a key was seen in this segment so far, if it is tracked.
    pub fn count(&self, key: &[u8]) -> Option<Count> {
        self.counter.count(key)
    }

    /// Ends a segment in which a counted query stands for so many a second: the sampling's inverse over the segment's seconds.
    ///
    /// A key is taken to have been seen as often as is certain: so one that has come late and taken another's place does not inherit
    /// what that had (the paper takes the whole count).
    pub fn end_segment(&mut self, per_s_each: f64) {
        let before: BTreeMap<Box<[u8]>, f64> = self.hottest.drain(..).map(|hot| (hot.key, hot.per_s)).collect();
        let top = self.counter.descending().take(self.len_max);
        self.hottest.extend(top.map(|(key, count)| {
            let before = before.get(key).copied().unwrap_or(0.0);
            let per_s = self.alpha.smooth(before, count.at_least() as f64 * per_s_each);
            HotKey { key: key.into(), per_s }
        }));
        self.hottest.sort_by(|a, b| b.per_s.total_cmp(&a.per_s).then_with(|| a.key.cmp(&b.key)));
        self.counter.clear();
    }

    /// The keys with the most load as of the end of the last segment, hottest first.
    pub fn hottest(&self) -> &[HotKey] {
        &self.hottest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(len_max: usize, tracked_max: usize, alpha: f64) -> TopKeys {
        TopKeys::new(len_max, tracked_max, Alpha::new(alpha).expect("an alpha"), 11)
    }

    fn loads(tracker: &TopKeys) -> Vec<(&[u8], f64)> {
        tracker.hottest().iter().map(|hot| (&*hot.key, hot.per_s)).collect()
    }

    fn see(tracker: &mut TopKeys, key: &[u8], times: usize) {
        (0..times).for_each(|_| tracker.see(key));
    }

    #[test]
    fn loads_are_weighted_averages_over_segments() {
        let mut tracker = tracker(3, 10, 0.5);
        see(&mut tracker, b"a", 8);
        see(&mut tracker, b"b", 4);
        tracker.end_segment(10.0);
        assert_eq!(loads(&tracker), [(&b"a"[..], 40.0), (b"b", 20.0)]);
        see(&mut tracker, b"b", 8);
        see(&mut tracker, b"a", 2);
        see(&mut tracker, b"c", 1);
        tracker.end_segment(10.0);
        assert_eq!(loads(&tracker), [(&b"b"[..], 50.0), (b"a", 30.0), (b"c", 5.0)]);
    }

    #[test]
    fn who_is_not_among_the_top_of_a_segment_is_forgotten() {
        let mut tracker = tracker(2, 10, 0.5);
        see(&mut tracker, b"a", 1_000);
        tracker.end_segment(1.0);
        for key in [b"x", b"y"] {
            see(&mut tracker, key, 3);
        }
        see(&mut tracker, b"a", 2);
        tracker.end_segment(1.0);
        assert_eq!(loads(&tracker), [(&b"x"[..], 1.5), (b"y", 1.5)], "equals are in the order of their bytes");
        tracker.end_segment(1.0);
        assert_eq!(loads(&tracker), []);
    }

    #[test]
    fn a_newcomer_does_not_inherit_the_count_of_whom_it_replaces() {
        let mut tracker = tracker(2, 2, 1.0);
        see(&mut tracker, b"a", 50);
        see(&mut tracker, b"b", 20);
        see(&mut tracker, b"late", 1);
        assert_eq!(tracker.count(b"late"), Some(Count { at_most: 21, over: 20 }));
        tracker.end_segment(1.0);
        assert_eq!(loads(&tracker), [(&b"a"[..], 50.0), (b"late", 1.0)]);
    }

    /// Zipf, as the paper's workloads are: what matters is that the hottest are found.
    #[test]
    fn of_a_skewed_stream_the_hottest_are_found_in_their_order() {
        const KEYS: u64 = 100_000;
        let mut tracker = tracker(20, 1_000, 1.0);
        let mut state = 1u64;
        for _ in 0..400_000 {
            // A multiplicative congruence, and the inverse of the distribution function of 1/x.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let rank = (KEYS as f64).powf((state >> 11) as f64 / (1u64 << 53) as f64) as u64;
            tracker.see(&rank.to_be_bytes());
        }
        tracker.end_segment(1.0);
        let ranks: Vec<u64> =
            tracker.hottest().iter().map(|hot| u64::from_be_bytes(hot.key[..].try_into().expect("8"))).collect();
        assert_eq!(ranks[..5], [1, 2, 3, 4, 5]);
        assert!(ranks.iter().all(|rank| *rank <= 25), "{ranks:?}");
    }
}
