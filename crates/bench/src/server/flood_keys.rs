//! Keys that all have the same hash, if the seed of the hash is the one in the source: what somebody who has read it
//! would send.
//!
//! Against memcached they work, for it hashes with MurmurHash3 from seed 0. Guira hashes with rapidhash, too, but from a
//! seed that it draws when it starts: against it they are the best that can be done without knowing that.

use super::peer::PeerKind;

/// The second of rapidhash's default secrets. Eight bytes of key that are the same make the product 0 that the other
/// eight bytes were to go into.
const RAPIDHASH_SECRET: u64 = 0x8bb8_4b93_962e_acc9;

/// MurmurHash3 (32 bits): its multipliers, and their inverses modulo 2^32.
const C1: u32 = 0xcc9e_2d51;
const C2: u32 = 0x1b87_3593;
const C1_INVERSE: u32 = inverse(C1);
const C2_INVERSE: u32 = inverse(C2);
const FIVE_INVERSE: u32 = inverse(5);
const ADDEND: u32 = 0xe654_6b64;

/// The state that all keys lead to.
const MEETING_POINT: u32 = 0x1234_5678;

/// `count` different keys (at most 2^24) that the hash of `kind` takes for one.
pub fn colliding(kind: PeerKind, count: usize) -> Vec<Vec<u8>> {
    match kind {
        PeerKind::Memcached => (0..1 << 24).filter_map(murmur_key).take(count).collect(),
        _ => (0..count as u64).map(rapidhash_key).collect(),
    }
}

fn rapidhash_key(number: u64) -> Vec<u8> {
    [&RAPIDHASH_SECRET.to_le_bytes()[..], format!("{number:08x}").as_bytes()].concat()
}

/// Two words: any first, and then the one that leads to the meeting point, if a key may contain its bytes.
fn murmur_key(number: u32) -> Option<Vec<u8>> {
    let first = [24, 18, 12, 6].map(|shift| b'0' + (number << 6 >> shift & 63) as u8);
    let state = murmur_step(0, u32::from_le_bytes(first));
    let before = MEETING_POINT.wrapping_sub(ADDEND).wrapping_mul(FIVE_INVERSE).rotate_right(13);
    let mixed = (before ^ state).wrapping_mul(C2_INVERSE).rotate_right(15).wrapping_mul(C1_INVERSE);
    let second = mixed.to_le_bytes();
    second.iter().all(|byte| *byte > b' ' && *byte != 0x7f).then(|| [first, second].concat())
}

/// Takes one word of a key into MurmurHash3's state.
const fn murmur_step(state: u32, word: u32) -> u32 {
    let mixed = word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    (state ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(ADDEND)
}

/// The inverse of an odd number modulo 2^32 (Newton: each step doubles the bits that are right).
const fn inverse(odd: u32) -> u32 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 4 {
        inverse = inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn assert_all_differ(keys: &[Vec<u8>]) {
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert!(keys.iter().flatten().all(|byte| *byte > b' '), "a key with a space in it");
    }

    #[test]
    fn rapidhash_without_a_secret_takes_the_keys_for_one() {
        let keys = colliding(PeerKind::Guira, 10_000);
        assert_all_differ(&keys);
        let hash = rapidhash::v3::rapidhash_v3(&keys[0]);
        assert!(keys.iter().all(|key| rapidhash::v3::rapidhash_v3(key) == hash));
        let secrets = rapidhash::v3::RapidSecrets::seed(7);
        let hashes: HashSet<u64> = keys.iter().map(|key| rapidhash::v3::rapidhash_v3_seeded(key, &secrets)).collect();
        assert_eq!(hashes.len(), keys.len(), "with a secret they are keys as any others");
    }

    #[test]
    fn murmurhash_takes_the_keys_for_one() {
        let keys = colliding(PeerKind::Memcached, 10_000);
        assert_all_differ(&keys);
        for key in &keys {
            let words = key.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
            assert_eq!(words.fold(0, murmur_step), MEETING_POINT);
        }
    }

    /// Known answers of MurmurHash3_x86_32 with seed 0, so that the step is the right one.
    #[test]
    fn the_step_is_murmurhashs() {
        let finish = |state: u32, len: u32| {
            let mut hash = state ^ len;
            hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
            hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
            hash ^ hash >> 16
        };
        assert_eq!(finish(0, 0), 0);
        assert_eq!(finish(murmur_step(0, u32::from_le_bytes(*b"test")), 4), 0xba6b_d213);
    }
}
