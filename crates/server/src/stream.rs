//! A client's byte stream: TCP or Unix.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($stream:expr, $socket:ident => $do:expr) => {
        match $stream {
            Stream::Tcp($socket) => $do,
            Stream::Unix($socket) => $do,
        }
    };
}

impl Stream {
    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, socket => socket.read(into))
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, socket => socket.write(bytes))
    }

    #[inline]
    pub(crate) fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        either!(self, socket => socket.write_vectored(pieces))
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        either!(self, socket => socket.register(registry, token, interest))
    }

    pub(crate) fn reregister(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        either!(self, socket => socket.reregister(registry, token, interest))
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        either!(self, socket => socket.as_raw_fd())
    }

    /// `tcp:1.2.3.4:5`, as `stats conns` shows it.
    pub(crate) fn peer_text(&self) -> String {
        match self {
            Self::Tcp(socket) => address_text(socket.peer_addr().ok()),
            Self::Unix(socket) => unix_text(socket.peer_addr().ok()),
        }
    }

    /// The end of the listener, in the same form.
    pub(crate) fn local_text(&self) -> String {
        match self {
            Self::Tcp(socket) => address_text(socket.local_addr().ok()),
            Self::Unix(socket) => unix_text(socket.local_addr().ok()),
        }
    }

    /// `rip=... rport=... transport=...`, as `watch connevents` shows it.
    pub(crate) fn watch_text(&self) -> String {
        match self {
            Self::Tcp(socket) => match socket.peer_addr() {
                Ok(peer) => format!("rip={} rport={} transport=tcp", peer.ip(), peer.port()),
                Err(_) => "rip=unknown rport=0 transport=tcp".to_owned(),
            },
            Self::Unix(_) => "rip=unix rport=0 transport=unix".to_owned(),
        }
    }
}

fn address_text(address: Option<std::net::SocketAddr>) -> String {
    match address {
        Some(address @ std::net::SocketAddr::V4(_)) => format!("tcp:{address}"),
        Some(address) => format!("tcp6:{address}"),
        None => "unknown".to_owned(),
    }
}

fn unix_text(address: Option<std::os::unix::net::SocketAddr>) -> String {
    match address.as_ref().and_then(|address| address.as_pathname()) {
        Some(path) => format!("unix:{}", path.display()),
        None => "unix".to_owned(),
    }
}
