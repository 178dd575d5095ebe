//! The model must be able to fail: maps and users with one fault each, which a schedule has to notice.

use std::sync::{Arc, atomic::Ordering};

use guira_sync::{hint, schedules};

use super::{
    super::{MapTable, pairs},
    Boxed, Inline, Map, Storage, Tracked, Uses, Value, play,
};
use crate::Probe;

/// Schedules of one kind in a round.
const ROUND: usize = 2_000;

/// Schedules that must pass where there is no fault.
const SOUND_SCHEDULES: usize = 5_000;

type Words = [u64; 2];

#[test]
fn shuttle_seeded_faults_of_a_map_of_words_are_noticed() {
    are_noticed::<Words, Inline>(&[
        ("an increment that another may come before", Uses { increment: increment_in_two_steps, ..Uses::SOUND }),
        ("a token that two may take", Uses { take: take_in_two_steps, ..Uses::SOUND }),
        ("a retain that removes what it has not seen", Uses { retain: retain_in_two_steps, ..Uses::SOUND }),
        ("a map that is emptied key by key", Uses { clear: |map| map.retain(|_, _| false), ..Uses::SOUND }),
        ("a clear that leaves the segment being filled", Uses { clear: |map| clear(map, false, true), ..Uses::SOUND }),
        ("a clear that tells no reader", Uses { clear: |map| clear(map, true, false), ..Uses::SOUND }),
    ]);
}

#[test]
fn shuttle_seeded_faults_of_a_map_of_entries_are_noticed() {
    are_noticed::<Tracked, Boxed>(&[
        ("an increment that another may come before", Uses { increment: increment_in_two_steps, ..Uses::SOUND }),
        ("a token that two may take", Uses { take: take_in_two_steps, ..Uses::SOUND }),
        ("a retain that removes what it has not seen", Uses { retain: retain_in_two_steps, ..Uses::SOUND }),
        ("a read that protects nothing", Uses { read: |m, k, look| read(m, k, look, false), ..Uses::SOUND }),
    ]);
}

/// What faults are seeded into, without one.
#[test]
fn shuttle_the_copies_that_a_maps_faults_are_seeded_into_are_sound() {
    let cleared = Uses { clear: |map| clear(map, true, true), ..Uses::SOUND };
    is_sound::<Words, Inline>(cleared);
    let protected = Uses { read: |map, key, look| read(map, key, look, true), ..Uses::SOUND };
    is_sound::<Tracked, Boxed>(protected);
}

fn is_sound<V: Value, L: Storage<u64, V>>(uses: Uses<V, L>) {
    let scheduler = schedules::few_preemptions(SOUND_SCHEDULES);
    assert_eq!(schedules::notices(scheduler, move || play(uses, &Arc::default())), None);
}

fn are_noticed<V: Value, L: Storage<u64, V>>(faults: &[(&str, Uses<V, L>)]) {
    schedules::are_noticed(ROUND, faults, |uses| play(uses, &Arc::default()));
}

fn increment_in_two_steps<V: Value, L: Storage<u64, V>>(map: &Map<V, L>, key: u64) -> bool {
    map.get(&key).is_some_and(|value| map.upsert(key, value.next(key)).is_ok())
}

fn take_in_two_steps<V: Value, L: Storage<u64, V>>(map: &Map<V, L>, key: u64) -> bool {
    let is_there = map.contains_key(&key);
    map.delete(&key);
    is_there
}

fn retain_in_two_steps<V: Value, L: Storage<u64, V>>(map: &Map<V, L>, keep: &mut dyn FnMut(&u64, &V) -> bool) {
    let mut unwanted = Vec::new();
    map.for_each(|key, value| {
        if !keep(key, value) {
            unwanted.push(*key);
        }
    });
    unwanted.iter().for_each(|key| drop(map.remove(key)));
}

/// Clears as production does, but for the segment that is being filled, or for the mark that readers go by.
fn clear(map: &Map<Words, Inline>, all_segments: bool, marks: bool) {
    let table = &map.table;
    let _layout_stays = table.lock_growth();
    let mut all = table.stripes.lock_all();
    if marks {
        all.start_writing();
    }
    let layout = table.layout();
    let mask = layout.bucket_mask(MapTable::<u64, Words, Inline, 4>::FULL_MASK);
    let is_cleared = |directory: usize| all_segments || directory == layout.directory;
    for segment in layout.segments().filter(|id| is_cleared(id.directory)).filter_map(|id| table.segment(id, mask)) {
        for bucket in 0..segment.buckets() {
            for slot in segment.tags(bucket).taken() {
                let hash = map.hash_of_content(segment.content(bucket, slot));
                table.count(Probe::new(hash).first(mask) & (table.stripes() - 1), u32::MAX);
            }
            segment.clear_bucket(bucket);
        }
    }
}

/// Reads as production does, but gives the guard up before it looks at what it has found, unless it protects.
fn read(map: &Map<Tracked, Boxed>, key: u64, look: &mut dyn FnMut(&Tracked) -> u64, protects: bool) -> Option<u64> {
    let hash = map.hash_of(&key);
    let mut guard = Some(map.protect());
    let marked = map.table.read(&Probe::new(hash), |content| {
        let marked = content.pointer::<u64, Tracked>().load(Ordering::Acquire);
        // SAFETY: a slot that is taken holds an entry, which the guard protects.
        (pairs::may_be(marked, hash) && unsafe { (*pairs::unmark(marked)).key } == key).then_some(marked)
    })?;
    if !protects {
        guard = None;
    }
    hint::schedule();
    // SAFETY: none, if it does not protect: then the entry may have been freed, which is the fault.
    let seen = look(unsafe { &(*pairs::unmark(marked)).value });
    drop(guard);
    Some(seen)
}
