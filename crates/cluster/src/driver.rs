//! A driver: one thread, which puts one core on the sockets of one node.
//!
//! ```text
//! datagrams, routed gets ---> core ---> transport, flushed once a round
//! long messages -----------/  |
//! posted by other threads -/  wakes: tick
//! ```
//! A round takes datagrams, gets, streams and what was posted, some of each, so that none has to wait for the end of the others.
//!
//! Always true (R1): the moment that a core is told was read after what it is told had come. A core is told one thing at a time, on one
//! thread. Who posts never waits. While there is nothing to do the thread sleeps, and it never looks for work more often than a thousand
//! times a second by itself, whatever the core says.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, mem, vec};

use guira_item::{Moment, Span};
use guira_routing::{Header, NodeId};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::clocks::boot_now;
use crate::{Long, Transport};

const SOCKET: Token = Token(0);
const WAKE: Token = Token(1);
const GETS: Token = Token(2);
/// And all after it.
const STREAMS: Token = Token(3);

/// Events of one wait.
const EVENTS_LEN: usize = 64;

/// Posted things that are heeded in a round, between two looks at the socket.
const POSTED_A_ROUND: usize = 256;

/// Things that are heeded between two flushes: if each is answered with the longest datagram, that fits into what may wait to be sent.
const HEEDED_A_FLUSH: usize = 256;

/// The pause between two ticks that a core wants at once.
const PAUSE_MIN: Span = Span::from_ms(1);

/// What a driver drives: a state machine, and what carries out what it wants done. None of it may block.
pub trait Core: Send + 'static {
    /// What other threads tell it. Whoever posts sees to it that there are not too many at a time: the inbox takes all.
    type Local: Send + 'static;

    /// A member has sent a message, of which nothing is known but that.
    fn on_message(&mut self, now: Moment, from: NodeId, message: &[u8], transport: &mut Transport);

    /// A member has sent a message to an address that says this, and the network has brought it here.
    fn on_get(&mut self, now: Moment, from: NodeId, header: Header, message: &[u8], transport: &mut Transport);

    /// Another thread tells something.
    fn on_local(&mut self, now: Moment, local: Self::Local, transport: &mut Transport);

    /// Time has passed: at [`Core::wake_at`], a millisecond or so later, or earlier.
    fn on_tick(&mut self, now: Moment, transport: &mut Transport);

    /// When it has to be ticked.
    fn wake_at(&self, now: Moment) -> Option<Moment>;
}

/// What is posted, and whether the thread has to be woken for it.
struct Inbox<L> {
    /// `None` once the driver has ended.
    posted: Option<Vec<L>>,
    is_asleep: bool,
    is_stopping: bool,
}

struct Shared<L> {
    inbox: Mutex<Inbox<L>>,
    waker: Waker,
}

impl<L> Shared<L> {
    fn inbox(&self) -> MutexGuard<'_, Inbox<L>> {
        // What is in it is moved in and out whole.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, mut inbox: MutexGuard<'_, Inbox<L>>) {
        let is_asleep = mem::take(&mut inbox.is_asleep);
        drop(inbox);
        if is_asleep {
            // It fails if there are no descriptors or no memory, which it took when it was made.
            let _ = self.waker.wake();
        }
    }
}

/// Through which any thread tells a core something.
pub struct Poster<L>(Arc<Shared<L>>);

impl<L> Clone for Poster<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> fmt::Debug for Poster<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poster")
    }
}

impl<L> Poster<L> {
    /// Tells the core something, behind what was posted before.
    ///
    /// # Errors
    /// The driver has ended: it is given back. What was taken before is dropped if the driver ends first.
    pub fn post(&self, local: L) -> Result<(), L> {
        let mut inbox = self.0.inbox();
        match &mut inbox.posted {
            None => {
                drop(inbox);
                Err(local)
            }
            Some(posted) => {
                posted.push(local);
                self.0.wake(inbox);
                Ok(())
            }
        }
    }
}

/// Why a driver has ended, if nobody has stopped it.
#[derive(Debug)]
pub enum DriverError {
    /// The core has panicked, which was told on the standard error.
    Panicked,
    /// The system no longer says when something comes.
    Poll(io::Error),
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked => f.write_str("the driver's thread has panicked"),
            Self::Poll(error) => write!(f, "waiting for datagrams failed: {error}"),
        }
    }
}

impl std::error::Error for DriverError {}

/// A driver that runs; dropped, it is stopped, and waited for.
pub struct DriverHandle<L> {
    poster: Poster<L>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<L> fmt::Debug for DriverHandle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverHandle").field("runs", &self.runs()).finish_non_exhaustive()
    }
}

