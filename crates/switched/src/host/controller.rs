//! A controller on its socket.

use std::io;

use guira_cluster::UdpTransport;
use guira_item::Moment;
use guira_routing::NodeId;

use super::{Host, Machine, Wire, send_all};
use crate::{
    Message, Outbox,
    controller::{Controller, ControllerConfig, ControllerCounts, Happened},
};

/// A [`Controller`].
pub type ControllerHost = Host<ControllerMachine>;

/// A controller, and what it wants sent.
pub struct ControllerMachine {
    controller: Controller,
    out: Outbox,
}

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
    pub fn start(transport: UdpTransport, config: ControllerConfig) -> io::Result<Self> {
        let name = format!("guira-r{}", config.me.0);
        let controller = Controller::new(config).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Self::start_with(&name, transport, |_| ControllerMachine { controller, out: Outbox::default() })
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<ControllerStatus> {
        self.look(|ControllerMachine { controller, .. }, wire| ControllerStatus {
            counts: controller.counts(),
            rules: controller.rules(),
            wire,
        })
    }
}

impl ControllerMachine {
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut UdpTransport) {
        self.controller.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
        self.out.clear();
    }
}

impl Machine for ControllerMachine {
    type Told = std::convert::Infallible;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut UdpTransport) {
        self.step(now, Happened::Message(from, message), transport);
    }

    fn on_told(&mut self, _: Moment, told: Self::Told, _: &mut UdpTransport) {
        match told {}
    }

    fn on_tick(&mut self, now: Moment, transport: &mut UdpTransport) {
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        self.controller.wake_at(now)
    }
}
