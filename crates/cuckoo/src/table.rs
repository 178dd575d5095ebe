//! The table: optimistic reads, locked changes, insertion with displacement.
//!
//! Always true: whatever becomes of a key happens under the stripe of its first bucket, and marks it, and under that of the bucket
//! in which it lies; displacement and growth are no exceptions. So a reader that asks for the first bucket's stripe before it asks
//! for the layout, and finds it unchanged afterwards, has seen one state of the key; and whoever holds it knows whether the key
//! is there.

use std::{marker::PhantomData, ptr::NonNull};

use guira_sync::{
    Stripes, Version,
    atomic::{AtomicU32, Ordering},
    mutex::Mutex,
    reuse,
};

use crate::{
    growth::Progress,
    layout::{self, Directories, Layout, SEGMENTS_MAX, SegmentId},
    locked::{Locked, Place},
    migration::Migration,
    path::{self, Move},
    prefetch::prefetch,
    probe::{Probe, alternate},
    residence::{Homes, Residence},
    segment::{Geometry, SegmentRef, SegmentSource, ways},
    tags::Lane,
};

/// Optimistic attempts before a read takes the lock like a writer: many more than writers that come and go can spoil, so
/// only a reader that is out of luck for microseconds on end pays.
const ATTEMPTS_MAX: u32 = 256;

/// Displacement searches in a row, each spoilt by another writer, before all stripes are taken for one that nobody spoils
/// (Li 3.3.4): a search is spoilt once in many thousands.
const SEARCHES_MAX: u32 = 16;

/// A concurrent cuckoo table of segments of geometry `G`, and a `D` for each stripe in which the caller counts what it counts
/// under the lock. See the crate's documentation.
#[derive(Debug)]
pub struct Table<G: Geometry, S: SegmentSource, D = ()> {
    pub(crate) stripes: Stripes<StripeData<D>>,
    pub(crate) directories: Directories,
    /// Held by whoever takes a growth from one segment to the next.
    pub(crate) growing: Mutex<Progress>,
    pub(crate) migration: Migration,
    pub(crate) segments_max: usize,
    pub(crate) source: S,
    geometry: PhantomData<fn() -> G>,
}

/// What stands beside a stripe's word.
#[derive(Debug, Default)]
pub(crate) struct StripeData<D> {
    /// Keys added less keys removed under this stripe; changed under it. Only the sum over all stripes is the table's.
    len: AtomicU32,
    data: D,
}

/// There is no room for a key: its segment is as full as it gets. Growing helps, or removing one of the keys that
/// [`Locked::neighbours`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// A read was disturbed by writers each time it was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contended;

/// A writer got in between.
pub(crate) struct Disturbed;

/// A read that has begun: the segment, and the version of the stripe of the key's first bucket.
#[derive(Debug)]
pub(crate) struct Look<'a, G> {
    /// A full-sized segment of the table.
    base: NonNull<u8>,
    pub version: Version<'a>,
    geometry: PhantomData<fn() -> G>,
}

impl<'a, G: Geometry> Look<'a, G> {
    #[inline(always)]
    pub fn segment(&self) -> SegmentRef<'a, G> {
        // SAFETY: `base` comes from a directory, which holds what the source, which lives for `'a`, handed out for full-sized
        // segments (`begin_look`).
        unsafe { SegmentRef::new(self.base, G::BUCKETS - 1) }
    }
}

fn sum<'a, D: 'a>(stripes: impl Iterator<Item = &'a StripeData<D>>) -> usize {
    let sum = stripes.fold(0u64, |sum, stripe| {
        // A stripe's own count may be below zero.
        sum.wrapping_add(i64::from(stripe.len.load(Ordering::Relaxed) as i32) as u64)
    });
    // Beside writers the sum may be off by what they have just done.
    usize::try_from(sum as i64).unwrap_or(0)
}

impl<G: Geometry, S: SegmentSource, D: Default> Table<G, S, D> {
    pub(crate) const FULL_MASK: usize = {
        assert!(G::BUCKETS.is_power_of_two() && G::BUCKETS >= 2 && G::BUCKETS <= 1 << crate::probe::BUCKET_BITS_MAX);
        G::BUCKETS - 1
    };

