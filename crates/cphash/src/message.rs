//! What clients and partitions say to each other, in words of 64 bits (CPHASH, sections 3.2 and 3.4): eight lookups to a cache
//! line, or four inserts.
//!
//! ```text
//! request    60 bits                       4 bits    second word              reply
//! Lookup     hash key                      0                                  slot | 0 hit, 1 miss, 2 expired, 3 flushed
//! Insert     hash key                      1         value_len << 8 | key_len slot | 0, or 4 no room
//! Decref     slot                          2                                  none
//! Call       address of a Call, / 16       3         hash key                 0, or 1 stalled; the answer is in the Call
//! ```
//! The paper's Ready is a Call that names the element which its client has filled: what becomes of it may depend on what is there.
//! A call for which there is no memory at its partition stalls its client's seat there: nothing that the client sent after it is
//! served before the client has made room and carried it out.
//!
//! Always true: each message that is replied to has one word of reply, in the order of the messages.

use std::cell::Cell;

use guira_item::{Death, Request};

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

const HIT: u64 = 0;
const MISS: u64 = 1;
const EXPIRED: u64 = 2;
const FLUSHED: u64 = 3;
const NO_ROOM: u64 = 4;

/// Replies to a call.
pub(crate) const DONE: u64 = 0;
pub(crate) const STALLED: u64 = 1;

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
        assert_eq!(open(word(INSERT, (1 << 60) - 1)), (INSERT, (1 << 60) - 1));
        assert_eq!(open_lens(lens(250, 1 << 30)), (250, 1 << 30));
    }
}
