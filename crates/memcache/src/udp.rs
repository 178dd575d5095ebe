//! memcached's UDP frames: a request in one datagram, the answer in as many as it takes.
//!
//! ```text
//! | request id | sequence | datagrams in all | reserved | payload ... |      16 bits each, network order
//! ```
//! Always true: the datagrams of an answer carry their request's id, are numbered from 0, and all but the last are full.

use std::io::IoSlice;

use crate::Output;

const HEADER_LEN: usize = 8;

/// The longest datagram sent, in bytes: memcached's, which fits an Ethernet frame.
const DATAGRAM_LEN_MAX: usize = 1400;

const PAYLOAD_LEN_MAX: usize = DATAGRAM_LEN_MAX - HEADER_LEN;

/// Pieces copied out of the output at once.
const PIECES_MAX: usize = 64;

/// What a client knows the answer by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestId([u8; 2]);

/// The id and the payload of a request. `None` for what memcached drops without an answer: a datagram that holds no payload,
/// or one of several. The sequence number is not looked at, as it does not there.
pub fn request(datagram: &[u8]) -> Option<(RequestId, &[u8])> {
    match datagram {
        [id_high, id_low, _, _, 0, 1, _, _, payload @ ..] if !payload.is_empty() => {
            Some((RequestId([*id_high, *id_low]), payload))
        }
        _ => None,
    }
}

/// An answer on its way out.
pub struct Answer<'a> {
    output: &'a mut Output,
    /// Of the next datagram.
    sequence: u16,
    total: u16,
    datagram: [u8; DATAGRAM_LEN_MAX],
}

impl<'a> Answer<'a> {
    /// What `output` holds, as the answer to request `id`; `None` if it takes more datagrams than can be numbered.
    pub fn new(id: RequestId, output: &'a mut Output) -> Option<Self> {
        let total = u16::try_from(output.len().div_ceil(PAYLOAD_LEN_MAX)).ok()?;
        let mut datagram = [0; DATAGRAM_LEN_MAX];
        datagram[..2].copy_from_slice(&id.0);
        datagram[4..6].copy_from_slice(&total.to_be_bytes());
        Some(Self { output, sequence: 0, total, datagram })
    }

    /// The next datagram, whose payload leaves the output; `None` after the last.
    pub fn next_datagram(&mut self) -> Option<&[u8]> {
        if self.sequence == self.total {
            return None;
        }
        self.datagram[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        self.sequence += 1;
        let mut len = HEADER_LEN;
        while len < DATAGRAM_LEN_MAX && !self.output.is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.output.io_slices(&mut pieces);
            let before_len = len;
            for piece in &pieces[..count] {
                let part_len = piece.len().min(DATAGRAM_LEN_MAX - len);
                self.datagram[len..len + part_len].copy_from_slice(&piece[..part_len]);
                len += part_len;
            }
            self.output.advance(len - before_len);
        }
        Some(&self.datagram[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_whole_datagram() {
        assert_eq!(request(b"\x12\x34\0\0\0\x01\0\0get a\r\n"), Some((RequestId([0x12, 0x34]), &b"get a\r\n"[..])));
        for dropped in
            [&b""[..], b"\0\0\0\0\0\x01\0", b"\0\0\0\0\0\x01\0\0", b"\0\0\0\0\0\x02\0\0a", b"\0\0\0\0\x01\x01\0\0a"]
        {
            assert_eq!(request(dropped), None, "{dropped:?}");
        }
    }

    #[test]
    fn an_answer_is_cut_into_full_datagrams() {
        let mut output = Output::new();
        output.push(&[b'x'; PAYLOAD_LEN_MAX + 1]);
        let mut answer = Answer::new(RequestId([7, 8]), &mut output).expect("few datagrams");
        let first = answer.next_datagram().expect("the first").to_vec();
        assert_eq!((first.len(), &first[..HEADER_LEN]), (DATAGRAM_LEN_MAX, &[7, 8, 0, 0, 0, 2, 0, 0][..]));
        assert_eq!(answer.next_datagram(), Some(&[7, 8, 0, 1, 0, 2, 0, 0, b'x'][..]));
        assert_eq!(answer.next_datagram(), None);
        assert!(output.is_empty());
    }

    #[test]
    fn an_answer_that_cannot_be_numbered_is_refused() {
        let mut output = Output::new();
        output.push(&vec![b'x'; PAYLOAD_LEN_MAX * usize::from(u16::MAX)]);
        assert!(Answer::new(RequestId([0, 0]), &mut output).is_some());
        output.push(b"x");
        assert!(Answer::new(RequestId([0, 0]), &mut output).is_none());
    }
}
