//! A backend on its socket, before a store.
//!
//! Always true: each call of the store is completed once: where it is made, if the store needs no waiting for a read; through the inbox
//! otherwise, from whatever thread the store has. What the store has read and the backend has not yet been told is bounded: further reads wait,
//! and only while as many as may be are under way. What it says leaves it only if the store was still this backend's after what it answers had come: an
//! answer was true then, whenever it arrives, and a lease counts from before it was asked for.

use std::{
    collections::VecDeque,
    fmt, io,
    num::NonZero,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use guira_cluster::{Ended, Host, HostOf, Local, Machine, Poster, Transport, Wire, boot_now};
use guira_item::{
    Key, Moment, Span, Time,
    store::{Found, Part, Record, Scan as StoreScan, Store, StoreError, Write, Written},
};
use guira_routing::{KeyHash, NodeId, PartitionId};

use super::{Switched, pace::Pace, send_all};
use crate::{
    Commit, Committed, Holdings, Message, Outbox, ScanNumber, Scanned, Scanning, StoreCall, View,
    backend::{Backend, BackendConfig, BackendCounts, Happened, Standstill},
};

/// A [`Backend`] before a store, on its host.
pub struct BackendHost<S: Store>(Host<BackendMachine<S>>);

impl<S: Store> fmt::Debug for BackendHost<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BackendHost").field(&self.0).finish()
    }
}

/// What a store has done.
#[derive(Debug)]
pub enum Completed {
    /// See [`Happened::Read`].
    Read(Box<[u8]>, Result<Found, StoreError>),
    /// See [`Happened::Written`].
    Written(Box<[u8]>, Result<Written, StoreError>),
    /// See [`Happened::StateWritten`].
    StateWritten(Result<Written, StoreError>),
    /// See [`Happened::Scanned`].
    Scanned(ScanNumber, Result<Scanned, StoreError>),
    /// See [`Happened::Fenced`].
    Fenced(Result<(), StoreError>),
    /// See [`Happened::Flushed`].
    Flushed(Result<(), StoreError>),
}

impl From<Completed> for Happened<'_> {
    fn from(completed: Completed) -> Self {
        match completed {
            Completed::Read(key, found) => Self::Read(key, found),
            Completed::Written(key, written) => Self::Written(key, written),
            Completed::StateWritten(written) => Self::StateWritten(written),
            Completed::Scanned(number, found) => Self::Scanned(number, found),
            Completed::Fenced(fenced) => Self::Fenced(fenced),
            Completed::Flushed(flushed) => Self::Flushed(flushed),
        }
    }
}

/// Has what was given away put into the map.
type CommitBy = Box<dyn FnMut(Commit) + Send>;

/// What other threads tell a backend.
pub enum BackendTold {
    /// The store has done something.
    Completed(Completed),
    /// What came of partitions that were given away.
    Committed(Committed),
    /// Who is told of partitions that were given away.
    CommitBy(CommitBy),
}

/// A backend, and the way to its store.
pub struct BackendMachine<S: Store> {
    backend: Backend,
    pace: Option<Pace>,
    way: Way<S>,
    commit_by: Option<CommitBy>,
    /// To be put into the map, by somebody who is not there yet.
    uncommitted: Option<Commit>,
    /// What was told last, and when.
    holdings: Option<(Moment, Holdings)>,
    out: Outbox,
    /// Messages that were not sent.
    withheld: u64,
}

/// The way to a store and back.
struct Way<S: Store> {
    store: Arc<S>,
    hash_of: fn(&[u8]) -> KeyHash,
    poster: Poster<Local<BackendMachine<S>>>,
    /// Read without waiting, and not told yet.
    read: VecDeque<Completed>,
    /// Reads that the store has been asked for, and their number at most.
    reading: usize,
    reading_max: usize,
    /// Keys that are to be read.
    waiting: VecDeque<Box<[u8]>>,
}

/// What was told so long ago is told again: a store does not add up what it has for each of many gateways.
const TOLD_FOR: Span = Span::from_ms(500);

/// Bytes of items that the store may be reading for a backend.
const READING_LEN_MAX: usize = 256 << 20;

/// How a backend is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendStatus {
    /// The core's numbers.
    pub counts: BackendCounts,
    /// Keys that cache nodes may have.
    pub cached_keys: usize,
    /// Reads of late, a second.
    pub load_per_s: u64,
    /// It serves, and its store lets it.
    pub serves: bool,
    /// Messages that were not sent, since the store may have been another's.
    pub withheld: u64,
    /// Partitions that it has.
    pub partitions: usize,
    /// Partitions that it is to have.
    pub partitions_wanted: usize,
    /// Partitions that it is giving away, or that are others', of which its store may have something that is to be removed.
    pub partitions_unclear: usize,
    /// Why those that are to be given away were not, the last time that it was tried.
    pub standstill: Option<Standstill>,
    /// The `flush_all` that is to come, in the cluster's seconds.
    pub flush_to_come: Option<Time>,
    /// What its store has.
    pub holdings: Holdings,
    /// The socket's numbers.
    pub wire: Wire,
}

