//! A coordinator on its socket, and a thread that keeps its views.
//!
//! Always true: the core wants one view kept at a time, which is on disk before the core is told so; one that cannot be written is tried again, and meanwhile the one before stands,
//! with its leases. Nothing is written once the host has ended.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
};

use guira_cluster::{Host, HostOf, Local, Machine, Poster, Transport, Wire, boot_now};
use guira_consistency::{Consistency, Epoch};
use guira_item::{Moment, Span};
use guira_routing::NodeId;

use super::{Symmetric, ViewsFile, ViewsFileError};
use crate::{
    Coordinator, CoordinatorConfig, CoordinatorHappened, CoordinatorOutbox, CoordinatorStatus, Given, Message,
    ViewsError,
};

/// A view that could not be written is tried again after so long: room on a disk comes no faster.
const KEEP_AGAIN_AFTER: Span = Span::from_s(1);

/// A [`Coordinator`] on its host.
#[derive(Debug)]
pub struct CoordinatorHost(Host<CoordinatorMachine>);

/// A coordinator, and where its views go.
pub struct CoordinatorMachine {
    core: Coordinator,
    keeper: Keeper,
    unkept: Option<Unkept>,
    told: Box<dyn FnMut(Keeping<'_>) + Send>,
    out: CoordinatorOutbox,
    /// Of a message that is being written.
    bytes: Vec<u8>,
}

/// A view that could not be kept.
struct Unkept {
    why: String,
    /// Which one, and when it is tried again; `None`: it is being tried.
    again: Option<(Given, Moment)>,
}

/// The thread that keeps views, until this is dropped.
struct Keeper {
    given: Option<Sender<Given>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread that keeps views tells.
#[derive(Debug)]
pub enum CoordinatorTold {
    /// See [`CoordinatorHappened::Kept`].
    Kept(Epoch),
    /// This one cannot be.
    NotKept(Box<Given>, ViewsFileError),
}

/// What is said of how views are kept, and of who cannot be in one, once each time that it changes.
#[derive(Debug)]
pub enum Keeping<'w> {
    /// A node promises this, and the others something else: it is not taken in.
    Differs(NodeId, Consistency),
    /// A view cannot be kept, for this reason, and is tried again and again.
    Fails(&'w str),
    /// It was kept after all.
    GoesOn,
}

/// How a coordinator is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorHostStatus {
    /// The core.
    pub core: CoordinatorStatus,
    /// Why the view that is to be next cannot be kept, if it cannot.
    pub unkept: Option<String>,
    /// The socket's numbers.
    pub wire: Wire,
}

impl CoordinatorHost {
    /// Starts it on a socket whose members are set, with what was kept in a folder. `told` is called on its thread.
    ///
    /// # Errors
    /// What is there is damaged, or of other nodes; the system gives no thread, or no descriptors.
    pub fn start(
        transport: Transport,
        config: CoordinatorConfig,
        file: ViewsFile,
        told: impl FnMut(Keeping<'_>) + Send + 'static,
    ) -> io::Result<Self> {
        let invalid =
            |error: Box<dyn std::error::Error + Send + Sync>| io::Error::new(io::ErrorKind::InvalidData, error);
        let kept = file.read().map_err(|error| invalid(error.into()))?;
        let path = file.path().display().to_string();
        let cannot = |error| match error {
            ViewsError::OtherNodes(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
                format!(
                    "{path}: kept by a coordinator of the nodes {}: name these and no others, or remove it once no node runs that has heard of that coordinator, and all begins anew",
                    nodes.join(", ")
                )
            }
            other @ ViewsError::Nodes(_) => other.to_string(),
        };
        let name = format!("guira-r{}", config.me.0);
        let core = Coordinator::new(boot_now(), config, kept).map_err(|error| invalid(cannot(error).into()))?;
        let machine = |poster| {
            let keeper = Keeper::start(file, poster)?;
            let (told, out) = (Box::new(told), CoordinatorOutbox::default());
            Ok(CoordinatorMachine { core, keeper, unkept: None, told, out, bytes: Vec::new() })
        };
        Host::try_start(&name, transport, machine).map(Self)
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<CoordinatorHostStatus> {
        self.0.look(|machine, wire| CoordinatorHostStatus {
            core: machine.core.status(),
            unkept: machine.unkept.as_ref().map(|unkept| unkept.why.clone()),
            wire,
        })
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

impl Keeper {
    fn start(file: ViewsFile, poster: Poster<Local<CoordinatorMachine>>) -> io::Result<Self> {
        let (given, to_keep) = mpsc::channel();
        let keep = move || keep_all(&file, &to_keep, &poster);
        let thread = thread::Builder::new().name("guira-views".into()).spawn(keep)?;
        Ok(Self { given: Some(given), thread: Some(thread) })
    }

    fn keep(&self, given: Given) {
        // It has ended only if it has panicked, which it has said: then this is as a disk that never answers.
        if let Some(to_keep) = &self.given {
            let _ = to_keep.send(given);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.given = None;
        if let Some(thread) = self.thread.take() {
            // What has panicked there was said.
            let _ = thread.join();
        }
    }
}

/// Keeps what comes, until nothing can any more.
fn keep_all(file: &ViewsFile, given: &Receiver<Given>, poster: &Poster<Local<CoordinatorMachine>>) {
    for next in given {
        let told = match file.keep(&next) {
            Ok(()) => CoordinatorTold::Kept(next.view.epoch),
            Err(error) => CoordinatorTold::NotKept(Box::new(next), error),
        };
        // Who has ended hears nothing.
        let _ = poster.post(Local::Told(told));
    }
}

impl CoordinatorMachine {
    fn step(&mut self, now: Moment, happened: CoordinatorHappened, transport: &mut Transport) {
        self.core.step(now, happened, &mut self.out);
        if let Some(given) = self.out.keep.take() {
            self.keeper.keep(given);
        }
        if let Some((node, consistency)) = self.out.differs.take() {
            (self.told)(Keeping::Differs(node, consistency));
        }
        for (to, message) in self.out.sends.drain(..) {
            self.bytes.clear();
            message.encode(&mut self.bytes);
            transport.send(to, &self.bytes);
        }
    }

    fn on_unkept(&mut self, now: Moment, given: Given, error: &ViewsFileError) {
        let why = error.to_string();
        if self.unkept.is_none() {
            (self.told)(Keeping::Fails(&why));
        }
        self.unkept = Some(Unkept { why, again: Some((given, now + KEEP_AGAIN_AFTER)) });
    }

    fn keep_again(&mut self, now: Moment) {
        let again = self.unkept.as_mut().and_then(|unkept| unkept.again.take_if(|(_, at)| *at <= now));
        if let Some((given, _)) = again {
            self.keeper.keep(given);
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
            CoordinatorTold::Kept(epoch) => {
                if self.unkept.take().is_some() {
                    (self.told)(Keeping::GoesOn);
                }
                self.step(now, CoordinatorHappened::Kept(epoch), transport);
            }
            CoordinatorTold::NotKept(given, error) => self.on_unkept(now, *given, &error),
        }
    }

    fn on_view(&mut self, _: Moment, view: &std::convert::Infallible, _: &mut Transport) {
        match *view {}
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.keep_again(now);
        self.step(now, CoordinatorHappened::Tick, transport);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        let again = self.unkept.as_ref().and_then(|unkept| unkept.again.as_ref()).map(|(_, at)| *at);
        Some(again.into_iter().fold(self.core.wake_at(), Moment::min))
    }
}
