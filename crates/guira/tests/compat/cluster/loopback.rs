//! Addresses for the members of one cluster on this machine, which nobody else takes: a network of its own in 127.0.0.0/8.
//!
//! ```text
//! 127.A.B.1..      the members, by their places in the list of all
//! 127.A.B.101..    the relay, as the members see the others: one port each
//! 127.A.B.254      who has the network
//! ```
//! Always true: a member that is started again finds its port free. A port that was free a moment ago need not be.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use super::relay::Way;

/// Where members are found.
const PORT: u16 = 17_000;

/// The second bytes of networks: far from what people use by hand.
const FIRST: u8 = 64;
const COUNT: u32 = 64 << 8;

/// A network that nobody else has while this is there.
pub struct Loopback {
    network: [u8; 2],
    _claim: TcpListener,
}

impl Loopback {
    /// Finds one.
    pub fn claim() -> Self {
        let start = std::process::id();
        let claimed = (0..COUNT).find_map(|at| {
            let [.., high, low] = (start.wrapping_mul(7_919).wrapping_add(at) % COUNT).to_be_bytes();
            let network = [FIRST + high, low];
            let claim = TcpListener::bind(within(network, 254, PORT)).ok()?;
            Some(Self { network, _claim: claim })
        });
        claimed.unwrap_or_else(|| panic!("port {PORT} is taken at 127.A.B.254 for every A from {FIRST} on and every B"))
    }

    /// Where the member of a place is.
    pub fn member(&self, place: usize) -> SocketAddr {
        within(self.network, 1 + place as u8, PORT)
    }

    /// Where clients find the member of a place.
    pub fn for_clients(&self, place: usize) -> SocketAddr {
        within(self.network, 1 + place as u8, PORT + 1)
    }

    /// Where the way's sender sees its receiver, with a relay between them.
    pub fn seen(&self, way: Way) -> SocketAddr {
        within(self.network, 101 + way.from as u8, PORT + way.to as u16)
    }
}

fn within([high, low]: [u8; 2], host: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, high, low, host), port))
}
