//! Ethernet frames with headers in them ([`MacPlan`]): UDP over IPv4, both without options.
//!
//! ```text
//! 0        6        12      14       34      42
//! [ to    ][ from  ][ 0800 ][ IPv4  ][ UDP  ][ payload ... ][ padding ]         big endian
//!   MAC      MAC      u16     20 B     8 B     up to the MTU   up to 60 bytes in all, not read
//! ```
//! Always true: what is read has passed both checksums, and its addresses are a plan's. What a router may change, or the sender chooses,
//! is not looked at: the MAC it is from, time to live, class of traffic, identification, whether it may be cut. Nothing checks the hash in
//! the MAC but Ethernet itself: who answers looks at the key.

use std::{fmt, net::Ipv4Addr};

use crate::{Destination, Header, MacAddress, MacPlan, NodeId};

/// The longest packet that Ethernet carries, in bytes, where nothing else was agreed on.
pub const MTU: u16 = 1_500;

const ETHERNET_LEN: usize = 14;
const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const HEADERS_LEN: usize = ETHERNET_LEN + IP_LEN + UDP_LEN;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Version 4, and five words of four bytes.
const VERSION_AND_LEN: u8 = 0x45;
const DO_NOT_FRAGMENT: u16 = 0x4000;
const RESERVED: u16 = 0x8000;
const TTL: u8 = 64;
const UDP: u8 = 17;

/// Who has sent a frame: a node, by its IPv4 address, and the port that it sent from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// The node.
    pub node: NodeId,
    /// Its UDP port.
    pub port: u16,
}

/// A payload that fits into no packet: the frame was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadTooLong {
    /// So long it is, in bytes.
    pub len: usize,
    /// So long it may be, in bytes.
    pub max: usize,
}

impl fmt::Display for PayloadTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a payload of {} bytes, and a packet has room for {}", self.len, self.max)
    }
}

impl std::error::Error for PayloadTooLong {}

/// Writes the frames that one node sends from one port.
#[derive(Clone, Debug)]
pub struct FrameWriter {
    /// All that frames have in common, and zeros.
    headers: [u8; HEADERS_LEN],
    mtu: u16,
}

impl FrameWriter {
    /// From `from` to the content port `port`, in packets of up to `mtu` bytes ([`MTU`]); `None`: the node's number makes no address.
    pub fn new(plan: &MacPlan, from: Source, port: u16, mtu: u16) -> Option<Self> {
        let me = plan.member(from.node)?;
        let mut headers = [0; HEADERS_LEN];
        headers[6..12].copy_from_slice(&me.mac().0);
        headers[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        headers[14] = VERSION_AND_LEN;
        // No identification: what is never cut need not be put together (RFC 6864).
        headers[20..22].copy_from_slice(&DO_NOT_FRAGMENT.to_be_bytes());
        headers[22..24].copy_from_slice(&[TTL, UDP]);
        headers[26..30].copy_from_slice(&me.ip().octets());
        headers[34..36].copy_from_slice(&from.port.to_be_bytes());
        headers[36..38].copy_from_slice(&port.to_be_bytes());
        Some(Self { headers, mtu })
    }

    /// From an interface that has another address than the node's, which is another node's on its host.
    #[must_use]
    pub fn leaving_by(mut self, interface: MacAddress) -> Self {
        self.headers[6..12].copy_from_slice(&interface.0);
        self
    }

    /// The longest payload, in bytes.
    pub fn payload_len_max(&self) -> usize {
        usize::from(self.mtu).saturating_sub(IP_LEN + UDP_LEN)
    }

    /// Appends to `into` a frame, which is not padded: who sends it does that.
    ///
    /// # Errors
    /// The payload fits into no packet; nothing was appended.
    pub fn write(&self, to: Destination, payload: &[u8], into: &mut Vec<u8>) -> Result<(), PayloadTooLong> {
        let too_long = PayloadTooLong { len: payload.len(), max: self.payload_len_max() };
        let udp_len = u16::try_from(UDP_LEN + payload.len()).map_err(|_| too_long)?;
        let packet_len = udp_len.checked_add(IP_LEN as u16).filter(|len| *len <= self.mtu).ok_or(too_long)?;

        let mut headers = self.headers;
        headers[..6].copy_from_slice(&to.mac().0);
        headers[16..18].copy_from_slice(&packet_len.to_be_bytes());
        headers[30..34].copy_from_slice(&to.ip().octets());
        let checksum = !fold(sum(&headers[14..34]));
        headers[24..26].copy_from_slice(&checksum.to_be_bytes());

        headers[38..40].copy_from_slice(&udp_len.to_be_bytes());
        let checksum = match !fold(udp_sum(&headers[26..34], &headers[34..], payload)) {
            // Zero says that there is none.
            0 => 0xffff,
            checksum => checksum,
        };
        headers[40..].copy_from_slice(&checksum.to_be_bytes());
        into.extend_from_slice(&headers);
        into.extend_from_slice(payload);
        Ok(())
    }
}

/// What was in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'f> {
    /// What it was routed by.
    pub header: Header,
    /// Who sent it: somebody who says so.
    pub from: Source,
    /// A request, where it is.
    pub payload: &'f [u8],
}

