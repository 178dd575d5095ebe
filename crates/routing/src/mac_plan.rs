//! Headers in MAC and IPv4 addresses, as in the paper: a switch matches the first exactly, and the second by its prefix if no rule is for the
//! first (SwitchKV, section 3.1.1).
//!
//! ```text
//! MAC   [ 0a ][ the key's hash: its 40 highest bits ]     a get that may be routed by it (the paper's pre1)
//!       [ 06 ][ 0    0    0 ][ node                 ]     whatever the member is to have itself (pre2)
//!         0     1    2    3    4                  6
//! IPv4  [ prefix            ][ node                 ]     the backend, or the member
//!         0                    2                  4
//! ```
//! Always true: both MACs are of one receiver and locally given, so that no maker's card has them. Nodes whose number would make the
//! network's address (0) or that of all in it (0xffff) have none.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use crate::{Header, HeaderHash, KeyHash, NodeId, Prefix, PrefixError};

const GET: u8 = 0x0a;
const MEMBER: u8 = 0x06;

/// The address of an interface, or one that takes its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MacAddress(pub [u8; 6]);

/// What a MAC address of a plan says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MacKind {
    /// A get of a key with this hash, of whatever backend.
    Get(HeaderHash),
    /// A member itself.
    Member(NodeId),
}

impl MacAddress {
    /// Where gets go to of keys with `hash`: what a rule for it matches.
    pub fn of_get(hash: KeyHash) -> Self {
        let [h0, h1, h2, h3, h4, ..] = hash.0.to_be_bytes();
        Self([GET, h0, h1, h2, h3, h4])
    }

    /// A member's own.
    pub fn of_member(node: NodeId) -> Self {
        let [n0, n1] = node.0.to_be_bytes();
        Self([MEMBER, 0, 0, 0, n0, n1])
    }

    /// What it says; `None`: it is of no plan.
    pub fn kind(&self) -> Option<MacKind> {
        match self.0 {
            [GET, high @ ..] => Some(MacKind::Get(HeaderHash::High(high))),
            [MEMBER, 0, 0, 0, n0, n1] => Some(MacKind::Member(NodeId(u16::from_be_bytes([n0, n1])))),
            _ => None,
        }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text that is no MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacAddressError;

impl fmt::Display for MacAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is written as six pairs of hexadecimal digits, such as 02:00:00:00:00:ff")
    }
}

impl std::error::Error for MacAddressError {}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<Self, MacAddressError> {
        let mut pairs = text.split(':');
        let mut address = [0; 6];
        for byte in &mut address {
            let pair = pairs.next().filter(|pair| pair.len() == 2 && !pair.starts_with('+')).ok_or(MacAddressError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| MacAddressError)?;
        }
        if pairs.next().is_none() { Ok(Self(address)) } else { Err(MacAddressError) }
    }
}

/// Where a frame goes to: made by a plan, so that both addresses are of it, and of one header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Destination {
    mac: MacAddress,
    ip: Ipv4Addr,
}

impl Destination {
    /// Its MAC address.
    pub fn mac(&self) -> MacAddress {
        self.mac
    }

    /// Its IPv4 address.
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }
}

/// A cluster's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MacPlan {
    prefix: [u8; 2],
}

impl MacPlan {
    /// The length of a cluster's prefix, in bits.
    pub const PREFIX_LEN: u8 = 16;

    /// That of the cluster with this prefix, a /16 of private addresses (RFC 1918).
    ///
    /// # Errors
    /// The prefix is of another length or not private, or the address goes on behind it.
    pub fn new(prefix: Prefix<Ipv4Addr>) -> Result<Self, PrefixError> {
        let Prefix { address, len } = prefix;
        if len != Self::PREFIX_LEN {
            return Err(PrefixError::Len { len, expected: Self::PREFIX_LEN });
        }
        if !address.is_private() {
            return Err(PrefixError::NotPrivate);
        }
        match address.octets() {
            [p0, p1, 0, 0] => Ok(Self { prefix: [p0, p1] }),
            _ => Err(PrefixError::BitsBehind),
        }
    }

    /// Where a get goes to that may be routed by its key's hash; `None`: the backend's number makes no address.
    pub fn get(&self, backend: NodeId, hash: KeyHash) -> Option<Destination> {
        Some(Destination { mac: MacAddress::of_get(hash), ip: self.ip(backend)? })
    }

    /// A member's own addresses; `None`: its number makes no address.
    pub fn member(&self, node: NodeId) -> Option<Destination> {
        Some(Destination { mac: MacAddress::of_member(node), ip: self.ip(node)? })
    }

    /// What two addresses say; `None`: they are not of this plan, or not of one header.
    pub fn header(&self, mac: MacAddress, ip: Ipv4Addr) -> Option<Header> {
        let node = self.node(ip)?;
        match mac.kind()? {
            MacKind::Get(hash) => Some(Header::Get { backend: node, hash }),
            MacKind::Member(member) => (member == node).then_some(Header::Member(node)),
        }
    }

    /// A node's IPv4 address; `None`: its number makes none.
    pub fn ip(&self, node: NodeId) -> Option<Ipv4Addr> {
        let ([p0, p1], [n0, n1]) = (self.prefix, node.0.to_be_bytes());
        has_address(node).then(|| Ipv4Addr::new(p0, p1, n0, n1))
    }

