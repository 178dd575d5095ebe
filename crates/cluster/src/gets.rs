//! Gets that the network routes by their content (`docs/design/0035`): where they are sent to, and the socket on which they come.
//!
//! ```text
//! gateway --- to PREFIX:1:BACKEND:HASH, port ---> a switch ---> cache node, if there is a rule for the hash
//!                                                        \----> backend
//! ```
//! So it is with headers in IPv6 addresses (`datagrams.rs`). A host owns what it is to have by a route of its own, and the socket is bound to none of these
//! addresses: which one a datagram came to the kernel says beside it. So there is one such port on a host. Headers in MAC addresses are in whole frames, which
//! are read and written beside the kernel's own ways (`frames.rs`). The parts of a cache node have a socket each, and the kernel looks for a get's part as a
//! gateway does ([`Steering`]).
//!
//! Always true: what a receiver is shown is a member's, from where that is, and was sealed for the backend that its address names; a backend is shown gets of
//! its own keys alone. Whether the address is that of the key asked for is for who reads the message to see.

mod datagrams;
mod frames;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::RawFd;

use guira_routing::{Encoding, Header, HeaderHash, NodeId, Steering};

use crate::bundle::messages;
use crate::counts::Counts;
use crate::members::Members;
use crate::refusal::{Refusal, admit, counter, note};
use crate::seal::{Kind, Sealer};
use datagrams::DatagramReceiver;
use frames::FrameReceiver;
pub(crate) use frames::FrameSender;

/// Datagrams a system call.
const BATCH_MAX: usize = 64;

/// Room for one get: a key of 250 bytes with all that is said beside it, many times over. What is longer is cut, and so is none.
const BUFFER_LEN: usize = 2 << 10;

/// What the kernel may keep for us between two rounds, in bytes.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;

/// Where gets go that the network routes: to an address that says all, at one port of UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetWay {
    /// Which addresses, and of what.
    pub encoding: Encoding,
    /// The port.
    pub port: u16,
}

/// Whose gets a node takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GetsOf {
    /// A backend its own.
    Own,
    /// A part of a cache node anybody's, as far as keys are dealt out to it.
    Part {
        /// How they are.
        steering: Steering,
        /// Which part it is, from 0 on. They bind their sockets in this order.
        part: u16,
    },
}

/// The socket.
pub(crate) struct GetSocket {
    socket: Receiver,
    takes: GetsOf,
    /// Of `BUFFER_LEN` each.
    buffers: Box<[u8]>,
}

enum Receiver {
    Datagrams(DatagramReceiver),
    Frames(FrameReceiver),
}

impl GetSocket {
    /// Binds it, for a node that is at an address.
    ///
    /// # Errors
    /// The port is not to be had, or frames are not.
    pub(crate) fn bind(way: GetWay, takes: GetsOf, address: SocketAddr) -> io::Result<Self> {
        let socket = match way.encoding {
            Encoding::Ipv6(plan) => Receiver::Datagrams(DatagramReceiver::bind(plan, way.port, takes)?),
            Encoding::Mac(plan) => Receiver::Frames(FrameReceiver::open(plan, way.port, takes, address.ip())?),
        };
        Ok(Self { socket, takes, buffers: vec![0; BATCH_MAX * BUFFER_LEN].into_boxed_slice() })
    }

    pub(crate) fn fd(&self) -> RawFd {
        match &self.socket {
            Receiver::Datagrams(socket) => socket.fd(),
            Receiver::Frames(socket) => socket.fd(),
        }
    }

    /// Reads up to 64 datagrams and shows `each` the messages in them, with who has sent them and what their address says; how many datagrams were read,
    /// those that were dropped included. 0: there is none left.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn receive(
        &mut self,
        sealer: &Sealer,
        members: &Members,
        counts: &mut Counts,
        mut each: impl FnMut(NodeId, Header, &[u8]),
    ) -> io::Result<usize> {
        let received = match &self.socket {
            Receiver::Datagrams(socket) => socket.receive_batch(&mut self.buffers),
            Receiver::Frames(socket) => socket.receive_batch(&mut self.buffers),
        };
        let received = match received {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        for (buffer, came) in self.buffers.chunks_exact(BUFFER_LEN).zip(&received) {
            counts.datagrams_in += 1;
            counts.bytes_in += came.datagram.len() as u64;
            let opened = came.header.and_then(|header| {
                let Header::Get { backend, hash } = header else { return Err(Refusal::Misrouted) };
                if !self.takes(sealer, backend, hash) {
                    return Err(Refusal::Misrouted);
                }
                let opened = sealer.open_for(backend, Kind::Get, &buffer[came.datagram.clone()]);
                Ok((header, admit(opened, members, came.from)?))
            });
            match opened {
                Ok((header, opened)) => {
                    note(counts, members, opened.epoch);
                    messages(opened.body).flatten().for_each(|message| each(opened.from, header, message));
                }
                Err(reason) => *counter(counts, reason) += 1,
            }
        }
        Ok(received.len())
    }

    fn takes(&self, sealer: &Sealer, backend: NodeId, hash: HeaderHash) -> bool {
        match self.takes {
            GetsOf::Own => backend == sealer.me(),
            // Every header has the bits that decide.
            GetsOf::Part { steering, part } => steering.part_of(hash.lowest()) == part,
        }
    }
}

/// What has come into one buffer.
struct Came {
    /// Where in it.
    datagram: Range<usize>,
    from: Option<SocketAddr>,
    /// What the address says that it was sent to.
    header: Result<Header, Refusal>,
}
