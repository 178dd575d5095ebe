//! A connection that never blocks: what the socket takes is written, and answers are read behind what was kept of them.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::error::LoadError;

/// Bytes read at once: large enough for several multiget answers, small enough to stay in the second-level cache.
const READ_LEN_BYTES: usize = 128 * 1024;
/// Silence after which a server counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A connection, and the start of an answer that has not come in whole.
pub(crate) struct Connection {
    stream: TcpStream,
    tail: Vec<u8>,
}

/// What a read has put into the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    /// Bytes, those that were kept included.
    pub len: usize,
    /// There was no more to read.
    pub is_last: bool,
}

impl Connection {
    pub fn connect(address: SocketAddr) -> Result<Self, LoadError> {
        let failed = network("connecting to the server");
        let stream = std::net::TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        Ok(Self { stream: TcpStream::from_std(stream), tail: Vec::new() })
    }

    /// Asks `poll` for its events, under the number `token`.
    pub fn register(&mut self, poll: &Poll, token: usize) -> Result<(), LoadError> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = poll.registry().register(&mut self.stream, Token(token), interest);
        registered.map_err(network("registering a connection"))
    }

    /// Writes `bytes` as far as the socket takes them; returns how far.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, LoadError> {
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(network("sending requests")(source)),
            }
        }
        Ok(written)
    }

    /// Puts what was kept and what has come in into `buffer`; `None` if nothing has come in.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Filled>, LoadError> {
        let kept = self.tail.len();
        if buffer.len() < kept + READ_LEN_BYTES {
            buffer.resize(kept + READ_LEN_BYTES, 0);
        }
        buffer[..kept].copy_from_slice(&self.tail);
        loop {
            match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => return Err(LoadError::Gone("answers were outstanding")),
                Ok(read) => return Ok(Some(Filled { len: kept + read, is_last: read < buffer.len() - kept })),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(network("reading answers")(source)),
            }
        }
    }

    /// Keeps `bytes`, the end of what was read, for the next read.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.tail.clear();
        self.tail.extend_from_slice(bytes);
    }
}

/// A poll of one's own.
pub(crate) fn open_poll() -> Result<Poll, LoadError> {
    Poll::new().map_err(network("opening epoll"))
}

/// Waits for events or until `timeout`; a signal ends the wait early.
pub(crate) fn wait(poll: &mut Poll, events: &mut Events, timeout: Duration) -> Result<(), LoadError> {
    match poll.poll(events, Some(timeout)) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(network("waiting for answers")(error)),
        _ => Ok(()),
    }
}

/// Refuses to wait longer for a server last heard at `heard_ns`, if there are answers to wait for.
pub(crate) fn expect_heard(heard_ns: u64, now_ns: u64, is_waiting: impl FnOnce() -> bool) -> Result<(), LoadError> {
    if now_ns > heard_ns + SILENCE_MAX.as_nanos() as u64 && is_waiting() {
        return Err(LoadError::Gone("answers were outstanding; it has been silent for 20 s"));
    }
    Ok(())
}

fn network(doing: &'static str) -> impl Fn(std::io::Error) -> LoadError + Copy {
    move |source| LoadError::Network { doing, source }
}
