//! The switches of a cluster: they call, and each is told which flows it is to have: those of all, and those of its own.
//!
//! ```text
//! switch --- TCP ---> [Switch] \
//! switch --- TCP ---> [Switch] -+- one thread <--- flows that are wanted from now on, and no more
//! ```
//! Always true: a switch that calls again has the place of its earlier connection; what is to be told to a switch that is not there is not kept, for
//! one that calls is told all that is wanted; who calls is one of so many at a time, and has to say who it is.
//! OpenFlow over TCP proves nothing of who calls: the address is to be one that only switches reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use guira_cluster::boot_now;
use guira_item::Moment;
use mio::{
    Events, Interest, Poll, Token, Waker,
    net::{TcpListener, TcpStream},
};

use crate::{
    Actions, Broken, DatapathId, FlowAt, Switch, SwitchConfig, SwitchStatus, Told, Version, WantedChanges, WantedFlows,
    stream::{READ_LEN, Stream},
    wanted::Wanted,
};

const LISTENER: Token = Token(0);
const WAKE: Token = Token(1);
/// And all after it.
const CONNECTIONS: Token = Token(2);

const EVENTS_LEN: usize = 64;

/// Times that are read before another connection has its turn.
const READS_A_TURN: usize = 16;

/// After so long it is tried again to take a connection, if the system had no descriptors for one.
const PAUSE: Duration = Duration::from_millis(100);

/// How switches are spoken to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchesConfig {
    /// Each of them.
    pub switch: SwitchConfig,
    /// Connections at a time; others are closed.
    pub connections_max: usize,
    /// Who may call; `None`: whoever does. What all are to have is of no use to a switch of which the cluster does not know where it is.
    pub expected: Option<BTreeSet<DatapathId>>,
}

impl Default for SwitchesConfig {
    fn default() -> Self {
        Self { switch: SwitchConfig::default(), connections_max: 64, expected: None }
    }
}

/// What is told of a connection: of a switch that has said who it is, or of somebody who has not.
#[derive(Debug)]
pub enum SwitchesTold {
    /// Something of a switch.
    Of(Option<DatapathId>, Told),
    /// It has gone; why, if that was not its own doing.
    Gone(Option<DatapathId>, Option<Broken>),
}

/// The thread has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchesEnded;

impl fmt::Display for SwitchesEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("switches are not spoken to any more")
    }
}

impl Error for SwitchesEnded {}

enum Wish {
    Change(FlowAt, Option<Actions>),
    SpareNone,
    Status(mpsc::Sender<Vec<SwitchStatus>>),
    After(Option<FlowAt>, usize, mpsc::Sender<WantedFlows>),
    Since(Version, usize, mpsc::Sender<Option<WantedChanges>>),
}

struct Shared {
    /// `None` once the thread has ended, or is to.
    wishes: Mutex<Option<Vec<Wish>>>,
    waker: Waker,
}

impl Shared {
    fn wishes(&self) -> MutexGuard<'_, Option<Vec<Wish>>> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The switches, and the thread that speaks to them. Dropped, it ends; switches keep the flows that they have.
pub struct Switches {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switches").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Switches {
    /// Has switches call there. What is told of them comes on the thread that speaks to them, and is not to block.
    ///
    /// # Errors
    /// The address is not to be had, or the system gives no thread, or no descriptors.
    pub fn listen(
        address: SocketAddr,
        config: SwitchesConfig,
        told: impl FnMut(SwitchesTold) + Send + 'static,
    ) -> io::Result<Self> {
        Self::listen_at(std::net::TcpListener::bind(address)?, config, told)
    }

    /// Has switches call at a socket that was bound before, which is when they may begin to.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn listen_at(
        listener: std::net::TcpListener,
        config: SwitchesConfig,
        told: impl FnMut(SwitchesTold) + Send + 'static,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let address = listener.local_addr()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let shared = Arc::new(Shared { wishes: Mutex::new(Some(Vec::new())), waker });
        // Nothing changes as often as a nanosecond passes.
        let wanted = Wanted::new(Version(boot_now().ns()), config.switch.spares.is_none());
        let speaker = Speaker {
            config,
            poll,
            listener,
            shared: Arc::clone(&shared),
            wanted,
            lines: BTreeMap::new(),
            next: CONNECTIONS,
            may_accept: true,
            told: Box::new(told),
        };
        let thread = thread::Builder::new().name("guira-switches".into()).spawn(move || speaker.run())?;
        Ok(Self { shared, address, thread: Some(thread) })
    }

    /// Where switches call.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A flow is to be there from now on.
    ///
    /// # Errors
    /// [`SwitchesEnded`].
    pub fn want(&self, flow: impl Into<FlowAt>, actions: Actions) -> Result<(), SwitchesEnded> {
        self.update([(flow, Some(actions))])
    }

