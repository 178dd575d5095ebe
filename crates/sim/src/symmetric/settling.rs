//! The end of a round: nothing goes wrong any more, and all has to go on.

use guira_item::Span;
use guira_routing::NodeId;
use guira_symmetric::NodeStatus;

use super::{
    coming::{Coming, Input},
    members::Core,
    world::World,
};
use crate::{
    clients::{KeyNumber, Wish},
    network::Weather,
    register::State,
    simulation::Failure,
};

/// By then everything that was under way has happened.
const WITHIN: Span = Span::from_s(30);

/// Hot keys change places also while nobody asks for them: what waits for credits at some moment does not for so long.
const CREDITS_WITHIN: Span = Span::from_s(1);

/// By then everything is answered.
const READ_WITHIN: Span = Span::from_s(5);

impl World {
    /// Heals everything, waits for what is under way, and reads every key at every node: what is there.
    pub(super) fn settle_down(&mut self) -> Result<Vec<State>, Failure> {
        self.heal()?;
        self.run_on(WITHIN)?;
        self.wait_for_credits()?;
        if self.clients.waiting() > 0 {
            return Err(Failure::Stuck(format!("{} clients wait for an answer", self.clients.waiting())));
        }
        self.expect_all_well()?;
        let mut first = None;
        for at in 0..usize::from(self.scenario.nodes) {
            self.read_all(at)?;
            let states = self.clients.last_states();
            expect_same(first.get_or_insert_with(|| states.clone()), &states, self.scenario.node_of(at))?;
        }
        Ok(self.clients.last_states())
    }

    /// Nothing is wrong any more.
    fn heal(&mut self) -> Result<(), Failure> {
        self.is_on = false;
        self.network.heal();
        self.network.weather = Weather::CLEAR;
        let now = self.now;
        self.members.values_mut().for_each(|member| member.host.go_on(now));
        for name in self.scenario.names() {
            if self.is_down(name) {
                self.start(name)?;
            }
        }
        Ok(())
    }

    /// Until nothing waits for any, or that takes too long.
    fn wait_for_credits(&mut self) -> Result<(), Failure> {
        let ends = self.now + CREDITS_WITHIN;
        while self.now < ends && self.statuses().any(|(_, status)| status.waiting > 0) {
            self.run_on(Span::from_ms(1))?;
        }
        Ok(())
    }

    /// How all nodes are that are up.
    fn statuses(&self) -> impl Iterator<Item = (NodeId, NodeStatus)> {
        self.members.iter().filter_map(|(name, member)| match &member.core {
            Some(Core::Node(node)) => Some((*name, node.status(member.host.local(self.now)))),
            _ => None,
        })
    }

    /// Every node is whole and may serve, and has its own shard, nothing waits for credits, and none was told what there was no credit for.
    fn expect_all_well(&self) -> Result<(), Failure> {
        let nodes = usize::from(self.scenario.nodes);
        for (name, status) in self.statuses() {
            let NodeStatus { is_whole, has_lease, members, pending, waiting, flow, shards, copied, .. } = status;
            let is_home = shards == 1 && copied.is_none();
            if !is_whole || !has_lease || !is_home || members != nodes || pending > 0 || waiting > 0 || flow.beyond > 0
            {
                return Err(Failure::Stuck(format!("node {} is not well though nothing is wrong: {status:?}", name.0)));
            }
        }
        Ok(())
    }

    /// A client of a node reads every key: nothing fails.
    fn read_all(&mut self, client: usize) -> Result<(), Failure> {
        let (before, node) = (self.clients.tally, self.scenario.node_of(client));
        for key in (0..self.scenario.keys).map(KeyNumber) {
            let id = self.clients.read(client, key);
            self.come(Span::default(), Coming::To(node, None, Input::Ask(id, Wish::read(key))));
        }
        self.run_on(READ_WITHIN)?;
        if self.clients.waiting() > 0 || self.clients.tally.has_more_failures(before) {
            return Err(Failure::Stuck(format!("a read failed at node {} though everything is well", node.0)));
        }
        Ok(())
    }
}

/// What was read at one node is what was read at another, but for what ends meanwhile.
fn expect_same(first: &[State], states: &[State], node: NodeId) -> Result<(), Failure> {
    let is_same = |(a, b): (&State, &State)| a.item == b.item || a.is_mortal && b.item.is_none();
    match first.iter().zip(states).position(|pair| !is_same(pair)) {
        Some(key) => {
            let (first, other) = (first[key].item, states[key].item);
            Err(Failure::Stuck(format!("key {key} is {other:?} at node {}, and {first:?} at the first one", node.0)))
        }
        None => Ok(()),
    }
}
