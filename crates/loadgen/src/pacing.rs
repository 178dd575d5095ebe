//! When to send: as soon as an answer makes room (closed loop), or on a schedule that no answer can delay (open).
//!
//! In an open loop a turn's latency counts from the moment the schedule meant it to be sent, so a server that
//! stalls is charged for every request it held up (no coordinated omission).

use std::str::FromStr;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// How turns are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// Every client keeps this many turns in flight.
    Closed {
        /// Turns in flight per client, at least 1.
        depth: u32,
    },
    /// Turns start on a schedule shared by all clients.
    Open {
        /// Turns per second over all clients.
        rate_per_s: f64,
        /// How they are spaced.
        arrivals: Arrivals,
    },
}

/// Spacing of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Independent users: exponential gaps.
    Poisson,
    /// Equal gaps.
    Even,
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "poisson" => Ok(Self::Poisson),
            "even" | "fixed" => Ok(Self::Even),
            _ => Err(format!("'{text}' is no spacing; use poisson or even")),
        }
    }
}

/// The intended times of an open loop, nanoseconds from its start, ascending.
#[derive(Clone, Debug)]
pub struct Schedule {
    next_ns: f64,
    gap_ns: f64,
    arrivals: Arrivals,
    rng: Xoshiro256PlusPlus,
}

impl Schedule {
    /// A schedule of `rate_per_s` (positive) turns a second.
    pub fn new(rate_per_s: f64, arrivals: Arrivals, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { next_ns: 0.0, gap_ns: 1e9 / rate_per_s.max(1e-3), arrivals, rng }
    }

    /// The next intended time that is not after `now_ns`, if there is one.
    #[inline]
    pub fn due(&mut self, now_ns: u64) -> Option<u64> {
        if self.next_ns > now_ns as f64 {
            return None;
        }
        let due = self.next_ns;
        self.next_ns += match self.arrivals {
            Arrivals::Even => self.gap_ns,
            Arrivals::Poisson => -(1.0 - self.rng.random::<f64>()).ln() * self.gap_ns,
        };
        Some(due as u64)
    }

    /// When the next turn is due, nanoseconds from the start.
    pub fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spacings_keep_the_rate() {
        for arrivals in [Arrivals::Poisson, Arrivals::Even] {
            let mut schedule = Schedule::new(10_000.0, arrivals, 9);
            let mut last = 0;
            let mut count = 0;
            while let Some(due) = schedule.due(10_000_000_000) {
                assert!(due >= last);
                last = due;
                count += 1;
            }
            assert!((98_500..101_500).contains(&count), "{arrivals:?}: {count}");
        }
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let mut schedule = Schedule::new(1_000.0, Arrivals::Even, 9);
        assert_eq!(schedule.due(0), Some(0));
        assert_eq!(schedule.due(999_999), None);
        assert_eq!(schedule.due(1_000_000), Some(1_000_000));
    }
}
