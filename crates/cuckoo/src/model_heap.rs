//! Where the models' segments come from. What is given back belongs to somebody else until it is handed out again, which it
//! is next, as an engine's pages are: whoever has it may keep there what looks like buckets.
//!
//! Always true: a piece is with the index, or its forgery is as the other owner left it; so a writer that is late is noticed.

use std::{
    ptr::NonNull,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use guira_sync::reuse;

use crate::{Bucket, Payloads, SegmentSource, segment::SegmentRef, tags::Lane};

/// What the other owner has in every bucket, a slot for each lane.
#[derive(Clone, Debug)]
pub(crate) struct Forgery {
    pub lanes: Vec<Lane>,
    pub payload: u32,
}

#[derive(Debug)]
struct Piece {
    buckets: Box<[Bucket]>,
    is_with_index: bool,
}

/// Pieces of the heap, kept until the end.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    pieces: Mutex<Vec<Piece>>,
    forgery: Option<Forgery>,
    used_again: AtomicUsize,
}

impl Heap {
    pub fn with_forgery(forgery: Forgery) -> Self {
        Self { forgery: Some(forgery), ..Self::default() }
    }

    /// Segments that the index has.
    pub fn held(&self) -> usize {
        self.pieces.lock().expect("not poisoned").iter().filter(|piece| piece.is_with_index).count()
    }

    /// Segments that were handed out though they had been before.
    pub fn used_again(&self) -> usize {
        self.used_again.load(Ordering::Relaxed)
    }

    fn segment(piece: NonNull<u8>, bytes: usize) -> SegmentRef<'static, Payloads> {
        // SAFETY: a piece of so many bytes is so many buckets, and it stays for as long as the heap, which outlives this call's
        // caller.
        unsafe { SegmentRef::new(piece, bytes / size_of::<Bucket>() - 1) }
    }

    fn forge(&self, segment: SegmentRef<'_, Payloads>) {
        let Some(forgery) = &self.forgery else { return };
        reuse::before_reuse();
        segment.clear();
        for bucket in 0..segment.buckets() {
            forgery.lanes.iter().enumerate().for_each(|(slot, lane)| segment.put(bucket, slot, *lane, forgery.payload));
        }
    }

    fn check_forgery(&self, segment: SegmentRef<'_, Payloads>) {
        let Some(forgery) = &self.forgery else { return };
        for bucket in 0..segment.buckets() {
            for (slot, lane) in forgery.lanes.iter().enumerate() {
                let found = (segment.tags(bucket).lane(slot), segment.content(bucket, slot));
                assert_eq!(found, (Some(*lane), forgery.payload), "somebody wrote to what had been given back");
            }
        }
    }
}

// SAFETY: every piece stays in `pieces` until the source is dropped, and is handed out to one holder at a time.
unsafe impl SegmentSource for Heap {
    // No lock is held while a bucket is looked at: the scheduler may go on with another thread there, which would wait for it.
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        let len = bytes / size_of::<Bucket>();
        let free = {
            let mut pieces = self.pieces.lock().expect("not poisoned");
            let free = pieces.iter_mut().find(|piece| !piece.is_with_index && piece.buckets.len() == len);
            free.map(|piece| {
                piece.is_with_index = true;
                NonNull::from(&*piece.buckets).cast()
            })
        };
        if let Some(free) = free {
            self.used_again.fetch_add(1, Ordering::Relaxed);
            self.check_forgery(Self::segment(free, bytes));
            return Some(free);
        }
        let piece = Piece { buckets: (0..len).map(|_| Bucket::default()).collect(), is_with_index: true };
        let pointer = NonNull::from(&*piece.buckets).cast();
        self.pieces.lock().expect("not poisoned").push(piece);
        Some(pointer)
    }

    fn release(&self, segment: NonNull<u8>, bytes: usize) {
        self.forge(Self::segment(segment, bytes));
        let mut pieces = self.pieces.lock().expect("not poisoned");
        let piece =
            pieces.iter_mut().find(|piece| NonNull::from(&*piece.buckets).cast() == segment).expect("one of ours");
        assert!(std::mem::take(&mut piece.is_with_index), "given back twice");
        assert_eq!(piece.buckets.len() * size_of::<Bucket>(), bytes, "given back as another size");
    }
}
