//! A node's way to the others: datagrams for what fits into one, streams for what does not; and gets that the network brings where they are answered.
//!
//! Always true: the first two are at one address, and all promise the same: what a receiver is shown is a member's, and anything may be lost, come again or be
//! overtaken.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::Arc;

use guira_routing::{Encoding, Header, Ipv6Plan, KeyHash, NodeId};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::bundle::MESSAGE_LEN_MAX;
use crate::clocks::boot_now;
use crate::counts::Counts;
use crate::gets::{FrameSender, GetSocket, GetWay, GetsOf};
use crate::members::Members;
use crate::seal::Sealer;
use crate::stream::{Long, Streams, View};
use crate::udp::UdpTransport;

/// Ports that are tried where any would do: one may be free for datagrams and not for streams.
const PORTS_TRIED: usize = 64;

/// Where gets go that the network routes.
enum WayOut {
    /// To addresses that say whose they are and of which hash, at a port.
    Addresses(Ipv6Plan, u16),
    Frames(FrameSender),
}

/// The way.
pub struct Transport {
    datagrams: UdpTransport,
    /// Where gets are sent to that the network routes; without it, to their backends.
    way_out: Option<WayOut>,
    /// Where they come, if this node takes any.
    gets: Option<GetSocket>,
    streams: Streams,
}

