//! UDP sockets: datagrams in, each answered as it comes or when its answers do; the frames are `guira_memcache::udp`'s.
//!
//! Always true: a datagram is a session of its own, so nothing is kept between two; what is malformed, split over several
//! datagrams or unfinished is dropped without an answer, as memcached does.

use std::io::ErrorKind;
use std::net::SocketAddr;

use guira_item::{Service, Ticket};
use guira_memcache::udp::{self, RequestId};
use guira_memcache::{Next, Session};
use mio::net::UdpSocket;
use slab::Slab;

use crate::control::{self, Outcome};
use crate::desk::{Desk, Progress, Resume};

/// The longest datagram there is.
const DATAGRAM_LEN_ANY: usize = 64 << 10;

/// Datagrams answered before the connections have their turn again.
const DATAGRAMS_PER_TURN: usize = 64;

/// Datagrams that may wait for late answers; further ones are dropped, as a full network would.
const WAITING_MAX: usize = 1024;

/// The longest answer, in bytes: more than anybody can expect to get through in datagrams.
const ANSWER_LEN_MAX: usize = 8 << 20;

/// Said to a `flush_all` that is carried out later.
const FLUSH_UNTOLD: &[u8] = b"SERVER_ERROR flush_all goes on, whether it succeeds is told over TCP only\r\n";

/// Marks the tickets of datagrams; connections' generations leave it clear.
const TICKET_BIT: u64 = 1 << 63;

/// A datagram whose answers come later.
struct Waiting {
    peer: SocketAddr,
    request_id: RequestId,
    session: Session,
    rest: Vec<u8>,
    resume: Resume,
}

/// A UDP socket and what it owes.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    number: usize,
    pub(crate) readable: bool,
    waiting: Slab<Waiting>,
    buffer: Vec<u8>,
}

impl Datagrams {
    pub(crate) fn new(socket: UdpSocket, number: usize) -> Self {
        Self { socket, number, readable: false, waiting: Slab::new(), buffer: vec![0; DATAGRAM_LEN_ANY] }
    }

    fn ticket(&self, key: usize) -> Ticket {
        Ticket(TICKET_BIT | (self.number as u64) << 32 | key as u64)
    }

    fn key_of(&self, ticket: Ticket) -> usize {
        (ticket.0 & u64::from(u32::MAX)) as usize
    }

    /// Whether `ticket` names a datagram of this socket.
    pub(crate) fn waits_for(&self, ticket: Ticket) -> bool {
        ticket == self.ticket(self.key_of(ticket)) && self.waiting.contains(self.key_of(ticket))
    }

    /// Answers what has come, up to a fair number.
    pub(crate) fn turn<S: Service>(&mut self, desk: &mut Desk<S>) {
        if !self.readable {
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut failures = 0;
        for _ in 0..DATAGRAMS_PER_TURN {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, peer)) => {
                    desk.traffic.bytes_read += len as u64;
                    if let Some((request_id, payload)) = udp::request(&buffer[..len]) {
                        let session = Session::new(&desk.shared.settings.protocol);
                        self.answer(desk, peer, request_id, session, payload, None);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                // An earlier answer could not be delivered: its receiver's loss.
                Err(_) => failures += 1,
            }
        }
        // Nothing but errors is no such news, and asking again at once would go on for as long as they do: the next datagram
        // wakes the socket.
        if failures == DATAGRAMS_PER_TURN {
            self.readable = false;
        }
        self.buffer = buffer;
    }

    /// The rest of a datagram's answers have come.
    pub(crate) fn deliver<S: Service>(&mut self, desk: &mut Desk<S>, ticket: Ticket) {
        let waiting = self.waiting.remove(self.key_of(ticket));
        let Waiting { peer, request_id, session, rest, resume } = waiting;
        self.answer(desk, peer, request_id, session, &rest, Some((ticket, resume)));
    }

    fn answer<S: Service>(
        &mut self,
        desk: &mut Desk<S>,
        peer: SocketAddr,
        request_id: RequestId,
        mut session: Session,
        payload: &[u8],
        mut resume: Option<(Ticket, Resume)>,
    ) {
        let shared = std::sync::Arc::clone(&desk.shared);
        let mut tools = desk.take_tools();
        let parsing = &mut tools.parsing;
        let mut consumed = 0;
        // Each round consumes something or is the last: a datagram's length bounds the loop.
        loop {
            parsing.scratch.reset();
            let input = &payload[consumed..];
            let mut batch = std::mem::take(&mut parsing.batch).recycle();
            let before = session.clone();
            let now = resume.map_or(desk.now.time, |(_, resume)| resume.now);
            let ticket = resume.map_or_else(|| self.ticket(self.waiting.vacant_key()), |(ticket, _)| ticket);
            let protocol = &shared.settings.protocol;
            let parsed = session.parse(protocol, shared.watch.clock(), now, input, &parsing.scratch, &mut batch);
            let resumed = resume.take().map(|(_, resume)| resume);
            let mut progress = Progress::Done;
            if !batch.is_empty() {
                progress = desk.answer(&batch, ticket, now, resumed, -1);
                while let Progress::Full(at) = progress
                    && desk.outbox.len() <= ANSWER_LEN_MAX
                {
                    progress = desk.answer(&batch, ticket, now, Some(at), -1);
                }
            }
            parsing.batch = batch.recycle();
            if let Progress::Full(_) = progress {
                desk.outbox.clear();
                break;
            }
            if let Progress::Later(resume) = progress {
                if self.waiting.len() < WAITING_MAX {
                    let rest = input.to_vec();
                    let key = self.waiting.insert(Waiting { peer, request_id, session: before, rest, resume });
                    debug_assert_eq!(self.ticket(key), ticket);
                } else {
                    shared.service.abandon(&mut desk.worker, ticket);
                }
                break;
            }
            let consumes = parsed.consumed > 0;
            consumed += parsed.consumed;
            match parsed.next {
                Next::More if consumes => {}
                Next::Control(command) => {
                    desk.publish();
                    let ticket = self.ticket(self.waiting.vacant_key());
                    let (worker, now) = (&mut desk.worker, desk.now.time);
                    match control::carry_out(&shared, worker, &command, now, ticket, &mut desk.outbox) {
                        Outcome::Done => {}
                        Outcome::Flush { noreply } => {
                            // It goes on; no datagram waits for what comes of it.
                            shared.service.abandon(&mut desk.worker, ticket);
                            if !noreply {
                                desk.outbox.push(FLUSH_UNTOLD);
                            }
                        }
                        Outcome::Close => break,
                        // What takes a connection is not to be had over UDP.
                        Outcome::Dump(_) | Outcome::Watch(_) | Outcome::RollCall => {
                            desk.outbox.clear();
                            desk.outbox.push(b"ERROR\r\n");
                            break;
                        }
                    }
                }
                Next::More | Next::NeedInput { .. } | Next::Close | Next::Hopeless(_) => break,
            }
        }
        desk.put_back(tools);
        self.send(desk, peer, request_id);
    }

    /// Sends the output in datagrams; what the socket does not take is lost, as datagrams are.
    fn send<S: Service>(&mut self, desk: &mut Desk<S>, peer: SocketAddr, request_id: RequestId) {
        desk.publish();
        if let Some(mut answer) = udp::Answer::new(request_id, &mut desk.outbox) {
            while let Some(datagram) = answer.next_datagram() {
                match self.socket.send_to(datagram, peer) {
                    Ok(sent) => desk.traffic.bytes_written += sent as u64,
                    Err(_) => break,
                }
            }
        }
        desk.outbox.clear();
    }
}
