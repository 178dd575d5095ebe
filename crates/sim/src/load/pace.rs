//! How fast clients ask: at a given rate, or as fast as so much is lost (SwitchKV, section 4.1).
//!
//! "The client tracks the packet loss rate, and adjusts its sending rate every 10 milliseconds to keep the loss rate between 0.5% to 1%."
//! How it adjusts it is not said. Here a loss above is taken from the rate; below, the rate grows by steps that grow themselves, up to a
//! tenth, and begin small again after a loss. What is lost is known at once, as to the paper's client within a round trip.

use guira_item::Span;

/// The least and the most that may be lost.
const LOSS_MIN: f64 = 0.005;
const LOSS_MAX: f64 = 0.01;

/// Steps by which the rate grows, as shares of it.
const STEP_MIN: f64 = 0.005;
const STEP_MAX: f64 = 0.1;

/// How often the rate is adjusted.
pub(crate) const ADJUSTED_EVERY: Span = Span::from_ms(10);

/// The rate of all clients together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Pace {
    per_s: f64,
    adjusts: bool,
    step: f64,
}

impl Pace {
    pub(crate) fn fixed(per_s: f64) -> Self {
        Self { per_s, adjusts: false, step: STEP_MIN }
    }

    pub(crate) fn adjusted_from(per_s: f64) -> Self {
        Self { per_s, adjusts: true, step: STEP_MIN }
    }

    /// Requests a second.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s
    }

    /// So many were asked and lost since the last time.
    pub(crate) fn adjust(&mut self, asked: u64, lost: u64) {
        if !self.adjusts || asked == 0 {
            return;
        }
        let loss = lost as f64 / asked as f64;
        if loss > LOSS_MAX {
            self.per_s *= 1.0 - loss.min(0.5);
            self.step = STEP_MIN;
        } else if loss < LOSS_MIN {
            self.per_s *= 1.0 + self.step;
            self.step = (self.step * 1.5).min(STEP_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_settles_where_a_little_is_lost() {
        for capacity in [1e3, 1e6] {
            let mut pace = Pace::adjusted_from(2e4);
            let mut losses = Vec::new();
            for _ in 0..400 {
                let (asked, lost) = (pace.per_s(), (pace.per_s() - capacity).max(0.0));
                losses.push(lost / asked);
                pace.adjust(asked as u64, lost as u64);
            }
            let of_late = losses[200..].iter().sum::<f64>() / 200.0;
            assert!((0.004..0.012).contains(&of_late), "{of_late}");
        }
    }

    #[test]
    fn a_fixed_rate_stays() {
        let mut pace = Pace::fixed(100.0);
        pace.adjust(10, 9);
        assert_eq!(pace, Pace::fixed(100.0));
    }
}
