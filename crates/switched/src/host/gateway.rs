//! A gateway on its socket, with those who wait for its answers.

use std::io;

use guira_chain::Reply;
use guira_cluster::{Host, HostOf, Local, Machine, Poster, Transport, Wire, boot_now, look_by};
use guira_front::{Ask, AskNumber, AsksAlways, Desk, Front, FrontService, FrontWorker, Wanted};
use guira_item::{ClusterStats, EngineStats, Moment, store::StoreStats};
use guira_routing::NodeId;

use super::{
    Switched,
    heard::{ClusterHoldings, Heard},
    send_all,
};
use crate::{
    AskId, Message, Outbox, View,
    gateway::{Gateway, GatewayConfig, GatewayCounts, Happened},
};

/// A [`Gateway`] on its host.
#[derive(Debug)]
pub struct GatewayHost(Host<GatewayMachine>);

/// Through which a gateway is asked.
#[derive(Clone, Debug)]
pub struct GatewayFront(Poster<Local<GatewayMachine>>);

/// Gateways as a server's service.
pub type GatewayService = FrontService<GatewayFront>;

/// What a thread of such a server needs.
pub type GatewayWorker = FrontWorker<GatewayFront>;

/// A program before a gateway.
pub type Caller = guira_front::Caller<GatewayFront>;

/// A gateway, and what it owes.
pub struct GatewayMachine {
    stepped: Stepped,
    desk: Desk,
    heard: Heard,
}

/// A gateway, and what it wants done.
struct Stepped {
    gateway: Gateway,
    out: Outbox,
}

/// How a gateway is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayStatus {
    /// The core's numbers.
    pub counts: GatewayCounts,
    /// Hashes that are routed to cache nodes.
    pub routes: usize,
    /// Requests that are under way, and those that wait for one of them.
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
        let (name, answer_within) = (format!("guira-g{}", config.me.0), config.answer_within);
        let machine = |_| {
            let gateway = Gateway::new(config);
            let mut heard = Heard::default();
            heard.set_owners(gateway.owners());
            GatewayMachine {
                stepped: Stepped { gateway, out: Outbox::default() },
                desk: Desk::new(answer_within),
                heard,
            }
        };
        Host::start(&name, transport, machine).map(Self)
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<GatewayStatus> {
        self.front().status()
    }

    /// Through which it is asked.
    pub fn front(&self) -> GatewayFront {
        GatewayFront(self.0.poster())
    }
}

impl HostOf for GatewayHost {
    type Machine = GatewayMachine;

    fn host(&self) -> &Host<GatewayMachine> {
        &self.0
    }

    fn into_host(self) -> Host<GatewayMachine> {
        self.0
    }
}

impl GatewayFront {
    fn status(&self) -> Option<GatewayStatus> {
        look_by(&self.0, |GatewayMachine { stepped: Stepped { gateway, .. }, desk, heard }, wire| GatewayStatus {
            counts: gateway.counts(),
            routes: gateway.routes(),
            pending: gateway.pending() + desk.behind(),
            holdings: heard.sum(boot_now()),
            wire,
        })
    }
}

impl Front for GatewayFront {
    type Direct = AsksAlways;

    fn direct(&self) -> AsksAlways {
        AsksAlways
    }

    fn tell(&self, wanted: Wanted) {
        drop(self.0.post(Local::Told(wanted)));
    }

    /// What backends have told of their stores, a second ago or so, together: items are about as many as they have records. Waits for the gateways'
    /// threads, which wait for nobody. Where nobody knows (stores that share a database) there is nothing.
    fn stats(fronts: &[Self]) -> EngineStats {
        let gateways: Vec<GatewayStatus> = fronts.iter().filter_map(Self::status).collect();
        // Each asks the same backends.
        let best = gateways.iter().map(|gateway| gateway.holdings).max_by_key(|holdings| holdings.heard);
        let ClusterHoldings { holdings: told, backends, heard } = best.unwrap_or_default();
        let holdings = told.unwrap_or_default();
        let sum = |of: fn(&GatewayStatus) -> u64| gateways.iter().map(of).sum();
        let cluster = ClusterStats {
            backends: backends as u64,
            backends_heard: heard as u64,
            backends_read_only: holdings.read_only,
            routes: gateways.iter().map(|gateway| gateway.routes as u64).max().unwrap_or(0),
            pending: sum(|gateway| gateway.pending as u64),
            to_caches: sum(|gateway| gateway.counts.to_caches),
            to_backends: sum(|gateway| gateway.counts.to_backends),
            resent: sum(|gateway| gateway.counts.resent),
            hedged: sum(|gateway| gateway.counts.hedged),
            routed: sum(|gateway| gateway.counts.routed),
            late: sum(|gateway| gateway.counts.late),
            refused: sum(|gateway| gateway.counts.refused),
            away: sum(|gateway| gateway.counts.away),
            moved: sum(|gateway| gateway.counts.moved),
        };
        EngineStats {
            engine: "switched",
            eviction: "none",
            curr_items: holdings.records.unwrap_or(0),
            bytes: holdings.disk_bytes.unwrap_or(0),
            store: told.map(StoreStats::from),
            cluster: Some(cluster),
            ..EngineStats::default()
        }
    }
}

impl Stepped {
    /// Has the core heed something, and sends what it says.
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        self.out.clear();
        self.gateway.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
    }

    /// Asks the core.
    fn ask(&mut self, now: Moment, ask: Ask<'_>, answers: &mut Vec<(AskNumber, Reply)>, transport: &mut Transport) {
        match ask {
            Ask::Key(AskNumber(id), key, operation) => {
                self.step(now, Happened::Ask(AskId(id), key, operation.get()), transport);
            }
            Ask::Flush(AskNumber(id), at) => self.step(now, Happened::Flush(AskId(id), at), transport),
            Ask::Send => return transport.flush(),
        }
        answers.extend(self.answers());
    }

    /// What the step before has answered.
    fn answers(&mut self) -> impl Iterator<Item = (AskNumber, Reply)> {
        self.out.answers.drain(..).map(|(AskId(id), reply)| (AskNumber(id), reply))
    }
}

impl GatewayMachine {
    /// Has the core heed something, and whatever that lets go on.
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        let Self { stepped, desk, .. } = self;
        stepped.step(now, happened, transport);
        desk.hear(stepped.answers());
        desk.go_on(now, |ask, answers| stepped.ask(now, ask, answers, transport));
    }
}

impl Machine for GatewayMachine {
    type Protocol = Switched;
    type Told = Wanted;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        match message {
            Message::Holdings(holdings) => self.heard.on_told(now, from, holdings),
            message => self.step(now, Happened::Message(from, message), transport),
        }
    }

    fn on_told(&mut self, now: Moment, wanted: Wanted, transport: &mut Transport) {
        let Self { stepped, desk, .. } = self;
        desk.want(now, wanted, |ask, answers| stepped.ask(now, ask, answers, transport));
    }

    fn on_view(&mut self, now: Moment, view: &View, transport: &mut Transport) {
        self.step(now, Happened::View(view), transport);
        self.heard.set_owners(self.stepped.gateway.owners());
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.stepped.out.clear();
        self.heard.due(now).for_each(|owner| self.stepped.out.send(owner, &Message::AskHoldings));
        send_all(&self.stepped.out, transport);
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        self.stepped.gateway.wake_at().into_iter().chain([self.heard.ask_at()]).min()
    }
}
