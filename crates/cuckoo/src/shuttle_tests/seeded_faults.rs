//! The models must be able to fail: tables with one fault each, which a schedule has to notice.

use std::sync::Arc;

use guira_sync::schedules;
use shuttle::thread;

use super::{Examine, IsIt, SOUND, Stamp, Table, Ways, play, roomy_segment, segment_away};
use crate::{
    BUCKET_SLOTS, Full, Geometry, GrowError, Growth, Index, LockedPayload, Payloads, Place, Probe, SEGMENT_BUCKETS,
    growth::Progress,
    layout::{self, Layout, share},
    model_heap::Heap,
    model_reads::ReadFault,
    path::{self, Move},
    probe::alternate,
    residence::Residence,
    segment::SegmentRef,
    steady::{FoundAtHome, LongWay},
    tags::Tags,
};

/// Schedules of one kind in a round.
const ROUND: usize = 5_000;

/// Schedules that must pass where there is no fault.
const SOUND_SCHEDULES: usize = 10_000;

#[test]
fn shuttle_seeded_faults_are_noticed() {
    let faults = [
        ("a read that is not validated", reading(|i, p, e| ReadFault::AsksNothingAgain.read(i, p, e))),
        ("a read that asks the second bucket's stripe", reading(|i, p, e| ReadFault::AsksSecondStripe.read(i, p, e))),
        ("a read that asks for the layout first", reading(|i, p, e| ReadFault::AsksLayoutFirst.read(i, p, e))),
        ("a read that believes what it misses", reading(|i, p, e| ReadFault::BelievesMisses.read(i, p, e))),
        ("a read that looks in the old segment only", reading(|i, p, e| ReadFault::LooksInOldOnly.read(i, p, e))),
        ("displacement from the near end", Ways { make_room: displace_near_end_first, ..SOUND }),
        ("displacement to where growth has been", Ways { make_room: displace_where_growth_is, ..SOUND }),
        ("displacement that tells no reader", Ways { displace: displace_unmarked, ..SOUND }),
        ("displacement that sets no filter bit", Ways { displace: displace_unfiltered, ..SOUND }),
        ("a removal that clears others' filter bit", Ways { remove: remove_with_filter, ..SOUND }),
        ("a second lock that is taken without a look at the layout", Ways { lock_at_home: widen_blindly, ..SOUND }),
        ("room in growth out of a bucket that waits", Ways { make_room_in_growth: make_room_from_any_bucket, ..SOUND }),
        ("growth that tells no reader", Ways { grow: |t, n| grow_in_steps(t, n, false), ..SOUND }),
        ("growth that is complete before all is moved", Ways { grow: grow_hastily, ..SOUND }),
        ("a cell that is given back too early", Ways { frees_last: false, ..SOUND }),
    ];
    schedules::are_noticed(ROUND, &faults, |ways| play(ways, &Arc::default()));
}

/// What faults are seeded into, without one.
#[test]
fn shuttle_the_copies_that_faults_are_seeded_into_are_sound() {
    let ways = Ways {
        read: |i, p, e| ReadFault::Harmless.read(i, p, e),
        make_room_in_growth: |t, p| make_room_in_growth(t, p, |bucket| move_early(t, bucket)),
        grow: |t, n| grow_in_steps(t, n, true),
        ..SOUND
    };
    let is_noticed = move || play(ways, &Arc::default());
    assert_eq!(schedules::notices(schedules::few_preemptions(SOUND_SCHEDULES), is_noticed), None);
    assert_eq!(schedules::notices(schedules::random(SOUND_SCHEDULES), is_noticed), None);
}

fn reading(read: fn(&Index<Heap>, &Probe, Examine<'_>) -> Option<Stamp>) -> Ways {
    Ways { read, ..SOUND }
}

fn change_tags(segment: SegmentRef<'_, Payloads>, bucket: usize, change: impl Fn(BucketTags) -> BucketTags) {
    // SAFETY: a segment of the index, and a bucket of it.
    let words = unsafe { Payloads::tags(segment.base(), segment.buckets(), bucket) };
    change(Tags::of(words)).store(words);
}

type BucketTags = Tags<<Payloads as Geometry>::Tags>;

/// Takes the second bucket for what it was before it was locked, and stands still in between.
fn widen_blindly<'a>(
    index: &'a Index<Heap>,
    probe: &Probe,
    is_it: IsIt<'_>,
) -> Result<FoundAtHome<'a, Payloads, Heap, ()>, LongWay> {
    let (mut locked, place) = index.lock_at_home(probe, is_it)?;
    thread::yield_now();
    let has_all = place.is_some() || locked.has_room() || locked.holds_both() || locked.try_lock_second();
    if has_all { Ok((locked, place)) } else { Err(LongWay) }
}