impl Transport {
    /// Binds sockets of both kinds for the sealer's node. Port 0 is any that is free.
    ///
    /// # Errors
    /// The address is not to be had.
    pub fn bind(address: SocketAddr, sealer: Sealer, members: Arc<Members>) -> io::Result<Self> {
        let mut tries = if address.port() == 0 { PORTS_TRIED } else { 1 };
        loop {
            tries -= 1;
            let datagrams = UdpTransport::bind(address, sealer.clone(), Arc::clone(&members))?;
            match Streams::bind(datagrams.local_address(), drawn()?) {
                Ok(streams) => return Ok(Self { datagrams, way_out: None, gets: None, streams }),
                Err(error) if error.kind() == ErrorKind::AddrInUse && tries > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Has the network route the gets that this node sends.
    ///
    /// # Errors
    /// Frames have to be written, which are not to be had.
    pub fn with_routed_gets(self, way: GetWay) -> io::Result<Self> {
        let way_out = match way.encoding {
            Encoding::Ipv6(plan) => WayOut::Addresses(plan, way.port),
            Encoding::Mac(plan) => {
                WayOut::Frames(FrameSender::open(plan, way.port, self.node(), self.local_address())?)
            }
        };
        Ok(Self { way_out: Some(way_out), ..self })
    }

    /// Gives each message that it sends a datagram or a write of its own, to compare.
    #[must_use]
    pub fn uncoalesced(mut self) -> Self {
        self.datagrams.uncoalesce();
        self.streams.uncoalesce();
        self
    }

    /// Takes gets that the network has routed here.
    ///
    /// # Errors
    /// Their port is not to be had, or frames are not.
    pub fn taking_gets(self, way: GetWay, of: GetsOf) -> io::Result<Self> {
        Ok(Self { gets: Some(GetSocket::bind(way, of, self.local_address())?), ..self })
    }

    /// Has its sockets polled: datagrams under one token, gets under another, streams under those from `streams` on.
    pub(crate) fn attach(
        &mut self,
        registry: &Registry,
        datagrams: Token,
        gets: Token,
        streams: Token,
    ) -> io::Result<()> {
        registry.register(&mut self.datagrams, datagrams, Interest::READABLE)?;
        if let Some(routed) = &self.gets {
            registry.register(&mut SourceFd(&routed.fd()), gets, Interest::READABLE)?;
        }
        if let Some(WayOut::Frames(frames)) = &self.way_out {
            // It tells when it takes more, after it has taken no more, and nothing else.
            registry.register(&mut SourceFd(&frames.fd()), gets, Interest::WRITABLE)?;
        }
        self.streams.attach(registry.try_clone()?, streams)
    }

    /// Whose it is.
    pub fn node(&self) -> NodeId {
        self.datagrams.node()
    }

    /// Where it is bound.
    pub fn local_address(&self) -> SocketAddr {
        self.datagrams.local_address()
    }

    /// The view that it goes by.
    pub fn members(&self) -> &Arc<Members> {
        self.datagrams.members()
    }

    /// Goes by another view from now on. What is queued already stays of the view before.
    pub fn set_members(&mut self, members: Arc<Members>) {
        self.datagrams.set_members(members);
        let (streams, mut view) = self.parts();
        streams.heed(&mut view);
    }

    /// Numbers since it was bound.
    pub fn counts(&self) -> Counts {
        self.datagrams.counts()
    }

    /// Queues a message, which goes with the next [`flush`](Self::flush), or as soon as it can be. It is dropped and counted if `to` is no
    /// member, if it is longer than [`LONG_MESSAGE_LEN_MAX`](crate::LONG_MESSAGE_LEN_MAX), or if too much waits already: 4,096 datagrams or 16 MiB
    /// of them; in streams 64 MiB for one node, and 256 MiB for all.
    pub fn send(&mut self, to: NodeId, message: &[u8]) {
        if message.len() <= MESSAGE_LEN_MAX {
            self.datagrams.send(to, message);
            return;
        }
        let Some(address) = self.members().address(to) else {
            self.datagrams.parts().2.out_unknown_receiver += 1;
            return;
        };
        let (streams, mut view) = self.parts();
        streams.send(boot_now(), to, address, message, &mut view);
    }

    /// Queues a get of a backend's key, as [`send`](Self::send) does, that the network is to route by the key's hash. Where it routes nothing it goes to the
    /// backend.
    pub fn send_get(&mut self, backend: NodeId, hash: KeyHash, message: &[u8]) {
        match &mut self.way_out {
            Some(WayOut::Addresses(plan, port)) => {
                let address = SocketAddrV6::new(plan.get(backend, hash), *port, 0, 0);
                self.datagrams.send_get(backend, address.into(), message);
            }
            Some(WayOut::Frames(frames)) => {
                let (sealer, members, counts) = self.datagrams.parts();
                frames.send(members.epoch(), (backend, hash), message, sealer, counts);
            }
            None => self.send(backend, message),
        }
    }

    /// Sends what waits, until the sockets take no more.
    pub fn flush(&mut self) {
        self.datagrams.flush();
        if let Some(WayOut::Frames(frames)) = &mut self.way_out {
            frames.flush(self.datagrams.parts().2);
        }
        let (streams, mut view) = self.parts();
        streams.flush(boot_now(), &mut view);
    }

    pub(crate) fn datagrams(&mut self) -> &mut UdpTransport {
        &mut self.datagrams
    }

    /// Reads some of the gets that the network has routed here. See [`GetSocket::receive`].
    pub(crate) fn receive_gets(&mut self, each: impl FnMut(NodeId, Header, &[u8])) -> io::Result<usize> {
        let (sealer, members, counts) = self.datagrams.parts();
        self.gets.as_mut().map_or(Ok(0), |gets| gets.receive(sealer, members, counts, each))
    }

    /// See [`Streams::on_event`].
    pub(crate) fn on_stream_event(&mut self, token: Token, is_readable: bool, is_writable: bool) {
        self.streams.on_event(token, is_readable, is_writable);
    }

    /// Reads some of what has come through streams, and closes those that have taken too long.
    pub(crate) fn receive_long(&mut self, mut each: impl FnMut(Long)) {
        let now = boot_now();
        let (streams, mut view) = self.parts();
        streams.receive(now, &mut view, &mut each);
        streams.tend(now, view.counts);
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    fn parts(&mut self) -> (&mut Streams, View<'_>) {
        let (sealer, members, counts) = self.datagrams.parts();
        (&mut self.streams, View { sealer, members, counts })
    }
}

/// What nobody can guess.
fn drawn() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // So few come at once.
    let len = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if len == bytes.len() { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
}
