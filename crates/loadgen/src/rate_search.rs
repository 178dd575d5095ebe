//! Finds the highest open-loop rate that meets a target, by doubling and then bisecting.
//!
//! A rate meets the target if the server kept up with it (no overload, at least 95 % of it answered) and the
//! measured figure stays within the bound.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::driver::Outcome;
use crate::error::LoadError;

/// Measurements a search may take.
const TRIALS_MAX: usize = 24;
/// The search ends when the bounds are this close.
const CLOSE: f64 = 1.03;
const KEPT_UP: f64 = 0.95;

/// What a rate must meet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// A quantile of latency, microseconds.
    Latency {
        /// The quantile, 0 to 1.
        quantile: f64,
        /// Its bound, microseconds.
        max_us: f64,
    },
    /// The share of answers that are errors, 0 to 1.
    Errors {
        /// Its bound.
        max: f64,
    },
    /// The share of asked keys that are missed, 0 to 1.
    Misses {
        /// Its bound.
        max: f64,
    },
}

impl Goal {
    /// The figure that is held against the bound.
    pub fn figure(&self, outcome: &Outcome) -> f64 {
        match self {
            Self::Latency { quantile, .. } => outcome.latencies.quantile_us(*quantile),
            Self::Errors { .. } => outcome.tally.errors as f64 / (outcome.tally.keys() as f64).max(1.0),
            Self::Misses { .. } => outcome.miss_ratio(),
        }
    }

    /// Whether `outcome`, measured at `rate_per_s`, meets it.
    pub fn met(&self, rate_per_s: f64, outcome: &Outcome) -> bool {
        let (Self::Latency { max_us: max, .. } | Self::Errors { max } | Self::Misses { max }) = *self;
        !outcome.overloaded && outcome.turns_per_s() >= rate_per_s * KEPT_UP && self.figure(outcome) <= max
    }
}

impl FromStr for Goal {
    type Err = String;

    /// Reads `p99=1ms`, `p99.9=500us`, `errors=0.1%` or `misses=5%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is no target; write p99=1ms, p99.9=500us, errors=0.1% or misses=5%");
        let (what, bound) = text.split_once('=').ok_or_else(bad)?;
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(bad);
        let share = |text: &str| match text.strip_suffix('%') {
            Some(percent) => Ok(number(percent)? / 100.0),
            None => number(text),
        };
        match what {
            "errors" => Ok(Self::Errors { max: share(bound)? }),
            "misses" => Ok(Self::Misses { max: share(bound)? }),
            _ => {
                let quantile = number(what.strip_prefix('p').ok_or_else(bad)?)? / 100.0;
                let (digits, us) = [("us", 1.0), ("ms", 1e3), ("s", 1e6)]
                    .iter()
                    .find_map(|(unit, us)| Some((bound.strip_suffix(unit)?, us)))
                    .ok_or_else(bad)?;
                let max_us = number(digits)? * us;
                if quantile > 1.0 || max_us == 0.0 || !max_us.is_finite() {
                    return Err(bad());
                }
                Ok(Self::Latency { quantile, max_us })
            }
        }
    }
}

/// One measurement of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The rate tried, turns per second.
    pub rate_per_s: f64,
    /// The figure measured.
    pub figure: f64,
    /// Whether it met the goal.
    pub met: bool,
}

/// Searches from `start_per_s` for the highest rate that `measure` finds to meet `goal`. Returns it (0 if none did)
/// and all trials in order.
pub fn search(
    goal: Goal,
    start_per_s: f64,
    mut measure: impl FnMut(f64) -> Result<Outcome, LoadError>,
) -> Result<(f64, Vec<Trial>), LoadError> {
    let (mut met, mut missed) = (0.0, f64::INFINITY);
    let mut rate_per_s = start_per_s.max(1.0);
    let mut trials = Vec::new();
    while trials.len() < TRIALS_MAX && rate_per_s >= 1.0 {
        let outcome = measure(rate_per_s)?;
        let trial = Trial { rate_per_s, figure: goal.figure(&outcome), met: goal.met(rate_per_s, &outcome) };
        trials.push(trial);
        if trial.met {
            met = rate_per_s;
        } else {
            missed = rate_per_s;
        }
        rate_per_s = match (met, missed) {
            (met, f64::INFINITY) => met * 2.0,
            (0.0, missed) => missed / 2.0,
            (met, missed) if missed / met < CLOSE => break,
            (met, missed) => (met * missed).sqrt(),
        };
    }
    Ok((met, trials))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose latency explodes at `capacity` turns a second.
    fn server(capacity: f64) -> impl FnMut(f64) -> Result<Outcome, LoadError> {
        move |rate_per_s| {
            let mut outcome = Outcome { elapsed_s: 1.0, turns: rate_per_s as u64, ..Outcome::default() };
            outcome.tally.turns = outcome.turns;
            let latency_us = if rate_per_s < capacity { 100.0 / (1.0 - rate_per_s / capacity) } else { 1e6 };
            outcome.latencies.record_ns((latency_us * 1e3) as u64);
            Ok(outcome)
        }
    }

    #[test]
    fn the_search_ends_just_below_the_bound() {
        let goal = Goal::Latency { quantile: 0.99, max_us: 1000.0 };
        for start in [10.0, 1e6] {
            let (rate, trials) = search(goal, start, server(50_000.0)).expect("searches");
            assert!((43_000.0..=45_100.0).contains(&rate), "{rate} after {trials:?}");
        }
    }

    #[test]
    fn a_goal_out_of_reach_gives_zero() {
        let goal = Goal::Latency { quantile: 0.99, max_us: 1.0 };
        assert_eq!(search(goal, 100.0, server(50_000.0)).expect("searches").0, 0.0);
    }

    #[test]
    fn targets_are_read_with_their_units() {
        assert_eq!("p99=1ms".parse(), Ok(Goal::Latency { quantile: 0.99, max_us: 1000.0 }));
        assert_eq!("errors=1%".parse(), Ok(Goal::Errors { max: 0.01 }));
        assert_eq!("misses=0.5".parse(), Ok(Goal::Misses { max: 0.5 }));
        for bad in ["p99", "p99=1", "p200=1ms", "x=1ms", "p99=-1ms", "errors=x", "p99=1e308s"] {
            assert!(bad.parse::<Goal>().is_err(), "{bad}");
        }
    }
}
