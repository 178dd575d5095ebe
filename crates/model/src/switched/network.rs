//! What is under way between members: a set, out of which anything may come at any time, again, or never.
//!
//! Always true: from one member to another there are so many datagrams at most; what is sent beyond that is lost. Two that mean the same are one.

use std::sync::Arc;

use guira_item::Moment;
use guira_routing::NodeId;
use guira_switched::Message;
use serde::Serialize;

use crate::switched::{
    act::Timed,
    fingerprint::{TICK, fingerprint},
    members::BACKENDS,
};

/// A moment of the clock of who asks for a lease that is told in a message makes no difference any more once it is as old as its lease is long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    /// The cache nodes' clock.
    pub(crate) caches: Moment,
    /// The backends'.
    pub(crate) backends: Moment,
    /// Ticks, at most.
    pub(crate) max: u64,
}

impl Age {
    fn of(self, (by, at): ToldAt) -> u64 {
        let now = match by {
            Timed::Backend => self.backends,
            Timed::Caches => self.caches,
        };
        (now.since(at).ns() / TICK.ns()).min(self.max)
    }
}

/// A moment, by whose clock.
type ToldAt = (Timed, Moment);

/// A message under way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Datagram {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    #[serde(skip)]
    pub(crate) bytes: Arc<[u8]>,
    /// What it says, but for `told_at`.
    print: u64,
    #[serde(skip)]
    told_at: Option<ToldAt>,
    age: Option<u64>,
}

impl Datagram {
    fn is_like(&self, other: &Self) -> bool {
        (self.from, self.to, self.print, self.age) == (other.from, other.to, other.print, other.age)
    }

    /// What it says.
    pub(crate) fn message(&self) -> Message<'_> {
        Message::decode(&self.bytes).expect("what a core has sent can be read")
    }
}

fn told_at(from: NodeId, to: NodeId, message: &Message<'_>) -> Option<ToldAt> {
    let (asks, at) = match message {
        Message::Open { at, .. } | Message::AskLease { at, .. } => (from, *at),
        Message::Opened { at, .. } | Message::Lease { at, .. } => (to, *at),
        _ => return None,
    };
    Some((if BACKENDS.contains(&asks) { Timed::Backend } else { Timed::Caches }, at))
}

/// All that is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    pub(crate) datagrams: Vec<Datagram>,
}

impl Network {
    /// Takes a message, if there is room for it.
    pub(crate) fn send(&mut self, (from, to): (NodeId, NodeId), bytes: &[u8], room: usize, age: Age) {
        let message = Message::decode(bytes).expect("what a core has sent can be read");
        let told_at = told_at(from, to, &message);
        let print = fingerprint(&message, age.caches);
        let datagram = Datagram { from, to, bytes: bytes.into(), print, told_at, age: told_at.map(|at| age.of(at)) };
        let there = self.datagrams.iter().filter(|other| (other.from, other.to) == (from, to));
        let mut there_count = 0;
        for other in there {
            if other.is_like(&datagram) {
                return;
            }
            there_count += 1;
        }
        if there_count < room {
            self.datagrams.push(datagram);
        }
    }

    /// A clock has gone on.
    pub(crate) fn grow_older(&mut self, age: Age) {
        for datagram in &mut self.datagrams {
            datagram.age = datagram.told_at.map(|at| age.of(at));
        }
        let mut kept: Vec<Datagram> = Vec::with_capacity(self.datagrams.len());
        for datagram in self.datagrams.drain(..) {
            if !kept.iter().any(|other| other.is_like(&datagram)) {
                kept.push(datagram);
            }
        }
        self.datagrams = kept;
    }

    /// What tells it from others, in no order.
    pub(crate) fn print(&self, now: Moment) -> u64 {
        self.datagrams.iter().fold(0, |sum, datagram| sum.wrapping_add(fingerprint(datagram, now)))
    }
}
