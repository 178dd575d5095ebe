//! Base64 as memcached speaks it for keys: written strictly, read with its decoder's leniency.
//!
//! The reader passes over bytes that are not base64 (so the `base64` crate would not do), wants a multiple of four of the
//! rest, lets the bits behind the last byte be anything, and stops after the first group with padding.

use guira_item::KEY_LEN_MAX;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes of the base64 text of the longest key.
pub(crate) const ENCODED_KEY_LEN_MAX: usize = KEY_LEN_MAX.div_ceil(3) * 4;

/// The most bytes a key of [`KEY_LEN_MAX`] base64 characters can stand for.
pub(crate) const DECODED_KEY_LEN_MAX: usize = KEY_LEN_MAX / 4 * 3;

/// Writes the base64 text of `bytes` to the front of `into` and returns its length.
pub(crate) fn encode(bytes: &[u8], into: &mut [u8]) -> usize {
    let mut len = 0;
    for (group, place) in bytes.chunks(3).zip(into.chunks_exact_mut(4)) {
        let byte = |index| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, character) in place.iter_mut().enumerate() {
            let value = bits >> (18 - 6 * index) & 63;
            *character = if index <= group.len() { ALPHABET[value as usize] } else { b'=' };
        }
        len += 4;
    }
    len
}

/// Reads the base64 text of a key; the bytes and how many they are.
pub(crate) fn decode_key(text: &[u8]) -> Option<([u8; DECODED_KEY_LEN_MAX], usize)> {
    let characters = || text.iter().filter_map(|byte| sextet(*byte));
    let count = characters().count();
    if count == 0 || !count.is_multiple_of(4) || count > KEY_LEN_MAX {
        return None;
    }
    let mut bytes = [0; DECODED_KEY_LEN_MAX];
    let mut len = 0;
    let mut bits = 0;
    let mut padding = 0;
    for (index, value) in characters().enumerate() {
        padding += usize::from(value.is_none());
        bits = bits << 6 | u32::from(value.unwrap_or(0));
        if index % 4 == 3 {
            bytes[len..len + 3].copy_from_slice(&bits.to_be_bytes()[1..]);
            len += 3;
            bits = 0;
            match padding {
                0 => {}
                1 | 2 => return Some((bytes, len - padding)),
                _ => return None,
            }
        }
    }
    Some((bytes, len))
}

/// The value of a base64 character, `Some(None)` for padding, `None` for anything else.
fn sextet(byte: u8) -> Option<Option<u8>> {
    match byte {
        b'A'..=b'Z' => Some(Some(byte - b'A')),
        b'a'..=b'z' => Some(Some(byte - b'a' + 26)),
        b'0'..=b'9' => Some(Some(byte - b'0' + 52)),
        b'+' => Some(Some(62)),
        b'/' => Some(Some(63)),
        b'=' => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &[u8]) -> Option<Vec<u8>> {
        let (bytes, len) = decode_key(text)?;
        let mut encoded = [0; ENCODED_KEY_LEN_MAX];
        let encoded_len = encode(&bytes[..len], &mut encoded);
        Some(encoded[..encoded_len].to_vec())
    }

    /// The answers of memcached 1.6.18 to `ms <text> 1 b k`.
    #[test]
    fn keys_are_read_as_memcached_reads_them() {
        for (text, back) in [
            ("YWI=", Some("YWI=")),
            ("YWJj", Some("YWJj")),
            ("YWJjZA==", Some("YWJjZA==")),
            ("AAAA", Some("AAAA")),
            ("/+8=", Some("/+8=")),
            ("YR==", Some("YQ==")),
            ("YQ==YQ==", Some("YQ==")),
            ("YQ=a", Some("YQA=")),
            ("Y=Q=", Some("YA==")),
            ("YWJj\t", Some("YWJj")),
            ("YQ=", None),
            ("Y", None),
            ("YWI", None),
            ("!!!!", None),
            ("====", None),
            ("_-8=", None),
        ] {
            assert_eq!(round(text.as_bytes()).as_deref(), back.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn every_length_comes_back() {
        let all: Vec<u8> = (0..DECODED_KEY_LEN_MAX).map(|index| (index * 7 + 130) as u8).collect();
        for len in 1..=DECODED_KEY_LEN_MAX {
            let mut text = [0; ENCODED_KEY_LEN_MAX];
            let text_len = encode(&all[..len], &mut text);
            let (bytes, decoded_len) = decode_key(&text[..text_len]).expect("valid");
            assert_eq!(&bytes[..decoded_len], &all[..len]);
        }
    }
}
