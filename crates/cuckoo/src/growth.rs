//! Growth: one new segment at a time, bucket by bucket, while readers and writers go on. Whoever helps moves buckets of its own
//! (migration.rs); a lock is held only to get from one segment to the next.
//!
//! ```text
//! begin_growth ──> allocate a segment, publish "moving" ──> move the buckets of the old segments it draws on
//!                        ^                                                 │
//!                        └── give back what has been passed <── settle <───┴ publish "done"
//! ```
//! Always true:
//! - while a share of the positions is being moved its keys are looked for in the old segment and in the new one, new keys go
//!   to the new one, and nothing is displaced in the old one but out of buckets that have been moved, whose keys stay; each key
//!   moves under the stripes of both its buckets, and every bucket's stripe is marked when its turn comes, whether there is a key
//!   to move or not;
//! - *settling* takes and gives back each stripe once, so that no writer is left that knows the layout before; only then are old
//!   segments given back.
//!
//! A table of one small segment is rebuilt in one go, with all stripes held: there are few keys.

use std::sync::{PoisonError, TryLockError};

use guira_sync::{
    mutex::MutexGuard,
    order::{Held, Rank},
};

use crate::{
    layout::{Layout, SegmentId, share},
    path::{self, Move},
    probe::{Probe, alternate},
    segment::{Geometry, SegmentRef, SegmentSource},
    table::Table,
    tags::Lane,
};

/// Stripes settled in the time in which one bucket is moved, roughly.
const STRIPES_SETTLED_A_BUCKET: usize = 8;

/// Buckets whose keys are on their way while those of another one are hashed.
const PREFETCHED_BUCKETS: usize = 2;

/// Attempts to place one key in the new segment, each spoilt by another writer.
const PLACEMENTS_MAX: u32 = 64;

/// What a step of growth achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// There is none under way.
    Idle,
    /// Something was moved, more is waiting.
    Underway,
    /// The last segment was moved.
    Complete,
}

/// Why a step of growth failed; every key is where it can be found, and the step may be tried again.
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
    /// Growth is not where a key's buckets lie, or has no slot to free there.
    NothingToFree,
}

/// How far growth has come; kept under the lock of whoever grows the table.
#[derive(Debug, Default)]
pub(crate) enum Progress {
    /// No segment is being filled.
    #[default]
    Between,
    /// One is.
    Moving,
    /// Stripes before this one have been settled; then these old segments go back.
    Settling { stripe: usize, directory: usize, passed: std::ops::Range<usize> },
}

impl<G: Geometry, S: SegmentSource, D: Default> Table<G, S, D> {
    /// Whether the table is as full as it should get: at [`Geometry::FULL_PERCENT`].
    pub fn should_grow(&self) -> bool {
        self.keys_before_growth() == 0
    }

    /// How many keys more make the table as full as it should get.
    pub fn keys_before_growth(&self) -> usize {
        (self.capacity() * G::FULL_PERCENT).div_ceil(100).saturating_sub(self.len())
    }

    /// Whether a growth is under way.
    pub fn is_growing(&self) -> bool {
        self.layout().next != 0
    }

    /// Begins to grow to what `segments` makes of the present number, as far as the maximum allows, unless it is growing already.
    /// Where memory is short a quarter more at a time is a good measure: after it the index is three quarters full, and a key
    /// is moved four times in its life on average.
    ///
    /// # Errors
    /// [`GrowError::AtMaximum`], or [`GrowError::Busy`].
    pub fn begin_growth(&self, segments: impl FnOnce(usize) -> usize) -> Result<(), GrowError> {
        let (mut progress, _held) = self.try_grow()?;
        let layout = self.layout();
        if layout.next != 0 {
            return Ok(());
        }
        let next = segments(layout.current).min(self.segments_max);
        if next <= layout.current || layout.small_bits.is_some() {
            return Err(GrowError::AtMaximum);
        }
        self.settle(&mut progress, usize::MAX);
        self.directories.make_room(layout.directory ^ 1, next);
        self.directories.publish(Layout { next, done: 0, ..layout });
        Ok(())
    }

