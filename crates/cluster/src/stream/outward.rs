//! The streams that we open to others, one to each node to which something long is to be sent, and what waits for them.
//!
//! ```text
//! send --> queue --(connect, hello, challenge, proof)--> written, first come first sent
//! ```
//! What waits for a node goes in one write, as far as its socket takes it; or, to compare, each message in one of its own.
//!
//! Always true: what waits is bounded, for each node and for all; a message that waits here is not queued again; what cannot be sent in time is
//! dropped with its stream, as a network would drop it; a message that a broken stream has cut is sent again whole on the next one, a few times.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use guira_item::{Moment, Span};
use guira_routing::NodeId;
use mio::net::TcpStream;
use mio::{Interest, Token};
use socket2::{Domain, Protocol, Socket, Type};

use super::greeting::{Caller, GREETING_LEN, Greeting, Nonces};
use super::reader::{long_frame, seal_of};
use super::{Tokens, View};
use crate::counts::Counts;

/// Bytes that may wait for one node: half a second at a gigabit a second, and three of the longest messages. What would stand behind so much is
/// better sent again by its session.
const NODE_LEN_MAX: usize = 64 << 20;

/// Bytes that may wait for all.
const LEN_MAX: usize = 256 << 20;

/// How long nothing may move while something waits: whoever does not read is gone, or as good as that. What our own kernel has taken has not moved
/// yet: of that the kernel says when it is not acknowledged.
const STALLS_FOR: Span = Span::from_s(5);

/// How long a stream stays open with nothing to say.
const IDLE_FOR: Span = Span::from_s(60);

/// Between the end of a stream and the next one to the same node.
const AGAIN_AFTER: Span = Span::from_ms(100);

/// Streams that may end in the middle of one message: its receiver does not want it, and others wait behind it.
const CUTS_MAX: u32 = 3;

/// Messages of a write: those that come here are 64 KiB and more, so a socket takes no more of them at once.
const MESSAGES_A_WRITE: usize = 64;

/// How far a stream is.
enum Stage {
    /// Connected, or not yet.
    Connecting,
    /// Has said hello.
    Called { challenge: Greeting, came: usize },
    /// Carries messages.
    Open,
}

struct Stream {
    socket: TcpStream,
    token: Token,
    caller: Caller,
    stage: Stage,
    is_readable: bool,
    is_writable: bool,
}

/// Why a stream is over.
struct Ended;

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Stream {
    /// Greets, as far as it goes; whether it is open.
    fn greet(&mut self, view: &View<'_>) -> Result<bool, Ended> {
        if let Stage::Connecting = self.stage {
            if let Some(error) = self.socket.take_error()? {
                return Err(error.into());
            }
            if !self.is_writable || self.socket.peer_addr().is_err() {
                return Ok(false);
            }
            self.say(&self.caller.hello(view.sealer))?;
            self.stage = Stage::Called { challenge: [0; GREETING_LEN], came: 0 };
        }
        while let Stage::Called { challenge, came } = &mut self.stage {
            match self.socket.read(&mut challenge[*came..]) {
                Ok(0) => return Err(Ended),
                Ok(len) => *came += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Ended),
            }
            if *came == GREETING_LEN {
                let proof = self.caller.proof(view.sealer, challenge).map_err(|_| Ended)?;
                self.say(&proof)?;
                self.stage = Stage::Open;
            }
        }
        Ok(true)
    }

    /// Says a part of a greeting, for which a socket that has sent nothing has room.
    fn say(&mut self, greeting: &Greeting) -> Result<(), Ended> {
        match self.socket.write(greeting) {
            Ok(len) if len == greeting.len() => Ok(()),
            _ => Err(Ended),
        }
    }

    /// Whether the other end is there: it has nothing more to say.
    fn listen(&mut self) -> Result<(), Ended> {
        if !self.is_readable {
            return Ok(());
        }
        match self.socket.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            _ => Err(Ended),
        }
    }
}

/// One node.
struct Receiver {
    address: SocketAddr,
    queue: VecDeque<Vec<u8>>,
    /// Bytes in the queue.
    len: usize,
    /// Bytes of the first that the stream has taken.
    written: usize,
    /// Streams that have ended in the middle of the first.
    cuts: u32,
    stream: Option<Stream>,
    /// No stream is opened before.
    again_at: Moment,
    /// When something moved last.
    moved_at: Moment,
}

