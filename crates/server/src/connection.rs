//! One client's connection: what it has sent and was not yet understood, what it was answered and has not yet taken, and
//! what it is doing now.
//!
//! ```text
//! socket -> [pending | fresh] -> parse -> batch -> service -> output -> socket
//!            own Vec   the desk's buffer                      the desk's buffer; what the socket
//!            (rare)                                           does not take stays as `backlog`
//! ```
//! Always true: while there is a backlog nothing is read or parsed, so a slow reader owes at most the answers to one
//! buffer of commands; an idle connection owns no buffer; the bytes in `pending` and `backlog` are counted in
//! [`Shared`](crate::shared::Shared) and bounded over all connections. Beyond that bound the service lends memory of its own
//! for what is still arriving; if it has none, the command is refused and the rest of it passed over.

use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use guira_item::{Service, Ticket};
use guira_memcache::{Batch, Dialect, Malformed, Next, Output, Session};
use mio::{Interest, Token};

use crate::connections_report::RollCall;
use crate::control::{self, Outcome};
use crate::desk::{Desk, OUTPUT_LEN_SEND, Parsing, Progress, READ_LEN, Resume};
use crate::dump::Dump;
use crate::input_account::{InputAccount, OWN_LEN};
use crate::round::SEAT_LEN;
use crate::stream::Stream;
use crate::watchers::Watcher;

/// Pieces handed to one `writev`: the kernel copies this table, and more pieces save little.
const PIECES_MAX: usize = 64;

/// Room for less than this is not worth a read of a long value.
const LONG_READ_MIN: usize = 16 << 10;

/// Reads of what lies unread when a connection is closed for what it sent, of [`READ_LEN`] bytes each: as much as a client that
/// does not know yet usually has on the way, and some hundred microseconds' work.
const DRAIN_READS_MAX: usize = 16;

/// memcached's line when the memory for requests is used up.
const OUT_OF_MEMORY_READING: &[u8] = b"SERVER_ERROR out of memory reading request\r\n";

/// What a connection is doing.
#[derive(Debug)]
enum Doing {
    /// Reading and answering commands.
    Commands,
    /// Waiting for the rest of a batch's answers.
    Later,
    /// Waiting for the answer to a `flush_all`.
    Flush {
        /// It is not to be told.
        noreply: bool,
    },
    /// Waiting for the list of all connections.
    RollCall,
    /// Sending a dump of the items.
    Dump(Box<Dump>),
    /// Sending log lines until it closes.
    Watch(Arc<Watcher>),
}

/// What is to happen after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// Nothing until the next event.
    Wait,
    /// Another turn, once the others have had theirs.
    Again,
}

/// Why a connection is to be closed; shown to watchers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// One side wanted it.
    Normal,
    /// The socket failed, or a limit was passed.
    Error,
    /// It sent what cannot be understood, and what came before is answered and sent.
    Malformed,
    /// It was silent for too long.
    Idle,
}

impl Ended {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error | Self::Malformed => "error",
            Self::Idle => "idle_timeout",
        }
    }
}

