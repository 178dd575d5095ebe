//! What a network sees of a request, and routes it by: whether it may be routed to a cache; the backend; and the key's hash
//! (SwitchKV, section 3.1.1, "Key Encoding in Packet Headers").
//!
//! Always true: a header says what an address can carry, and no more. So it says whose key's hash it may be, and not which key it is: a node
//! that answers looks at the key.

use std::{fmt, str::FromStr};

use crate::{Ipv6Plan, KeyHash, MacPlan, NodeId, PrefixError};

/// A request's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Header {
    /// A get that may be routed by its hash: to a cache node if there is a rule for that, else to the backend.
    Get {
        /// The owner of the key's partition.
        backend: NodeId,
        /// The key's, or what there is of it.
        hash: HeaderHash,
    },
    /// Whatever a member is to have itself: writes, answers, and gets that a cache node has passed on.
    Member(NodeId),
}

impl Header {
    /// Who has the request if no rule leads it elsewhere.
    pub fn node(&self) -> NodeId {
        match *self {
            Self::Get { backend: node, .. } | Self::Member(node) => node,
        }
    }
}

/// What a header carries of a key's hash. Of the same hash, that of one encoding does not equal that of the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HeaderHash {
    /// All 64 bits.
    Whole(KeyHash),
    /// The 40 highest, the first byte first. They say the partition; the chance that two of a million keys have the same is some
    /// 1 in 3.
    High([u8; 5]),
}

impl HeaderHash {
    /// The 40 highest bits of `hash`.
    pub fn high(hash: KeyHash) -> Self {
        let [h0, h1, h2, h3, h4, ..] = hash.0.to_be_bytes();
        Self::High([h0, h1, h2, h3, h4])
    }

    /// The lowest hash of which a header carries this.
    pub fn lowest(&self) -> KeyHash {
        match *self {
            Self::Whole(hash) => hash,
            Self::High([h0, h1, h2, h3, h4]) => KeyHash(u64::from_be_bytes([h0, h1, h2, h3, h4, 0, 0, 0])),
        }
    }

    /// Whether a header of a key with `hash` carries this.
    pub fn is_of(&self, hash: KeyHash) -> bool {
        match self {
            Self::Whole(whole) => *whole == hash,
            Self::High(_) => *self == Self::high(hash),
        }
    }
}

/// How a cluster's headers are encoded. Written `ipv6=fd5e:a1c0::/32` or `mac=10.77.0.0/16`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encoding {
    /// All in the destination's IPv6 address: any UDP socket will do.
    Ipv6(Ipv6Plan),
    /// In the destination's MAC and IPv4 addresses, as in the paper: frames are written whole.
    Mac(MacPlan),
}

impl Encoding {
    /// What headers carry of `hash`.
    pub fn carried(&self, hash: KeyHash) -> HeaderHash {
        match self {
            Self::Ipv6(_) => HeaderHash::Whole(hash),
            Self::Mac(_) => HeaderHash::high(hash),
        }
    }
}

/// Why a text names no encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodingError {
    /// It begins with no encoding's name.
    Name,
    /// The prefix is not one for that encoding.
    Prefix(PrefixError),
}

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("an encoding is written ipv6=PREFIX or mac=PREFIX"),
            Self::Prefix(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EncodingError {}

impl From<PrefixError> for EncodingError {
    fn from(error: PrefixError) -> Self {
        Self::Prefix(error)
    }
}

impl FromStr for Encoding {
    type Err = EncodingError;

    fn from_str(text: &str) -> Result<Self, EncodingError> {
        match text.split_once('=') {
            Some(("ipv6", prefix)) => Ok(Self::Ipv6(prefix.parse()?)),
            Some(("mac", prefix)) => Ok(Self::Mac(prefix.parse()?)),
            _ => Err(EncodingError::Name),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv6(plan) => write!(f, "ipv6={plan}"),
            Self::Mac(plan) => write!(f, "mac={plan}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encodings_are_read_as_they_are_written() {
        for text in ["ipv6=fd5e:a1c0::/32", "mac=10.77.0.0/16"] {
            assert_eq!(text.parse::<Encoding>().unwrap().to_string(), text);
        }
        for text in ["", "mac", "ipv4=10.77.0.0/16", "=10.77.0.0/16", "fd5e:a1c0::/32"] {
            assert_eq!(text.parse::<Encoding>(), Err(EncodingError::Name), "{text}");
        }
        assert_eq!("mac=fd5e:a1c0::/32".parse::<Encoding>(), Err(PrefixError::Syntax.into()));
    }

    proptest! {
        #[test]
        fn what_is_carried_is_of_the_bits_that_it_has(hash: u64, bit in 0..64) {
            let (hash, other) = (KeyHash(hash), KeyHash(hash ^ (1u64 << bit)));
            for (text, cut_bits) in [("ipv6=fd5e:a1c0::/32", 0), ("mac=10.77.0.0/16", 24)] {
                let encoding: Encoding = text.parse().unwrap();
                let carried = encoding.carried(hash);
                prop_assert!(carried.is_of(hash));
                prop_assert_eq!(carried.is_of(other), bit < cut_bits);
                prop_assert_eq!(carried == encoding.carried(other), bit < cut_bits);
            }
        }
    }
}
