//! A datagram of any bytes, and an answer of any pieces cut into datagrams: what is put together from them is the answer.
#![no_main]

use guira_item::PinnedValue;
use guira_memcache::{Output, udp};

/// A value that comes in runs, as a large item's does.
struct Runs {
    bytes: Vec<u8>,
    run_len: usize,
}

impl PinnedValue for Runs {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn piece(&self, offset: usize) -> &[u8] {
        let end = (offset + self.run_len).min(self.bytes.len());
        &self.bytes[offset..end]
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let request = udp::request(data);
    let wanted = data.len() > 8 && data[4..6] == [0, 1];
    assert_eq!(request.map(|(_, payload)| payload), wanted.then(|| &data[8..]));

    // The header's bytes, which an answer does not copy, say how it is put together.
    let Some((id, payload)) = request else { return };
    let (piece_len, copies, run_len) =
        (1 + usize::from(data[2]), 1 + usize::from(data[3] % 32), 1 + usize::from(data[6]));
    let mut output = Output::new();
    let mut wanted = Vec::new();
    for (number, piece) in payload.chunks(piece_len).cycle().take(copies).enumerate() {
        wanted.extend_from_slice(piece);
        match (usize::from(data[7]) + number) % 3 {
            0 => output.push_pinned(Box::new(Runs { bytes: piece.to_vec(), run_len })),
            _ => output.push(piece),
        }
    }
    let (mut got, mut sequence) = (Vec::new(), 0u16);
    let mut answer = udp::Answer::new(id, &mut output).expect("a short answer");
    while let Some(datagram) = answer.next_datagram() {
        let (header, part) = datagram.split_at(8);
        assert!(!part.is_empty() && datagram.len() <= 1400);
        let total = u16::from_be_bytes([header[4], header[5]]);
        assert_eq!((&header[..2], &header[2..4], &header[6..]), (&data[..2], &sequence.to_be_bytes()[..], &[0, 0][..]));
        sequence += 1;
        assert!(sequence == total || sequence < total && datagram.len() == 1400);
        got.extend_from_slice(part);
        if total == 1 {
            assert_eq!(udp::request(datagram), Some((id, part)), "an answer in one datagram is framed as a request is");
        }
    }
    assert_eq!(got, wanted);
    assert!(output.is_empty());
});
