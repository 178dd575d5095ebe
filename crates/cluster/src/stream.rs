//! Streams: how messages go that are too long for a datagram, over TCP between the addresses that the members have.
//!
//! A stream carries messages one way, from who has opened it. It promises what datagrams promise: a message is what a member has sent to us, in
//! this view; it may be lost (streams break, queues are full), come again, and be overtaken.
//!
//! - [`greeting`]: how it begins. [`reader`]: what is made of its bytes. Both without I/O.
//! - [`incoming`]: those that others have opened. [`outward`]: those that we open.

mod greeting;
mod incoming;
mod outward;
mod reader;

use std::io;
use std::net::{IpAddr, SocketAddr};

use guira_item::Moment;
use guira_routing::NodeId;
use mio::event::Source;
use mio::{Interest, Registry, Token};

use crate::counts::Counts;
use crate::members::Members;
use crate::seal::Sealer;

pub use greeting::{Caller, GREETING_LEN, Greeting, NoGreeting, Nonce};
use incoming::Incoming;
use outward::Outward;
pub use reader::{LONG_MESSAGE_LEN_MAX, Long, Step, StreamError, StreamReader, long_frame};

/// What a transport goes by, and where it counts.
pub(crate) struct View<'v> {
    pub(crate) sealer: &'v Sealer,
    pub(crate) members: &'v Members,
    pub(crate) counts: &'v mut Counts,
}

/// Names sockets to a poll. No name is used twice, so an event of a socket that is closed is nobody's.
struct Tokens {
    registry: Option<Registry>,
    next: Token,
}

impl Tokens {
    /// Has a socket polled, edge-triggered; `None` if there is no poll, or it takes no more.
    fn register(&mut self, socket: &mut impl Source, interests: Interest) -> Option<Token> {
        let token = self.next;
        self.registry.as_ref()?.register(socket, token, interests).ok()?;
        self.next = Token(token.0 + 1);
        Some(token)
    }
}

/// All streams of a node.
pub(crate) struct Streams {
    listener: Token,
    tokens: Tokens,
    incoming: Incoming,
    outward: Outward,
}

impl Streams {
    /// Listens where the node's socket for datagrams is.
    pub(crate) fn bind(address: SocketAddr, seed: [u8; 32]) -> io::Result<Self> {
        Ok(Self {
            listener: Token(0),
            tokens: Tokens { registry: None, next: Token(0) },
            incoming: Incoming::bind(address, seed)?,
            outward: Outward::new(address.ip()),
        })
    }

    /// Has all sockets polled by `registry`, whose tokens from `first` on are theirs.
    pub(crate) fn attach(&mut self, registry: Registry, first: Token) -> io::Result<()> {
        self.incoming.attach(&registry, first)?;
        self.listener = first;
        self.tokens = Tokens { registry: Some(registry), next: Token(first.0 + 1) };
        Ok(())
    }

    /// Gives each message a write of its own from now on.
    pub(crate) fn uncoalesce(&mut self) {
        self.outward.uncoalesce();
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, now: Moment, to: NodeId, address: SocketAddr, message: &[u8], view: &mut View<'_>) {
        if message.len() > LONG_MESSAGE_LEN_MAX {
            view.counts.out_too_long += 1;
        } else {
            self.outward.push(now, to, address, message, view);
        }
    }

    /// Another view is gone by.
    pub(crate) fn heed(&mut self, view: &mut View<'_>) {
        self.outward.heed(view);
    }

    /// One of the sockets has something, or takes something.
    pub(crate) fn on_event(&mut self, token: Token, is_readable: bool, is_writable: bool) {
        if token == self.listener {
            self.incoming.on_knock();
        } else {
            self.incoming.on_readable(token);
            self.outward.on_event(token, is_readable, is_writable);
        }
    }

    /// Reads some of what has come; `each` is given the messages.
    pub(crate) fn receive(&mut self, now: Moment, view: &mut View<'_>, each: &mut impl FnMut(Long)) {
        self.incoming.receive(now, view, &mut self.tokens, each);
    }

    /// Sends what the sockets take.
    pub(crate) fn flush(&mut self, now: Moment, view: &mut View<'_>) {
        self.outward.flush(now, view, &mut self.tokens, self.incoming.nonces());
    }

    /// Closes what has taken too long.
    pub(crate) fn tend(&mut self, now: Moment, counts: &mut Counts) {
        self.incoming.tend(now, counts);
        self.outward.tend(now, counts);
    }

    /// Whether there is something to read at once.
    pub(crate) fn has_work(&self) -> bool {
        self.incoming.has_work()
    }

    /// When it has to be tended or flushed, if nothing happens before.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        self.incoming.wake_at().into_iter().chain(self.outward.wake_at()).min()
    }
}

/// One form for a host: a socket for both families sees IPv4's as IPv6's.
fn canonical(host: IpAddr) -> IpAddr {
    host.to_canonical()
}

#[cfg(test)]
#[path = "stream/stream_tests.rs"]
mod tests;