/// Lifts the keys of a path out of their slots, beginning with the one that is in the way, and then sets them down.
fn displace_near_end_first(index: &Index<Heap>, probe: &Probe) -> Result<(), Full> {
    let (word, segment) = roomy_segment(index, probe)?;
    let path = path::search(segment, probe).ok_or(Full)?;
    let other = |step: &Move| alternate(usize::from(step.bucket), step.lane.tag(), segment.bucket_mask());
    let mut lifted = Vec::new();
    for step in path.moves().rev() {
        let (from, slot) = (usize::from(step.bucket), usize::from(step.slot));
        let mut guard = index.stripes.lock_pair(from, other(step));
        if index.directories.word() != word || segment.tags(from).lane(slot) != Some(step.lane) {
            break;
        }
        guard.start_writing();
        lifted.push((step, segment.content(from, slot)));
        change_tags(segment, from, |tags| tags.with(slot, None));
    }
    while let Some((step, payload)) = lifted.pop() {
        let (from, to) = (usize::from(step.bucket), other(step));
        let mut guard = index.stripes.lock_pair(from, to);
        guard.start_writing();
        if let Some(free) = segment.tags(to).free().first() {
            segment.put(to, free, step.lane.in_other_bucket(), payload);
        } else if let Some(free) = segment.tags(from).free().first() {
            segment.put(from, free, step.lane, payload);
        }
    }
    Ok(())
}

/// Displaces keys in a segment that growth is emptying as in any other.
fn displace_where_growth_is(index: &Index<Heap>, probe: &Probe) -> Result<(), Full> {
    let word = index.directories.word();
    let segment = index.homes(word, probe.position()).ok_or(Full)?.newest();
    let path = path::search(segment, probe).ok_or(Full)?;
    if path.moves().all(|step| index.displace(word, segment, step)) { Ok(()) } else { Err(Full) }
}

/// Displaces a key out of a bucket that waits for its turn to one whose turn has come.
fn make_room_from_any_bucket(table: &Table, probe: &Probe) -> bool {
    make_room_in_growth(table, probe, |_| true)
}

/// Displaces a key in a segment that growth is emptying, out of a bucket of which `from` holds.
fn make_room_in_growth(table: &Table, probe: &Probe, from: impl Fn(usize) -> bool) -> bool {
    let index = &table.index;
    let word = index.directories.word();
    let layout = Layout::of_word(word);
    let whereabouts = layout.whereabouts(probe.position());
    let Some(segment) = index.segment(whereabouts.from, SEGMENT_BUCKETS - 1) else { return false };
    if whereabouts.to.is_some() || !layout.is_emptying(whereabouts.from) {
        return false;
    }
    let mask = segment.bucket_mask();
    [probe.first(mask), probe.second(mask)].into_iter().filter(|bucket| from(*bucket)).any(|bucket| {
        let tags = segment.tags(bucket);
        tags.taken().filter_map(|slot| Some((slot, tags.lane(slot)?))).any(|(slot, lane)| {
            let step = Move { bucket: bucket as u16, slot: slot as u8, lane };
            move_early(table, alternate(bucket, lane.tag(), mask)) && index.displace(word, segment, &step)
        })
    })
}

/// Whether a bucket is moved, now or before.
fn move_early(table: &Table, bucket: usize) -> bool {
    let Some(mut run) = table.index.migration.claim(bucket) else { return table.index.migration.is_migrated(bucket) };
    let layout = table.index.layout();
    let is_moved = layout.moving && move_bucket(table, layout, bucket, true);
    if is_moved {
        run.done();
    }
    is_moved
}

/// Moves as production does, but leaves the versions as they are.
fn displace_unmarked(index: &Index<Heap>, word: u64, segment: SegmentRef<'_, Payloads>, step: &Move) -> bool {
    let from = usize::from(step.bucket);
    let _guard = index.stripes.lock_pair(from, alternate(from, step.lane.tag(), segment.bucket_mask()));
    index.directories.word() == word && step.carry_out(segment, || ())
}

