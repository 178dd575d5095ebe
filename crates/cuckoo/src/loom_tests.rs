//! The table's kernels under every interleaving: reads and changes of a key while it is displaced, replaced, or its segment
//! grows and is given back.

use guira_sync::Stripes;
use loom::{sync::Arc, thread};

use crate::{
    BUCKET_SLOTS, Geometry, GrowError, Growth, Index, Payloads, Probe, SEGMENT_BYTES, SegmentSource, Table,
    layout::Layout,
    locked::{Locked, Place},
    model_heap::{Forgery, Heap},
    path::Move,
    residence::{Home, Homes, Residence},
    steady::LongWay,
    tags::Lane,
};

/// What the next owner of a segment's memory has there.
const FORGED: u32 = 99;

/// Most segments of the models' index.
pub(crate) const SEGMENTS_MAX: usize = 3;

pub(crate) fn index(segments: usize) -> Arc<Index<Heap>> {
    Arc::new(Index::<Heap>::new(Heap::default(), segments, SEGMENTS_MAX).expect("memory"))
}

/// Of a key from 1 to 63, which is its own tag: bucket 0, and a position in the first half.
pub(crate) fn hash(key: u32) -> u64 {
    u64::from(key) << 22
}

/// The same, in the second half.
fn hash_behind(key: u32) -> u64 {
    hash(key) | 1 << 63
}

/// Every key of a model of growth lies in the second half, but for the sixth.
pub(crate) fn hash_in_growth(key: u32) -> u64 {
    if key == 6 { hash(key) } else { hash_behind(key) }
}

pub(crate) fn insert<G>(index: &Table<G, Heap>, hash: u64, payload: u32)
where
    G: for<'a> Geometry<Content<'a> = u32>,
{
    let (mut locked, place) = index.lock_to_insert(&Probe::new(hash), |found| found == payload);
    assert_eq!(place, None);
    locked.insert(payload).expect("room");
}

fn contains(index: &Index<Heap>, key: u32) -> bool {
    index.read(&Probe::new(hash(key)), |payload| (payload == key).then_some(())).is_some()
}

/// Moves a key of the first segment to its other bucket.
pub(crate) fn displace(index: &Index<Heap>, bucket: u16, slot: u8, lane: Lane) {
    let word = index.directories.word();
    let segment = index.homes(word, 0).expect("in force").newest();
    assert!(index.displace(word, segment, &Move { bucket, slot, lane }));
}

/// How often a payload is in the table, in the buckets of a hash.
fn places<G>(index: &Table<G, Heap>, hash: u64, payload: u32) -> usize
where
    G: for<'a> Geometry<Content<'a> = u32>,
{
    index.lock(&Probe::new(hash)).neighbours().filter(|found| *found == payload).count()
}

pub(crate) fn model(check: impl Fn() + Sync + Send + 'static) {
    model_within(3, check);
}

/// Interleavings that a model may have. What its threads do first loom varies last, so a model that is cut off has hardly been
/// checked: a larger one has to be made smaller.
const INTERLEAVINGS_MAX: usize = 100_000;

/// Every interleaving of so many preemptions.
pub(crate) fn model_within(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.max_permutations = Some(INTERLEAVINGS_MAX);
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        check();
    });
    let runs = runs.load(std::sync::atomic::Ordering::Relaxed);
    println!("{runs} interleavings");
    assert!(runs > 20, "only {runs} interleavings: the model does not see where threads meet");
    assert!(runs < INTERLEAVINGS_MAX - 1, "more than {runs} interleavings: the model has not been seen to its end");
}

/// A miss is answered from the first bucket alone if the filter says so.
#[test]
fn loom_a_moving_key_is_never_missed() {
    model(|| {
        let index = index(1);
        insert(&index, hash(5), 5);
        let mover = {
            let index = Arc::clone(&index);
            thread::spawn(move || displace(&index, 0, 0, Lane::home(5)))
        };
        assert!(contains(&index, 5));
        mover.join().expect("mover");
        assert!(contains(&index, 5));
    });
}

#[test]
fn loom_a_key_on_its_way_home_is_never_missed() {
    model(|| {
        let index = index(1);
        insert(&index, hash(5), 5);
        displace(&index, 0, 0, Lane::home(5));
        let mover = {
            let index = Arc::clone(&index);
            thread::spawn(move || displace(&index, 1, 0, Lane::away(5)))
        };
        assert!(contains(&index, 5));
        mover.join().expect("mover");
        assert!(contains(&index, 5));
        assert!(!index.lock(&Probe::new(hash(5))).may_be_away(), "nobody is away any more");
    });
}

