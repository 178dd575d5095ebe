//! Headers in IPv6 addresses: a request is a datagram to an address that says all, and the network routes it by that.
//!
//! ```text
//! 0            32        48       64                         128
//! [ prefix    ][ kind   ][ node  ][ value                    ]
//!   cluster's    1        backend   the key's hash                a get that may be routed by its hash
//!                0        member    1                             whatever the member is to have itself
//! ```
//! Always true: an address of the plan is of one header, and a header of one address. A member's is its own, so `PREFIX:0:NODE::1` is what
//! its interface has; gets need a route to whom they lead to, and nothing else.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use crate::{Header, HeaderHash, KeyHash, NodeId, Prefix, PrefixError};

const MEMBER: u16 = 0;
const GET: u16 = 1;
/// Zero would be the address of all routers of a member's /64 (RFC 4291, section 2.6.1).
const MEMBER_VALUE: u64 = 1;

/// A cluster's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Plan {
    prefix: u32,
}

impl Ipv6Plan {
    /// The length of a cluster's prefix, in bits.
    pub const PREFIX_LEN: u8 = 32;

    /// That of the cluster with this prefix, a /32 of fd00::/8: the addresses that anybody may use at home (RFC 4193), at random so that
    /// two that meet differ. It gives away /48s; a cluster takes 65,536 of them, and 24 bits are left to choose.
    ///
    /// # Errors
    /// The prefix is of another length or not of fd00::/8, or the address goes on behind it.
    pub fn new(prefix: Prefix<Ipv6Addr>) -> Result<Self, PrefixError> {
        let Prefix { address, len } = prefix;
        if len != Self::PREFIX_LEN {
            return Err(PrefixError::Len { len, expected: Self::PREFIX_LEN });
        }
        if address.octets()[0] != 0xfd {
            return Err(PrefixError::NotPrivate);
        }
        let plan = Self { prefix: (address.to_bits() >> 96) as u32 };
        if plan.prefix() == prefix { Ok(plan) } else { Err(PrefixError::BitsBehind) }
    }

    /// Where a get goes to that may be routed by its key's hash.
    pub fn get(&self, backend: NodeId, hash: KeyHash) -> Ipv6Addr {
        self.address(GET, backend, hash.0)
    }

    /// A member's own address.
    pub fn member(&self, node: NodeId) -> Ipv6Addr {
        self.address(MEMBER, node, MEMBER_VALUE)
    }

    /// What an address says; `None`: it is not of this plan.
    pub fn header(&self, address: Ipv6Addr) -> Option<Header> {
        let bits = address.to_bits();
        if (bits >> 96) as u32 != self.prefix {
            return None;
        }
        let (node, value) = (NodeId((bits >> 64) as u16), bits as u64);
        match ((bits >> 80) as u16, value) {
            (GET, hash) => Some(Header::Get { backend: node, hash: HeaderHash::Whole(KeyHash(hash)) }),
            (MEMBER, MEMBER_VALUE) => Some(Header::Member(node)),
            _ => None,
        }
    }

    /// All addresses of the cluster.
    pub fn prefix(&self) -> Prefix<Ipv6Addr> {
        Prefix { address: self.address(0, NodeId(0), 0), len: Self::PREFIX_LEN }
    }

    /// Those of all gets.
    pub fn gets_prefix(&self) -> Prefix<Ipv6Addr> {
        Prefix { address: self.address(GET, NodeId(0), 0), len: 48 }
    }

    /// Those of all gets of a backend's keys.
    pub fn gets_of_prefix(&self, backend: NodeId) -> Prefix<Ipv6Addr> {
        Prefix { address: self.address(GET, backend, 0), len: 64 }
    }

    /// A member's own and no other.
    pub fn member_prefix(&self, node: NodeId) -> Prefix<Ipv6Addr> {
        Prefix { address: self.member(node), len: 128 }
    }

    fn address(&self, kind: u16, node: NodeId, value: u64) -> Ipv6Addr {
        let [prefix, kind, node, value] = [self.prefix.into(), kind.into(), node.0.into(), u128::from(value)];
        Ipv6Addr::from_bits(prefix << 96 | kind << 80 | node << 64 | value)
    }
}

impl FromStr for Ipv6Plan {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        Self::new(text.parse()?)
    }
}

