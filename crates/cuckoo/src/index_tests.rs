//! The index against a reference map, filled to the brim, under concurrent readers and writers, and growing.

use std::{
    collections::HashMap,
    ptr::NonNull,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use proptest::prelude::*;

use crate::{
    Bucket, Full, GrowError, Growth, Index, Probe, SEGMENT_BUCKETS, SEGMENT_BYTES, SEGMENT_SLOTS, SegmentSource,
};

type Segment = [Bucket; SEGMENT_BUCKETS];

/// Segments from the heap, kept until the end, at most so many at a time.
#[derive(Debug)]
struct Heap {
    all: Mutex<Vec<Box<Segment>>>,
    held: AtomicUsize,
    held_max: usize,
}

impl Heap {
    fn new(held_max: usize) -> Self {
        Self { all: Mutex::default(), held: AtomicUsize::new(0), held_max }
    }
}

// SAFETY: every segment stays in `all` until the source is dropped, and is handed out once.
unsafe impl SegmentSource for Heap {
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        assert_eq!(bytes, SEGMENT_BYTES);
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.held_max {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut segment: Box<Segment> =
            (0..SEGMENT_BUCKETS).map(|_| Default::default()).collect::<Vec<_>>().try_into().expect("length");
        let pointer = NonNull::from(&mut *segment);
        self.all.lock().expect("not poisoned").push(segment);
        Some(pointer.cast())
    }

    fn release(&self, _segment: NonNull<u8>, _bytes: usize) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A good hash of a small number, its own inverse's input (SplitMix64's finaliser).
fn hash(key: u32) -> u64 {
    let mut z = u64::from(key).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ z >> 29
}

/// Keys are their own payloads here.
fn insert(index: &Index<Heap>, key: u32) -> Result<bool, Full> {
    let probe = Probe::new(hash(key));
    loop {
        let mut locked = index.lock(&probe);
        if locked.find(|payload| payload == key).is_some() {
            return Ok(false);
        }
        if locked.insert(key).is_ok() {
            return Ok(true);
        }
        drop(locked);
        index.make_room(&probe)?;
    }
}

fn remove(index: &Index<Heap>, key: u32) -> bool {
    let (mut locked, place) = index.lock_and_find(&Probe::new(hash(key)), |payload| payload == key);
    place.inspect(|place| locked.remove(*place)).is_some()
}

fn contains(index: &Index<Heap>, key: u32) -> bool {
    index.read(&Probe::new(hash(key)), |payload| (payload == key).then_some(())).is_some()
}

fn grow(index: &Index<Heap>) {
    index.begin_growth(|segments| segments + segments.div_ceil(4)).expect("may grow");
    while index.grow_step(|_| (), hash).expect("memory") != Growth::Complete {}
}

#[test]
fn a_fixed_index_fills_to_more_than_95_percent() {
    let index = Index::<Heap>::new(Heap::new(32), 32, 32).expect("memory");
    let mut stored = 0u32;
    while insert(&index, stored).is_ok() {
        stored += 1;
    }
    let occupancy = f64::from(stored) / index.capacity() as f64;
    assert!(occupancy > 0.95, "occupancy {occupancy}");
    assert_eq!(index.len(), stored as usize);
    assert!((0..stored).all(|key| contains(&index, key)));
    assert!(!contains(&index, stored));
}

#[test]
fn one_segment_fills_to_97_percent() {
    let index = Index::<Heap>::new(Heap::new(1), 1, 1).expect("memory");
    let stored = (0u32..).take_while(|key| insert(&index, *key).is_ok()).count();
    assert!(stored * 100 > SEGMENT_SLOTS * 97, "{stored} of {SEGMENT_SLOTS}");
    assert_eq!(index.begin_growth(|_| 2), Err(GrowError::AtMaximum));
}

#[test]
fn growth_keeps_every_key_and_gives_old_segments_back() {
    let index = Index::<Heap>::new(Heap::new(9), 1, 7).expect("memory");
    let mut stored = 0u32;
    while index.segments() < 7 {
        while !index.should_grow() {
            insert(&index, stored).expect("room");
            stored += 1;
        }
        grow(&index);
        assert_eq!(index.source().held.load(Ordering::Relaxed), index.segments());
        assert!((0..stored).all(|key| contains(&index, key)), "at {} segments", index.segments());
        assert_eq!(index.len(), stored as usize);
    }
    assert!((0..stored).all(|key| remove(&index, key)));
    assert!(index.is_empty());
}

#[test]
fn growth_without_memory_changes_nothing_and_can_go_on() {
    let index = Index::<Heap>::new(Heap::new(5), 3, 9).expect("memory");
    let keys = 0..20_000;
    keys.clone().for_each(|key| assert_eq!(insert(&index, key), Ok(true)));
    index.begin_growth(|segments| segments + segments.div_ceil(4)).expect("may grow");
    let taken = [(); 2].map(|()| index.source().allocate(SEGMENT_BYTES).expect("two are left"));
    assert_eq!(index.grow_step(|_| (), hash), Err(GrowError::NoMemory));
    assert!(keys.clone().all(|key| contains(&index, key)));
    taken.iter().for_each(|segment| index.source().release(*segment, SEGMENT_BYTES));
    while index.grow_step(|_| (), hash).expect("memory again") != Growth::Complete {
        assert!(keys.clone().all(|key| contains(&index, key)), "in the middle of growth");
    }
    assert_eq!(index.segments(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn behaves_like_a_set(operations in prop::collection::vec((0u8..4, 0u32..30_000), 125_000)) {
        let index = Index::<Heap>::new(Heap::new(6), 1, 4).expect("memory");
        let mut reference: HashMap<u32, ()> = HashMap::new();
        for (operation, key) in operations {
            match operation {
                0 | 1 => {
                    let new = loop {
                        match insert(&index, key) {
                            Ok(new) => break new,
                            Err(Full) => grow(&index),
                        }
                    };
                    prop_assert_eq!(new, reference.insert(key, ()).is_none());
                }
                2 => prop_assert_eq!(remove(&index, key), reference.remove(&key).is_some()),
                _ => prop_assert_eq!(contains(&index, key), reference.contains_key(&key)),
            }
        }
        prop_assert_eq!(index.len(), reference.len());
    }
}

/// Readers look for keys that are always there while writers churn others, displacing them, and the index grows twice.
#[test]
fn readers_never_miss_a_key_that_stays() {
    let index = Index::<Heap>::new(Heap::new(8), 1, 6).expect("memory");
    let staying = 11_000u32;
    (0..staying).for_each(|key| assert_eq!(insert(&index, key), Ok(true)));
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2u32 {
            let (index, stop, reads) = (&index, &stop, &reads);
            scope.spawn(move || {
                let mut key = reader;
                while !stop.load(Ordering::Relaxed) {
                    key = (key + 7) % staying;
                    assert!(contains(index, key), "missed {key}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let writers: Vec<_> = (0..2u32)
            .map(|writer| {
                let index = &index;
                scope.spawn(move || {
                    let base = 1_000_000 * (writer + 1);
                    for round in 0..200_000u32 {
                        let key = base + round % 700;
                        if !remove(index, key) {
                            while insert(index, key).is_err() {
                                let _busy = index.begin_growth(|segments| segments + 1);
                                let _busy = index.grow_step(|_| (), hash);
                            }
                        }
                        if round % 50_000 == 49_999 {
                            let _busy = index.begin_growth(|segments| segments + 1);
                            while matches!(index.grow_step(|_| (), hash), Ok(Growth::Underway) | Err(GrowError::Busy)) {
                            }
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("writer");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert!((0..staying).all(|key| contains(&index, key)));
}

/// The short way of a read, with keys of one bucket and one tag.
#[test]
fn a_short_look_passes_over_one_key_of_the_same_tag() {
    let index = Index::<Heap>::new(Heap::new(1), 1, 1).expect("memory");
    let probe = |tag: u64, key: u32| Probe::new(5 | tag << 22 | u64::from(key) << 40);
    let put = |tag, key| index.lock(&probe(tag, key)).insert(key).expect("room");
    let look = |tag, key| index.look_first(&probe(tag, key), Some, |there| (there == key).then_some(key)).ok();
    assert_eq!(look(9, 1), Some(None), "an empty bucket");
    put(9, 1);
    assert_eq!((look(9, 1), look(9, 2)), (Some(Some(1)), Some(None)), "at home, and another one's tag");
    // The bucket is full now, so the next of that tag is away.
    (1..crate::BUCKET_SLOTS as u32).for_each(|at| put(10 + u64::from(at), 100 + at));
    put(9, 2);
    assert_eq!((look(9, 1), look(9, 2)), (Some(Some(1)), Some(Some(2))), "at home, and away behind another one's tag");
    assert_eq!(look(9, 3), None, "two of them: the long way");
    assert_eq!(index.read(&probe(9, 3), |there| (there == 3).then_some(3)), None);
    // Two of one tag at home.
    let (mut locked, place) = index.lock_and_find(&probe(11, 101), |there| there == 101);
    locked.remove(place.expect("it was put there"));
    drop(locked);
    put(9, 4);
    assert_eq!(
        (look(9, 1).is_some(), look(9, 3)),
        (true, None),
        "several at home: the long way, unless the first is it"
    );
    for key in [1, 2, 4] {
        assert_eq!(index.read(&probe(9, key), |there| (there == key).then_some(key)), Some(key));
    }
}