/// The two keys share a filter bit, and one leaves while the other is looked for.
#[test]
fn loom_a_key_that_is_away_is_found_while_another_of_its_class_is_removed() {
    model(|| {
        let index = index(1);
        let (key, other) = (5, 13);
        for key in [key, other] {
            insert(&index, hash(key), key);
            displace(&index, 0, 0, Lane::home(key as u8));
            assert!(index.lock(&Probe::new(hash(key))).may_be_away());
        }
        let writer = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let (mut locked, place) = index.lock_and_find(&Probe::new(hash(other)), |payload| payload == other);
                locked.remove(place.expect("there"));
            })
        };
        assert!(contains(&index, key));
        writer.join().expect("writer");
        assert!(contains(&index, key) && !contains(&index, other));
    });
}

#[test]
fn loom_a_reader_sees_the_old_payload_or_the_new_one() {
    model(|| {
        let index = index(1);
        let probe = Probe::new(hash(5));
        insert(&index, hash(5), 5);
        let writer = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let (mut locked, place) = index.lock_and_find(&Probe::new(hash(5)), |payload| payload == 5);
                locked.replace(place.expect("there"), 6);
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
            thread::spawn(move || insert(&index, hash(5), 5))
        };
        insert(&index, hash(6), 6);
        other.join().expect("writer");
        assert!(contains(&index, 5) && contains(&index, 6));
        assert_eq!(index.len(), 2);
    });
}

/// Adds a key unless it is there, as a map does; whether it was there.
fn store(index: &Index<Heap>, hash: u64, key: u32) -> Option<Place> {
    let (mut locked, place) = index.lock_to_insert(&Probe::new(hash), |payload| payload == key);
    if place.is_none() {
        locked.insert(key).expect("room");
    }
    place
}

#[test]
fn loom_a_key_that_two_writers_add_is_there_once() {
    model(|| {
        let index = index(1);
        let other = {
            let index = Arc::clone(&index);
            thread::spawn(move || store(&index, hash(5), 5).is_none())
        };
        let is_mine = store(&index, hash(5), 5).is_none();
        let is_the_others = other.join().expect("writer");
        assert!(is_mine != is_the_others, "one of the two added it");
        assert_eq!((places(&index, hash(5), 5), index.len()), (1, 1));
    });
}

/// One of the writers finds the key where it went meanwhile.
#[test]
fn loom_a_key_that_is_displaced_is_not_added_again() {
    model(|| {
        let index = index(1);
        insert(&index, hash(5), 5);
        let mover = {
            let index = Arc::clone(&index);
            thread::spawn(move || displace(&index, 0, 0, Lane::home(5)))
        };
        assert_ne!(store(&index, hash(5), 5), None);
        mover.join().expect("mover");
        assert_eq!(places(&index, hash(5), 5), 1);
    });
}

pub(crate) fn grow_by(index: &Index<Heap>, buckets: usize) -> Result<Growth, GrowError> {
    index.grow_by(buckets, |_| (), hash_in_growth)
}

/// An index of one segment that grows to two, with keys 5 and 6. The first half is behind the growth, the second half, where
/// key 5 is unless it is to be missing, comes next: after it the old segment is given back.
pub(crate) fn index_half_grown(heap: Heap, has_five: bool) -> Arc<Index<Heap>> {
    let index = Arc::new(Index::<Heap>::new(heap, 1, SEGMENTS_MAX).expect("memory"));
    let keys = if has_five { &[5, 6][..] } else { &[6] };
    keys.iter().for_each(|key| insert(&index, hash_in_growth(*key), *key));
    index.begin_growth(|_| 2).expect("may grow");
    while index.layout().done == 0 {
        assert_eq!(grow_by(&index, 1), Ok(Growth::Underway));
    }
    assert_eq!(grow_by(&index, usize::MAX), Ok(Growth::Underway), "settled");
    index
}

fn read_in_growth(index: &Index<Heap>, key: u32) -> Option<u32> {
    index.read(&Probe::new(hash_in_growth(key)), Some)
}

