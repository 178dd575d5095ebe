//! Packets that a kernel (Linux 6.18) sent to addresses of ours and tcpdump captured, for the tests.
//!
//! ```text
//! hc-a [v0] ----- [v1] hc-b         two network namespaces and a veth pair
//! ```
//! In hc-a, with a checksum in every packet, and node 7's addresses:
//! ```text
//! ip link set v0 address 06:00:00:00:00:07; ethtool -K v0 tx off
//! ip -6 addr add fd5e:a1c0:0:7::1/128 dev v0
//! ip -6 neigh replace fd5e:a1c0:ffff::ff lladdr 02:00:00:00:00:ff dev v0 nud permanent
//! ip -6 route replace fd5e:a1c0:ffff::ff/128 dev v0
//! ip -6 route replace fd5e:a1c0::/32 via fd5e:a1c0:ffff::ff dev v0
//! ip addr add 10.77.0.7/16 dev v0
//! ip neigh replace 10.77.18.52 lladdr 0a:be:5f:d1:28:17 dev v0 nud permanent      for MAC_GET
//! ip neigh replace 10.77.18.52 lladdr 06:00:00:00:12:34 dev v0 nud permanent      for MAC_MEMBER
//! ```
//! Then, by a user without rights, `bind` to node 7's address and [`FROM_PORT`], and `sendto` the addresses below and [`PORT`]. In hc-b,
//! `tcpdump -i v1 -w FILE udp port 11411`; what is here is all of each packet.

use crate::{KeyHash, NodeId};

pub(crate) const IPV6_PLAN: &str = "fd5e:a1c0::/32";
pub(crate) const MAC_PLAN: &str = "10.77.0.0/16";
pub(crate) const PORT: u16 = 11_411;
pub(crate) const FROM: NodeId = NodeId(7);
pub(crate) const FROM_PORT: u16 = 40_007;
pub(crate) const BACKEND: NodeId = NodeId(0x1234);
pub(crate) const HASH: KeyHash = KeyHash(0xbe5f_d128_17cc_7275);

/// `get guira`, to fd5e:a1c0:1:1234:be5f:d128:17cc:7275.
pub(crate) const IPV6_GET: &str = "0200000000ff 060000000007 86dd 6009ae6b00111140 fd5ea1c0000000070000000000000001 \
    fd5ea1c000011234be5fd12817cc7275 9c472c930011bf3d 676574206775697261";
/// `set guira`, to fd5e:a1c0:0:1234::1.
pub(crate) const IPV6_MEMBER: &str = "0200000000ff 060000000007 86dd 600fc4a000111140 fd5ea1c0000000070000000000000001 \
    fd5ea1c0000012340000000000000001 9c472c930011cd07 736574206775697261";
/// `get guira`, to 10.77.18.52 at 0a:be:5f:d1:28:17.
pub(crate) const MAC_GET: &str = "0abe5fd12817 060000000007 0800 45000025376940004011dc8a 0a4d0007 0a4d1234 \
    9c472c93001102af 676574206775697261";
/// `set guira`, to 10.77.18.52 at 06:00:00:00:12:34.
pub(crate) const MAC_MEMBER: &str = "060000001234 060000000007 0800 45000025377040004011dc83 0a4d0007 0a4d1234 \
    9c472c930011f6ae 736574206775697261";

/// The bytes of one of them.
pub(crate) fn bytes(packet: &str) -> Vec<u8> {
    let digits: Vec<u32> = packet.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
