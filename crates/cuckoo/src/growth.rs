//! Growth: one new segment at a time, while readers go on and writers wait for one segment's keys to be moved.
//!
//! Always true: a new segment is filled while nobody can see it and all stripes are held (writers wait, readers do not); it
//! comes into force with one store of the layout word; only then are the moved keys taken out of the old segments, and only
//! after that are old segments that the new ones have passed given back.

use std::ptr::NonNull;

use guira_sync::atomic::{Ordering, fence};

use crate::{
    bucket::BUCKET_SLOTS,
    index::{Index, move_item},
    layout::{Layout, SEGMENT_BUCKETS, SEGMENT_SLOTS, Segment, SegmentSource, share},
    path,
    probe::{Probe, alternate},
};

/// Occupancy, in percent, from which on the index should grow: the fullest segment of a thousand then is at 96 %.
const FULL_PERCENT: usize = 92;

/// What a step of growth achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// There is none under way.
    Idle,
    /// A segment was moved, more are waiting.
    Underway,
    /// The last segment was moved.
    Complete,
}

/// Why a step of growth failed; the index is as it was before the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrowError {
    /// The source has no memory for another segment.
    NoMemory,
    /// The index has as many segments as it may.
    AtMaximum,
    /// Another thread is at it.
    Busy,
    /// The keys of a new segment found no place in it; with a secret seed this does not happen.
    Unplaced,
}

impl<S: SegmentSource, D: Default> Index<S, D> {
    /// Whether the index is as full as it should get.
    pub fn should_grow(&self) -> bool {
        self.len() * 100 >= self.capacity() * FULL_PERCENT
    }

    /// Whether a growth is under way.
    pub fn is_growing(&self) -> bool {
        self.layout().next != 0
    }

    /// Begins to grow to `segments`, as far as the maximum allows, unless it is growing already. Where memory is short a
    /// quarter more at a time is a good measure: after it the index is three quarters full, and a key is moved four times in
    /// its life on average.
    ///
    /// # Errors
    /// [`GrowError::AtMaximum`], or [`GrowError::Busy`].
    pub fn begin_growth(&self, segments: usize) -> Result<(), GrowError> {
        let _growing = self.growing.try_lock().map_err(|_| GrowError::Busy)?;
        let layout = self.layout();
        if layout.next != 0 {
            return Ok(());
        }
        let next = segments.min(self.directories.segments_max());
        if next <= layout.current {
            return Err(GrowError::AtMaximum);
        }
        let _all = self.stripes.lock_all();
        self.directories.publish(Layout { next, done: 0, ..layout });
        Ok(())
    }

    /// Moves one segment's worth of keys. `prefetch` and `hash` are called with payloads; while they are, no key is changed.
    ///
    /// # Errors
    /// [`GrowError`]; the step may be tried again.
    pub fn grow_step(&self, prefetch: impl Fn(u32), hash: impl Fn(u32) -> u64) -> Result<Growth, GrowError> {
        let _growing = self.growing.try_lock().map_err(|_| GrowError::Busy)?;
        let before = self.layout();
        if before.next == 0 {
            return Ok(Growth::Idle);
        }
        let pointer = self.allocate_segment().ok_or(GrowError::NoMemory)?;
        // SAFETY: just handed out by the source for a whole segment, mapped as long as `self` lives.
        let new = unsafe { &*pointer };
        let old = Overlap::of(before);
        let mut moved = Vec::with_capacity(SEGMENT_SLOTS);
        let all = self.stripes.lock_all();
        for at in old.first..=old.last {
            let segment = self.current_segment(before, at);
            for (number, bucket) in segment.iter().enumerate() {
                // The keys of the bucket after next are on their way while this one's are hashed.
                if let Some(ahead) = segment.get(number + 2) {
                    (0..BUCKET_SLOTS)
                        .filter(|slot| ahead.tag(*slot) != 0)
                        .for_each(|slot| prefetch(ahead.payload(slot)));
                }
                for slot in 0..BUCKET_SLOTS {
                    if bucket.tag(slot) == 0 {
                        continue;
                    }
                    let payload = bucket.payload(slot);
                    let probe = Probe::new(hash(payload));
                    if share(probe.position, before.next) != before.done {
                        continue;
                    }
                    if !insert_unseen(new, &probe, payload) {
                        drop(all);
                        self.source.release(non_null(pointer));
                        return Err(GrowError::Unplaced);
                    }
                    moved.push((at, number, slot));
                }
            }
        }
        let done = before.done + 1;
        let complete = done == before.next;
        self.directories.set_segment(before.directory ^ 1, before.done, pointer);
        self.directories.publish(if complete {
            Layout { directory: before.directory ^ 1, current: before.next, next: 0, done: 0 }
        } else {
            Layout { done, ..before }
        });
        // Release: pairs with the Acquire fence in `Stripes::is_unchanged`; a reader that sees a key gone from its old segment
        // also sees that the layout has changed.
        fence(Ordering::Release);
        for (at, number, slot) in moved {
            self.current_segment(before, at)[number].set_tag(slot, 0);
        }
        drop(all);
        for at in old.first..old.passed {
            self.source.release(non_null(self.directories.segment(before.directory, at)));
        }
        Ok(if complete { Growth::Complete } else { Growth::Underway })
    }