impl Receiver {
    fn ends_at(&self) -> Moment {
        match (&self.stream, self.queue.is_empty()) {
            (None, _) => self.again_at,
            (Some(_), false) => self.moved_at + STALLS_FOR,
            (Some(_), true) => self.moved_at + IDLE_FOR,
        }
    }

    /// Nothing waits any more, but for who gets it by another way.
    fn drop_all(&mut self, counts: &mut Counts) {
        counts.out_long_lost += self.queue.len() as u64;
        self.queue.clear();
        (self.len, self.written, self.cuts) = (0, 0, 0);
    }

    /// A stream that was open is over: what it has cut is sent again, unless that has been so a few times.
    fn on_cut(&mut self, counts: &mut Counts) {
        self.cuts += u32::from(self.written > 0);
        self.written = 0;
        if self.cuts >= CUTS_MAX {
            self.cuts = 0;
            if let Some(first) = self.queue.pop_front() {
                self.len -= first.len();
                counts.out_long_lost += 1;
            }
        }
    }
}

/// All of them.
pub(super) struct Outward {
    /// From where streams are opened: that is looked at.
    host: IpAddr,
    receivers: BTreeMap<NodeId, Receiver>,
    /// Bytes that wait.
    len: usize,
    /// Of a write.
    messages_a_write: usize,
}

impl Outward {
    pub(super) fn new(host: IpAddr) -> Self {
        Self { host, receivers: BTreeMap::new(), len: 0, messages_a_write: MESSAGES_A_WRITE }
    }

    /// Gives each message a write of its own from now on.
    pub(super) fn uncoalesce(&mut self) {
        self.messages_a_write = 1;
    }

    /// Queues a message, or drops and counts it.
    pub(super) fn push(&mut self, now: Moment, to: NodeId, address: SocketAddr, message: &[u8], view: &mut View<'_>) {
        let receiver = self.receivers.entry(to).or_insert_with(|| Receiver {
            address,
            queue: VecDeque::new(),
            len: 0,
            written: 0,
            cuts: 0,
            stream: None,
            again_at: now,
            moved_at: now,
        });
        if receiver.len + message.len() > NODE_LEN_MAX || self.len + message.len() > LEN_MAX {
            view.counts.out_long_full += 1;
            return;
        }
        let frame = long_frame(view.sealer, view.members.epoch(), to, message);
        if receiver.queue.iter().any(|waiting| seal_of(waiting) == seal_of(&frame)) {
            view.counts.out_long_same += 1;
            return;
        }
        if receiver.queue.is_empty() {
            receiver.moved_at = now;
        }
        receiver.len += frame.len();
        self.len += frame.len();
        receiver.queue.push_back(frame);
    }

    /// One of the streams can be read or written, if it is one of these.
    pub(super) fn on_event(&mut self, token: Token, is_readable: bool, is_writable: bool) {
        let mut streams = self.receivers.values_mut().filter_map(|receiver| receiver.stream.as_mut());
        if let Some(stream) = streams.find(|stream| stream.token == token) {
            stream.is_readable |= is_readable;
            stream.is_writable |= is_writable;
        }
    }

    /// Opens what is to be opened, and sends what the streams take.
    pub(super) fn flush(&mut self, now: Moment, view: &mut View<'_>, tokens: &mut Tokens, nonces: &mut Nonces) {
        let (host, messages_a_write) = (self.host, self.messages_a_write);
        for (to, receiver) in &mut self.receivers {
            let before = receiver.len;
            if receiver.stream.is_none() && !receiver.queue.is_empty() && receiver.again_at <= now {
                let caller = Caller::new(*to, view.members.epoch(), nonces.next());
                match open(host, receiver.address, caller, tokens) {
                    Ok(stream) => (receiver.stream, receiver.moved_at) = (Some(stream), now),
                    Err(_) => {
                        receiver.again_at = now + AGAIN_AFTER;
                        receiver.drop_all(view.counts);
                    }
                }
            }
            if receiver.stream.is_some() && advance(receiver, now, messages_a_write, view).is_err() {
                let was_open = receiver.stream.take().is_some_and(|stream| matches!(stream.stage, Stage::Open));
                receiver.again_at = now + AGAIN_AFTER;
                if was_open {
                    receiver.on_cut(view.counts);
                } else {
                    // Nobody is there.
                    receiver.drop_all(view.counts);
                }
            }
            self.len -= before - receiver.len;
        }
    }

