//! Answers on their way out: one run of bytes with pinned values set into it.
//!
//! ```text
//! bytes  ........ |VALUE a 0 3 abc \r\n VALUE big 0 999999 \r\n| \r\n END \r\n ....(initialised, unused)
//!        front     ^sent_len                                   ^pins[0].at   ^filled_len
//! ```
//! Always true: `FRONT_LEN <= sent_len <= pins[i].at <= filled_len`, pins ascending; `bytes` is empty or at least
//! `filled_len` long and stays initialised, so that room for an answer costs no clearing.

use std::collections::VecDeque;
use std::io::IoSlice;

use guira_item::{Failure, PinnedValue, VALUE_SLACK_LEN};

/// Memory kept while nothing is waiting, in bytes: one large socket write.
const IDLE_CAPACITY_MAX: usize = 64 << 10;

/// The smallest step by which the buffer grows, in bytes.
const GROWTH_MIN: usize = 4 << 10;

/// Bytes before the first answer: an engine may overwrite so many before a value, and `VA 0\r\n` is shorter.
const FRONT_LEN: usize = VALUE_SLACK_LEN;

/// Bytes of a pinned value's own record, about.
const PIN_LEN: usize = 64;

struct Pin {
    /// Where in `bytes` the value stands.
    at: usize,
    /// Bytes of it that have been sent.
    sent_len: usize,
    value: Box<dyn PinnedValue>,
}

