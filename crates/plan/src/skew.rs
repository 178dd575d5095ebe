//! Which share of all requests goes to the hottest keys, if these are asked for as Zipf has it: the key of rank `r` with probability in proportion to `r` to the power of `-exponent`.
//!
//! Always true: what is summed up is exact to some ten digits, for however many keys: the first thousand terms are added, and of the rest the Euler-Maclaurin formula is
//! taken to its first derivative, whose error is below the thousandth term's last billionth.

use std::fmt;

/// Terms that are added one by one.
const ADDED: u64 = 1_000;

/// How requests are spread over keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Skew {
    keys: u64,
    exponent: f64,
}

/// What is no skew.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SkewError {
    /// There is no key.
    NoKey,
    /// The exponent is none from 0 (all are asked for as often) to 10.
    Exponent(f64),
}

impl fmt::Display for SkewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("keys: at least one"),
            Self::Exponent(exponent) => write!(f, "skew {exponent}: from 0 (all keys are asked for as often) to 10"),
        }
    }
}

impl std::error::Error for SkewError {}

impl Skew {
    /// So many keys, and Zipf's exponent.
    ///
    /// # Errors
    /// [`SkewError`].
    pub fn new(keys: u64, exponent: f64) -> Result<Self, SkewError> {
        match (keys, exponent) {
            (0, _) => Err(SkewError::NoKey),
            (_, 0.0..=10.0) => Ok(Self { keys, exponent }),
            _ => Err(SkewError::Exponent(exponent)),
        }
    }

    /// Keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The share of requests, 0 to 1, that goes to so many of the hottest keys.
    pub fn share_of_hottest(&self, keys: u64) -> f64 {
        self.weight_of_hottest(keys.min(self.keys)) / self.weight_of_hottest(self.keys)
    }

    /// The sum of the weights of the first ranks.
    fn weight_of_hottest(&self, keys: u64) -> f64 {
        let weight = |rank: f64| rank.powf(-self.exponent);
        let added: f64 = (1..=keys.min(ADDED)).rev().map(|rank| weight(rank as f64)).sum();
        if keys <= ADDED {
            return added;
        }
        let (from, to) = (ADDED as f64, keys as f64);
        let power = 1.0 - self.exponent;
        // (to^power - from^power) / power, continued through exponent 1.
        let log = (to / from).ln();
        let over = if (power * log).abs() > 1e-8 { (power * log).exp_m1() / power } else { log };
        let integral = from.powf(power) * over;
        let derivative = |rank: f64| -self.exponent * weight(rank) / rank;
        added + integral + (weight(to) - weight(from)) / 2.0 + (derivative(to) - derivative(from)) / 12.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(keys: u64, exponent: f64, hottest: u64) -> f64 {
        Skew::new(keys, exponent).unwrap().share_of_hottest(hottest)
    }

    #[test]
    fn sums_are_those_of_terms_that_are_added_one_by_one() {
        for exponent in [0.0, 0.5, 0.9, 0.99, 1.0, 1.01, 2.0] {
            let added = |keys: u64| (1..=keys).rev().map(|rank| (rank as f64).powf(-exponent)).sum::<f64>();
            let skew = Skew::new(u64::MAX, exponent).unwrap();
            for keys in [1, 2, ADDED, ADDED + 1, 3_000_000] {
                let (summed, exact) = (skew.weight_of_hottest(keys), added(keys));
                assert!((summed / exact - 1.0).abs() < 1e-10, "{exponent} {keys}: {summed}, not {exact}");
            }
        }
    }

    /// Section 7.1 of ccKVS says 46, 65 and 69 % of a thousandth of 250 million keys: some points more than Zipf's law has.
    #[test]
    fn hit_ratios_of_a_thousandth_of_the_papers_keys() {
        for (exponent, exact, paper) in [(0.9, 42.2, 46.0), (0.99, 63.0, 65.0), (1.01, 67.5, 69.0)] {
            let percent = 100.0 * share(250_000_000, exponent, 250_000);
            assert!((percent - exact).abs() < 0.1 && (0.0..4.0).contains(&(paper - percent)), "{exponent}: {percent}");
        }
    }

    #[test]
    fn all_keys_take_all_requests_and_none_none() {
        for exponent in [0.0, 1.0, 3.0] {
            assert_eq!([0, 7, 8].map(|hottest| share(7, exponent, hottest)), [0.0, 1.0, 1.0]);
        }
        assert!((share(1_000_000, 0.0, 1_000) - 0.001).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_skew_is_refused() {
        assert_eq!(Skew::new(0, 1.0), Err(SkewError::NoKey));
        for exponent in [-0.1, 10.1, f64::INFINITY] {
            assert_eq!(Skew::new(1, exponent), Err(SkewError::Exponent(exponent)));
        }
        assert!(matches!(Skew::new(1, f64::NAN), Err(SkewError::Exponent(_))));
    }
}
