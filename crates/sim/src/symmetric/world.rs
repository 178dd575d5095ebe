//! The world: members, network, the coordinator's disk and clients, and what happens to them in the order of virtual time.
//!
//! Always true: what happens at one moment happens in the order in which it was brought about; a member that is down hears nothing and one that is paused hears it later, with its clock
//! as it is then; what a member has sent when it goes down is still under way.

use std::collections::BTreeMap;

use guira_cluster::Life;
use guira_history::Event;
use guira_item::{Moment, Span};
use guira_routing::NodeId;
use guira_symmetric::Given;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::{
    coming::{Coming, Input},
    given::Disk,
    members::{COORDINATOR, Core, Outboxes},
    report::Report,
    scenario::Scenario,
};
use crate::{
    agenda::Agenda,
    chance::around,
    clients::{Clients, thinks_for},
    host::{Host, Woken, cluster_time},
    network::{Network, Weather},
    register::{Act, State},
    simulation::{Failure, Rounds, chained},
};

/// By so long after its client was given up nothing of a request is under way any more: members finish what one that is gone has begun to write once there is a view without it, which a coordinator that
/// is down for long, or cut off, gives out late.
const HAPPENS_WITHIN: Span = Span::from_s(90);

/// What clients know a content by has the writer's number in it.
const WRITER_BITS: u32 = u16::BITS;

/// More than happens in a second, whatever is wrong.
const EVENTS_A_SECOND_MAX: u64 = 20_000;

/// One member.
pub(super) struct Member {
    /// While it is up.
    pub(super) core: Option<Core>,
    pub(super) host: Host,
}

/// Everything.
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) now: Moment,
    coming: Agenda<Coming>,
    pub(super) members: BTreeMap<NodeId, Member>,
    pub(super) network: Network,
    pub(super) disk: Disk,
    /// The last view that is on disk.
    pub(super) given: Given,
    pub(super) clients: Clients,
    out: Outboxes,
    /// Clients ask, and things go wrong.
    pub(super) is_on: bool,
    pub(super) report: Report,
}