/// What was told last, unless that is long ago.
fn fresh(told: Option<(Moment, Holdings)>, now: Moment) -> Option<Holdings> {
    told.filter(|(at, _)| now < *at + TOLD_FOR).map(|(_, holdings)| holdings)
}

impl<S: Store> HostOf for BackendHost<S> {
    type Machine = BackendMachine<S>;

    fn host(&self) -> &Host<BackendMachine<S>> {
        &self.0
    }

    fn into_host(self) -> Host<BackendMachine<S>> {
        self.0
    }
}

impl<S: Store> BackendHost<S> {
    /// Starts it on a socket whose members are set.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start(transport: Transport, config: BackendConfig, store: Arc<S>) -> io::Result<Self> {
        Self::start_paced(transport, config, store, None)
    }

    /// Starts one that takes so many requests a second at most.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start_paced(
        transport: Transport,
        config: BackendConfig,
        store: Arc<S>,
        requests_per_s: Option<NonZero<u32>>,
    ) -> io::Result<Self> {
        let name = format!("guira-b{}", config.me.0);
        let reading_max = (READING_LEN_MAX / config.item_len_max.max(1)).max(1);
        let hash_of = config.hash_of;
        let machine = |poster| BackendMachine {
            pace: requests_per_s.map(Pace::new),
            backend: Backend::new(config, store.state(), boot_now()),
            way: Way {
                store,
                hash_of,
                poster,
                read: VecDeque::new(),
                reading: 0,
                reading_max,
                waiting: VecDeque::new(),
            },
            commit_by: None,
            uncommitted: None,
            holdings: None,
            out: Outbox::default(),
            withheld: 0,
        };
        Host::start(&name, transport, machine).map(Self)
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<BackendStatus> {
        self.0.look(|BackendMachine { backend, way, withheld, holdings, .. }, wire| BackendStatus {
            counts: backend.counts(),
            cached_keys: backend.cached_keys(),
            load_per_s: backend.load(boot_now()).round() as u64,
            serves: backend.serves() && way.store.may_serve(),
            withheld: *withheld,
            partitions: backend.partitions(),
            partitions_wanted: backend.partitions_wanted(),
            partitions_unclear: backend.partitions_unclear(),
            standstill: backend.standstill(),
            flush_to_come: backend.flush_to_come(),
            holdings: fresh(*holdings, boot_now()).unwrap_or_else(|| Holdings::from(&way.store.stats())),
            wire,
        })
    }

    /// Says who is told of partitions that were given away, from now on and of those before, and answers by [`Self::committed`] once it is known what came
    /// of it. Without it none are.
    ///
    /// # Errors
    /// It has ended.
    pub fn commit_by(&self, commit_by: impl FnMut(Commit) + Send + 'static) -> Result<(), Ended> {
        self.0.tell(BackendTold::CommitBy(Box::new(commit_by)))
    }

    /// Says what came of partitions that were given away.
    ///
    /// # Errors
    /// It has ended.
    pub fn committed(&self, committed: Committed) -> Result<(), Ended> {
        self.0.tell(BackendTold::Committed(committed))
    }
}

impl<S: Store> BackendMachine<S> {
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        self.backend.step(now, happened, &mut self.out);
        self.carry_out(transport);
        loop {
            if let Some(read) = self.way.read.pop_front() {
                self.backend.step(boot_now(), read.into(), &mut self.out);
                self.carry_out(transport);
            } else if !self.way.ask_next() {
                return;
            }
        }
    }

    /// Tells a gateway what the store has.
    fn tell_holdings(&mut self, now: Moment, gateway: NodeId, transport: &mut Transport) {
        let told = fresh(self.holdings, now).unwrap_or_else(|| {
            let holdings = Holdings::from(&self.way.store.stats());
            self.holdings = Some((now, holdings));
            holdings
        });
        self.out.send(gateway, &Message::Holdings(told));
        self.carry_out(transport);
    }

    /// Takes the requests whose turn it is, of a backend that is paced.
    fn take_turns(&mut self, now: Moment, transport: &mut Transport) {
        while let Some((from, bytes)) = self.pace.as_mut().and_then(|pace| pace.pop(now)) {
            let message = Message::decode(&bytes).expect("it was written here");
            self.step(now, Happened::Message(from, message), transport);
        }
    }

    fn carry_out(&mut self, transport: &mut Transport) {
        if !self.way.store.may_serve() {
            self.withheld += self.out.withhold() as u64;
        }
        send_all(&self.out, transport);
        self.out.store.drain(..).for_each(|call| self.way.call(call));
        self.uncommitted = self.out.commit.take().or(self.uncommitted.take());
        if let Some(commit_by) = &mut self.commit_by
            && let Some(commit) = self.uncommitted.take()
        {
            commit_by(commit);
        }
        self.out.clear();
    }
}