    /// A flow is not to be there from now on.
    ///
    /// # Errors
    /// [`SwitchesEnded`].
    pub fn unwant(&self, flow: impl Into<FlowAt>) -> Result<(), SwitchesEnded> {
        self.update([(flow, None)])
    }

    /// Many flows are to be there (with actions) or not, from now on.
    ///
    /// # Errors
    /// [`SwitchesEnded`].
    pub fn update<F: Into<FlowAt>>(
        &self,
        flows: impl IntoIterator<Item = (F, Option<Actions>)>,
    ) -> Result<(), SwitchesEnded> {
        self.wish(flows.into_iter().map(|(flow, actions)| Wish::Change(flow.into(), actions)))
    }

    /// Switches are to have no flows from now on but those that are wanted: see [`SwitchConfig::spares`].
    ///
    /// # Errors
    /// [`SwitchesEnded`].
    pub fn spare_none(&self) -> Result<(), SwitchesEnded> {
        self.wish([Wish::SpareNone])
    }

    /// How those are that have called.
    ///
    /// # Errors
    /// [`SwitchesEnded`].
    pub fn status(&self) -> Result<Vec<SwitchStatus>, SwitchesEnded> {
        self.ask(Wish::Status)
    }

    /// The flows that are wanted behind one, in their order: as many as there are, or `len_max`.
    ///
    /// # Errors
    /// [`SwitchesEnded`].
    pub fn flows_after(&self, flow: Option<FlowAt>, len_max: usize) -> Result<WantedFlows, SwitchesEnded> {
        self.ask(|told| Wish::After(flow, len_max, told))
    }

    /// What has changed since a version: as many changes as there were, or `len_max`. `None`: not all of them are known any more, and flows have to be read again.
    ///
    /// # Errors
    /// [`SwitchesEnded`].
    pub fn flows_since(&self, version: Version, len_max: usize) -> Result<Option<WantedChanges>, SwitchesEnded> {
        self.ask(|told| Wish::Since(version, len_max, told))
    }

    fn ask<T>(&self, wish: impl FnOnce(mpsc::Sender<T>) -> Wish) -> Result<T, SwitchesEnded> {
        let (told, tell) = mpsc::channel();
        self.wish([wish(told)])?;
        tell.recv().map_err(|_| SwitchesEnded)
    }

