//! Which key comes next: uniform, zipf, or the latest-biased choice of YCSB D.
//!
//! Always true: a source yields ids below its number of keys, and the popularity of an id depends only on the
//! source's seed, not on the number of draws.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::scramble::Scramble;
use crate::zipf::Zipf;

/// A popularity distribution over keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// Every key alike.
    Uniform,
    /// Zipf with this exponent, ranks scattered over the key space.
    Zipf {
        /// The exponent; 0 is uniform, YCSB uses 0.99.
        exponent: f64,
    },
    /// YCSB D: zipf with this exponent by age, the newest key the most popular.
    Latest {
        /// The exponent over ages.
        exponent: f64,
    },
}

/// Draws key ids.
#[derive(Clone, Debug)]
pub struct KeySource {
    choice: Choice,
    keys: u64,
}

#[derive(Clone, Debug)]
enum Choice {
    Uniform,
    Zipf { zipf: Zipf, scramble: Scramble },
    Latest { zipf: Zipf, newest: u64 },
}

impl KeySource {
    /// A source over ids `0..keys`; `seed` chooses which ids are hot.
    pub fn new(popularity: Popularity, keys: u64, seed: u64) -> Self {
        let choice = match popularity {
            Popularity::Uniform => Choice::Uniform,
            Popularity::Zipf { exponent } => {
                Choice::Zipf { zipf: Zipf::new(keys, exponent), scramble: Scramble::new(keys, seed) }
            }
            Popularity::Latest { exponent } => Choice::Latest { zipf: Zipf::new(keys, exponent), newest: keys - 1 },
        };
        Self { choice, keys }
    }

    /// The id of the next key to use.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        match &self.choice {
            Choice::Uniform => rng.random_range(0..self.keys),
            Choice::Zipf { zipf, scramble } => scramble.apply(zipf.sample(rng)),
            Choice::Latest { zipf, newest } => {
                let age = zipf.sample(rng);
                newest.checked_sub(age).unwrap_or(newest + self.keys - age)
            }
        }
    }

    /// The id for an insert: for [`Popularity::Latest`] the oldest id is recycled as the newest, so that memory
    /// stays bounded; otherwise a drawn key.
    pub fn insert(&mut self, rng: &mut impl Rng) -> u64 {
        if let Choice::Latest { newest, .. } = &mut self.choice {
            *newest = (*newest + 1) % self.keys;
            return *newest;
        }
        self.draw(rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    #[test]
    fn every_popularity_stays_in_range() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for popularity in
            [Popularity::Uniform, Popularity::Zipf { exponent: 1.1 }, Popularity::Latest { exponent: 0.99 }]
        {
            let mut source = KeySource::new(popularity, 77, 1);
            assert!((0..5_000).all(|_| source.draw(&mut rng) < 77 && source.insert(&mut rng) < 77));
        }
    }

    #[test]
    fn uniform_draws_are_flat() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let source = KeySource::new(Popularity::Uniform, 10, 1);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[source.draw(&mut rng) as usize] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn latest_prefers_what_was_inserted_last() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut source = KeySource::new(Popularity::Latest { exponent: 0.99 }, 1_000, 1);
        let newest = source.insert(&mut rng);
        let hits = (0..10_000).filter(|_| source.draw(&mut rng) == newest).count();
        assert!((1_100..1_600).contains(&hits), "{hits} of 10000 went to the newest key");
    }
}
