//! An item in a chunk: eight bytes of header, eight more only for an item that has flags, an expiry or marks, then the key,
//! then the value.
//!
//! ```text
//! word 0    bit 63         26   25     24      23    22   21            8 7        0
//!               version (38)    recent fetched large more value_len (14)  key_len (8)
//! word 1    only if `more`:  bit 63 32 flags   31 won   30 stale   29 0 expiry (s)
//! then      key, value                                               (an item in one chunk)
//!           key, zeros to a word, value_len, references | first piece   (a large item, see large.rs)
//! ```
//! Always true: key_len 0 in word 0 means that there is no item (a free chunk is all zeros there, a piece of a large item
//! has only `large`); an item in the index changes only under its key's stripe; word 0 is the last one written when a
//! chunk becomes an item.
//!
//! A version has 38 bits and is counted for each stripe (`versions.rs`): for a client to take a new version for an old one, the keys
//! of one stripe, a thousandth of all, must be written exactly one round of versions, or several, between its gets and its cas.

use std::sync::atomic::Ordering;

use guira_item::Expiry;

use guira_arena::Words;

const VALUE_LEN_SHIFT: u32 = 8;
const VALUE_LEN_BITS: u32 = 14;
const MORE: u64 = 1 << 22;
const LARGE: u64 = 1 << 23;
const FETCHED: u64 = 1 << 24;
const RECENT: u64 = 1 << 25;
const VERSION_SHIFT: u32 = 26;

/// Bits of a version.
pub(crate) const VERSION_BITS: u32 = 64 - VERSION_SHIFT;

/// Largest version.
pub(crate) const VERSION_MAX: u64 = (1 << VERSION_BITS) - 1;

/// Largest value in one chunk, in bytes, by its field.
pub(crate) const VALUE_LEN_MAX: usize = (1 << VALUE_LEN_BITS) - 1;

const STALE: u64 = 1 << 30;
const WON: u64 = 1 << 31;
const EXPIRY_MASK: u64 = (1 << 30) - 1;
const FLAGS_SHIFT: u32 = 32;

/// Word 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header(pub u64);

impl Header {
    /// For an item just stored: not read yet.
    pub fn new(key_len: usize, value_len: usize, more: More, version: u64) -> Self {
        debug_assert!((1..=250).contains(&key_len) && value_len <= VALUE_LEN_MAX && version <= VERSION_MAX);
        let more = if more.is_needed() { MORE } else { 0 };
        Self(key_len as u64 | (value_len as u64) << VALUE_LEN_SHIFT | more | version << VERSION_SHIFT)
    }

    /// For a large item, whose value's length stands elsewhere.
    pub fn new_large(key_len: usize, more: More, version: u64) -> Self {
        Self(Self::new(key_len, 0, more, version).0 | LARGE)
    }

    /// The header of a piece of a large item, which is no item.
    pub const PIECE: Self = Self(LARGE);

    #[inline]
    pub fn of(words: Words<'_>) -> Self {
        Self(words.load(0))
    }

    #[inline]
    pub fn is_item(self) -> bool {
        self.key_len() != 0
    }

    pub fn is_piece(self) -> bool {
        self == Self::PIECE
    }

    #[inline]
    pub fn key_len(self) -> usize {
        (self.0 & 0xff) as usize
    }

    #[inline]
    pub fn value_len(self) -> usize {
        (self.0 >> VALUE_LEN_SHIFT) as usize & VALUE_LEN_MAX
    }

    #[inline]
    pub fn has_more(self) -> bool {
        self.0 & MORE != 0
    }

    #[inline]
    pub fn is_large(self) -> bool {
        self.0 & LARGE != 0
    }

    #[inline]
    pub fn is_fetched(self) -> bool {
        self.0 & FETCHED != 0
    }

    #[inline]
    pub fn is_recent(self) -> bool {
        self.0 & RECENT != 0
    }

    /// Read since the eviction hand came by, so that another read has nothing to note.
    #[inline]
    pub fn is_used(self) -> bool {
        self.0 & (FETCHED | RECENT) == FETCHED | RECENT
    }

    #[inline]
    pub fn used(self) -> Self {
        Self(self.0 | FETCHED | RECENT)
    }

    /// With the marks of use of `other`.
    pub fn as_used_as(self, other: Self) -> Self {
        Self(self.0 | other.0 & (FETCHED | RECENT))
    }

    pub fn recent(self) -> Self {
        Self(self.0 | RECENT)
    }

