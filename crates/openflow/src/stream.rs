//! A connection that is read and written as far as can be at once.
//!
//! Always true: what may be there is tried until there is nothing, since it is said once only that there is something.

use std::io::{self, ErrorKind, Read, Write};

use mio::{
    Interest, Registry, Token,
    event::{Event, Source},
    net::TcpStream,
};

/// Bytes that are read at a time.
pub(crate) const READ_LEN: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream<S> {
    stream: S,
    may_read: bool,
    may_write: bool,
}

impl Stream<TcpStream> {
    /// One over TCP: what is said is said as a whole, and is not to wait for more.
    pub(crate) fn over_tcp(stream: TcpStream, registry: &Registry, token: Token) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::begin(stream, registry, token)
    }

    /// Whether the one who is called is there by now.
    ///
    /// # Errors
    /// He is not, nor will be.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            // On one host, where nobody listens, a caller may come to be connected to itself.
            Ok(address) if address == self.stream.local_addr()? => Err(ErrorKind::ConnectionRefused.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl<S: Read + Write + Source> Stream<S> {
    /// Has what happens to it told under this token.
    pub(crate) fn begin(mut stream: S, registry: &Registry, token: Token) -> io::Result<Self> {
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { stream, may_read: true, may_write: true })
    }

    /// Something has happened to it.
    pub(crate) fn heed(&mut self, event: &Event) {
        self.may_read |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.may_write |= event.is_writable();
    }

    /// Whether there may be something to read.
    pub(crate) fn may_read(&self) -> bool {
        self.may_read
    }

    /// Whether something may be written.
    pub(crate) fn may_write(&self) -> bool {
        self.may_write
    }

    /// Reads what there is, which is nothing at its end; `None`: nothing is there yet.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        while self.may_read {
            match self.stream.read(buffer) {
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.may_read = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Writes what can be, and says how much of it that was; nothing: no more can be for now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.may_write && !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.may_write = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// Nothing is told of it any more.
    pub(crate) fn end(mut self, registry: &Registry) {
        // It is closed, which would do as well.
        let _ = registry.deregister(&mut self.stream);
    }
}
