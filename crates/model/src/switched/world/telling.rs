//! What an act is, in a state, for who reads a trace.

use guira_routing::NodeId;

use super::World;
use crate::switched::{
    act::{Act, Next, Timed, Way},
    members::{BACKENDS, CACHES, FIRST_GATEWAY},
    scenario::{KEYS, Scenario},
};

impl World {
    /// Says what an act is, here.
    pub(crate) fn tell(&self, scenario: &Scenario, act: Act) -> String {
        let name = |NodeId(name): NodeId| match name {
            2 => "cache node".to_owned(),
            3 => "second cache node".to_owned(),
            4 => "backend".to_owned(),
            5 => "second backend".to_owned(),
            other => format!("gateway {}", other - FIRST_GATEWAY),
        };
        match act {
            Act::Asks(at) => {
                let client = &scenario.clients[at];
                let (key, wish) = client.wishes[self.clients[at].next];
                let key = char::from(KEYS[key.0][0]);
                format!("client {at} asks gateway {}: {wish:?} of key {key}", client.gateway)
            }
            Act::Datagram(at, way) => {
                let datagram = &self.network.datagrams[at];
                let (from, to) = (name(datagram.from), name(datagram.to));
                let way = match way {
                    Way::Comes => "comes",
                    Way::ComesAndStays => "comes, and may come again",
                    Way::IsLost => "is lost",
                };
                format!("{from} -> {to} {way}: {:?}", datagram.message())
            }
            Act::Disk(of, at, fate) => {
                format!("the {}'s disk: {:?} is {fate:?}", name(BACKENDS[of]), self.disks[of].calls()[at])
            }
            Act::ClockGoesOn(Timed::Backend) => "a tick goes by for backends".to_owned(),
            Act::ClockGoesOn(Timed::Caches) => "a tick goes by for cache nodes".to_owned(),
            Act::BackendIsDue(at) => format!("the {} does what is due", name(BACKENDS[at])),
            Act::CacheIsDue(at) => format!("the {} does what is due", name(CACHES[at])),
            Act::GatewayWaited(at) => format!("gateway {at} has waited for long enough"),
            Act::ComesLate(of, _) => format!("what the {}'s disk has lost sight of comes", name(BACKENDS[of])),
            Act::BackendDies(of, through, next) => {
                let of = name(BACKENDS[of]);
                let late = if next == Next::Late { ", and the next one may yet," } else { "" };
                format!("the {of} dies when {through} calls of its disk have happened{late} and begins another life")
            }
            Act::CacheDies => "the cache node dies and begins another life".to_owned(),
            Act::CacheGoes => "the backend hears that the cache node has gone".to_owned(),
            Act::CacheComesBack => "the backend hears that the cache node is there again".to_owned(),
            Act::IsToMove => "the partition of key a is to be another backend's".to_owned(),
            Act::Hears(member) => format!("the {} hears who has what, and who is to", name(member)),
            Act::Commits(at) => format!("the coordinator hears that {}", self.coordinator.tell_asked(at)),
            Act::IsRefused(at) => format!("the coordinator refuses that {}", self.coordinator.tell_asked(at)),
            Act::IsAnswered(_) => "what came of that is told".to_owned(),
        }
    }
}
