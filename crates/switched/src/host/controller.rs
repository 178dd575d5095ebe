//! A controller on its socket.

use std::{
    io,
    sync::mpsc::{self, Sender},
};

use guira_cluster::Transport;
use guira_routing::{Choices, KeyHash, NodeId, RuleBudget};

use super::{Host, Local, PlainMachine, Wire};
use crate::controller::{BackendReport, CacheReport, Controller, ControllerConfig, ControllerCounts, MoveError};

/// A [`Controller`].
pub type ControllerHost = Host<PlainMachine<Controller>>;

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

impl ControllerHost {
    /// Starts it on a socket whose members are set.
    ///
    /// # Errors
    /// The budget leaves no room for rules, or the system gives no thread, or no descriptors.
    pub fn start(transport: Transport, config: ControllerConfig) -> io::Result<Self> {
        let name = format!("guira-r{}", config.me.0);
        let controller = Controller::new(config).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Self::start_with(&name, transport, |_| PlainMachine::new(controller))
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<ControllerStatus> {
        self.look(|PlainMachine { core, .. }, wire| ControllerStatus {
            counts: core.counts(),
            rules: core.rules(),
            waiting: core.waiting(),
            budget: core.budget(),
            wire,
        })
    }

    /// See [`Controller::caches`]; `None` if it has ended.
    pub fn caches(&self) -> Option<Vec<CacheReport>> {
        self.look(|machine, _| machine.core.caches())
    }

    /// See [`Controller::backends`]; `None` if it has ended.
    pub fn backends(&self) -> Option<Vec<BackendReport>> {
        self.look(|machine, _| machine.core.backends())
    }

    /// See [`Controller::rules_after`]; `None` if it has ended.
    pub fn rules_after(&self, after: Option<KeyHash>, len_max: usize) -> Option<Vec<(KeyHash, Choices)>> {
        self.look(move |machine, _| machine.core.rules_after(after, len_max))
    }

    /// See [`Controller::rule`]; `None` if it has ended.
    pub fn rule(&self, hash: KeyHash) -> Option<Option<Choices>> {
        self.look(move |machine, _| machine.core.rule(hash))
    }

    /// See [`Controller::move_backend`]; `None` if it has ended.
    pub fn move_backend(&self, backend: NodeId, cache: NodeId) -> Option<Result<(), MoveError>> {
        let (told, tell) = mpsc::channel();
        self.driver.post(Local::Told(MoveWish { backend, cache, told })).ok()?;
        tell.recv().ok()
    }
}
