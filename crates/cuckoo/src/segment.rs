//! A segment: a run of buckets in one piece of memory, and what a table knows of how its buckets lie there.
//!
//! Always true: a bucket is changed only by the holder of its stripe, or by whoever alone can see it; every access is atomic,
//! so a reader that races a writer reads old or new words and learns from the version.

use std::{marker::PhantomData, ptr::NonNull};

use crate::tags::{Lane, TagWords, Tags, class_of};

/// How the buckets of a segment lie in memory, and what their slots hold.
///
/// # Safety
/// For a `base` that is aligned to [`Geometry::ALIGN`] and has [`Geometry::segment_bytes`] bytes for so many buckets, `tags`
/// and `slot` stay inside these bytes for every bucket below `buckets` and slot below the ways, are aligned as their types ask
/// for, and no two of them overlap.
pub unsafe trait Geometry: Send + Sync {
    /// The words of a bucket's tags.
    type Tags: TagWords + 'static;
    /// A slot where it lies.
    type Slot<'a>: Copy;
    /// What a slot holds, as the table's callers see it.
    type Content<'a>: Copy;
    /// Buckets of a full-sized segment: a power of two, at least two, at most 2^14.
    const BUCKETS: usize;
    /// Alignment of a segment, bytes.
    const ALIGN: usize = 64;
    /// Occupancy, in percent, from which on a table should grow: the fullest segment of a thousand is some three percent above it,
    /// and more keys come until growth has passed it.
    const FULL_PERCENT: usize;

    /// Bytes of a segment of `buckets` buckets.
    fn segment_bytes(buckets: usize) -> usize;

    /// A bucket's tags.
    ///
    /// # Safety
    /// `base` points to a segment of `buckets` buckets that lives for `'a`; `bucket` is one of them.
    unsafe fn tags<'a>(base: NonNull<u8>, buckets: usize, bucket: usize) -> &'a Self::Tags;

    /// A slot.
    ///
    /// # Safety
    /// As for `tags`; `slot` is below the ways.
    unsafe fn slot<'a>(base: NonNull<u8>, buckets: usize, bucket: usize, slot: usize) -> Self::Slot<'a>;

    /// What a slot holds.
    fn read<'a>(slot: Self::Slot<'a>) -> Self::Content<'a>;

    /// Fills a slot. The caller is its only writer.
    fn write(slot: Self::Slot<'_>, content: Self::Content<'_>);

    /// Leaves nothing behind in a slot that has been freed, if what it held must not be followed any more.
    #[inline]
    fn vacate(_slot: Self::Slot<'_>) {}

    /// Asks for a slot ahead of its use.
    #[inline]
    fn prefetch_slot(_slot: Self::Slot<'_>) {}

    /// Asks for the slots of a bucket ahead of their use, if they do not come with the tags.
    #[inline]
    fn prefetch_slots(_base: NonNull<u8>, _buckets: usize, _bucket: usize) {}
}

/// Slots of a bucket.
pub(crate) const fn ways<G: Geometry>() -> usize {
    <G::Tags as TagWords>::WAYS
}

/// Where segments come from.
///
/// # Safety
/// The memory behind a segment that was handed out has the size and alignment asked for and stays mapped for as long as the
/// source lives, also after it has been released, and is from then on only accessed atomically (a reader may still be looking,
/// and will find out). Between `allocate` and `release` nobody but the index writes to it. A segment need not be zeroed, but
/// holds initialised bytes.
pub unsafe trait SegmentSource: Send + Sync {
    /// Memory for one segment of `bytes` bytes, or `None` if there is none to be had.
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>>;

    /// Takes back what `allocate` gave for as many bytes.
    fn release(&self, segment: NonNull<u8>, bytes: usize);
}

/// A segment of a table that lives for `'a`.
#[derive(Debug)]
pub struct SegmentRef<'a, G> {
    base: NonNull<u8>,
    bucket_mask: usize,
    lives: PhantomData<&'a ()>,
    geometry: PhantomData<fn() -> G>,
}

impl<G> Clone for SegmentRef<'_, G> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<G> Copy for SegmentRef<'_, G> {}

impl<G> PartialEq for SegmentRef<'_, G> {
    fn eq(&self, other: &Self) -> bool {
        self.base == other.base
    }
}

impl<'a, G: Geometry> SegmentRef<'a, G> {
    /// The segment of `bucket_mask + 1` buckets at `base`.
    ///
    /// # Safety
    /// A source handed `base` out for as many buckets, and lives for `'a`.
    #[inline]
    pub unsafe fn new(base: NonNull<u8>, bucket_mask: usize) -> Self {
        Self { base, bucket_mask, lives: PhantomData, geometry: PhantomData }
    }

    pub fn base(self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub fn bucket_mask(self) -> usize {
        self.bucket_mask
    }

    pub fn buckets(self) -> usize {
        self.bucket_mask + 1
    }

    #[inline]
    fn words(self, bucket: usize) -> &'a G::Tags {
        // SAFETY: the segment has `bucket_mask + 1` buckets (contract of `new`), and the number is masked to one of them.
        unsafe { G::tags(self.base, self.bucket_mask + 1, bucket & self.bucket_mask) }
    }

