//! A worker: one thread, its own connections, one event loop on epoll.
//!
//! ```text
//! wait -> read the clock -> mailbox, late answers -> connections with events, in rounds -> those that want another turn
//! ```
//! Always true: a connection belongs to one worker for life, so no lock is taken between a request and its answer; edges
//! are remembered in the connection and the list `ready`, so a connection that had to stop halfway is not forgotten; with
//! nothing to do the worker sleeps in the kernel.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use guira_item::{Service, Ticket, Wake};
use guira_memcache::{Dialect, Session};
use mio::event::Event;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::connection::{After, Connection, Ended};
use crate::desk::Desk;
use crate::round::Round;
use crate::shared::{Message, Shared, Stop};
use crate::stream::Stream;
use crate::udp::Datagrams;
use crate::watchers::Topic;

/// The waker's token; connections count from 0.
pub(crate) const WAKE: Token = Token(usize::MAX);

/// Tokens from here on are UDP sockets.
const UDP_FIRST: usize = usize::MAX - 1024;

/// Events taken from the kernel at once.
const EVENTS_LEN: usize = 512;

/// How often silent connections are looked for, at most and at least.
const IDLE_CHECK_MIN: Duration = Duration::from_millis(10);
const IDLE_CHECK_MAX: Duration = Duration::from_secs(1);

/// How long a graceful stop waits for slow readers and late answers, in milliseconds.
const LAST_ORDERS_MS: u64 = 10_000;

/// How often a worker looks whether it is done with a graceful stop.
const LAST_ORDERS_CHECK: Duration = Duration::from_millis(50);

pub(crate) struct Worker<S: Service> {
    desk: Desk<S>,
    poll: Poll,
    connections: Slab<Connection>,
    ready: VecDeque<usize>,
    round: Round,
    udp: Vec<Datagrams>,
    generation: u32,
    idle_check_ms: u64,
    idle_checked_ms: u64,
    /// Since when connections are being seen off.
    closing_since_ms: Option<u64>,
}

