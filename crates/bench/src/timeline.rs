//! Throughput before and after something happens, stretch by stretch.

use std::time::Duration;

use crate::metric;
use crate::report::{ExperimentReport, median};

/// What is told of a run and not of a stretch of it, as a variant.
pub(crate) const WHOLE: &str = "whole run";

/// The share of the throughput before at which it counts as back.
pub(crate) const BACK: f64 = 0.9;

/// How a run is cut into stretches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretches {
    /// Time before what is looked at.
    pub before: Duration,
    /// Time from then on.
    pub after: Duration,
    /// Length of a stretch.
    pub each: Duration,
}

/// Answers a second in each stretch, around the moment at which what is looked at begins.
#[derive(Debug, PartialEq)]
pub(crate) struct Timeline {
    stretch: Duration,
    /// Of the stretches before it, all but the first half, in which connections are made.
    pub before_per_s: f64,
    /// In each stretch from then on.
    pub after_per_s: Vec<f64>,
}

impl Timeline {
    /// `hits` in each stretch of a run, which has some before what is looked at.
    pub fn of(hits: &[u64], stretches: Stretches) -> Self {
        let Stretches { before, after, each } = stretches;
        let per_s = |hits: &u64| *hits as f64 / each.as_secs_f64();
        let begins = (before.as_nanos() / each.as_nanos()) as usize;
        let all = ((before + after).as_nanos() / each.as_nanos()) as usize;
        // A stretch in which nothing was answered at the end is not in the list.
        let mut rates: Vec<f64> = hits.iter().map(per_s).collect();
        rates.resize(all, 0.0);
        let before_per_s = median(&rates[begins / 2..begins]);
        Self { stretch: each, before_per_s, after_per_s: rates.split_off(begins) }
    }

    /// Seconds until, after the stretch in which least was served, two in a row reach [`BACK`] of what was before; as long as was looked at, if that
    /// never comes. 0: it never fell below that.
    pub fn back_after_s(&self) -> f64 {
        let is_back = |per_s: &f64| *per_s >= BACK * self.before_per_s;
        if self.after_per_s.iter().all(is_back) {
            return 0.0;
        }
        let least = (0..self.after_per_s.len()).min_by(|a, b| self.after_per_s[*a].total_cmp(&self.after_per_s[*b]));
        let from = least.unwrap_or(0);
        let back = self.after_per_s[from..].windows(2).position(|pair| pair.iter().all(is_back));
        back.map_or(self.after_per_s.len(), |at| from + at) as f64 * self.stretch.as_secs_f64()
    }

    /// Records it over the time at which each stretch ends.
    pub fn record(&self, report: &mut ExperimentReport, peer: &str) {
        for (at, per_s) in (1u32..).zip(&self.after_per_s) {
            let ends_s = (self.stretch * at).as_secs_f64();
            report.record(&format!("{ends_s:.2} s"), peer, metric::SERVED, *per_s);
        }
        let least = self.after_per_s.iter().copied().fold(f64::INFINITY, f64::min);
        report.record(WHOLE, peer, metric::SERVED_BEFORE, self.before_per_s);
        report.record(WHOLE, peer, metric::SERVED_LEAST, least);
        report.record(WHOLE, peer, metric::BACK_AFTER, self.back_after_s());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dip_is_told_by_its_depth_and_length() {
        let stretches = Stretches {
            before: Duration::from_secs(2),
            after: Duration::from_secs(3),
            each: Duration::from_millis(500),
        };
        let timeline = Timeline::of(&[1, 50, 52, 50, 49, 5, 20, 46, 47], stretches);
        assert_eq!(timeline.before_per_s, 102.0);
        assert_eq!(timeline.after_per_s, [98.0, 10.0, 40.0, 92.0, 94.0, 0.0]);
        let mut report = ExperimentReport::new("dip", "Dip", "");
        timeline.record(&mut report, "guira");
        let median = |variant, metric| report.row(variant, "guira").and_then(|row| row.median(metric));
        assert_eq!(median(WHOLE, metric::SERVED_LEAST), Some(0.0));
        assert_eq!(median("1.00 s", metric::SERVED), Some(10.0));
        assert_eq!(timeline.back_after_s(), 3.0, "the last was the least");
        let back_after_s = |after_per_s| Timeline { after_per_s, ..timeline }.back_after_s();
        assert_eq!(back_after_s(vec![98.0, 10.0, 92.0, 40.0, 92.0, 94.0, 92.0]), 2.0);
        assert_eq!(back_after_s(vec![98.0, 92.0]), 0.0);
    }
}
