//! Hosts: the four cores on sockets and threads, and a gateway as a [`Service`](guira_item::Service) or before a program ([`Caller`]).
//!
//! ```text
//! server's workers --> GatewayService --(a batch)--> GatewayHost --> CacheHost --> BackendHost --> Store
//!        ^----------------- mailbox <--(answers)---------/              ControllerHost
//! ```
//! Always true: what a core wants done is done, in its order, before it is told the next thing; what happens on other threads (answers of a
//! store, batches of clients) comes to it through its driver's inbox, once each; who waits for an answer gets one, also when the host ends.

mod backend;
mod cache;
mod caller;
mod controller;
mod gateway;
mod heard;
mod lines;
mod local;
mod network;
mod owed;
mod pace;
mod room;
mod service;

use std::{
    fmt, io,
    marker::PhantomData,
    sync::{Arc, mpsc},
};

use guira_cluster::{Core, Counts, DriverError, DriverHandle, Members, Poster, Transport};
use guira_item::Moment;
use guira_routing::{Header, NodeId};

use crate::{Message, Outbox, View};

pub use backend::{BackendHost, BackendMachine, BackendStatus, BackendTold, Completed};
pub use cache::{CacheHost, CacheStatus, PartStatus};
pub use caller::{Caller, CallerBounds};
pub use controller::{ControllerHost, ControllerMachine, ControllerStatus, ControllerTold, MoveWish, NoFlows};
pub use gateway::{GatewayHost, GatewayMachine, GatewayStatus, GatewayTold};
pub use heard::ClusterHoldings;
pub use local::{LocalCluster, LocalConfig, LocalStatus};
pub use network::NetworkConfig;
pub use service::{ClockNow, GatewayService, GatewayWorker, ServiceConfig};

/// A core, with what carries out what it wants done beside messages.
pub trait Machine: Send + 'static {
    /// What other threads of its host tell it.
    type Told: Send + 'static;

    /// A message came.
    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport);

    /// Another thread tells something.
    fn on_told(&mut self, now: Moment, told: Self::Told, transport: &mut Transport);

    /// There are others now.
    fn on_view(&mut self, now: Moment, view: &View, transport: &mut Transport);

    /// Time has passed.
    fn on_tick(&mut self, now: Moment, transport: &mut Transport);

    /// When it has to be ticked.
    fn wake_at(&self, now: Moment) -> Option<Moment>;
}

/// Numbers about a host's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wire {
    /// The transport's.
    pub transport: Counts,
    /// Messages of members that were none of ours, or not what their address said.
    pub undecodable: u64,
}

/// Through which a gateway is asked.
type GatewayPoster = Poster<Local<GatewayMachine>>;

/// Looks at a machine, on its thread.
type Look<M> = Box<dyn FnOnce(&M, Wire) + Send>;

/// What is posted to a host.
pub enum Local<M: Machine> {
    /// For the machine.
    Told(M::Told),
    /// There are others now.
    View(Arc<Members>, Box<View>),
    /// Somebody wants to know something.
    Look(Look<M>),
}

impl<M: Machine> fmt::Debug for Local<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Told(_) => "Told",
            Self::View(..) => "View",
            Self::Look(_) => "Look",
        })
    }
}

/// The machine has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has ended")
    }
}

impl std::error::Error for Ended {}

/// A machine on its driver. Dropped, it is stopped.
pub struct Host<M: Machine> {
    driver: DriverHandle<Local<M>>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> fmt::Debug for Host<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl<M: Machine> Host<M> {
    fn start_with(name: &str, transport: Transport, make: impl FnOnce(Poster<Local<M>>) -> M) -> io::Result<Self> {
        Self::try_start_with(name, transport, |poster| Ok(make(poster)))
    }

    fn try_start_with(
        name: &str,
        transport: Transport,
        make: impl FnOnce(Poster<Local<M>>) -> io::Result<M>,
    ) -> io::Result<Self> {
        let hosted = |poster| Ok(Hosted { machine: make(poster)?, undecodable: 0 });
        Ok(Self { driver: DriverHandle::try_start(name, transport, hosted)?, machine: PhantomData })
    }

    /// What `look` sees, on the machine's thread, between two things that happen to it; `None` if it has ended.
    fn look<T: Send + 'static>(&self, look: impl FnOnce(&M, Wire) -> T + Send + 'static) -> Option<T> {
        look_by(&self.driver.poster(), look)
    }
}

