//! What clients and partitions say to each other, in words of 64 bits (CPHASH, sections 3.2 and 3.4): eight lookups to a cache
//! line, or four inserts, or two sets of 8-byte keys and values.
//!
//! ```text
//! request    60 bits                   4 bits   more words                        reply
//! Lookup     hash key                  0                                          slot | 0 hit, 1 miss, 2 expired, 3 flushed
//! Insert     hash key                  1        value_len << 8 | key_len          slot | 0, or 4 no room
//! Decref     slot                      2                                          none
//! Release    how many                  5                                          none
//! Call       address of a Call, / 16   3        hash key                          0, or 1 stalled; the answer is in the Call
//! Set        hash key                  4        flags << 32 | expires << 31 |     version | 0, or 1 stalled, 2 too large,
//!                                               value_len << 8 | key_len            3 no memory
//!                                               expiry, if it expires             expiry << 32 | value_len << 2 | what was there
//!                                               key, value
//! ```
//! A short value goes with its message: whoever serves the partition reads on in lines that it has asked for, where a call would
//! have it fetch the client's. A Release stands for many of the paper's Decrefs: so many references, the first of those that
//! lookups have given this client, are given back. The paper's Ready is a Call that names the element which its client has filled:
//! what becomes of it may depend on what is there. A message for which there is no memory at its partition stalls its client's
//! seat there: nothing that the client sent after it is served before the client has made room and carried it out.
//!
//! Always true: a Set has two words of reply, every other message that is replied to has one, in the order of the messages; no
//! message is longer than [`WORDS_MAX`].

use std::cell::Cell;

use guira_item::{Answer, Death, Expiry, Footprint, KEY_LEN_MAX, Request, Store, StoreMode};

use crate::{
    context::{Lookup, Outcome, Shortage},
    element::Slot,
};

const KIND_BITS: u32 = 4;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

pub(crate) const LOOKUP: u64 = 0;
pub(crate) const INSERT: u64 = 1;
pub(crate) const DECREF: u64 = 2;
pub(crate) const CALL: u64 = 3;
pub(crate) const SET: u64 = 4;
pub(crate) const RELEASE: u64 = 5;

/// Longest value that goes with its message, in bytes: longer ones are copied by the client into memory that it has asked for.
pub(crate) const VALUE_LEN_MAX: usize = 1_023;

/// Bytes of the longest key and value in a message, in whole words.
pub(crate) const CONTENT_LEN_MAX: usize = (KEY_LEN_MAX + VALUE_LEN_MAX).next_multiple_of(size_of::<u64>());

/// Words of the longest message.
pub(crate) const WORDS_MAX: usize = 3 + CONTENT_LEN_MAX / size_of::<u64>();

const HIT: u64 = 0;
const MISS: u64 = 1;
const EXPIRED: u64 = 2;
const FLUSHED: u64 = 3;
const NO_ROOM: u64 = 4;

/// Replies to a call; of a set's first word the kind.
pub(crate) const DONE: u64 = 0;
pub(crate) const STALLED: u64 = 1;
const TOO_LARGE: u64 = 2;
const OUT_OF_MEMORY: u64 = 3;

/// A first word.
#[inline]
pub(crate) fn word(kind: u64, content: u64) -> u64 {
    content << KIND_BITS | kind
}

/// Kind and content of a first word.
#[inline]
pub(crate) fn open(word: u64) -> (u64, u64) {
    (word & KIND_MASK, word >> KIND_BITS)
}

/// The second word of an Insert.
#[inline]
pub(crate) fn lens(key_len: usize, value_len: usize) -> u64 {
    (value_len as u64) << 8 | key_len as u64
}

/// Lengths of key and value in an Insert.
#[inline]
pub(crate) fn open_lens(word: u64) -> (usize, usize) {
    ((word & 0xff) as usize, (word >> 8) as usize)
}

#[inline]
pub(crate) fn lookup_reply(lookup: Lookup) -> u64 {
    match lookup {
        Lookup::Hit(slot) => word(HIT, u64::from(slot.0)),
        Lookup::Miss(None) => MISS,
        Lookup::Miss(Some(Death::Expired)) => EXPIRED,
        Lookup::Miss(Some(Death::Flushed)) => FLUSHED,
    }
}

#[inline]
pub(crate) fn open_lookup_reply(reply: u64) -> Lookup {
    match open(reply) {
        (HIT, slot) => Lookup::Hit(Slot(slot as u32)),
        (EXPIRED, _) => Lookup::Miss(Some(Death::Expired)),
        (FLUSHED, _) => Lookup::Miss(Some(Death::Flushed)),
        _ => Lookup::Miss(None),
    }
}

#[inline]
pub(crate) fn insert_reply(slot: Option<Slot>) -> u64 {
    slot.map_or(NO_ROOM, |slot| word(HIT, u64::from(slot.0)))
}

