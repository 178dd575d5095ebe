//! A range of addresses, written as routes and rules write it: `fd5e:a1c0::/32`.

use std::{fmt, str::FromStr};

/// The addresses that begin as `address` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix<A> {
    /// The first of them.
    pub address: A,
    /// So many bits they have in common.
    pub len: u8,
}

/// Why a prefix is none, or not one that a cluster's addresses may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefixError {
    /// It is not an address, a slash and a number.
    Syntax,
    /// It is of another length.
    Len {
        /// The one that it is of, in bits.
        len: u8,
        /// The one that it has to be of, in bits.
        expected: u8,
    },
    /// Its addresses may be in use elsewhere.
    NotPrivate,
    /// A bit behind it is set.
    BitsBehind,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("a prefix is written ADDRESS/LENGTH"),
            Self::Len { len, expected } => write!(f, "the prefix has to be a /{expected}, and is a /{len}"),
            Self::NotPrivate => f.write_str(
                "the prefix has to be private: of fd00::/8, or of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
            ),
            Self::BitsBehind => f.write_str("the bits of the address behind the prefix have to be zero"),
        }
    }
}

impl std::error::Error for PrefixError {}

impl<A: fmt::Display> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Of any length: whose prefix it is to be sees to that.
impl<A: FromStr> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = text.split_once('/').ok_or(PrefixError::Syntax)?;
        if len.starts_with('+') {
            return Err(PrefixError::Syntax);
        }
        let address = address.parse().map_err(|_| PrefixError::Syntax)?;
        Ok(Self { address, len: len.parse().map_err(|_| PrefixError::Syntax)? })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn prefixes_are_read_as_they_are_written() {
        for text in ["fd5e:a1c0::/32", "fd5e:a1c0:1:1234::/64", "::/0"] {
            assert_eq!(text.parse::<Prefix<Ipv6Addr>>().unwrap().to_string(), text);
        }
        assert_eq!("10.77.0.0/16".parse(), Ok(Prefix { address: Ipv4Addr::new(10, 77, 0, 0), len: 16 }));
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        for text in ["", "/", "10.77.0.0", "10.77.0.0/", "/16", "10.77/16", "10.77.0.0/+16", "10.77.0.0/256", "::/32"] {
            assert_eq!(text.parse::<Prefix<Ipv4Addr>>(), Err(PrefixError::Syntax), "{text}");
        }
    }
}
