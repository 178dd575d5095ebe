//! The load of a key: queries a second, smoothed over segments of time (SwitchKV, equation 1).

/// How much the latest segment counts beside what was before: from 0 (nothing) to 1 (what was before does not count).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Alpha(f64);

impl Alpha {
    /// `None` unless it is above 0 and at most 1.
    pub fn new(alpha: f64) -> Option<Self> {
        (alpha > 0.0 && alpha <= 1.0).then_some(Self(alpha))
    }

    /// The load after a segment in which it was `latest`.
    pub fn smooth(self, before: f64, latest: f64) -> f64 {
        self.0 * latest + (1.0 - self.0) * before
    }
}

/// The load of one key, where every key that counts can be counted: at a cache node.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct KeyLoad {
    seen: u32,
    per_s: f64,
}

impl KeyLoad {
    /// A key that is said to have a load already, by the backend that has reported it.
    pub fn reported(per_s: f64) -> Self {
        Self { seen: 0, per_s }
    }

    /// Counts a query.
    pub fn see(&mut self) {
        self.seen = self.seen.saturating_add(1);
    }

    /// Ends a segment in which a counted query stands for so many a second: the sampling's inverse over the segment's seconds.
    pub fn end_segment(&mut self, alpha: Alpha, per_s_each: f64) {
        self.per_s = alpha.smooth(self.per_s, f64::from(std::mem::take(&mut self.seen)) * per_s_each);
    }

    /// Queries a second, as of the end of the last segment.
    pub fn per_s(&self) -> f64 {
        self.per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_follows_what_is_seen_and_forgets() {
        let alpha = Alpha::new(0.25).expect("between 0 and 1");
        let mut load = KeyLoad::reported(100.0);
        // A tenth is sampled, for half a second: each stands for 20 a second.
        (0..10).for_each(|_| load.see());
        load.end_segment(alpha, 20.0);
        assert_eq!(load.per_s(), 0.25 * 200.0 + 0.75 * 100.0);
        load.end_segment(alpha, 20.0);
        assert_eq!(load.per_s(), 0.75 * 125.0);
        (0..60).for_each(|_| load.end_segment(alpha, 20.0));
        assert!(load.per_s() < 1e-5, "what is not asked for any more is cold");
    }

    #[test]
    fn alphas_that_mean_nothing_are_refused() {
        for alpha in [0.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Alpha::new(alpha), None);
        }
        let all = Alpha::new(1.0).expect("the latest segment alone");
        assert_eq!(all.smooth(7.0, 3.0), 3.0);
    }
}
