//! A frame and an address of any bytes, and a frame of any bytes whose checksums are right: a header that is read is written as it was.
#![no_main]

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use guira_routing::{Frame, FrameReader, FrameWriter, Header, HeaderHash, Ipv6Plan, KeyHash, MacPlan};

const PORT: u16 = 11_411;
static IPV6: LazyLock<Ipv6Plan> = LazyLock::new(|| "fd5e:a1c0::/32".parse().expect("a plan"));
static MAC: LazyLock<MacPlan> = LazyLock::new(|| "10.77.0.0/16".parse().expect("a plan"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(address) = data.first_chunk::<16>() {
        check_address(*address);
        let mut ours = *address;
        ours[..5].copy_from_slice(&[0xfd, 0x5e, 0xa1, 0xc0, 0]);
        check_address(ours);
    }
    check_frame(data);
    if let Some(frame) = repaired(data) {
        check_frame(&frame);
    }
});

fn check_address(octets: [u8; 16]) {
    let address = Ipv6Addr::from(octets);
    let again = match IPV6.header(address) {
        None => return,
        Some(Header::Get { backend, hash: HeaderHash::Whole(hash) }) => IPV6.get(backend, hash),
        Some(Header::Get { hash, .. }) => panic!("{hash:?} of an address"),
        Some(Header::Member(node)) => IPV6.member(node),
    };
    assert_eq!(again, address);
}

/// What is not looked at is taken from the frame that was read: the MAC that it is from, class of traffic, identification, whether it may
/// be cut, time to live, and the checksum over these.
fn check_frame(frame: &[u8]) {
    let Ok(Frame { header, from, payload }) = FrameReader::new(*MAC, PORT).read(frame) else { return };
    let to = match header {
        Header::Get { backend, hash: HeaderHash::High([h0, h1, h2, h3, h4]) } => {
            MAC.get(backend, KeyHash(u64::from_be_bytes([h0, h1, h2, h3, h4, 0, 0, 0])))
        }
        Header::Get { hash, .. } => panic!("{hash:?} of a MAC address"),
        Header::Member(node) => MAC.member(node),
    };
    let writer = FrameWriter::new(&MAC, from, PORT, u16::MAX).expect("a node that has an address");
    let mut again = Vec::new();
    writer.write(to.expect("a node that has an address"), payload, &mut again).expect("no longer than it was");
    for (at, byte) in again.iter_mut().enumerate() {
        if matches!(at, 6..=11 | 15 | 18..=22 | 24..=25) {
            *byte = frame[at];
        }
    }
    assert_eq!(again, frame[..again.len()]);
}

/// The bytes as a frame of IPv4 with the checksums that they should have, so that more of them are read.
fn repaired(data: &[u8]) -> Option<Vec<u8>> {
    let mut frame = data.to_vec();
    frame.get_mut(12..15)?.copy_from_slice(&[0x08, 0x00, 0x45]);
    frame.get_mut(24..26)?.fill(0);
    let checksum = checksum(frame.get(14..34)?);
    frame[24..26].copy_from_slice(&checksum);

    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    frame.get_mut(40..42)?.fill(0);
    let datagram = frame.get(34..end)?;
    let udp_len = (datagram.len() as u16).to_be_bytes();
    let covered = [&frame[26..34], &[0, 17], &udp_len, datagram].concat();
    let checksum = self::checksum(&covered);
    frame[40..42].copy_from_slice(if checksum == [0, 0] { &[0xff, 0xff] } else { &checksum });
    Some(frame)
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |byte| u64::from(*byte)));
    let sum = words.sum::<u64>();
    // A sum that is not zero, and that 65,535 divides, has the ones' complement 65,535.
    let sum = if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 };
    (!(sum as u16)).to_be_bytes()
}
