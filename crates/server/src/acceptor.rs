//! The acceptor: one thread that accepts connections and hands each to the worker with the fewest.
//!
//! Always true: at most `connections_max` connections are open or on their way to a worker; beyond that a client is told
//! (if it speaks in lines) and turned away (`maxconns_fast`) or left in the kernel's queue until another one leaves.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use guira_item::Service;
use guira_memcache::Dialect;
use mio::{Events, Interest, Poll, Token};
use rustix::io::Errno;

use crate::listener::{ACCEPT_PAUSE, BoundTcp, BoundUnix};
use crate::shared::{Message, Shared, Stop};
use crate::stream::Stream;

/// The waker's token; listeners count from 0, the Unix socket comes last.
pub(crate) const WAKE: Token = Token(usize::MAX);

const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Connections accepted before the other listeners have their turn.
const ACCEPTS_PER_TURN: usize = 256;

pub(crate) struct Acceptor {
    poll: Poll,
    tcp: Vec<BoundTcp>,
    unix: Option<BoundUnix>,
}

/// What came of an attempt to accept.
enum Accepted {
    One(Stream, Dialect),
    /// One that was turned away or went away by itself.
    Gone,
    /// Nobody is waiting.
    None,
    /// No file descriptor or no place for another one.
    Full,
}

impl Acceptor {
    pub(crate) fn new(poll: Poll, mut tcp: Vec<BoundTcp>, mut unix: Option<BoundUnix>) -> io::Result<Self> {
        for (number, bound) in tcp.iter_mut().enumerate() {
            poll.registry().register(&mut bound.listener, Token(number), Interest::READABLE)?;
        }
        if let Some(unix) = &mut unix {
            poll.registry().register(&mut unix.listener, Token(tcp.len()), Interest::READABLE)?;
        }
        Ok(Self { poll, tcp, unix })
    }

    /// Accepts until the server stops.
    pub(crate) fn run<S: Service>(mut self, shared: &Arc<Shared<S>>) {
        let mut events = Events::with_capacity(64);
        let listeners_len = self.tcp.len() + usize::from(self.unix.is_some());
        let mut waiting = vec![false; listeners_len];
        let mut paused_at: Option<Instant> = None;
        loop {
            let timeout = if paused_at.is_some() {
                Some(ACCEPT_PAUSE)
            } else {
                waiting.contains(&true).then_some(std::time::Duration::ZERO)
            };
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("epoll_wait failed: {error}"),
            }
            if shared.stopping() != Stop::Not {
                return;
            }
            for event in events.iter().filter(|event| event.token() != WAKE) {
                waiting[event.token().0] = true;
            }
            let mut full = false;
            for (number, waiting) in waiting.iter_mut().enumerate() {
                for _ in 0..ACCEPTS_PER_TURN {
                    if !*waiting || full {
                        break;
                    }
                    match self.accept(shared, number) {
                        Accepted::One(stream, dialect) => hand_over(shared, stream, dialect),
                        Accepted::Gone => {}
                        Accepted::None => *waiting = false,
                        Accepted::Full => full = true,
                    }
                }
            }
            match (full, paused_at) {
                (true, None) => {
                    paused_at = Some(Instant::now());
                    shared.tallies.rare.listen_disabled.fetch_add(1, Relaxed);
                    shared.accept_paused.store(true, Relaxed);
                }
                (false, Some(since)) => {
                    paused_at = None;
                    let paused_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                    shared.tallies.rare.listen_disabled_us.fetch_add(paused_us, Relaxed);
                    shared.accept_paused.store(false, Relaxed);
                }
                _ => {}
            }
        }
    }

    fn accept<S: Service>(&self, shared: &Shared<S>, number: usize) -> Accepted {
        let is_full = shared.tallies.connections() >= shared.settings.connections_max;
        if is_full && !shared.settings.connections_max_fast {
            return Accepted::Full;
        }
        let accepted = match (self.tcp.get(number), &self.unix) {
            (Some(bound), _) => bound.listener.accept().map(|(socket, _)| (Stream::Tcp(socket), bound.dialect)),
            (None, Some(unix)) => unix.listener.accept().map(|(socket, _)| (Stream::Unix(socket), Dialect::Memcached)),
            (None, None) => return Accepted::None,
        };
        match accepted {
            Ok((stream, dialect)) if is_full => {
                // Counted before the client can know.
                shared.tallies.rare.connections_rejected.fetch_add(1, Relaxed);
                turn_away(stream, dialect);
                Accepted::Gone
            }
            Ok((stream, dialect)) => Accepted::One(stream, dialect),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Accepted::None,
            Err(error) if is_exhausted(&error) => {
                tracing::warn!("no file descriptor for another connection: raise ulimit -n or lower -c");
                Accepted::Full
            }
            // The client went away while it waited, or the network failed for it alone.
            Err(_) => Accepted::Gone,
        }
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn turn_away(stream: Stream, dialect: Dialect) {
    if !dialect.has_lines() {
        return;
    }
    let _ = match stream {
        Stream::Tcp(mut socket) => socket.write(TOO_MANY),
        Stream::Unix(mut socket) => socket.write(TOO_MANY),
    };
}

fn hand_over<S: Service>(shared: &Shared<S>, stream: Stream, dialect: Dialect) {
    let workers = shared.tallies.workers.iter().enumerate();
    let fewest = workers.min_by_key(|(_, worker)| worker.connections.load(Relaxed));
    let (index, worker) = fewest.expect("a server has at least one worker");
    worker.connections.fetch_add(1, Relaxed);
    shared.tallies.rare.connections_total.fetch_add(1, Relaxed);
    shared.mailboxes[index].send(Message::Connected(stream, dialect));
}
