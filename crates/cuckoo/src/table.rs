//! The table: optimistic reads, locked changes, insertion with displacement.
//!
//! Always true: a key's slot changes only under the stripe of its first bucket, and under that of the bucket where it lies;
//! whatever takes a key elsewhere (displacement, growth) marks these stripes. So a reader that asks for the stripes before it
//! asks for the layout, and finds them unchanged afterwards, has seen one state of the key; and whoever holds the stripe of the
//! key's first bucket knows whether the key is there.

use std::{marker::PhantomData, sync::Mutex};

use guira_sync::{
    Stripes, Version,
    atomic::{AtomicU32, Ordering},
    reuse,
};

use crate::{
    growth::Progress,
    layout::{self, Directories, Layout, SEGMENTS_MAX, SegmentId},
    locked::{Locked, Place},
    path::{self, Move},
    probe::{Probe, alternate},
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
    /// Held by whoever grows the table.
    pub(crate) growing: Mutex<Progress>,
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
struct Disturbed;

/// The segments in which a key may lie, oldest first: two while it is being moved.
#[derive(Debug)]
pub(crate) struct Homes<'a, G> {
    pub from: SegmentRef<'a, G>,
    pub to: Option<SegmentRef<'a, G>>,
}

impl<'a, G: Geometry> Homes<'a, G> {
    pub fn each(&self) -> impl Iterator<Item = SegmentRef<'a, G>> + use<'a, G> {
        std::iter::once(self.from).chain(self.to)
    }