/// See [`Host::look`].
fn look_by<M: Machine, T: Send + 'static>(
    poster: &Poster<Local<M>>,
    look: impl FnOnce(&M, Wire) -> T + Send + 'static,
) -> Option<T> {
    let (seen, see) = mpsc::channel();
    let look = Box::new(move |machine: &M, wire: Wire| drop(seen.send(look(machine, wire))));
    poster.post(Local::Look(look)).ok()?;
    see.recv().ok()
}

/// The threads of a member's cores: one, or of a cache node one for each of its parts.
pub trait MemberHost: Send + Sync + 'static {
    /// Says who there is from now on.
    ///
    /// # Errors
    /// It has ended.
    fn set_view(&self, members: Arc<Members>, view: View) -> Result<(), Ended>;

    /// Whether none of its threads has ended.
    fn runs(&self) -> bool;

    /// Stops it, and waits for its end.
    ///
    /// # Errors
    /// It had ended by itself.
    fn stop(self) -> Result<(), DriverError>;
}

impl<M: Machine> MemberHost for Host<M> {
    fn set_view(&self, members: Arc<Members>, view: View) -> Result<(), Ended> {
        self.driver.post(Local::View(members, Box::new(view))).map_err(|_| Ended)
    }

    fn runs(&self) -> bool {
        self.driver.runs()
    }

    fn stop(self) -> Result<(), DriverError> {
        self.driver.stop()
    }
}

/// A machine as a driver sees it.
struct Hosted<M> {
    machine: M,
    undecodable: u64,
}

impl<M: Machine> Core for Hosted<M> {
    type Local = Local<M>;

    fn on_message(&mut self, now: Moment, from: NodeId, message: &[u8], transport: &mut Transport) {
        match Message::decode(message) {
            Ok(message) => self.machine.on_message(now, from, message, transport),
            Err(_) => self.undecodable += 1,
        }
    }

    fn on_get(&mut self, now: Moment, from: NodeId, header: Header, message: &[u8], transport: &mut Transport) {
        match Message::decode(message) {
            Ok(message) if is_get_of(&message, &header) => self.machine.on_message(now, from, message, transport),
            _ => self.undecodable += 1,
        }
    }

    fn on_local(&mut self, now: Moment, local: Local<M>, transport: &mut Transport) {
        match local {
            Local::Told(told) => self.machine.on_told(now, told, transport),
            Local::View(members, view) => {
                transport.set_members(members);
                self.machine.on_view(now, &view, transport);
            }
            Local::Look(look) => {
                look(&self.machine, Wire { transport: transport.counts(), undecodable: self.undecodable });
            }
        }
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.machine.on_tick(now, transport);
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        self.machine.wake_at(now)
    }
}

/// Sends the messages of a step.
fn send_all(out: &Outbox, transport: &mut Transport) {
    out.sends().for_each(|(to, message)| transport.send(to, message));
    out.gets().for_each(|(backend, hash, message)| transport.send_get(backend, hash, message));
}

/// Whether a message is what its address said: a read of a key of that hash, and nothing that changes anything.
fn is_get_of(message: &Message<'_>, header: &Header) -> bool {
    match (message, header) {
        (Message::Request(ask), Header::Get { hash, .. }) => hash.is_of(ask.hash) && ask.operation.only_reads(),
        _ => false,
    }
}

#[cfg(test)]
#[path = "host/host_tests.rs"]
mod tests;
