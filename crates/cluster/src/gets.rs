//! Gets that the network routes by their content (`docs/design/0035`): where they are sent to, and the socket on which they come.
//!
//! ```text
//! gateway --- to PREFIX:1:BACKEND:HASH, port ---> a switch ---> cache node, if there is a rule for the hash
//!                                                        \----> backend
//! ```
//! A host owns what it is to have by a route of its own, and the socket is bound to none of these addresses: which one a datagram came to the kernel says beside it.
//! So there is one such port on a host. The parts of a cache node have a socket each there, and the kernel looks for a get's part as a gateway does
//! ([`Steering`]).
//!
//! Always true: what a receiver is shown is a member's, from where that is, and was sealed for the backend that its address names; a backend is shown gets of
//! its own keys alone. Whether the address is that of the key asked for is for who reads the message to see.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use guira_routing::{Header, Ipv6Plan, KeyHash, NodeId, Steering};
use mio::net::UdpSocket;
use nix::libc;
use nix::sys::socket::sockopt::{AttachReusePortCbpf, Ipv6RecvPacketInfo};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn6, cmsg_space, recvmmsg, setsockopt};
use socket2::{Domain, Socket, Type};

use crate::bundle::messages;
use crate::counts::Counts;
use crate::members::Members;
use crate::refusal::{Refusal, admit, counter, note};
use crate::seal::{Kind, Sealer};

/// Datagrams a system call.
const BATCH_MAX: usize = 64;

/// Room for one get: a key of 250 bytes with all that is said beside it, many times over. What is longer is cut, and so is none.
const BUFFER_LEN: usize = 2 << 10;

/// What the kernel may keep for us between two rounds, in bytes.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;

/// Where gets go that the network routes: to an address that says all, at one port of UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetWay {
    /// Which addresses.
    pub plan: Ipv6Plan,
    /// The port.
    pub port: u16,
}

impl GetWay {
    /// Where a get of a backend's key goes to.
    pub fn address(&self, backend: NodeId, hash: KeyHash) -> SocketAddr {
        SocketAddrV6::new(self.plan.get(backend, hash), self.port, 0, 0).into()
    }
}

/// Whose gets a node takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GetsOf {
    /// A backend its own.
    Own,
    /// A part of a cache node anybody's, as far as keys are dealt out to it. The parts bind their sockets in their order.
    All(Steering),
}

/// The socket.
pub(crate) struct GetSocket {
    pub(crate) socket: UdpSocket,
    plan: Ipv6Plan,
    takes: GetsOf,
    /// Of `BUFFER_LEN` each.
    buffers: Box<[u8]>,
}

impl GetSocket {
    /// Binds it.
    ///
    /// # Errors
    /// The port is not to be had.
    pub(crate) fn bind(way: GetWay, takes: GetsOf) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking().cloexec(), None)?;
        socket.set_only_v6(true)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_LEN)?;
        setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
        let parts = match takes {
            GetsOf::Own => 1,
            GetsOf::All(steering) => steering.parts.get(),
        };
        if parts > 1 {
            socket.set_reuse_port(true)?;
        }
        let address: SocketAddr = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, way.port, 0, 0).into();
        socket.bind(&address.into())?;
        if let GetsOf::All(steering) = takes
            && parts > 1
        {
            steer(&socket, steering)?;
        }
        let buffers = vec![0; BATCH_MAX * BUFFER_LEN].into_boxed_slice();
        Ok(Self { socket: UdpSocket::from_std(socket.into()), plan: way.plan, takes, buffers })
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
        let received = match self.socket.try_io(|| receive_batch(&self.socket, &mut self.buffers)) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        for (buffer, came) in self.buffers.chunks_exact(BUFFER_LEN).zip(&received) {
            counts.datagrams_in += 1;
            counts.bytes_in += came.len as u64;
            let header = came.to.and_then(|to| self.plan.header(to));
            let Some(header @ Header::Get { backend, .. }) = header.filter(|header| self.takes(sealer, header)) else {
                *counter(counts, Refusal::Misrouted) += 1;
                continue;
            };
            match admit(sealer.open_for(backend, Kind::Get, &buffer[..came.len]), members, came.from) {
                Ok(opened) => {
                    note(counts, members, opened.epoch);
                    messages(opened.body).flatten().for_each(|message| each(opened.from, header, message));
                }
                Err(reason) => *counter(counts, reason) += 1,
            }
        }
        Ok(received.len())
    }

    fn takes(&self, sealer: &Sealer, header: &Header) -> bool {
        match self.takes {
            GetsOf::Own => header.node() == sealer.me(),
            GetsOf::All(_) => true,
        }
    }
}

/// What has come into one buffer.
struct Came {
    len: usize,
    from: Option<SocketAddr>,
    /// The address that it was sent to.
    to: Option<Ipv6Addr>,
}

/// What has been read, by buffer. The headers are made anew each time, as [`UdpTransport`](crate::UdpTransport) does it.
fn receive_batch(socket: &UdpSocket, buffers: &mut [u8]) -> io::Result<Vec<Came>> {
    let beside = vec![0; cmsg_space::<libc::in6_pktinfo>()];
    let mut headers = MultiHeaders::<SockaddrIn6>::preallocate(BATCH_MAX, Some(beside));
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        buffers.chunks_exact_mut(BUFFER_LEN).map(|buffer| [IoSliceMut::new(buffer)]).collect();
    let received = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    let came = received.map(|datagram| Came {
        len: datagram.bytes,
        from: datagram.address.map(|from| SocketAddrV6::from(from).into()),
        to: datagram.cmsgs().ok().and_then(|mut beside| {
            beside.find_map(|told| match told {
                ControlMessageOwned::Ipv6PacketInfo(info) => Some(Ipv6Addr::from(info.ipi6_addr.s6_addr)),
                _ => None,
            })
        }),
    });
    Ok(came.collect())
}

/// Where a packet's network header begins, for a filter (`SKF_NET_OFF` of linux/filter.h).
const NETWORK_HEADER: u32 = -0x10_0000_i32 as u32;

/// Where in it the destination's hash begins, in bytes: behind 24 of the header and 8 of the address.
const HASH_AT: u32 = 24 + 8;

/// Has the kernel give each get to its part: [`Steering::part_of`], step by step, on the sockets in the order in which they were bound.
fn steer(socket: &Socket, steering: Steering) -> io::Result<()> {
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // The first byte of those that decide: they end where the bits below them begin.
    let decide_at = HASH_AT + (u64::BITS - Steering::LOWEST_BIT - u32::BITS) / u8::BITS;
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NETWORK_HEADER.wrapping_add(decide_at)),
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, steering.multiplier),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, steering.parts.get().into()),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, AttachReusePortCbpf, &program)?)
}
