//! A controller on its socket.

use std::io;

use guira_cluster::Transport;

use super::{Host, PlainMachine, Wire};
use crate::controller::{Controller, ControllerConfig, ControllerCounts};

/// A [`Controller`].
pub type ControllerHost = Host<PlainMachine<Controller>>;

/// How a controller is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerStatus {
    /// The core's numbers.
    pub counts: ControllerCounts,
    /// Rules that are made.
    pub rules: usize,
    /// The socket's numbers.
    pub wire: Wire,
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
            wire,
        })
    }
}
