//! Gets as whole frames, with the hash in their MAC address (SwitchKV, section 3.1.1): sockets that write and read them.
//!
//! A switch changes nothing of such a frame, so the host that it comes to does not take it for its own; a packet socket sees it all the same. Its filter
//! lets no frame through but gets, and on a part of a cache node no get but that part's.
//!
//! Always true: who opens such a socket has the capability `NET_RAW`; what is shown has passed the frame's checksums. What waits to be sent is bounded as
//! datagrams are.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use guira_routing::{
    Frame, FrameError, FrameReader, FrameWriter, Header, KeyHash, MTU, MacAddress, MacPlan, NodeId, Source, Steering,
};
use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::libc;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind, recv, recvmmsg, socket,
};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use socket2::{SockFilter, SockRef};

use super::{BATCH_MAX, BUFFER_LEN, Came, GetsOf, RECEIVE_BUFFER_LEN};
use crate::bundle::Bundle;
use crate::counts::Counts;
use crate::outgoing::{BYTES_MAX, DATAGRAMS_MAX};
use crate::refusal::Refusal;
use crate::seal::{Epoch, Kind, Sealer};

/// A packet socket that is on no link yet.
fn open(protocol: Option<SockProtocol>) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Packet, SockType::Raw, flags, protocol).map_err(|error| match error {
        Errno::EPERM => io::Error::new(
            ErrorKind::PermissionDenied,
            "gets in MAC addresses are whole frames, which take the capability NET_RAW, or root's rights",
        ),
        other => other.into(),
    })
}

/// The link that has an address.
fn link_of(address: IpAddr) -> io::Result<LinkAddr> {
    let has_it = |its: &InterfaceAddress| {
        its.address.and_then(|its| Some(IpAddr::V4(its.as_sockaddr_in()?.ip()))) == Some(address)
    };
    let named = getifaddrs()?.find(has_it).map(|its| its.interface_name);
    let links = getifaddrs()?.filter(|its| Some(&its.interface_name) == named.as_ref());
    let mut links = links.filter_map(|its| its.address?.as_link_addr().copied());
    let not_found =
        || io::Error::new(ErrorKind::AddrNotAvailable, format!("no link of this host has the address {address}"));
    links.next().ok_or_else(not_found)
}

/// What writes them.
pub(crate) struct FrameSender {
    socket: OwnedFd,
    plan: MacPlan,
    writer: FrameWriter,
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
    /// One after the other is sealed here.
    bundle: Bundle,
}

impl FrameSender {
    /// Of a node at an address, to a port.
    ///
    /// # Errors
    /// The rights are not there, or no link has the address, or it is not the plan's for the node.
    pub(crate) fn open(plan: MacPlan, port: u16, from: NodeId, address: SocketAddr) -> io::Result<Self> {
        let source = Source { node: from, port: address.port() };
        let writer = FrameWriter::new(&plan, source, port, MTU).ok_or(ErrorKind::AddrNotAvailable)?;
        let link = link_of(address.ip())?;
        let writer = writer.leaving_by(MacAddress(link.addr().unwrap_or_default()));
        // It hears nothing.
        let socket = open(None)?;
        bind(socket.as_raw_fd(), &link)?;
        Ok(Self { socket, plan, writer, queue: VecDeque::new(), bytes: 0, bundle: Bundle::new() })
    }

    /// Queues a get for the next [`flush`](Self::flush), or drops and counts it.
    pub(crate) fn send(
        &mut self,
        epoch: Epoch,
        (backend, hash): (NodeId, KeyHash),
        message: &[u8],
        sealer: &Sealer,
        counts: &mut Counts,
    ) {
        let Some(to) = self.plan.get(backend, hash) else {
            counts.out_unknown_receiver += 1;
            return;
        };
        self.bundle.clear();
        if !self.bundle.append(message) || self.bundle.datagram().len() > self.writer.payload_len_max() {
            counts.out_too_long += 1;
            return;
        }
        sealer.seal_in_place(Kind::Get, epoch, backend, self.bundle.datagram_mut());
        let mut frame = Vec::new();
        if self.writer.write(to, self.bundle.datagram(), &mut frame).is_err() {
            counts.out_too_long += 1;
        } else if self.queue.len() == DATAGRAMS_MAX || self.bytes + frame.len() > BYTES_MAX {
            counts.out_queue_full += 1;
        } else {
            self.bytes += frame.len();
            self.queue.push_back(frame);
        }
    }