    fn wish(&self, wishes: impl IntoIterator<Item = Wish>) -> Result<(), SwitchesEnded> {
        // Before the lock is taken: who makes them may take his time.
        let wishes: Vec<Wish> = wishes.into_iter().collect();
        self.shared.wishes().as_mut().ok_or(SwitchesEnded)?.extend(wishes);
        // It fails if there are no descriptors or no memory, which it took when it was made.
        let _ = self.shared.waker.wake();
        Ok(())
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        drop(self.shared.wishes().take());
        let _ = self.shared.waker.wake();
        // A panic has been told about already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// One connection.
struct Line {
    stream: Stream<TcpStream>,
    switch: Switch,
}

/// Why a connection ends: it is broken, or the other end has closed it.
type End = Option<Broken>;

impl Line {
    /// Reads and writes what can be; whether there may be more to read at once.
    fn go_on(&mut self, now: Moment, told: &mut Vec<Told>) -> Result<bool, End> {
        let mut buffer = [0; READ_LEN];
        for _ in 0..READS_A_TURN {
            self.write()?;
            match self.stream.read(&mut buffer) {
                Ok(Some(0)) | Err(_) => return Err(None),
                Ok(Some(len)) => self.switch.hear(now, &buffer[..len], told)?,
                Ok(None) => break,
            }
        }
        self.write()?;
        Ok(self.stream.may_read())
    }

    fn write(&mut self) -> Result<(), End> {
        loop {
            match self.stream.write(self.switch.outgoing()) {
                Ok(0) => return Ok(()),
                Ok(len) => self.switch.sent(len),
                Err(_) => return Err(None),
            }
        }
    }
}

/// What the thread has.
struct Speaker {
    config: SwitchesConfig,
    poll: Poll,
    listener: TcpListener,
    shared: Arc<Shared>,
    wanted: Wanted,
    lines: BTreeMap<Token, Line>,
    next: Token,
    may_accept: bool,
    told: Box<dyn FnMut(SwitchesTold) + Send>,
}

impl Speaker {
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_LEN);
        let mut has_work = false;
        loop {
            let limit = if has_work { Duration::ZERO } else { self.sleep_for(boot_now()) };
            match self.poll.poll(&mut events, Some(limit)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                Ok(()) | Err(_) => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.may_accept = true,
                    WAKE => {}
                    token => {
                        if let Some(line) = self.lines.get_mut(&token) {
                            line.stream.heed(event);
                        }
                    }
                }
            }
            // Behind the wait, which a wish ends: it is told in this round.
            if !self.take_wishes() {
                return;
            }
            self.accept();
            has_work = self.serve();
        }
    }

    fn sleep_for(&self, now: Moment) -> Duration {
        let wake_at = self.lines.values().map(|line| line.switch.wake_at()).min();
        let until_then = wake_at.map(|at| Duration::from_nanos(at.since(now).ns()));
        let paused = self.may_accept.then_some(PAUSE);
        // A day: as good as for ever.
        until_then.into_iter().chain(paused).fold(Duration::from_secs(86_400), Duration::min)
    }

    /// Heeds what is wished; whether it is to go on.
    fn take_wishes(&mut self) -> bool {
        let Some(wishes) = self.shared.wishes().as_mut().map(std::mem::take) else { return false };
        for wish in wishes {
            match wish {
                Wish::Change(flow, actions) => {
                    self.wanted.change(flow, actions);
                    let FlowAt { switch: of, key } = flow;
                    let its = self.switches().filter(|switch| of.is_none() || switch.datapath() == of);
                    its.for_each(|switch| match actions {
                        Some(actions) => switch.want(key, actions),
                        None => switch.unwant(key),
                    });
                }
                Wish::SpareNone => {
                    self.config.switch.spares = None;
                    self.wanted.be_whole();
                    self.switches().for_each(Switch::spare_none);
                }
                // Who no longer waits is not told.
                Wish::Status(tell) => _ = tell.send(self.switches().map(|switch| switch.status()).collect()),
                Wish::After(flow, len_max, tell) => _ = tell.send(self.wanted.after(flow, len_max)),
                Wish::Since(version, len_max, tell) => _ = tell.send(self.wanted.since(version, len_max)),
            }
        }
        true
    }

    fn switches(&mut self) -> impl Iterator<Item = &mut Switch> {
        self.lines.values_mut().map(|line| &mut line.switch)
    }

    fn accept(&mut self) {
        while self.may_accept {
            match self.listener.accept() {
                Ok((stream, _)) if self.lines.len() < self.config.connections_max => self.begin(stream),
                // There are too many: it may call again.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.may_accept = false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // No descriptors: later.
                Err(_) => return,
            }
        }
    }

    fn begin(&mut self, stream: TcpStream) {
        let token = self.next;
        if let Ok(stream) = Stream::over_tcp(stream, self.poll.registry(), token) {
            self.next = Token(token.0 + 1);
            // What is of itself alone is added once it has said who it is.
            let switch = Switch::new(boot_now(), self.config.switch, self.wanted.of(None).collect());
            self.lines.insert(token, Line { stream, switch });
        }
    }

    /// Gives each connection its turn; whether one has more to do at once.
    fn serve(&mut self) -> bool {
        let (mut has_work, mut ended) = (false, Vec::new());
        let mut told = Vec::new();
        for (token, line) in &mut self.lines {
            let now = boot_now();
            let went_on = line.go_on(now, &mut told).and_then(|more| {
                line.switch.tick(now, &mut told)?;
                line.write()?;
                Ok(more)
            });
            let datapath = line.switch.datapath();
            let is_expected = |datapath| self.config.expected.as_ref().is_none_or(|all| all.contains(&datapath));
            for told in told.drain(..) {
                match told {
                    Told::Known(datapath) if is_expected(datapath) => {
                        line.switch.admit(now, self.wanted.of(Some(datapath)));
                        ended.push((*token, Ended::Earlier(datapath)));
                    }
                    Told::Known(_) => {
                        ended.push((*token, Ended::This(Some(Broken::Unexpected))));
                        continue;
                    }
                    _ => {}
                }
                (self.told)(SwitchesTold::Of(datapath, told));
            }
            match went_on.and_then(|more| line.write().map(|()| more)) {
                Ok(more) => has_work |= more,
                Err(end) => ended.push((*token, Ended::This(end))),
            }
        }
        for (token, ended) in ended {
            match ended {
                Ended::This(end) => self.end(token, end),
                Ended::Earlier(datapath) => {
                    let is_earlier = |(other, line): (&Token, &Line)| {
                        (*other != token && line.switch.datapath() == Some(datapath)).then_some(*other)
                    };
                    let earlier: Vec<Token> = self.lines.iter().filter_map(is_earlier).collect();
                    earlier.into_iter().for_each(|token| self.end(token, Some(Broken::Replaced)));
                }
            }
        }
        has_work
    }

    fn end(&mut self, token: Token, why: End) {
        if let Some(mut line) = self.lines.remove(&token) {
            // What it says in the end may be why; nobody waits for it.
            let _ = line.write();
            line.stream.end(self.poll.registry());
            (self.told)(SwitchesTold::Gone(line.switch.datapath(), why));
        }
    }
}

/// However the thread ends, nobody waits for it any more.
impl Drop for Speaker {
    fn drop(&mut self) {
        drop(self.shared.wishes().take());
    }
}

/// Which connection ends.
enum Ended {
    This(End),
    /// Those that this switch had before.
    Earlier(DatapathId),
}