/// Key 5 in its first bucket or away from it. Whoever begins is the one that is interrupted.
fn growth_hides_no_key(is_away: bool, grower_begins: bool) {
    let index = index_half_grown(Heap::default(), true);
    if is_away {
        let word = index.directories.word();
        let segment = index.homes(word, u32::MAX).expect("in force").newest();
        assert!(index.displace(word, segment, &Move { bucket: 0, slot: 0, lane: Lane::home(5) }));
    }
    let grow = |index: &Index<Heap>| {
        assert_eq!(grow_by(index, 1), Ok(Growth::Underway));
        assert_eq!(grow_by(index, 1), Ok(Growth::Complete));
    };
    let read = |index: &Index<Heap>| assert_eq!(read_in_growth(index, 5), Some(5));
    let other = {
        let index = Arc::clone(&index);
        thread::spawn(move || if grower_begins { read(&index) } else { grow(&index) })
    };
    if grower_begins {
        grow(&index)
    } else {
        read(&index)
    }
    other.join().expect("the other one");
    read(&index);
    assert_eq!(places(&index, hash_in_growth(5), 5), 1);
}

#[test]
fn loom_growth_hides_no_key_in_its_first_bucket() {
    for grower_begins in [false, true] {
        model_within(1, move || growth_hides_no_key(false, grower_begins));
    }
}

#[test]
fn loom_growth_hides_no_key_that_is_away() {
    model_within(1, || growth_hides_no_key(true, false));
}

/// A reader that knows of no growth, and a key that is moved out of its second bucket before growth comes to its first one.
fn read_beside_growth_of_the_second_bucket(move_bucket: fn(&Index<Heap>)) {
    let index = index(1);
    insert(&index, hash_of_bucket_one(5), 5);
    displace(&index, 1, 0, Lane::home(5));
    let grower = {
        let index = Arc::clone(&index);
        thread::spawn(move || {
            index.begin_growth(|_| 2).expect("may grow");
            assert_eq!(index.grow_by(0, |_| (), hash_of_bucket_one), Ok(Growth::Underway));
            move_bucket(&index);
        })
    };
    if let Ok(seen) = index.look_in_both(&Probe::new(hash_of_bucket_one(5)), &mut Some, &mut Some) {
        assert_eq!(seen, Some(5), "what a reader sees");
    }
    grower.join().expect("grower");
}

/// In the first half.
fn hash_of_bucket_one(key: u32) -> u64 {
    hash(key) | 1
}

#[test]
fn loom_growth_marks_the_first_bucket_of_a_key_that_is_away() {
    model(|| {
        read_beside_growth_of_the_second_bucket(|index| {
            assert_eq!(index.grow_by(1, |_| (), hash_of_bucket_one), Ok(Growth::Underway));
        });
    });
}

#[test]
#[should_panic(expected = "what a reader sees")]
fn loom_growth_that_marks_only_where_a_key_lies_is_noticed() {
    model(|| {
        read_beside_growth_of_the_second_bucket(|index| {
            let Homes { from, to } = index.homes(index.directories.word(), 0).expect("in force");
            let mut guards = [0, 1].map(|bucket| index.stripes.lock_pair(bucket, bucket));
            guards[0].start_writing();
            to.expect("growth is under way").receive((1, 0), Lane::home(5), from, (0, 0));
        });
    });
}

type Widen = for<'a> fn(&mut Locked<'a, Payloads, Heap, (), Home<'a, Payloads>>) -> Result<(), LongWay>;

/// A key whose first bucket is full is added to its second one, by a writer that knows of no growth, while growth passes that.
fn add_beside_growth_of_the_second_bucket(widen: Widen) {
    let index = index(1);
    (10..10 + BUCKET_SLOTS as u32).for_each(|key| insert(&index, hash_of_bucket_one(key), key));
    let grower = {
        let index = Arc::clone(&index);
        thread::spawn(move || {
            index.begin_growth(|_| 2).expect("may grow");
            assert_eq!(index.grow_by(0, |_| (), hash_of_bucket_one), Ok(Growth::Underway));
            assert_eq!(index.grow_by(1, |_| (), hash_of_bucket_one), Ok(Growth::Underway));
        })
    };
    let probe = Probe::new(hash_of_bucket_one(5));
    let mut is_added = false;
    if let Ok((mut locked, place)) = index.lock_at_home(&probe, |found| found == 5) {
        assert_eq!(place, None);
        is_added = widen(&mut locked).is_ok() && locked.insert(5).is_ok();
    }
    grower.join().expect("grower");
    while index.layout().done == 0 {
        assert_eq!(index.grow_by(1, |_| (), hash_of_bucket_one), Ok(Growth::Underway));
    }
    let seen = index.read(&probe, |found| (found == 5).then_some(()));
    assert_eq!(seen.is_some(), is_added, "what growth has taken along");
}

