//! The bytes of keys and values: a function of key id and version alone, so that any answer can be checked.
//!
//! A key is its id in hex, zero-padded on the left to the wanted length (16 by default). A value opens with its
//! version as eight hex digits when it is that long; the rest is filled from key and version with letters that
//! can never look like a protocol line.

use crate::scramble::mix;

/// Key length used when nothing else is said, bytes.
pub const KEY_LEN_BYTES: usize = 16;
/// The protocol's longest key, bytes.
pub const KEY_LEN_MAX_BYTES: usize = 250;
/// The longest value asked for or believed, bytes: no memcached would store a longer one unasked.
pub const VALUE_LEN_MAX_BYTES: u32 = 1 << 30;
const VERSION_LEN_BYTES: usize = 8;
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends the key of `id`, `key_len_bytes` long (at most [`KEY_LEN_MAX_BYTES`]). Lengths too short for the id's
/// hex digits keep its low digits, which then stand for several ids.
pub fn push_key(out: &mut Vec<u8>, id: u64, key_len_bytes: usize) {
    let start = out.len();
    out.resize(start + key_len_bytes, b'0');
    let mut rest = id;
    for byte in out[start..].iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *byte = HEX[(rest & 15) as usize];
        rest >>= 4;
    }
}

/// The shortest key length that keeps `keys` ids apart, bytes.
pub fn key_len_min_bytes(keys: u64) -> usize {
    let bits = 64 - keys.saturating_sub(1).leading_zeros() as usize;
    bits.div_ceil(4).max(1)
}

/// Appends the value of `key` at `version`, `value_len_bytes` long.
pub fn push_value(out: &mut Vec<u8>, key: &[u8], version: u32, value_len_bytes: usize) {
    let end = out.len() + value_len_bytes;
    let version = if value_len_bytes >= VERSION_LEN_BYTES {
        for shift in (0..8).rev() {
            out.push(HEX[(version >> (shift * 4)) as usize & 15]);
        }
        version
    } else {
        0
    };
    let mut state = key_seed(key) ^ u64::from(version) << 32;
    while out.len() < end {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = mix(state);
        let take = (end - out.len()).min(10);
        out.extend((0..take).map(|i| LETTERS[(word >> (6 * i)) as usize & 63]));
    }
}

/// Whether `value` is what [`push_value`] writes for `key` at the version it carries.
pub fn value_is_intact(key: &[u8], value: &[u8], scratch: &mut Vec<u8>) -> bool {
    let mut version = 0u32;
    if value.len() >= VERSION_LEN_BYTES {
        for byte in &value[..VERSION_LEN_BYTES] {
            let Some(digit) = HEX.iter().position(|hex| hex == byte) else { return false };
            version = version << 4 | digit as u32;
        }
    }
    scratch.clear();
    push_value(scratch, key, version, value.len());
    scratch == value
}

/// What the bytes of a key hash to.
pub(crate) fn key_seed(key: &[u8]) -> u64 {
    key.chunks(8).fold(key.len() as u64, |seed, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(seed ^ u64::from_le_bytes(word)).wrapping_add(0x9e37_79b9_7f4a_7c15)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_zero_padded_hex() {
        let mut out = Vec::new();
        push_key(&mut out, 0xabc, 16);
        push_key(&mut out, 0, 3);
        assert_eq!(out, b"0000000000000abc000");
        assert_eq!(key_len_min_bytes(256), 2);
        assert_eq!(key_len_min_bytes(257), 3);
    }

    #[test]
    fn values_of_every_length_check_themselves() {
        let mut scratch = Vec::new();
        for len in [0, 1, 7, 8, 9, 32, 1000] {
            let mut value = Vec::new();
            push_value(&mut value, b"some key", 7, len);
            assert_eq!(value.len(), len);
            assert!(value_is_intact(b"some key", &value, &mut scratch), "length {len}");
            if len > 8 {
                assert!(!value_is_intact(b"other key", &value, &mut scratch));
                value[len - 1] ^= 1;
                assert!(!value_is_intact(b"some key", &value, &mut scratch));
            }
        }
    }

    #[test]
    fn versions_change_the_value() {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        push_value(&mut one, b"k", 1, 32);
        push_value(&mut two, b"k", 2, 32);
        assert_ne!(one[8..], two[8..]);
    }
}
