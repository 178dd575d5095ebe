//! Requests: one word of kind and hash key, and behind an INSERT's a size and a value.

use std::fmt;

use crate::HashKey;

/// Bytes of a LOOKUP, and the front part of an INSERT.
pub const LOOKUP_LEN: usize = 8;

/// Bytes of an INSERT before its value.
pub const INSERT_HEADER_LEN: usize = LOOKUP_LEN + 4;

/// Where a request's kind begins in its first word.
const KIND_SHIFT: u32 = 60;
const LOOKUP: u64 = 1;
const INSERT: u64 = 2;

/// One whole request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The value under a hash key is wanted.
    Lookup(HashKey),
    /// A value to be kept under a hash key, at least one byte. Nobody waits for an answer.
    Insert {
        /// The hash key.
        key: HashKey,
        /// The value.
        value: &'a [u8],
    },
}

/// What stands at the front of some input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// A request.
    Whole {
        /// It.
        request: Request<'a>,
        /// Its length, bytes.
        len: usize,
    },
    /// The beginning of one, or nothing.
    Unfinished(Unfinished),
    /// No request, whatever follows.
    Malformed(Malformed),
}

/// A request of which the end is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfinished {
    /// Its fixed part will be, or is at least, this long, bytes.
    Header {
        /// Bytes from its start on.
        total_len: usize,
    },
    /// An INSERT's value has not all come.
    Value {
        /// Its hash key.
        key: HashKey,
        /// Length of the value, bytes.
        value_len: usize,
    },
}

/// Why bytes are no request. Nothing behind them can be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Neither LOOKUP nor INSERT.
    Kind(u8),
    /// An INSERT of an empty value, which a LOOKUP could not tell from none.
    Empty,
    /// An INSERT of a longer value than is kept, bytes.
    TooLong {
        /// Its length.
        len: u32,
        /// The longest.
        max: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "a request of kind {kind}, which is neither LOOKUP (1) nor INSERT (2)"),
            Self::Empty => write!(f, "an INSERT of size 0, which would look like a miss"),
            Self::TooLong { len, max } => write!(f, "an INSERT of {len} bytes, where {max} are the most"),
        }
    }
}

impl std::error::Error for Malformed {}

/// The hash key of the request that `input` begins with, good for prefetching: nothing is checked.
#[inline]
pub fn first_key(input: &[u8]) -> Option<HashKey> {
    input.first_chunk().map(|word| HashKey::from_low_bits(u64::from_le_bytes(*word)))
}

/// The request at the front of `input`, whose value may have `value_len_max` bytes.
#[inline]
pub fn step(input: &[u8], value_len_max: usize) -> Step<'_> {
    let Some(word) = input.first_chunk() else {
        return Step::Unfinished(Unfinished::Header { total_len: LOOKUP_LEN });
    };
    let word = u64::from_le_bytes(*word);
    let key = HashKey::from_low_bits(word);
    match word >> KIND_SHIFT {
        LOOKUP => Step::Whole { request: Request::Lookup(key), len: LOOKUP_LEN },
        INSERT => insert(input, key, value_len_max),
        kind => Step::Malformed(Malformed::Kind(kind as u8)),
    }
}

#[inline]
fn insert(input: &[u8], key: HashKey, value_len_max: usize) -> Step<'_> {
    let Some(size) = input[LOOKUP_LEN..].first_chunk() else {
        return Step::Unfinished(Unfinished::Header { total_len: INSERT_HEADER_LEN });
    };
    let size = u32::from_le_bytes(*size);
    let value_len = size as usize;
    if value_len == 0 {
        return Step::Malformed(Malformed::Empty);
    }
    if value_len > value_len_max {
        return Step::Malformed(Malformed::TooLong { len: size, max: value_len_max });
    }
    match input[INSERT_HEADER_LEN..].get(..value_len) {
        Some(value) => Step::Whole { request: Request::Insert { key, value }, len: INSERT_HEADER_LEN + value_len },
        None => Step::Unfinished(Unfinished::Value { key, value_len }),
    }
}