impl fmt::Display for Ipv6Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::captured::{self, BACKEND, HASH};

    fn plan() -> Ipv6Plan {
        captured::IPV6_PLAN.parse().unwrap()
    }

    fn get(backend: NodeId, hash: KeyHash) -> Option<Header> {
        Some(Header::Get { backend, hash: HeaderHash::Whole(hash) })
    }

    /// The destination in an Ethernet frame with an IPv6 packet: bytes 24 to 40 of that.
    fn destination(frame: &[u8]) -> Ipv6Addr {
        Ipv6Addr::from(*frame[14 + 24..].first_chunk::<16>().unwrap())
    }

    #[test]
    fn a_captured_packet_says_whose_get_it_is() {
        let to = destination(&captured::bytes(captured::IPV6_GET));
        assert_eq!((plan().header(to), plan().get(BACKEND, HASH)), (get(BACKEND, HASH), to));
        let to = destination(&captured::bytes(captured::IPV6_MEMBER));
        assert_eq!((plan().header(to), plan().member(BACKEND)), (Some(Header::Member(BACKEND)), to));
    }

    #[test]
    fn the_layout_is_the_one_that_is_drawn() {
        let plan = plan();
        assert_eq!(plan.get(BACKEND, HASH).to_string(), "fd5e:a1c0:1:1234:be5f:d128:17cc:7275");
        assert_eq!(plan.member(NodeId(7)).to_string(), "fd5e:a1c0:0:7::1");
        assert_eq!((plan.to_string(), plan.prefix()), ("fd5e:a1c0::/32".into(), "fd5e:a1c0::/32".parse().unwrap()));
        assert_eq!(plan.gets_prefix().to_string(), "fd5e:a1c0:1::/48");
        assert_eq!(plan.gets_of_prefix(BACKEND).to_string(), "fd5e:a1c0:1:1234::/64");
        assert_eq!(plan.member_prefix(NodeId(7)).to_string(), "fd5e:a1c0:0:7::1/128");
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (plan, address) = (plan(), plan().get(BACKEND, HASH).to_bits());
        let (own, host_bits) = (plan.member(BACKEND).to_bits(), 64);
        for bit in 0..128 {
            let (hash, node) =
                (KeyHash(HASH.0 ^ (1u128 << bit) as u64), NodeId(BACKEND.0 ^ (1u128 << bit >> 64) as u16));
            let expected = if bit < 80 { get(node, hash) } else { None };
            assert_eq!(plan.header(Ipv6Addr::from_bits(address ^ 1 << bit)), expected, "bit {bit} of a get");
            let expected = match bit {
                // The kind: what was a member's value is a hash.
                80 => get(BACKEND, KeyHash(MEMBER_VALUE)),
                _ if (host_bits..80).contains(&bit) => Some(Header::Member(node)),
                _ => None,
            };
            assert_eq!(plan.header(Ipv6Addr::from_bits(own ^ 1 << bit)), expected, "bit {bit} of a member's");
        }
    }

    #[test]
    fn prefixes_that_are_not_a_clusters_are_refused() {
        let plan = |text: &str| text.parse::<Ipv6Plan>();
        assert_eq!(plan("fd5e:a1c0::"), Err(PrefixError::Syntax));
        assert_eq!(plan("10.77.0.0/16"), Err(PrefixError::Syntax));
        for len in [0, 31, 33, 48, 128, 255] {
            let refused = plan(&format!("fd5e:a1c0::/{len}"));
            assert_eq!(refused, Err(PrefixError::Len { len, expected: 32 }));
        }
        for text in ["fc5e:a1c0::/32", "fe80::/32", "2001:db8::/32", "::/32"] {
            assert_eq!(plan(text), Err(PrefixError::NotPrivate), "{text}");
        }
        for text in ["fd5e:a1c0:1::/32", "fd5e:a1c0::1/32"] {
            assert_eq!(plan(text), Err(PrefixError::BitsBehind), "{text}");
        }
        assert!(plan("fd00::/32").is_ok() && plan("fdff:ffff::/32").is_ok());
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_are_written(prefix in 0xfd00_0000..=0xfdff_ffffu32, node: u16, hash: u64) {
            let plan = Ipv6Plan { prefix };
            let (node, hash) = (NodeId(node), KeyHash(hash));
            prop_assert_eq!(plan.to_string().parse(), Ok(plan));
            prop_assert_eq!(plan.header(plan.get(node, hash)), get(node, hash));
            prop_assert_eq!(plan.header(plan.member(node)), Some(Header::Member(node)));
        }

        #[test]
        fn an_address_that_is_read_is_the_one_that_is_written(ours: bool, kind in 0..3u128, bits: u128, short: bool) {
            let value = if short { bits & !(u128::from(u64::MAX)) | bits & 3 } else { bits };
            let known = value & !(u128::MAX << 80) | kind << 80 | plan().prefix().address.to_bits();
            let address = Ipv6Addr::from_bits(if ours { known } else { bits });
            match plan().header(address) {
                Some(Header::Get { backend, hash: HeaderHash::Whole(hash) }) => {
                    prop_assert_eq!(plan().get(backend, hash), address);
                }
                Some(Header::Member(node)) => prop_assert_eq!(plan().member(node), address),
                header => prop_assert_eq!(header, None),
            }
        }
    }
}
