//! A key under its lock: found, changed, added, removed.

use guira_sync::HeldStripes;

use crate::{
    probe::Probe,
    residence::{Home, Homes, Residence},
    segment::{Geometry, SegmentRef, SegmentSource},
    steady::LongWay,
    table::{Full, StripeData, Table},
    tags::{Lane, TagWords},
};

/// Where a key lies, for as long as the [`Locked`] that said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// It lies in the segment that it is being moved to.
    is_new: bool,
    bucket: u16,
    slot: u8,
}

/// The first bucket of a key, or both, locked.
#[derive(Debug)]
pub struct Locked<'a, G: Geometry, S: SegmentSource, D = (), H: Residence<'a, G> = Homes<'a, G>> {
    table: &'a Table<G, S, D>,
    guard: H::Guard<StripeData<D>>,
    homes: H,
    probe: Probe,
    both: bool,
}

impl<'a, G: Geometry, S: SegmentSource, D: Default, H: Residence<'a, G>> Locked<'a, G, S, D, H> {
    #[inline(always)]
    pub(crate) fn new(
        table: &'a Table<G, S, D>,
        guard: H::Guard<StripeData<D>>,
        homes: H,
        probe: &Probe,
        both: bool,
    ) -> Self {
        Self { table, guard, homes, probe: *probe, both }
    }

    #[inline(always)]
    fn first(&self) -> usize {
        self.probe.first(self.homes.oldest().bucket_mask())
    }

    #[inline(always)]
    fn second(&self) -> usize {
        self.probe.second(self.homes.oldest().bucket_mask())
    }

    /// The buckets that are locked, and the lane that the key has there.
    #[inline]
    fn buckets(&self) -> impl Iterator<Item = (usize, Lane)> + use<G, S, D, H> {
        let tag = self.probe.tag();
        let second = self.both.then(|| (self.second(), Lane::away(tag)));
        std::iter::once((self.first(), Lane::home(tag))).chain(second)
    }

    #[inline(always)]
    fn segment(&self, place: Place) -> SegmentRef<'a, G> {
        if place.is_new { self.homes.newest() } else { self.homes.oldest() }
    }

    /// Whether the second bucket is locked too.
    #[inline]
    pub fn holds_both(&self) -> bool {
        self.both
    }

    /// Whether the key may be in its second bucket.
    #[inline]
    pub fn may_be_away(&self) -> bool {
        self.homes.each().any(|segment| segment.tags(self.first()).may_be_away(self.probe.tag()))
    }

    /// Whether there is a free slot in a bucket that is locked.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.buckets().any(|(bucket, _)| self.homes.newest().tags(bucket).free().first().is_some())
    }

    /// Where the key lies: the first slot whose tag fits and whose content `is_it` accepts.
    #[inline]
    pub fn find(&self, mut is_it: impl FnMut(G::Content<'a>) -> bool) -> Option<Place> {
        for (is_new, segment) in [false, true].into_iter().zip(self.homes.each()) {
            for (bucket, lane) in self.buckets() {
                if let Some(slot) = matching_slot(segment, bucket, lane, &mut is_it) {
                    return Some(Place { is_new, bucket: bucket as u16, slot: slot as u8 });
                }
            }
        }
        None
    }

    /// How many of the contents that [`Locked::find`] would ask about `is_alike` accepts.
    #[cold]
    pub fn count_alike(&self, mut is_alike: impl FnMut(G::Content<'a>) -> bool) -> usize {
        let mut alike = 0;
        let _none = self.find(|content| {
            alike += usize::from(is_alike(content));
            false
        });
        alike
    }

    /// What lies at `place`.
    #[inline]
    pub fn content(&self, place: Place) -> G::Content<'a> {
        self.segment(place).content(usize::from(place.bucket), usize::from(place.slot))
    }

    /// Makes readers of these buckets repeat their read: to be called before what a slot names is changed in place.
    #[inline]
    pub fn start_writing(&mut self) {
        self.guard.start_writing();
    }

    /// Gives the key another content.
    #[inline]
    pub fn replace(&mut self, place: Place, content: G::Content<'_>) {
        self.guard.start_writing();
        self.segment(place).set_content(usize::from(place.bucket), usize::from(place.slot), content);
    }

    /// Removes the key.
    #[inline]
    pub fn remove(&mut self, place: Place) {
        self.guard.start_writing();
        self.segment(place).take(usize::from(place.bucket), usize::from(place.slot));
        self.table.count(self.first(), 1u32.wrapping_neg());
    }

    /// Adds the key, which must not be there.
    ///
    /// # Errors
    /// [`Full`] if no bucket that is locked has a free slot; drop the lock, call [`Table::make_room`] and begin again.
    #[inline]
    pub fn insert(&mut self, content: G::Content<'_>) -> Result<(), Full> {
        let segment = self.homes.newest();
        let free = |bucket, lane| Some((bucket, lane, segment.tags(bucket).free().first()?));
        let in_first = free(self.first(), Lane::home(self.probe.tag()));
        let in_either = in_first.or_else(|| self.both.then(|| free(self.second(), Lane::away(self.probe.tag())))?);
        let (bucket, lane, slot) = in_either.ok_or(Full)?;
        self.guard.start_writing();
        segment.put(bucket, slot, lane, content);
        self.table.count(self.first(), 1);
        Ok(())
    }

    /// How many keys are counted under the stripe of the first bucket.
    #[inline(always)]
    pub(crate) fn keys_of_stripe(&self) -> u32 {
        self.table.keys_of_stripe(self.first())
    }

    /// What all slots of the locked buckets hold.
    pub fn neighbours(&self) -> impl Iterator<Item = G::Content<'a>> + '_ {
        self.homes.each().flat_map(move |segment| {
            self.buckets().flat_map(move |(bucket, _)| {
                segment.tags(bucket).taken().map(move |slot| segment.content(bucket, slot))
            })
        })
    }

    /// Slots in the locked buckets of the segment that new keys go to.
    pub fn slots(&self) -> usize {
        self.buckets().count() * <G::Tags as TagWords>::WAYS
    }
}