    /// Where new keys go.
    pub fn newest(&self) -> SegmentRef<'a, G> {
        self.to.unwrap_or(self.from)
    }
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
        Self::with_layout(source, Layout::steady(0, segments), segments_max, segments_max, G::BUCKETS)
    }

    /// A table that begins as `layout` says. `room` segments fit into its first directories.
    pub(crate) fn with_layout(
        source: S,
        layout: Layout,
        segments_max: usize,
        room: usize,
        stripes: usize,
    ) -> Result<Self, Full> {
        assert!(stripes <= G::BUCKETS, "more stripes than numbers of buckets");
        let table = Self {
            stripes: Stripes::new(stripes),
            directories: Directories::new(room, layout),
            growing: Mutex::default(),
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
        let sum = self.stripes.all_data().fold(0u64, |sum, stripe| {
            // A stripe's own count may be below zero.
            sum.wrapping_add(i64::from(stripe.len.load(Ordering::Relaxed) as i32) as u64)
        });
        // Beside writers the sum may be off by what they have just done.
        usize::try_from(sum as i64).unwrap_or(0)
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
        Some(Homes { from, to })
    }

    /// The mask of bucket numbers under a layout word.
    #[inline]
    pub(crate) fn bucket_mask(word: u64) -> usize {
        if layout::is_steady(word) { Self::FULL_MASK } else { Layout::of_word(word).bucket_mask(Self::FULL_MASK) }
    }

    /// Asks for the tags in which a key would be, ahead of their use.
    #[inline]
    pub fn prefetch(&self, probe: &Probe) {
        if let Some(homes) = self.homes(self.directories.word(), probe.position) {
            let mask = homes.from.bucket_mask();
            homes.from.prefetch_tags(probe.first(mask));
            homes.from.prefetch_tags(probe.second(mask));
        }
    }

    /// What the key's slot is likely to hold, of what `likely` accepts, to be asked for ahead of its use. Only a hint: it may
    /// be out of date or another key's.
    #[inline]
    pub fn hint<'a>(
        &'a self,
        probe: &Probe,
        mut likely: impl FnMut(G::Content<'a>) -> bool,
    ) -> Option<G::Content<'a>> {
        let segment = self.homes(self.directories.word(), probe.position)?.newest();
        let mask = segment.bucket_mask();
        let mut look = |bucket, lane| {
            segment.tags(bucket).matching(lane).map(|slot| segment.content(bucket, slot)).find(|content| likely(*content))
        };
        let first = probe.first(mask);
        look(first, Lane::home(probe.tag)).or_else(|| {
            let is_away = segment.tags(first).may_be_away(probe.tag);
            is_away.then(|| look(probe.second(mask), Lane::away(probe.tag))).flatten()
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
    #[inline]
    pub fn read_in_two_steps<'a, C, R>(
        &'a self,
        probe: &Probe,
        mut copy: impl FnMut(G::Content<'a>) -> Option<C>,
        mut accept: impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Contended> {
        for _ in 0..ATTEMPTS_MAX {
            // The stripe comes before the layout: see the head of the file. In a table of small segments it depends on it.
            let number = probe.first(Self::FULL_MASK);
            let version = self.stripes.begin(number);
            let word = self.directories.word();
            let seen = if layout::is_steady(word) {
                self.segment(layout::steady_place(word, probe.position), Self::FULL_MASK)
                    .ok_or(Disturbed)
                    .and_then(|segment| self.look(segment, probe, (number, version), &mut copy, &mut accept))
            } else {
                self.look_unsteady(word, probe, &mut copy, &mut accept)
            };
            if let Ok(found) = seen {
                return Ok(found);
            }
        }
        Err(Contended)
    }

    /// Looks for a key in one segment; `first` is its first bucket and the version of its stripe.
    #[inline(always)]
    fn look<'a, C, R>(
        &'a self,
        segment: SegmentRef<'a, G>,
        probe: &Probe,
        first: (usize, Version),
        copy: &mut impl FnMut(G::Content<'a>) -> Option<C>,
        accept: &mut impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        let valid = |(number, version)| if self.stripes.is_unchanged(number, version) { Ok(()) } else { Err(Disturbed) };
        let (mut at, mut lane) = (first, Lane::home(probe.tag));
        // One loop rather than the same twice: `copy` and `accept`, which are most of the work, are then compiled in place.
        loop {
            let tags = segment.tags(at.0);
            for slot in tags.matching(lane) {
                if let Some(copied) = copy(segment.content(at.0, slot)) {
                    valid(at)?;
                    if let Some(found) = accept(copied) {
                        return Ok(Some(found));
                    }
                }
            }
            if lane.is_away() {
                // A key that moves from the second bucket to the first behind our back changes the first one's version.
                valid(first)?;
                return valid(at).map(|()| None);
            }
            if !tags.may_be_away(probe.tag) {
                return valid(at).map(|()| None);
            }
            let second = probe.second(segment.bucket_mask());
            (at, lane) = ((second, self.stripes.begin(second)), Lane::away(probe.tag));
        }
    }

    /// The same while the table grows, or is small.
    #[cold]
    #[inline(never)]
    fn look_unsteady<'a, C, R>(
        &'a self,
        word: u64,
        probe: &Probe,
        copy: &mut impl FnMut(G::Content<'a>) -> Option<C>,
        accept: &mut impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        let mask = Self::bucket_mask(word);
        let buckets = [probe.first(mask), probe.second(mask)];
        let versions = buckets.map(|bucket| self.stripes.begin(bucket));
        let valid = || buckets.iter().zip(versions).all(|(bucket, version)| self.stripes.is_unchanged(*bucket, version));
        let word = self.directories.word();
        if Self::bucket_mask(word) != mask {
            return Err(Disturbed);
        }
        let homes = self.homes(word, probe.position).ok_or(Disturbed)?;
        for segment in homes.each() {
            for (bucket, lane) in buckets.into_iter().zip([Lane::home(probe.tag), Lane::away(probe.tag)]) {
                for slot in segment.tags(bucket).matching(lane) {
                    if let Some(copied) = copy(segment.content(bucket, slot)) {
                        if !valid() {
                            return Err(Disturbed);
                        }
                        if let Some(found) = accept(copied) {
                            return Ok(Some(found));
                        }
                    }
                }
            }
        }
        if valid() { Ok(None) } else { Err(Disturbed) }
    }

    /// Locks the two buckets of a key: nobody else changes either until the result is dropped.
    #[inline]
    pub fn lock(&self, probe: &Probe) -> Locked<'_, G, S, D> {
        self.lock_buckets(probe, true)
    }

    #[inline]
    fn lock_buckets(&self, probe: &Probe, both: bool) -> Locked<'_, G, S, D> {
        loop {
            let mask = Self::bucket_mask(self.directories.word());
            let first = probe.first(mask);
            let guard = self.stripes.lock_pair(first, if both { probe.second(mask) } else { first });
            let word = self.directories.word();
            // A small segment may have been replaced by a larger one, in which the key has another stripe.
            if Self::bucket_mask(word) == mask {
                let homes = self.homes(word, probe.position).expect("the layout in force has its segments");
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
            let locked = Locked::new(self, guard, self.homes(word, probe.position)?, probe, second != first);
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
    /// [`Full`] if no short chain of displacements frees one, or if the key's segment is being emptied by growth, which then
    /// has to go on first.
    pub fn make_room(&self, probe: &Probe) -> Result<(), Full> {
        for _ in 0..SEARCHES_MAX {
            let word = self.directories.word();
            let segment = self.roomy_segment(word, probe).ok_or(Full)?;
            let path = path::search(segment, probe).ok_or(Full)?;
            if path.moves().all(|step| self.displace(word, segment, step)) {
                return Ok(());
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
        let whereabouts = layout.whereabouts(probe.position);
        if whereabouts.to.is_none() && layout.is_emptying(whereabouts.from) {
            return None;
        }
        Some(self.homes(word, probe.position)?.newest())
    }

    /// Carries out one move, if everything still is as it was when the path was found.
    pub(crate) fn displace(&self, word: u64, segment: SegmentRef<'_, G>, step: &Move) -> bool {
        let to = alternate(usize::from(step.bucket), step.lane.tag(), segment.bucket_mask());
        let mut guard = self.stripes.lock_pair(usize::from(step.bucket), to);
        // Growth that began meanwhile would not find a key again that went where it has already been.
        self.directories.word() == word && step.carry_out(segment, || guard.start_writing())
    }

    #[inline]
    pub(crate) fn count(&self, stripe: usize, change: u32) {
        let len = &self.stripes.data(stripe).len;
        len.store(len.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
    }
}