impl<L: Send + 'static> DriverHandle<L> {
    /// Puts a core on a socket, with a thread of this name. `make` is given what the core's own helpers may post through.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start<C: Core<Local = L>>(
        name: &str,
        transport: Transport,
        make: impl FnOnce(Poster<L>) -> C,
    ) -> io::Result<Self> {
        Self::try_start(name, transport, |poster| Ok(make(poster)))
    }

    /// The same, with a core that may not be to be had.
    ///
    /// # Errors
    /// It is not, or as [`start`](Self::start).
    pub fn try_start<C: Core<Local = L>>(
        name: &str,
        mut transport: Transport,
        make: impl FnOnce(Poster<L>) -> io::Result<C>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        transport.attach(poll.registry(), SOCKET, GETS, STREAMS)?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let inbox = Mutex::new(Inbox { posted: Some(Vec::new()), is_asleep: false, is_stopping: false });
        let shared = Arc::new(Shared { inbox, waker });
        let poster = Poster(Arc::clone(&shared));
        let core = make(poster.clone())?;
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let _ends = Ends(Arc::clone(&shared));
            Driver {
                core,
                transport,
                poll,
                shared,
                posted: Vec::new().into_iter(),
                arrived: Arrived::default(),
                long: Vec::new(),
                may_receive: true,
                may_receive_gets: true,
                waits_to_send: false,
                heeded: 0,
                ticked_at: None,
            }
            .run()
        })?;
        Ok(Self { poster, thread: Some(thread) })
    }
}

impl<L> DriverHandle<L> {
    /// See [`Poster::post`].
    ///
    /// # Errors
    /// The driver has ended.
    pub fn post(&self, local: L) -> Result<(), L> {
        self.poster.post(local)
    }

    /// For other threads.
    pub fn poster(&self) -> Poster<L> {
        self.poster.clone()
    }

    /// Whether it has not ended yet.
    pub fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the driver after the round it is in, and waits for its end. What is posted and not heeded is dropped, and so is the core.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn stop(mut self) -> Result<(), DriverError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DriverError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let mut inbox = self.poster.0.inbox();
        inbox.is_stopping = true;
        self.poster.0.wake(inbox);
        match thread.join() {
            Err(_) => Err(DriverError::Panicked),
            Ok(ended) => ended.map_err(DriverError::Poll),
        }
    }
}

impl<L> Drop for DriverHandle<L> {
    fn drop(&mut self) {
        // Who wants to know asks `stop`; a panic has been told about already.
        let _ = self.end();
    }
}

/// Closes the inbox when the thread ends, however it does.
struct Ends<L>(Arc<Shared<L>>);

impl<L> Drop for Ends<L> {
    fn drop(&mut self) {
        let posted = self.0.inbox().posted.take();
        drop(posted);
    }
}

/// Messages of one look at the socket: copied, so that the core may send while it heeds them.
#[derive(Default)]
struct Arrived {
    bytes: Vec<u8>,
    /// Senders, with what the address said of what the network has routed, and where their messages end.
    messages: Vec<(NodeId, Option<Header>, usize)>,
}

impl Arrived {
    fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
    }

    fn push(&mut self, from: NodeId, header: Option<Header>, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.messages.push((from, header, self.bytes.len()));
    }
}

struct Driver<C: Core> {
    core: C,
    transport: Transport,
    poll: Poll,
    shared: Arc<Shared<C::Local>>,
    /// What was taken out of the inbox and not heeded yet.
    posted: vec::IntoIter<C::Local>,
    arrived: Arrived,
    /// Messages of one look at the streams.
    long: Vec<Long>,
    /// The socket has not said that there is nothing left.
    may_receive: bool,
    /// Nor has that of gets.
    may_receive_gets: bool,
    /// The socket has been asked to say when it takes more.
    waits_to_send: bool,
    /// Since the last flush.
    heeded: usize,
    ticked_at: Option<Moment>,
}