impl<'a, G: Geometry, S: SegmentSource, D: Default> Locked<'a, G, S, D, Home<'a, G>> {
    /// [`find`](Self::find) in the key's first bucket.
    #[inline(always)]
    pub(crate) fn find_near(&self, is_it: &mut impl FnMut(G::Content<'a>) -> bool) -> Option<Place> {
        let slot = matching_slot(self.homes.0, self.first(), Lane::home(self.probe.tag()), is_it)?;
        Some(Place { is_new: false, bucket: self.first() as u16, slot: slot as u8 })
    }

    /// [`find`](Self::find) in the key's second bucket, which is locked.
    #[inline(always)]
    pub(crate) fn find_far(&self, is_it: &mut impl FnMut(G::Content<'a>) -> bool) -> Option<Place> {
        let slot = matching_slot(self.homes.0, self.second(), Lane::away(self.probe.tag()), is_it)?;
        Some(Place { is_new: false, bucket: self.second() as u16, slot: slot as u8 })
    }

    /// Locks the second bucket too, if it is not.
    ///
    /// # Errors
    /// [`LongWay`] if another writer holds it, or the table has begun to grow.
    #[inline(always)]
    pub(crate) fn widen(&mut self) -> Result<(), LongWay> {
        // Growth may have passed the second bucket before it was locked: then the layout is not steady any more.
        if self.both || self.try_lock_second() && self.table.is_steady() { Ok(()) } else { Err(LongWay) }
    }

    /// True if the second bucket is locked now.
    #[inline(always)]
    pub(crate) fn try_lock_second(&mut self) -> bool {
        self.both = self.guard.try_add(self.second());
        self.both
    }
}

/// The first slot whose lane is `lane` and whose content `is_it` accepts.
#[inline(always)]
fn matching_slot<'a, G: Geometry>(
    segment: SegmentRef<'a, G>,
    bucket: usize,
    lane: Lane,
    is_it: &mut impl FnMut(G::Content<'a>) -> bool,
) -> Option<usize> {
    segment.tags(bucket).matching(lane).find(|slot| is_it(segment.content(bucket, *slot)))
}
