//! The world: nodes, network, disks and clients, and what happens to them in the order of virtual time.
//!
//! Always true: what happens at one moment happens in the order in which it was brought about; a node that is down hears nothing and one that is
//! paused hears it later, with its clock as it is then; what a node has sent when it goes down is still under way.

mod coming;
mod counts;
mod settling;

use std::collections::BTreeMap;

use guira_cluster::{CLOCK, Incarnation};
use guira_item::{Key, Moment, Span, Time};
use guira_routing::{KeyHash, NodeId, RuleSink};
use guira_switched::{Committed, Happened, Life, Message, Outbox, Shares, StoreCall, View, backend, gateway};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use crate::{
    agenda::Agenda,
    chance::{around, between},
    clients::{Clients, Wish, thinks_for},
    disk::{Disk, Failing},
    host::{BEGINS, Host, Woken, cluster_time},
    members::{CONTROLLER, Core, FIRST_BACKEND, FIRST_CACHE, FIRST_GATEWAY, ROUTES_MAX, of_kind, view_of},
    network::{Network, Weather},
    register::{Act, State},
    scenario::{Report, Scenario},
    simulation::{Failure, Rounds, chained},
    standbys::Hold,
    switch::Switch,
};

pub(crate) use self::coming::{Coming, Input};

/// A clock is ahead by less than one part in so many.
const EARLY_PART: u64 = 2_000;

/// How often it is looked whether what is due has taken place.
const LOOKS_AFTER: Span = Span::from_ms(100);

struct Node {
    core: Option<Core>,
    /// The last that it has heard of.
    view: usize,
    host: Host,
    disk: Disk,
    /// Whether that is its own, of a backend.
    hold: Hold,
    failing: Failing,
    /// When its last write completes: the next one does not before.
    disk_free_at: Moment,
}

/// How far a wall clock may be behind that was set anew: longer than items last.
const WALL_BEHIND_MAX: Span = Span::from_s(5);

/// Everything.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) now: Moment,
    coming: Agenda<Coming>,
    nodes: BTreeMap<NodeId, Node>,
    pub(crate) network: Network,
    /// What routes for all gateways, if the network does.
    switch: Switch,
    /// Who has been there, first to last.
    views: Vec<View>,
    /// Who has the place of each backend that there was at first.
    pub(crate) places: BTreeMap<NodeId, NodeId>,
    clients: Clients,
    out: Outbox,
    /// Clients ask, and things go wrong.
    is_on: bool,
    report: Report,
}

impl World {
    pub(crate) fn new(scenario: Scenario, seed: u64) -> Self {
        let shares = Shares::fixed(scenario.partitions());
        let (caches, gateways) = (scenario.cache_nodes(), of_kind(FIRST_GATEWAY, scenario.gateways));
        let places = of_kind(FIRST_BACKEND, scenario.backends).into_iter().map(|backend| (backend, backend)).collect();
        let mut world = Self {
            views: vec![view_of(&scenario, &places, caches, gateways, shares)],
            places,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: Moment::default(),
            coming: Agenda::default(),
            nodes: BTreeMap::new(),
            network: Network::new(Weather::USUAL),
            switch: Switch::new(scenario.switch, seed),
            clients: Clients::new(scenario.keys, scenario.value_len),
            out: Outbox::default(),
            is_on: false,
            report: Report::default(),
            scenario,
        };
        world.switch.set_len_max(ROUTES_MAX);
        for name in world.names() {
            let host = Host::new(world.now, &mut world.rng);
            let disk = if world.scenario.standbys > 0 { Disk::shared() } else { Disk::default() };
            let node = Node {
                core: None,
                view: 0,
                host,
                disk,
                hold: Hold::default(),
                failing: Failing { per_mille: world.scenario.disk_fails_per_mille },
                disk_free_at: Moment::default(),
            };
            world.nodes.insert(name, node);
            if world.is_there(name, 0) {
                world.start(name);
            }
        }
        world
    }

    /// Something is going to happen after `after`.
    pub(crate) fn come(&mut self, after: Span, coming: Coming) {
        self.coming.put(self.now + after, coming);
    }

    /// Who is there.
    pub(crate) fn view(&self) -> &View {
        self.views.last().expect("there is a first one")
    }

    /// These are there from now on; each node hears of it within `delay_max`.
    pub(crate) fn set_view(&mut self, view: View, delay_max: Span) {
        self.views.push(view);
        self.report.members_changed += 1;
        for name in self.names() {
            let after = Span::from_ns(self.rng.random_range(0..=delay_max.ns()));
            self.come(after, Coming::To(name, None, Input::View(self.views.len() - 1)));
        }
    }