/// Leaves the filter of the first bucket as it is.
fn displace_unfiltered(index: &Index<Heap>, word: u64, segment: SegmentRef<'_, Payloads>, step: &Move) -> bool {
    let (from, tag) = (usize::from(step.bucket), step.lane.tag());
    let mut guard = index.stripes.lock_pair(from, alternate(from, tag, segment.bucket_mask()));
    let was_set = segment.tags(from).may_be_away(tag);
    let is_done = index.directories.word() == word && step.carry_out(segment, || guard.start_writing());
    if is_done && !step.lane.is_away() {
        change_tags(segment, from, |tags| tags.with_away(tag, was_set));
    }
    is_done
}

/// Clears the filter bit of the removed key's class, whoever else needs it.
fn remove_with_filter(index: &Index<Heap>, probe: &Probe, locked: &mut LockedPayload<'_, Heap>, place: Place) {
    let away = segment_away(index, probe, locked.content(place));
    locked.remove(place);
    if let Some(segment) = away {
        change_tags(segment, probe.first(segment.bucket_mask()), |tags| tags.with_away(probe.tag(), false));
    }
}

/// Moves bucket by bucket what finds room, as production does, but leaves the versions as they are unless it `marks`.
fn grow_in_steps(table: &Table, buckets: usize, marks: bool) -> Result<Growth, GrowError> {
    let mut run = table.index.migration.next_run(buckets);
    let mut growth = None;
    while let Some(bucket) = run.claim_next() {
        let layout = table.index.layout();
        if !layout.moving {
            return Err(GrowError::Busy);
        }
        if !move_bucket(table, layout, bucket, marks) {
            break;
        }
        run.done();
        growth = Some(Growth::Underway);
    }
    drop(run);
    let is_between = || table.index.growing.try_lock().is_ok_and(|progress| matches!(*progress, Progress::Between));
    match growth {
        Some(growth) => Ok(growth),
        // The segment is allocated, and no bucket moved.
        None if is_between() => table.grow_soundly(0),
        None => table.grow_soundly(buckets),
    }
}

/// Says that a bucket is moved before it is.
fn grow_hastily(table: &Table, buckets: usize) -> Result<Growth, GrowError> {
    let mut run = table.index.migration.next_run(1);
    let Some(bucket) = run.claim_next() else { return table.grow_soundly(buckets) };
    let layout = table.index.layout();
    if !layout.moving {
        return Err(GrowError::Busy);
    }
    run.done();
    drop(run);
    move_bucket(table, layout, bucket, true);
    Ok(Growth::Underway)
}

/// False if a key finds no free slot, or is changed meanwhile.
fn move_bucket(table: &Table, layout: Layout, bucket: usize, marks: bool) -> bool {
    let segment = |directory, at| {
        table.index.segment(layout::SegmentId { directory, at }, SEGMENT_BUCKETS - 1).expect("in force")
    };
    let (new, overlap) = (segment(layout.directory ^ 1, layout.done), layout.overlap());
    // A writer that knows the layout before may still be adding a key here.
    let mut turn = table.index.stripes.lock_pair(bucket, bucket);
    if marks {
        turn.start_writing();
    }
    drop(turn);
    (overlap.first..=overlap.last).all(|at| {
        let old = segment(layout.directory, at);
        (0..BUCKET_SLOTS).all(|slot| move_key(table, layout, (old, new), (bucket, slot), marks))
    })
}

fn move_key(
    table: &Table,
    layout: Layout,
    (old, new): (SegmentRef<'_, Payloads>, SegmentRef<'_, Payloads>),
    (bucket, slot): (usize, usize),
    marks: bool,
) -> bool {
    let Some(lane) = old.tags(bucket).lane(slot) else { return true };
    let other = alternate(bucket, lane.tag(), old.bucket_mask());
    let mut guard = table.index.stripes.lock_pair(bucket, other);
    if old.tags(bucket).lane(slot) != Some(lane) {
        return false;
    }
    let position = Probe::new(table.hash_of(old.content(bucket, slot))).position();
    if share(position, layout.next) != layout.done {
        return true;
    }
    let homes = [(bucket, lane), (other, lane.in_other_bucket())];
    let free = homes.into_iter().find_map(|(to, lane)| Some((to, new.tags(to).free().first()?, lane)));
    let Some((to, free, new_lane)) = free else { return false };
    if marks {
        guard.start_writing();
    }
    new.receive((to, free), new_lane, old, (bucket, slot));
    true
}
