//! The short way of a write, which most writes go: a table that does not grow, and the stripe of the key's first bucket, to which
//! that of the second is added only if nobody holds it. What does not fit into this begins again on the long way, in
//! [`Table::lock_and_find`] and [`Table::lock_to_insert`].
//!
//! Always true: what is locked here is locked as the long way locks it, so the two exclude each other; a second stripe is
//! never waited for, so no order of locks is asked of it.

use crate::{
    locked::{Locked, Place},
    probe::Probe,
    residence::Home,
    segment::{Geometry, SegmentSource},
    table::Table,
};

/// Another writer is in the way, or the table grows, or elides locks.
pub(crate) struct LongWay;

/// A key locked in a table that does not grow, and where it lies.
pub(crate) type FoundAtHome<'a, G, S, D> = (Locked<'a, G, S, D, Home<'a, G>>, Option<Place>);

impl<G: Geometry, S: SegmentSource, D: Default> Table<G, S, D> {
    /// Asks for the tags and slots of a key's first bucket, unless the table grows or is small.
    #[inline(always)]
    pub(crate) fn prefetch_home(&self, probe: &Probe) {
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

    /// Locks a key and finds it.
    ///
    /// # Errors
    /// [`LongWay`] if the table grows, is small or elides locks, or another writer is in the way.
    #[inline(always)]
    pub(crate) fn lock_at_home<'a>(
        &'a self,
        probe: &Probe,
        is_it: impl FnMut(G::Content<'a>) -> bool,
    ) -> Result<FoundAtHome<'a, G, S, D>, LongWay> {
        self.find_at_home::<false>(probe, is_it)
    }

    /// The same for a key that is to be added if it is not there: what is locked then is enough for [`Locked::insert`] to use
    /// whatever slot is free.
    ///
    /// # Errors
    /// As for [`Table::lock_at_home`].
    #[inline(always)]
    pub(crate) fn lock_at_home_to_insert<'a>(
        &'a self,
        probe: &Probe,
        is_it: impl FnMut(G::Content<'a>) -> bool,
    ) -> Result<FoundAtHome<'a, G, S, D>, LongWay> {
        self.find_at_home::<true>(probe, is_it)
    }

    #[inline(always)]
    fn find_at_home<'a, const TO_INSERT: bool>(
        &'a self,
        probe: &Probe,
        mut is_it: impl FnMut(G::Content<'a>) -> bool,
    ) -> Result<FoundAtHome<'a, G, S, D>, LongWay> {
        if !self.directories.is_steady() || self.stripes.elides() {
            return Err(LongWay);
        }
        let first = probe.first(Self::FULL_MASK);
        let guard = self.stripes.lock_one(first);
        // While the stripe is held growth does not get past the key's bucket, so a layout that is steady stays as it is.
        let home = Home(self.steady_segment(probe).ok_or(LongWay)?);
        let mut locked = Locked::new(self, guard, home, probe, false);
        let mut place = locked.find_near(&mut is_it);
        if place.is_none() && locked.may_be_away() {
            locked.widen()?;
            place = locked.find_far(&mut is_it);
        }
        if TO_INSERT && place.is_none() && !locked.has_room() {
            locked.widen()?;
        }
        Ok((locked, place))
    }
}