    fn is_there(&self, name: NodeId, view: usize) -> bool {
        let View { caches, gateways, backends, .. } = &self.views[view];
        match name.0 {
            FIRST_CACHE..FIRST_BACKEND => caches.is_part(name),
            FIRST_BACKEND..FIRST_GATEWAY => backends.contains(&name),
            FIRST_GATEWAY.. => gateways.contains(&name),
            _ => true,
        }
    }

    /// A node that is up hears of a view, unless it knows a later one: it ends, if it is not in it.
    fn hear_of(&mut self, name: NodeId, view: usize) {
        let node = self.nodes.get_mut(&name).expect("one of all");
        if node.core.is_none() || view <= node.view {
            return;
        }
        node.view = view;
        if self.is_there(name, view) {
            self.step(name, Input::View(view));
        } else {
            // Who is there again is started again.
            self.crash(name, Span::from_s(1), false);
        }
    }

    /// A node begins a life.
    fn start(&mut self, name: NodeId) {
        self.begin_life(name);
        let seed = self.rng.random();
        let node = self.nodes.get_mut(&name).expect("one of all");
        let now = node.host.local(self.now);
        let (state, incarnation) = (node.disk.open(), node.host.incarnation());
        let life = Life { incarnation, clock: node.host.node_clock(self.now), seed };
        let core = self.core(name, now, life, state);
        if name == CONTROLLER {
            // A switch has no rules but those that this life makes.
            self.switch.clear();
        }
        let node = self.nodes.get_mut(&name).expect("one of all");
        node.core = Some(core);
        node.view = self.views.len() - 1;
        node.host.begin_life();
        self.step(name, Input::Tick);
    }

    /// A node crashes, with all that is of one process with it.
    pub(crate) fn crash(&mut self, name: NodeId, down_for: Span, loses_clock: bool) {
        for name in self.process_of(name) {
            self.crash_alone(name, down_for, loses_clock);
        }
    }

    fn crash_alone(&mut self, name: NodeId, down_for: Span, loses_clock: bool) {
        let node = self.nodes.get_mut(&name).expect("one of all");
        let Some(core) = node.core.take() else { return };
        self.count(&core);
        let node = self.nodes.get_mut(&name).expect("one of all");
        node.disk.crash(&mut self.rng, self.scenario.hash_of());
        node.host.go_on(self.now);
        if loses_clock {
            node.host.lose_clock(self.now, WALL_BEHIND_MAX, &mut self.rng);
        }
        if name.0 >= FIRST_GATEWAY {
            let (at, gateways) = (usize::from(name.0 - FIRST_GATEWAY), usize::from(self.scenario.gateways));
            for client in self.clients.hang_up(self.now, |client| client % gateways == at) {
                self.think(client);
            }
        }
        self.come(down_for, Coming::Restart(name));
    }

    /// A node stops for a while: at once, or in the middle of its next step.
    pub(crate) fn pause(&mut self, name: NodeId, pause: Span, in_a_step: bool) {
        let now = self.now;
        self.nodes.get_mut(&name).expect("one of all").host.pause(now, pause, in_a_step);
    }

    /// A node's clock runs at another rate: within what two of them may drift apart.
    pub(crate) fn set_clock_rate(&mut self, name: NodeId) {
        self.nodes.get_mut(&name).expect("one of all").host.set_clock_rate(self.now, &mut self.rng);
    }

    /// A node's disk fails now and then.
    pub(crate) fn set_failing(&mut self, name: NodeId, per_mille: u32) {
        self.nodes.get_mut(&name).expect("one of all").failing = Failing { per_mille };
    }

    pub(crate) fn clears_after(&mut self, after: Span) {
        self.come(after, Coming::Clears);
    }

    pub(crate) fn cut_after(&mut self, after: Span, one: NodeId, other: NodeId) {
        self.come(after, Coming::Cuts(one, other));
    }

    pub(crate) fn heals_after(&mut self, after: Span) {
        self.come(after, Coming::Heals);
    }

