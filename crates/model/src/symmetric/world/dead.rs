//! What can make no difference any more, and so is not told apart.

use std::sync::Arc;

use guira_consistency::{Envelope, Key, Kind, Message, Mutant};
use guira_item::Moment;

use crate::symmetric::{
    printed::Printed,
    scenario::Scenario,
    world::{Sent, World},
};

impl World {
    /// What can make no difference any more is not kept: what is told to who is gone, or is in a later epoch; and of what is older than what its
    /// receiver has, to which that will never go back: that it is over, what nobody waits for, and what was acknowledged.
    pub(super) fn forget_dead(&mut self, scenario: &Scenario) {
        let Self { nodes, net, .. } = self;
        let has = |node: usize, key: &Key| {
            let seen = nodes[node].as_ref()?.replica.seen(key, Moment::from_ns(0))?;
            Some((seen.version.at, seen.under_way))
        };
        let is_passed = |node, key: &Key, at| has(node, key).is_some_and(|(newest, _)| newest.is_newer_than(at));
        let is_dead_ack = |node, key: &Key, at| {
            is_passed(node, key, at) && has(node, key).is_some_and(|(_, under_way)| under_way != Some(at))
        };
        let is_dead = |sent: &Sent| {
            let Some(node) = &nodes[sent.to] else { return true };
            let epoch = sent.envelope.epoch;
            if epoch < node.replica.epoch() {
                return scenario.mutant != Some(Mutant::OldEpoch);
            }
            if scenario.shards_die {
                // What is told of a later time in the hot set may be newer whatever its timestamp.
                return false;
            }
            if !node.replica.is_whole() {
                // It keeps what is told of a key of which it has nothing, and may have forgotten it.
                return false;
            }
            match &sent.envelope.message {
                Message::Validate { key, at, .. } => {
                    is_passed(sent.to, key, *at) && scenario.mutant != Some(Mutant::ValidateAny)
                }
                Message::Ack { key, at, .. } => is_dead_ack(sent.to, key, *at),
                // What would be answered is told to all by who has written it.
                Message::Invalidate { key, version, creates: false, .. } if version.kind == Kind::Modify => {
                    is_passed(sent.to, key, version.at) && is_dead_ack(sent.from, key, version.at)
                }
                Message::Invalidate { key, generation, version, creates: false, .. }
                | Message::Update { key, generation, version, settles: false, .. } => {
                    let at = version.at;
                    let ack =
                        Envelope { epoch, message: Message::Ack { key: key.clone(), generation: *generation, at } };
                    let is_known = has(sent.to, key).is_some_and(|(newest, _)| newest == at);
                    let is_passed = is_passed(sent.to, key, at);
                    let is_acked = net.contains(&Printed::new(Sent { from: sent.to, to: sent.from, envelope: ack }));
                    let is_vain = is_passed && !scenario.asks_again && is_dead_ack(sent.from, key, at);
                    ((is_known || is_passed) && is_acked) || is_vain
                }
                _ => false,
            }
        };
        let dead: Vec<Arc<Printed<Sent>>> = net.iter().filter(|sent| is_dead(sent)).cloned().collect();
        dead.iter().for_each(|sent| {
            self.net.remove(sent);
        });
    }
}
