//! Frames beside those of a kernel and of another implementation, and what is refused.

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;
use crate::{
    HeaderHash, KeyHash,
    captured::{self, BACKEND, FROM, FROM_PORT, HASH, PORT},
};

const SOURCE: Source = Source { node: FROM, port: FROM_PORT };

fn plan() -> MacPlan {
    captured::MAC_PLAN.parse().unwrap()
}

fn get() -> Destination {
    plan().get(BACKEND, HASH).unwrap()
}

fn member() -> Destination {
    plan().member(BACKEND).unwrap()
}

fn header(backend: NodeId, hash: KeyHash) -> Header {
    Header::Get { backend, hash: HeaderHash::high(hash) }
}

fn written(from: Source, to: Destination, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    FrameWriter::new(&plan(), from, PORT, u16::MAX).unwrap().write(to, payload, &mut frame).unwrap();
    frame
}

fn read(frame: &[u8]) -> Result<Frame<'_>, FrameError> {
    FrameReader::new(plan(), PORT).read(frame)
}

/// With the checksum of its IPv4 header made right again.
fn with_ip_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let checksum = !fold(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// With that of UDP made right again, too, for a frame without padding.
fn with_checksums(frame: Vec<u8>) -> Vec<u8> {
    let mut frame = with_ip_checksum(frame);
    frame[40..42].fill(0);
    let checksum = !fold(udp_sum(&frame[26..34], &frame[34..42], &frame[42..]));
    frame[40..42].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// A get with these bytes in the place of those that there are.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = written(SOURCE, get(), b"get guira");
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn a_kernels_frames_are_read_and_written() {
    let cases: [(&str, Destination, Header, &[u8]); 2] = [
        (captured::MAC_GET, get(), header(BACKEND, HASH), b"get guira"),
        (captured::MAC_MEMBER, member(), Header::Member(BACKEND), b"set guira"),
    ];
    for (captured, to, header, payload) in cases {
        let captured = captured::bytes(captured);
        assert_eq!(read(&captured), Ok(Frame { header, from: SOURCE, payload }));
        // The kernel numbers its packets, and we do not.
        let mut frame = written(SOURCE, to, payload);
        frame[18..20].copy_from_slice(&captured[18..20]);
        assert_eq!(with_ip_checksum(frame), captured);
    }
}

#[test]
fn a_payload_is_read_where_it_is() {
    let frame = written(SOURCE, get(), b"get guira");
    assert!(std::ptr::eq(read(&frame).unwrap().payload, &raw const frame[HEADERS_LEN..]), "not copied");
}

#[test]
fn frames_are_written_one_behind_the_other() {
    let writer = FrameWriter::new(&plan(), SOURCE, PORT, MTU).unwrap();
    let mut both = Vec::new();
    writer.write(get(), b"one", &mut both).unwrap();
    writer.write(member(), b"two", &mut both).unwrap();
    assert_eq!(both, [written(SOURCE, get(), b"one"), written(SOURCE, member(), b"two")].concat());
}

#[test]
fn a_payload_is_as_long_as_the_mtu_allows() {
    for (mtu, max) in [(MTU, 1_472), (28, 0), (29, 1), (u16::MAX, 65_507)] {
        let writer = FrameWriter::new(&plan(), SOURCE, PORT, mtu).unwrap();
        assert_eq!(writer.payload_len_max(), max);
        let mut frame = Vec::new();
        for len in [max + 1, max + 100, 65_508, 65_528, 1 << 17] {
            assert_eq!(writer.write(get(), &vec![0; len], &mut frame), Err(PayloadTooLong { len, max }));
        }
        assert!(frame.is_empty());
        // The greatest sums that there are.
        let longest = vec![0xff; max];
        writer.write(get(), &longest, &mut frame).unwrap();
        assert_eq!(frame.len(), ETHERNET_LEN + usize::from(mtu));
        assert_eq!(read(&frame).map(|frame| frame.payload), Ok(&longest[..]));
    }
    let writer = FrameWriter::new(&plan(), SOURCE, PORT, 27).unwrap();
    assert_eq!(writer.write(get(), b"", &mut Vec::new()), Err(PayloadTooLong { len: 0, max: 0 }));
}

#[test]
fn an_interface_of_another_node_is_who_a_frame_is_from() {
    let mut frame = Vec::new();
    let interface = MacAddress::of_member(NodeId(7));
    let writer = FrameWriter::new(&plan(), SOURCE, PORT, MTU).unwrap().leaving_by(interface);
    writer.write(get(), b"payload", &mut frame).unwrap();
    assert_eq!(frame[6..12], interface.0);
    assert_eq!(read(&frame).map(|frame| (frame.from, frame.payload)), Ok((SOURCE, &b"payload"[..])));
}

#[test]
fn numbers_that_make_no_address_send_nothing() {
    for node in [NodeId(0), NodeId(0xffff)] {
        assert!(FrameWriter::new(&plan(), Source { node, port: FROM_PORT }, PORT, MTU).is_none());
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let good = written(SOURCE, get(), b"get guira");
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut frame = good.clone();
            frame[at] ^= 1 << bit;
            let expected = match at {
                0 => Err(FrameError::OtherMac),
                // Another key's get, as far as the frame goes: it is the key in the payload that tells.
                1..6 => {
                    let hash = KeyHash(HASH.0 ^ 1 << (64 - 8 * at + bit));
                    Ok(Frame { header: header(BACKEND, hash), from: SOURCE, payload: b"get guira" })
                }
                // The MAC address that it is from says nothing: it is by its IPv4 address that a node is known.
                6..12 => read(&good),
                12..14 => Err(FrameError::NotIpv4),
                14..34 => Err(FrameError::IpHeader),
                36..38 => Err(FrameError::OtherPort),
                38..40 => Err(FrameError::UdpLength),
                _ => Err(FrameError::UdpChecksum),
            };
            assert_eq!(read(&frame), expected, "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_frame_of_another_length_is_noticed_and_padding_is_not() {
    let mut frame = written(SOURCE, get(), b"get guira");
    let good = frame.clone();
    for len in 0..frame.len() {
        let expected = if len < ETHERNET_LEN + IP_LEN { FrameError::TooShort } else { FrameError::IpHeader };
        assert_eq!(read(&frame[..len]), Err(expected), "cut to {len}");
    }
    for filling in [0, 0xff] {
        frame.resize(60, filling);
        assert_eq!(read(&frame), read(&good));
    }
}

#[test]
fn what_a_router_may_change_changes_nothing() {
    // Class of traffic, identification, whether it may be cut, time to live: with the checksum, which covers them.
    let changes: [(usize, &[u8]); 4] = [(15, &[0xb8]), (18, &[0x12, 0x34]), (20, &[0, 0]), (22, &[1])];
    for (at, bytes) in changes {
        let frame = with_ip_checksum(with(at, bytes));
        assert_eq!(read(&frame), read(&with(at, &[])), "at {at}");
    }
}

#[test]
fn each_reason_is_told() {
    let tagged = [&with(0, &[])[..12], &[0x81, 0, 0, 7], &with(0, &[])[12..]].concat();
    let fixed = |at, bytes: &[u8]| with_checksums(with(at, bytes));
    let member = MacAddress::of_member(BACKEND).0;
    let cases: [(Vec<u8>, FrameError); 28] = [
        (Vec::new(), FrameError::TooShort),
        (with(0, &[])[..33].to_vec(), FrameError::TooShort),
        (with(12, &[0x86, 0xdd]), FrameError::NotIpv4),
        (with(12, &[0x08, 0x06])[..ETHERNET_LEN].to_vec(), FrameError::NotIpv4),
        (tagged, FrameError::NotIpv4),
        (with(0, &[0xff; 6]), FrameError::OtherMac),
        (with(0, &[0x02, 0, 0, 0, 0, 7]), FrameError::OtherMac),
        (with(0, &[0x06, 0, 0, 1, 0x12, 0x34]), FrameError::OtherMac),
        (fixed(14, &[0x65]), FrameError::IpHeader),
        (fixed(14, &[0x44]), FrameError::IpHeader),
        (fixed(14, &[0x46]), FrameError::IpHeader),
        (fixed(16, &[0, 19]), FrameError::IpHeader),
        (fixed(16, &[0, 38]), FrameError::IpHeader),
        (fixed(20, &[0xc0]), FrameError::IpHeader),
        (fixed(20, &[0x20]), FrameError::Fragment),
        (fixed(20, &[0x40, 1]), FrameError::Fragment),
        (fixed(23, &[6]), FrameError::NotUdp),
        (fixed(26, &[10, 78]), FrameError::OtherNetwork),
        (fixed(30, &[10, 78]), FrameError::OtherNetwork),
        (fixed(28, &[0, 0]), FrameError::OtherNetwork),
        (fixed(32, &[0xff, 0xff]), FrameError::OtherNetwork),
        (with(0, &[member[0], 0, 0, 0, 0, 7]), FrameError::OtherMember),
        (with_ip_checksum(with(16, &[0, 27])), FrameError::UdpLength),
        (with_ip_checksum(with(16, &[0, 20])), FrameError::UdpLength),
        (fixed(38, &[0, 16]), FrameError::UdpLength),
        (fixed(36, &(PORT + 1).to_be_bytes()), FrameError::OtherPort),
        (with(40, &[0, 0]), FrameError::UdpChecksum),
        (with(42, b"s"), FrameError::UdpChecksum),
    ];
    for (at, (frame, error)) in cases.iter().enumerate() {
        assert_eq!(read(frame), Err(*error), "case {at}");
    }
    assert!(FrameError::ALL.iter().all(|error| cases.iter().any(|(_, told)| told == error)));
    assert!(FrameError::ALL.iter().enumerate().all(|(at, error)| *error as usize == at));
}

#[test]
fn a_checksum_that_is_zero_is_written_as_its_other_zero() {
    // The two bytes that make the sum all ones, found by what the sum is without them.
    let frame = written(SOURCE, get(), &[0, 0]);
    let payload = [frame[40], frame[41]];
    let mut frame = written(SOURCE, get(), &payload);
    assert_eq!(frame[40..42], [0xff, 0xff]);
    assert_eq!(read(&frame).map(|frame| frame.payload), Ok(&payload[..]));
    frame[40..42].fill(0);
    assert_eq!(read(&frame), Err(FrameError::UdpChecksum), "which makes the same sum");
}

#[test]
fn sums_carry_into_their_lower_end() {
    // RFC 1071, section 3, and a carry that makes another one.
    assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    assert_eq!(fold(sum(&[0x00, 0x01, 0xf2])), 0xf201);
    assert_eq!([0xffff, 0x1_0000, 0x1_ffff, 0xffff_ffff].map(fold), [0xffff, 1, 1, 0xffff]);
}

/// What is read of any bytes can be written again, but for what is not looked at.
fn check_any(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(Frame { header, from, payload }) = read(bytes) else { return Ok(()) };
    let to = match header {
        Header::Get { backend, hash: HeaderHash::High([h0, h1, h2, h3, h4]) } => {
            plan().get(backend, KeyHash(u64::from_be_bytes([h0, h1, h2, h3, h4, 0, 0, 0])))
        }
        Header::Get { .. } => panic!("a MAC address has no room for {header:?}"),
        Header::Member(node) => plan().member(node),
    };
    let mut again = written(from, to.unwrap(), payload);
    for (at, byte) in again.iter_mut().enumerate() {
        if matches!(at, 6..=11 | 15 | 18..=22 | 24..=25) {
            *byte = bytes[at];
        }
    }
    prop_assert_eq!(&again, &bytes[..again.len()]);
    Ok(())
}

proptest! {
    #[test]
    fn another_implementation_writes_the_same(
        from in 1..u16::MAX, from_port: u16, to in 1..u16::MAX, hash: u64, is_get: bool,
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let from = Source { node: NodeId(from), port: from_port };
        let (to, hash) = (NodeId(to), KeyHash(hash));
        let destination = if is_get { plan().get(to, hash) } else { plan().member(to) }.unwrap();
        let frame = written(from, destination, &payload);
        let me = plan().member(from.node).unwrap();
        let builder = PacketBuilder::ethernet2(me.mac().0, destination.mac().0)
            .ipv4(me.ip().octets(), destination.ip().octets(), TTL)
            .udp(from_port, PORT);
        let mut theirs = Vec::new();
        builder.write(&mut theirs, &payload).unwrap();
        prop_assert_eq!(&frame, &theirs);
        let header = if is_get { header(to, hash) } else { Header::Member(to) };
        prop_assert_eq!(read(&frame), Ok(Frame { header, from, payload: &payload }));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        changes in prop::collection::vec((0usize..51, any::<u8>()), 0..4),
        padding in 0usize..20,
    ) {
        check_any(&bytes)?;
        let mut frame = written(SOURCE, get(), b"get guira");
        for (at, byte) in changes {
            frame[at] = byte;
        }
        let mut frame = with_checksums(frame);
        frame.resize(frame.len() + padding, 0xee);
        check_any(&frame)?;
    }
}
