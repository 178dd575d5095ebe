//! How a record is written as the value of a key-value store.
//!
//! ```text
//! format u8 (1) | marks u8 | flags u32 | generation u32 | version u64 | expires, Unix time in seconds u64 (0: never) | value
//! ```
//! Numbers are little-endian. What stands before the value has a fixed length, so that a compaction can tell the dead from the living
//! by it. Checksums are the store's business: it has them for whole blocks.

use guira_item::store::{Generation, Record};

/// The format that is written, and the only one that is read.
pub const FORMAT: u8 = 1;

/// Bytes before the value.
pub const HEADER_LEN: usize = 1 + 1 + 4 + 4 + 8 + 8;

const STALE: u8 = 1;
const WON: u8 = 2;

/// Appends a record to `to`.
pub fn encode(record: &Record<&[u8]>, to: &mut Vec<u8>) {
    let marks = (u8::from(record.stale) * STALE) | (u8::from(record.win_sent) * WON);
    to.reserve(HEADER_LEN + record.value.len());
    to.extend_from_slice(&[FORMAT, marks]);
    to.extend_from_slice(&record.flags.to_le_bytes());
    to.extend_from_slice(&record.generation.0.to_le_bytes());
    to.extend_from_slice(&record.version.to_le_bytes());
    to.extend_from_slice(&record.expires_unix_s.to_le_bytes());
    to.extend_from_slice(record.value);
}

/// A record from its bytes; `None` if they are none of this format.
pub fn decode(bytes: &[u8]) -> Option<Record<&[u8]>> {
    let (header, value) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let (&[format, marks], rest) = header.split_first_chunk()?;
    let (flags, rest) = rest.split_first_chunk()?;
    let (generation, rest) = rest.split_first_chunk()?;
    let (version, rest) = rest.split_first_chunk()?;
    let (expires_unix_s, _) = rest.split_first_chunk()?;
    (format == FORMAT && marks & !(STALE | WON) == 0).then_some(Record {
        flags: u32::from_le_bytes(*flags),
        expires_unix_s: u64::from_le_bytes(*expires_unix_s),
        version: u64::from_le_bytes(*version),
        generation: Generation(u32::from_le_bytes(*generation)),
        stale: marks & STALE != 0,
        win_sent: marks & WON != 0,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for marks in 0..4 {
            let record = Record {
                flags: 0xdead_beef,
                expires_unix_s: 1 << 40 | 7,
                version: 1 << 37 | 3,
                generation: Generation(9),
                stale: marks & 1 != 0,
                win_sent: marks & 2 != 0,
                value: &b"some value"[..marks * 3],
            };
            let mut bytes = Vec::new();
            encode(&record, &mut bytes);
            assert_eq!(bytes.len(), HEADER_LEN + marks * 3);
            assert_eq!(decode(&bytes), Some(record));
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[0] = FORMAT;
        assert!(decode(&bytes).is_some());
        assert!(decode(&bytes[..HEADER_LEN - 1]).is_none() && decode(&[]).is_none());
        bytes[1] = 4;
        assert!(decode(&bytes).is_none(), "an unknown mark");
        bytes[..2].copy_from_slice(&[FORMAT + 1, 0]);
        assert!(decode(&bytes).is_none(), "an unknown format");
    }
}
