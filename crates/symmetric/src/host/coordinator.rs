//! A coordinator on its socket, and a thread that keeps its views.
//!
//! Always true: views are kept in their order, each before the core is told so; one that cannot be kept is the end of this coordinator: it says nothing more.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread,
};

use guira_cluster::{Host, HostOf, Local, Machine, Poster, Transport, Wire, boot_now};
use guira_consistency::Epoch;
use guira_item::Moment;
use guira_routing::NodeId;

use super::{Symmetric, ViewsFile, ViewsFileError};
use crate::{
    Coordinator, CoordinatorConfig, CoordinatorHappened, CoordinatorOutbox, CoordinatorStatus, Given, Message,
};

/// A [`Coordinator`] on its host.
#[derive(Debug)]
pub struct CoordinatorHost(Host<CoordinatorMachine>);

/// A coordinator, and where its views go.
pub struct CoordinatorMachine {
    core: Coordinator,
    keeper: Sender<Given>,
    /// Why no view can be kept.
    failure: Option<String>,
    out: CoordinatorOutbox,
    /// Of a message that is being written.
    bytes: Vec<u8>,
}

/// What the thread that keeps views tells.
#[derive(Debug)]
pub enum CoordinatorTold {
    /// See [`CoordinatorHappened::Kept`].
    Kept(Epoch),
    /// One cannot be kept.
    NotKept(ViewsFileError),
}

/// How a coordinator is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorHostStatus {
    /// The core.
    pub core: CoordinatorStatus,
    /// The socket's numbers.
    pub wire: Wire,
}

impl CoordinatorHost {
    /// Starts it on a socket whose members are set, with what was kept in a folder.
    ///
    /// # Errors
    /// What is there is damaged, or of other nodes; the system gives no thread, or no descriptors.
    pub fn start(transport: Transport, config: CoordinatorConfig, file: ViewsFile) -> io::Result<Self> {
        let invalid =
            |error: Box<dyn std::error::Error + Send + Sync>| io::Error::new(io::ErrorKind::InvalidData, error);
        let kept = file.read().map_err(|error| invalid(error.into()))?;
        let name = format!("guira-r{}", config.me.0);
        let core = Coordinator::new(boot_now(), config, kept).map_err(|error| invalid(error.into()))?;
        let machine = |poster| {
            let (keeper, given) = mpsc::channel();
            thread::Builder::new().name("guira-views".into()).spawn(move || keep_all(&file, &given, &poster))?;
            Ok(CoordinatorMachine { core, keeper, failure: None, out: CoordinatorOutbox::default(), bytes: Vec::new() })
        };
        Host::try_start(&name, transport, machine).map(Self)
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<CoordinatorHostStatus> {
        self.0.look(|machine, wire| CoordinatorHostStatus { core: machine.core.status(), wire })
    }

    /// Why it says nothing any more, if it does not.
    pub fn failure(&self) -> Option<String> {
        self.0.look(|machine, _| machine.failure.clone()).flatten()
    }
}

impl HostOf for CoordinatorHost {
    type Machine = CoordinatorMachine;

    fn host(&self) -> &Host<CoordinatorMachine> {
        &self.0
    }

    fn into_host(self) -> Host<CoordinatorMachine> {
        self.0
    }
}

/// Keeps what comes, until nothing can any more.
fn keep_all(file: &ViewsFile, given: &Receiver<Given>, poster: &Poster<Local<CoordinatorMachine>>) {
    while let Ok(mut next) = given.recv() {
        // Of several that wait the last says it all.
        while let Ok(later) = given.try_recv() {
            next = later;
        }
        let told = file.keep(&next).map_or_else(CoordinatorTold::NotKept, |()| CoordinatorTold::Kept(next.view.epoch));
        if poster.post(Local::Told(told)).is_err() {
            return;
        }
    }
}

impl CoordinatorMachine {
    fn step(&mut self, now: Moment, happened: CoordinatorHappened, transport: &mut Transport) {
        if self.failure.is_some() {
            return;
        }
        self.core.step(now, happened, &mut self.out);
        if let Some(given) = self.out.keep.take() {
            // It has ended only if this has.
            drop(self.keeper.send(given));
        }
        for (to, message) in self.out.sends.drain(..) {
            self.bytes.clear();
            message.encode(&mut self.bytes);
            transport.send(to, &self.bytes);
        }
    }
}

impl Machine for CoordinatorMachine {
    type Protocol = Symmetric;
    type Told = CoordinatorTold;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message, transport: &mut Transport) {
        self.step(now, CoordinatorHappened::Message(from, message), transport);
    }

    fn on_told(&mut self, now: Moment, told: CoordinatorTold, transport: &mut Transport) {
        match told {
            CoordinatorTold::Kept(epoch) => self.step(now, CoordinatorHappened::Kept(epoch), transport),
            CoordinatorTold::NotKept(error) => self.failure = Some(format!("a view cannot be kept: {error}")),
        }
    }

    fn on_view(&mut self, _: Moment, view: &std::convert::Infallible, _: &mut Transport) {
        match *view {}
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.step(now, CoordinatorHappened::Tick, transport);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        self.failure.is_none().then(|| self.core.wake_at())
    }
}
