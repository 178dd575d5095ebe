//! Reads: optimistic, of one state of a key, without a write to shared memory.
//!
//! ```text
//! stripe of the first bucket ── layout ── tags ── slot ── stripe again: unchanged, so all that was read is one state of the key
//! ```
//! Always true: the stripe is asked for before the layout (the head of table.rs says why that will do), and what was copied is
//! believed only once the stripe, and while the table grows the layout too, has been found unchanged.

use std::{marker::PhantomData, ptr::NonNull};

use guira_sync::Version;
use guira_sync::prefetch;

use crate::{
    probe::Probe,
    residence::Residence,
    segment::{Geometry, SegmentRef, SegmentSource},
    table::Table,
    tags::Lane,
};

/// Optimistic attempts before a read takes the lock like a writer: many more than writers that come and go can spoil, so
/// only a reader that is out of luck for microseconds on end pays.
const ATTEMPTS_MAX: u32 = 256;

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

impl<G: Geometry, S: SegmentSource, D: Default> Table<G, S, D> {
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

    /// The short way, which most reads go: no writer at work on the key's stripe, no growth, and no more than one slot of a bucket
    /// whose tag fits. The fewer instructions this takes, the more independent reads a processor has in flight; and what takes
    /// the long way is read again from the beginning, so another key with the same tag is passed over here.
    #[inline(always)]
    pub(crate) fn look_first<'a, C, R>(
        &'a self,
        probe: &Probe,
        mut copy: impl FnMut(G::Content<'a>) -> Option<C>,
        mut accept: impl FnMut(C) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        let look = self.begin_look(probe).ok_or(Disturbed)?;
        let (segment, first) = (look.segment(), probe.first(Self::FULL_MASK));
        let absent = || if look.version.is_unchanged() { Ok(None) } else { Err(Disturbed) };
        let tags = segment.tags(first);
        let fitting = tags.matching(Lane::home(probe.tag()));
        if let Some(slot) = fitting.first() {
            let copied = copy(segment.content(first, slot)).ok_or(Disturbed)?;
            if !look.version.is_unchanged() {
                return Err(Disturbed);
            }
            let found = accept(copied);
            if found.is_some() {
                return Ok(found);
            }
            if fitting.is_several() {
                return Err(Disturbed);
            }
        }
        if !tags.may_be_away(probe.tag()) {
            return absent();
        }
        let second = probe.second(Self::FULL_MASK);
        let Some(slot) = segment.tags(second).matching(Lane::away(probe.tag())).first() else { return absent() };
        let copied = copy(segment.content(second, slot)).ok_or(Disturbed)?;
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
        let version = self.stripes.try_begin(probe.first_unmasked())?;
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
}
