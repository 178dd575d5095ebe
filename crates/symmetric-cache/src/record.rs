//! A key's record: a header of eight bytes, and what is served while that says so.
//!
//! Always true: the words behind a header change only while it is locked, and it is another afterwards; a reader who finds the header as it was has read one state, if the record
//! was its key's all along.

use guira_item::Expiry;
use guira_sync::atomic::{AtomicU64, Ordering, fence};

use crate::{At, Content};

/// Words before the key.
const HEAD_WORDS: usize = 4;

const LOCKED: u64 = 1;
const SERVED: u64 = 2;

/// The header.
///
/// ```text
/// bits 63 ... 32: version | 31 ... 16: writer | 1: served | 0: locked
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header(u64);

impl Header {
    pub(crate) fn new(at: At, is_served: bool) -> Self {
        let served = if is_served { SERVED } else { 0 };
        Self(u64::from(at.version) << 32 | u64::from(at.writer) << 16 | served)
    }

    /// The same, not served.
    pub(crate) fn withheld(self) -> Self {
        Self(self.0 & !SERVED)
    }

    fn is_served(self) -> bool {
        self.0 & (SERVED | LOCKED) == SERVED
    }
}

/// What is known of a value that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) flags: u32,
    pub(crate) cas: u64,
    pub(crate) expiry: Expiry,
    pub(crate) value_len: usize,
}

/// What a reader sees in a record.
pub(crate) enum Seen {
    /// Another key's.
    Other,
    /// It is not served now, or is being changed.
    NotServed,
    /// The key has this, whose bytes were appended.
    Value(Meta),
    /// The key has nothing.
    Nothing,
}

/// Bytes of a record whose key and value are so long together, at most.
pub(crate) fn len(item_len: usize) -> usize {
    // Each may leave most of a word free.
    HEAD_WORDS * size_of::<u64>() + item_len + 2 * (size_of::<u64>() - 1)
}

fn words_of(len: usize) -> usize {
    len.div_ceil(size_of::<u64>())
}

/// Bytes of the record of these.
pub(crate) fn len_of(key: &[u8], content: Option<Content<'_>>) -> usize {
    let value_len = content.map_or(0, |content| content.value.len());
    (HEAD_WORDS + words_of(key.len()) + words_of(value_len)) * size_of::<u64>()
}

/// The writer's: fills a record, which may be another's before.
pub(crate) fn write(words: &[AtomicU64], key: &[u8], header: Header, content: Option<Content<'_>>) {
    // Release: pairs with readers' Acquire fences. Whoever reads one of the words below, in a record that was here before, sees that his bucket has changed.
    fence(Ordering::Release);
    words[0].store(header.0 | LOCKED, Ordering::Relaxed);
    // Release: pairs with the Acquire fence in `Reader`; whoever reads one of the words below sees that the header is another.
    fence(Ordering::Release);
    let value = content.map_or(&[][..], |content| content.value);
    let (flags, cas, expiry) =
        content.map_or((0, 0, Expiry::NEVER), |content| (content.flags, content.cas, content.expiry));
    let has_value = u64::from(content.is_some());
    words[1].store(u64::from(flags) | (key.len() as u64) << 32 | has_value << 48, Ordering::Relaxed);
    words[2].store(cas, Ordering::Relaxed);
    words[3].store(u64::from(expiry.to_raw()) | (value.len() as u64) << 32, Ordering::Relaxed);
    let bytes = [key, value].into_iter().flat_map(|bytes| bytes.chunks(size_of::<u64>()));
    words[HEAD_WORDS..].iter().zip(bytes).for_each(|(word, bytes)| word.store(word_of(bytes), Ordering::Relaxed));
    // Release: pairs with the Acquire load in `read`.
    words[0].store(header.0, Ordering::Release);
}

/// The writer's: says whether a record is served, and when it was written, and leaves what it has.
pub(crate) fn set_header(words: &[AtomicU64], header: Header) {
    // Release: pairs with the Acquire load in `read`.
    words[0].store(header.0, Ordering::Release);
}

/// What there is for a key, of which the value is appended to `values`; and the header by which it is. It counts if [`is_still`] says so, and if the record was the key's all along.
#[inline]
pub(crate) fn read(words: &[AtomicU64], key: &[u8], values: &mut Vec<u8>) -> (Header, Seen) {
    // Acquire: pairs with the Release stores in `write` and `set_header`.
    let header = Header(words[0].load(Ordering::Acquire));
    // What is read of a record that is no longer its key's may be anything: it is looked at as such.
    let Some([lens, cas, expiry]) = words.get(1..HEAD_WORDS) else { return (header, Seen::NotServed) };
    let [lens, cas, expiry] = [lens, cas, expiry].map(|word| word.load(Ordering::Relaxed));
    let (key_len, value_len) = ((lens >> 32) as usize & 0xffff, (expiry >> 32) as usize);
    if key_len != key.len() {
        return (header, Seen::Other);
    }
    let Some((key_words, value_words)) = words[HEAD_WORDS..].split_at_checked(words_of(key_len)) else {
        return (header, Seen::NotServed);
    };
    let is_it = key.chunks(size_of::<u64>()).zip(key_words).all(|(b, word)| word_of(b) == word.load(Ordering::Relaxed));
    if !is_it {
        return (header, Seen::Other);
    }
    if !header.is_served() {
        return (header, Seen::NotServed);
    }
    if lens >> 48 & 1 == 0 {
        return (header, Seen::Nothing);
    }
    let Some(value_words) = value_words.get(..words_of(value_len)) else { return (header, Seen::NotServed) };
    let begin = values.len();
    value_words.iter().for_each(|word| values.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()));
    values.truncate(begin + value_len);
    (header, Seen::Value(Meta { flags: lens as u32, cas, expiry: Expiry::from_raw(expiry as u32), value_len }))
}

/// Whether a header is as it was. The caller has put an Acquire fence between.
#[inline]
pub(crate) fn is_still(words: &[AtomicU64], header: Header) -> bool {
    words[0].load(Ordering::Relaxed) == header.0
}

/// Up to eight bytes, and zeros behind them.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; size_of::<u64>()];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