impl<S: Store> Way<S> {
    fn call(&mut self, call: StoreCall) {
        let poster = self.poster.clone();
        // Nobody waits for what a backend that has ended has asked for.
        let post = move |completed| drop(poster.post(Local::Told(BackendTold::Completed(completed))));
        match call {
            StoreCall::Read(key) => {
                let name = Key::new(&key).expect("who asks names a key");
                let copied = |found: Option<Record<&[u8]>>| found.map(|record| record.map(Arc::from));
                if let Some(found) = self.store.get_now(name, copied) {
                    self.read.push_back(Completed::Read(key, Ok(found.into())));
                } else if self.reading < self.reading_max {
                    self.reading += 1;
                    let asked = key.clone();
                    self.store.get(name, Box::new(move |found| post(Completed::Read(asked, found))));
                } else {
                    self.waiting.push_back(key);
                }
            }
            StoreCall::Write(key, write) => {
                self.store.write(vec![write], Box::new(move |written| post(Completed::Written(key, written))));
            }
            StoreCall::Scan(scan) => {
                let (number, after, hash_of) = (scan.number, scan.after.clone(), self.hash_of);
                let scanning = Arc::new(Mutex::new(Scanning::new(scan)));
                let visited = Arc::clone(&scanning);
                let visit = move |key: Key<'_>, record: &Record<&[u8]>| {
                    let key = key.as_bytes();
                    let mut scanning = visited.lock().unwrap_or_else(PoisonError::into_inner);
                    match scanning.visit(PartitionId::of(hash_of(key)), key, record.value.len()) {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                };
                let done = move |done: Result<(), StoreError>| {
                    let scanning = scanning.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    post(Completed::Scanned(number, done.map(|()| scanning.end())));
                };
                self.store.scan(StoreScan::Behind(after), Box::new(visit), Box::new(done));
            }
            StoreCall::Fence(partitions) => {
                let parts = partitions.into_iter().map(|PartitionId(part)| Part(part)).collect();
                self.store.fence(parts, Box::new(move |fenced| post(Completed::Fenced(fenced))));
            }
            StoreCall::Flush => self.store.flush(Box::new(move |flushed| post(Completed::Flushed(flushed)))),
            StoreCall::State(state) => {
                let done = Box::new(move |written| post(Completed::StateWritten(written)));
                self.store.write(vec![Write::State(state)], done);
            }
        }
    }
}

impl<S: Store> Way<S> {
    /// One that was asked for has been read: there is room for another, before what comes only now.
    fn on_read(&mut self) {
        self.reading -= 1;
        self.ask_next();
    }

    /// Asks for a key that waits, if there is room; whether it did. What is read at once takes no room, so once is not enough: while a key waits,
    /// reads are under way whose end asks for it.
    fn ask_next(&mut self) -> bool {
        if self.reading >= self.reading_max {
            return false;
        }
        let Some(key) = self.waiting.pop_front() else { return false };
        self.call(StoreCall::Read(key));
        true
    }
}

impl<S: Store> Machine for BackendMachine<S> {
    type Protocol = Switched;
    type Told = BackendTold;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        let asker = match &message {
            Message::AskHoldings => return self.tell_holdings(now, from, transport),
            Message::Request(ask) => Some(ask.asker),
            Message::Flush { asker, .. } => Some(*asker),
            _ => None,
        };
        match (&mut self.pace, asker) {
            (Some(pace), Some(asker)) => {
                pace.push(from, &asker, &message);
                self.take_turns(now, transport);
            }
            _ => self.step(now, Happened::Message(from, message), transport),
        }
    }

    fn on_told(&mut self, now: Moment, told: BackendTold, transport: &mut Transport) {
        match told {
            BackendTold::Completed(completed) => {
                if let Completed::Read(..) = completed {
                    self.way.on_read();
                }
                self.step(now, completed.into(), transport);
            }
            BackendTold::Committed(committed) => self.step(now, Happened::Committed(committed), transport),
            BackendTold::CommitBy(commit_by) => {
                self.commit_by = Some(commit_by);
                self.carry_out(transport);
            }
        }
    }

    fn on_view(&mut self, now: Moment, view: &View, transport: &mut Transport) {
        self.step(now, Happened::View(view), transport);
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.take_turns(now, transport);
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        [self.backend.wake_at(), self.pace.as_ref().and_then(Pace::wake_at)].into_iter().flatten().min()
    }
}
