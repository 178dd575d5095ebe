//! The index's kernels under every interleaving: a read while its key is displaced, replaced, or its segment grows.

use std::{ptr::NonNull, sync::Mutex};

use loom::{sync::Arc, thread};

use crate::{Growth, Index, Probe, SEGMENT_BUCKETS, Segment, SegmentSource, path};

/// Segments from the heap, kept until the end.
pub(crate) struct Heap(
    #[expect(clippy::vec_box, reason = "a segment stays where it is while the vector grows")] Mutex<Vec<Box<Segment>>>,
);

// SAFETY: every segment stays in the vector until the source is dropped, and is handed out once.
unsafe impl SegmentSource for Heap {
    fn allocate(&self) -> Option<NonNull<Segment>> {
        let mut segment: Box<Segment> =
            (0..SEGMENT_BUCKETS).map(|_| Default::default()).collect::<Vec<_>>().try_into().expect("length");
        let pointer = NonNull::from(&mut *segment);
        self.0.lock().expect("not poisoned").push(segment);
        Some(pointer)
    }

    fn release(&self, _segment: NonNull<Segment>) {}
}

pub(crate) fn index(segments: usize) -> Arc<Index<Heap>> {
    Arc::new(Index::<Heap>::new(Heap(Mutex::default()), segments, 2).expect("memory"))
}

/// Tag in bits 10 to 17, bucket 0.
pub(crate) fn hash(key: u32) -> u64 {
    u64::from(key) << 10
}

fn insert(index: &Index<Heap>, key: u32) {
    index.lock(&Probe::new(hash(key))).insert(key).expect("room");
}

fn contains(index: &Index<Heap>, key: u32) -> bool {
    index.read(&Probe::new(hash(key)), |payload| (payload == key).then_some(())).is_some()
}

pub(crate) fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        check();
    });
    let runs = runs.load(std::sync::atomic::Ordering::Relaxed);
    assert!(runs > 20, "only {runs} interleavings: the model does not see where threads meet");
}

#[test]
fn loom_a_moving_key_is_never_missed() {
    model(|| {
        let index = index(1);
        insert(&index, 5);
        let mover = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let step = path::Move { bucket: 0, slot: 0, tag: 5, payload: 5 };
                assert!(index.displace_for_test(&step));
            })
        };
        assert!(contains(&index, 5));
        mover.join().expect("mover");
        assert!(contains(&index, 5));
    });
}

#[test]
fn loom_a_reader_sees_the_old_payload_or_the_new_one() {
    model(|| {
        let index = index(1);
        let probe = Probe::new(hash(5));
        insert(&index, 5);
        let writer = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let mut locked = index.lock(&Probe::new(hash(5)));
                let place = locked.find(|payload| payload == 5).expect("there");
                locked.replace(place, 6);
            })
        };
        let seen = index.read(&probe, Some);
        assert!(matches!(seen, Some(5 | 6)), "{seen:?}");
        writer.join().expect("writer");
        assert_eq!(index.read(&probe, Some), Some(6));
    });
}

#[test]
fn loom_two_writers_both_get_in() {
    model(|| {
        let index = index(1);
        let other = {
            let index = Arc::clone(&index);
            thread::spawn(move || insert(&index, 5))
        };
        insert(&index, 6);
        other.join().expect("writer");
        assert!(contains(&index, 5) && contains(&index, 6));
        assert_eq!(index.len(), 2);
    });
}

#[test]
fn loom_growth_hides_no_key() {
    model(|| {
        let index = index(1);
        insert(&index, 5);
        index.begin_growth(2).expect("may grow");
        let grower = {
            let index = Arc::clone(&index);
            thread::spawn(move || assert_eq!(index.grow_step(|_| (), hash), Ok(Growth::Underway)))
        };
        assert!(contains(&index, 5));
        grower.join().expect("grower");
        assert!(contains(&index, 5));
    });
}
