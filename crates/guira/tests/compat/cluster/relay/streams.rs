//! Streams through the relay, from one member to another: what goes in comes out, later if the way is slow, and not while it is cut.
//!
//! Always true: a stream comes from the address at which its receiver sees its sender, but for the port; while a way is cut both ends stay connected
//! and hear nothing, as they would of a network that is gone; a connection's threads end soon after the relay does.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use mio::{Interest, Registry, Token};
use rand::RngExt;
use socket2::{Domain, Socket, Type};

use super::{Shared, Way};

/// Streams at a time: several for each of a few members. Further ones are closed.
const STREAMS_MAX: usize = 256;

/// How long connecting to a member may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How often a stream on which nothing happens looks whether the relay has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is read at a time: a value of the usual size and its headers at once, so that it is under way as one.
const PIECE_LEN: usize = 1 << 20;

/// What is written before it is looked again whether the way is cut.
const WRITE_LEN: usize = 16 << 10;

/// The sockets at which streams come in.
pub(super) struct Streams {
    shared: Arc<Shared>,
    real: Vec<SocketAddr>,
    /// By the place of a way, with where it is.
    listeners: Vec<Option<(mio::net::TcpListener, SocketAddr)>>,
    count: Arc<AtomicUsize>,
}

impl Streams {
    pub(super) fn new(shared: Arc<Shared>, real: Vec<SocketAddr>) -> Self {
        Self { shared, real, listeners: Vec::new(), count: Arc::default() }
    }

    /// Listens for the next way's sender, where that sees its receiver.
    pub(super) fn listen(&mut self, way: Way, address: Option<SocketAddr>, registry: &Registry) {
        let listener = address.map(|address| {
            let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("listening on {address}: {error}"));
            listener.set_nonblocking(true).expect("a socket that does not block");
            let mut listener = mio::net::TcpListener::from_std(listener);
            let token = Token(self.real.len() * self.real.len() + self.shared.place(way));
            registry.register(&mut listener, token, Interest::READABLE).expect("a socket of ours");
            (listener, address)
        });
        self.listeners.push(listener);
    }

    /// Takes all that have come for a way.
    pub(super) fn accept(&self, at: usize) {
        let way = Way { from: at / self.real.len(), to: at % self.real.len() };
        while let Some((Ok((stream, _)), _)) = self.listeners[at].as_ref().map(|(listener, at)| (listener.accept(), at))
        {
            if self.count.fetch_add(1, Relaxed) >= STREAMS_MAX {
                self.count.fetch_sub(1, Relaxed);
                continue;
            }
            let seen_from = self.listeners[self.shared.place(way.back())].as_ref().expect("one for every way").1;
            let (shared, count, to) = (Arc::clone(&self.shared), Arc::clone(&self.count), self.real[way.to]);
            thread::spawn(move || {
                // Whatever has gone wrong, both ends are closed.
                let _ = carry(stream.into(), seen_from, to, &shared, way);
                count.fetch_sub(1, Relaxed);
            });
        }
    }
}

fn carry(from: TcpStream, seen_from: SocketAddr, to: SocketAddr, shared: &Shared, way: Way) -> io::Result<()> {
    from.set_nonblocking(false)?;
    // What connects is a message like any other.
    if !shared.lets_through(way) {
        return Ok(());
    }
    let onward = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    onward.bind(&SocketAddr::new(seen_from.ip(), 0).into())?;
    onward.connect_timeout(&to.into(), CONNECT_WITHIN)?;
    let onward = TcpStream::from(onward);
    for stream in [&from, &onward] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(LOOK_EVERY))?;
    }
    thread::scope(|scope| {
        scope.spawn(|| pump(&from, &onward, shared, way));
        pump(&onward, &from, shared, way.back());
    });
    Ok(())
}

/// Carries what comes, until there is no more.
fn pump(mut from: &TcpStream, mut to: &TcpStream, shared: &Shared, way: Way) {
    let mut piece = vec![0; PIECE_LEN];
    loop {
        match from.read(&mut piece) {
            Ok(0) => {
                if shared.lets_through(way) {
                    let _ = to.shutdown(Shutdown::Write);
                }
                return;
            }
            Ok(len) => {
                if shared.lets_through(way) && write_all(&mut to, &piece[..len], shared, way).is_ok() {
                    continue;
                }
            }
            Err(error) if is_no_end(&error) && !shared.state().is_stopping => continue,
            Err(_) => {}
        }
        // The other way has ended too, then.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        return;
    }
}

fn is_no_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn write_all(to: &mut impl Write, mut bytes: &[u8], shared: &Shared, way: Way) -> io::Result<()> {
    while !bytes.is_empty() {
        // A cut may have come since the piece was let through, or while its receiver was slow.
        if !shared.is_open(way) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        match to.write(&bytes[..bytes.len().min(WRITE_LEN)]) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if is_no_end(&error) && !shared.state().is_stopping => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Shared {
    /// Waits as long as what has come this way now is under way; false if the relay has ended meanwhile.
    fn lets_through(&self, way: Way) -> bool {
        let place = self.place(way);
        let delay = {
            let way = &mut self.state().ways[place];
            way.dice.random_range(way.treatment.delay.clone())
        };
        self.is_open_after(way, delay)
    }

    /// Waits as long as this way is cut; false if the relay has ended meanwhile.
    fn is_open(&self, way: Way) -> bool {
        self.is_open_after(way, Duration::ZERO)
    }

    fn is_open_after(&self, way: Way, delay: Duration) -> bool {
        let (place, due) = (self.place(way), Instant::now() + delay);
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if state.is_stopping {
                return false;
            }
            if now >= due && !state.ways[place].treatment.cut {
                return true;
            }
            // A cut lasts until somebody is told.
            let left = if now >= due { LOOK_EVERY } else { due - now };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}