    /// Something happens to a node that is up and not paused.
    fn step(&mut self, name: NodeId, input: Input) {
        let node = self.nodes.get_mut(&name).expect("one of all");
        let Some(core) = &mut node.core else { return };
        let now = node.host.local(self.now);
        self.report.events += 1;
        let mut trace = chained(self.report.trace, &self.now.ns().to_le_bytes());
        trace = chained(trace, &name.0.to_le_bytes());
        let out = &mut self.out;
        match &input {
            Input::Datagram(from, bytes) => {
                trace = chained(trace, bytes);
                let message = Message::decode(bytes).expect("what a core has sent can be read");
                match core {
                    Core::Backend(core) => core.step(now, backend::Happened::Message(*from, message), out),
                    Core::Cache(core) => core.step(now, Happened::Message(*from, message), out),
                    Core::Controller(core) => core.step(now, Happened::Message(*from, message), out),
                    Core::Gateway(core) => core.step(now, gateway::Happened::Message(*from, message), out),
                }
            }
            Input::Disk(number) => {
                let happened = node.disk.complete(*number, node.failing, &mut self.rng, self.scenario.hash_of());
                if let (Core::Backend(core), Some(happened)) = (core, happened) {
                    core.step(now, happened, out);
                }
            }
            Input::Ask(id, wish) => {
                if let Core::Gateway(core) = core {
                    match wish {
                        Wish::Flush => core.step(now, gateway::Happened::Flush(*id, Time::default()), out),
                        Wish::FlushLater(_, at) => core.step(now, gateway::Happened::Flush(*id, *at), out),
                        Wish::Operation { key, operation, value } => {
                            let name = key.name();
                            let key = Key::new(&name).expect("a short name");
                            core.step(now, gateway::Happened::Ask(*id, key, Wish::operation(operation, value)), out);
                        }
                    }
                }
            }
            Input::Committed(committed) => {
                let revision = match committed {
                    Committed::As(revision) => revision.0,
                    Committed::Not => 0,
                };
                trace = chained(trace, &revision.to_le_bytes());
                if let Core::Backend(core) = core {
                    core.step(now, backend::Happened::Committed(*committed), out);
                }
            }
            Input::View(number) => {
                trace = chained(trace, &number.to_le_bytes());
                let view = &self.views[*number];
                match core {
                    Core::Backend(core) => core.step(now, backend::Happened::View(view), out),
                    Core::Cache(core) => core.step(now, Happened::View(view), out),
                    Core::Controller(core) => core.step(now, Happened::View(view), out),
                    Core::Gateway(core) => core.step(now, gateway::Happened::View(view), out),
                }
            }
            Input::Tick => match core {
                Core::Backend(core) => core.step(now, backend::Happened::Tick, out),
                Core::Cache(core) => core.step(now, Happened::Tick, out),
                Core::Controller(core) => core.step(now, Happened::Tick, out),
                Core::Gateway(core) => core.step(now, gateway::Happened::Tick, out),
            },
        }
        self.report.trace = trace;
        let held = node.host.stop_in_a_step(self.now);
        // It stops before it looks whether it may say all that, or behind.
        let looks_at = if held > Span::default() && self.rng.random_bool(0.5) { self.now + held } else { self.now };
        if !node.hold.lets_say(looks_at) {
            out.withhold();
        }
        self.carry_out(name, held);
        self.wake(name, now);
    }

    /// Does what a step wants done, `held` later.
    fn carry_out(&mut self, name: NodeId, held: Span) {
        let mut out = std::mem::take(&mut self.out);
        for (to, bytes) in out.sends() {
            for after in self.network.fates(name, to, &mut self.rng).into_iter().flatten() {
                self.come(held + after, Coming::To(to, None, Input::Datagram(name, bytes.into())));
            }
        }
        for (backend, hash, bytes) in out.gets() {
            let to = self.route(backend, hash);
            for after in self.network.fates(name, to, &mut self.rng).into_iter().flatten() {
                self.come(held + after, Coming::To(to, None, Input::Datagram(name, bytes.into())));
            }
        }
        out.rules.drain(..).for_each(|update| self.switch.update(self.now, update));
        let host = &self.nodes[&name].host;
        let (life, begun) = (host.life(), host.incarnation());
        for call in out.store.drain(..) {
            let slowest = self.scenario.disk_takes_max;
            let takes = Span::from_ns(self.rng.random_range(20_000..slowest.ns()));
            let node = self.nodes.get_mut(&name).expect("one of all");
            // In order: as a log is written.
            node.disk_free_at = node.disk_free_at.max(self.now + held + takes);
            let after = node.disk_free_at.since(self.now);
            let is_late = matches!(call, StoreCall::State(_)) && after > self.scenario.lease;
            self.report.late_states += u64::from(is_late);
            let number = node.disk.take(call);
            self.come(after, Coming::To(name, Some(life), Input::Disk(number)));
        }
        if let Some(commit) = out.commit.take() {
            let after = held + self.sometimes_long();
            self.come(after, Coming::Commit { giver: name, life, begun, commit });
        }
        for (id, reply) in out.answers.drain(..) {
            self.come(held, Coming::Answer(id, Box::new(reply)));
        }
        out.clear();
        self.out = out;
    }

