//! Several messages in the body of one datagram, so that a burst of small ones does not cost a datagram each.
//!
//! ```text
//! [len][message][len][message]...        len: u16, little endian, of the message alone
//! ```

use std::{fmt, iter};

use crate::seal::{DATAGRAM_LEN_MAX, HEADER_LEN};

/// The longest body, in bytes: a datagram's less the header.
pub const BODY_LEN_MAX: usize = DATAGRAM_LEN_MAX - HEADER_LEN;

/// The longest message, in bytes: alone in a body.
pub const MESSAGE_LEN_MAX: usize = BODY_LEN_MAX - LEN_LEN;

/// What a length takes.
const LEN_LEN: usize = size_of::<u16>();

const _: () = assert!(MESSAGE_LEN_MAX <= u16::MAX as usize);

/// What a message takes in a body, in bytes.
pub(crate) fn bundled_len(message: &[u8]) -> usize {
    LEN_LEN + message.len()
}

/// A body that is being written. There is room for the header before it, so that it is sealed where it is.
#[derive(Clone, Debug)]
pub struct Bundle {
    datagram: Vec<u8>,
}

impl Default for Bundle {
    fn default() -> Self {
        Self::new()
    }
}

impl Bundle {
    /// Without a message.
    pub fn new() -> Self {
        Self { datagram: vec![0; HEADER_LEN] }
    }

    /// Appends a message, if it fits into [`BODY_LEN_MAX`] behind those before it; whether it does.
    #[must_use]
    pub fn append(&mut self, message: &[u8]) -> bool {
        let fits = bundled_len(message) <= DATAGRAM_LEN_MAX - self.datagram.len();
        if fits {
            self.datagram.extend_from_slice(&(message.len() as u16).to_le_bytes());
            self.datagram.extend_from_slice(message);
        }
        fits
    }

    /// The messages, as they are sent.
    pub fn body(&self) -> &[u8] {
        &self.datagram[HEADER_LEN..]
    }

    /// Whether there is no message in it.
    pub fn is_empty(&self) -> bool {
        self.body().is_empty()
    }

    /// Takes all messages out of it and keeps its memory.
    pub fn clear(&mut self) {
        self.datagram.truncate(HEADER_LEN);
    }

    pub(crate) fn datagram(&self) -> &[u8] {
        &self.datagram
    }

    pub(crate) fn datagram_mut(&mut self) -> &mut [u8] {
        &mut self.datagram
    }
}

/// A body that ends within a message or its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bundle that ends within a message")
    }
}

impl std::error::Error for Malformed {}

/// The messages of a body. What is malformed is told once, and is the end.
pub fn messages(body: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    let mut rest = body;
    iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let split = split_message(rest);
        rest = split.map_or(&[], |(_, rest)| rest);
        Some(split.map(|(message, _)| message).ok_or(Malformed))
    })
}

fn split_message(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = body.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_message_fills_a_bundle() {
        let mut bundle = Bundle::new();
        assert!(!bundle.append(&[1; MESSAGE_LEN_MAX + 1]) && bundle.is_empty(), "too long");
        assert!(bundle.append(&[1; MESSAGE_LEN_MAX]));
        assert_eq!((bundle.body().len(), bundle.datagram().len()), (BODY_LEN_MAX, DATAGRAM_LEN_MAX));
        assert!(!bundle.append(b""), "not even a length fits");
        bundle.clear();
        assert!(bundle.is_empty() && bundle.append(b"again"));
        assert_eq!(messages(bundle.body()).collect::<Vec<_>>(), [Ok(&b"again"[..])]);
    }

    #[test]
    fn a_bundle_that_is_cut_ends_with_one_error() {
        let mut bundle = Bundle::new();
        assert!(bundle.append(b"one") && bundle.append(b"two"));
        let whole = [Ok(&b"one"[..]), Ok(b"two")];
        for len in 0..bundle.body().len() {
            let got: Vec<_> = messages(&bundle.body()[..len]).collect();
            let expected = match len {
                0 => vec![],
                1..5 => vec![Err(Malformed)],
                5 => whole[..1].to_vec(),
                _ => vec![whole[0], Err(Malformed)],
            };
            assert_eq!(got, expected, "cut to {len}");
        }
    }

    proptest! {
        #[test]
        fn messages_that_fit_come_back(
            sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..400),
            padding in 0..BODY_LEN_MAX,
        ) {
            let mut bundle = Bundle::new();
            let mut kept = Vec::new();
            let padding = vec![7; padding];
            for message in iter::once(&padding).chain(&sent) {
                let room = BODY_LEN_MAX - bundle.body().len();
                prop_assert_eq!(bundle.append(message), message.len() + 2 <= room);
                kept.extend((message.len() + 2 <= room).then_some(&message[..]));
            }
            let got: Result<Vec<_>, _> = messages(bundle.body()).collect();
            prop_assert_eq!(got, Ok(kept));
        }

        #[test]
        fn any_bytes_are_messages_and_at_most_one_error(body in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..200)) {
            let got: Vec<_> = messages(&body).collect();
            let good: Vec<&[u8]> = got.iter().map_while(|message| message.ok()).collect();
            prop_assert!(got.len() - good.len() <= 1, "the error is the last");
            let read: usize = good.iter().map(|message| message.len() + 2).sum();
            prop_assert_eq!(read == body.len(), got.len() == good.len());
            let mut again = Bundle::new();
            prop_assert!(good.iter().all(|message| again.append(message)));
            prop_assert_eq!(again.body(), &body[..read]);
        }
    }
}
