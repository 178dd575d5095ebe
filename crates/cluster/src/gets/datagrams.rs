//! Gets as datagrams to IPv6 addresses that say all: the socket that they come to, whichever of a host's addresses that is.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};

use guira_routing::{Ipv6Plan, Steering};
use nix::libc;
use nix::sys::socket::sockopt::{AttachReusePortCbpf, Ipv6RecvPacketInfo};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn6, cmsg_space, recvmmsg, setsockopt};
use socket2::{Domain, Socket, Type};

use super::{BATCH_MAX, BUFFER_LEN, Came, GetsOf, RECEIVE_BUFFER_LEN};
use crate::refusal::Refusal;

/// The socket.
pub(super) struct DatagramReceiver {
    socket: Socket,
    plan: Ipv6Plan,
}

impl DatagramReceiver {
    /// Binds it.
    ///
    /// # Errors
    /// The port is not to be had.
    pub(super) fn bind(plan: Ipv6Plan, port: u16, takes: GetsOf) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking().cloexec(), None)?;
        socket.set_only_v6(true)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_LEN)?;
        setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
        let steering = match takes {
            GetsOf::Part { steering, .. } if steering.parts.get() > 1 => Some(steering),
            GetsOf::Part { .. } | GetsOf::Own => None,
        };
        if steering.is_some() {
            socket.set_reuse_port(true)?;
        }
        let address: SocketAddr = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into();
        socket.bind(&address.into())?;
        steering.map_or(Ok(()), |steering| steer(&socket, steering))?;
        Ok(Self { socket, plan })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// What has been read, by buffer. The headers are made anew each time, as [`UdpTransport`](crate::UdpTransport) does it.
    pub(super) fn receive_batch(&self, buffers: &mut [u8]) -> io::Result<Vec<Came>> {
        let beside = vec![0; cmsg_space::<libc::in6_pktinfo>()];
        let mut headers = MultiHeaders::<SockaddrIn6>::preallocate(BATCH_MAX, Some(beside));
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffers.chunks_exact_mut(BUFFER_LEN).map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let received =
            recvmmsg(self.socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
        let came = received.map(|datagram| {
            let to = datagram.cmsgs().ok().and_then(|mut beside| {
                beside.find_map(|told| match told {
                    ControlMessageOwned::Ipv6PacketInfo(info) => Some(Ipv6Addr::from(info.ipi6_addr.s6_addr)),
                    _ => None,
                })
            });
            Came {
                datagram: 0..datagram.bytes,
                from: datagram.address.map(|from| SocketAddrV6::from(from).into()),
                header: to.and_then(|to| self.plan.header(to)).ok_or(Refusal::Misrouted),
            }
        });
        Ok(came.collect())
    }
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