#[test]
fn loom_growth_leaves_no_key_behind_that_is_added_to_its_second_bucket() {
    model_within(2, || add_beside_growth_of_the_second_bucket(|locked| locked.widen()));
}

#[test]
#[should_panic(expected = "what growth has taken along")]
fn loom_a_second_bucket_that_is_taken_for_what_it_was_is_noticed() {
    model_within(2, || {
        add_beside_growth_of_the_second_bucket(|locked| if locked.try_lock_second() { Ok(()) } else { Err(LongWay) });
    });
}

/// Two threads move a bucket each, and either brings the segment into force. A reader that knows of that knows of both moves.
#[test]
fn loom_a_share_that_two_threads_have_moved_is_complete() {
    model_within(2, || {
        let index = index_half_grown(Heap::default(), true);
        assert_eq!(grow_by(&index, 0), Ok(Growth::Underway), "begun");
        let help = || {
            let index = Arc::clone(&index);
            thread::spawn(move || grow_by(&index, 1).expect("a bucket of its own"))
        };
        let helpers = [help(), help()];
        if let Ok(seen) = index.look_in_both(&Probe::new(hash_in_growth(5)), &mut Some, &mut Some) {
            assert_eq!(seen, Some(5));
        }
        let stages = helpers.map(|helper| helper.join().expect("no panic"));
        // Each may have seen the other in the lock.
        if !stages.contains(&Growth::Complete) {
            while grow_by(&index, 1) != Ok(Growth::Complete) {}
        }
        for key in [5, 6] {
            assert_eq!(read_in_growth(&index, key), Some(key));
            assert_eq!(places(&index, hash_in_growth(key), key), 1);
        }
    });
}

#[test]
fn loom_a_key_that_growth_moves_is_not_added_again() {
    model(|| {
        let index = index_half_grown(Heap::default(), true);
        let grower = {
            let index = Arc::clone(&index);
            thread::spawn(move || assert_eq!(grow_by(&index, 1), Ok(Growth::Underway)))
        };
        assert_ne!(store(&index, hash_in_growth(5), 5), None);
        assert_eq!(store(&index, hash_in_growth(7), 7), None);
        grower.join().expect("grower");
        for key in [5, 7] {
            assert_eq!(places(&index, hash_in_growth(key), key), 1, "{key}");
            assert_eq!(read_in_growth(&index, key), Some(key));
        }
    });
}

/// The old segment is given back, and serves the next growth for another share of the keys, while a reader looks.
#[test]
fn loom_a_segment_that_is_used_again_misleads_no_reader() {
    model_within(1, || {
        let index = index_half_grown(Heap::default(), true);
        assert_eq!(grow_by(&index, 1), Ok(Growth::Underway));
        let grower = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                assert_eq!(grow_by(&index, 1), Ok(Growth::Complete));
                index.begin_growth(|_| 3).expect("may grow");
                assert_eq!(grow_by(&index, 1), Ok(Growth::Underway));
                assert_eq!(index.source().used_again(), 1);
            })
        };
        assert_eq!(read_in_growth(&index, 5), Some(5));
        grower.join().expect("grower");
        assert_eq!([5, 6].map(|key| read_in_growth(&index, key)), [Some(5), Some(6)]);
    });
}

/// A writer that knows the layout before, while the last share's growth is seen to its end as `finish` does it.
fn finish_growth_beside_a_writer(finish: fn(&Index<Heap>)) {
    let index = index_half_grown(Heap::with_forgery(Forgery { lanes: vec![Lane::home(5)], payload: FORGED }), true);
    assert_eq!(grow_by(&index, 1), Ok(Growth::Underway));
    let grower = {
        let index = Arc::clone(&index);
        thread::spawn(move || finish(&index))
    };
    let (locked, place) = index.lock_and_find(&Probe::new(hash_in_growth(5)), |_| true);
    assert_eq!(locked.content(place.expect("there")), 5, "what a writer finds");
    drop(locked);
    grower.join().expect("grower");
}

