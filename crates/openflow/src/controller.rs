//! The controllers of a switch of ours: one that is called, done as it says, and called again when it has gone, and beside it those that call.
//!
//! Always true: flows stay while no controller is there; nobody waits for one that is being called, or for one that says much: the one that is called has every
//! other turn.

use std::{
    io::{self, ErrorKind},
    mem,
    net::SocketAddr,
    os::unix::net::UnixListener,
    time::Duration,
};

use guira_cluster::boot_now;
use guira_item::{Moment, Span};
use mio::{Events, Poll, Registry, Token, event::Event, net::TcpStream};

use crate::{
    DatapathConfig, FlowTable, Gone, Lookups,
    callers::{CALLERS_MAX, Callers},
    line::Line,
    stream::{READ_LEN, Stream},
};

const CONTROLLER: Token = Token(0);

/// Those of all connections, and of who calls.
const EVENTS_LEN: usize = CALLERS_MAX + 2;

/// So often it is asked whether to go on, at least.
const ASK_TO_GO_ON: Duration = Duration::from_millis(200);

/// So long a controller may take to be there when it is called.
const CALL: Span = Span::from_s(1);

/// After so long it is called again.
const CALL_AGAIN_AFTER: Span = Span::from_s(1);

/// Who is obeyed.
#[derive(Debug)]
pub struct Controllers {
    /// One is called there, and called again when it has gone.
    pub called: SocketAddr,
    /// Others call here: eight at a time; who is one too many is hung up on.
    pub callers: Option<UnixListener>,
}

/// What is told of the controller that is called.
#[derive(Debug)]
pub enum ControllerTold {
    /// It was called, and is there.
    Called(SocketAddr),
    /// It was called, and is not there; not said again until it was.
    NotThere(Gone),
    /// It has gone.
    Gone(Gone),
}

/// Calls a controller, and does what it says, and those that call, on this thread, for as long as `go_on` says.
///
/// # Errors
/// The system gives no descriptors for that, or no events.
pub fn obey<L: Lookups>(
    controllers: Controllers,
    config: DatapathConfig,
    flows: &mut FlowTable<L>,
    mut go_on: impl FnMut(&FlowTable<L>) -> bool,
    mut told: impl FnMut(ControllerTold),
) -> io::Result<()> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(EVENTS_LEN));
    let mut called = Called::new(controllers.called, config);
    let callers = controllers.callers.map(|listener| Callers::new(listener, config, poll.registry()));
    let mut callers = callers.transpose()?;
    let mut buffer = vec![0; READ_LEN];
    while go_on(flows) {
        let wake_at = callers.as_ref().and_then(Callers::wake_at).into_iter().fold(called.wake_at(), Moment::min);
        wait(&mut poll, &mut events, wake_at)?;
        for event in &events {
            match &mut callers {
                _ if event.token() == CONTROLLER => called.heed(event),
                Some(callers) => callers.heed(event),
                None => {}
            }
        }
        called.take_turn(poll.registry(), &mut buffer, flows, &mut told);
        if let Some(callers) = &mut callers {
            callers.take_turn(poll.registry(), &mut buffer, flows);
        }
    }
    Ok(())
}

/// Waits for something to happen, but not beyond that moment, nor for long.
fn wait(poll: &mut Poll, events: &mut Events, until: Moment) -> io::Result<()> {
    let limit = Duration::from_nanos(until.since(boot_now()).ns());
    match poll.poll(events, Some(limit.min(ASK_TO_GO_ON))) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The controller that is called.
struct Called {
    address: SocketAddr,
    config: DatapathConfig,
    state: State,
    /// Whether it has said hello since it was called.
    is_greeted: bool,
    /// Whether it has when it was called last, or it was never called.
    was_there: bool,
}

enum State {
    /// It is called at that moment.
    Away { call_at: Moment },
    /// It may come to be there until that moment.
    Calling { stream: Stream<TcpStream>, until: Moment },
    /// It is.
    There(Box<Line<TcpStream>>),
}

impl Called {
    fn new(address: SocketAddr, config: DatapathConfig) -> Self {
        Self { address, config, state: State::Away { call_at: boot_now() }, is_greeted: false, was_there: true }
    }

    fn heed(&mut self, event: &Event) {
        match &mut self.state {
            State::Away { .. } => {}
            State::Calling { stream, .. } => stream.heed(event),
            State::There(line) => line.heed(event),
        }
    }

    /// When it is to have a turn.
    fn wake_at(&self) -> Moment {
        match &self.state {
            State::Away { call_at } => *call_at,
            State::Calling { until, .. } => *until,
            State::There(line) => line.wake_at(),
        }
    }

    /// Does what it says, or calls it.
    fn take_turn<L: Lookups>(
        &mut self,
        registry: &Registry,
        buffer: &mut [u8],
        flows: &mut FlowTable<L>,
        told: &mut impl FnMut(ControllerTold),
    ) {
        let now = boot_now();
        let state = mem::replace(&mut self.state, State::Away { call_at: now + CALL_AGAIN_AFTER });
        let went_on = match state {
            State::Away { call_at } if now < call_at => Ok(State::Away { call_at }),
            State::Away { .. } => self.call(now, registry).map_err(|error| ControllerTold::NotThere(error.into())),
            State::Calling { stream, until } => match stream.is_there() {
                Ok(true) => {
                    self.is_greeted = false;
                    Ok(State::There(Line::new(stream, self.config).into()))
                }
                Ok(false) if now < until => Ok(State::Calling { stream, until }),
                Ok(false) => Err(ControllerTold::NotThere(Gone::Failed(ErrorKind::TimedOut.into()))),
                Err(error) => Err(ControllerTold::NotThere(error.into())),
            },
            State::There(mut line) => {
                let turn = line.take_turn(buffer, flows);
                if line.is_greeted() && !self.is_greeted {
                    (self.is_greeted, self.was_there) = (true, true);
                    told(ControllerTold::Called(self.address));
                }
                match turn {
                    Ok(()) => Ok(State::There(line)),
                    Err(gone) => {
                        line.end(registry);
                        // Who listens there and says no hello is no controller.
                        Err(if self.is_greeted { ControllerTold::Gone(gone) } else { ControllerTold::NotThere(gone) })
                    }
                }
            }
        };
        match went_on {
            Ok(state) => self.state = state,
            Err(ControllerTold::NotThere(_)) if !mem::replace(&mut self.was_there, false) => {}
            Err(why) => told(why),
        }
    }

    fn call(&self, now: Moment, registry: &Registry) -> io::Result<State> {
        let stream = Stream::over_tcp(TcpStream::connect(self.address)?, registry, CONTROLLER)?;
        Ok(State::Calling { stream, until: now + CALL })
    }
}
