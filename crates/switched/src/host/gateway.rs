//! A gateway on its socket, with those who wait for its answers.

use std::{
    collections::{HashMap, VecDeque},
    io, mem,
};

use guira_chain::{Owned, Reply};
use guira_cluster::{Transport, boot_now};
use guira_item::{Answer, Failure, Key, Moment, Span, Time};
use guira_routing::NodeId;

use super::{
    GatewayPoster, Host, Machine, Wire,
    heard::{ClusterHoldings, Heard},
    lines::{Line, lines_of},
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

/// Operations, of each line the first, between two flushes: as many requests that fill a datagram each fit into what may wait of datagrams. Longer ones go in streams, where
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
    owing: HashMap<AskId, Owing>,
    /// Operations that wait for one that is under way.
    behind: usize,
    /// How long an answer is waited for.
    answer_within: Span,
    last_id: AskId,
    heard: Heard,
    out: Outbox,
}

/// What is owed for an operation that is under way.
struct Owing {
    owed: Owed,
    behind: Option<Box<Behind>>,
}

/// What is asked for once that is answered, in order.
struct Behind {
    asked: VecDeque<Asked>,
    /// That is answered before, if it is answered in time.
    until: Moment,
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
        Self::start_with(&name, transport, |_| {
            let gateway = Gateway::new(config);
            let mut heard = Heard::default();
            heard.set_owners(gateway.owners());
            let (last_id, out) = (AskId(0), Outbox::default());
            GatewayMachine { gateway, owing: HashMap::new(), behind: 0, answer_within, last_id, heard, out }
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
    look_by(gateway, |GatewayMachine { gateway, behind, heard, .. }, wire| GatewayStatus {
        counts: gateway.counts(),
        routes: gateway.routes(),
        pending: gateway.pending() + behind,
        holdings: heard.sum(boot_now()),
        wire,
    })
}

impl GatewayMachine {
    /// Has the core heed something, and whatever that lets go on.
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        let lines = self.step_core(now, happened, transport);
        self.go_on(now, lines, transport);
    }

    /// Asks for what is first in some lines, and for what comes behind that if it is answered at once.
    fn go_on(&mut self, now: Moment, mut lines: Vec<Line>, transport: &mut Transport) {
        while let Some(line) = lines.pop() {
            lines.extend(self.ask(now, line, transport));
        }
    }

    /// Asks for the first of a line, which the others wait for; lines that go on.
    fn ask(&mut self, now: Moment, line: Line, transport: &mut Transport) -> Vec<Line> {
        let Line { first: Asked { key, operation, mut owed }, behind } = line;
        let (key, operation) = (Key::new(&key).expect("a client's key"), operation.get());
        owed.begin(!operation.only_reads());
        let until = now + self.answer_within;
        let behind = (!behind.is_empty()).then(|| Behind { asked: behind, until });
        let id = self.owe(owed, behind);
        self.step_core(now, Happened::Ask(id, key, operation), transport)
    }

    /// Notes who waits for what is asked next, and what is asked then.
    fn owe(&mut self, owed: Owed, behind: Option<Behind>) -> AskId {
        self.last_id = AskId(self.last_id.0 + 1);
        self.behind += behind.as_ref().map_or(0, |behind| behind.asked.len());
        self.owing.insert(self.last_id, Owing { owed, behind: behind.map(Box::new) });
        self.last_id
    }

    /// Has the core heed something, and brings its answers to who waits for them; lines that go on.
    fn step_core(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) -> Vec<Line> {
        self.gateway.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
        let mut answers = mem::take(&mut self.out.answers);
        let lines = answers.drain(..).filter_map(|(id, reply)| self.answer(now, id, reply)).collect();
        self.out.clear();
        self.out.answers = answers;
        lines
    }

    /// Answers an operation; the rest of its line, if there is one. Behind what has had no answer in time nothing is asked for: each could take as long.
    fn answer(&mut self, now: Moment, id: AskId, reply: Reply) -> Option<Line> {
        let Owing { owed, behind } = self.owing.remove(&id)?;
        owed.answer(reply);
        let Behind { asked: mut behind, until } = *behind?;
        self.behind -= behind.len();
        if now >= until {
            behind.into_iter().for_each(|asked| asked.owed.answer(Reply::Answer(Answer::Failed(Failure::Away), None)));
            return None;
        }
        Some(Line { first: behind.pop_front()?, behind })
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
            Wanted::Flush(at, mut owed) => {
                owed.begin(true);
                let id = self.owe(owed, None);
                self.step(now, Happened::Flush(id, at), transport);
            }
            Wanted::Asked(all) => {
                for (at, line) in (1..).zip(lines_of(all)) {
                    let lines = self.ask(now, line, transport);
                    self.go_on(now, lines, transport);
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
        self.gateway.wake_at().into_iter().chain([self.heard.ask_at()]).min()
    }
}
