//! Zipf ranks in constant memory, for up to 10^10 keys and any exponent from 0 up, 1 and beyond included.
//!
//! Rejection-inversion: draw from the integral of `x^-s`, which can be inverted, round to a rank, and reject the
//! few draws where the rounding favoured it (Hörmann & Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996). About 1.1 draws a rank, no table.

use rand::{Rng, RngExt};

/// Draws ranks `0..keys`, rank `r` with probability proportional to `(r + 1)^-exponent`.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    keys: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    squeeze: f64,
}

impl Zipf {
    /// A sampler over `keys` ranks. `keys` is at least 1; `exponent` is finite and not negative (0 is uniform).
    pub fn new(keys: u64, exponent: f64) -> Self {
        assert!(keys >= 1, "a distribution needs a key");
        assert!(exponent.is_finite() && exponent >= 0.0, "a zipf exponent is finite and not negative");
        let mut zipf = Self { keys: keys as f64, exponent, integral_first: 0.0, integral_last: 0.0, squeeze: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(zipf.keys + 0.5);
        zipf.squeeze = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// One rank, 0 the most popular.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        loop {
            let uniform: f64 = rng.random();
            let area = self.integral_last + uniform * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.keys);
            if rank - x <= self.squeeze || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.exponent) * log) * log
    }

    fn integral_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (log1p_over(t) * area).exp()
    }
}

/// `ln(1 + x) / x`, continued through 0, where exponents near 1 land.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)) }
}

/// `(e^x - 1) / x`, continued through 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x * 0.5 * (1.0 + x / 3.0 * (1.0 + 0.25 * x)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    /// Chi-squared of `draws` samples against the exact probabilities, tail ranks pooled into bins of 20 or more.
    fn chi_squared_per_degree(keys: u64, exponent: f64, draws: u64) -> f64 {
        let zipf = Zipf::new(keys, exponent);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut counts = vec![0u64; keys as usize];
        for _ in 0..draws {
            counts[zipf.sample(&mut rng) as usize] += 1;
        }
        let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        let (mut chi, mut bins, mut expected, mut seen) = (0.0, 0, 0.0, 0.0);
        for (weight, count) in weights.iter().zip(&counts) {
            expected += weight / total * draws as f64;
            seen += *count as f64;
            if expected >= 20.0 {
                chi += (seen - expected).powi(2) / expected;
                bins += 1;
                (expected, seen) = (0.0, 0.0);
            }
        }
        chi / f64::from(bins - 1)
    }

    #[test]
    fn frequencies_match_exact_zipf_below_at_and_above_one() {
        for exponent in [0.0, 0.2, 0.5, 0.99, 1.0, 1.2, 2.0] {
            let chi = chi_squared_per_degree(1_000, exponent, 200_000);
            assert!((0.7..1.3).contains(&chi), "exponent {exponent}: chi-squared per degree {chi}");
        }
    }

    #[test]
    fn ten_billion_keys_give_the_exact_share_to_the_first_rank() {
        let keys = 10_000_000_000u64;
        let zipf = Zipf::new(keys, 0.99);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let draws = 300_000;
        let mut first = 0u32;
        for _ in 0..draws {
            let rank = zipf.sample(&mut rng);
            assert!(rank < keys);
            first += u32::from(rank == 0);
        }
        // Harmonic number by Euler-Maclaurin: the integral, half of the last term, and zeta's constant part.
        let head: f64 = (1..=1000u32).map(|n| f64::from(n).powf(-0.99)).sum();
        let tail = ((keys as f64).powf(0.01) - 1000.5f64.powf(0.01)) / 0.01;
        let expected = f64::from(draws) / (head + tail);
        let sigma = expected.sqrt();
        assert!((f64::from(first) - expected).abs() < 4.0 * sigma, "{first} first ranks, expected {expected}");
    }

    #[test]
    fn one_key_is_always_rank_zero() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        assert!((0..100).all(|_| Zipf::new(1, 1.0).sample(&mut rng) == 0));
    }
}