    /// Closes what has nothing to say, or what nothing moves on.
    pub(super) fn tend(&mut self, now: Moment, counts: &mut Counts) {
        let len = &mut self.len;
        self.receivers.retain(|_, receiver| {
            let is_late = receiver.ends_at() <= now;
            if receiver.stream.is_some() && is_late {
                *len -= receiver.len;
                receiver.drop_all(counts);
                (receiver.stream, receiver.again_at) = (None, now + AGAIN_AFTER);
            }
            receiver.stream.is_some() || !receiver.queue.is_empty() || receiver.again_at > now
        });
    }

    /// Nodes that have gone or are elsewhere have nothing to come any more.
    pub(super) fn heed(&mut self, view: &mut View<'_>) {
        let len = &mut self.len;
        self.receivers.retain(|node, receiver| {
            let stays = view.members.address(*node) == Some(receiver.address);
            if !stays {
                *len -= receiver.len;
                receiver.drop_all(view.counts);
            }
            stays
        });
    }

    /// Streams there are.
    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.receivers.values().filter(|receiver| receiver.stream.is_some()).count()
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How long what the kernel has taken may go without an acknowledgement, of each stream.
    #[cfg(test)]
    pub(super) fn unacknowledged_for(&self) -> Vec<Option<Duration>> {
        let streams = self.receivers.values().filter_map(|receiver| receiver.stream.as_ref());
        streams.map(|stream| socket2::SockRef::from(&stream.socket).tcp_user_timeout().unwrap()).collect()
    }

    /// When there is something to tend, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        self.receivers.values().map(Receiver::ends_at).min()
    }
}

fn open(host: IpAddr, to: SocketAddr, caller: Caller, tokens: &mut Tokens) -> io::Result<Stream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // It is no obstacle to who listens on its port later: a member that comes again.
    socket.set_reuse_address(true)?;
    // From the address that the view has of us.
    socket.bind(&SocketAddr::new(host, 0).into())?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(Duration::from_nanos(STALLS_FOR.ns())))?;
    let mut socket = TcpStream::from_std(socket.into());
    let token = tokens.register(&mut socket, Interest::READABLE | Interest::WRITABLE);
    let token = token.ok_or(ErrorKind::Other)?;
    Ok(Stream { socket, token, caller, stage: Stage::Connecting, is_readable: false, is_writable: false })
}

/// Greets and writes, until the stream takes no more.
fn advance(receiver: &mut Receiver, now: Moment, messages_a_write: usize, view: &mut View<'_>) -> Result<(), Ended> {
    let Receiver { stream: Some(stream), queue, len, written, cuts, moved_at, .. } = receiver else { return Ok(()) };
    if !matches!(stream.stage, Stage::Open) {
        if !stream.greet(view)? {
            return Ok(());
        }
        *moved_at = now;
        view.counts.streams_out += 1;
    }
    stream.listen()?;
    while !queue.is_empty() && stream.is_writable {
        let rest = queue.iter().take(messages_a_write).enumerate();
        let slices: Vec<IoSlice<'_>> =
            rest.map(|(at, frame)| IoSlice::new(if at == 0 { &frame[*written..] } else { frame })).collect();
        match stream.socket.write_vectored(&slices) {
            Ok(sent) => {
                (*written, *moved_at) = (*written + sent, now);
                view.counts.long_writes += 1;
                while let Some(first) = queue.front().map(Vec::len).filter(|first| *written >= *first) {
                    view.counts.long_out += 1;
                    view.counts.long_bytes_out += first as u64;
                    *len -= first;
                    (*written, *cuts) = (*written - first, 0);
                    queue.pop_front();
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.is_writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Ended),
        }
    }
    Ok(())
}