    /// Moves one segment's worth of keys. `hash` is called with contents while nobody changes those keys; `prefetch` too, but
    /// without that promise.
    ///
    /// # Errors
    /// [`GrowError`]; the step may be tried again.
    pub fn grow_step<'a>(
        &'a self,
        prefetch: impl Fn(G::Content<'a>),
        hash: impl Fn(G::Content<'a>) -> u64,
    ) -> Result<Growth, GrowError> {
        self.grow_by(usize::MAX, prefetch, hash)
    }

    /// The same for at most so many buckets, so that whoever inserts can do a little of it each time; at most one segment's.
    ///
    /// # Errors
    /// [`GrowError`]; the step may be tried again.
    pub fn grow_by<'a>(
        &'a self,
        buckets: usize,
        prefetch: impl Fn(G::Content<'a>),
        hash: impl Fn(G::Content<'a>) -> u64,
    ) -> Result<Growth, GrowError> {
        let mut left = buckets;
        loop {
            while left > 0 && !self.migration.are_dealt() {
                left -= self.move_run(left, &prefetch, &hash)?;
            }
            if left == 0 && !self.migration.is_complete() {
                return Ok(Growth::Underway);
            }
            let busy = if left < buckets { Ok(Growth::Underway) } else { Err(GrowError::Busy) };
            let Ok((mut progress, _held)) = self.try_grow() else { return busy };
            if matches!(*progress, Progress::Moving) {
                if !self.migration.is_complete() {
                    // The others have claimed what there was to move.
                    return busy;
                }
                *progress = self.finish_segment(self.layout());
            }
            let layout = self.layout();
            if matches!(*progress, Progress::Settling { .. }) {
                // The last segment's is seen to the end: nobody would ask for more.
                let is_complete = layout.next == 0;
                let budget = if is_complete { usize::MAX } else { left.saturating_mul(STRIPES_SETTLED_A_BUCKET) };
                return Ok(match self.settle(&mut progress, budget) {
                    true if is_complete => Growth::Complete,
                    _ => Growth::Underway,
                });
            }
            if layout.next == 0 {
                return Ok(Growth::Idle);
            }
            let segment = self.allocate_segment(Self::FULL_MASK).ok_or(GrowError::NoMemory)?;
            self.directories.set_segment(Self::new_segment(layout), segment.base());
            self.migration.begin();
            self.directories.publish(Layout { moving: true, ..layout });
            *progress = Progress::Moving;
            self.migration.deal();
        }
    }

    /// Moves the next buckets, at most so many, and returns how many it did.
    fn move_run<'a>(
        &'a self,
        len: usize,
        prefetch: &impl Fn(G::Content<'a>),
        hash: &impl Fn(G::Content<'a>) -> u64,
    ) -> Result<usize, GrowError> {
        let mut run = self.migration.next_run(len);
        let dealt = run.rest();
        let mut moved = 0;
        while let Some(bucket) = run.claim_next() {
            // Only while a bucket is claimed are the segments there to be looked into.
            let last = bucket + PREFETCHED_BUCKETS;
            let ahead = if moved == 0 { bucket..=last } else { last..=last };
            ahead.filter(|bucket| dealt.contains(bucket)).for_each(|bucket| self.prefetch_bucket(bucket, prefetch));
            self.move_bucket(bucket, hash)?;
            run.done();
            moved += 1;
        }
        Ok(moved)
    }

    /// Has the keys of a bucket that is to be moved on their way before they are hashed. The caller has claimed a bucket.
    fn prefetch_bucket<'a>(&'a self, bucket: usize, prefetch: &impl Fn(G::Content<'a>)) {
        let layout = self.layout();
        if layout.moving {
            for old in self.emptying(layout) {
                old.tags(bucket).taken().for_each(|slot| prefetch(old.content(bucket, slot)));
            }
        }
    }

    /// The segments that the one that is being filled draws on. They are in force as long as the caller has claimed a bucket.
    fn emptying(&self, layout: Layout) -> impl Iterator<Item = SegmentRef<'_, G>> {
        let overlap = layout.overlap();
        (overlap.first..=overlap.last).map(move |at| self.in_force(SegmentId { directory: layout.directory, at }))
    }

    fn try_grow(&self) -> Result<(MutexGuard<'_, Progress>, Held), GrowError> {
        let held = Held::note(Rank::Growth);
        match self.growing.try_lock() {
            Ok(progress) => Ok((progress, held)),
            // A hash that panicked left the growth as far as it had come.
            Err(TryLockError::Poisoned(poisoned)) => Ok((poisoned.into_inner(), held)),
            Err(TryLockError::WouldBlock) => Err(GrowError::Busy),
        }
    }

    /// The same for those who wait until nobody else is at it.
    pub(crate) fn lock_growth(&self) -> (MutexGuard<'_, Progress>, Held) {
        let held = Held::note(Rank::Growth);
        (self.growing.lock().unwrap_or_else(PoisonError::into_inner), held)
    }

    /// The segment that is being filled, or is next to be.
    fn new_segment(layout: Layout) -> SegmentId {
        SegmentId { directory: layout.directory ^ 1, at: layout.done }
    }

    fn in_force(&self, id: SegmentId) -> SegmentRef<'_, G> {
        self.segment(id, Self::FULL_MASK).expect("a segment in force is not null")
    }

    /// Brings the segment that has been filled into force.
    fn finish_segment(&self, layout: Layout) -> Progress {
        let overlap = layout.overlap();
        let done = layout.done + 1;
        self.directories.publish(if done == layout.next {
            Layout::steady(layout.directory ^ 1, layout.next)
        } else {
            Layout { done, moving: false, ..layout }
        });
        Progress::Settling { stripe: 0, directory: layout.directory, passed: overlap.first..overlap.passed }
    }

    /// Settles at most so many stripes; true once there are no more.
    fn settle(&self, progress: &mut Progress, budget: usize) -> bool {
        let Progress::Settling { stripe, directory, passed } = progress else { return true };
        for _ in 0..budget {
            if *stripe == self.stripes.len() {
                break;
            }
            drop(self.stripes.lock_pair(*stripe, *stripe));
            *stripe += 1;
        }
        if *stripe < self.stripes.len() {
            return false;
        }
        for at in passed.clone() {
            let segment = self.in_force(SegmentId { directory: *directory, at });
            self.source.release(segment.base(), G::segment_bytes(G::BUCKETS));
        }
        *progress = Progress::Between;
        true
    }

    /// Moves the keys of one bucket, which this thread has claimed, that belong to the new segment.
    fn move_bucket<'a>(&'a self, bucket: usize, hash: &impl Fn(G::Content<'a>) -> u64) -> Result<(), GrowError> {
        // It stays as long as the bucket is claimed.
        let layout = self.layout();
        // The round may have begun a moment before the layout says so.
        if !layout.moving {
            return Err(GrowError::Busy);
        }
        let new = self.in_force(Self::new_segment(layout));
        let belongs = |content| share(Probe::new(hash(content)).position(), layout.next) == layout.done;
        for old in self.emptying(layout) {
            let mut rest = [None; 16];
            let mut guard = self.stripes.lock_pair(bucket, bucket);
            let tags = old.tags(bucket);
            let mut moving = [false; 16];
            tags.taken().for_each(|slot| moving[slot] = belongs(old.content(bucket, slot)));
            // Readers wait from here on; hashing, which may take a cache miss for each key, is done.
            guard.start_writing();
            for slot in tags.taken().filter(|slot| moving[*slot]) {
                let Some(lane) = tags.lane(slot) else { continue };
                match new.tags(bucket).free().first() {
                    Some(free) if !lane.is_away() => new.receive((bucket, free), lane, old, (bucket, slot)),
                    _ => rest[slot] = Some(lane),
                }
            }
            drop(guard);
            for (slot, lane) in rest.into_iter().enumerate() {
                if let Some(lane) = lane {
                    self.move_key(old, new, (bucket, slot), lane, &belongs, hash)?;
                }
            }
        }
        Ok(())
    }

    /// Frees a slot in one of the key's buckets if they lie in a segment that growth is emptying for other keys: these are moved
    /// before their turn. `prefetch` and `hash` as for [`Table::grow_step`].
    ///
    /// # Errors
    /// [`GrowError::NothingToFree`] if that is not where they lie, or if it frees none. [`GrowError::Busy`] if another thread is moving
    /// one of the buckets. Otherwise as [`Table::grow_step`].
    pub fn make_room_in_growth<'a>(
        &'a self,
        probe: &Probe,
        prefetch: impl Fn(G::Content<'a>),
        hash: impl Fn(G::Content<'a>) -> u64,
    ) -> Result<(), GrowError> {
        let word = self.directories.word();
        let layout = Layout::of_word(word);
        let whereabouts = layout.whereabouts(probe.position());
        if whereabouts.to.is_some() || !layout.is_emptying(whereabouts.from) {
            return Err(GrowError::NothingToFree);
        }
        let segment = self.segment(whereabouts.from, Self::FULL_MASK).ok_or(GrowError::Busy)?;
        let own = [probe.first(Self::FULL_MASK), probe.second(Self::FULL_MASK)];
        // Another thread may be at one of these buckets, and stand still: the others may do.
        let mut outcome = GrowError::NothingToFree;
        let mut has_room = |bucket| match self.move_early(bucket, &prefetch, &hash) {
            Ok(()) => segment.tags(bucket).free().first().is_some(),
            Err(error) => {
                outcome = error;
                false
            }
        };
        if own.into_iter().any(&mut has_room) {
            return Ok(());
        }
        for bucket in own.into_iter().filter(|bucket| self.migration.is_migrated(*bucket)) {
            // Whoever is in it stays in the segment, and may go where there is room.
            let tags = segment.tags(bucket);
            for (slot, lane) in tags.taken().filter_map(|slot| Some((slot, tags.lane(slot)?))) {
                let step = Move { bucket: bucket as u16, slot: slot as u8, lane };
                if has_room(alternate(bucket, lane.tag(), Self::FULL_MASK)) && self.displace(word, segment, &step) {
                    return Ok(());
                }
            }
        }
        Err(outcome)
    }

    /// Moves a bucket unless that has been done.
    fn move_early<'a>(
        &'a self,
        bucket: usize,
        prefetch: &impl Fn(G::Content<'a>),
        hash: &impl Fn(G::Content<'a>) -> u64,
    ) -> Result<(), GrowError> {
        let Some(mut run) = self.migration.claim(bucket) else {
            return if self.migration.is_migrated(bucket) { Ok(()) } else { Err(GrowError::Busy) };
        };
        self.prefetch_bucket(bucket, prefetch);
        self.move_bucket(bucket, hash)?;
        run.done();
        Ok(())
    }

    /// Moves one key for which both its stripes are needed.
    fn move_key<'a>(
        &'a self,
        old: SegmentRef<'a, G>,
        new: SegmentRef<'a, G>,
        at: (usize, usize),
        lane: Lane,
        belongs: &impl Fn(G::Content<'a>) -> bool,
        hash: &impl Fn(G::Content<'a>) -> u64,
    ) -> Result<(), GrowError> {
        let (bucket, slot) = at;
        let other = alternate(bucket, lane.tag(), Self::FULL_MASK);
        let (first, second) = if lane.is_away() { (other, bucket) } else { (bucket, other) };
        for _ in 0..PLACEMENTS_MAX {
            let mut guard = self.stripes.lock_pair(bucket, other);
            // Somebody may have removed it, and put a key of another share in its place.
            if old.tags(bucket).lane(slot) != Some(lane) || !belongs(old.content(bucket, slot)) {
                return Ok(());
            }
            let homes = [(first, Lane::home(lane.tag())), (second, Lane::away(lane.tag()))];
            let free = homes.into_iter().find_map(|(to, lane)| Some((to, new.tags(to).free().first()?, lane)));
            if let Some((to, free, lane)) = free {
                guard.start_writing();
                new.receive((to, free), lane, old, at);
                return Ok(());
            }
            let probe = Probe::new(hash(old.content(bucket, slot)));
            drop(guard);
            // The layout stays as long as the bucket is claimed. A move that another writer spoilt is looked for again.
            let word = self.directories.word();
            let path = path::search(new, &probe).ok_or(GrowError::Unplaced)?;
            let _all_carried_out = path.moves().all(|step| self.displace(word, new, step));
        }
        Err(GrowError::Unplaced)
    }

    /// Puts the keys of a table of one small segment into the segments of `to`, whose directory does not matter, unless another
    /// thread has done so, or more, meanwhile. `hash` is called with contents while no key is changed.
    ///
    /// # Errors
    /// [`GrowError::NoMemory`] or [`GrowError::Unplaced`]; nothing has changed.
    pub(crate) fn rebuild<'a>(&'a self, to: Layout, hash: impl Fn(G::Content<'a>) -> u64) -> Result<(), GrowError> {
        let _growth = self.lock_growth();
        let before = self.layout();
        let size = |layout: Layout| layout.current * (layout.bucket_mask(Self::FULL_MASK) + 1);
        if before.small_bits.is_none() || size(before) >= size(to) {
            return Ok(());
        }
        to.assert_small_is_smaller(Self::FULL_MASK);
        let to = Layout { directory: before.directory ^ 1, ..to };
        let mask = to.bucket_mask(Self::FULL_MASK);
        let mut unseen = Unseen { table: self, segments: Vec::new() };
        for _ in 0..to.current {
            unseen.segments.push(self.allocate_segment(mask).ok_or(GrowError::NoMemory)?);
        }
        self.directories.make_room(to.directory, to.current);
        let old_id = SegmentId { directory: before.directory, at: 0 };
        let old = self.segment(old_id, before.bucket_mask(Self::FULL_MASK)).expect("a segment in force is not null");
        let mut all = self.stripes.lock_all();
        for bucket in 0..old.buckets() {
            for slot in old.tags(bucket).taken() {
                let content = old.content(bucket, slot);
                let probe = Probe::new(hash(content));
                if !insert_unseen(unseen.segments[share(probe.position(), to.current)], &probe, content) {
                    return Err(GrowError::Unplaced);
                }
            }
        }
        for (at, segment) in std::mem::take(&mut unseen.segments).into_iter().enumerate() {
            self.directories.set_segment(SegmentId { directory: to.directory, at }, segment.base());
        }
        self.directories.publish(to);
        // Readers who come later look again; the old segment is as they have seen it until then.
        all.start_writing();
        // What the slots name may be freed from now on.
        (0..old.buckets()).for_each(|bucket| old.clear_bucket(bucket));
        drop(all);
        self.source.release(old.base(), G::segment_bytes(old.buckets()));
        Ok(())
    }
}

/// Segments that go back unless they are taken away.
struct Unseen<'a, G: Geometry, S: SegmentSource, D: Default> {
    table: &'a Table<G, S, D>,
    segments: Vec<SegmentRef<'a, G>>,
}

impl<G: Geometry, S: SegmentSource, D: Default> Drop for Unseen<'_, G, S, D> {
    fn drop(&mut self) {
        for segment in &self.segments {
            self.table.source.release(segment.base(), G::segment_bytes(segment.buckets()));
        }
    }
}

/// Inserts into a segment that nobody else can see; false if it finds no place.
pub(crate) fn insert_unseen<G: Geometry>(segment: SegmentRef<'_, G>, probe: &Probe, content: G::Content<'_>) -> bool {
    let Some(path) = path::search(segment, probe) else { return false };
    path.carry_out(segment);
    let mask = segment.bucket_mask();
    let homes = [(probe.first(mask), Lane::home(probe.tag())), (probe.second(mask), Lane::away(probe.tag()))];
    let free = homes.into_iter().find_map(|(bucket, lane)| Some((bucket, segment.tags(bucket).free().first()?, lane)));
    let Some((bucket, slot, lane)) = free else { return false };
    segment.put(bucket, slot, lane, content);
    true
}