    /// Sends what waits, until the link takes no more: the socket tells when it does. What it refuses for good is dropped and counted.
    pub(crate) fn flush(&mut self, counts: &mut Counts) {
        // Each round takes a frame away or is the last.
        while !self.queue.is_empty() {
            match self.send_batch() {
                Ok(0) => return,
                Ok(sent) => {
                    for frame in self.queue.drain(..sent) {
                        self.bytes -= frame.len();
                        counts.datagrams_out += 1;
                        counts.messages_out += 1;
                        counts.bytes_out += frame.len() as u64;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.bytes -= self.queue.pop_front().map_or(0, |frame| frame.len());
                    counts.out_unsendable += 1;
                }
            }
        }
    }

    /// One system call; how many frames the link took.
    fn send_batch(&self) -> io::Result<usize> {
        let batch: Vec<[IoSlice<'_>; 1]> =
            self.queue.iter().take(BATCH_MAX).map(|frame| [IoSlice::new(frame)]).collect();
        let mut nothing: Vec<SendAncillaryBuffer<'_, '_, '_>> = Vec::new();
        nothing.resize_with(batch.len(), SendAncillaryBuffer::default);
        let mut headers: Vec<MMsgHdr<'_>> =
            batch.iter().zip(&mut nothing).map(|(frame, nothing)| MMsgHdr::new(frame, nothing)).collect();
        Ok(sendmmsg(&self.socket, &mut headers, SendFlags::DONTWAIT)?)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Frames that are thrown away at first, of all links, which have come before there was a filter: more than are kept at a time.
const UNFILTERED_MAX: usize = 1 << 16;

/// What reads them.
pub(super) struct FrameReceiver {
    socket: OwnedFd,
    plan: MacPlan,
    reader: FrameReader,
}

impl FrameReceiver {
    /// Of a node at an address, those to a port.
    ///
    /// # Errors
    /// The rights are not there, or no link has the address.
    pub(super) fn open(plan: MacPlan, port: u16, takes: GetsOf, address: IpAddr) -> io::Result<Self> {
        let (link, socket) = (link_of(address)?, open(Some(SockProtocol::EthAll))?);
        let settings = SockRef::from(&socket);
        settings.set_recv_buffer_size(RECEIVE_BUFFER_LEN)?;
        settings.attach_filter(&filter(port, takes))?;
        // Whoever is on his way past the filter, as it was before, has arrived by the end of this.
        bind(socket.as_raw_fd(), &link)?;
        let mut unfiltered = (0..UNFILTERED_MAX).map(|_| recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT));
        unfiltered.find(Result::is_err);
        Ok(Self { socket, plan, reader: FrameReader::new(plan, port) })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn receive_batch(&self, buffers: &mut [u8]) -> io::Result<Vec<Came>> {
        let mut headers = MultiHeaders::<LinkAddr>::preallocate(BATCH_MAX, None);
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffers.chunks_exact_mut(BUFFER_LEN).map(|buffer| [IoSliceMut::new(buffer)]).collect();
        // That its link was down is told once, before what has come since.
        SockRef::from(&self.socket).take_error()?;
        let received =
            recvmmsg(self.socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
        let lens: Vec<usize> = received.map(|frame| frame.bytes).collect();
        let frames = buffers.chunks_exact(BUFFER_LEN).zip(lens);
        Ok(frames.map(|(buffer, len)| self.came(&buffer[..len])).collect())
    }

    fn came(&self, frame: &[u8]) -> Came {
        match self.reader.read(frame) {
            Ok(Frame { header, from: Source { node, port }, payload }) => {
                let start = payload.as_ptr().addr() - frame.as_ptr().addr();
                let from = self.plan.ip(node).map(|ip| SocketAddr::new(ip.into(), port));
                Came { datagram: start..start + payload.len(), from, header: header_of_get(header) }
            }
            Err(error) => Came { datagram: 0..frame.len(), from: None, header: Err(refusal(error)) },
        }
    }
}

fn header_of_get(header: Header) -> Result<Header, Refusal> {
    if matches!(header, Header::Get { .. }) { Ok(header) } else { Err(Refusal::Misrouted) }
}

/// Why a frame is dropped that is not read.
fn refusal(error: FrameError) -> Refusal {
    match error {
        FrameError::TooShort
        | FrameError::IpHeader
        | FrameError::Fragment
        | FrameError::UdpLength
        | FrameError::UdpChecksum => Refusal::Damaged,
        FrameError::NotIpv4
        | FrameError::OtherMac
        | FrameError::NotUdp
        | FrameError::OtherNetwork
        | FrameError::OtherMember
        | FrameError::OtherPort => Refusal::Misrouted,
    }
}

/// Where things are in a frame, in bytes.
const MAC_KIND_AT: u32 = 0;
const HASH_AT: u32 = 1;
const ETH_TYPE_AT: u32 = 12;
const IP_PROTOCOL_AT: u32 = 14 + 9;
const UDP_PORT_AT: u32 = 14 + 20 + 2;

/// The bits of a step that say what kind of step it is (linux/bpf_common.h).
const BPF_CLASS: u32 = 7;

/// The filter, as the kernel runs it on a frame: what it says at its end is how much of the frame comes here.
fn filter(port: u16, takes: GetsOf) -> Vec<SockFilter> {
    let load = |size: u32, at| (libc::BPF_LD | size | libc::BPF_ABS, at);
    let unless = |k| (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k);
    let [get, ..] = MacAddress::of_get(KeyHash(0)).0;
    let mut steps = vec![
        load(libc::BPF_B, MAC_KIND_AT),
        unless(get.into()),
        load(libc::BPF_H, ETH_TYPE_AT),
        unless(libc::ETH_P_IP as u32),
        load(libc::BPF_B, IP_PROTOCOL_AT),
        unless(libc::IPPROTO_UDP as u32),
        load(libc::BPF_H, UDP_PORT_AT),
        unless(port.into()),
    ];
    if let GetsOf::Part { steering: Steering { multiplier, parts }, part } = takes {
        // As [`Steering::part_of`] does it.
        let alu = |operation: u32, k: u32| (libc::BPF_ALU | operation | libc::BPF_K, k);
        let decide_at = HASH_AT + (u64::BITS - Steering::LOWEST_BIT - u32::BITS) / u8::BITS;
        steps.extend([
            load(libc::BPF_W, decide_at),
            alu(libc::BPF_MUL, multiplier),
            alu(libc::BPF_RSH, 16),
            alu(libc::BPF_MUL, parts.get().into()),
            alu(libc::BPF_RSH, 16),
            unless(part.into()),
        ]);
    }
    let len = steps.len() as u8;
    let step = |(at, (code, k)): (u8, (u32, u32))| {
        // On to the next step, or to the last, which takes nothing.
        let otherwise = if code & BPF_CLASS == libc::BPF_JMP { len - at } else { 0 };
        SockFilter::new(code as u16, 0, otherwise, k)
    };
    let end = |k| SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, k);
    (0..).zip(steps).map(step).chain([end(u32::MAX), end(0)]).collect()
}