/// A client's connection.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    token: Token,
    generation: u32,
    session: Session,
    /// Bytes that were read and not consumed: the front part of a command, or commands of a later turn.
    pending: Vec<u8>,
    /// Who bears what `pending` holds.
    input: InputAccount,
    /// There is no memory for all of `pending`.
    over_bound: bool,
    /// Length `pending` must reach before parsing makes sense.
    need_len: usize,
    /// `need_len` is what the command will be, not only more than there is.
    need_is_exact: bool,
    backlog: Option<Box<Output>>,
    /// Bytes of it counted in the sum over all connections.
    backlog_counted: usize,
    doing: Doing,
    pub(crate) last_active_ms: u64,
    /// The socket may hold unread bytes.
    pub(crate) readable: bool,
    /// The peer has closed: a short read does not mean that all was read.
    pub(crate) hung_up: bool,
    /// `pending` may hold whole commands.
    unparsed: bool,
    /// The batch at the front of `pending` is answered up to here.
    resume: Option<Resume>,
    /// Stands in the worker's list of those who want another turn.
    pub(crate) queued: bool,
    wants_writable: bool,
    /// Close once everything is sent, for this reason.
    closing: Option<Ended>,
    /// The server stops: close once what was read is answered.
    pub(crate) last_orders: bool,
    /// The last read filled a seat of a round: more at a time is read by itself.
    is_bulky: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, token: Token, generation: u32, session: Session, now_ms: u64) -> Self {
        Self {
            stream,
            token,
            generation,
            session,
            pending: Vec::new(),
            input: InputAccount::default(),
            over_bound: false,
            need_len: 0,
            need_is_exact: false,
            backlog: None,
            backlog_counted: 0,
            doing: Doing::Commands,
            last_active_ms: now_ms,
            readable: false,
            hung_up: false,
            unparsed: false,
            resume: None,
            queued: false,
            wants_writable: false,
            closing: None,
            last_orders: false,
            is_bulky: false,
        }
    }

    /// Names this connection's open batch, and never another's.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(u64::from(self.generation) << 32 | self.token.0 as u64)
    }

    pub(crate) fn waits_for_answers(&self) -> bool {
        matches!(self.doing, Doing::Later | Doing::Flush { .. })
    }

    /// Whether silence counts: it does not while the server is the one that is late, nor for watchers.
    pub(crate) fn may_idle_out(&self) -> bool {
        matches!(self.doing, Doing::Commands)
    }

    pub(crate) fn watcher(&self) -> Option<&Arc<Watcher>> {
        match &self.doing {
            Doing::Watch(watcher) => Some(watcher),
            _ => None,
        }
    }

    /// What its client speaks.
    pub(crate) fn dialect(&self) -> Dialect {
        self.session.dialect()
    }

    /// memcached's word for what the connection is doing.
    pub(crate) fn state(&self) -> &'static str {
        match self.doing {
            _ if self.backlog.is_some() => "conn_mwrite",
            Doing::Commands if self.pending.is_empty() => "conn_read",
            Doing::Commands => "conn_nread",
            Doing::Later | Doing::Flush { .. } => "conn_io_queue",
            Doing::RollCall => "conn_parse_cmd",
            Doing::Dump(_) | Doing::Watch(_) => "conn_watch",
        }
    }

    /// Whether reading is all there is to do, and little is expected: the connection may take part in a round.
    #[inline]
    pub(crate) fn fits_a_round(&self) -> bool {
        self.readable
            && !self.is_bulky
            && !self.queued
            && !self.unparsed
            && self.closing.is_none()
            && self.pending.is_empty()
            && self.backlog.is_none()
            && matches!(self.doing, Doing::Commands)
    }

    /// Parses and answers what was read in a round; the answers stay in the desk's outbox.
    pub(crate) fn take_in<S: Service>(&mut self, desk: &mut Desk<S>, bytes: &[u8]) -> Result<(), Ended> {
        let mut tools = desk.take_tools();
        let parsed = self.parse(desk, &mut tools.parsing, bytes);
        let kept = parsed.map(|consumed| self.keep(desk, &bytes[consumed..]));
        desk.put_back(tools);
        kept?;
        self.refuse_if_over_bound(desk)
    }

    /// Does some of what there is to do, and no more than is fair to the others.
    pub(crate) fn turn<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<After, Ended> {
        if self.backlog.is_some() {
            self.open_backlog(desk);
            self.send(desk)?;
        }
        if self.backlog.is_none() {
            self.work(desk)?;
            self.refuse_if_over_bound(desk)?;
            self.send(desk)?;
        }
        self.conclude()
    }

    /// What is to follow a turn, or a part in a round.
    pub(crate) fn conclude(&self) -> Result<After, Ended> {
        let idle = self.backlog.is_none();
        let busy = match self.doing {
            Doing::Commands => self.closing.is_none() && (self.readable || self.unparsed),
            Doing::Dump(_) => true,
            Doing::Watch(_) => self.readable,
            Doing::Later | Doing::Flush { .. } | Doing::RollCall => false,
        };
        if let Some(ended) = self.closing
            && idle
        {
            return Err(ended);
        }
        if idle
            && self.last_orders
            && !busy
            && !matches!(self.doing, Doing::Later | Doing::Flush { .. } | Doing::RollCall)
        {
            return Err(Ended::Normal);
        }
        Ok(if idle && busy { After::Again } else { After::Wait })
    }

    fn work<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        match &mut self.doing {
            Doing::Later | Doing::Flush { .. } | Doing::RollCall => Ok(()),
            Doing::Dump(dump) => {
                if dump.step(&desk.shared.service, desk.now.time, desk.shared.watch.clock(), &mut desk.outbox) {
                    self.doing = Doing::Commands;
                    self.unparsed = !self.pending.is_empty();
                }
                Ok(())
            }
            Doing::Watch(watcher) => {
                watcher.take_lines(&mut desk.outbox, &desk.shared.tallies.rare);
                if self.readable { self.discard(desk) } else { Ok(()) }
            }
            Doing::Commands if self.unparsed && self.closing.is_none() => self.parse_pending(desk),
            Doing::Commands if self.readable && self.closing.is_none() => self.read(desk),
            Doing::Commands => Ok(()),
        }
    }

    /// The rest of the open batch's answers have come.
    pub(crate) fn deliver<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<After, Ended> {
        let flush = match self.doing {
            Doing::Later => None,
            Doing::Flush { noreply } => Some(noreply),
            _ => return Ok(After::Wait),
        };
        self.doing = Doing::Commands;
        self.open_backlog(desk);
        if let Some(noreply) = flush {
            let answer = desk.take_flush_answer(self.ticket());
            if !noreply {
                desk.outbox.push(control::flush_answer(answer));
            }
            self.unparsed = !self.pending.is_empty();
        } else {
            self.parse_pending(desk)?;
        }
        self.refuse_if_over_bound(desk)?;
        self.send(desk)?;
        self.turn(desk)
    }

    /// The list of connections that this one waits for is there.
    pub(crate) fn deliver_roll_call<S: Service>(
        &mut self,
        desk: &mut Desk<S>,
        list: &RollCall,
    ) -> Result<After, Ended> {
        if !matches!(self.doing, Doing::RollCall) || self.ticket() != list.asker() {
            return Ok(After::Wait);
        }
        self.doing = Doing::Commands;
        self.unparsed = !self.pending.is_empty();
        self.open_backlog(desk);
        list.write(&mut desk.outbox);
        self.send(desk)?;
        self.turn(desk)
    }

    fn read<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        let held_len = self.pending.len();
        if held_len > READ_LEN / 2 || self.need_len > READ_LEN {
            return self.read_long(desk);
        }
        let mut tools = desk.take_tools();
        tools.input[..held_len].copy_from_slice(&self.pending);
        let result = match self.read_into(&mut tools.input[held_len..], desk) {
            Ok(0) => Ok(()),
            Ok(read_len) => {
                let fresh = &tools.input[held_len..held_len + read_len];
                if held_len + read_len >= self.need_len {
                    let parsed = self.parse(desk, &mut tools.parsing, &tools.input[..held_len + read_len]);
                    parsed.map(|consumed| self.keep(desk, &tools.input[consumed..held_len + read_len]))
                } else {
                    self.pending.extend_from_slice(fresh);
                    self.count_pending(desk);
                    Ok(())
                }
            }
            Err(ended) => Err(ended),
        };
        desk.put_back(tools);
        result
    }

    /// Reads the rest of a long command to where its front part lies.
    fn read_long<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        let held_len = self.pending.len();
        // At most double: memory follows what has arrived, not what was announced.
        let step_len = held_len.max(READ_LEN);
        let missing_len = self.need_len.saturating_sub(held_len).max(1);
        let room_len = if self.need_is_exact { missing_len.min(step_len) } else { step_len };
        // Room is made for many reads at a time, but only as much of it zeroed as one read can fill.
        if self.pending.capacity() - held_len < room_len.min(LONG_READ_MIN) {
            self.pending.reserve_exact(room_len);
        }
        let room_len = room_len.min(self.pending.capacity() - held_len).min(READ_LEN);
        self.count_pending(desk);
        if self.over_bound {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.resize(held_len + room_len, 0);
        let result = self.read_into(&mut pending[held_len..], desk);
        pending.truncate(held_len + result.unwrap_or(0));
        let worth = pending.len() >= self.need_len;
        self.pending = pending;
        if result? > 0 && worth { self.parse_pending(desk) } else { Ok(()) }
    }

    /// One read; 0 if there was nothing to read after all.
    pub(crate) fn read_into<S: Service>(&mut self, into: &mut [u8], desk: &mut Desk<S>) -> Result<usize, Ended> {
        loop {
            match self.stream.read(into) {
                Ok(0) => return Err(Ended::Normal),
                Ok(read_len) => {
                    // A short read has emptied the socket: whatever comes next is a new edge.
                    self.readable = read_len == into.len() || self.hung_up;
                    self.is_bulky = if self.is_bulky { read_len > SEAT_LEN / 2 } else { read_len >= SEAT_LEN };
                    self.last_active_ms = desk.now.elapsed_ms;
                    desk.traffic.bytes_read += read_len as u64;
                    return Ok(read_len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Ended::Error),
            }
        }
    }

    /// A watcher has nothing to say; its silence is read to notice its end.
    fn discard<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        let mut tools = desk.take_tools();
        let result = self.read_into(&mut tools.input, desk);
        desk.put_back(tools);
        result.map(|_| ())
    }

    fn parse_pending<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        let mut bytes = std::mem::take(&mut self.pending);
        let mut tools = desk.take_tools();
        let parsed = self.parse(desk, &mut tools.parsing, &bytes);
        desk.put_back(tools);
        let consumed = parsed?;
        if consumed < bytes.len() {
            bytes.drain(..consumed);
            // What a long command has left behind.
            if bytes.capacity() > 4 * bytes.len() {
                bytes.shrink_to_fit();
            }
            self.pending = bytes;
        }
        self.count_pending(desk);
        Ok(())
    }

    /// Parses and answers commands from `bytes`; returns how many bytes are done with.
    fn parse<S: Service>(&mut self, desk: &mut Desk<S>, parsing: &mut Parsing, bytes: &[u8]) -> Result<usize, Ended> {
        let shared = Arc::clone(&desk.shared);
        let mut consumed = 0;
        self.unparsed = false;
        self.need_len = 0;
        self.need_is_exact = false;
        for _ in 0..shared.settings.batches_per_turn_max {
            parsing.scratch.reset();
            let input = &bytes[consumed..];
            let mut batch = std::mem::take(&mut parsing.batch).recycle();
            let before = self.session.clone();
            let mut resume = self.resume.take();
            let now = resume.map_or(desk.now.time, |resume| resume.now);
            let protocol = &shared.settings.protocol;
            let parsed = self.session.parse(protocol, shared.watch.clock(), now, input, &parsing.scratch, &mut batch);
            if resume.is_none() && tracing::enabled!(tracing::Level::DEBUG) {
                self.log(&batch);
            }
            while !batch.is_empty() {
                match desk.answer(&batch, self.ticket(), now, resume, self.stream.raw_fd()) {
                    Progress::Done => break,
                    Progress::Full(at) => {
                        resume = Some(at);
                        self.send(desk)?;
                        if self.backlog.is_none() {
                            continue;
                        }
                        self.unparsed = true;
                    }
                    Progress::Later(at) => {
                        resume = Some(at);
                        self.doing = Doing::Later;
                    }
                }
                // The same bytes will make the same batch again when it goes on.
                self.session = before;
                self.resume = resume;
                parsing.batch = batch.recycle();
                return Ok(consumed);
            }
            parsing.batch = batch.recycle();
            let next = parsed.next;
            consumed += parsed.consumed;
            match next {
                Next::NeedInput { total_len } => {
                    let rest_len = bytes.len() - consumed;
                    self.need_len = total_len;
                    self.need_is_exact = total_len > rest_len + 1;
                    self.unparsed = false;
                    return Ok(consumed);
                }
                Next::More => {}
                Next::Control(command) => {
                    desk.publish();
                    let ticket = self.ticket();
                    let outcome = control::carry_out(
                        &shared,
                        &mut desk.worker,
                        &command,
                        desk.now.time,
                        ticket,
                        &mut desk.outbox,
                    );
                    self.follow(desk, outcome);
                }
                Next::Close => {
                    self.closing = Some(Ended::Normal);
                    return Ok(bytes.len());
                }
                Next::Hopeless(malformed) => {
                    self.give_up(desk, malformed);
                    return Ok(bytes.len());
                }
            }
            if self.closing.is_some() {
                return Ok(bytes.len());
            }
            self.unparsed = consumed < bytes.len();
            if !matches!(self.doing, Doing::Commands) || !self.unparsed {
                return Ok(consumed);
            }
            if desk.outbox.len() >= OUTPUT_LEN_SEND {
                self.send(desk)?;
                if self.backlog.is_some() {
                    return Ok(consumed);
                }
            }
        }
        desk.traffic.conn_yields += 1;
        Ok(consumed)
    }

    /// Closes, once what came before is answered, because nothing that follows can be understood.
    #[cold]
    fn give_up<S: Service>(&mut self, desk: &mut Desk<S>, malformed: Malformed) {
        desk.traffic.cp_malformed += 1;
        if let Some(untold) = desk.malformed_log.note(desk.now.elapsed_ms) {
            let peer = self.stream.peer_text();
            match untold {
                0 => tracing::warn!("{peer} sent {malformed}: the connection is closed"),
                _ => tracing::warn!("{peer} sent {malformed}: the connection is closed (and {untold} more before it)"),
            }
        }
        self.closing = Some(Ended::Malformed);
    }

    /// Reads some of what a client has sent that nobody will look at: closing over it would reset the connection, and that
    /// throws away answers that wait in the kernel.
    #[cold]
    fn drain<S: Service>(&mut self, desk: &mut Desk<S>) {
        let mut tools = desk.take_tools();
        for _ in 0..DRAIN_READS_MAX {
            if !matches!(self.read_into(&mut tools.input, desk), Ok(READ_LEN)) {
                break;
            }
        }
        desk.put_back(tools);
    }

    /// A line for each request, as `-vv` asks for.
    #[cold]
    fn log(&self, batch: &Batch<'_>) {
        let fd = self.stream.raw_fd();
        for request in batch.requests() {
            tracing::debug!(fd, "{} {}", request.operation.name(), request.key.as_bytes().escape_ascii());
        }
    }

    fn follow<S: Service>(&mut self, desk: &mut Desk<S>, outcome: Outcome) {
        match outcome {
            Outcome::Done => {}
            Outcome::Close => self.closing = Some(Ended::Normal),
            Outcome::Dump(dump) => self.doing = Doing::Dump(dump),
            Outcome::Watch(set) => {
                let waker = Arc::clone(&desk.shared.mailboxes[desk.index].waker);
                let watcher = desk.shared.watchers.add(&desk.shared.service, set, waker, desk.shared.watch);
                self.doing = Doing::Watch(watcher);
            }
            Outcome::Flush { noreply } => self.doing = Doing::Flush { noreply },
            Outcome::RollCall => {
                self.doing = Doing::RollCall;
                RollCall::start(&desk.shared, desk.index, self.ticket());
            }
        }
    }

    fn keep<S: Service>(&mut self, desk: &mut Desk<S>, rest: &[u8]) {
        if rest.is_empty() {
            self.pending = Vec::new();
        } else {
            self.pending.clear();
            self.pending.extend_from_slice(rest);
        }
        self.count_pending(desk);
    }

    /// Keeps account of `pending`.
    fn count_pending<S: Service>(&mut self, desk: &mut Desk<S>) {
        let (shared, worker, now) = (&desk.shared, &mut desk.worker, desk.now.time);
        // Who is closed anyway need not be refused.
        let max = if self.closing.is_some() { usize::MAX } else { shared.settings.input_len_max };
        let lend = |bytes| shared.service.lend(worker, now, bytes);
        self.over_bound |= self.input.hold(self.pending.capacity(), &shared.input_len, max, lend).is_err();
    }

    /// Refuses the command that is still arriving if there is no memory for it, and closes if it is not one that can be.
    #[inline]
    fn refuse_if_over_bound<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        if self.over_bound { self.refuse(desk) } else { Ok(()) }
    }

    #[cold]
    fn refuse<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        self.over_bound = false;
        if self.backlog.is_none() && (self.unparsed || !matches!(self.doing, Doing::Commands)) {
            // Whole commands whose turn comes soon: as much as one read brings, and nothing more is read meanwhile.
            return Ok(());
        }
        desk.traffic.read_buf_oom += 1;
        if self.backlog.is_some() {
            // It reads none of its answers, and what it has sent may lie here for as long.
            return Err(Ended::Error);
        }
        self.session.refuse_unfinished();
        self.parse_pending(desk)?;
        if std::mem::take(&mut self.over_bound) || self.pending.len() > OWN_LEN {
            self.pending = Vec::new();
            self.count_pending(desk);
            self.closing = Some(Ended::Normal);
            if self.backlog.is_some() {
                return Err(Ended::Error);
            }
            if self.dialect().has_lines() {
                desk.outbox.push(OUT_OF_MEMORY_READING);
            }
        }
        Ok(())
    }

    /// Takes the backlog up again: what follows is written behind it.
    fn open_backlog<S: Service>(&mut self, desk: &mut Desk<S>) {
        if let Some(backlog) = self.backlog.take() {
            debug_assert!(desk.outbox.is_empty());
            desk.outbox = *backlog;
            desk.shared.output_len.fetch_sub(self.backlog_counted, Relaxed);
            self.backlog_counted = 0;
        }
    }

    /// Sends what is in the outbox; what the socket does not take becomes the backlog.
    pub(crate) fn send<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        if self.backlog.is_none() && !desk.outbox.is_empty() {
            desk.publish();
        }
        self.send_published(desk)
    }

    /// The same, for a caller that has let the counters be seen.
    pub(crate) fn send_published<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        if self.backlog.is_some() {
            debug_assert!(desk.outbox.is_empty());
            return Ok(());
        }
        if desk.outbox.is_empty() {
            return self.want_writable(desk, false);
        }
        while !desk.outbox.is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let count = desk.outbox.io_slices(&mut pieces);
            let offered: usize = pieces[..count].iter().map(|piece| piece.len()).sum();
            let written = match &pieces[..count] {
                [piece] => self.stream.write(piece),
                pieces => self.stream.write_vectored(pieces),
            };
            match written {
                Ok(0) => return Err(Ended::Error),
                Ok(sent) => {
                    desk.outbox.advance(sent);
                    desk.traffic.bytes_written += sent as u64;
                    self.last_active_ms = desk.now.elapsed_ms;
                    if sent < offered {
                        return self.hold(desk);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.hold(desk),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Ended::Error),
            }
        }
        desk.outbox.shrink_to_idle();
        self.want_writable(desk, false)
    }

    #[cold]
    fn hold<S: Service>(&mut self, desk: &mut Desk<S>) -> Result<(), Ended> {
        let mut outbox = std::mem::take(&mut desk.outbox);
        // Counted is what is held, not what waits in it. Pinned values lie in the engine's memory, which has a bound of its
        // own.
        outbox.shrink_to_waiting();
        let held_len = outbox.held_len();
        let sum = desk.shared.output_len.fetch_add(held_len, Relaxed) + held_len;
        if held_len > OWN_LEN && sum > desk.shared.settings.output_len_max {
            // Not kept until the connection is closed: that happens once the rest of a round has been answered.
            drop(outbox);
            desk.shared.output_len.fetch_sub(held_len, Relaxed);
            desk.traffic.response_obj_oom += 1;
            return Err(Ended::Error);
        }
        self.backlog = Some(Box::new(outbox));
        self.backlog_counted = held_len;
        self.want_writable(desk, true)
    }

    #[inline]
    fn want_writable<S: Service>(&mut self, desk: &Desk<S>, wanted: bool) -> Result<(), Ended> {
        if wanted == self.wants_writable {
            return Ok(());
        }
        self.wants_writable = wanted;
        let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.stream.reregister(&desk.registry, self.token, interest).map_err(|_| Ended::Error)
    }

    /// Takes the connection out of all sums; it is closed next.
    pub(crate) fn end<S: Service>(&mut self, desk: &mut Desk<S>, ended: Ended) {
        if ended == Ended::Malformed {
            self.drain(desk);
        }
        let shared = &desk.shared;
        if self.waits_for_answers() {
            shared.service.abandon(&mut desk.worker, self.ticket());
        }
        if let Doing::Watch(watcher) = &self.doing {
            shared.watchers.remove(&shared.service, watcher, shared.watch);
        }
        self.input.close(&shared.input_len);
        shared.output_len.fetch_sub(self.backlog_counted, Relaxed);
        desk.outbox.clear();
    }
}