    /// Whose an IPv4 address is; `None`: no node's of this plan.
    pub fn node(&self, ip: Ipv4Addr) -> Option<NodeId> {
        let [p0, p1, n0, n1] = ip.octets();
        let node = NodeId(u16::from_be_bytes([n0, n1]));
        ([p0, p1] == self.prefix && has_address(node)).then_some(node)
    }

    /// All addresses of the cluster.
    pub fn prefix(&self) -> Prefix<Ipv4Addr> {
        let [p0, p1] = self.prefix;
        Prefix { address: Ipv4Addr::new(p0, p1, 0, 0), len: Self::PREFIX_LEN }
    }
}

fn has_address(node: NodeId) -> bool {
    !matches!(node.0, 0 | u16::MAX)
}

impl FromStr for MacPlan {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        Self::new(text.parse()?)
    }
}

impl fmt::Display for MacPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::captured::{self, BACKEND, HASH};

    fn plan() -> MacPlan {
        captured::MAC_PLAN.parse().unwrap()
    }

    #[test]
    fn the_layout_is_the_one_that_is_drawn() {
        let to = plan().get(BACKEND, HASH).unwrap();
        assert_eq!((to.mac().to_string(), to.ip().to_string()), ("0a:be:5f:d1:28:17".into(), "10.77.18.52".into()));
        let to = plan().member(BACKEND).unwrap();
        assert_eq!((to.mac().to_string(), to.ip().to_string()), ("06:00:00:00:12:34".into(), "10.77.18.52".into()));
        assert_eq!((plan().to_string(), plan().prefix()), ("10.77.0.0/16".into(), "10.77.0.0/16".parse().unwrap()));
    }

    #[test]
    fn numbers_that_make_no_address_are_refused() {
        for node in [NodeId(0), NodeId(0xffff)] {
            assert_eq!((plan().get(node, HASH), plan().member(node), plan().ip(node)), (None, None, None));
            let [n0, n1] = node.0.to_be_bytes();
            let ip = Ipv4Addr::new(10, 77, n0, n1);
            assert_eq!(plan().node(ip), None);
            assert_eq!(plan().header(MacAddress::of_get(HASH), ip), None);
            assert_eq!(plan().header(MacAddress::of_member(node), ip), None);
        }
    }

    #[test]
    fn addresses_of_two_headers_are_refused() {
        let ip = plan().ip(BACKEND).unwrap();
        assert_eq!(plan().header(MacAddress::of_member(BACKEND), ip), Some(Header::Member(BACKEND)));
        assert_eq!(plan().header(MacAddress::of_member(NodeId(7)), ip), None);
        assert_eq!(plan().header(MacAddress::of_member(BACKEND), Ipv4Addr::new(10, 78, 0x12, 0x34)), None);
        assert_eq!(plan().header(MacAddress([0x02, 0, 0, 0, 0x12, 0x34]), ip), None);
        assert_eq!(plan().header(MacAddress([0x06, 0, 1, 0, 0x12, 0x34]), ip), None);
    }

    #[test]
    fn prefixes_that_are_not_a_clusters_are_refused() {
        let plan = |text: &str| text.parse::<MacPlan>();
        assert_eq!(plan("fd5e:a1c0::/32"), Err(PrefixError::Syntax));
        assert_eq!(plan("10.77.0.0/24"), Err(PrefixError::Len { len: 24, expected: 16 }));
        for text in ["11.77.0.0/16", "172.15.0.0/16", "172.32.0.0/16", "192.169.0.0/16", "0.0.0.0/16"] {
            assert_eq!(plan(text), Err(PrefixError::NotPrivate), "{text}");
        }
        assert_eq!(plan("10.77.0.1/16"), Err(PrefixError::BitsBehind));
        for text in ["10.0.0.0/16", "172.16.0.0/16", "172.31.0.0/16", "192.168.0.0/16"] {
            assert!(plan(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_mac_address_is_refused() {
        assert_eq!("02:00:00:00:00:FF".parse(), Ok(MacAddress([2, 0, 0, 0, 0, 0xff])));
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:ff:", "2:00:00:00:00:ff", "+2:00:00:00:00:ff", "02-00-00-00-00-ff"]
        {
            assert_eq!(text.parse::<MacAddress>(), Err(MacAddressError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_are_written(node in 1..u16::MAX, hash: u64) {
            let (plan, node, hash) = (plan(), NodeId(node), KeyHash(hash));
            let to = plan.get(node, hash).unwrap();
            let get = Header::Get { backend: node, hash: HeaderHash::high(hash) };
            prop_assert_eq!(plan.header(to.mac(), to.ip()), Some(get));
            let to = plan.member(node).unwrap();
            prop_assert_eq!(plan.header(to.mac(), to.ip()), Some(Header::Member(node)));
        }

        #[test]
        fn mac_addresses_are_read_as_they_are_written(bytes: [u8; 6]) {
            let address = MacAddress(bytes);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            let again = match address.kind() {
                Some(MacKind::Get(HeaderHash::High([h0, h1, h2, h3, h4]))) => {
                    MacAddress::of_get(KeyHash(u64::from_be_bytes([h0, h1, h2, h3, h4, 0, 0, 0])))
                }
                Some(MacKind::Member(node)) => MacAddress::of_member(node),
                _ => return Ok(()),
            };
            prop_assert_eq!(again, address);
        }
    }
}