    /// Where the network brings what goes by its content: as its rules say, mostly.
    fn route(&mut self, backend: NodeId, hash: KeyHash) -> NodeId {
        self.switch.advance(self.now);
        let its = self.switch.lookup(hash).into_iter().flat_map(|choices| choices.iter()).next();
        self.report.routed += u64::from(its.is_some());
        if self.rng.random_bool(0.05) {
            // Packets are under way by rules that are none any more, or were none yet.
            let anybody: Vec<NodeId> = self.scenario.cache_nodes().parts().chain([backend]).collect();
            return anybody[self.rng.random_range(0..anybody.len())];
        }
        its.unwrap_or(backend)
    }

    /// Has a node wake up when it wants to.
    fn wake(&mut self, name: NodeId, now: Moment) {
        let node = self.nodes.get_mut(&name).expect("one of all");
        let wake_at = match &node.core {
            None => None,
            Some(Core::Backend(core)) => core.wake_at(),
            Some(Core::Cache(core)) => core.wake_at(),
            Some(Core::Controller(core)) => core.wake_at(now),
            Some(Core::Gateway(core)) => core.wake_at(),
        };
        let Some(wake_at) = wake_at else { return };
        if let Some(after) = node.host.wakes_after(self.now, wake_at) {
            self.come(after, Coming::Wake(name));
        }
    }

    fn happen(&mut self, coming: Coming) -> Result<(), Failure> {
        match coming {
            Coming::To(name, life, input) => {
                let node = &self.nodes[&name];
                if life.is_some_and(|life| life != node.host.life()) {
                    return Ok(());
                }
                let pause = node.host.pauses_for(self.now).filter(|_| node.core.is_some());
                if let Some(after) = pause {
                    self.come(after, Coming::To(name, life, input));
                } else if let Input::View(view) = input {
                    self.hear_of(name, view);
                } else {
                    self.step(name, input);
                }
            }
            Coming::Wake(name) => match self.nodes.get_mut(&name).expect("one of all").host.wake(self.now) {
                Woken::Yes => self.step(name, Input::Tick),
                Woken::After(pause) => self.come(pause, Coming::Wake(name)),
                Woken::No => {}
            },
            Coming::Restart(name) => {
                if self.nodes[&name].core.is_none() && self.may_start(name) {
                    self.start(name);
                }
            }
            Coming::Answer(id, reply) => {
                if let Some(client) = self.clients.answer(self.now, id, &reply).map_err(Failure::Answer)? {
                    self.think(client);
                }
            }
            Coming::Due(number, by, due_at) => {
                self.clients.may_be_due(number);
                let is_over = due_at <= self.now && self.has_flushed(by) && self.clients.was_due(self.now, number);
                if !is_over {
                    self.come(LOOKS_AFTER, Coming::Due(number, by, due_at));
                }
            }
            Coming::Asks(client) if self.is_on => self.ask(client),
            Coming::Asks(_) => {}
            Coming::Fault if self.is_on => {
                self.report.faults += 1;
                self.go_wrong();
                let gap = around(&mut self.rng, self.scenario.fault_every);
                self.come(gap, Coming::Fault);
            }
            Coming::Commit { giver, life, begun, commit } => {
                let committed = self.commit(giver, begun, &commit);
                let after = self.sometimes_long();
                self.come(after, Coming::To(giver, Some(life), Input::Committed(committed)));
            }
            Coming::Changes if self.is_on => {
                self.change_members();
                self.changes_after_a_while();
            }
            Coming::ComesBack(name) => {
                if !self.is_there(name, self.views.len() - 1) {
                    self.change(name);
                }
            }
            Coming::HasStore { standby, of } => self.has_store(standby, of),
            Coming::HasPlace { standby, of } => self.has_place(standby, of),
            Coming::Fault | Coming::Changes => {}
            Coming::Clears => {
                self.network.weather = if self.is_on { Weather::USUAL } else { Weather::CLEAR };
                let failing = Failing { per_mille: if self.is_on { self.scenario.disk_fails_per_mille } else { 0 } };
                self.nodes.values_mut().for_each(|node| node.failing = failing);
            }
            Coming::Cuts(one, other) if self.is_on => {
                self.network.cut(one, other);
                self.network.cut(other, one);
            }
            Coming::Cuts(..) => {}
            Coming::Heals => self.network.heal(),
        }
        Ok(())
    }

    /// A coordinator is quick, and now and then it is not.
    pub(crate) fn sometimes_long(&mut self) -> Span {
        let most = if self.is_on && self.rng.random_bool(0.05) { Span::from_s(8) } else { Span::from_ms(20) };
        between(&mut self.rng, Span::default(), most)
    }

