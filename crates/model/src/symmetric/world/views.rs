//! Who is there: views, homes, and those that die and come back.

use std::sync::Arc;

use guira_consistency::{Epoch, Happened, Kind, Outcome, Replica, Timestamp, Version, View, Window, Writer};
use guira_item::Moment;

use crate::symmetric::{
    orders::{Begun, Told, Want},
    scenario::Scenario,
    world::{At, BELOW, FIRST_AT, Node, Shard, WANTS_MAX, World, key, node_id, number, replica},
};

impl World {
    pub fn is_member(&self, node: usize) -> bool {
        self.view.members.contains_key(&node_id(node))
    }

    pub fn home_node(&self, key_number: usize) -> Option<usize> {
        let home = self.view.home_of(key_number as u64)?;
        let is_there = self.nodes[usize::from(home.0)].as_ref().is_some_and(|it| it.replica.epoch() == self.view.epoch);
        is_there.then_some(usize::from(home.0))
    }

    pub(super) fn home(&self, key_number: usize) -> Option<&Node> {
        self.nodes[self.home_node(key_number)?].as_ref()
    }

    /// Members that have no lease any more are out of the next view.
    pub(super) fn is_gone(&self, node: usize) -> bool {
        self.nodes[node].as_ref().is_none_or(|node| node.now > 0)
    }

    pub fn without_gone(&self) -> Option<View> {
        let mut view = self.view.clone();
        view.members.retain(|member, _| !self.is_gone(usize::from(member.0)));
        let successor =
            view.members.keys().copied().find(|member| {
                self.nodes[usize::from(member.0)].as_ref().is_some_and(|node| node.replica.is_whole())
            })?;
        for home in &mut view.homes {
            if !view.members.contains_key(home) {
                *home = successor;
            }
        }
        (view.members.len() < self.view.members.len()).then_some(view)
    }

    /// Another view: without those that are gone, or with a new life of a node, which has nothing; what was its home is so still, and waits for it.
    pub(super) fn change(&mut self, scenario: &Scenario, joins: Option<usize>) {
        self.counts[2] += 1;
        let before = self.view.clone();
        if let Some(node) = joins {
            self.counts[3] += 1;
            self.die(scenario, node);
            self.view.members.insert(node_id(node), Writer(self.lives));
            self.lives += 1;
            // Whose sessions are with a node know that its life is over.
            self.floors.iter_mut().for_each(|floors| floors[node] = FIRST_AT);
            self.nodes[node] = Some(Node { replica: Arc::new(replica(scenario, node, false)), now: 0 });
        } else {
            self.view = self.without_gone().expect("somebody is gone");
        }
        self.view.epoch = Epoch(self.view.epoch.0 + 1);
        for key in 0..scenario.keys {
            let home = self.view.homes[key];
            if before.homes[key] != home || before.members.get(&home) != self.view.members.get(&home) {
                self.view.homes_before[key] = self.view.homes_since[key];
                self.view.homes_since[key] = self.view.epoch;
            }
        }
        let members = &self.view.members;
        let is_there = |node: usize| joins != Some(node) && members.contains_key(&node_id(node));
        self.served.iter_mut().for_each(|served| served.retain(|served| is_there(served.0)));
        if let Some(node) = joins {
            self.hear(scenario, node);
            for (client, state) in self.clients.iter_mut().enumerate() {
                if state.at == At::Over && scenario.clients[client].node == node {
                    // Another session: what only the node had is lost.
                    state.at = At::Idle;
                    state.floor.fill(None);
                }
            }
        }
    }

    pub fn hear(&mut self, scenario: &Scenario, node: usize) {
        let view = self.view.clone();
        let now = self.nodes[node].as_ref().map_or(0, |node| node.now);
        // One lease lasts until the clock goes on; who has outlived one gets no other before it has begun anew.
        let until = if now == 0 { Moment::from_ns(1) } else { Moment::from_ns(0) };
        self.step(scenario, node, Happened::View(&view, until));
    }

    pub fn die(&mut self, scenario: &Scenario, node: usize) {
        let gone = self.nodes[node].take();
        self.write_backs.retain(|due| due.0 != node);
        if let Some(gone) = gone.filter(|_| scenario.shards_die) {
            for key in 0..scenario.keys {
                if self.view.home_of(key as u64) == Some(node_id(node)) {
                    self.lose(scenario, key, &gone.replica);
                }
            }
        }
        for client in 0..self.clients.len() {
            if self.clients[client].at == At::Waits(node) {
                self.tell(scenario, client, node, &Outcome::Unknown);
            }
            let state = &mut self.clients[client];
            if state.node != node || scenario.asks_again {
                continue;
            }
            let told = match std::mem::replace(&mut state.at, At::Over) {
                At::Idle | At::Over => continue,
                // What it would be told by another node nobody hears.
                At::Waits(_) | At::Onward { is_again: true, .. } => Told::Unknown,
                At::Onward { .. } => Told::Failed,
            };
            let want = state.next;
            state.next += 1;
            let (key, _) = scenario.clients[client].wants[want];
            self.end(scenario, key, number(client, want), told);
        }
    }

    /// What a shard has is gone with its home; who comes to be that begins below all that was. Clients may be told so, unless the key was hot: one that
    /// the home has begun to evict is so no more, whoever has yet to hear of that.
    pub(super) fn lose(&mut self, scenario: &Scenario, key_number: usize, home: &Replica) {
        let key = key(key_number);
        let whole = self.nodes.iter().flatten().filter(|node| node.replica.is_whole());
        let is_hot = whole.clone().any(|node| node.replica.is_hot(&key)) && (home.is_hot(&key) || !home.is_whole());
        if is_hot {
            return;
        }
        let at = Timestamp { version: FIRST_AT.version.wrapping_sub(BELOW), ..FIRST_AT };
        let version = Version { at, base: at, kind: Kind::Plain, value: None, by: None };
        self.shards[key_number] = Shard { version, done: Window::default() };
        let times = usize::from(self.counts[0] + self.counts[3]);
        let number = number(WANTS_MAX - 1, times * self.shards.len() + key_number);
        self.begin(scenario, key_number, number, Begun { want: Want::Lose, read: None });
    }
}
