//! The streams that others have opened to us.
//!
//! ```text
//! accepted (STRANGERS_MAX, for GREET_WITHIN) --hello, challenge, proof--> a member's (STREAMS_A_MEMBER) --> messages
//! ```
//! Always true: who has not greeted costs a place of few for a short time, and no memory but that of a greeting; a message is read on only
//! while there is room for all of it among those that are being read ([`BEING_READ_LEN_MAX`]), so what is read is finished and not dropped;
//! what is not read stays with its sender.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

use guira_item::{Moment, Span};
use guira_routing::NodeId;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use super::greeting::{NoGreeting, Nonces};
use super::reader::{Long, Step, StreamError, StreamReader};
use super::{Tokens, View, canonical};
use crate::counts::Counts;
use crate::refusal::{Refusal, counter, judge, note};

/// Streams that have not greeted yet: many members that open theirs at once come through, and who only connects costs no more than this.
/// The oldest that has not said hello makes room; if all have, the next waits with the kernel.
const STRANGERS_MAX: usize = 16;

/// How long a greeting may take.
const GREET_WITHIN: Span = Span::from_s(3);

/// Streams of one member: the one it uses, and one of before that may have something left.
const STREAMS_A_MEMBER: usize = 2;

/// Bytes of messages that are being read, over all streams: three of the longest, and much of a fourth.
const BEING_READ_LEN_MAX: usize = 64 << 20;

/// How long nothing may come of a message that is being read: its place is wanted by others.
const STALLS_FOR: Span = Span::from_s(5);

/// How long a stream may have nothing to say. Its sender closes it before.
const IDLE_FOR: Span = Span::from_s(300);

/// Bytes of one read.
const READ_LEN: usize = 128 << 10;

/// Reads of a round, between two looks at everything else.
const READS_A_ROUND: usize = 64;

/// Connections that are looked at in a round: those from where no member is take no place.
const ACCEPTS_A_ROUND: usize = 64;

/// How long after a failure to take one another is tried: it was for want of descriptors.
const ACCEPT_AGAIN_AFTER: Span = Span::from_ms(100);

struct Stream {
    socket: TcpStream,
    peer: IpAddr,
    reader: StreamReader,
    /// It has begun to greet: somebody with the secret has, now or some time ago.
    has_said_hello: bool,
    /// Who has greeted.
    member: Option<NodeId>,
    /// Bytes of the message that is being read, which nobody else may use.
    reserved: usize,
    /// When it was accepted, or something came last.
    heard_at: Moment,
}

impl Stream {
    fn ends_at(&self) -> Moment {
        self.heard_at
            + match (self.member, self.reserved) {
                (None, _) => GREET_WITHIN,
                (Some(_), 0) => IDLE_FOR,
                (Some(_), _) => STALLS_FOR,
            }
    }
}

/// What came of one read.
enum Came {
    /// Something: there may be more.
    Some,
    /// All there is has been read.
    Nothing,
    /// There is no room for the message that begins.
    NoRoom,
    /// The stream is over.
    End,
}

/// All of them.
pub(super) struct Incoming {
    listener: TcpListener,
    may_accept: bool,
    accept_again_at: Option<Moment>,
    nonces: Nonces,
    /// In the order in which they were accepted.
    streams: BTreeMap<Token, Stream>,
    /// Those that may have something to read, each once.
    ready: VecDeque<Token>,
    /// Those that wait for room.
    parked: Vec<Token>,
    being_read_len: usize,
    buffer: Box<[u8]>,
}