    pub fn fetched(self) -> Self {
        Self(self.0 | FETCHED)
    }

    #[inline]
    pub fn version(self) -> u64 {
        self.0 >> VERSION_SHIFT
    }

    pub fn with_version(self, version: u64) -> Self {
        Self(self.0 & ((1 << VERSION_SHIFT) - 1) | version << VERSION_SHIFT)
    }

    /// Where the key begins.
    #[inline]
    pub fn key_offset(self) -> usize {
        if self.has_more() { 16 } else { 8 }
    }

    /// Bytes of an item in one chunk; of a large item, those of its head.
    #[inline]
    pub fn chunk_len(self) -> usize {
        if self.is_large() {
            self.large_offset() + LARGE_FIELDS_LEN
        } else {
            self.key_offset() + self.key_len() + self.value_len()
        }
    }

    /// Where a large item's fields stand: behind its key, on a word's border.
    #[inline]
    pub fn large_offset(self) -> usize {
        (self.key_offset() + self.key_len()).next_multiple_of(8)
    }

    /// Lets the item count as not recently used; word 0 may change under our hands. Returns the header before.
    pub fn age(words: Words<'_>) -> Self {
        Self(words.word(0).fetch_and(!RECENT, Ordering::Relaxed))
    }
}

/// Bytes of a large item's fields in its head: length of the value; references and first piece.
pub(crate) const LARGE_FIELDS_LEN: usize = 16;

/// Word 1: what most items have none of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct More {
    pub flags: u32,
    pub expiry: Expiry,
    pub stale: bool,
    pub win_sent: bool,
}

impl More {
    #[inline]
    pub fn of(header: Header, words: Words<'_>) -> Self {
        if header.has_more() { Self::from_word(words.load(1)) } else { Self::default() }
    }

    fn from_word(word: u64) -> Self {
        Self {
            flags: (word >> FLAGS_SHIFT) as u32,
            expiry: Expiry::from_raw((word & EXPIRY_MASK) as u32),
            stale: word & STALE != 0,
            win_sent: word & WON != 0,
        }
    }

    pub fn word(self) -> u64 {
        u64::from(self.flags) << FLAGS_SHIFT
            | if self.stale { STALE } else { 0 }
            | if self.win_sent { WON } else { 0 }
            | u64::from(self.expiry.to_raw()) & EXPIRY_MASK
    }

    pub fn is_needed(self) -> bool {
        self != Self::default()
    }

    /// Bytes it takes in an item.
    pub fn len(self) -> usize {
        if self.is_needed() { 8 } else { 0 }
    }
}

/// Bytes of an item in one chunk.
pub(crate) fn item_len(key_len: usize, value_len: usize, more: More) -> usize {
    8 + more.len() + key_len + value_len
}

/// Bytes of a large item's head.
pub(crate) fn large_head_len(key_len: usize, more: More) -> usize {
    (8 + more.len() + key_len).next_multiple_of(8) + LARGE_FIELDS_LEN
}

/// Whether the bytes from `offset` (a multiple of 8) on are `key`, compared a word at a time.
#[inline]
pub(crate) fn key_is(words: Words<'_>, offset: usize, key: &[u8]) -> bool {
    let chunks = key.chunks_exact(8);
    // A word more than the whole ones, which may lie behind the item: all of them are readable.
    let (last, whole) = words.run(offset / 8, chunks.len() + 1).split_last().expect("at least one word");
    for (word, bytes) in whole.iter().zip(chunks) {
        let expected = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        if u64::from_le(word.load(Ordering::Relaxed)) != expected {
            return false;
        }
    }
    let rest = key.len() % 8;
    if rest == 0 {
        return true;
    }
    let shift = 8 * (8 - rest as u32);
    u64::from_le(last.load(Ordering::Relaxed)) << shift == last_word(key) << shift
}

