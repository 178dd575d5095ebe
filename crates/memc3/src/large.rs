//! Large items: values longer than a chunk are cut into pieces, each in a chunk of its own, chained from the item's head.
//!
//! ```text
//! head:   header (large) | more | key ... | value_len (64) | first piece (32), references (32)
//! piece:  header (piece) | next piece (32), bytes here (32) | aged, judged (1 bit each), owner (32) | bytes
//! ```
//! The first piece has what is left over when the others are full, so that one look at it and at the next one shows all the
//! classes that the item has pieces in.
//!
//! Always true: while the item is in the index it has one reference; each reader that sends it has one more; whoever gives
//! up the last one frees all its chunks, so a value being sent survives its own replacement; the bytes never change.

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

use guira_arena::{Place, Words};
use guira_item::{PinnedValue, Time};
use guira_sync::References;

use crate::{
    engine::Shared,
    item::{Header, Writer},
    magazine::Station,
    size_classes::ClassId,
};

/// Bytes of a piece before its share of the value.
const PIECE_HEADER_LEN: usize = 24;

/// Set in a piece at which a policy judges its item: the first, and the second if it is in another class.
const JUDGED: u64 = 1 << 32;

/// Set in the one of these at which it is also aged: that of the class with most of its pieces. It has one mark of use, which other
/// classes' hands leave to this one's.
const AGED: u64 = 1 << 33;

/// A piece's owner, if this is the piece at which it is judged.
pub(crate) fn judged_owner(words: Words<'_>) -> Option<Place> {
    // Acquire: pairs with the Release in `fill_pieces`; a hand comes by without a lock that the item's maker took.
    let header = Header(words.word(0).load(Ordering::Acquire));
    (header.is_piece() && words.load(2) & JUDGED != 0).then(|| owner(words))
}

/// Whether a large item is aged at this judged piece of it.
pub(crate) fn is_aged_at(words: Words<'_>) -> bool {
    words.load(2) & AGED != 0
}

/// A piece's owner: the head of its item.
pub(crate) fn owner(words: Words<'_>) -> Place {
    Place(words.load(2) as u32)
}

/// Length of a large item's value.
pub(crate) fn value_len(header: Header, words: Words<'_>) -> usize {
    words.load(header.large_offset() / 8) as usize
}

fn references_index(header: Header) -> usize {
    header.large_offset() / 8 + 1
}

