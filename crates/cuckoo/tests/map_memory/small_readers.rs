//! Readers beside a small table that is rebuilt, which happens under their eyes again and again while a map is young.

use std::{
    hash::{BuildHasher, Hasher},
    sync::atomic::{AtomicUsize, Ordering},
};

use guira_cuckoo::{Boxed, Builder, CuckooMap};

const MAPS: usize = 150;
const READERS: usize = 8;

/// A key is its own hash.
#[derive(Clone, Copy, Default)]
struct Identity(u64);

impl BuildHasher for Identity {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// What the map makes of a hash.
fn mixed(hash: u64) -> u64 {
    let product = u128::from(hash) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

/// A key of one of the first buckets of a table of any size, and whose pointer is kept with no bits of its hash.
fn unmarked_key() -> u64 {
    let is_it = |key: &u64| mixed(*key) & 0xfff < 6 && mixed(*key) >> 14 & 0xff == 0 && mixed(*key) >> 32 & 0xff == 0;
    (1..).find(is_it).expect("one in some ten millions")
}

/// A reader that had read the layout of a table of 16 buckets, and lost the processor before it asked the directory for the
/// segment, got the one of 64 buckets that had taken its place two rebuilds later, looked for slots where that one has its tags,
/// and followed eight tags as a pointer: the process ended there. The hash's bits that are kept beside a pointer make this rare
/// for most keys; the key here has none.
#[test]
fn a_reader_that_falls_asleep_over_two_rebuilds_does_not_take_tags_for_slots() {
    let key = unmarked_key();
    let new_map = || {
        let map: CuckooMap<u64, u64, Identity, Boxed> =
            Builder::new().stripes(16).hasher(Identity::default()).build().expect("memory");
        map.insert(key, 7);
        map
    };
    let maps: Vec<_> = (0..MAPS).map(|_| new_map()).collect();
    let turn = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while let Some(map) = maps.get(turn.load(Ordering::Relaxed)) {
                    (0..50).for_each(|_| assert_eq!(map.get(&key), Some(7)));
                }
            });
        }
        for (at, map) in maps.iter().enumerate() {
            turn.store(at, Ordering::Relaxed);
            // Readers come and go meanwhile; those who are gone in the wrong place are woken by what follows.
            (0..2).for_each(|_| std::thread::yield_now());
            (1..=600).for_each(|other: u64| assert_eq!(map.insert(other << 40, other), None));
        }
        turn.store(MAPS, Ordering::Relaxed);
    });
}
