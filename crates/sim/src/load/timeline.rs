//! What a change of popularity costs, and for how long: told from the samples of a run.

use super::{Pattern, Row, Sample};

/// The share of the throughput before at which it counts as back.
pub(super) const BACK: f64 = 0.9;

impl Row {
    /// Seconds from the first change to the end of the first of two samples in a row that reach [`BACK`] of what was before; as long as was
    /// looked at, if that never comes. `None`: nothing changed, or there are no samples before and after.
    pub(super) fn back_after_s(&self) -> Option<f64> {
        let (before_per_s, after) = self.around_first_change()?;
        let is_back = |pair: &[Sample]| pair.iter().all(|sample| sample.answered_per_s >= BACK * before_per_s);
        let back = after.windows(2).find(|pair| is_back(pair)).map_or(after.last(), |pair| pair.first())?;
        Some(back.at_s - self.change?.first_s)
    }

    /// Seconds from the first change to the end of the first sample in which all keys that became hot were routed to a cache node; as long as was looked at, if that
    /// never comes. `None`: none became hot, or it was not counted.
    pub(super) fn all_routed_after_s(&self) -> Option<f64> {
        let change = self.change.filter(|change| change.pattern == Pattern::HotIn)?;
        let counted: Vec<&Sample> =
            self.report.samples.iter().filter(|sample| sample.routed_of_new.is_some()).collect();
        let all = counted.iter().find(|sample| sample.routed_of_new == Some(change.keys)).or(counted.last())?;
        Some(all.at_s - change.first_s)
    }

    /// The share of the throughput that is missing once popularity changes. `None`: as above.
    pub(super) fn cost_of_changes(&self) -> Option<f64> {
        let (before_per_s, after) = self.around_first_change()?;
        Some(1.0 - average_per_s(after) / before_per_s)
    }

    /// Throughput once changes have gone on for a while: that of the second half of the samples, or of the run if there are none.
    pub(super) fn lasting_per_s(&self) -> f64 {
        let samples = &self.report.samples;
        if samples.is_empty() { self.report.answered_per_s } else { average_per_s(&samples[samples.len() / 2..]) }
    }

    /// Throughput before the first change, and the samples from then on.
    fn around_first_change(&self) -> Option<(f64, &[Sample])> {
        /// Moments are whole nanoseconds, seconds are not exact.
        const NEAR_S: f64 = 1e-9;
        let first_s = self.change?.first_s;
        let at = self.report.samples.iter().position(|sample| sample.at_s > first_s + NEAR_S)?;
        let (before, after) = self.report.samples.split_at(at);
        (!before.is_empty()).then(|| (average_per_s(before), after))
    }
}

fn average_per_s(samples: &[Sample]) -> f64 {
    samples.iter().map(|sample| sample.answered_per_s).sum::<f64>() / samples.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::row::example;

    #[test]
    fn a_dip_is_told_by_its_length_and_its_cost() {
        // It changes after 0.2 s.
        let row = |per_s: &[f64]| example::changing("hot-in", per_s);
        let dipped = row(&[99.0, 101.0, 50.0, 92.0, 40.0, 91.0, 97.0, 110.0]);
        assert!((dipped.back_after_s().expect("it is told") - 0.4).abs() < 1e-9);
        assert!((dipped.cost_of_changes().expect("it is told") - 0.2).abs() < 1e-9);
        let gone = row(&[100.0, 100.0, 50.0, 50.0, 95.0]);
        assert!((gone.back_after_s().expect("it is told") - 0.3).abs() < 1e-9, "as long as was looked at");
        assert_eq!(row(&[]).back_after_s(), None);
        assert_eq!(dipped.all_routed_after_s(), None, "it was not counted");
        assert_eq!(row(&[100.0, 100.0, 50.0, 40.0, 30.0]).lasting_per_s(), 40.0);
    }

    #[test]
    fn keys_that_become_hot_are_all_routed_when_the_last_of_them_is() {
        let mut row = example::changing("rule-buffer", &[1.0; 5]);
        let counts = [None, None, Some(150), Some(199), Some(200)];
        let mut count = |counts: [Option<usize>; 5]| {
            row.report.samples.iter_mut().zip(counts).for_each(|(sample, count)| sample.routed_of_new = count);
            row.all_routed_after_s()
        };
        let near = |measured: Option<f64>, s: f64| measured.is_some_and(|measured| (measured - s).abs() < 1e-9);
        assert!(near(count(counts), 0.3));
        assert!(near(count([None, None, Some(200), Some(199), Some(200)]), 0.1), "one may make room again");
        assert!(near(count([None, None, Some(0), Some(0), Some(199)]), 0.3), "as long as was looked at");
    }
}