/// Appends a LOOKUP.
pub fn push_lookup(out: &mut Vec<u8>, key: HashKey) {
    out.extend_from_slice(&(LOOKUP << KIND_SHIFT | key.get()).to_le_bytes());
}

/// Appends an INSERT.
///
/// # Panics
/// If the value is empty or longer than 4 GiB - 1 bytes: neither can be said.
pub fn push_insert(out: &mut Vec<u8>, key: HashKey, value: &[u8]) {
    let size = u32::try_from(value.len()).ok().filter(|size| *size > 0).expect("a value of 1 to 2^32 - 1 bytes");
    out.extend_from_slice(&(INSERT << KIND_SHIFT | key.get()).to_le_bytes());
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 100;

    fn key(number: u64) -> HashKey {
        HashKey::from_low_bits(number)
    }

    #[test]
    fn what_is_written_is_read_at_every_cut() {
        let mut bytes = Vec::new();
        push_lookup(&mut bytes, key(0x1f));
        push_insert(&mut bytes, key(u64::MAX), b"value");
        push_lookup(&mut bytes, key(0));
        let wanted = [
            Request::Lookup(key(0x1f)),
            Request::Insert { key: key(u64::MAX), value: b"value" },
            Request::Lookup(key(0)),
        ];
        for cut in 0..=bytes.len() {
            let (mut from, mut found) = (0, Vec::new());
            for to in [cut, bytes.len()] {
                while let Step::Whole { request, len } = step(&bytes[from..to], MAX) {
                    found.push(request);
                    from += len;
                }
            }
            assert_eq!((from, found.as_slice()), (bytes.len(), wanted.as_slice()), "cut at {cut}");
        }
    }

    #[test]
    fn the_layout_is_this_one() {
        let mut bytes = Vec::new();
        push_lookup(&mut bytes, key(0x0102_0304_0506_0708));
        push_insert(&mut bytes, key(0x1f), b"ab");
        assert_eq!(bytes, b"\x08\x07\x06\x05\x04\x03\x02\x11\x1f\0\0\0\0\0\0\x20\x02\0\0\0ab");
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut bytes = Vec::new();
        push_insert(&mut bytes, key(7), &[b'v'; 10]);
        let header = |total_len| Step::Unfinished(Unfinished::Header { total_len });
        for len in 0..bytes.len() {
            let expected = match len {
                0..LOOKUP_LEN => header(LOOKUP_LEN),
                LOOKUP_LEN..INSERT_HEADER_LEN => header(INSERT_HEADER_LEN),
                _ => Step::Unfinished(Unfinished::Value { key: key(7), value_len: 10 }),
            };
            assert_eq!(step(&bytes[..len], MAX), expected, "{len} bytes");
        }
    }

    #[test]
    fn nonsense_is_noticed_before_a_value_is_waited_for() {
        for kind in (0..16u64).filter(|kind| !matches!(*kind, LOOKUP | INSERT)) {
            let word = (kind << KIND_SHIFT | 5).to_le_bytes();
            assert_eq!(step(&word, MAX), Step::Malformed(Malformed::Kind(kind as u8)));
        }
        let header = |size: u32| [(INSERT << KIND_SHIFT).to_le_bytes().as_slice(), &size.to_le_bytes()].concat();
        assert_eq!(step(&header(0), MAX), Step::Malformed(Malformed::Empty));
        for len in [101, u32::MAX] {
            assert_eq!(step(&header(len), MAX), Step::Malformed(Malformed::TooLong { len, max: MAX }));
        }
        let longest = Unfinished::Value { key: key(0), value_len: MAX };
        assert_eq!(step(&header(100), MAX), Step::Unfinished(longest));
    }

    #[test]
    fn the_first_key_needs_no_more_than_its_word() {
        let mut bytes = Vec::new();
        push_insert(&mut bytes, key(9), b"v");
        assert_eq!(first_key(&bytes[..LOOKUP_LEN]), Some(key(9)));
        assert_eq!(first_key(&bytes[..LOOKUP_LEN - 1]), None);
    }
}
