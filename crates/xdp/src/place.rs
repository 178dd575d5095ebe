//! Where a frame goes, as the program reads it (`struct place` of `route.c`).
//!
//! ```text
//! 0                6                  8
//! [ MAC address   ][ way 4 | port 12 ]     the last two bytes are a number of this machine's
//! ```
//! Always true: it is one word, and zero is no place.

use guira_routing::MacAddress;

/// Ports have numbers below this.
pub const PORTS_MAX: u32 = 1 << PORT_BITS;

const PORT_BITS: u32 = 12;

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Out by a port, as it is.
    Port(u16),
    /// Out by a port, to that address.
    PortTo(u16, MacAddress),
    /// Out by the link that it came by, to that address.
    BackTo(MacAddress),
    /// To this host, at that address.
    UpTo(MacAddress),
}

/// No place.
pub(crate) const NOWHERE: u64 = 0;

impl Way {
    pub(crate) fn word(self) -> u64 {
        let none = MacAddress([0; 6]);
        let (way, port, MacAddress([m0, m1, m2, m3, m4, m5])) = match self {
            Self::Port(port) => (1, port, none),
            Self::PortTo(port, mac) => (2, port, mac),
            Self::BackTo(mac) => (3, 0, mac),
            Self::UpTo(mac) => (4, 0, mac),
        };
        let [low, high] = (way << PORT_BITS | port).to_ne_bytes();
        u64::from_ne_bytes([m0, m1, m2, m3, m4, m5, low, high])
    }
}
