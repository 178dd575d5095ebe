//! One node's socket: messages out in bundles, datagrams in that are known to be a member's.
//!
//! A datagram is dropped and counted, in this order: too short, of another version, for another node, forged; sealed by who is no member;
//! not from that member's address; no bundle. The address is looked at because answers go to where the view says that a
//! member is, never to where a datagram seems to come from: so one that was recorded and is sent again from elsewhere turns nothing around,
//! and a member that is not where the view says is noticed, not half served. For that, a node binds the very address that its view has.
//! A datagram of another epoch is counted, and taken.
//!
//! Neither sending nor receiving blocks. A driver polls the socket ([`Source`]) for both, edge-triggered as mio is: it receives until there
//! is nothing left, and flushes after each round of `send`s and whenever the socket is writable again.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use guira_routing::NodeId;
use mio::event::Source;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, recvmmsg};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use socket2::SockRef;

use crate::bundle::messages;
use crate::counts::Counts;
use crate::members::Members;
use crate::outgoing::{Outgoing, Popped, Refused};
use crate::refusal::{admit, counter, note};
use crate::seal::{Kind, Opened, Sealer};

/// Datagrams a system call: enough that its cost is shared, and their buffers take 4 MiB.
const BATCH_MAX: usize = 64;

/// Room for one datagram: the longest there is over IPv6 too, so that none is cut.
const BUFFER_LEN: usize = 64 << 10;

/// What the kernel may keep for us between two rounds, in bytes. It gives less without a word if `net.core.rmem_max` is less.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;

/// A node's socket, with what waits to be sent.
pub struct UdpTransport {
    socket: UdpSocket,
    address: SocketAddr,
    sealer: Sealer,
    members: Arc<Members>,
    outgoing: Outgoing,
    /// Of `BUFFER_LEN` each.
    buffers: Box<[u8]>,
    counts: Counts,
}

