//! A network between members that can be made bad: every datagram and every stream from one to another goes through it.
//!
//! ```text
//! a --> [b as a sees it | relay | a as b sees it] --> b
//! ```
//! A member takes datagrams only from the address that its view has for their sender. So each has a view of its own, in which the others are at the
//! relay's addresses; seals say who sends and who receives, not from where, and are passed on as they are.
//!
//! Always true: what happens to a datagram happens to all of it; none passes in a way that is cut, from when [`Relay::treat`] has returned (of a
//! stream what is being written then still may, a few kilobytes); what waits is bounded, and what comes beyond that is lost.

mod streams;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    ops::RangeInclusive,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, Waker};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use socket2::SockRef;

use streams::Streams;

/// Datagrams that may wait for their time: a second of what a cluster on one machine sends.
const WAITING_MAX: usize = 1 << 15;

/// Bytes of them: as many at 2 KB each, or a thousand of the longest.
const WAITING_LEN_MAX: usize = 64 << 20;

/// The longest datagram there is.
const DATAGRAM_LEN_MAX: usize = 64 << 10;

/// What the kernel may keep of datagrams that the relay has not read yet, if it allows so much.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;

/// Events taken at a time: those of a cluster's sockets at once.
const EVENTS_LEN: usize = 128;

/// What happens to what one member sends to another. A stream loses and doubles nothing: its sender's kernel sees to that.
#[derive(Clone, PartialEq, Debug)]
pub struct Treatment {
    /// The share of datagrams that do not arrive.
    pub lost: f64,
    /// The share of datagrams that arrive, and then once more.
    pub doubled: f64,
    /// How long each is under way: one of less time overtakes those before it.
    pub delay: RangeInclusive<Duration>,
    /// Nothing arrives.
    pub cut: bool,
}

impl Treatment {
    /// A network as one wishes it.
    pub const GOOD: Self = Self { lost: 0.0, doubled: 0.0, delay: Duration::ZERO..=Duration::ZERO, cut: false };
    /// None.
    pub const CUT: Self = Self { cut: true, ..Self::GOOD };
}

/// What has become of the datagrams in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Sent by who is at the way's beginning.
    pub came: u64,
    /// Handed over, the second of two included.
    pub arrived: u64,
    /// Not, by chance or for want of room.
    pub lost: u64,
    /// That came twice.
    pub doubled: u64,
    /// Handed over after one that had been sent later.
    pub overtaken: u64,
    /// Not, since the way was cut.
    pub cut: u64,
}

/// From a member to another, by their places in the list of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Way {
    /// Who sends.
    pub from: usize,
    /// Who is sent to.
    pub to: usize,
}

