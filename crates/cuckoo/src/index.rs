//! The index: a table of 32-bit payloads, whose keys are the caller's.
//!
//! ```text
//! byte 0           12      16                                   64
//!      lane x 12    unused  payload x 12 (u32)
//! ```
//! A bucket is one cache line, a full-sized segment 1,024 of them: 64 KiB, the engine's page. With 12,288 slots the fullest of
//! a thousand segments is 3 % above the average.

use std::ptr::NonNull;

use guira_sync::atomic::{AtomicU32, Ordering};

use crate::{locked, modelled, segment::Geometry, table::Table, tags::TagWords};

/// Slots in a bucket. Twelve tags and payloads fill a cache line, and two choices of twelve fill up to over 99 %.
/// In shuttle's models two are full at once, so that a model's few keys displace each other.
pub const BUCKET_SLOTS: usize = modelled(12, 2);

/// Buckets in a segment. The models make do with as few as let threads meet.
pub const SEGMENT_BUCKETS: usize = if cfg!(loom) { 2 } else { modelled(1024, 4) };

/// Slots in a segment.
pub const SEGMENT_SLOTS: usize = SEGMENT_BUCKETS * BUCKET_SLOTS;

/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = SEGMENT_BUCKETS * size_of::<Bucket>();

#[cfg(not(shuttle))]
type BucketTags = crate::TwoWords<BUCKET_SLOTS>;
#[cfg(shuttle)]
type BucketTags = crate::HalfWord<BUCKET_SLOTS>;
const _: () = assert!(<BucketTags as TagWords>::WAYS == BUCKET_SLOTS);

/// One bucket of an index. All zeros is an empty one.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Bucket {
    tags: BucketTags,
    payloads: [AtomicU32; BUCKET_SLOTS],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Bucket>() == 64);

/// Buckets of an [`Index`].
#[derive(Debug)]
pub struct Payloads;

/// A concurrent cuckoo index from hashes to 32-bit payloads, and a `D` for each stripe.
pub type Index<S, D = ()> = Table<Payloads, S, D>;

/// A key of an [`Index`] under its lock.
pub type LockedPayload<'a, S, D = ()> = locked::Locked<'a, Payloads, S, D>;

// SAFETY: buckets lie one after the other, tags and payloads are fields of theirs.
unsafe impl Geometry for Payloads {
    type Tags = BucketTags;
    type Slot<'a> = &'a AtomicU32;
    type Content<'a> = u32;
    const BUCKETS: usize = SEGMENT_BUCKETS;
    const FULL_PERCENT: usize = 92;

    fn segment_bytes(buckets: usize) -> usize {
        buckets * size_of::<Bucket>()
    }

    #[inline]
    unsafe fn tags<'a>(base: NonNull<u8>, _buckets: usize, bucket: usize) -> &'a BucketTags {
        // SAFETY: `bucket` is one of the segment's (contract); buckets consist of atomics, for which every bit pattern is valid.
        unsafe { &base.cast::<Bucket>().add(bucket).as_ref().tags }
    }

    #[inline]
    unsafe fn slot<'a>(base: NonNull<u8>, _buckets: usize, bucket: usize, slot: usize) -> &'a AtomicU32 {
        // SAFETY: as above.
        unsafe { &base.cast::<Bucket>().add(bucket).as_ref().payloads[slot] }
    }

    #[inline]
    fn read<'a>(slot: Self::Slot<'a>) -> Self::Content<'a> {
        slot.load(Ordering::Relaxed)
    }

    #[inline]
    fn write(slot: &AtomicU32, payload: u32) {
        slot.store(payload, Ordering::Relaxed);
    }
}
