//! A gateway on its socket, with those who wait for its answers.

use std::{collections::HashMap, io};

use guira_chain::Owned;
use guira_cluster::{Transport, boot_now};
use guira_item::{Key, Moment, Time};
use guira_routing::NodeId;

use super::{
    GatewayPoster, Host, Machine, Wire,
    heard::{ClusterHoldings, Heard},
    look_by,
    owed::Owed,
    send_all,
};
use crate::{
    AskId, Message, Outbox, View,
    gateway::{Gateway, GatewayConfig, GatewayCounts, Happened},
};

/// A [`Gateway`].
pub type GatewayHost = Host<GatewayMachine>;

/// Operations between two flushes: as many requests that fill a datagram each fit into what may wait of datagrams. Longer ones go in streams, where
/// what waits is bounded in bytes: a gateway has no more of them under way for one backend, unless items may be longer than 4 MiB.
const ASKED_A_FLUSH: usize = 256;

/// What clients want of a gateway.
#[derive(Debug)]
pub struct GatewayTold(pub(super) Wanted);

#[derive(Debug)]
pub(super) enum Wanted {
    /// What is left of a batch, in order.
    Asked(Vec<Asked>),
    /// All items that are there at a time, in the cluster's seconds, are to be gone then.
    Flush(Time, Owed),
}

/// One operation, in the cluster's seconds.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: Box<[u8]>,
    pub(super) operation: Owned,
    pub(super) owed: Owed,
}

/// A gateway, and what it owes.
pub struct GatewayMachine {
    gateway: Gateway,
    owed: HashMap<AskId, Owed>,
    last_id: AskId,
    heard: Heard,
    out: Outbox,
}

/// How a gateway is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayStatus {
    /// The core's numbers.
    pub counts: GatewayCounts,
    /// Hashes that are routed to cache nodes.
    pub routes: usize,
    /// Requests that are under way.
    pub pending: usize,
    /// What all backends have.
    pub holdings: ClusterHoldings,
    /// The socket's numbers.
    pub wire: Wire,
}

impl GatewayHost {
    /// Starts it on a socket whose members are set.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start(transport: Transport, config: GatewayConfig) -> io::Result<Self> {
        let name = format!("guira-g{}", config.me.0);
        Self::start_with(&name, transport, |_| {
            let gateway = Gateway::new(config);
            let mut heard = Heard::default();
            heard.set_owners(gateway.owners());
            GatewayMachine { gateway, owed: HashMap::new(), last_id: AskId(0), heard, out: Outbox::default() }
        })
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<GatewayStatus> {
        status_by(&self.poster())
    }

    pub(super) fn poster(&self) -> GatewayPoster {
        self.driver.poster()
    }
}

/// See [`GatewayHost::status`].
pub(super) fn status_by(gateway: &GatewayPoster) -> Option<GatewayStatus> {
    look_by(gateway, |GatewayMachine { gateway, heard, .. }, wire| GatewayStatus {
        counts: gateway.counts(),
        routes: gateway.routes(),
        pending: gateway.pending(),
        holdings: heard.sum(boot_now()),
        wire,
    })
}

impl GatewayMachine {
    /// Notes who waits for what is asked next.
    fn owe(&mut self, mut owed: Owed, changes: bool) -> AskId {
        owed.begin(changes);
        self.last_id = AskId(self.last_id.0 + 1);
        self.owed.insert(self.last_id, owed);
        self.last_id
    }

    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        self.gateway.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
        for (id, reply) in self.out.answers.drain(..) {
            if let Some(owed) = self.owed.remove(&id) {
                owed.answer(reply);
            }
        }
        self.out.clear();
    }
}

impl Machine for GatewayMachine {
    type Told = GatewayTold;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        match message {
            Message::Holdings(holdings) => self.heard.on_told(now, from, holdings),
            message => self.step(now, Happened::Message(from, message), transport),
        }
    }

    fn on_told(&mut self, now: Moment, GatewayTold(wanted): GatewayTold, transport: &mut Transport) {
        match wanted {
            Wanted::Flush(at, owed) => {
                let id = self.owe(owed, true);
                self.step(now, Happened::Flush(id, at), transport);
            }
            Wanted::Asked(all) => {
                for (at, Asked { key, operation, owed }) in (1..).zip(all) {
                    let (key, operation) = (Key::new(&key).expect("a client's key"), operation.get());
                    let id = self.owe(owed, !operation.only_reads());
                    self.step(now, Happened::Ask(id, key, operation), transport);
                    if at % ASKED_A_FLUSH == 0 {
                        transport.flush();
                    }
                }
            }
        }
    }

    fn on_view(&mut self, now: Moment, view: &View, transport: &mut Transport) {
        self.step(now, Happened::View(view), transport);
        self.heard.set_owners(self.gateway.owners());
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.heard.due(now).for_each(|owner| self.out.send(owner, &Message::AskHoldings));
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        Some(self.gateway.wake_at().min(self.heard.ask_at()))
    }
}
