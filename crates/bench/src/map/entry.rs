//! Keys and values of the maps, made from numbers while the clock runs, so that no array of keys is in the caches' way.
//!
//! Always true: no two numbers share a key; a value tells its key in every word, so that a wrong or torn one is noticed,
//! however often it was updated.

/// Bits of a value's word that count its updates.
const UPDATE_BITS: u32 = 16;
const UPDATES: u64 = (1 << UPDATE_BITS) - 1;

/// The key of a number: a product that mixes upwards, and its upper half folded onto the lower, both reversible.
#[inline]
pub(super) const fn key(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// Random numbers by wyrand: of the generators that are random enough the one that a map's lookups feel least.
pub(super) struct Draw(u64);

impl Draw {
    /// The same `seed`, the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        let bits = product as u64 ^ (product >> 64) as u64;
        ((u128::from(bits) * u128::from(end)) >> 64) as u64
    }
}

/// What a map holds for a key: words that all say the same.
pub trait Value: Copy + Send + Sync + 'static {
    /// The value of a key.
    fn of(key: u64) -> Self;

    /// The same, updated once more.
    fn updated(&self) -> Self;

    /// 0 if it is a value of `key`. Looks at every word.
    fn difference(&self, key: u64) -> u64;
}

impl<const WORDS: usize> Value for [u64; WORDS] {
    #[inline]
    fn of(key: u64) -> Self {
        [key & !UPDATES; WORDS]
    }

    #[inline]
    fn updated(&self) -> Self {
        let word = self[0];
        [word & !UPDATES | word.wrapping_add(1) & UPDATES; WORDS]
    }

    #[inline]
    fn difference(&self, key: u64) -> u64 {
        let torn = self.iter().fold(0, |torn, word| torn | (word ^ self[0]));
        torn | ((self[0] ^ key) & !UPDATES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_numbers_share_a_key() {
        let keys: std::collections::HashSet<u64> = (0..100_000).chain(1 << 40..(1 << 40) + 100_000).map(key).collect();
        assert_eq!(keys.len(), 200_000);
    }

    #[test]
    fn every_number_is_drawn_about_as_often() {
        let (mut draw, mut counts) = (Draw::new(1), [0u32; 100]);
        (0..100_000).for_each(|_| counts[draw.below(100) as usize] += 1);
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_value_is_known_after_any_number_of_updates_and_a_torn_one_is_not() {
        let (ours, other) = (key(7), key(8));
        let mut value = <[u64; 4]>::of(ours);
        for _ in 0..70_000 {
            value = value.updated();
            assert_eq!(value.difference(ours), 0);
        }
        assert_ne!(value.difference(other), 0);
        value[3] ^= 1;
        assert_ne!(value.difference(ours), 0);
    }
}
