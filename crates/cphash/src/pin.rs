//! A large value on its way to a client: a reference to its element, given up when it has been sent.
//!
//! Always true: while this lives the value's pieces are not freed, even if the element was replaced or evicted meanwhile.

use std::{cell::Cell, sync::Arc};

use guira_item::PinnedValue;

use crate::{
    element::Slot,
    element_ops::drop_reference,
    shards::{Held, Shards},
};

/// A reference to a large element.
pub(crate) struct Pin<S: Shards> {
    shards: Arc<S>,
    slot: Slot,
    hash: u64,
    first: Slot,
    len: usize,
    /// A piece and the offset in the value at which it begins, so that going forward is cheap.
    cursor: Cell<(usize, Slot)>,
}

impl<S: Shards> Pin<S> {
    /// For a reference that has been taken; `first` is the value's first piece.
    pub fn new(shards: Arc<S>, slot: Slot, hash: u64, first: Slot, len: usize) -> Self {
        Self { shards, slot, hash, first, len, cursor: Cell::new((0, first)) }
    }
}

impl<S: Shards> PinnedValue for Pin<S> {
    fn len(&self) -> usize {
        self.len
    }

    fn piece(&self, offset: usize) -> &[u8] {
        if offset >= self.len {
            return &[];
        }
        let (mut start, mut slot) = self.cursor.get();
        if offset < start {
            (start, slot) = (0, self.first);
        }
        loop {
            let (bytes, next) = self.shards.common().memory.piece(slot);
            if offset < start + bytes.len() {
                self.cursor.set((start, slot));
                return &bytes[offset - start..];
            }
            start += bytes.len();
            slot = next;
        }
    }
}

impl<S: Shards> Drop for Pin<S> {
    fn drop(&mut self) {
        let common = self.shards.common();
        let mut held = self.shards.hold(common.partition(self.hash));
        let (_, supply) = held.parts();
        // SAFETY: the partition is held.
        let cx = unsafe { common.context(common.now()) };
        drop_reference(&cx, supply, self.slot);
    }
}
