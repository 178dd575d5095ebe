//! Keys as they are stored: the hash partition comes first, so that a partition is one range.

use guira_item::{KEY_LEN_MAX, Key};

use crate::hash_partition;

/// How many hash partitions there are.
pub(super) const PARTITIONS: usize = 256;

/// A key behind its partition.
pub(super) struct StoredKey {
    bytes: [u8; 1 + KEY_LEN_MAX],
    len: usize,
}

impl StoredKey {
    pub(super) fn of(key: Key<'_>) -> Self {
        let key = key.as_bytes();
        let mut bytes = [0; 1 + KEY_LEN_MAX];
        bytes[0] = hash_partition(key).0;
        bytes[1..=key.len()].copy_from_slice(key);
        Self { bytes, len: 1 + key.len() }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The key in what is stored; `None` if it is none.
pub(super) fn key_in(stored: &[u8]) -> Option<Key<'_>> {
    Key::new(stored.get(1..)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_spread_over_all_partitions() {
        let mut counts = [0; PARTITIONS];
        for number in 0..25_600 {
            let text = format!("user:{number}");
            let key = Key::new(text.as_bytes()).expect("a key");
            let stored = StoredKey::of(key);
            assert_eq!(key_in(stored.as_bytes()), Some(key));
            counts[usize::from(stored.as_bytes()[0])] += 1;
        }
        assert!(counts.iter().all(|count| (50..200).contains(count)), "{counts:?}");
        let longest = [7; KEY_LEN_MAX];
        assert_eq!(
            key_in(StoredKey::of(Key::new(&longest).expect("a key")).as_bytes()).map(Key::as_bytes),
            Some(&longest[..])
        );
        assert!(key_in(&[]).is_none() && key_in(&[1]).is_none());
    }
}
