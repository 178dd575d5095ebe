//! Keys of 16 bytes, made from numbers, and the hash that every peer uses for them.

/// A key: two words, or sixteen bytes.
pub type Key = [u64; 2];

/// SplitMix64's finaliser: every input bit reaches every output bit, and no two inputs share an output.
#[inline]
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The key of a number.
#[inline]
pub fn numbered(number: u64) -> Key {
    [mix(number), number]
}

/// Its bytes, as an engine wants them.
#[inline]
pub fn bytes(key: &Key) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&key[0].to_le_bytes());
    bytes[8..].copy_from_slice(&key[1].to_le_bytes());
    bytes
}

/// The hash of a key.
#[inline]
pub fn hash(key: &Key) -> u64 {
    mix(key[0] ^ key[1].rotate_left(32))
}

/// Random numbers, cheap enough to be drawn while the clock runs.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The same `seed`, the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }
}