/// The last `key.len() % 8` bytes of `key` in the low bytes of a word.
#[inline]
fn last_word(key: &[u8]) -> u64 {
    let rest = key.len() % 8;
    if let Some(last) = key.last_chunk::<8>() {
        return u64::from_le_bytes(*last) >> (8 * (8 - rest as u32));
    }
    key.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Copies `len` bytes from `offset` on into `to[lead..]`, by whole words: up to seven bytes before and behind are
/// overwritten too.
///
/// # Panics
/// If `to` has less than eight bytes before `lead` or behind the bytes copied.
#[inline]
pub(crate) fn copy_out(words: Words<'_>, offset: usize, len: usize, to: &mut [u8], lead: usize) {
    if len == 0 {
        return;
    }
    let skew = offset % 8;
    let count = (skew + len).div_ceil(8);
    let to = &mut to[lead - skew..][..count * 8];
    for (word, bytes) in words.run(offset / 8, count).iter().zip(to.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
}

/// Writes bytes one after another into a chunk, by whole words.
pub(crate) struct Writer<'a> {
    words: Words<'a>,
    index: usize,
    /// Bytes not yet stored, the first one lowest.
    pending: u64,
    pending_len: u32,
}

impl<'a> Writer<'a> {
    /// Begins at `offset`, a multiple of 8. The caller holds the chunk, or its key's stripe.
    pub fn new(words: Words<'a>, offset: usize) -> Self {
        debug_assert!(offset.is_multiple_of(8));
        Self { words, index: offset / 8, pending: 0, pending_len: 0 }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.put_word(u64::from_le_bytes(chunk.try_into().expect("eight bytes")), 8);
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let word = if bytes.len() >= 8 {
                last_word(bytes)
            } else {
                rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            };
            self.put_word(word, rest.len() as u32);
        }
    }

    /// Appends the low `len` bytes of `word`, whose other bytes are zero.
    #[inline]
    fn put_word(&mut self, word: u64, len: u32) {
        self.pending |= word << (8 * self.pending_len);
        let sum = self.pending_len + len;
        if sum < 8 {
            self.pending_len = sum;
            return;
        }
        self.words.store(self.index, self.pending.to_le());
        self.index += 1;
        // Shifting by 64 is no shift at all to the processor, so the case of nothing left over stands apart.
        self.pending = if self.pending_len == 0 { 0 } else { word >> (8 * (8 - self.pending_len)) };
        self.pending_len = sum - 8;
    }

    /// Appends `count` times `byte`.
    pub fn fill(&mut self, byte: u8, count: usize) {
        const RUN: usize = 64;
        let run = [byte; RUN];
        let mut left = count;
        while left > 0 {
            let now = left.min(RUN);
            self.put(&run[..now]);
            left -= now;
        }
    }

    /// Stores what is pending, with zeros behind it.
    #[inline]
    pub fn finish(self) {
        if self.pending_len > 0 {
            self.words.store(self.index, self.pending.to_le());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use guira_arena::{Arena, Place};

    #[test]
    fn a_header_keeps_every_field() {
        let more = More { flags: u32::MAX, expiry: Expiry::MAX, stale: true, win_sent: true };
        let header = Header::new(250, VALUE_LEN_MAX, more, VERSION_MAX);
        assert!(header.is_item() && header.has_more() && !header.is_large() && !header.is_used());
        assert_eq!((header.key_len(), header.value_len(), header.version()), (250, VALUE_LEN_MAX, VERSION_MAX));
        assert_eq!(header.chunk_len(), 16 + 250 + VALUE_LEN_MAX);
        assert_eq!(More::from_word(more.word()), more);
        let plain = Header::new(16, 32, More::default(), 7).used();
        assert_eq!((plain.chunk_len(), plain.is_used(), plain.version()), (56, true, 7));
        assert_eq!(plain.with_version(9).version(), 9);
        assert!(Header::PIECE.is_piece() && !Header::PIECE.is_item());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_compared(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5),
            skip in 0usize..20,
        ) {
            let arena = Arena::new(16, false).expect("address space");
            let words = arena.words(Place(11)).expect("inside");
            let mut writer = Writer::new(words, 16);
            parts.iter().for_each(|part| writer.put(part));
            writer.fill(b' ', skip);
            writer.finish();
            let mut whole = parts.concat();
            prop_assert!(key_is(words, 16, &whole));
            whole.extend(std::iter::repeat_n(b' ', skip));
            prop_assert!(key_is(words, 16, &whole));
            if let Some(last) = whole.last().copied() {
                let mut other = whole.clone();
                *other.last_mut().expect("not empty") = last ^ 1;
                prop_assert!(!key_is(words, 16, &other));
            }
            let skip = skip.min(whole.len());
            let mut out = vec![0; 8 + whole.len() + 8];
            copy_out(words, 16 + skip, whole.len() - skip, &mut out, 8);
            prop_assert_eq!(&out[8..8 + whole.len() - skip], &whole[skip..]);
        }
    }
}
