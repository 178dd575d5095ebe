//! A key's hash: what packet headers carry, and what partitions and rules go by.
//!
//! Always true: it is the same at every member of a cluster, whatever machine and build it is, as long as they have the same seed. So it is
//! rapidhash's versioned function, which is portable, and not its hasher, which may change from one release to the next.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use serde::{Deserialize, Serialize};

/// The hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct KeyHash(pub u64);

/// What a cluster's hashes are seeded with: all members have the same, and who does not know it cannot choose keys that collide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HashSeed(pub u64);

impl KeyHash {
    /// That of `key` in a cluster with `seed`. Some 20 ns for a short one, nearly all of it for the secrets.
    pub fn of(key: &[u8], seed: HashSeed) -> Self {
        // All secrets are the seed's: with the known ones there are keys that collide whatever the seed is.
        Self(rapidhash_v3_seeded(key, &RapidSecrets::seed(seed.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster in which an update of the library changed them would look for its keys in the wrong places.
    #[test]
    fn hashes_stay_what_they_are() {
        let long = [b'g'; 300];
        let pinned: [(&[u8], u64, u64); 6] = [
            (b"", 0, 0x880c_2674_d4e1_03b9),
            (b"a", 0, 0x5075_7f77_4c30_8d7f),
            (b"a", 1, 0xb62e_e69f_12ce_28a5),
            (b"guira", 0x5eed, 0xbe5f_d128_17cc_7275),
            (b"user:000000000017", 0x5eed, 0x2950_168d_f521_8283),
            (&long, 0x5eed, 0x6754_8450_f155_c307),
        ];
        for (key, seed, hash) in pinned {
            assert_eq!(KeyHash::of(key, HashSeed(seed)), KeyHash(hash), "of {} bytes under {seed:#x}", key.len());
        }
    }
}
