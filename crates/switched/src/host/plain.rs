//! A core that has nothing but messages and time, on its socket.

use std::convert::Infallible;

use guira_cluster::Transport;
use guira_item::Moment;
use guira_routing::NodeId;

use super::{Machine, send_all};
use crate::{Happened, Message, Outbox, cache_node::CacheNode, controller::Controller};

/// Such a core.
pub trait Plain: Send + 'static {
    /// Heeds what has happened; `now` was read after it had.
    fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox);

    /// When `step` has something to do, if nothing happens before.
    fn wake_at(&self, now: Moment) -> Option<Moment>;
}

impl Plain for CacheNode {
    fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        Self::step(self, now, happened, out);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        Self::wake_at(self)
    }
}

impl Plain for Controller {
    fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        Self::step(self, now, happened, out);
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        Self::wake_at(self, now)
    }
}

/// It, and what it wants sent.
pub struct PlainMachine<C> {
    pub(super) core: C,
    out: Outbox,
}

impl<C: Plain> PlainMachine<C> {
    pub(super) fn new(core: C) -> Self {
        Self { core, out: Outbox::default() }
    }

    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        self.core.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
        self.out.clear();
    }
}

impl<C: Plain> Machine for PlainMachine<C> {
    type Told = Infallible;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        self.step(now, Happened::Message(from, message), transport);
    }

    fn on_told(&mut self, _: Moment, told: Infallible, _: &mut Transport) {
        match told {}
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        self.core.wake_at(now)
    }
}