impl World {
    /// # Errors
    /// The coordinator cannot begin.
    pub(super) fn new(scenario: Scenario, seed: u64) -> Result<Self, Failure> {
        let mut world = Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: Moment::default(),
            coming: Agenda::default(),
            members: BTreeMap::new(),
            network: Network::new(Weather::USUAL),
            disk: Disk::default(),
            given: Given::default(),
            clients: Clients::new(scenario.keys, 0).wanting_all_at_once(HAPPENS_WITHIN).with_writer_bits(WRITER_BITS),
            out: Outboxes::default(),
            is_on: false,
            report: Report::default(),
            scenario,
        };
        for name in world.scenario.names() {
            let host = Host::new(world.now, &mut world.rng);
            world.members.insert(name, Member { core: None, host });
            world.start(name)?;
        }
        Ok(world)
    }

    /// Something is going to happen after `after`.
    pub(super) fn come(&mut self, after: Span, coming: Coming) {
        self.coming.put(self.now + after, coming);
    }

    pub(super) fn member(&mut self, name: NodeId) -> &mut Member {
        self.members.get_mut(&name).expect("one of all")
    }

    pub(super) fn is_down(&self, name: NodeId) -> bool {
        self.members[&name].core.is_none()
    }

    /// A member begins a life.
    pub(super) fn start(&mut self, name: NodeId) -> Result<(), Failure> {
        let (now, seed) = (self.now, self.rng.random());
        let kept = self.disk.read()?;
        let host = &mut self.member(name).host;
        host.begin_incarnation(now);
        let life = Life { incarnation: host.incarnation(), clock: host.node_clock(now), seed };
        host.begin_life();
        let local = host.local(now);
        let core = self.scenario.core(name, local, life, kept)?;
        self.member(name).core = Some(core);
        self.step(name, Input::Tick)
    }

    /// A member is killed, and begins again after a while.
    pub(super) fn crash(&mut self, name: NodeId, down_for: Span, loses_clock: bool) -> Result<(), Failure> {
        let (now, behind_max) = (self.now, self.scenario.wall_behind_max);
        let Member { core, host } = self.members.get_mut(&name).expect("one of all");
        let Some(core) = core.take() else { return Ok(()) };
        let local = host.local(now);
        host.go_on(now);
        if loses_clock {
            host.lose_clock(now, behind_max, &mut self.rng);
        }
        self.report.count(&core, local);
        if name == COORDINATOR {
            self.break_off_writing()?;
        }
        let scenario = self.scenario.clone();
        for client in self.clients.hang_up(now, |client| scenario.node_of(client) == name) {
            self.think(client);
        }
        self.come(down_for, Coming::Restart(name));
        Ok(())
    }

    /// Something happens to a member that is up and not paused.
    fn step(&mut self, name: NodeId, input: Input) -> Result<(), Failure> {
        let Member { core, host } = self.members.get_mut(&name).expect("one of all");
        let Some(core) = core else { return Ok(()) };
        self.report.events += 1;
        let mut trace = chained(self.report.trace, &self.now.ns().to_le_bytes());
        trace = chained(trace, &name.0.to_le_bytes());
        if let Input::Datagram(_, bytes) = &input {
            trace = chained(trace, bytes);
        }
        self.report.trace = trace;
        let now = host.local(self.now);
        core.step(now, input, &mut self.out)?;
        let held = host.stop_in_a_step(self.now);
        let wakes_after = core.wake_at(now).and_then(|wake_at| host.wakes_after(self.now, wake_at));
        self.carry_out(name, held);
        if let Some(after) = wakes_after {
            self.come(after, Coming::Wake(name));
        }
        Ok(())
    }

    /// Does what a step wants done, `held` later.
    fn carry_out(&mut self, name: NodeId, held: Span) {
        let mut out = std::mem::take(&mut self.out);
        if let Some(given) = out.coordinator.keep.take() {
            self.keep(&given, held);
        }
        for (to, message) in out.coordinator.sends.drain(..).chain(out.node.sends.drain(..)) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            for after in self.network.fates(name, to, &mut self.rng).into_iter().flatten() {
                self.come(held + after, Coming::To(to, None, Input::Datagram(name, bytes.as_slice().into())));
            }
        }
        for (id, reply) in out.node.answers.drain(..) {
            self.come(held, Coming::Answer(guira_switched::AskId(id.0), Box::new(reply)));
        }
        self.out = out;
    }

    fn happen(&mut self, coming: Coming) -> Result<(), Failure> {
        match coming {
            Coming::To(name, life, input) => return self.reach(name, life, input),
            Coming::Wake(name) => {
                let now = self.now;
                match self.member(name).host.wake(now) {
                    Woken::Yes => return self.step(name, Input::Tick),
                    Woken::After(pause) => self.come(pause, Coming::Wake(name)),
                    Woken::No => {}
                }
            }
            Coming::Restart(name) if self.is_down(name) => return self.start(name),
            Coming::Restart(_) => {}
            Coming::Written(life) => return self.on_written(life),
            Coming::Answer(id, reply) => {
                if let Some(client) = self.clients.answer(self.now, id, &reply).map_err(Failure::Answer)? {
                    self.think(client);
                }
            }
            Coming::Asks(client) if self.is_on => self.ask(client),
            Coming::Fault if self.is_on => {
                self.report.faults += 1;
                self.fails_again();
                return self.go_wrong();
            }
            Coming::Asks(_) | Coming::Fault => {}
            Coming::Clears => self.network.weather = if self.is_on { Weather::USUAL } else { Weather::CLEAR },
            Coming::Cuts(one, other) if self.is_on => {
                self.network.cut(one, other);
                self.network.cut(other, one);
            }
            Coming::Cuts(..) => {}
            Coming::Heals => self.network.heal(),
        }
        Ok(())
    }

    /// Something comes to a member: if it is paused, later.
    fn reach(&mut self, name: NodeId, life: Option<u64>, input: Input) -> Result<(), Failure> {
        let Some(Member { core, host }) = self.members.get(&name) else {
            return Err(Failure::Answer(format!("something was sent to {name:?}, which is nobody")));
        };
        if core.is_none() || life.is_some_and(|life| life != host.life()) {
            return Ok(());
        }
        match host.pauses_for(self.now) {
            Some(pause) => {
                self.come(pause, Coming::To(name, life, input));
                Ok(())
            }
            None => self.step(name, input),
        }
    }

    /// Something goes wrong again after a while.
    fn fails_again(&mut self) {
        let gap = around(&mut self.rng, self.scenario.fault_every);
        self.come(gap, Coming::Fault);
    }

    /// A client asks again after a while.
    fn think(&mut self, client: usize) {
        let after = thinks_for(self.scenario.clients, self.scenario.operations_per_s, &mut self.rng);
        self.come(after, Coming::Asks(client));
    }

    fn ask(&mut self, client: usize) {
        let node = self.scenario.node_of(client);
        if self.is_down(node) {
            return self.think(client);
        }
        let flushes_per_mille = self.scenario.flushes_per_mille;
        let (id, wish) = self.clients.wish(client, cluster_time(self.now), flushes_per_mille, &mut self.rng);
        let life = self.members[&node].host.life();
        self.come(Span::default(), Coming::To(node, Some(life), Input::Ask(id, wish)));
    }

    /// Everything that comes within so long.
    pub(super) fn run_on(&mut self, span: Span) -> Result<(), Failure> {
        let until = self.now + span;
        let (mut second, mut before) = (self.now, self.report.events);
        while let Some((at, coming)) = self.coming.next(until) {
            if at.since(second) >= Span::from_s(1) {
                (second, before) = (at, self.report.events);
            }
            self.now = at;
            self.happen(coming)?;
            if self.report.events - before > EVENTS_A_SECOND_MAX {
                return Err(Failure::Stuck("members talk to each other without end".to_owned()));
            }
        }
        self.now = until;
        Ok(())
    }
}

impl Rounds for World {
    type Report = Report;

    fn first(&self) -> Vec<State> {
        self.clients.first_states()
    }

    fn run_for(&mut self, span: Span) -> Result<(), Failure> {
        self.is_on = true;
        self.network.weather = Weather::USUAL;
        (0..self.scenario.clients).for_each(|client| self.think(client));
        self.fails_again();
        self.run_on(span)
    }

    fn settle(&mut self) -> Result<Vec<State>, Failure> {
        self.settle_down()
    }

    fn take_histories(&mut self) -> Vec<Vec<Event<Act>>> {
        self.clients.take_histories()
    }

    fn report(mut self) -> Report {
        let now = self.now;
        for Member { core, host } in std::mem::take(&mut self.members).into_values() {
            if let Some(core) = &core {
                self.report.count(core, host.local(now));
            }
        }
        Report { tally: self.clients.tally, ..self.report }
    }
}
