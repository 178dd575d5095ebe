//! A bijection over `0..keys` that scatters ranks, so that hot keys are no neighbours.
//!
//! A four-round Feistel network over the next even number of bits, walked along its cycle until the image falls
//! back inside `0..keys` (Black & Rogaway, "Ciphers with arbitrary finite domains", 2002): at most four walks on
//! average, no memory, and every rank has exactly one key.

/// A keyed permutation of `0..keys`.
#[derive(Clone, Copy, Debug)]
pub struct Scramble {
    keys: u64,
    half_bits: u32,
    round_keys: [u64; 4],
}

impl Scramble {
    /// The permutation of `0..keys` chosen by `seed`. `keys` is 1 to 2^62.
    pub fn new(keys: u64, seed: u64) -> Self {
        assert!((1..=1 << 62).contains(&keys), "a permutation covers 1 to 2^62 keys");
        let bits = 64 - (keys - 1).leading_zeros();
        let mut state = seed;
        let round_keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        });
        Self { keys, half_bits: bits.div_ceil(2).max(1), round_keys }
    }

    /// The key that rank `rank` (below `keys`) stands for.
    #[inline]
    pub fn apply(&self, rank: u64) -> u64 {
        debug_assert!(rank < self.keys);
        let mask = (1u64 << self.half_bits) - 1;
        let mut at = rank;
        loop {
            let (mut left, mut right) = (at >> self.half_bits, at & mask);
            for round_key in self.round_keys {
                (left, right) = (right, left ^ (mix(right ^ round_key) & mask));
            }
            at = left << self.half_bits | right;
            if at < self.keys {
                return at;
            }
        }
    }
}

/// SplitMix64's finaliser: every input bit reaches every output bit.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_hit_exactly_once() {
        for keys in [1, 2, 3, 5, 16, 17, 1000, 65_537] {
            let scramble = Scramble::new(keys, 42);
            let mut seen = vec![false; keys as usize];
            for rank in 0..keys {
                let key = scramble.apply(rank) as usize;
                assert!(!std::mem::replace(&mut seen[key], true), "{keys} keys: key {key} hit twice");
            }
        }
    }

    #[test]
    fn hot_ranks_are_spread_over_the_key_space() {
        let keys = 1_000_000;
        let scramble = Scramble::new(keys, 42);
        let mut hot: Vec<u64> = (0..100).map(|rank| scramble.apply(rank)).collect();
        hot.sort_unstable();
        let neighbours = hot.windows(2).filter(|pair| pair[1] - pair[0] < 100).count();
        assert!(neighbours < 8, "{neighbours} of 99 gaps are below 100 keys");
        let lower_half = hot.iter().filter(|key| **key < keys / 2).count();
        assert!((30..=70).contains(&lower_half), "{lower_half} of 100 lie in the lower half");
    }

    #[test]
    fn ten_billion_keys_stay_in_range() {
        let keys = 10_000_000_000;
        let scramble = Scramble::new(keys, 1);
        assert!((0..10_000).all(|rank| scramble.apply(rank) < keys));
    }
}
