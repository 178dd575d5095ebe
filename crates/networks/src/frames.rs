//! Whole frames, as a link has them.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use nix::{
    ifaddrs::getifaddrs,
    sys::{
        socket::{
            AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, setsockopt, socket,
            sockopt::ReceiveTimeout,
        },
        time::TimeVal,
    },
};

/// The longest frame that is read whole: what fits into a link's MTU, with room.
const FRAME_LEN_MAX: usize = 16 << 10;

/// After so long without a frame it is said that there is none.
const PATIENCE: Duration = Duration::from_millis(50);

/// A socket that has whole frames of a link, whomever they are for.
#[derive(Debug)]
pub struct Frames {
    socket: OwnedFd,
    mac: [u8; 6],
}

impl Frames {
    /// Those of a link in this thread's network.
    ///
    /// # Errors
    /// There is no such link, or no right to listen to it.
    pub fn of(link: &str) -> io::Result<Self> {
        let (flags, all) = (SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll);
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, all)?;
        let links = getifaddrs()?.filter(|its| its.interface_name == link);
        let address = links.filter_map(|its| its.address?.as_link_addr().copied()).next();
        let address = address.ok_or(io::ErrorKind::NotFound)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, PATIENCE.as_micros() as _))?;
        bind(socket.as_raw_fd(), &address)?;
        Ok(Self { socket, mac: address.addr().unwrap_or_default() })
    }

    /// The next frame that has come from elsewhere; `None`: there was none for a while.
    pub fn next_that_came(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; FRAME_LEN_MAX];
        let (len, _) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame).ok()?;
        frame.truncate(len);
        // Behind the destination's address is the sender's.
        let is_own = frame.get(6..12) == Some(&self.mac);
        (!is_own).then_some(frame)
    }
}