/// Bytes to send to one connection.
pub struct Output {
    bytes: Vec<u8>,
    filled_len: usize,
    sent_len: usize,
    pins: VecDeque<Pin>,
    pinned_len: usize,
    /// A key of the get that is being answered failed, for this reason: its values are left out from there on, and
    /// an error line ends it. Kept here because the answers to one get may come in several batches.
    pub(crate) failed_get: Option<Failure>,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// Nothing to send.
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            filled_len: FRONT_LEN,
            sent_len: FRONT_LEN,
            pins: VecDeque::new(),
            pinned_len: 0,
            failed_get: None,
        }
    }

    /// Bytes still to send, those of pinned values included.
    #[inline]
    pub fn len(&self) -> usize {
        self.filled_len - self.sent_len + self.pinned_len
    }

    /// Whether nothing is left to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `bytes` at the end.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.filled_len += bytes.len();
    }

    /// `len` bytes behind the end, which do not count until `extend` is called.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < self.filled_len + len {
            self.grow(len);
        }
        &mut self.bytes[self.filled_len..self.filled_len + len]
    }

    /// The same `room`, with the `VALUE_SLACK_LEN` bytes before it.
    #[inline]
    pub(crate) fn room_with_front(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.filled_len - FRONT_LEN..self.filled_len + len]
    }

    /// Writes the bytes that end `offset` bytes behind the end.
    #[inline]
    pub(crate) fn write_behind_end(&mut self, offset: usize, bytes: &[u8; VALUE_SLACK_LEN]) {
        let to = self.filled_len + offset;
        self.bytes[to - FRONT_LEN..to].copy_from_slice(bytes);
    }

    /// The first `len` bytes of the room count from now on.
    #[inline]
    pub(crate) fn extend(&mut self, len: usize) {
        self.filled_len += len;
        debug_assert!(self.filled_len <= self.bytes.len());
    }

    /// Adds a value at the end without copying it.
    pub fn push_pinned(&mut self, value: Box<dyn PinnedValue>) {
        if !value.is_empty() {
            self.pinned_len += value.len();
            self.pins.push_back(Pin { at: self.filled_len, sent_len: 0, value });
        }
    }

    /// What to write next: as many pieces, in order, as there are places in `into`. Returns how many were filled.
    pub fn io_slices<'o>(&'o self, into: &mut [IoSlice<'o>]) -> usize {
        let mut places = into.iter_mut();
        let mut filled = 0;
        let mut from = self.sent_len;
        for pin in &self.pins {
            if from < pin.at {
                let Some(place) = places.next() else { return filled };
                *place = IoSlice::new(&self.bytes[from..pin.at]);
                filled += 1;
                from = pin.at;
            }
            let mut offset = pin.sent_len;
            while offset < pin.value.len() {
                let Some(place) = places.next() else { return filled };
                let piece = pin.value.piece(offset);
                assert!(!piece.is_empty(), "a pinned value ended before its length");
                *place = IoSlice::new(piece);
                filled += 1;
                offset += piece.len();
            }
        }
        if from < self.filled_len
            && let Some(place) = places.next()
        {
            *place = IoSlice::new(&self.bytes[from..self.filled_len]);
            filled += 1;
        }
        filled
    }

    /// The first `n` bytes have been sent.
    ///
    /// # Panics
    /// If fewer than `n` bytes were waiting.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "sent more than there was");
        let mut rest = n;
        while let Some(pin) = self.pins.front_mut() {
            let before = (pin.at - self.sent_len).min(rest);
            self.sent_len += before;
            rest -= before;
            if self.sent_len < pin.at {
                return;
            }
            let of_value = (pin.value.len() - pin.sent_len).min(rest);
            pin.sent_len += of_value;
            self.pinned_len -= of_value;
            rest -= of_value;
            if pin.sent_len < pin.value.len() {
                return;
            }
            self.pins.pop_front();
        }
        self.sent_len += rest;
        if self.sent_len == self.filled_len {
            self.sent_len = FRONT_LEN;
            self.filled_len = FRONT_LEN;
        }
    }

    /// Gives back what a burst has left behind, if nothing is waiting.
    pub fn shrink_to_idle(&mut self) {
        self.shrink(IDLE_CAPACITY_MAX);
    }

    /// Gives the memory back if nothing is waiting and there is more of it than `capacity_max` bytes.
    #[inline]
    pub fn shrink(&mut self, capacity_max: usize) {
        if self.is_empty() && self.bytes.len() > capacity_max {
            self.bytes = Vec::new();
        }
    }

    /// Gives back the room that what waits does not need: the wait for a slow reader may be long.
    pub fn shrink_to_waiting(&mut self) {
        let needed = FRONT_LEN + self.filled_len - self.sent_len;
        if self.bytes.capacity() <= 2 * needed {
            return;
        }
        let sent = self.sent_len - FRONT_LEN;
        // Exactly as long, and with the bytes before the first answer.
        self.bytes = Box::<[u8]>::from(&self.bytes[sent..self.filled_len]).into_vec();
        self.sent_len = FRONT_LEN;
        self.filled_len -= sent;
        for pin in &mut self.pins {
            pin.at -= sent;
        }
    }

    /// Bytes of memory that it holds, used or not; of pinned values, whose bytes are the engine's, only what they are kept in.
    pub fn held_len(&self) -> usize {
        self.bytes.capacity() + self.pins.capacity() * size_of::<Pin>() + self.pins.len() * PIN_LEN
    }

    /// Forgets everything that was not sent, and gives back what a burst has left behind.
    pub fn clear(&mut self) {
        self.pins.clear();
        self.filled_len = FRONT_LEN;
        self.sent_len = FRONT_LEN;
        self.pinned_len = 0;
        self.failed_get = None;
        self.shrink_to_idle();
    }

    /// Makes room for `len` more bytes: by moving what waits to the front if at least half has been sent, so that a slow
    /// reader does not make the buffer grow without end, or else by doubling.
    #[cold]
    fn grow(&mut self, len: usize) {
        let sent = self.sent_len - FRONT_LEN;
        if sent > self.filled_len / 2 {
            self.bytes.copy_within(self.sent_len..self.filled_len, FRONT_LEN);
            self.sent_len -= sent;
            self.filled_len -= sent;
            for pin in &mut self.pins {
                pin.at -= sent;
            }
        }
        let needed = self.filled_len + len;
        if self.bytes.len() < needed {
            self.bytes.resize(needed.max(self.bytes.len() * 2).max(GROWTH_MIN), 0);
        }
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Output({} bytes, {} pinned values)", self.len(), self.pins.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value in pieces of three bytes.
    struct Pieces(Vec<u8>);

    impl PinnedValue for Pieces {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn piece(&self, offset: usize) -> &[u8] {
            &self.0[offset..self.0.len().min((offset / 3 + 1) * 3)]
        }
    }

    fn read(output: &mut Output, places: usize, len_max: usize) -> Vec<u8> {
        let mut slices = vec![IoSlice::new(&[]); places];
        let filled = output.io_slices(&mut slices);
        let mut bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
        bytes.truncate(len_max);
        output.advance(bytes.len());
        bytes
    }

    #[test]
    fn bytes_and_pinned_values_come_out_in_order() {
        for places in 1..6 {
            for len_max in [1, 2, 3, 7, 100] {
                let mut output = Output::new();
                output.push(b"first ");
                output.push_pinned(Box::new(Pieces(b"pinned value".to_vec())));
                output.push_pinned(Box::new(Pieces(Vec::new())));
                output.push_pinned(Box::new(Pieces(b" next".to_vec())));
                output.push(b" last");
                let expected = b"first pinned value next last";
                let mut seen = Vec::new();
                while !output.is_empty() {
                    assert_eq!(output.len(), expected.len() - seen.len());
                    seen.extend(read(&mut output, places, len_max));
                }
                assert_eq!(seen, expected);
            }
        }
    }

    #[test]
    fn what_waits_holds_no_room_that_it_does_not_need() {
        let mut output = Output::new();
        output.push(&[1; 100_000]);
        read(&mut output, 4, 99_000);
        output.push_pinned(Box::new(Pieces(vec![7; 10])));
        output.push(&[2; 10]);
        output.shrink_to_waiting();
        assert!(output.held_len() <= 1400, "{} bytes for 1010", output.held_len());
        output.push(&[3; 5]);
        let expected = [vec![1; 1000], vec![7; 10], vec![2; 10], vec![3; 5]].concat();
        let mut seen = Vec::new();
        while !output.is_empty() {
            seen.extend(read(&mut output, 4, 300));
        }
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_slow_reader_does_not_make_the_buffer_grow() {
        let mut output = Output::new();
        output.push(&[1; 1000]);
        for round in 0..10_000u32 {
            output.push(&[round as u8; 100]);
            if round % 10 == 0 {
                output.push_pinned(Box::new(Pieces(vec![7; 10])));
            }
            while output.len() > 1000 {
                read(&mut output, 4, 50);
            }
        }
        assert!(output.bytes.len() <= 4 * GROWTH_MIN, "{}", output.bytes.len());
    }
}