/// The item's references, beside which its first piece stands.
fn references(header: Header, words: Words<'_>) -> References<'_> {
    References::of(words.word(references_index(header)))
}

fn first_piece(header: Header, words: Words<'_>) -> Place {
    Place(references(header, words).beside())
}

/// The places by which policies know an item: its own, and those of its judged pieces.
pub(crate) type Nodes = [Option<Place>; 3];

impl Shared {
    /// Takes the chunks for `value_len` bytes; none are linked to anything yet.
    ///
    /// # Errors
    /// The class that is short of memory.
    pub(crate) fn allocate_pieces(
        &self,
        value_len: usize,
        now: Time,
        station: &Station,
    ) -> Result<Vec<Place>, ClassId> {
        let lens = self.piece_lens(value_len);
        let mut places = Vec::with_capacity(lens.len());
        for len in lens {
            let class = self.slabs.sizes.fitting(PIECE_HEADER_LEN + len).expect("a piece fits the largest chunk");
            match self.allocate(class, now, station) {
                Some(place) => places.push(place),
                None => {
                    self.slabs.free(&self.arena, &places);
                    return Err(class);
                }
            }
        }
        Ok(places)
    }

    /// How long each piece of a value is, which is not empty.
    fn piece_lens(&self, value_len: usize) -> impl ExactSizeIterator<Item = usize> + use<> {
        let max = self.piece_len_max();
        let pieces = value_len.div_ceil(max);
        let first = value_len - (pieces.max(1) - 1) * max;
        (0..pieces).map(move |index| if index == 0 { first } else { max })
    }

    /// The places by which policies know the item at `place`. The caller holds its key's stripe, and the item is in the index.
    pub(crate) fn nodes_of(&self, place: Place, header: Header) -> Nodes {
        let mut nodes = [Some(place), None, None];
        if header.is_large() {
            let first = first_piece(header, self.words(place));
            nodes[1] = Some(first);
            let (_, second) = self.piece(first);
            // A value of one piece has no second one, and what stands in its place is no piece of it.
            let words = self.words(second);
            nodes[2] = Some(second).filter(|_| judged_owner(words) == Some(place) && second != first);
        }
        nodes
    }

    fn piece_len_max(&self) -> usize {
        self.slabs.sizes.chunk_len_max() - PIECE_HEADER_LEN
    }

    /// Fills pieces taken by `allocate_pieces` with the concatenation of `parts` and chains them behind `head`, whose fields
    /// are written too. Nobody can see any of it yet.
    pub(crate) fn fill_pieces(&self, head: Place, header: Header, pieces: &[Place], parts: &[&[u8]]) {
        let value_len: usize = parts.iter().map(|part| part.len()).sum();
        let head_words = self.words(head);
        let first = pieces.first().map_or(0, |place| place.0);
        head_words.store(header.large_offset() / 8, value_len as u64);
        head_words.store(references_index(header), References::first(first));
        let class_of = |place: &Place| self.slabs.class_of(self.arena.locate(*place).0);
        let is_second_judged = pieces.get(1).is_some_and(|second| class_of(second) != class_of(&pieces[0]));
        let mut bytes = Parts { parts, at: 0 };
        for ((index, place), len) in pieces.iter().enumerate().zip(self.piece_lens(value_len)) {
            let words = self.words(*place);
            let next = pieces.get(index + 1).map_or(0, |place| place.0);
            let is_judged = index == 0 || (index == 1 && is_second_judged);
            let is_aged = index == usize::from(is_second_judged);
            words.store(1, u64::from(next) << 32 | len as u64);
            words.store(2, u64::from(head.0) | if is_judged { JUDGED } else { 0 } | if is_aged { AGED } else { 0 });
            let mut writer = Writer::new(words, PIECE_HEADER_LEN);
            bytes.take(len, |run| writer.put(run));
            writer.finish();
            // Release: pairs with the Acquire in `judged_owner`; whose piece this is stands there when it is one.
            words.word(0).store(Header::PIECE.0, Ordering::Release);
        }
    }

    /// Chunks of a large item: its pieces and its head.
    fn chunks_of(&self, head: Place) -> Vec<Place> {
        let words = self.words(head);
        let header = Header::of(words);
        let mut chunks = Vec::new();
        let mut left = value_len(header, words);
        let mut piece = first_piece(header, words);
        while left > 0 {
            let words = self.words(piece);
            chunks.push(piece);
            let link = words.load(1);
            left -= (link as u32) as usize;
            piece = Place((link >> 32) as u32);
        }
        chunks.push(head);
        chunks
    }

    /// Gives up one reference to a large item; the last one frees it.
    pub(crate) fn drop_reference(&self, head: Place) {
        let words = self.words(head);
        if references(Header::of(words), words).give_up() {
            self.slabs.free(&self.arena, &self.chunks_of(head));
        }
    }

    /// Copies a large item's value. The caller holds its key's stripe, or a reference.
    pub(crate) fn copy_large(&self, head: Place, to: &mut Vec<u8>) {
        let words = self.words(head);
        let header = Header::of(words);
        let len = value_len(header, words);
        let mut piece = first_piece(header, words);
        let start = to.len();
        while to.len() - start < len {
            let (bytes, next) = self.piece(piece);
            to.extend_from_slice(bytes);
            piece = next;
        }
    }

    /// A piece's bytes, and the next piece. The caller holds a reference to the item, or its key's stripe.
    fn piece(&self, place: Place) -> (&[u8], Place) {
        let words = self.words(place);
        let link = words.load(1);
        let len = (link as u32) as usize;
        debug_assert!(len <= self.piece_len_max());
        // SAFETY: the piece belongs to an item that is kept from being freed by the caller's reference or stripe; its bytes
        // were written before it became visible and do not change until it is freed; `len` bytes lie inside its chunk.
        let bytes = unsafe { std::slice::from_raw_parts(words.address(PIECE_HEADER_LEN), len) };
        (bytes, Place((link >> 32) as u32))
    }
}

/// Several byte strings, taken as one.
struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// Bytes of the first part that are taken.
    at: usize,
}

impl Parts<'_> {
    fn take(&mut self, len: usize, mut each: impl FnMut(&[u8])) {
        let mut left = len;
        while left > 0 {
            let Some((first, rest)) = self.parts.split_first() else { return };
            let run = (first.len() - self.at).min(left);
            each(&first[self.at..self.at + run]);
            self.at += run;
            left -= run;
            if self.at == first.len() {
                self.parts = rest;
                self.at = 0;
            }
        }
    }
}

/// A reference to a large item, held while it is sent.
pub(crate) struct Pin {
    shared: Arc<Shared>,
    head: Place,
    len: usize,
    /// A piece and the offset in the value at which it begins, so that going forward is cheap.
    cursor: Cell<(usize, Place)>,
    first: Place,
}

impl Pin {
    /// Takes a reference. The caller holds the stripe of the item's key, and the item is in the index.
    pub(crate) fn new(shared: &Arc<Shared>, head: Place) -> Self {
        let words = shared.words(head);
        let header = Header::of(words);
        references(header, words).take();
        let first = first_piece(header, words);
        let len = value_len(header, words);
        shared.slabs.touch(shared.arena.locate(head).0);
        Self { shared: Arc::clone(shared), head, len, cursor: Cell::new((0, first)), first }
    }
}

impl PinnedValue for Pin {
    fn len(&self) -> usize {
        self.len
    }

    fn piece(&self, offset: usize) -> &[u8] {
        if offset >= self.len {
            return &[];
        }
        let (mut start, mut place) = self.cursor.get();
        if offset < start {
            (start, place) = (0, self.first);
        }
        loop {
            let (bytes, next) = self.shared.piece(place);
            if offset < start + bytes.len() {
                self.cursor.set((start, place));
                self.shared.slabs.touch(self.shared.arena.locate(place).0);
                return &bytes[offset - start..];
            }
            start += bytes.len();
            place = next;
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.drop_reference(self.head);
    }
}