    #[inline]
    fn slot(self, bucket: usize, slot: usize) -> G::Slot<'a> {
        debug_assert!(slot < ways::<G>(), "slot {slot}");
        // SAFETY: as in `words`; slots come from a `SlotSet`, which has none beyond the ways, or from a loop over them.
        unsafe { G::slot(self.base, self.bucket_mask + 1, bucket & self.bucket_mask, slot) }
    }

    #[inline]
    pub fn tags(self, bucket: usize) -> Tags<G::Tags> {
        Tags::of(self.words(bucket))
    }

    /// What a slot holds.
    #[inline]
    pub fn content(self, bucket: usize, slot: usize) -> G::Content<'a> {
        G::read(self.slot(bucket, slot))
    }

    /// Asks for a bucket's tags ahead of their use.
    #[inline]
    pub fn prefetch_tags(self, bucket: usize) {
        crate::prefetch(self.words(bucket));
    }

    /// Asks for a slot ahead of its use.
    #[inline(always)]
    pub fn prefetch_slot(self, bucket: usize, slot: usize) {
        G::prefetch_slot(self.slot(bucket, slot));
    }

    /// Asks for all slots of a bucket.
    #[inline]
    pub fn prefetch_slots(self, bucket: usize) {
        G::prefetch_slots(self.base, self.buckets(), bucket & self.bucket_mask);
    }

    /// Gives a slot that is taken another content. The caller is the only writer.
    #[inline]
    pub fn set_content(self, bucket: usize, slot: usize, content: G::Content<'_>) {
        G::write(self.slot(bucket, slot), content);
    }

    /// Fills a free slot. The caller is the only writer to this bucket, and to the key's first one.
    #[inline]
    pub fn put(self, bucket: usize, slot: usize, lane: Lane, content: G::Content<'_>) {
        G::write(self.slot(bucket, slot), content);
        if lane.is_away() {
            let words = self.words(crate::probe::alternate(bucket, lane.tag(), self.bucket_mask));
            Tags::of(words).with_away(lane.tag(), true).store(words);
        }
        let words = self.words(bucket);
        Tags::of(words).with(slot, Some(lane)).store(words);
    }

    /// Frees a slot. The caller is the only writer to this bucket, and to the key's first one.
    #[inline]
    pub fn take(self, bucket: usize, slot: usize) {
        if let Some(lane) = self.vacate(bucket, slot).filter(|lane| lane.is_away()) {
            self.tidy_filter(crate::probe::alternate(bucket, lane.tag(), self.bucket_mask), lane.tag());
        }
    }

    /// The same, but leaves the filter as it is: a bit that nobody needs sends readers to a bucket in vain. Returns where the key
    /// was.
    #[inline]
    fn vacate(self, bucket: usize, slot: usize) -> Option<Lane> {
        let words = self.words(bucket);
        let tags = Tags::of(words);
        tags.with(slot, None).store(words);
        G::vacate(self.slot(bucket, slot));
        tags.lane(slot)
    }

    /// Clears the filter bit of a tag's class in a bucket if no key needs it any more. The few buckets that such a key can be
    /// in follow from bucket and tag. The caller is the only writer to the bucket, so no key comes to need the bit meanwhile;
    /// one that moves beside us stays where it is or moves under a stripe of its own first bucket, which is not this one.
    #[inline(never)]
    fn tidy_filter(self, first: usize, tag: u8) {
        let candidates =
            || class_of::<G::Tags>(tag).map(|tag| (tag, crate::probe::alternate(first, tag, self.bucket_mask)));
        candidates().for_each(|(_, bucket)| self.prefetch_tags(bucket));
        let is_needed = candidates().any(|(tag, bucket)| self.tags(bucket).matching(Lane::away(tag)).first().is_some());
        if !is_needed {
            let words = self.words(first);
            Tags::of(words).with_away(tag, false).store(words);
        }
    }

    /// Moves a key within the segment, or from another one of the table, which will not be there for long. The caller is the only
    /// writer to both buckets and to the key's first one.
    pub fn receive(self, to: (usize, usize), lane: Lane, from: Self, at: (usize, usize)) {
        self.put(to.0, to.1, lane, from.content(at.0, at.1));
        if from == self {
            from.take(at.0, at.1);
        } else {
            from.vacate(at.0, at.1);
        }
    }

    /// Frees every slot. Nobody else can see the segment.
    pub fn clear(self) {
        for bucket in 0..self.buckets() {
            self.words(bucket).store([0, 0]);
        }
    }

    /// Frees every slot of a bucket, its keys' other buckets left aside. The caller is the only writer to the whole table.
    pub fn clear_bucket(self, bucket: usize) {
        let taken = self.tags(bucket).taken();
        self.words(bucket).store([0, 0]);
        taken.for_each(|slot| G::vacate(self.slot(bucket, slot)));
    }
}