#[inline]
pub(crate) fn open_insert_reply(reply: u64) -> Option<Slot> {
    match open(reply) {
        (HIT, slot) => Some(Slot(slot as u32)),
        _ => None,
    }
}

/// The words of a message whose first two are these: all but a set's say it by their kind.
#[inline]
pub(crate) fn words(first: u64, second: impl FnOnce() -> u64) -> usize {
    match first & KIND_MASK {
        LOOKUP | DECREF | RELEASE => 1,
        SET => SetHead::open(second()).words(),
        _ => 2,
    }
}

/// The second word of a Set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetHead {
    pub key_len: usize,
    pub value_len: usize,
    pub flags: u32,
    pub expires: bool,
}

impl SetHead {
    #[inline]
    pub fn word(self) -> u64 {
        u64::from(self.flags) << 32 | u64::from(self.expires) << 31 | lens(self.key_len, self.value_len)
    }

    #[inline]
    pub fn open(word: u64) -> Self {
        let (key_len, value_len) = open_lens(word & 0x7fff_ffff);
        Self { key_len, value_len, flags: (word >> 32) as u32, expires: word >> 31 & 1 == 1 }
    }

    /// Words of the message.
    #[inline]
    pub fn words(self) -> usize {
        2 + usize::from(self.expires) + (self.key_len + self.value_len).div_ceil(size_of::<u64>())
    }
}

/// Whether a store is a Set.
#[inline]
pub(crate) fn is_set(store: &Store<'_>) -> bool {
    store.mode == StoreMode::Set && store.cas.is_none() && store.vivify.is_none() && store.value.len() <= VALUE_LEN_MAX
}

/// Where a Set is written before it is sent.
pub(crate) struct SetDraft {
    words: [u64; WORDS_MAX],
    content: [u8; CONTENT_LEN_MAX],
}

impl SetDraft {
    pub fn new() -> Box<Self> {
        Box::new(Self { words: [0; WORDS_MAX], content: [0; CONTENT_LEN_MAX] })
    }

    /// The words of a message.
    #[inline]
    pub fn write(&mut self, hash: u64, key: &[u8], store: &Store<'_>) -> &[u64] {
        let expires = store.expiry != Expiry::NEVER;
        let head = SetHead { key_len: key.len(), value_len: store.value.len(), flags: store.flags, expires };
        (self.words[0], self.words[1], self.words[2]) = (word(SET, hash), head.word(), store.expiry.to_raw().into());
        let (len, from) = (head.words(), 2 + usize::from(expires));
        let content = &mut self.content[..(len - from) * size_of::<u64>()];
        content[..key.len()].copy_from_slice(key);
        content[key.len()..][..store.value.len()].copy_from_slice(store.value);
        for (word, bytes) in self.words[from..len].iter_mut().zip(content.chunks_exact(size_of::<u64>())) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        &self.words[..len]
    }
}

/// What came of a set.
pub(crate) type SetAnswer = Result<(Option<Death>, Answer, Option<Footprint>), Stalled>;

/// There is no memory for a set at its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stalled;

/// Replies to a set.
#[inline]
pub(crate) fn set_reply(answer: SetAnswer) -> [u64; 2] {
    let Ok((death, answer, before)) = answer else { return [STALLED, 0] };
    let first = match answer {
        Answer::Stored { cas } => word(DONE, cas),
        Answer::TooLarge => TOO_LARGE,
        Answer::OutOfMemory => OUT_OF_MEMORY,
        other => unreachable!("a set comes to {other:?}"),
    };
    let second = match (before, death) {
        (Some(item), _) => u64::from(item.expiry.to_raw()) << 32 | (item.value_len as u64) << 2 | HIT,
        (None, None) => MISS,
        (None, Some(Death::Expired)) => EXPIRED,
        (None, Some(Death::Flushed)) => FLUSHED,
    };
    [first, second]
}

/// What came of a set with a key of so many bytes.
#[inline]
pub(crate) fn open_set_reply([first, second]: [u64; 2], class_of: impl FnOnce(usize) -> u32) -> SetAnswer {
    let answer = match open(first) {
        (STALLED, _) => return Err(Stalled),
        (TOO_LARGE, _) => Answer::TooLarge,
        (OUT_OF_MEMORY, _) => Answer::OutOfMemory,
        (_, cas) => Answer::Stored { cas },
    };
    let before = (second & 3 == HIT).then(|| {
        let value_len = (second >> 2 & 0x3fff_ffff) as usize;
        Footprint { class: class_of(value_len), value_len, expiry: Expiry::from_raw((second >> 32) as u32) }
    });
    let death = match second & 3 {
        EXPIRED => Some(Death::Expired),
        FLUSHED => Some(Death::Flushed),
        _ => None,
    };
    Ok((death, answer, before))
}

