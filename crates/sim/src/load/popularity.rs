//! Which key is asked for: zipf over ranks, and which key has which rank, as that changes (SwitchKV, section 4.4).
//!
//! ```text
//! rank    0 ........ NAMED | NAMED ...... keys
//! index   listed one by one | rank + shift         --scramble--> key
//! ```
//! Always true: two ranks have two indices, but for those few that a change takes from the very cold end.

use std::collections::VecDeque;

use guira_loadgen::{scramble::Scramble, zipf::Zipf};
use rand::{Rng, RngExt};

use super::{Change, Pattern};

/// Ranks whose indices are listed: more than any change of the paper's touches.
const NAMED: u64 = 1 << 16;

/// Bytes of a key: a number in hexadecimal (16, as the paper's).
pub(crate) const KEY_LEN: usize = 16;

/// A key by its bytes.
pub(crate) type KeyName = [u8; KEY_LEN];

/// The popularity of all keys.
#[derive(Debug)]
pub(crate) struct Popularity {
    zipf: Zipf,
    scramble: Scramble,
    keys: u64,
    named: VecDeque<u64>,
    /// What is added to the ranks that are not listed.
    shift: i64,
    /// Indices from here on have been taken from the cold end.
    cold: u64,
}

impl Popularity {
    pub(crate) fn new(keys: u64, exponent: f64, seed: u64) -> Self {
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
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> u64 {
        self.zipf.sample(rng)
    }

    /// The key of a rank.
    pub(crate) fn key(&self, rank: u64) -> KeyName {
        let index = match self.named.get(rank as usize) {
            Some(index) => *index,
            None => rank.wrapping_add_signed(self.shift) % self.keys,
        };
        self.name(index)
    }

    /// Any key, each as likely.
    pub(crate) fn any_key(&self, rng: &mut impl Rng) -> KeyName {
        self.name(rng.random_range(0..self.keys))
    }

    fn name(&self, index: u64) -> KeyName {
        let number = self.scramble.apply(index);
        std::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at) & 15) as usize])
    }

    /// Some keys take others' ranks.
    pub(crate) fn change(&mut self, change: &Change, rng: &mut impl Rng) {
        for _ in 0..change.keys {
            match change.pattern {
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
    use guira_item::Span;

    fn keys(popularity: &Popularity, ranks: std::ops::Range<u64>) -> Vec<KeyName> {
        ranks.map(|rank| popularity.key(rank)).collect()
    }

    fn changed(pattern: Pattern, keys: usize) -> (Popularity, Popularity) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut popularity = Popularity::new(10_000_000_000, 0.99, 3);
        popularity.change(&Change { pattern, keys, first: Span::from_s(1), every: Span::from_s(1) }, &mut rng);
        (Popularity::new(10_000_000_000, 0.99, 3), popularity)
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
