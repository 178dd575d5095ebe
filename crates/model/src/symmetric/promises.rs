//! What is to be so in every state, and what is to come of it once faults stop.

use std::collections::VecDeque;

use guira_consistency::{Consistency, Kind, Timestamp};

use crate::symmetric::{
    orders::{Text, text},
    printed::Printed,
    scenario::Scenario,
    world::{Act, At, World, key},
};

/// Rounds after which everything is to be over: what is lost is told again in each.
const ROUNDS_MAX: usize = 24;

/// Messages of a round at most: more is talk without end.
const MESSAGES_MAX: usize = 20_000;

impl World {
    /// Looks at what is served now, whoever may ask.
    pub fn look(&mut self, scenario: &Scenario) {
        for key_number in 0..scenario.keys {
            match scenario.consistency {
                Consistency::Lin => self.look_at_one(key_number, scenario.shards_die),
                Consistency::Sc => self.look_at_order(key_number),
            }
        }
    }

    /// Lin: all that is served is one, and never gets older: by timestamps, unless a shard may be lost with them, which answers tell.
    fn look_at_one(&mut self, key_number: usize, shards_die: bool) {
        let key = key(key_number);
        let mut served: Option<(Timestamp, Text)> = None;
        let mut from_shard = 0;
        for node in self.nodes.iter().flatten() {
            let now = self.clock(node);
            if let Some(seen) = node.replica.seen(&key, now).filter(|seen| seen.is_served) {
                let this = (seen.version.at, text(seen.version.value.as_ref()));
                if served.as_ref().is_some_and(|other| *other != this) {
                    self.wrong = Some("two nodes serve what is not the same");
                }
                served = Some(this);
            }
            from_shard += usize::from(node.replica.serves_from_shard(&key, now));
        }
        if from_shard > 1 || (from_shard == 1 && served.is_some()) {
            self.wrong = Some("a key is served from the shard and elsewhere");
        }
        if from_shard == 1 {
            served = Some((self.shards[key_number].version.at, None));
        }
        if let Some((at, _)) = served.filter(|_| !shards_die) {
            let floor = &mut self.floors[key_number][0];
            if floor.is_newer_than(at) {
                self.wrong = Some("what is served is older than what was");
            }
            *floor = at;
        }
    }

    /// SC: at each node it never gets older, all agree on what was written when, and nothing is between a read-modify-write and what it was made of.
    fn look_at_order(&mut self, key_number: usize) {
        let key = key(key_number);
        for at in 0..self.nodes.len() {
            let Some(node) = self.nodes[at].as_ref().filter(|_| self.is_member(at)) else { continue };
            let Some(seen) = node.replica.seen(&key, self.clock(node)).filter(|seen| seen.is_served) else { continue };
            let version = seen.version.clone();
            if self.floors[key_number][at].is_newer_than(version.at) {
                self.wrong = Some("what a node serves is older than what it did");
            }
            self.floors[key_number][at] = version.at;
            self.served[key_number].insert(Printed::new((at, version)));
        }
        let served = &self.served[key_number];
        for (_, one) in served.iter().map(|one| &**one) {
            for (_, other) in served.iter().map(|other| &**other) {
                if one.at == other.at && one.value != other.value {
                    self.wrong = Some("two values were written at a time");
                }
                let is_behind = other.at.is_newer_than(one.base) && one.at.is_newer_than(other.at);
                if one.kind == Kind::Modify && is_behind {
                    self.wrong = Some("something is between a change and what it was made of");
                }
            }
            let letters = one.value.iter().flat_map(|value| value.bytes.iter());
            if letters.clone().any(|letter| letters.clone().filter(|other| *other == letter).count() > 1) {
                self.wrong = Some("a change was made twice");
            }
        }
    }

    /// Whether what clients were told fits an order.
    pub fn are_possible(&self, scenario: &Scenario) -> bool {
        scenario.consistency == Consistency::Sc || self.orders.iter().all(|orders| orders.are_possible())
    }

    /// Whether, when from here on nothing goes wrong but that all that is under way is lost, everything ends: all that was asked is answered, and each
    /// key is hot, the same at all members, or at none.
    pub fn settles(&self, scenario: &Scenario) -> bool {
        let mut world = self.clone();
        world.net.clear();
        let members_change = world.nodes.iter().enumerate().any(|(at, node)| {
            let is_gone = node.as_ref().is_none_or(|node| node.now > 0);
            is_gone && world.is_member(at)
        });
        let has_all = |world: &Self| {
            let mut members = (0..world.nodes.len()).filter(|node| world.is_member(*node));
            members.any(|node| world.nodes[node].as_ref().is_some_and(|node| node.now == 0 && node.replica.is_whole()))
        };
        if !has_all(&world) {
            // Nobody is left who has anything: what was hot is lost, as the power's loss would lose it.
            return true;
        }
        if members_change {
            world.act(scenario, &Act::Changes(None));
        }
        for _ in 0..ROUNDS_MAX {
            for node in 0..world.nodes.len() {
                if world.nodes[node].as_ref().is_some_and(|it| it.replica.epoch() < world.view.epoch) {
                    world.act(scenario, &Act::Hears(node));
                }
            }
            let mut acts = Vec::new();
            for (client, state) in world.clients.iter().enumerate() {
                if matches!(state.at, At::Onward { .. }) {
                    acts.push(Act::Asks(client));
                }
            }
            acts.extend((0..world.nodes.len()).filter(|node| world.nodes[*node].is_some()).map(Act::Passes));
            acts.iter().for_each(|act| world.act(scenario, act));
            world.deliver_once(scenario);
            while !world.write_backs.is_empty() {
                world.act(scenario, &Act::WritesBack(0));
            }
            world.look(scenario);
            if world.is_settled(scenario) {
                return world.wrong.is_none() && world.are_possible(scenario);
            }
        }
        false
    }

    /// All that is sent comes once, in order.
    fn deliver_once(&mut self, scenario: &Scenario) {
        let mut coming: VecDeque<_> = std::mem::take(&mut self.net).into_iter().collect();
        for _ in 0..MESSAGES_MAX {
            let Some(sent) = coming.pop_front() else { return };
            self.come(scenario, &sent);
            coming.extend(std::mem::take(&mut self.net));
        }
    }

    fn is_settled(&self, scenario: &Scenario) -> bool {
        let waits = self.clients.iter().any(|client| matches!(client.at, At::Waits(_) | At::Onward { .. }));
        let members: Vec<_> =
            (0..self.nodes.len()).filter(|at| self.is_member(*at)).filter_map(|at| self.nodes[at].as_ref()).collect();
        let is_same = |key_number: usize| {
            let mut all = members.iter().map(|node| {
                let seen = node.replica.seen(&key(key_number), self.clock(node));
                seen.map(|seen| (seen.version.at, seen.version.value.clone(), seen.is_served))
            });
            let first = all.next().flatten();
            first.as_ref().is_none_or(|(.., is_served)| *is_served) && all.all(|other| other == first)
        };
        !waits && members.iter().all(|node| node.replica.is_quiet()) && (0..scenario.keys).all(is_same)
    }
}