    fn current_segment(&self, layout: Layout, at: usize) -> &Segment {
        // SAFETY: a directory entry below `current` was handed out by the source, which keeps it mapped as long as it lives,
        // and is released only behind the point up to which growth has passed.
        unsafe { &*self.directories.segment(layout.directory, at) }
    }
}

fn non_null(segment: *mut Segment) -> NonNull<Segment> {
    NonNull::new(segment).expect("a segment in force is not null")
}

/// The old segments that the next new one draws on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Overlap {
    first: usize,
    last: usize,
    /// Old segments before this one are behind the new ones once the step is done.
    passed: usize,
}

impl Overlap {
    fn of(layout: Layout) -> Self {
        let Layout { current, next, done, .. } = layout;
        // New segment `done` of `next` begins where old segment `done * current / next` reaches to.
        let first = done * current / next;
        let last = ((done + 1) * current).div_ceil(next).max(first + 1) - 1;
        Self { first, last: last.min(current - 1), passed: (done + 1) * current / next }
    }
}

/// Inserts into a segment that nobody else can see.
fn insert_unseen(segment: &Segment, probe: &Probe, payload: u32) -> bool {
    let Some(path) = path::search(segment, probe) else { return false };
    for step in path.moves() {
        let to = alternate(step.bucket, step.tag);
        let moved = move_item(&segment[usize::from(step.bucket)], &segment[usize::from(to)], step, || ());
        assert!(moved, "nobody else changes an unseen segment");
    }
    let free = [probe.first, probe.second]
        .into_iter()
        .find_map(|number| Some((number, segment[usize::from(number)].free().first()?)));
    let Some((number, slot)) = free else { return false };
    let bucket = &segment[usize::from(number)];
    bucket.set_payload(slot, payload);
    bucket.set_tag(slot, probe.tag);
    true
}

const _: () = assert!(SEGMENT_SLOTS == SEGMENT_BUCKETS * BUCKET_SLOTS);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_position_lies_in_the_overlap_of_its_new_segment() {
        for (current, next) in [(1, 2), (4, 5), (5, 7), (100, 125), (3, 4)] {
            for position in (0..=u32::MAX).step_by(4_999_999) {
                let done = share(position, next);
                let overlap = Overlap::of(Layout { directory: 0, current, next, done });
                let old = share(position, current);
                assert!((overlap.first..=overlap.last).contains(&old), "{position} {current} {next} {overlap:?}");
                assert!(overlap.passed <= overlap.last + 1);
            }
            let passed = |done| Overlap::of(Layout { directory: 0, current, next, done }).passed;
            assert_eq!(passed(next - 1), current, "in the end all are passed");
        }
    }

    #[test]
    fn each_old_segment_is_passed_once() {
        for (current, next) in [(4, 5), (5, 7), (100, 125)] {
            let mut released = Vec::new();
            for done in 0..next {
                let overlap = Overlap::of(Layout { directory: 0, current, next, done });
                released.extend(overlap.first..overlap.passed);
            }
            assert_eq!(released, (0..current).collect::<Vec<_>>());
        }
    }
}