impl UdpTransport {
    /// Binds a socket for the sealer's node. Port 0 is any that is free.
    ///
    /// # Errors
    /// The address is not to be had.
    pub fn bind(address: SocketAddr, sealer: Sealer, members: Arc<Members>) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_LEN)?;
        let address = socket.local_addr()?;
        let buffers = vec![0; BATCH_MAX * BUFFER_LEN].into_boxed_slice();
        Ok(Self { socket, address, sealer, members, outgoing: Outgoing::default(), buffers, counts: Counts::default() })
    }

    /// Where it is bound.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Whose it is.
    pub(crate) fn node(&self) -> NodeId {
        self.sealer.me()
    }

    /// The view that it goes by.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Goes by another view from now on. What is queued already stays of the view before.
    pub fn set_members(&mut self, members: Arc<Members>) {
        self.outgoing.close_all();
        self.members = members;
    }

    /// Numbers since it was bound.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Gives each message a datagram of its own from now on.
    pub(crate) fn uncoalesce(&mut self) {
        self.outgoing.uncoalesce();
    }

    /// What streams beside it go by, and where they count.
    pub(crate) fn parts(&mut self) -> (&Sealer, &Members, &mut Counts) {
        (&self.sealer, &self.members, &mut self.counts)
    }

    /// Queues a message, which goes with the next [`flush`](Self::flush): in one datagram with others to the same node. It is dropped and
    /// counted if `to` is no member, if it is longer than [`MESSAGE_LEN_MAX`](crate::MESSAGE_LEN_MAX), or if 4,096 datagrams or 16 MiB
    /// wait.
    pub fn send(&mut self, to: NodeId, message: &[u8]) {
        let Some(address) = self.members.address(to) else {
            self.counts.out_unknown_receiver += 1;
            return;
        };
        let queued = self.outgoing.push(to, address, self.members.epoch(), message);
        self.note_queued(queued);
    }

    /// Queues a get that the network routes, in a datagram of its own to `address`, sealed for its backend. It is dropped and counted as others
    /// are.
    pub(crate) fn send_get(&mut self, backend: NodeId, address: SocketAddr, message: &[u8]) {
        let queued = self.outgoing.push_alone(Kind::Get, backend, address, self.members.epoch(), message);
        self.note_queued(queued);
    }

    fn note_queued(&mut self, queued: Result<(), Refused>) {
        match queued {
            Ok(()) => {}
            Err(Refused::TooLong) => self.counts.out_too_long += 1,
            Err(Refused::Full) => self.counts.out_queue_full += 1,
        }
    }

    /// Whether something waits to be sent: for a flush, or after one for the socket to be writable.
    pub fn has_unsent(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends what waits, until the socket takes no more. A datagram that it refuses for good is dropped and counted, as a network
    /// would drop it.
    pub fn flush(&mut self) {
        // Each round takes a datagram away or is the last.
        while self.has_unsent() {
            match self.send_batch() {
                Ok(0) => return,
                Ok(sent) => {
                    for Popped { len_bytes, messages } in (0..sent).map_while(|_| self.outgoing.pop()) {
                        self.counts.datagrams_out += 1;
                        self.counts.bytes_out += len_bytes as u64;
                        self.counts.messages_out += messages;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.outgoing.pop();
                    self.counts.out_unsendable += 1;
                }
            }
        }
    }

    /// One system call; how many datagrams the socket took. An error is the first one's, since those after it have not been tried.
    fn send_batch(&mut self) -> io::Result<usize> {
        let batch_len = self.outgoing.len().min(BATCH_MAX);
        let batch: Vec<(SocketAddrAny, [IoSlice<'_>; 1])> = self
            .outgoing
            .sealed(batch_len, &self.sealer)
            .map(|(address, datagram)| (address.into(), [IoSlice::new(datagram)]))
            .collect();
        let mut nothing: Vec<SendAncillaryBuffer<'_, '_, '_>> = Vec::new();
        nothing.resize_with(batch_len, SendAncillaryBuffer::default);
        let mut headers: Vec<MMsgHdr<'_>> = batch
            .iter()
            .zip(&mut nothing)
            .map(|((address, datagram), nothing)| MMsgHdr::new_with_addr(address, datagram, nothing))
            .collect();
        let socket = &self.socket;
        socket.try_io(|| Ok(sendmmsg(socket, &mut headers, SendFlags::DONTWAIT)?))
    }

    /// Reads up to 64 datagrams and shows `each` the messages of those that are a member's, in their order; how many datagrams were read,
    /// those that were dropped included. 0: there is none left.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn receive(&mut self, mut each: impl FnMut(NodeId, &[u8])) -> io::Result<usize> {
        let Self { socket, buffers, counts, .. } = self;
        let received = match socket.try_io(|| match self.address {
            SocketAddr::V4(_) => receive_batch::<SockaddrIn>(socket, buffers),
            SocketAddr::V6(_) => receive_batch::<SockaddrIn6>(socket, buffers),
        }) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        for (buffer, (len, from)) in buffers.chunks_exact(BUFFER_LEN).zip(&received) {
            counts.datagrams_in += 1;
            counts.bytes_in += *len as u64;
            match admit(self.sealer.open(&buffer[..*len]), &self.members, *from) {
                Ok(Opened { from, epoch, body }) => {
                    note(counts, &self.members, epoch);
                    messages(body).flatten().for_each(|message| each(from, message));
                }
                Err(reason) => *counter(counts, reason) += 1,
            }
        }
        Ok(received.len())
    }
}

/// The lengths and origins of what has been read, by buffer.
///
/// `S` is the family's address: the kernel writes all of it, so nothing is read that was not written. The headers are made anew each time
/// because they hold pointers, with which a transport could not move to its thread; they are small beside the buffers.
fn receive_batch<S>(socket: &UdpSocket, buffers: &mut [u8]) -> io::Result<Vec<(usize, Option<SocketAddr>)>>
where
    S: SockaddrLike + Copy + Into<SocketAddr>,
{
    let mut headers = MultiHeaders::<S>::preallocate(BATCH_MAX, None);
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        buffers.chunks_exact_mut(BUFFER_LEN).map(|buffer| [IoSliceMut::new(buffer)]).collect();
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
    Ok(received.map(|datagram| (datagram.bytes, datagram.address.map(Into::into))).collect())
}

impl Source for UdpTransport {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
