//! How many updates a second a switch takes, as it was seen to.
//!
//! Always true: only what was waited for counts, and only many updates at a time, for of a few most of the time is the way there and back.

use guira_item::Span;

/// Updates that have to be told at a time to count.
const UPDATES_MIN: usize = 16;

/// What one batch counts, of all.
const WEIGHT: f64 = 1.0 / 8.0;

/// The rate.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Rate(Option<f64>);

impl Rate {
    /// So many updates took so long.
    pub(crate) fn saw(&mut self, updates: usize, took: Span) {
        if updates < UPDATES_MIN || took.ns() == 0 {
            return;
        }
        let seen = updates as f64 / took.as_s();
        self.0 = Some(self.0.map_or(seen, |so_far| so_far + (seen - so_far) * WEIGHT));
    }

    /// Updates a second; `None` before many were told.
    pub(crate) fn per_s(self) -> Option<f64> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_first_ones_and_nears_the_later_ones() {
        let mut rate = Rate::default();
        rate.saw(UPDATES_MIN - 1, Span::from_ms(1));
        assert_eq!(rate.per_s(), None);
        rate.saw(100, Span::from_ms(10));
        assert_eq!(rate.per_s(), Some(10_000.0));
        (0..50).for_each(|_| rate.saw(100, Span::from_ms(100)));
        let per_s = rate.per_s().unwrap();
        assert!((1_000.0..1_020.0).contains(&per_s), "{per_s}");
        rate.saw(100, Span::default());
        assert_eq!(rate.per_s(), Some(per_s), "in no time at all it was not");
    }
}
