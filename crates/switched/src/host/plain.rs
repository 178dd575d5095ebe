//! A core that has nothing but messages and time, and perhaps what an operator wants, on its socket.

use std::convert::Infallible;

use guira_cluster::Transport;
use guira_item::Moment;
use guira_routing::NodeId;

use super::{Machine, controller::MoveWish, send_all};
use crate::{Happened, Message, Outbox, View, cache_node::CacheNode, controller::Controller};

/// Such a core.
pub trait Plain: Send + 'static {
    /// What other threads tell it.
    type Told: Send + 'static;

    /// Another thread tells something; a step follows.
    fn on_told(&mut self, now: Moment, told: Self::Told);

    /// Heeds what has happened; `now` was read after it had.
    fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox);

    /// When `step` has something to do, if nothing happens before.
    fn wake_at(&self, now: Moment) -> Option<Moment>;
}

impl Plain for CacheNode {
    type Told = Infallible;

    fn on_told(&mut self, _: Moment, told: Infallible) {
        match told {}
    }

    fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        Self::step(self, now, happened, out);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        Self::wake_at(self)
    }
}

impl Plain for Controller {
    type Told = MoveWish;

    fn on_told(&mut self, now: Moment, wish: MoveWish) {
        wish.tell(self.move_backend(now, wish.backend, wish.cache));
    }

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
    type Told = C::Told;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        self.step(now, Happened::Message(from, message), transport);
    }

    fn on_told(&mut self, now: Moment, told: C::Told, transport: &mut Transport) {
        self.core.on_told(now, told);
        self.step(now, Happened::Tick, transport);
    }

    fn on_view(&mut self, now: Moment, view: &View, transport: &mut Transport) {
        self.step(now, Happened::View(view), transport);
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        self.core.wake_at(now)
    }
}
