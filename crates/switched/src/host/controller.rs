//! A controller on its socket.

use std::{
    io,
    sync::mpsc::{self, Sender},
};

use guira_cluster::{Host, HostOf, Local, Machine, Poster, Transport, Wire, boot_now};
use guira_item::Moment;
use guira_openflow::{FlowAt, SwitchStatus, SwitchesTold, Version, WantedChanges, WantedFlows};
use guira_routing::{Choices, KeyHash, NodeId, RuleBudget};

use super::{
    Switched,
    network::{Network, NetworkConfig, status_of},
    send_all,
};
use crate::{
    Happened, Message, Outbox, View,
    controller::{BackendReport, CacheReport, Controller, ControllerConfig, ControllerCounts, MoveError},
};

/// A [`Controller`] on its host.
#[derive(Debug)]
pub struct ControllerHost(Host<ControllerMachine>);

/// A controller, and the switches that it has rules in, if it has.
pub struct ControllerMachine {
    core: Controller,
    network: Option<Network>,
    out: Outbox,
}

/// What other threads tell it.
#[derive(Debug)]
pub enum ControllerTold {
    /// An operator wants something.
    Move(MoveWish),
    /// Something of switches.
    Switches(SwitchesTold),
}

impl ControllerMachine {
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        self.core.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
        if let Some(network) = &mut self.network {
            network.update(self.out.rules.drain(..));
            network.tick(now);
        }
        self.out.clear();
    }
}

impl Machine for ControllerMachine {
    type Protocol = Switched;
    type Told = ControllerTold;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        self.step(now, Happened::Message(from, message), transport);
    }

    fn on_told(&mut self, now: Moment, told: ControllerTold, transport: &mut Transport) {
        match (told, &mut self.network) {
            (ControllerTold::Move(wish), _) => {
                wish.tell(self.core.move_backend(now, wish.backend, wish.cache));
            }
            (ControllerTold::Switches(told), Some(network)) => network.on_told(now, told, &mut self.core),
            (ControllerTold::Switches(_), None) => {}
        }
        self.step(now, Happened::Tick, transport);
    }

    fn on_view(&mut self, now: Moment, view: &View, transport: &mut Transport) {
        if let Some(network) = &mut self.network {
            network.set_view(view);
        }
        self.step(now, Happened::View(view), transport);
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        self.core.wake_at(now).into_iter().chain(self.network.as_ref().and_then(Network::wake_at)).min()
    }
}

/// How a controller is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerStatus {
    /// The core's numbers.
    pub counts: ControllerCounts,
    /// Rules that are made.
    pub rules: usize,
    /// How many installs and how many deletions wait.
    pub waiting: (usize, usize),
    /// What the switch takes.
    pub budget: RuleBudget,
    /// The socket's numbers.
    pub wire: Wire,
}

/// Why nothing is told of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFlows {
    /// Gateways route, and no switches.
    NoSwitches,
    /// Of what has changed since that version not all is known.
    Unknown,
}

/// An operator wants a backend to be in the charge of a cache node, and waits to be told whether that can be.
#[derive(Debug)]
pub struct MoveWish {
    pub(super) backend: NodeId,
    pub(super) cache: NodeId,
    told: Sender<Result<(), MoveError>>,
}

impl MoveWish {
    pub(super) fn tell(&self, done: Result<(), MoveError>) {
        // Who no longer waits is not told.
        let _ = self.told.send(done);
    }
}

impl HostOf for ControllerHost {
    type Machine = ControllerMachine;

    fn host(&self) -> &Host<ControllerMachine> {
        &self.0
    }

    fn into_host(self) -> Host<ControllerMachine> {
        self.0
    }
}

impl ControllerHost {
    /// Starts it on a socket whose members are set.
    ///
    /// # Errors
    /// The budget leaves no room for rules, or the system gives no thread, or no descriptors.
    pub fn start(transport: Transport, config: ControllerConfig) -> io::Result<Self> {
        Self::start_in(transport, config, None)
    }

