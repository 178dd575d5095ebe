//! The hash by which stores split their keys.

use guira_item::store::HashPartition;

/// The partition of a key: the first byte of CRC-32 (IEEE) of its bytes. It is part of what stores have on disk: another hash needs
/// another version of that.
pub fn hash_partition(key: &[u8]) -> HashPartition {
    HashPartition((crc32fast::hash(key) >> 24) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_is_on_disk() {
        // The check value of CRC-32 is 0xcbf43926.
        assert_eq!(hash_partition(b"123456789"), HashPartition(0xcb));
        assert_eq!(hash_partition(b""), HashPartition(0));
    }
}