impl<C: Core> Driver<C> {
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_LEN);
        while let Some(timeout) = self.timeout() {
            match self.poll.poll(&mut events, timeout.limit) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                Ok(()) | Err(_) => {}
            }
            self.shared.inbox().is_asleep = false;
            for event in &events {
                match event.token() {
                    SOCKET => self.may_receive |= event.is_readable(),
                    GETS => self.may_receive_gets |= event.is_readable(),
                    WAKE => {}
                    stream => {
                        let is_over = event.is_error() || event.is_read_closed();
                        self.transport.on_stream_event(stream, event.is_readable() || is_over, event.is_writable());
                    }
                }
            }
            self.take_datagrams();
            self.take_gets();
            self.take_long();
            self.take_posted();
            self.tick_if_due();
            self.flush()?;
        }
        Ok(())
    }

    /// How long it may sleep; `None`: it is to stop.
    fn timeout(&self) -> Option<Timeout> {
        let may_receive = self.may_receive || self.may_receive_gets;
        let has_work = may_receive || self.transport.streams().has_work() || !self.posted.as_slice().is_empty();
        let wake_in = if has_work { Some(Duration::ZERO) } else { self.sleep_for() };
        let mut inbox = self.shared.inbox();
        if inbox.is_stopping {
            return None;
        }
        let is_empty = inbox.posted.as_ref().is_none_or(Vec::is_empty);
        let limit = if is_empty { wake_in } else { Some(Duration::ZERO) };
        inbox.is_asleep = limit != Some(Duration::ZERO);
        Some(Timeout { limit })
    }

    /// Until the core is to be ticked, or a stream to be looked at.
    fn sleep_for(&self) -> Option<Duration> {
        let now = boot_now();
        let earliest = self.ticked_at.map_or(now, |at| at + PAUSE_MIN);
        let tick_at = self.core.wake_at(now).map(|at| at.max(earliest));
        let wake_at = tick_at.into_iter().chain(self.transport.streams().wake_at()).min()?;
        Some(Duration::from_nanos(wake_at.since(now).ns()))
    }

    fn take_datagrams(&mut self) {
        if !self.may_receive {
            return;
        }
        let Self { transport, arrived, .. } = self;
        arrived.clear();
        let received = transport.datagrams().receive(|from, message| arrived.push(from, None, message));
        // Of what a broken socket has to say there is no end: the next datagram is an event again.
        self.may_receive = received.is_ok_and(|received| received > 0);
        self.heed_arrived();
    }

    fn take_gets(&mut self) {
        if !self.may_receive_gets {
            return;
        }
        let Self { transport, arrived, .. } = self;
        arrived.clear();
        let received = transport.receive_gets(|from, header, message| arrived.push(from, Some(header), message));
        self.may_receive_gets = received.is_ok_and(|received| received > 0);
        self.heed_arrived();
    }

    fn heed_arrived(&mut self) {
        let now = boot_now();
        let arrived = mem::take(&mut self.arrived);
        let mut start = 0;
        for (from, header, end) in &arrived.messages {
            let message = &arrived.bytes[start..*end];
            match header {
                None => self.core.on_message(now, *from, message, &mut self.transport),
                Some(header) => self.core.on_get(now, *from, *header, message, &mut self.transport),
            }
            start = *end;
            self.count_heeded();
        }
        self.arrived = arrived;
    }

    fn take_long(&mut self) {
        let mut long = mem::take(&mut self.long);
        self.transport.receive_long(|message| long.push(message));
        if !long.is_empty() {
            let now = boot_now();
            for message in long.drain(..) {
                self.core.on_message(now, message.from, message.message(), &mut self.transport);
                self.count_heeded();
            }
        }
        self.long = long;
    }

    fn take_posted(&mut self) {
        if self.posted.as_slice().is_empty() {
            let posted = self.shared.inbox().posted.as_mut().map(mem::take);
            self.posted = posted.unwrap_or_default().into_iter();
        }
        if self.posted.as_slice().is_empty() {
            return;
        }
        let now = boot_now();
        for _ in 0..POSTED_A_ROUND {
            let Some(local) = self.posted.next() else { break };
            self.core.on_local(now, local, &mut self.transport);
            self.count_heeded();
        }
    }

    fn tick_if_due(&mut self) {
        let now = boot_now();
        let may_tick = self.ticked_at.is_none_or(|at| now.since(at) >= PAUSE_MIN);
        if may_tick && self.core.wake_at(now).is_some_and(|at| at <= now) {
            self.ticked_at = Some(now);
            self.core.on_tick(now, &mut self.transport);
        }
    }

    fn count_heeded(&mut self) {
        self.heeded += 1;
        if self.heeded == HEEDED_A_FLUSH {
            self.heeded = 0;
            self.transport.flush();
        }
    }

    /// Sends what waits. The socket says when it takes more only if it is asked to: it would after each datagram.
    fn flush(&mut self) -> io::Result<()> {
        self.heeded = 0;
        self.transport.flush();
        let datagrams = self.transport.datagrams();
        if datagrams.has_unsent() != self.waits_to_send {
            self.waits_to_send = !self.waits_to_send;
            let both = Interest::READABLE | Interest::WRITABLE;
            let interests = if self.waits_to_send { both } else { Interest::READABLE };
            self.poll.registry().reregister(datagrams, SOCKET, interests)?;
        }
        Ok(())
    }
}

/// How long a wait may take; `None`: until something comes.
struct Timeout {
    limit: Option<Duration>,
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