    /// Starts one that has rules in switches. The view says who there is at first.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_network(
        transport: Transport,
        config: ControllerConfig,
        network: NetworkConfig,
        view: &View,
    ) -> io::Result<Self> {
        Self::start_in(transport, config, Some((network, view)))
    }

    fn start_in(
        transport: Transport,
        config: ControllerConfig,
        network: Option<(NetworkConfig, &View)>,
    ) -> io::Result<Self> {
        let (name, lease) = (format!("guira-r{}", config.me.0), config.lease);
        let core = Controller::new(config).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let machine = |poster: Poster<Local<ControllerMachine>>| {
            // Who no longer listens has ended.
            let told = move |told| drop(poster.post(Local::Told(ControllerTold::Switches(told))));
            let network = network.map(|(config, view)| Network::new(boot_now(), lease, config, view, told));
            Ok(ControllerMachine { core, network: network.transpose()?, out: Outbox::default() })
        };
        Host::try_start(&name, transport, machine).map(Self)
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<ControllerStatus> {
        self.0.look(|ControllerMachine { core, .. }, wire| ControllerStatus {
            counts: core.counts(),
            rules: core.rules(),
            waiting: core.waiting(),
            budget: core.budget(),
            wire,
        })
    }

    /// How switches are that have called, if there may be any; `None` if it has ended.
    pub fn switches(&self) -> Option<Vec<SwitchStatus>> {
        // Its thread does not wait for theirs.
        self.0.look(|machine, _| machine.network.as_ref().map(Network::switches)).map(status_of)
    }

    /// The flows that switches are to have behind one, see [`Switches::flows_after`](guira_openflow::Switches::flows_after). `None` if it has ended.
    pub fn flows_after(&self, flow: Option<FlowAt>, len_max: usize) -> Option<Result<WantedFlows, NoFlows>> {
        let Some(switches) = self.0.look(|machine, _| machine.network.as_ref().map(Network::switches))? else {
            return Some(Err(NoFlows::NoSwitches));
        };
        switches.flows_after(flow, len_max).ok().map(Ok)
    }

    /// What has changed of them since a version, see [`Switches::flows_since`](guira_openflow::Switches::flows_since). `None` if it has ended.
    pub fn flows_since(&self, version: Version, len_max: usize) -> Option<Result<WantedChanges, NoFlows>> {
        let Some(switches) = self.0.look(|machine, _| machine.network.as_ref().map(Network::switches))? else {
            return Some(Err(NoFlows::NoSwitches));
        };
        switches.flows_since(version, len_max).ok().map(|changes| changes.ok_or(NoFlows::Unknown))
    }

    /// See [`Controller::caches`]; `None` if it has ended.
    pub fn caches(&self) -> Option<Vec<CacheReport>> {
        self.0.look(|machine, _| machine.core.caches())
    }

    /// See [`Controller::backends`]; `None` if it has ended.
    pub fn backends(&self) -> Option<Vec<BackendReport>> {
        self.0.look(|machine, _| machine.core.backends())
    }

    /// See [`Controller::rules_after`]; `None` if it has ended.
    pub fn rules_after(&self, after: Option<KeyHash>, len_max: usize) -> Option<Vec<(KeyHash, Choices)>> {
        self.0.look(move |machine, _| machine.core.rules_after(after, len_max))
    }

    /// See [`Controller::rule`]; `None` if it has ended.
    pub fn rule(&self, hash: KeyHash) -> Option<Option<Choices>> {
        self.0.look(move |machine, _| machine.core.rule(hash))
    }

    /// See [`Controller::move_backend`]; `None` if it has ended.
    pub fn move_backend(&self, backend: NodeId, cache: NodeId) -> Option<Result<(), MoveError>> {
        let (told, tell) = mpsc::channel();
        self.0.tell(ControllerTold::Move(MoveWish { backend, cache, told })).ok()?;
        tell.recv().ok()
    }
}
