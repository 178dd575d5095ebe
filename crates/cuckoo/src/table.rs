//! The table: what it is made of, how much is in it, locks of keys, displacement. Reads are in read.rs, growth in growth.rs.
//!
//! Always true: whatever becomes of a key happens under the stripe of its first bucket, and marks it, and under that of the bucket
//! in which it lies; displacement and growth are no exceptions. So a reader that asks for the first bucket's stripe before it asks
//! for the layout, and finds it unchanged afterwards, has seen one state of the key; and whoever holds it knows whether the key
//! is there.

use std::marker::PhantomData;

use guira_sync::{
    Stripes,
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
    probe::{Probe, alternate},
    residence::{Homes, Residence},
    segment::{Geometry, SegmentRef, SegmentSource, ways},
};

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
        layout.assert_small_is_smaller(Self::FULL_MASK);
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

    /// At which stage of which growth the table is: it changes whenever keys are looked for elsewhere than before, and never comes
    /// back.
    pub fn stage(&self) -> u64 {
        self.directories.word()
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
        let segment = self.roomy_segment(self.directories.word(), probe).ok_or(Full)?;
        let path = path::search(segment, probe).ok_or(Full)?;
        // Readers wait for the moves, not for the search.
        all.start_writing();
        path.carry_out(segment);
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
