//! Latencies: recorded to three digits, summarised in microseconds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency told apart, nanoseconds; longer ones count as this (one minute).
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// A histogram of latencies, 1 ns to a minute, three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        #[allow(clippy::expect_used, reason = "constant bounds that the library accepts")]
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("valid bounds");
        Self { histogram }
    }
}

impl Latencies {
    /// Counts one latency.
    #[inline]
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns.max(1));
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        // Same bounds on both sides, so nothing can fall outside.
        let _ = self.histogram.add(&other.histogram);
    }

    /// The latency that `quantile` (0 to 1) of the requests stay within, microseconds; 0 if there were none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Number of latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The usual quantiles.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            mean_us: self.histogram.mean() / 1e3,
            p50_us: self.quantile_us(0.5),
            p90_us: self.quantile_us(0.9),
            p99_us: self.quantile_us(0.99),
            p999_us: self.quantile_us(0.999),
            max_us: self.histogram.max() as f64 / 1e3,
        }
    }
}

/// Quantiles of a run's latencies, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct LatencySummary {
    /// Number of requests.
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_digits() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|us| latencies.record_ns(us * 1000));
        let summary = latencies.summary();
        assert_eq!(summary.count, 1000);
        assert!((summary.p50_us - 500.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p99_us - 990.0).abs() < 2.0, "{summary:?}");
    }

    #[test]
    fn the_endless_and_the_instant_are_kept_at_the_bounds() {
        let mut latencies = Latencies::default();
        latencies.record_ns(0);
        latencies.record_ns(u64::MAX);
        assert_eq!(latencies.count(), 2);
    }
}
