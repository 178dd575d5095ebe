//! A hash key: 60 bits, which is what a request has room for beside its kind.

/// Bits of a hash key.
const BITS: u32 = 60;

/// Bytes of a hash key's name: a hexadecimal digit for each four bits.
pub const NAME_LEN: usize = BITS as usize / 4;

/// A number below 2^60.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HashKey(u64);

impl HashKey {
    /// The lower 60 bits of `word`.
    #[inline]
    pub const fn from_low_bits(word: u64) -> Self {
        Self(word & ((1 << BITS) - 1))
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Its 15 lower-case hexadecimal digits: the key under which other protocols see the item.
    #[inline]
    pub fn name(self) -> [u8; NAME_LEN] {
        let mut name = [0; NAME_LEN];
        let (high, low) = name.split_at_mut(NAME_LEN - 8);
        high.copy_from_slice(&digits((self.0 >> 32) as u32)[1..]);
        low.copy_from_slice(&digits(self.0 as u32));
        name
    }
}

/// The eight hexadecimal digits of a number, all at once: requests come by the million.
#[inline]
fn digits(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut nibbles = u64::from(number);
    nibbles = (nibbles | nibbles << 16) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in each byte that is 10 or more.
    let letters = (nibbles + 6 * ONES) >> 4 & ONES;
    (nibbles + ONES * u64::from(b'0') + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_fifteen_digits() {
        assert_eq!(&HashKey::from_low_bits(0x1f).name(), b"00000000000001f");
        let mut word = 1u64;
        for _ in 0..1000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = HashKey::from_low_bits(word);
            assert_eq!(key.name().as_slice(), format!("{:015x}", word & (u64::MAX >> 4)).as_bytes());
        }
    }
}
