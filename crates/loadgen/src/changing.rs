//! Popularity that changes: zipf over ranks, and which key has which rank at a time (SwitchKV, section 4.4).
//!
//! ```text
//! rank    0 ........ NAMED | NAMED ...... keys
//! index   listed one by one | rank + shift         --scramble--> key
//! ```
//! Always true: two ranks have two indices, but for those few that a change takes from the very cold end.

use std::collections::VecDeque;

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::{scramble::Scramble, zipf::Zipf};

/// Ranks whose indices are listed: more than any change of the paper's touches.
const NAMED: u64 = 1 << 16;

/// How popularity changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Cold keys become the hottest.
    HotIn,
    /// The hottest keys become the coldest.
    HotOut,
    /// Cold keys take the places of some.
    Random {
        /// Of so many that are the hottest.
        of: usize,
    },
}

/// The keys `0..keys`, by their popularity.
#[derive(Clone, Debug)]
pub struct ChangingKeys {
    zipf: Zipf,
    scramble: Scramble,
    keys: u64,
    named: VecDeque<u64>,
    /// What is added to the ranks that are not listed.
    shift: i64,
    /// Indices from here on have been taken from the cold end.
    cold: u64,
}

impl ChangingKeys {
    /// `keys` of them, 1 to 2^62; zipf with `exponent`, 0 being uniform; `seed` chooses which are hot.
    pub fn new(keys: u64, exponent: f64, seed: u64) -> Self {
        Self {
            zipf: Zipf::new(keys, exponent),
            scramble: Scramble::new(keys, seed),
            keys,
            named: (0..keys.min(NAMED)).collect(),
            shift: 0,
            cold: keys,
        }
    }

    /// The rank of the next key.
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        self.zipf.sample(rng)
    }

    /// The key that has a rank now.
    pub fn key(&self, rank: u64) -> u64 {
        let index = match self.named.get(rank as usize) {
            Some(index) => *index,
            None => rank.wrapping_add_signed(self.shift) % self.keys,
        };
        self.scramble.apply(index)
    }

    /// Any key, each as likely.
    pub fn any_key(&self, rng: &mut impl Rng) -> u64 {
        self.scramble.apply(rng.random_range(0..self.keys))
    }

    /// So many keys take others' ranks.
    pub fn change(&mut self, pattern: Pattern, keys: usize, rng: &mut impl Rng) {
        for _ in 0..keys {
            match pattern {
                Pattern::HotIn => {
                    let cold = self.next_cold();
                    self.named.push_front(cold);
                    self.named.pop_back();
                    self.shift -= 1;
                }
                Pattern::HotOut => {
                    self.named.pop_front();
                    self.named.push_back((self.named.len() as u64 + 1).wrapping_add_signed(self.shift) % self.keys);
                    self.shift += 1;
                }
                Pattern::Random { of } => {
                    let cold = self.next_cold();
                    let rank = rng.random_range(0..of.min(self.named.len()));
                    self.named[rank] = cold;
                }
            }
        }
    }

    fn next_cold(&mut self) -> u64 {
        self.cold -= 1;
        self.cold
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};

    use super::*;

    fn keys(popularity: &ChangingKeys, ranks: std::ops::Range<u64>) -> Vec<u64> {
        ranks.map(|rank| popularity.key(rank)).collect()
    }

    fn changed(pattern: Pattern, keys: usize) -> (ChangingKeys, ChangingKeys) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut popularity = ChangingKeys::new(10_000_000_000, 0.99, 3);
        popularity.change(pattern, keys, &mut rng);
        (ChangingKeys::new(10_000_000_000, 0.99, 3), popularity)
    }

    #[test]
    fn hot_in_moves_all_others_down() {
        let (before, after) = changed(Pattern::HotIn, 200);
        let end = NAMED + 1_000;
        assert_eq!(keys(&before, 0..end), keys(&after, 200..end + 200));
        let old: BTreeSet<_> = keys(&before, 0..end).into_iter().collect();
        assert!(keys(&after, 0..200).iter().all(|key| !old.contains(key)));
    }

    #[test]
    fn hot_out_moves_all_others_up() {
        let (before, after) = changed(Pattern::HotOut, 200);
        let end = NAMED + 1_000;
        assert_eq!(keys(&before, 200..end), keys(&after, 0..end - 200));
    }

    #[test]
    fn random_replaces_keys_among_the_hottest_only() {
        let (before, after) = changed(Pattern::Random { of: 10_000 }, 200);
        let is_other = |rank: &u64| before.key(*rank) != after.key(*rank);
        assert!((190..=200).contains(&(0..10_000).filter(is_other).count()));
        assert_eq!((10_000..NAMED + 1_000).filter(is_other).count(), 0);
    }
}
