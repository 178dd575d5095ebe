//! Throughput before and after something happens, stretch by stretch.

use std::time::Duration;

use super::bench::Run;
use crate::metric;
use crate::report::{ExperimentReport, median};

/// The share of the throughput before at which it counts as back.
pub(super) const BACK: f64 = 0.9;

/// Answers a second in each stretch, around the moment at which the measured interval begins.
#[derive(Debug, PartialEq)]
pub(super) struct Timeline {
    stretch: Duration,
    /// Of the stretches before it, all but the first half, in which connections are made.
    pub before_per_s: f64,
    /// In each stretch from then on.
    pub after_per_s: Vec<f64>,
}

impl Timeline {
    /// `hits` in each stretch of a run, whose warm-up is some stretches long.
    pub fn of(hits: &[u64], run: &Run) -> Self {
        let per_s = |hits: &u64| *hits as f64 / run.stretch.as_secs_f64();
        let begins = (run.warm_up.as_nanos() / run.stretch.as_nanos()) as usize;
        let all = ((run.warm_up + run.measure).as_nanos() / run.stretch.as_nanos()) as usize;
        // A stretch in which nothing was answered at the end is not in the list.
        let mut rates: Vec<f64> = hits.iter().map(per_s).collect();
        rates.resize(all, 0.0);
        let before_per_s = median(&rates[begins / 2..begins]);
        Self { stretch: run.stretch, before_per_s, after_per_s: rates.split_off(begins) }
    }

    /// Seconds until two stretches in a row reach [`BACK`] of what was before; as long as was looked at, if that never comes.
    pub fn back_after_s(&self) -> f64 {
        let is_back = |pair: &[f64]| pair.iter().all(|per_s| *per_s >= BACK * self.before_per_s);
        let at = self.after_per_s.windows(2).position(is_back).unwrap_or(self.after_per_s.len());
        at as f64 * self.stretch.as_secs_f64()
    }

    /// Records it over the time at which each stretch ends.
    pub fn record(&self, report: &mut ExperimentReport, peer: &str) {
        for (at, per_s) in (1u32..).zip(&self.after_per_s) {
            let ends_s = (self.stretch * at).as_secs_f64();
            report.record(&format!("{ends_s:.2} s"), peer, metric::SERVED, *per_s);
        }
        let least = self.after_per_s.iter().copied().fold(f64::INFINITY, f64::min);
        report.record("", peer, metric::SERVED_BEFORE, self.before_per_s);
        report.record("", peer, metric::SERVED_LEAST, least);
        report.record("", peer, metric::BACK_AFTER, self.back_after_s());
    }
}

#[cfg(test)]
mod tests {
    use guira_switched::CacheMode;

    use super::*;

    #[test]
    fn a_dip_is_told_by_its_depth_and_length() {
        let run = Run {
            mode: CacheMode::Switched,
            warm_up: Duration::from_secs(2),
            measure: Duration::from_secs(3),
            stretch: Duration::from_millis(500),
            change: None,
        };
        let timeline = Timeline::of(&[1, 50, 52, 50, 5, 46, 20, 46, 47], &run);
        assert_eq!(timeline.before_per_s, 102.0);
        assert_eq!(timeline.after_per_s, [10.0, 92.0, 40.0, 92.0, 94.0, 0.0]);
        assert_eq!(timeline.back_after_s(), 1.5);
        let mut report = ExperimentReport::new("dip", "Dip", "");
        timeline.record(&mut report, "guira");
        let median = |variant, metric| report.row(variant, "guira").and_then(|row| row.median(metric));
        assert_eq!(median("", metric::SERVED_LEAST), Some(0.0));
        assert_eq!(median("1.00 s", metric::SERVED), Some(92.0));
        assert_eq!(Timeline { after_per_s: vec![1.0, 2.0], ..timeline }.back_after_s(), 1.0);
    }
}
