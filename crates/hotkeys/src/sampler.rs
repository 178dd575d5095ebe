//! Picks one query in so many, at random: what is picked at regular intervals may go by the same beat as the queries.

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

/// Picks each query with the same probability, whatever was picked before.
#[derive(Clone, Debug)]
pub struct Sampler {
    one_in: u32,
    /// Queries until the next one that is picked.
    left: u64,
    rng: Xoshiro256PlusPlus,
}

impl Sampler {
    /// Picks one in `one_in`: 1 is all of them.
    ///
    /// # Panics
    /// `one_in` is 0.
    pub fn new(one_in: u32, seed: u64) -> Self {
        assert!(one_in > 0, "one in none");
        let mut made = Self { one_in, left: 0, rng: Xoshiro256PlusPlus::seed_from_u64(seed) };
        made.left = made.gap();
        made
    }

    /// How many queries one that is picked stands for.
    pub fn one_in(&self) -> u32 {
        self.one_in
    }

    /// Whether this query is picked. A subtraction for most of them.
    pub fn picks(&mut self) -> bool {
        if self.one_in == 1 {
            return true;
        }
        let is_picked = self.left == 0;
        self.left = if is_picked { self.gap() } else { self.left - 1 };
        is_picked
    }

    /// How many are passed over before the next: the geometric distribution, by the inverse of its distribution function.
    fn gap(&mut self) -> u64 {
        let passed_over = 1.0 - 1.0 / f64::from(self.one_in);
        // Above 0: so its logarithm is a number.
        let draw = 1.0 - self.rng.random::<f64>();
        (draw.ln() / passed_over.ln()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_picked_or_about_one_in_so_many() {
        let mut all = Sampler::new(1, 1);
        assert!((0..1_000).all(|_| all.picks()));
        for one_in in [2, 7, 100] {
            let mut sampler = Sampler::new(one_in, 1);
            const QUERIES: u32 = 1_000_000;
            let picked = (0..QUERIES).filter(|_| sampler.picks()).count() as f64;
            let (expected, p) = (f64::from(QUERIES) / f64::from(one_in), 1.0 / f64::from(one_in));
            // Six standard deviations of the binomial distribution.
            let bound = 6.0 * (f64::from(QUERIES) * p * (1.0 - p)).sqrt();
            assert!((picked - expected).abs() < bound, "one in {one_in}: {picked}");
        }
    }

    #[test]
    fn no_beat_hides_a_query() {
        let mut sampler = Sampler::new(10, 2);
        let mut picked = [0; 10];
        for query in 0..100_000 {
            picked[query % 10] += u32::from(sampler.picks());
        }
        assert!(picked.iter().all(|picked| (700..1_300).contains(picked)), "{picked:?}");
    }
}