impl Way {
    fn back(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// A relay that runs; dropped, it is stopped.
pub struct Relay {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// What the tests and the relay's threads share.
struct Shared {
    members: usize,
    state: Mutex<State>,
    /// Told when treatments change, and at the end.
    changed: Condvar,
}

struct State {
    /// By [`Shared::place`].
    ways: Vec<WayState>,
    is_stopping: bool,
}

struct WayState {
    treatment: Treatment,
    counts: Counts,
    dice: Xoshiro256PlusPlus,
    /// How often it was cut: what was under way then is lost, even if it is healed by the time.
    cuts: u64,
    /// The number of the latest that was handed over.
    latest: u64,
}

impl WayState {
    fn treat(&mut self, treatment: &Treatment) {
        self.treatment = treatment.clone();
        self.cuts += u64::from(treatment.cut);
    }
}

impl Shared {
    fn place(&self, way: Way) -> usize {
        assert!(way.from < self.members && way.to < self.members && way.from != way.to, "{way:?}");
        way.from * self.members + way.to
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that has panicked while it held this has changed a treatment or has not.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// Between members that are where `real` says. Who is at `to` is seen at `seen(way)` by who is at `from`: all of these are bound here.
    pub fn between(real: &[SocketAddr], seed: u64, seen: impl Fn(Way) -> SocketAddr) -> Self {
        let members = real.len();
        let every = || (0..members).flat_map(move |from| (0..members).map(move |to| Way { from, to }));
        let dice = |at| Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(1_000_003) + at);
        let ways = (0..).zip(every()).map(|(at, _)| WayState {
            treatment: Treatment::GOOD,
            counts: Counts::default(),
            dice: dice(at),
            cuts: 0,
            latest: 0,
        });
        let state = Mutex::new(State { ways: ways.collect(), is_stopping: false });
        let shared = Arc::new(Shared { members, state, changed: Condvar::new() });
        let poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(2 * members * members)).expect("a waker");
        let mut carrier = Carrier {
            shared: Arc::clone(&shared),
            real: real.to_vec(),
            sockets: Vec::new(),
            streams: Streams::new(Arc::clone(&shared), real.to_vec()),
            waiting: BinaryHeap::new(),
            waiting_len: 0,
            buffer: vec![0; DATAGRAM_LEN_MAX],
            poll,
        };
        for way in every() {
            carrier.sockets.push((way.from != way.to).then(|| carrier.bind(way, seen(way))));
            carrier.streams.listen(way, (way.from != way.to).then(|| seen(way)), carrier.poll.registry());
        }
        let thread = thread::Builder::new().name("relay".into()).spawn(move || carrier.run()).expect("a thread");
        Self { shared, waker, thread: Some(thread) }
    }

    /// From now on this happens to what goes this way.
    pub fn treat(&self, way: Way, treatment: &Treatment) {
        let place = self.shared.place(way);
        self.shared.state().ways[place].treat(treatment);
        self.shared.changed.notify_all();
    }

    /// The same, both ways.
    pub fn treat_both(&self, way: Way, treatment: &Treatment) {
        self.treat(way, treatment);
        self.treat(way.back(), treatment);
    }

    /// The same, between one and all others.
    pub fn treat_all_of(&self, member: usize, treatment: &Treatment) {
        (0..self.shared.members)
            .filter(|other| *other != member)
            .for_each(|other| self.treat_both(Way { from: member, to: other }, treatment));
    }

    /// The same, between all.
    pub fn treat_all(&self, treatment: &Treatment) {
        self.shared.state().ways.iter_mut().for_each(|way| way.treat(treatment));
        self.shared.changed.notify_all();
    }

    /// What has become of the datagrams that went this way.
    pub fn counts(&self, way: Way) -> Counts {
        let place = self.shared.place(way);
        self.shared.state().ways[place].counts
    }

    /// Of all.
    pub fn all_counts(&self) -> Counts {
        self.shared.state().ways.iter().map(|way| way.counts).fold(Counts::default(), |sum, one| Counts {
            came: sum.came + one.came,
            arrived: sum.arrived + one.arrived,
            lost: sum.lost + one.lost,
            doubled: sum.doubled + one.doubled,
            overtaken: sum.overtaken + one.overtaken,
            cut: sum.cut + one.cut,
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
        // Without it the thread would wait for the next datagram.
        let _ = self.waker.wake();
        // What it had to say, if it has panicked, it has said.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A datagram under way, in the order of when it is to arrive.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Instant,
    /// Counts what has come this way: of two that are due at once the first comes first.
    number: u64,
    way: Way,
    /// How often the way had been cut when it came.
    cuts: u64,
    bytes: Box<[u8]>,
}

/// What the relay's thread has.
struct Carrier {
    shared: Arc<Shared>,
    real: Vec<SocketAddr>,
    /// By the place of a way: where its receiver is seen by its sender.
    sockets: Vec<Option<mio::net::UdpSocket>>,
    streams: Streams,
    waiting: BinaryHeap<Reverse<Waiting>>,
    waiting_len: usize,
    buffer: Vec<u8>,
    poll: Poll,
}

impl Carrier {
    fn bind(&self, way: Way, address: SocketAddr) -> mio::net::UdpSocket {
        let socket = UdpSocket::bind(address).unwrap_or_else(|error| panic!("binding {address}: {error}"));
        SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_LEN).expect("a buffer, maybe a shorter one");
        socket.set_nonblocking(true).expect("a socket that does not block");
        let mut socket = mio::net::UdpSocket::from_std(socket);
        let token = Token(self.shared.place(way));
        self.poll.registry().register(&mut socket, token, Interest::READABLE).expect("a socket of ours");
        socket
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_LEN);
        let sockets = self.sockets.len();
        while !self.shared.state().is_stopping {
            let next = self.waiting.peek().map(|Reverse(first)| first.due.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, next) {
                Err(error) if error.kind() != ErrorKind::Interrupted => panic!("the relay's poll: {error}"),
                Ok(()) | Err(_) => {}
            }
            for event in &events {
                match event.token() {
                    Token(at) if at < sockets => self.take(at),
                    Token(at) if at < 2 * sockets => self.streams.accept(at - sockets),
                    _ => {}
                }
            }
            self.hand_over();
        }
    }

    /// Takes all that has come to a socket.
    fn take(&mut self, at: usize) {
        let way = Way { from: at / self.shared.members, to: at % self.shared.members };
        while let Some(Ok((len, source))) = self.sockets[at].as_ref().map(|socket| socket.recv_from(&mut self.buffer)) {
            if source == self.real[way.from] {
                self.take_one(way, at, len);
            }
        }
    }

    fn take_one(&mut self, way: Way, at: usize, len: usize) {
        let now = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let WayState { treatment, counts, dice, cuts, .. } = &mut state.ways[at];
        counts.came += 1;
        if treatment.cut {
            counts.cut += 1;
            return;
        }
        let has_room = self.waiting.len() + 2 <= WAITING_MAX && self.waiting_len + 2 * len <= WAITING_LEN_MAX;
        if !has_room || dice.random_bool(treatment.lost) {
            counts.lost += 1;
            return;
        }
        let is_doubled = dice.random_bool(treatment.doubled);
        counts.doubled += u64::from(is_doubled);
        for _ in 0..=usize::from(is_doubled) {
            let due = now + dice.random_range(treatment.delay.clone());
            self.waiting_len += len;
            let bytes = self.buffer[..len].into();
            self.waiting.push(Reverse(Waiting { due, number: counts.came, way, cuts: *cuts, bytes }));
        }
    }

    /// Sends on what has been under way for long enough.
    fn hand_over(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = Instant::now();
        while let Some(Reverse(first)) = self.waiting.peek()
            && first.due <= now
        {
            let Some(Reverse(Waiting { number, way, cuts: had, bytes, .. })) = self.waiting.pop() else { return };
            self.waiting_len -= bytes.len();
            // Held while it is sent: after a cut nothing is.
            let mut state = shared.state();
            let WayState { counts, latest, cuts, .. } = &mut state.ways[shared.place(way)];
            if *cuts != had {
                counts.cut += 1;
                continue;
            }
            counts.overtaken += u64::from(number < *latest);
            *latest = number.max(*latest);
            let seen_from = self.sockets[shared.place(way.back())].as_ref().expect("one for every way");
            match seen_from.send_to(&bytes, self.real[way.to]) {
                Ok(_) => counts.arrived += 1,
                Err(_) => counts.lost += 1,
            }
        }
    }
}

#[cfg(test)]
#[path = "relay/relay_tests.rs"]
mod tests;
