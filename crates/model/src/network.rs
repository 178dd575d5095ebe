//! What is under way between members: a set, out of which anything may come at any time, again, or never.
//!
//! Always true: from one member to another there are so many datagrams at most; what is sent beyond that is lost. Two that mean the same are one.

use std::sync::Arc;

use guira_item::Moment;
use guira_routing::NodeId;
use guira_switched::Message;
use serde::Serialize;

use crate::fingerprint::{TICK, fingerprint};

/// A moment of the cache nodes' clock that is told in a message makes no difference any more once it is as old as its lease is long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    /// The cache nodes' clock.
    pub(crate) now: Moment,
    /// Ticks, at most.
    pub(crate) max: u64,
}

impl Age {
    fn of(self, at: Moment) -> u64 {
        (self.now.since(at).ns() / TICK.ns()).min(self.max)
    }
}

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
    told_at: Option<Moment>,
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

fn told_at(message: &Message<'_>) -> Option<Moment> {
    match message {
        Message::Open { at, .. }
        | Message::Opened { at, .. }
        | Message::AskLease { at, .. }
        | Message::Lease { at, .. } => Some(*at),
        _ => None,
    }
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
        let told_at = told_at(&message);
        let print = fingerprint(&message, age.now);
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

    /// The cache nodes' clock has gone on.
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