impl<S: Service> Worker<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, index: usize, poll: Poll, sockets: Vec<UdpSocket>) -> io::Result<Self> {
        let waker = Arc::clone(&shared.mailboxes[index].waker);
        let wake: Wake = Arc::new(move || drop(waker.wake()));
        let worker = shared.service.worker(wake);
        let registry = poll.registry().try_clone()?;
        let mut udp = Vec::with_capacity(sockets.len());
        for (number, mut socket) in sockets.into_iter().enumerate() {
            poll.registry().register(&mut socket, Token(UDP_FIRST + number), Interest::READABLE)?;
            udp.push(Datagrams::new(socket, number));
        }
        let idle_check = shared.settings.idle_timeout.map_or(IDLE_CHECK_MAX, |timeout| timeout / 4);
        let idle_check_ms = idle_check.clamp(IDLE_CHECK_MIN, IDLE_CHECK_MAX).as_millis() as u64;
        Ok(Self {
            desk: Desk::new(shared, worker, index, registry),
            poll,
            connections: Slab::new(),
            ready: VecDeque::new(),
            round: Round::default(),
            udp,
            generation: 0,
            idle_check_ms,
            idle_checked_ms: 0,
            closing_since_ms: None,
        })
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_LEN);
        loop {
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("epoll_wait failed: {error}"),
            }
            self.desk.now = self.desk.shared.watch.read();
            for event in &events {
                match event.token() {
                    WAKE => self.on_wake(),
                    Token(number) if number >= UDP_FIRST => self.udp[number - UDP_FIRST].readable = true,
                    token => self.on_event(token.0, event),
                }
            }
            self.round.serve(&mut self.desk, &mut self.connections);
            while let Some((key, after)) = self.round.next_ended() {
                self.settle(key, after);
            }
            for _ in 0..self.ready.len() {
                let Some(key) = self.ready.pop_front() else { break };
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.queued = false;
                    let after = connection.turn(&mut self.desk);
                    self.settle(key, after);
                }
            }
            for datagrams in &mut self.udp {
                datagrams.turn(&mut self.desk);
            }
            self.look_for_silence();
            if self.is_over() {
                return;
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() || self.udp.iter().any(|datagrams| datagrams.readable) {
            Some(Duration::ZERO)
        } else if self.closing_since_ms.is_some() {
            Some(LAST_ORDERS_CHECK)
        } else if self.desk.shared.settings.idle_timeout.is_some() && !self.connections.is_empty() {
            Some(Duration::from_millis(self.idle_check_ms))
        } else {
            None
        }
    }

    #[inline]
    fn on_event(&mut self, key: usize, event: &Event) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.readable |= event.is_readable() || event.is_error();
        connection.hung_up |= event.is_read_closed() || event.is_error();
        if event.is_error() && connection.waits_for_answers() {
            return self.settle(key, Err(Ended::Error));
        }
        // Those who want much come after those who want little.
        if connection.fits_a_round() { self.round.invite(key) } else { self.enqueue(key) }
    }

    fn on_wake(&mut self) {
        while let Some(message) = self.desk.shared.mailboxes[self.desk.index].take() {
            match message {
                Message::Connected(stream, dialect) => self.welcome(stream, dialect),
                Message::RollCall(list) => {
                    let connections = self.connections.iter().map(|(_, connection)| connection);
                    list.add(&self.desk.shared, self.desk.now.elapsed_ms, connections);
                }
                Message::RollCallDone(list) => {
                    let key = key_of(list.asker());
                    if let Some(connection) = self.connections.get_mut(key) {
                        let after = connection.deliver_roll_call(&mut self.desk, &list);
                        self.settle(key, after);
                    }
                }
            }
        }
        while let Some(ticket) = self.desk.shared.service.next_ready(&mut self.desk.worker) {
            self.deliver(ticket);
        }
        if self.desk.shared.watchers.count() > 0 {
            let keys: Vec<usize> =
                self.connections.iter().filter(|(_, c)| c.watcher().is_some()).map(|(k, _)| k).collect();
            for key in keys {
                self.enqueue(key);
            }
        }
        if self.closing_since_ms.is_none() && self.desk.shared.stopping() == Stop::Graceful {
            self.closing_since_ms = Some(self.desk.now.elapsed_ms);
            let keys: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
            for key in keys {
                self.connections[key].last_orders = true;
                self.connections[key].readable = true;
                self.enqueue(key);
            }
        }
    }

    fn deliver(&mut self, ticket: Ticket) {
        if let Some(datagrams) = self.udp.iter_mut().find(|datagrams| datagrams.waits_for(ticket)) {
            return datagrams.deliver(&mut self.desk, ticket);
        }
        let key = key_of(ticket);
        match self.connections.get_mut(key) {
            Some(connection) if connection.ticket() == ticket => {
                let after = connection.deliver(&mut self.desk);
                self.settle(key, after);
            }
            // The service named a ticket after it was abandoned.
            _ => self.desk.shared.service.abandon(&mut self.desk.worker, ticket),
        }
    }

    fn welcome(&mut self, mut stream: Stream, dialect: Dialect) {
        let shared = Arc::clone(&self.desk.shared);
        let entry = self.connections.vacant_entry();
        let token = Token(entry.key());
        if stream.register(&self.desk.registry, token, Interest::READABLE).is_err() {
            shared.tallies.workers[self.desk.index].connections.fetch_sub(1, Relaxed);
            return;
        }
        self.generation = self.generation.wrapping_add(1) & (u32::MAX >> 1);
        if shared.watchers.wants(Topic::Connections) {
            let (peer, fd) = (stream.watch_text(), stream.raw_fd());
            shared.watchers.connection_event(&shared.watch, format_args!("type=conn_new {peer} cfd={fd}"));
        }
        tracing::debug!(fd = stream.raw_fd(), "new connection");
        let session = Session::speaking(dialect, &shared.settings.protocol);
        entry.insert(Connection::new(stream, token, self.generation, session, self.desk.now.elapsed_ms));
    }

    #[inline]
    fn settle(&mut self, key: usize, after: Result<After, Ended>) {
        match after {
            Ok(After::Wait) => {}
            Ok(After::Again) => self.enqueue(key),
            Err(ended) => self.close(key, ended),
        }
    }

    fn enqueue(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        if !connection.queued {
            connection.queued = true;
            self.ready.push_back(key);
        }
    }

    fn close(&mut self, key: usize, ended: Ended) {
        let mut connection = self.connections.remove(key);
        connection.end(&mut self.desk, ended);
        let shared = &self.desk.shared;
        if shared.watchers.wants(Topic::Connections) {
            let (peer, fd, reason) = (connection.stream.watch_text(), connection.stream.raw_fd(), ended.reason());
            let text = format_args!("type=conn_close {peer} reason={reason} cfd={fd}");
            shared.watchers.connection_event(&shared.watch, text);
        }
        tracing::debug!(fd = connection.stream.raw_fd(), reason = ended.reason(), "connection closed");
        self.desk.publish();
        // Closed before it is taken off the count, lest the count be lower than the file descriptors in use.
        drop(connection);
        shared.tallies.workers[self.desk.index].connections.fetch_sub(1, Relaxed);
        shared.connection_ended();
        if self.connections.is_empty() && self.connections.capacity() > EVENTS_LEN {
            self.connections = Slab::new();
        }
    }

    fn look_for_silence(&mut self) {
        let Some(timeout) = self.desk.shared.settings.idle_timeout else { return };
        let now_ms = self.desk.now.elapsed_ms;
        if now_ms < self.idle_checked_ms + self.idle_check_ms {
            return;
        }
        self.idle_checked_ms = now_ms;
        let timeout_ms = timeout.as_millis() as u64;
        let is_silent = |connection: &Connection| {
            connection.may_idle_out() && now_ms.saturating_sub(connection.last_active_ms) > timeout_ms
        };
        let silent: Vec<usize> = self.connections.iter().filter(|(_, c)| is_silent(c)).map(|(key, _)| key).collect();
        for key in silent {
            self.desk.traffic.idle_kicks += 1;
            self.close(key, Ended::Idle);
        }
    }

    fn is_over(&mut self) -> bool {
        match self.desk.shared.stopping() {
            Stop::Not => false,
            Stop::Now => true,
            Stop::Graceful => self.closing_since_ms.is_some_and(|since_ms| {
                self.connections.is_empty() || self.desk.now.elapsed_ms > since_ms + LAST_ORDERS_MS
            }),
        }
    }
}

/// The connection's place in the ticket: its lower half.
fn key_of(ticket: Ticket) -> usize {
    (ticket.0 & u64::from(u32::MAX)) as usize
}