    /// A node's life has begun, for the coordinator: under a number above all that it had, as a life file has it.
    pub(crate) fn begin_life(&mut self, name: NodeId) {
        self.nodes.get_mut(&name).expect("one of all").host.begin_incarnation(self.now);
    }

    /// Whether a node that is down is started again: not who has no store to open.
    fn may_start(&self, name: NodeId) -> bool {
        self.is_there(name, self.views.len() - 1) && self.hold(name) == Hold::Its
    }

    pub(crate) fn is_down(&self, name: NodeId) -> bool {
        self.nodes[&name].core.is_none()
    }

    /// Its disk does nothing for so long.
    pub(crate) fn stall_disk(&mut self, name: NodeId, span: Span) {
        let until = self.now + span;
        let node = self.nodes.get_mut(&name).expect("one of all");
        node.disk_free_at = node.disk_free_at.max(until);
    }

    pub(crate) fn hold(&self, name: NodeId) -> Hold {
        self.nodes[&name].hold
    }

    pub(crate) fn hold_mut(&mut self, name: NodeId) -> &mut Hold {
        &mut self.nodes.get_mut(&name).expect("one of all").hold
    }

    /// A node is the owner of the database of another one from now on.
    pub(crate) fn have_database(&mut self, name: NodeId, of: NodeId) {
        let mut disk = self.nodes[&of].disk.another();
        disk.open();
        self.nodes.get_mut(&name).expect("one of all").disk = disk;
    }

    pub(crate) fn count_takeover(&mut self) {
        self.report.taken_over += 1;
    }

    pub(crate) fn incarnation(&self, name: NodeId) -> Incarnation {
        self.nodes[&name].host.incarnation()
    }

    fn changes_after_a_while(&mut self) {
        if let Some(every) = self.scenario.members_change_every {
            let gap = around(&mut self.rng, every);
            self.come(gap, Coming::Changes);
        }
    }

    /// A client asks again after a while.
    fn think(&mut self, client: usize) {
        let after = thinks_for(self.scenario.clients, self.scenario.operations_per_s, &mut self.rng);
        self.come(after, Coming::Asks(client));
    }

    fn gateway_of(&self, client: usize) -> NodeId {
        NodeId(FIRST_GATEWAY + (client % usize::from(self.scenario.gateways)) as u16)
    }

    fn ask(&mut self, client: usize) {
        let gateway = self.gateway_of(client);
        if self.nodes[&gateway].core.is_none() {
            self.think(client);
            return;
        }
        let (id, wish) =
            self.clients.wish(client, cluster_time(self.now), self.scenario.flushes_per_mille, &mut self.rng);
        if let Wish::FlushLater(number, at) = wish {
            let after_s = CLOCK.to_unix_s(at) - BEGINS.as_secs();
            let due_at = Moment::default() + Span::from_s(after_s);
            // As early as the fastest clock may show it.
            let early = Span::from_ns(due_at.ns() / EARLY_PART);
            self.come((due_at - early).since(self.now), Coming::Due(number, at, due_at));
        }
        let life = self.nodes[&gateway].host.life();
        self.come(Span::default(), Coming::To(gateway, Some(life), Input::Ask(id, wish)));
    }

    /// Whether all who have keys have taken away what was to be gone by then.
    fn has_flushed(&self, by: Time) -> bool {
        let mut owners = self.view().shares.map.backends().iter().map(|owner| &self.nodes[owner]);
        owners.all(|node| match &node.core {
            Some(Core::Backend(core)) => core.serves() && core.flush_to_come().is_none_or(|at| at > by),
            _ => false,
        })
    }

    /// Everything that comes until then.
    fn run_until(&mut self, until: Moment) -> Result<(), Failure> {
        while let Some((at, coming)) = self.coming.next(until) {
            self.now = at;
            self.happen(coming)?;
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
        let failing = Failing { per_mille: self.scenario.disk_fails_per_mille };
        self.nodes.values_mut().for_each(|node| node.failing = failing);
        self.network.weather = Weather::USUAL;
        (0..self.scenario.clients).for_each(|client| self.think(client));
        let gap = around(&mut self.rng, self.scenario.fault_every);
        self.come(gap, Coming::Fault);
        self.changes_after_a_while();
        self.run_until(self.now + span)
    }

    fn settle(&mut self) -> Result<Vec<State>, Failure> {
        self.settle_down()
    }

    fn take_histories(&mut self) -> Vec<Vec<guira_history::Event<Act>>> {
        self.clients.take_histories()
    }

    fn report(self) -> Report {
        self.all_counted()
    }
}
