//! A backend on its socket, before a store.
//!
//! Always true: each call of the store is completed once: where it is made, if the store needs no waiting for a read; through the inbox
//! otherwise, from whatever thread the store has. What the store has read and the backend has not yet been told is bounded: further reads wait,
//! and only while as many as may be are under way.

use std::{collections::VecDeque, io, num::NonZero, sync::Arc};

use guira_cluster::{Poster, Transport, boot_now};
use guira_item::{
    Key, Moment,
    store::{Record, Store, StoreError, Write, Written},
};
use guira_routing::NodeId;

use super::{Host, Local, Machine, Wire, pace::Pace, send_all};
use crate::{
    Message, Outbox, StoreCall, View,
    backend::{Backend, BackendConfig, BackendCounts, Happened},
};

/// A [`Backend`] before a store.
pub type BackendHost<S> = Host<BackendMachine<S>>;

/// What a store has done.
#[derive(Debug)]
pub enum Completed {
    /// See [`Happened::Read`].
    Read(Box<[u8]>, Result<Option<Record<Arc<[u8]>>>, StoreError>),
    /// See [`Happened::Written`].
    Written(Box<[u8]>, Result<Written, StoreError>),
    /// See [`Happened::StateWritten`].
    StateWritten(Result<Written, StoreError>),
}

impl From<Completed> for Happened<'_> {
    fn from(completed: Completed) -> Self {
        match completed {
            Completed::Read(key, found) => Self::Read(key, found),
            Completed::Written(key, written) => Self::Written(key, written),
            Completed::StateWritten(written) => Self::StateWritten(written),
        }
    }
}

/// A backend, and the way to its store.
pub struct BackendMachine<S: Store> {
    backend: Backend,
    pace: Option<Pace>,
    way: Way<S>,
    out: Outbox,
}

/// The way to a store and back.
struct Way<S: Store> {
    store: Arc<S>,
    poster: Poster<Local<BackendMachine<S>>>,
    /// Read without waiting, and not told yet.
    read: VecDeque<Completed>,
    /// Reads that the store has been asked for, and their number at most.
    reading: usize,
    reading_max: usize,
    /// Keys that are to be read.
    waiting: VecDeque<Box<[u8]>>,
}

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
    /// It serves.
    pub serves: bool,
    /// The socket's numbers.
    pub wire: Wire,
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
        Self::start_with(&name, transport, |poster| BackendMachine {
            pace: requests_per_s.map(Pace::new),
            backend: Backend::new(config, store.state(), boot_now()),
            way: Way { store, poster, read: VecDeque::new(), reading: 0, reading_max, waiting: VecDeque::new() },
            out: Outbox::default(),
        })
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<BackendStatus> {
        self.look(|BackendMachine { backend, .. }, wire| BackendStatus {
            counts: backend.counts(),
            cached_keys: backend.cached_keys(),
            load_per_s: backend.load(boot_now()).round() as u64,
            serves: backend.serves(),
            wire,
        })
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

    /// Takes the requests whose turn it is, of a backend that is paced.
    fn take_turns(&mut self, now: Moment, transport: &mut Transport) {
        while let Some((from, bytes)) = self.pace.as_mut().and_then(|pace| pace.pop(now)) {
            let message = Message::decode(&bytes).expect("it was written here");
            self.step(now, Happened::Message(from, message), transport);
        }
    }

    fn carry_out(&mut self, transport: &mut Transport) {
        send_all(&self.out, transport);
        self.out.store.drain(..).for_each(|call| self.way.call(call));
        self.out.clear();
    }
}

impl<S: Store> Way<S> {
    fn call(&mut self, call: StoreCall) {
        let poster = self.poster.clone();
        // Nobody waits for what a backend that has ended has asked for.
        let post = move |completed| drop(poster.post(Local::Told(completed)));
        match call {
            StoreCall::Read(key) => {
                let name = Key::new(&key).expect("who asks names a key");
                let copied = |found: Option<Record<&[u8]>>| found.map(|record| record.map(Arc::from));
                if let Some(found) = self.store.get_now(name, copied) {
                    self.read.push_back(Completed::Read(key, Ok(found)));
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
    type Told = Completed;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        let asker = match &message {
            Message::Request(ask) => Some(ask.asker),
            Message::Flush(asker) => Some(*asker),
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

    fn on_told(&mut self, now: Moment, told: Completed, transport: &mut Transport) {
        if let Completed::Read(..) = told {
            self.way.on_read();
        }
        self.step(now, told.into(), transport);
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