    /// A table of `segments` full-sized segments that may grow to `segments_max`, with a stripe for each bucket number.
    ///
    /// # Errors
    /// [`Full`] if the source has no memory for that many.
    pub fn new(source: S, segments: usize, segments_max: usize) -> Result<Self, Full> {
        let segments_max = segments_max.max(segments).clamp(1, SEGMENTS_MAX);
        let segments = segments.clamp(1, segments_max);
        Self::with_layout(source, Layout::steady(0, segments), segments_max, segments_max, Stripes::new(G::BUCKETS))
    }

    /// A table that begins as `layout` says. `room` segments fit into its first directories.
    pub(crate) fn with_layout(
        source: S,
        layout: Layout,
        segments_max: usize,
        room: usize,
        stripes: Stripes<StripeData<D>>,
    ) -> Result<Self, Full> {
        assert!(stripes.len() <= G::BUCKETS, "more stripes than numbers of buckets");
        let table = Self {
            stripes,
            directories: Directories::new(room, layout),
            growing: Mutex::new(Progress::default()),
            migration: Migration::new(G::BUCKETS),
            segments_max,
            source,
            geometry: PhantomData,
        };
        for at in 0..layout.current {
            let segment = table.allocate_segment(layout.bucket_mask(Self::FULL_MASK)).ok_or(Full)?;
            table.directories.set_segment(SegmentId { directory: layout.directory, at }, segment.base());
        }
        Ok(table)
    }