impl Incoming {
    pub(super) fn bind(address: SocketAddr, seed: [u8; 32]) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address)?,
            may_accept: false,
            accept_again_at: None,
            nonces: Nonces::new(seed),
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            being_read_len: 0,
            buffer: vec![0; READ_LEN].into_boxed_slice(),
        })
    }

    pub(super) fn attach(&mut self, registry: &Registry, listener: Token) -> io::Result<()> {
        registry.register(&mut self.listener, listener, Interest::READABLE)
    }

    pub(super) fn nonces(&mut self) -> &mut Nonces {
        &mut self.nonces
    }

    /// The listener has something.
    pub(super) fn on_knock(&mut self) {
        self.may_accept = true;
    }

    /// One of the streams has something, if it is one of these.
    pub(super) fn on_readable(&mut self, token: Token) {
        if self.streams.contains_key(&token) && !self.ready.contains(&token) && !self.parked.contains(&token) {
            self.ready.push_back(token);
        }
    }

    /// Whether there is something to do at once.
    pub(super) fn has_work(&self) -> bool {
        (self.may_accept && self.places() > 0) || !self.ready.is_empty()
    }

    /// Reads and takes connections, some of each; `each` is given the messages. Who has said hello is heard before others may take its place.
    pub(super) fn receive(
        &mut self,
        now: Moment,
        view: &mut View<'_>,
        tokens: &mut Tokens,
        each: &mut impl FnMut(Long),
    ) {
        for _ in 0..READS_A_ROUND {
            let Some(token) = self.ready.pop_front() else { break };
            match self.read(token, now, view, each) {
                Came::Some => self.ready.push_back(token),
                Came::Nothing => {}
                Came::NoRoom => self.parked.push(token),
                Came::End => self.close(token),
            }
        }
        self.accept(now, view, tokens);
    }

    /// Streams that have not greeted, oldest first, each with whether another may take its place: it has not said hello, and says nothing now.
    fn strangers(&self) -> impl Iterator<Item = (Token, bool)> {
        let strangers = self.streams.iter().filter(|(_, stream)| stream.member.is_none());
        strangers.map(|(token, stream)| (*token, !stream.has_said_hello && !self.ready.contains(token)))
    }

    /// How many may be taken now: that are free, or may be made so.
    fn places(&self) -> usize {
        STRANGERS_MAX - self.strangers().filter(|(_, may_go)| !may_go).count()
    }

    fn accept(&mut self, now: Moment, view: &mut View<'_>, tokens: &mut Tokens) {
        self.may_accept |= self.accept_again_at.take_if(|at| *at <= now).is_some();
        if !self.may_accept {
            return;
        }
        let mut places = self.places();
        for _ in 0..ACCEPTS_A_ROUND {
            if places == 0 {
                // The rest waits with the kernel: none that is taken in a round makes room for another of the same.
                return;
            }
            match self.listener.accept() {
                Ok((socket, peer)) => places -= usize::from(self.take(socket, peer.ip(), now, view, tokens)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.may_accept = false;
                    return;
                }
                // It was gone before it was taken.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => {
                    self.may_accept = false;
                    self.accept_again_at = Some(now + ACCEPT_AGAIN_AFTER);
                    return;
                }
            }
        }
    }

    /// Gives a connection a place, if it is from where a member is; whether it was.
    fn take(
        &mut self,
        mut socket: TcpStream,
        peer: IpAddr,
        now: Moment,
        view: &mut View<'_>,
        tokens: &mut Tokens,
    ) -> bool {
        let is_members = view.members.iter().any(|(_, address)| canonical(address.ip()) == canonical(peer));
        let token = if is_members { tokens.register(&mut socket, Interest::READABLE) } else { None };
        let Some(token) = token else {
            view.counts.in_unwanted += 1;
            return false;
        };
        if self.strangers().count() >= STRANGERS_MAX {
            let oldest = self.strangers().find(|(_, may_go)| *may_go);
            let (oldest, _) = oldest.expect("no more are taken than there are places");
            view.counts.in_unwanted += 1;
            self.close(oldest);
        }
        let reader = StreamReader::new(self.nonces.next());
        let stream = Stream { socket, peer, reader, has_said_hello: false, member: None, reserved: 0, heard_at: now };
        self.streams.insert(token, stream);
        true
    }

    /// Reads once from a stream.
    fn read(&mut self, token: Token, now: Moment, view: &mut View<'_>, each: &mut impl FnMut(Long)) -> Came {
        let Some(stream) = self.streams.get_mut(&token) else { return Came::Nothing };
        if let Some(len) = stream.reader.announced().filter(|_| stream.reserved == 0) {
            if self.being_read_len > 0 && self.being_read_len + len > BEING_READ_LEN_MAX {
                return Came::NoRoom;
            }
            self.being_read_len += len;
            stream.reserved = len;
        }
        let room = stream.reader.wanted().min(self.buffer.len());
        let len = match stream.socket.read(&mut self.buffer[..room]) {
            Ok(0) => {
                // A member that has something to say opens another.
                view.counts.in_unwanted += u64::from(stream.member.is_none());
                return Came::End;
            }
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Came::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Came::Some,
            Err(_) => return Came::End,
        };
        if stream.member.is_some() {
            stream.heard_at = now;
        }
        view.counts.long_bytes_in += len as u64;
        let peer = canonical(stream.peer);
        let is_there = |address: SocketAddr| canonical(address.ip()) == peer;
        match stream.reader.take(view.sealer, &self.buffer[..len]) {
            Ok(Step::More) => Came::Some,
            Ok(Step::Hello { from, challenge, .. }) => match judge(view.members, from, is_there) {
                // What nothing was sent on takes so much.
                Ok(()) if matches!(stream.socket.write(&challenge), Ok(sent) if sent == challenge.len()) => {
                    stream.has_said_hello = true;
                    Came::Some
                }
                Ok(()) => Came::End,
                Err(reason) => refuse(view.counts, reason),
            },
            Ok(Step::Greeted { from }) => {
                (stream.member, stream.heard_at) = (Some(from), now);
                view.counts.streams_in += 1;
                self.close_older(from);
                Came::Some
            }
            Ok(Step::Message(long)) => {
                self.being_read_len -= std::mem::take(&mut stream.reserved);
                self.ready.extend(self.parked.drain(..));
                view.counts.long_in += 1;
                match judge(view.members, long.from, is_there) {
                    Ok(()) => {
                        note(view.counts, view.members, long.epoch);
                        each(long);
                        Came::Some
                    }
                    Err(reason) => refuse(view.counts, reason),
                }
            }
            Err(StreamError::Greeting(NoGreeting::Rejected(rejection)) | StreamError::Rejected(rejection)) => {
                refuse(view.counts, Refusal::Rejected(rejection))
            }
            Err(StreamError::Greeting(NoGreeting::NotAnAnswer)) => refuse_unwanted(view.counts),
            Err(StreamError::OtherSender) => refuse(view.counts, Refusal::WrongAddress),
            Err(StreamError::Length(_)) => refuse(view.counts, Refusal::Malformed),
        }
    }

    /// Leaves a member no more streams than it may have: the newest.
    fn close_older(&mut self, member: NodeId) {
        let of_member = self.streams.iter().filter(|(_, stream)| stream.member == Some(member));
        let of_member: Vec<Token> = of_member.map(|(token, _)| *token).collect();
        let older = of_member.len().saturating_sub(STREAMS_A_MEMBER);
        of_member.into_iter().take(older).for_each(|token| self.close(token));
    }

    fn close(&mut self, token: Token) {
        let Some(stream) = self.streams.remove(&token) else { return };
        self.being_read_len -= stream.reserved;
        self.ready.retain(|other| *other != token);
        self.parked.retain(|other| *other != token);
        if stream.reserved > 0 {
            self.ready.extend(self.parked.drain(..));
        }
    }

    /// Closes what has taken too long.
    pub(super) fn tend(&mut self, now: Moment, counts: &mut Counts) {
        let late: Vec<Token> =
            self.streams.iter().filter(|(_, stream)| stream.ends_at() <= now).map(|(token, _)| *token).collect();
        for token in late {
            counts.in_unwanted += u64::from(self.streams[&token].member.is_none());
            self.close(token);
        }
    }

    /// Where it listens.
    #[cfg(test)]
    pub(super) fn local_address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Streams there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of messages that are being read; of messages that are not, some wait.
    #[cfg(test)]
    pub(super) fn reading(&self) -> (usize, bool) {
        (self.being_read_len, !self.parked.is_empty())
    }

    /// When there is something to tend, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        self.streams.values().map(Stream::ends_at).chain(self.accept_again_at).min()
    }
}

fn refuse(counts: &mut Counts, reason: Refusal) -> Came {
    *counter(counts, reason) += 1;
    Came::End
}

fn refuse_unwanted(counts: &mut Counts) -> Came {
    counts.in_unwanted += 1;
    Came::End
}
