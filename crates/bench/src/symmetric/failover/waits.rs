//! How long keys were waited for, before something happens and from then on.
//!
//! Always true: what was under way when it happened counts as from then on; what has no answer counts as long as it was waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use guira_loadgen::latency::Latencies;

use crate::timeline::Stretches;

/// Somebody's wait for a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Wait {
    /// The key.
    pub id: u64,
    /// From when it was first asked for.
    pub since: Duration,
    /// Until its answer, or until nobody waited any more.
    pub until: Duration,
    pub is_answered: bool,
}

/// All waits of one kind of keys.
#[derive(Debug)]
pub(super) struct Waits {
    /// When it happened.
    at: Duration,
    before: Latencies,
    after: Latencies,
    /// From then on, by key.
    longest: BTreeMap<u64, Duration>,
    answered_at: Vec<Duration>,
}

impl Waits {
    /// None yet, where it happens at some time.
    pub fn since(at: Duration) -> Self {
        let (before, after) = (Latencies::default(), Latencies::default());
        Self { at, before, after, longest: BTreeMap::new(), answered_at: Vec::new() }
    }

    /// Adds somebody's.
    pub fn add(&mut self, waits: Vec<Wait>) {
        for Wait { id, since, until, is_answered } in waits {
            let wait = until.saturating_sub(since);
            if until < self.at {
                self.before.record_ns(wait.as_nanos() as u64);
            } else {
                self.after.record_ns(wait.as_nanos() as u64);
                let longest = self.longest.entry(id).or_default();
                *longest = (*longest).max(wait);
            }
            self.answered_at.extend(is_answered.then_some(until));
        }
    }

    /// The longest from then on.
    pub fn longest(&self) -> Duration {
        self.longest.values().copied().max().unwrap_or_default()
    }

    /// Keys that somebody has waited for longer than this from then on.
    pub fn keys_waited_for(&self, bound: Duration) -> usize {
        self.longest.values().filter(|longest| **longest > bound).count()
    }

    /// The 99.9th percentile before, or from then on, microseconds.
    pub fn p999_us(&self, is_after: bool) -> f64 {
        if is_after { self.after.quantile_us(0.999) } else { self.before.quantile_us(0.999) }
    }

    /// Answers in each stretch, those before first.
    pub fn answered_by_stretch(&self, stretches: Stretches) -> Vec<u64> {
        let Stretches { before, after, each } = stretches;
        let mut counts = vec![0; ((before + after).as_nanos() / each.as_nanos()) as usize];
        // By the time since then, so that it falls between two stretches whenever it came.
        for answered_at in &self.answered_at {
            let at = (*answered_at + before).checked_sub(self.at).map(|at| (at.as_nanos() / each.as_nanos()) as usize);
            if let Some(count) = at.and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_was_under_way_counts_from_then_on_and_so_does_what_has_no_answer() {
        let mut waits = Waits::since(ms(100));
        let wait = |id, since, until| Wait { id, since: ms(since), until: ms(until), is_answered: true };
        waits.add(vec![wait(1, 10, 12), wait(1, 90, 110), wait(2, 120, 125)]);
        waits.add(vec![Wait { is_answered: false, ..wait(3, 130, 200) }]);
        assert_eq!(waits.longest(), ms(70));
        assert_eq!(waits.keys_waited_for(ms(10)), 2);
        assert!((waits.p999_us(false) - 2_000.0).abs() < 5.0 && waits.p999_us(true) > 69_000.0);
        let stretches = Stretches { before: ms(100), after: ms(60), each: ms(20) };
        assert_eq!(waits.answered_by_stretch(stretches), [1, 0, 0, 0, 0, 1, 1, 0]);
        let later = Waits { at: ms(110), ..waits };
        assert_eq!(later.answered_by_stretch(stretches), [1, 0, 0, 0, 0, 2, 0, 0], "it happened later than was meant");
    }
}