    /// An empty segment that nobody can see.
    pub(crate) fn allocate_segment(&self, bucket_mask: usize) -> Option<SegmentRef<'_, G>> {
        let base = self.source.allocate(G::segment_bytes(bucket_mask + 1))?;
        // SAFETY: just handed out by the source, a field of `self`, for as many buckets.
        let segment = unsafe { SegmentRef::new(base, bucket_mask) };
        reuse::before_reuse();
        segment.clear();
        Some(segment)
    }

    /// The memory source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Keys in the table; exact when nobody is writing.
    pub fn len(&self) -> usize {
        sum(self.stripes.all_data())
    }

    /// What so many stripes, the key's and those after it, tell of the number of keys.
    pub(crate) fn estimate_len(&self, probe: &Probe, stripes: usize) -> usize {
        let first = probe.first(Self::FULL_MASK);
        let stripes = stripes.min(self.stripes.len());
        sum((first..first + stripes).map(|stripe| self.stripes.data(stripe))) * (self.stripes.len() / stripes)
    }

    /// The caller's data of the stripe of a key, [`Table::stripe_of`]. It is held by whoever holds the key's [`Locked`].
    #[inline]
    pub fn stripe_data(&self, stripe: usize) -> &D {
        &self.stripes.data(stripe).data
    }

    /// The stripe of a key in a table of full-sized segments: the same whatever else happens.
    #[inline]
    pub fn stripe_of(&self, probe: &Probe) -> usize {
        probe.first(Self::FULL_MASK) & (self.stripes.len() - 1)
    }

    /// How many stripes there are.
    pub fn stripes(&self) -> usize {
        self.stripes.len()
    }

    /// Whether stripes are held by the processor's transactions.
    pub(crate) fn elides_locks(&self) -> bool {
        self.stripes.elides()
    }

    /// Whether there is no key; exact when nobody is writing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Segments held now.
    pub fn segments(&self) -> usize {
        let layout = self.layout();
        let passed = (layout.done * layout.current).checked_div(layout.next).unwrap_or(0);
        layout.current + layout.done + usize::from(layout.moving) - passed
    }

    /// Slots in all segments.
    pub fn capacity(&self) -> usize {
        self.segments() * (self.layout().bucket_mask(Self::FULL_MASK) + 1) * ways::<G>()
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> usize {
        self.segments() * G::segment_bytes(self.layout().bucket_mask(Self::FULL_MASK) + 1)
    }

    pub(crate) fn layout(&self) -> Layout {
        self.directories.layout()
    }

    /// The segment of an id that a layout word names; `None` if that layout is long gone.
    #[inline]
    pub(crate) fn segment(&self, id: SegmentId, bucket_mask: usize) -> Option<SegmentRef<'_, G>> {
        let base = self.directories.segment(id)?;
        // SAFETY: a directory holds what the source, which lives as long as `self`, handed out. Whoever asks under a layout
        // that is not in force any more may get a segment of another size: segments get larger, and only the first entry, of
        // a small segment, ever stands for a smaller one, whose directory then got the larger one before the layout said so.
        Some(unsafe { SegmentRef::new(base, bucket_mask) })
    }

    /// The segment of a key while the table is steady; see [`Directories::steady_segment`] for what it may be when that changes.
    #[inline(always)]
    pub(crate) fn steady_segment(&self, probe: &Probe) -> Option<SegmentRef<'_, G>> {
        let base = self.directories.steady_segment(probe.position())?;
        // SAFETY: a directory holds what the source, which lives as long as `self`, handed out; all of it for full-sized segments if
        // the layout is steady.
        Some(unsafe { SegmentRef::new(base, Self::FULL_MASK) })
    }

    /// Where the keys of a position may be under a layout word; `None` if that layout is long gone.
    #[inline]
    pub(crate) fn homes(&self, word: u64, position: u32) -> Option<Homes<'_, G>> {
        if layout::is_steady(word) {
            let from = self.segment(layout::steady_place(word, position), Self::FULL_MASK)?;
            return Some(Homes { from, to: None });
        }
        self.homes_of(Layout::of_word(word), position)
    }

    #[cold]
    fn homes_of(&self, layout: Layout, position: u32) -> Option<Homes<'_, G>> {
        let mask = layout.bucket_mask(Self::FULL_MASK);
        let whereabouts = layout.whereabouts(position);
        let from = self.segment(whereabouts.from, mask)?;
        let to = match whereabouts.to {
            Some(id) => Some(self.segment(id, mask)?),
            None => None,
        };
        // A small segment's bucket numbers say where its slots lie, so a later segment must not be taken for it. Whoever stores one
        // in the directory of `layout` has published another layout before: the word read after the entry says so.
        if layout.small_bits.is_some() && self.layout() != layout {
            return None;
        }
        Some(Homes { from, to })
    }

    /// The mask of bucket numbers under a layout word.
    #[inline]
    pub(crate) fn bucket_mask(word: u64) -> usize {
        if layout::is_steady(word) { Self::FULL_MASK } else { Layout::of_word(word).bucket_mask(Self::FULL_MASK) }
    }

    /// Asks for the stripe of a key and the tags in which it would be, ahead of their use.
    #[inline]
    pub fn prefetch(&self, probe: &Probe) {
        if let Some(homes) = self.homes(self.directories.word(), probe.position()) {
            let mask = homes.from.bucket_mask();
            // Written to by other cores, and too many for the first cache.
            prefetch(self.stripes.address(probe.first(mask)));
            homes.from.prefetch_tags(probe.first(mask));
            homes.from.prefetch_tags(probe.second(mask));
        }
    }

    /// Asks for the tags and slots of a key's first bucket, unless the table grows or is small.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(&self, probe: &Probe) {
        if let Some(segment) = self.steady_segment(probe) {
            let first = probe.first(Self::FULL_MASK);
            segment.prefetch_tags(first);
            segment.prefetch_slots(first);
        }
    }

    /// The second step of the same, once the tags have come: asks for the second bucket if that will be needed.
    #[inline(always)]
    pub(crate) fn prefetch_to_widen(&self, probe: &Probe) {
        if let Some(segment) = self.steady_segment(probe) {
            let tags = segment.tags(probe.first(Self::FULL_MASK));
            if tags.free().first().is_none() || tags.may_be_away(probe.tag()) {
                let second = probe.second(Self::FULL_MASK);
                segment.prefetch_tags(second);
                segment.prefetch_slots(second);
            }
        }
    }

    /// Calls `visit` with the content of every slot that is taken. Nobody changes the table meanwhile.
    pub(crate) fn each_content<'a>(&'a self, mut visit: impl FnMut(G::Content<'a>)) {
        let layout = self.layout();
        let mask = layout.bucket_mask(Self::FULL_MASK);
        for segment in layout.segments().filter_map(|id| self.segment(id, mask)) {
            for bucket in 0..segment.buckets() {
                segment.tags(bucket).taken().for_each(|slot| visit(segment.content(bucket, slot)));
            }
        }
    }

    /// Removes every key; `visit` is called with the content of each before. Writers wait, and readers as soon as it begins.
    pub(crate) fn clear_with<'a>(&'a self, mut visit: impl FnMut(G::Content<'a>)) {
        let _layout_stays = self.lock_growth();
        let mut all = self.stripes.lock_all();
        all.start_writing();
        let layout = self.layout();
        let mask = layout.bucket_mask(Self::FULL_MASK);
        for segment in layout.segments().filter_map(|id| self.segment(id, mask)) {
            for bucket in 0..segment.buckets() {
                segment.tags(bucket).taken().for_each(|slot| visit(segment.content(bucket, slot)));
                segment.clear_bucket(bucket);
            }
        }
        self.stripes.all_data().for_each(|stripe| stripe.len.store(0, Ordering::Relaxed));
    }

    /// Adds a key that is not there to a table that nobody else uses; false if there is no room.
    pub(crate) fn adopt(&mut self, probe: &Probe, content: G::Content<'_>) -> bool {
        let word = self.directories.word();
        let Some(homes) = self.homes(word, probe.position()) else { return false };
        let is_placed = crate::growth::insert_unseen(homes.newest(), probe, content);
        if is_placed {
            self.count(probe.first(Self::bucket_mask(word)), 1);
        }
        is_placed
    }

    /// Whether all segments are full-sized and none is being filled.
    #[inline]
    pub(crate) fn is_steady(&self) -> bool {
        layout::is_steady(self.directories.word())
    }

    /// What the key's slot is likely to hold, of what `likely` accepts, to be asked for ahead of its use. Only a hint: it may
    /// be out of date or another key's.
    #[inline]
    pub fn hint<'a>(&'a self, probe: &Probe, mut likely: impl FnMut(G::Content<'a>) -> bool) -> Option<G::Content<'a>> {
        let segment = self.homes(self.directories.word(), probe.position())?.newest();
        let mask = segment.bucket_mask();
        let mut look = |bucket, lane| {
            segment
                .tags(bucket)
                .matching(lane)
                .map(|slot| segment.content(bucket, slot))
                .find(|content| likely(*content))
        };
        let first = probe.first(mask);
        look(first, Lane::home(probe.tag())).or_else(|| {
            let is_away = segment.tags(first).may_be_away(probe.tag());
            is_away.then(|| look(probe.second(mask), Lane::away(probe.tag()))).flatten()
        })
    }

    /// Reads without writing a shared word. `examine` is called with the content of every slot whose tag fits and says
    /// `Some` if it is the key's. What it returns is given back only if the bucket did not change meanwhile; otherwise it is
    /// dropped and all is repeated, so `examine` must put up with contents of other keys and with memory that changes. A
    /// reader that writers disturb again and again takes the lock.
    #[inline]
    pub fn read<'a, R>(&'a self, probe: &Probe, mut examine: impl FnMut(G::Content<'a>) -> Option<R>) -> Option<R> {
        self.read_unlocked(probe, &mut examine).unwrap_or_else(|Contended| {
            let locked = self.lock(probe);
            let mut found = None;
            let _place = locked.find(|content| {
                found = examine(content);
                found.is_some()
            });
            found
        })
    }

    /// The same, for a caller who has a way of its own to go on when writers disturb it again and again.
    ///
    /// # Errors
    /// [`Contended`] after several hundred attempts in vain.
    #[inline]
    pub fn read_unlocked<'a, R>(
        &'a self,
        probe: &Probe,
        examine: impl FnMut(G::Content<'a>) -> Option<R>,
    ) -> Result<Option<R>, Contended> {
        self.read_in_two_steps(probe, examine, Some)
    }

    /// The same in two steps: `copy` takes what it needs from a slot whose tag fits, and may already tell that it is not the
    /// key's; `accept` is called only with what is known to have been copied whole, and says what comes of it if it is the key's.
    ///
    /// # Errors
    /// [`Contended`] after several hundred attempts in vain.
    #[inline(always)]
    pub fn read_in_two_steps<'a, C, R>(
        &'a self,
        probe: &Probe,
        mut copy: impl FnMut(G::Content<'a>) -> Option<C>,
        mut accept: impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Contended> {
        match self.look_in_both(probe, &mut copy, &mut accept) {
            Ok(seen) => Ok(seen),
            Err(Disturbed) => self.read_patiently(probe, copy, accept),
        }
    }

    /// The short way, which most reads go: no writer at work on the key's stripe, no growth, and the first slot whose tag fits
    /// being the key's. The fewer instructions this takes, the more independent reads a processor has in flight.
    #[inline(always)]
    pub(crate) fn look_first<'a, C, R>(
        &'a self,
        probe: &Probe,
        copy: impl FnOnce(G::Content<'a>) -> Option<C>,
        accept: impl FnOnce(C) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        let look = self.begin_look(probe).ok_or(Disturbed)?;
        let (segment, first) = (look.segment(), probe.first(Self::FULL_MASK));
        let absent = || if look.version.is_unchanged() { Ok(None) } else { Err(Disturbed) };
        let tags = segment.tags(first);
        let (bucket, slot) = if let Some(slot) = tags.matching(Lane::home(probe.tag())).first() {
            (first, slot)
        } else if !tags.may_be_away(probe.tag()) {
            return absent();
        } else {
            let second = probe.second(Self::FULL_MASK);
            let Some(slot) = segment.tags(second).matching(Lane::away(probe.tag())).first() else { return absent() };
            (second, slot)
        };
        let copied = copy(segment.content(bucket, slot)).ok_or(Disturbed)?;
        if !look.version.is_unchanged() {
            return Err(Disturbed);
        }
        accept(copied).map(Some).ok_or(Disturbed)
    }

    /// Looks for a key in both its buckets, while no writer is at work on its stripe and the table does not grow.
    #[inline(always)]
    pub(crate) fn look_in_both<'a, C, R>(
        &'a self,
        probe: &Probe,
        copy: &mut impl FnMut(G::Content<'a>) -> Option<C>,
        accept: &mut impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        let look = self.begin_look(probe).ok_or(Disturbed)?;
        let segment = look.segment();
        let (mut bucket, mut lane) = (probe.first(Self::FULL_MASK), Lane::home(probe.tag()));
        // One loop rather than the same twice: `copy` and `accept`, which are most of the work, are then compiled in place.
        loop {
            let tags = segment.tags(bucket);
            for slot in tags.matching(lane) {
                if let Some(copied) = copy(segment.content(bucket, slot)) {
                    if !look.version.is_unchanged() {
                        return Err(Disturbed);
                    }
                    if let Some(found) = accept(copied) {
                        return Ok(Some(found));
                    }
                }
            }
            if lane.is_away() || !tags.may_be_away(probe.tag()) {
                return if look.version.is_unchanged() { Ok(None) } else { Err(Disturbed) };
            }
            (bucket, lane) = (probe.second(Self::FULL_MASK), Lane::away(probe.tag()));
        }
    }

    /// Where a key is looked for, if no writer is at work on its stripe and the table does not grow.
    #[inline(always)]
    pub(crate) fn begin_look(&self, probe: &Probe) -> Option<Look<'_, G>> {
        // The stripe comes before the layout: see the head of the file.
        let version = self.stripes.try_begin(probe.first(Self::FULL_MASK))?;
        let base = self.steady_segment(probe)?.base();
        Some(Look { base, version, geometry: PhantomData })
    }

    /// The long way: while the table grows too, and until nobody disturbs.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_patiently<'a, C, R>(
        &'a self,
        probe: &Probe,
        mut copy: impl FnMut(G::Content<'a>) -> Option<C>,
        mut accept: impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Contended> {
        for _ in 0..ATTEMPTS_MAX {
            if let Ok(found) = self.look(probe, &mut copy, &mut accept) {
                return Ok(found);
            }
        }
        Err(Contended)
    }

    #[inline(always)]
    fn look<'a, C, R>(
        &'a self,
        probe: &Probe,
        copy: &mut impl FnMut(G::Content<'a>) -> Option<C>,
        accept: &mut impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        // A small segment has fewer buckets than there are stripes, so which stripe is a key's depends on the layout.
        let mask = Self::bucket_mask(self.directories.word());
        let buckets = [probe.first(mask), probe.second(mask)];
        // The stripe comes before the layout: see the head of the file.
        let version = self.stripes.begin(buckets[0]);
        let word = self.directories.word();
        if Self::bucket_mask(word) != mask {
            return Err(Disturbed);
        }
        // Once growth has passed the key's bucket it does not mark the stripe again, and may then end and give the old segment
        // to somebody else: so the layout is asked again too. It does not come back, since tables only grow.
        let valid = || {
            let is_valid = version.is_unchanged() && self.directories.word() == word;
            if is_valid { Ok(()) } else { Err(Disturbed) }
        };
        let homes = self.homes(word, probe.position()).ok_or(Disturbed)?;
        for segment in homes.each() {
            let is_away = segment.tags(buckets[0]).may_be_away(probe.tag());
            let lanes = [Some(Lane::home(probe.tag())), is_away.then(|| Lane::away(probe.tag()))];
            for (bucket, lane) in buckets.into_iter().zip(lanes) {
                let Some(lane) = lane else { continue };
                for slot in segment.tags(bucket).matching(lane) {
                    if let Some(copied) = copy(segment.content(bucket, slot)) {
                        valid()?;
                        if let Some(found) = accept(copied) {
                            return Ok(Some(found));
                        }
                    }
                }
            }
        }
        valid().map(|()| None)
    }

    /// Locks the two buckets of a key: nobody else changes either until the result is dropped.
    #[inline]
    pub fn lock(&self, probe: &Probe) -> Locked<'_, G, S, D> {
        self.lock_buckets(probe, true)
    }

    #[inline]
    fn lock_buckets(&self, probe: &Probe, both: bool) -> Locked<'_, G, S, D> {
        if !self.directories.is_steady() {
            return self.lock_unsteady(probe, both);
        }
        let first = probe.first(Self::FULL_MASK);
        let guard = self.stripes.lock_pair(first, if both { probe.second(Self::FULL_MASK) } else { first });
        // While the stripe is held growth does not get past the key's bucket, so a layout that is steady stays as it is.
        if let Some(from) = self.steady_segment(probe) {
            return Locked::new(self, guard, Homes { from, to: None }, probe, both);
        }
        drop(guard);
        self.lock_unsteady(probe, both)
    }

    /// The same while the table grows, or is small.
    #[cold]
    #[inline(never)]
    fn lock_unsteady(&self, probe: &Probe, both: bool) -> Locked<'_, G, S, D> {
        loop {
            let mask = Self::bucket_mask(self.directories.word());
            let first = probe.first(mask);
            let guard = self.stripes.lock_pair(first, if both { probe.second(mask) } else { first });
            let word = self.directories.word();
            // A small segment may have been replaced by a larger one, in which the key has another stripe.
            if Self::bucket_mask(word) == mask {
                let homes = self.homes(word, probe.position()).expect("the layout in force has its segments");
                return Locked::new(self, guard, homes, probe, both);
            }
        }
    }

    /// Locks a key and finds it. If it lies in its first bucket, or in neither, that is all that is locked: what can be done to
    /// a key that is there needs no more.
    #[inline]
    pub fn lock_and_find<'a>(
        &'a self,
        probe: &Probe,
        mut is_it: impl FnMut(G::Content<'a>) -> bool,
    ) -> (Locked<'a, G, S, D>, Option<Place>) {
        let locked = self.lock_buckets(probe, false);
        let place = locked.find(&mut is_it);
        if place.is_some() || !locked.may_be_away() {
            return (locked, place);
        }
        drop(locked);
        let locked = self.lock(probe);
        let place = locked.find(is_it);
        (locked, place)
    }

    /// The same for a key that is to be added if it is not there: what is locked then is enough for [`Locked::insert`] to use
    /// whatever slot is free.
    #[inline]
    pub fn lock_to_insert<'a>(
        &'a self,
        probe: &Probe,
        mut is_it: impl FnMut(G::Content<'a>) -> bool,
    ) -> (Locked<'a, G, S, D>, Option<Place>) {
        let (locked, place) = self.lock_and_find(probe, &mut is_it);
        if place.is_some() || locked.has_room() || locked.holds_both() {
            return (locked, place);
        }
        drop(locked);
        let locked = self.lock(probe);
        let place = locked.find(is_it);
        (locked, place)
    }

    /// Locks the bucket that a key was found in a moment ago, unless somebody else holds it or the key is gone from there:
    /// for changes that may as well not happen, so that who makes them never waits.
    #[inline]
    pub fn try_lock_and_find<'a>(
        &'a self,
        probe: &Probe,
        mut is_it: impl FnMut(G::Content<'a>) -> bool,
    ) -> Option<(Locked<'a, G, S, D>, Place)> {
        let mask = Self::bucket_mask(self.directories.word());
        let first = probe.first(mask);
        [first, probe.second(mask)].into_iter().find_map(|second| {
            let guard = self.stripes.try_lock_pair(first, second)?;
            let word = self.directories.word();
            if Self::bucket_mask(word) != mask {
                return None;
            }
            let locked = Locked::new(self, guard, self.homes(word, probe.position())?, probe, second != first);
            let place = locked.find(&mut is_it)?;
            Some((locked, place))
        })
    }

    /// Calls `change` while the stripe is held: no key of it changes meanwhile.
    pub fn with_stripe<R>(&self, stripe: usize, change: impl FnOnce() -> R) -> R {
        let _guard = self.stripes.lock_pair(stripe, stripe);
        change()
    }

    /// Calls `work` while every stripe is held: nobody changes any key meanwhile, and readers go on.
    pub fn with_all_stripes<R>(&self, work: impl FnOnce() -> R) -> R {
        let _all = self.stripes.lock_all();
        work()
    }

    /// Frees a slot in one of the key's buckets by displacement; another writer may take it again.
    ///
    /// # Errors
    /// [`Full`] if no short chain of displacements frees one, or if growth, which is at the key's segment, has to go on
    /// first.
    pub fn make_room(&self, probe: &Probe) -> Result<(), Full> {
        for _ in 0..SEARCHES_MAX {
            let word = self.directories.word();
            let found = self.roomy_segment(word, probe).map(|segment| (segment, path::search(segment, probe)));
            match found {
                Some((segment, Some(path))) => {
                    if path.moves().all(|step| self.displace(word, segment, step)) {
                        return Ok(());
                    }
                }
                // A segment that is not in force any more has nothing to say.
                _ if self.directories.word() != word => {}
                _ => return Err(Full),
            }
        }
        let mut all = self.stripes.lock_all();
        all.start_writing();
        let segment = self.roomy_segment(self.directories.word(), probe).ok_or(Full)?;
        path::search(segment, probe).ok_or(Full)?.carry_out(segment);
        Ok(())
    }

    /// The segment in which a new key goes, if keys may be displaced there.
    fn roomy_segment(&self, word: u64, probe: &Probe) -> Option<SegmentRef<'_, G>> {
        let layout = Layout::of_word(word);
        let whereabouts = layout.whereabouts(probe.position());
        if whereabouts.to.is_none() && layout.is_emptying(whereabouts.from) {
            return None;
        }
        Some(self.homes(word, probe.position())?.newest())
    }

    /// Carries out one move, if everything still is as it was when the path was found.
    pub(crate) fn displace(&self, word: u64, segment: SegmentRef<'_, G>, step: &Move) -> bool {
        let to = alternate(usize::from(step.bucket), step.lane.tag(), segment.bucket_mask());
        let mut guard = self.stripes.lock_pair(usize::from(step.bucket), to);
        // Growth that began meanwhile would not find a key again that went where it has already been.
        self.directories.word() == word && step.carry_out(segment, || guard.start_writing())
    }

    /// Keys counted under a stripe; a hint while others write.
    #[inline]
    pub(crate) fn keys_of_stripe(&self, stripe: usize) -> u32 {
        self.stripes.data(stripe).len.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn count(&self, stripe: usize, change: u32) {
        let len = &self.stripes.data(stripe).len;
        len.store(len.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
    }
}
