//! What clients ask, and are told.

use guira_chain::Reply;
use guira_consistency::{Answer, Consistency, Happened, Kind, Operation, Outcome, Ticket, Version, Writer};

use crate::symmetric::{
    orders::{Begun, Told, Want},
    scenario::Scenario,
    world::{At, ITEM_LEN_MAX, Logged, World, key, number, request},
};

impl World {
    /// A client asks what it wants next, or asks on.
    pub(super) fn ask(&mut self, scenario: &Scenario, client: usize) {
        let state = self.clients[client].clone();
        let (key_number, want) = scenario.clients[client].wants[state.next];
        let (node, is_again) = match state.at {
            At::Onward { node, is_again } => (node, is_again),
            _ => (state.node, false),
        };
        let number = number(client, state.next);
        if state.at == At::Idle {
            let read = state.read[key_number].as_ref().map(|(_, text)| text.clone());
            self.begin(scenario, key_number, number, Begun { want, read });
        }
        self.clients[client].at = At::Waits(node);
        if self.nodes[node].is_none() {
            let outcome = if is_again { Outcome::Unknown } else { Outcome::NotServing };
            self.tell(scenario, client, node, &outcome);
            return;
        }
        let operation = Operation {
            ticket: Ticket(u64::from(number)),
            wish: want.wish(state.read[key_number].as_ref().and_then(|(cas, _)| *cas)),
            request: (scenario.asks_again && !want.reads()).then_some(request(client, state.next)),
            is_again,
            floor: state.floor[key_number].filter(|_| scenario.consistency == Consistency::Sc),
        };
        self.step(scenario, node, Happened::Asked(key(key_number), operation));
    }

    /// A client is told what became of what it waits for.
    pub(super) fn tell(&mut self, scenario: &Scenario, client: usize, node: usize, outcome: &Outcome) {
        let state = &mut self.clients[client];
        if state.at != At::Waits(node) {
            return;
        }
        let (key_number, want) = scenario.clients[client].wants[state.next];
        match outcome {
            Outcome::Forward(home) => {
                state.at = At::Onward { node: usize::from(home.0), is_again: false };
                return;
            }
            Outcome::Shard => {
                let outcome = self.ask_shard(key_number, client, want, scenario);
                self.tell(scenario, client, node, &outcome);
                return;
            }
            Outcome::Unknown if scenario.asks_again && !want.reads() => {
                let others = (1..scenario.nodes).map(|by| (node + by) % scenario.nodes);
                if let Some(other) = others.into_iter().find(|other| self.nodes[*other].is_some()) {
                    state.at = At::Onward { node: other, is_again: true };
                    return;
                }
            }
            _ => {}
        }
        if let Outcome::Answer(Answer { reply, at }) = outcome {
            if let Told::Value(text) = Told::of(outcome) {
                let cas = if let Reply::Hit(hit, _) = reply { Some(hit.cas) } else { None };
                state.read[key_number] = Some((cas, text));
            }
            let is_older = state.floor[key_number].is_some_and(|floor| floor.is_newer_than(*at));
            if is_older && !scenario.shards_die {
                self.wrong = Some("a session is told of something older than what it has seen");
            }
            state.floor[key_number] = Some(*at);
        }
        let number = number(client, state.next);
        state.next += 1;
        state.at = At::Idle;
        if scenario.wanders {
            state.node = (state.node + 1) % scenario.nodes;
        }
        self.end(scenario, key_number, number, Told::of(outcome));
    }

    /// An operation begins.
    pub(super) fn begin(&mut self, scenario: &Scenario, key_number: usize, number: u8, begun: Begun) {
        if scenario.logs {
            self.log.push(Logged { number, key: key_number, begun, invoked: self.time, told: None });
        } else {
            self.orders[key_number].begin(number, begun);
        }
    }

    /// What became of an operation.
    pub(super) fn end(&mut self, scenario: &Scenario, key_number: usize, number: u8, told: Told) {
        if !scenario.logs {
            self.orders[key_number].end(number, &told);
        } else if let Some(logged) = self.log.iter_mut().find(|logged| logged.number == number) {
            logged.told = Some((self.time, told));
        }
    }

    /// What the home's shard says, at once.
    pub(super) fn ask_shard(&mut self, key_number: usize, client: usize, want: Want, scenario: &Scenario) -> Outcome {
        let home = self.view.home_of(key_number as u64);
        let writer = home.and_then(|home| self.view.members.get(&home)).copied().unwrap_or(Writer(0));
        let state = &self.clients[client];
        let wish = want.wish(state.read[key_number].as_ref().and_then(|(cas, _)| *cas));
        let shard = &mut self.shards[key_number];
        let at = shard.version.at;
        let next = at.next(Kind::Plain, writer);
        assert!(!scenario.asks_again || want.reads(), "what is asked again is asked of what is hot");
        match wish.apply(shard.version.value.as_ref(), at, next, 1, ITEM_LEN_MAX) {
            Ok(changed) => {
                let value = changed.value;
                shard.version = Version { at: next, base: at, kind: Kind::Plain, value, by: None };
                Outcome::Answer(changed.answer)
            }
            Err(answer) => Outcome::Answer(answer),
        }
    }
}
