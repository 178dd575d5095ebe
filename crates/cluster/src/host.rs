//! Hosts: a member's core on its sockets, with a thread of its own, by whatever protocol it speaks.
//!
//! ```text
//! other threads --(told, views, looks)--> Host --> Machine: a core, and what carries out what it wants done
//!        members --(messages)-----------/
//! ```
//! Always true: what a core wants done is done, in its order, before it is told the next thing; what other threads tell comes to it through its driver's inbox,
//! once each.

use std::{
    fmt, io,
    marker::PhantomData,
    sync::{Arc, mpsc},
};

use guira_item::Moment;
use guira_routing::{Header, NodeId};

use crate::{Core, Counts, DriverError, DriverHandle, Members, Poster, Transport};

/// What the members of a cluster say to each other.
pub trait Protocol: 'static {
    /// One message, which may borrow of what came.
    type Message<'m>;

    /// Who there is, for a machine.
    type View: Send + 'static;

    /// Reads a message; `None`: it is none.
    fn decode(bytes: &[u8]) -> Option<Self::Message<'_>>;

    /// Whether a message is what the address says that the network has brought it to.
    fn is_get_of(message: &Self::Message<'_>, header: &Header) -> bool;
}

/// A core, with what carries out what it wants done beside messages.
pub trait Machine: Send + 'static {
    /// What it speaks.
    type Protocol: Protocol;

    /// What other threads tell it.
    type Told: Send + 'static;

    /// A message came.
    fn on_message(
        &mut self,
        now: Moment,
        from: NodeId,
        message: <Self::Protocol as Protocol>::Message<'_>,
        transport: &mut Transport,
    );

    /// Another thread tells something.
    fn on_told(&mut self, now: Moment, told: Self::Told, transport: &mut Transport);

    /// There are others now.
    fn on_view(&mut self, now: Moment, view: &<Self::Protocol as Protocol>::View, transport: &mut Transport);

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

/// Looks at a machine, on its thread.
type Look<M> = Box<dyn FnOnce(&M, Wire) + Send>;

/// What there is for a machine to see.
type ViewOf<M> = <<M as Machine>::Protocol as Protocol>::View;

/// What is posted to a host.
pub enum Local<M: Machine> {
    /// For the machine.
    Told(M::Told),
    /// There are others now.
    View(Arc<Members>, Box<ViewOf<M>>),
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
    /// Puts a machine on a socket whose members are set, with a thread of this name. `make` is given what the machine's own helpers may post through.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start(name: &str, transport: Transport, make: impl FnOnce(Poster<Local<M>>) -> M) -> io::Result<Self> {
        Self::try_start(name, transport, |poster| Ok(make(poster)))
    }

    /// The same, with a machine that may not be to be had.
    ///
    /// # Errors
    /// It is not, or as [`start`](Self::start).
    pub fn try_start(
        name: &str,
        transport: Transport,
        make: impl FnOnce(Poster<Local<M>>) -> io::Result<M>,
    ) -> io::Result<Self> {
        let hosted = |poster| Ok(Hosted { machine: make(poster)?, undecodable: 0 });
        Ok(Self { driver: DriverHandle::try_start(name, transport, hosted)?, machine: PhantomData })
    }

    /// For other threads.
    pub fn poster(&self) -> Poster<Local<M>> {
        self.driver.poster()
    }

    /// Tells the machine something.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&self, told: M::Told) -> Result<(), Ended> {
        self.driver.post(Local::Told(told)).map_err(|_| Ended)
    }

    /// What `look` sees, on the machine's thread, between two things that happen to it; `None` if it has ended.
    pub fn look<T: Send + 'static>(&self, look: impl FnOnce(&M, Wire) -> T + Send + 'static) -> Option<T> {
        look_by(&self.driver.poster(), look)
    }
}

/// See [`Host::look`].
pub fn look_by<M: Machine, T: Send + 'static>(
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
    /// Who there is.
    type View;

    /// Says who there is from now on.
    ///
    /// # Errors
    /// It has ended.
    fn set_view(&self, members: Arc<Members>, view: Self::View) -> Result<(), Ended>;

    /// Whether none of its threads has ended.
    fn runs(&self) -> bool;

    /// Stops it, and waits for its end.
    ///
    /// # Errors
    /// It had ended by itself.
    fn stop(self) -> Result<(), DriverError>;
}

/// A host under another name, which says what its machine is asked.
pub trait HostOf: Send + Sync + 'static {
    /// Its machine.
    type Machine: Machine;

    /// It as a host.
    fn host(&self) -> &Host<Self::Machine>;

    /// It as a host.
    fn into_host(self) -> Host<Self::Machine>;
}

impl<M: Machine> HostOf for Host<M> {
    type Machine = M;

    fn host(&self) -> &Self {
        self
    }

    fn into_host(self) -> Self {
        self
    }
}

impl<H: HostOf> MemberHost for H {
    type View = ViewOf<H::Machine>;

    fn set_view(&self, members: Arc<Members>, view: Self::View) -> Result<(), Ended> {
        self.host().driver.post(Local::View(members, Box::new(view))).map_err(|_| Ended)
    }

    fn runs(&self) -> bool {
        self.host().driver.runs()
    }

    fn stop(self) -> Result<(), DriverError> {
        self.into_host().driver.stop()
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
        match M::Protocol::decode(message) {
            Some(message) => self.machine.on_message(now, from, message, transport),
            None => self.undecodable += 1,
        }
    }

    fn on_get(&mut self, now: Moment, from: NodeId, header: Header, message: &[u8], transport: &mut Transport) {
        match M::Protocol::decode(message) {
            Some(message) if M::Protocol::is_get_of(&message, &header) => {
                self.machine.on_message(now, from, message, transport);
            }
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