/// What came of a call.
pub(crate) type Answered = Result<(Option<Death>, Outcome), Shortage>;

/// The element that an answer has a reference to.
pub(crate) fn referenced(answered: Answered) -> Option<Slot> {
    match answered {
        Ok((_, Outcome::Hit(_, slot))) => Some(slot),
        _ => None,
    }
}

/// An operation in its client's memory, which whoever serves the partition carries out there. The client waits for the reply before
/// it touches or frees any of it.
#[repr(align(64))]
pub(crate) struct Call {
    request: *const Request<'static>,
    /// An element that the client has filled with what is to be stored.
    pub filled: Cell<Option<Slot>>,
    pub answer: Cell<Option<Answered>>,
}

impl Call {
    /// A call that carries `request` out.
    pub fn new(request: &Request<'_>, filled: Option<Slot>) -> Self {
        let request: *const Request<'_> = request;
        Self { request: request.cast(), filled: Cell::new(filled), answer: Cell::new(None) }
    }

    /// Its first word.
    pub fn word(&self) -> u64 {
        let address: *const Self = self;
        address.expose_provenance() as u64 | CALL
    }

    /// The call of a first word.
    ///
    /// # Safety
    /// The word is a call's whose client waits for the reply.
    #[inline]
    pub unsafe fn of<'c>(word: u64) -> &'c Self {
        // SAFETY: as the caller promises, the call is there and nobody else touches it until it is replied to.
        unsafe { &*std::ptr::with_exposed_provenance::<Self>((word & !KIND_MASK) as usize) }
    }

    /// The request.
    ///
    /// # Safety
    /// The client waits for the reply.
    #[inline]
    pub unsafe fn request(&self) -> &Request<'_> {
        // SAFETY: as the caller promises: the client borrows the request while it waits; the lifetime is no longer than that.
        unsafe { &*self.request.cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for lookup in [
            Lookup::Hit(Slot(0)),
            Lookup::Hit(Slot(u32::MAX - 1)),
            Lookup::Miss(None),
            Lookup::Miss(Some(Death::Expired)),
            Lookup::Miss(Some(Death::Flushed)),
        ] {
            assert_eq!(open_lookup_reply(lookup_reply(lookup)), lookup);
        }
        for slot in [None, Some(Slot(0)), Some(Slot(77))] {
            assert_eq!(open_insert_reply(insert_reply(slot)), slot);
        }
        let before = Footprint { class: 7, value_len: (1 << 30) - 1, expiry: Expiry::from_raw(u32::MAX) };
        for answer in [
            Err(Stalled),
            Ok((None, Answer::Stored { cas: (1 << 60) - 1 }, None)),
            Ok((None, Answer::Stored { cas: 1 }, Some(before))),
            Ok((Some(Death::Expired), Answer::TooLarge, None)),
            Ok((Some(Death::Flushed), Answer::OutOfMemory, None)),
        ] {
            assert_eq!(open_set_reply(set_reply(answer), |_| 7), answer);
        }
        assert_eq!(open(word(INSERT, (1 << 60) - 1)), (INSERT, (1 << 60) - 1));
        assert_eq!(open_lens(lens(250, 1 << 30)), (250, 1 << 30));
    }

    #[test]
    fn keys_and_values_of_all_lengths_come_through() {
        let bytes: Vec<u8> = (0..KEY_LEN_MAX + VALUE_LEN_MAX).map(|number| (number * 7 % 251) as u8 + 1).collect();
        let mut draft = SetDraft::new();
        for key_len in [1, 2, 7, 8, 9, 31, KEY_LEN_MAX] {
            for value_len in (0..40).chain([VALUE_LEN_MAX - 1, VALUE_LEN_MAX]) {
                let (key, value) = (&bytes[..key_len], &bytes[key_len..key_len + value_len]);
                for expiry in [Expiry::NEVER, Expiry::from_raw(77)] {
                    let store =
                        Store { mode: StoreMode::Set, flags: 0xfedc_ba98, expiry, cas: None, vivify: None, value };
                    let message = draft.write(99, key, &store);
                    assert_eq!(open(message[0]), (SET, 99));
                    assert_eq!(words(message[0], || message[1]), message.len());
                    let expires = expiry != Expiry::NEVER;
                    assert_eq!(SetHead::open(message[1]), SetHead { key_len, value_len, flags: 0xfedc_ba98, expires });
                    let content: Vec<u8> =
                        message[2 + usize::from(expires)..].iter().flat_map(|word| word.to_le_bytes()).collect();
                    assert_eq!(content[..key_len + value_len], bytes[..key_len + value_len]);
                }
            }
        }
    }
}