#[test]
fn loom_a_writer_that_knows_the_layout_before_is_waited_for() {
    model_within(2, || finish_growth_beside_a_writer(|index| assert_eq!(grow_by(index, 1), Ok(Growth::Complete))));
}

#[test]
#[should_panic(expected = "what a writer finds")]
fn loom_a_segment_that_is_given_back_without_settling_is_noticed() {
    model_within(2, || {
        finish_growth_beside_a_writer(|index| {
            let layout = index.layout();
            let old = index.directories.segment(layout.whereabouts(u32::MAX).from).expect("in force");
            index.directories.publish(Layout::steady(layout.directory ^ 1, layout.next));
            index.source().release(old, SEGMENT_BYTES);
        });
    });
}

/// Full-sized segments of four buckets, so that a smaller one has another mask.
struct FourBuckets;

// SAFETY: as for `Payloads`, whose addresses do not depend on how many buckets a full-sized segment has.
unsafe impl Geometry for FourBuckets {
    type Tags = <Payloads as Geometry>::Tags;
    type Slot<'a> = <Payloads as Geometry>::Slot<'a>;
    type Content<'a> = u32;
    const BUCKETS: usize = 4;
    const FULL_PERCENT: usize = 92;

    fn segment_bytes(buckets: usize) -> usize {
        Payloads::segment_bytes(buckets)
    }

    unsafe fn tags<'a>(base: std::ptr::NonNull<u8>, buckets: usize, bucket: usize) -> &'a Self::Tags {
        // SAFETY: the caller's contract is the same.
        unsafe { Payloads::tags(base, buckets, bucket) }
    }

    unsafe fn slot<'a>(base: std::ptr::NonNull<u8>, buckets: usize, bucket: usize, slot: usize) -> Self::Slot<'a> {
        // SAFETY: the caller's contract is the same.
        unsafe { Payloads::slot(base, buckets, bucket, slot) }
    }

    fn read<'a>(slot: Self::Slot<'a>) -> Self::Content<'a> {
        Payloads::read(slot)
    }

    fn write(slot: Self::Slot<'_>, content: u32) {
        Payloads::write(slot, content);
    }
}

/// A key whose first bucket is the fourth, or the second of two.
fn hash_in_the_fourth(key: u32) -> u64 {
    hash(key) | 3
}

/// The reader's key moves to a bucket of another number, and the writer's goes where the table is then.
#[test]
fn loom_a_small_segment_is_rebuilt_beside_a_reader_and_a_writer() {
    model_within(1, || {
        let small = Layout::small(0, 1);
        let table =
            Table::<FourBuckets, Heap>::with_layout(Heap::default(), small, 1, 1, Stripes::new(2)).expect("memory");
        let table = Arc::new(table);
        insert(&table, hash_in_the_fourth(5), 5);
        let rebuilder = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.rebuild(Layout::steady(0, 1), hash_in_the_fourth).expect("memory"))
        };
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || insert(&table, hash_in_the_fourth(6), 6))
        };
        let read = |key| table.read(&Probe::new(hash_in_the_fourth(key)), Some);
        assert_eq!(read(5), Some(5));
        rebuilder.join().expect("rebuilder");
        writer.join().expect("writer");
        assert_eq!([5, 6].map(read), [Some(5), Some(6)]);
        assert_eq!([5, 6].map(|key| places(&table, hash_in_the_fourth(key), key)), [1, 1]);
        assert_eq!((table.len(), table.source().held()), (2, 1));
    });
}

/// The same beside a reader alone, while somebody else takes the small segment's memory.
#[test]
fn loom_a_reader_beside_a_rebuild_believes_nothing_of_the_next_owner() {
    model_within(2, || {
        let heap = Heap::with_forgery(Forgery { lanes: vec![Lane::home(5), Lane::away(5)], payload: FORGED });
        let table =
            Table::<FourBuckets, Heap>::with_layout(heap, Layout::small(0, 1), 1, 1, Stripes::new(2)).expect("memory");
        let table = Arc::new(table);
        insert(&table, hash_in_the_fourth(5), 5);
        let rebuilder = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.rebuild(Layout::steady(0, 1), hash_in_the_fourth).expect("memory"))
        };
        assert_eq!(table.read(&Probe::new(hash_in_the_fourth(5)), Some), Some(5));
        rebuilder.join().expect("rebuilder");
    });
}
