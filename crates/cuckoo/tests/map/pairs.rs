//! Pairs of every size and alignment that lie in the slots come back as they were put in.
//!
//! A slot is made of words of 8 bytes; keys and values lie in it one right after the other, aligned to nothing.

use std::{fmt::Debug, hash::Hash};

use guira_cuckoo::{Auto, Boxed, Builder, CuckooMap, Storage, Ways, Width};

fn come_back<K: Copy + Eq + Hash + Debug, V: Copy + PartialEq + Debug, L: Storage<K, V>, const WAYS: usize>(
    pairs: &[(K, V)],
    other: V,
) where
    Ways<WAYS>: Width,
{
    let map: CuckooMap<K, V, _, L, WAYS> = Builder::new().build().expect("memory");
    for &(key, value) in pairs {
        assert_eq!(map.insert(key, value), None);
        assert_eq!(map.insert(key, value), Some(value));
    }
    let keys: Vec<K> = pairs.iter().map(|(key, _)| *key).collect();
    assert_eq!(map.get_many(&keys), pairs.iter().map(|(_, value)| Some(*value)).collect::<Vec<_>>());
    for &(key, value) in pairs {
        assert_eq!(map.get(&key), Some(value));
        assert_eq!(map.update(&key, |_| other), Some(other));
        assert_eq!(map.remove(&key), Some(other));
    }
    assert!(map.is_empty());
}

#[test]
fn pairs_of_one_word_each_come_back() {
    come_back::<_, _, Auto, 8>(&[(0u64, 1u64), (u64::MAX, 2)], 3);
    come_back::<_, _, Auto, 8>(&[(0usize, -1i64), (1, i64::MIN)], 3);
    come_back::<_, _, Auto, 8>(&[([1u64, 2], [3u64, 4])], [0, 0]);
}

#[test]
fn a_value_may_have_no_bytes_and_so_may_both() {
    come_back::<_, _, Auto, 8>(&[(7u64, ()), (8, ())], ());
    come_back::<_, _, Auto, 8>(&[((), ())], ());
}

#[test]
fn pairs_as_large_as_a_slot_may_be_come_back() {
    come_back::<_, _, Auto, 8>(&[([1u64; 4], [2u64; 4]), ([3; 4], [4; 4])], [5; 4]);
    come_back::<_, _, Auto, 8>(&[(1u64, [2u8; 56]), (3, [4; 56])], [5; 56]);
    come_back::<_, _, Auto, 8>(&[(1u64, [2u64; 8]), (3, [4; 8])], [5; 8]);
    come_back::<_, _, Auto, 4>(&[([1u8; 16], [2u8; 64]), ([3; 16], [4; 64])], [5; 64]);
    come_back::<_, _, Auto, 16>(&[(1u128, [2u8; 63]), (3, [4; 63])], [5; 63]);
    come_back::<_, _, Auto, 8>(&[([1u64; 3], [2u64; 8]), ([3; 3], [4; 8])], [5; 8]);
}

/// Ten words lie in two cache lines, and are displaced, moved by growth and walked over like one.
#[test]
fn the_largest_pairs_survive_growth_and_displacement() {
    const KEYS: u64 = 120_000;
    let value = |key: u64| std::array::from_fn(|at| key.wrapping_mul(at as u64 + 1));
    let growing: CuckooMap<u128, [u64; 8]> = CuckooMap::new();
    let full: CuckooMap<u128, [u64; 8]> = Builder::new().capacity(KEYS as usize).fixed().build().expect("memory");
    for map in [growing, full] {
        (0..KEYS).for_each(|key| assert_eq!(map.insert(u128::from(key), value(key)), None));
        (0..KEYS).for_each(|key| assert_eq!(map.get(&u128::from(key)), Some(value(key))));
        map.for_each(|key, there| assert_eq!(*there, value(*key as u64)));
        map.retain(|key, _| key % 2 == 0);
        (0..KEYS).for_each(|key| assert_eq!(map.remove(&u128::from(key)), (key % 2 == 0).then(|| value(key))));
    }
}

/// Keys and values were copied into the words of a slot by way of pointers to their own types, for which these places are not
/// aligned: undefined behaviour, and the end of the process where the standard library checks for it.
#[test]
fn pairs_that_are_aligned_to_less_or_more_than_a_word_come_back() {
    come_back::<_, _, Auto, 4>(&[(1u32, 2u64), (3, u64::MAX)], 5);
    come_back::<_, _, Boxed, 8>(&[(1u32, 2u64), (3, u64::MAX)], 5);
    come_back::<_, _, Auto, 16>(&[(1u8, 2u16), (255, u16::MAX)], 5);
    come_back::<_, _, Auto, 8>(&[([1u8; 3], 2.5f64), ([9; 3], f64::MIN)], 0.0);
    come_back::<_, _, Auto, 8>(&[(1u128, 'ä'), (u128::MAX, char::MAX)], 'x');
    come_back::<_, _, Auto, 8>(&[('a', u128::MAX), ('b', 1)], 7);
    come_back::<_, _, Auto, 8>(&[(true, 1i32), (false, i32::MIN)], 7);
}