/// Why a frame is not read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameError {
    /// It ends within the headers of Ethernet or IPv4.
    TooShort,
    /// It is of another protocol than IPv4, or tagged (VLAN).
    NotIpv4,
    /// The MAC address that it is to is no get's and no member's.
    OtherMac,
    /// The header of IPv4 has options or is of another version, its checksum is wrong, or the packet is longer than the frame.
    IpHeader,
    /// It is a part of a packet.
    Fragment,
    /// It is of another protocol than UDP.
    NotUdp,
    /// One of its IPv4 addresses is no node's of this cluster.
    OtherNetwork,
    /// Its MAC address says one member and its IPv4 address another.
    OtherMember,
    /// UDP's length is not what IPv4's leaves for it.
    UdpLength,
    /// It is to another port.
    OtherPort,
    /// UDP's checksum is wrong or there is none. A kernel leaves it to the interface, which between virtual ones nobody is (`ethtool -K NAME
    /// tx off`).
    UdpChecksum,
}

impl FrameError {
    /// All of them, where `error as usize` says: for a counter of each.
    pub const ALL: [Self; 11] = [
        Self::TooShort,
        Self::NotIpv4,
        Self::OtherMac,
        Self::IpHeader,
        Self::Fragment,
        Self::NotUdp,
        Self::OtherNetwork,
        Self::OtherMember,
        Self::UdpLength,
        Self::OtherPort,
        Self::UdpChecksum,
    ];
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "shorter than its headers",
            Self::NotIpv4 => "not IPv4",
            Self::OtherMac => "to a MAC address that is none of ours",
            Self::IpHeader => "with an IPv4 header that is wrong or has options",
            Self::Fragment => "a fragment",
            Self::NotUdp => "not UDP",
            Self::OtherNetwork => "of another network",
            Self::OtherMember => "to the addresses of two members",
            Self::UdpLength => "with a wrong length of UDP",
            Self::OtherPort => "to another port",
            Self::UdpChecksum => "without UDP's right checksum",
        })
    }
}

impl std::error::Error for FrameError {}

/// Reads the frames that come to one port, whoever they are to.
#[derive(Clone, Copy, Debug)]
pub struct FrameReader {
    plan: MacPlan,
    port: u16,
}

impl FrameReader {
    /// Those to the content port `port`.
    pub fn new(plan: MacPlan, port: u16) -> Self {
        Self { plan, port }
    }

    /// What is in a frame. First is told what makes it other traffic, and last what is wrong with ours. Allocates nothing.
    ///
    /// # Errors
    /// It is not one of this cluster's, or not as it was sent.
    pub fn read<'f>(&self, frame: &'f [u8]) -> Result<Frame<'f>, FrameError> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_LEN>().ok_or(FrameError::TooShort)?;
        let [m0, m1, m2, m3, m4, m5, .., t0, t1] = *ethernet;
        if [t0, t1] != ETHERTYPE_IPV4 {
            return Err(FrameError::NotIpv4);
        }
        let mac = MacAddress([m0, m1, m2, m3, m4, m5]);
        mac.kind().ok_or(FrameError::OtherMac)?;

        let ip = packet.first_chunk::<IP_LEN>().ok_or(FrameError::TooShort)?;
        let [version_and_len, _, l0, l1, _, _, f0, f1, _, protocol, _, _, addresses @ ..] = *ip;
        let packet_len = usize::from(u16::from_be_bytes([l0, l1]));
        let fragment = u16::from_be_bytes([f0, f1]);
        // What is behind it is padding.
        let datagram = packet.get(IP_LEN..packet_len).ok_or(FrameError::IpHeader)?;
        if version_and_len != VERSION_AND_LEN || fragment & RESERVED != 0 || fold(sum(ip)) != 0xffff {
            return Err(FrameError::IpHeader);
        }
        if fragment & !DO_NOT_FRAGMENT != 0 {
            return Err(FrameError::Fragment);
        }
        if protocol != UDP {
            return Err(FrameError::NotUdp);
        }
        let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
        let (from, to) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
        let node = self.plan.node(from).ok_or(FrameError::OtherNetwork)?;
        self.plan.node(to).ok_or(FrameError::OtherNetwork)?;
        let header = self.plan.header(mac, to).ok_or(FrameError::OtherMember)?;

        let (udp, payload) = datagram.split_first_chunk::<UDP_LEN>().ok_or(FrameError::UdpLength)?;
        let [s0, s1, d0, d1, l0, l1, checksum @ ..] = *udp;
        if usize::from(u16::from_be_bytes([l0, l1])) != datagram.len() {
            return Err(FrameError::UdpLength);
        }
        if u16::from_be_bytes([d0, d1]) != self.port {
            return Err(FrameError::OtherPort);
        }
        if checksum == [0, 0] || fold(udp_sum(&addresses, udp, payload)) != 0xffff {
            return Err(FrameError::UdpChecksum);
        }
        Ok(Frame { header, from: Source { node, port: u16::from_be_bytes([s0, s1]) }, payload })
    }
}

/// That of a datagram, with what it takes of IPv4's header: addresses, protocol and length.
fn udp_sum(addresses: &[u8], udp: &[u8], payload: &[u8]) -> u32 {
    sum(addresses) + u32::from(UDP) + (udp.len() + payload.len()) as u32 + sum(udp) + sum(payload)
}

/// The sum of the words of two bytes, the last one filled up with zero (RFC 1071). Of a packet there are at most 32,768, so that it stays
/// below 2³².
fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    words + rest.first().map_or(0, |byte| u32::from(*byte) << 8)
}

/// Adds what is beyond 16 bits at their lower end, until nothing is.
fn fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + (once & 0xffff)) as u16
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
