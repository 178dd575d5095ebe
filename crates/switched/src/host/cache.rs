//! A cache node on its sockets: each of its parts a [`CacheNode`] on a thread and a socket of its own.
//!
//! Always true: parts share nothing; all of them run, or the node does not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use guira_cluster::{DriverError, Ended, Host, Machine, MemberHost, Members, Transport, Wire, boot_now};
use guira_item::Moment;
use guira_routing::NodeId;

use super::{Switched, send_all};
use crate::{
    Happened, Message, Outbox, View,
    cache_node::{CacheConfig, CacheCounts, CacheNode},
};

/// A part, and what it wants sent.
struct PartMachine {
    core: CacheNode,
    out: Outbox,
}

impl PartMachine {
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut Transport) {
        self.core.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
        self.out.clear();
    }
}

impl Machine for PartMachine {
    type Protocol = Switched;
    type Told = Infallible;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut Transport) {
        self.step(now, Happened::Message(from, message), transport);
    }

    fn on_told(&mut self, _: Moment, told: Infallible, _: &mut Transport) {
        match told {}
    }

    fn on_view(&mut self, now: Moment, view: &View, transport: &mut Transport) {
        self.step(now, Happened::View(view), transport);
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        self.core.wake_at()
    }
}

/// A cache node.
#[derive(Debug)]
pub struct CacheHost {
    parts: Vec<Host<PartMachine>>,
}

/// How a cache node is, all of its parts together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStatus {
    /// The cores' numbers.
    pub counts: CacheCounts,
    /// The load of its items, queries a second.
    pub load_per_s: u64,
    /// Items there are.
    pub items: usize,
    /// Backends in its charge.
    pub backends: usize,
}

/// How a part of a cache node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartStatus {
    /// Its name.
    pub part: NodeId,
    /// The core's numbers.
    pub counts: CacheCounts,
    /// The load of its items, queries a second.
    pub load_per_s: u64,
    /// Items there are.
    pub items: usize,
    /// Backends in its charge.
    pub backends: usize,
    /// The socket's numbers.
    pub wire: Wire,
}

impl CacheHost {
    /// Starts it on sockets whose members are set, one for each part.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start(parts: impl IntoIterator<Item = (Transport, CacheConfig)>) -> io::Result<Self> {
        let start = |(transport, config): (Transport, CacheConfig)| {
            let name = format!("guira-c{}", config.me.0);
            let core = CacheNode::new(config, boot_now());
            Host::start(&name, transport, |_| PartMachine { core, out: Outbox::default() })
        };
        Ok(Self { parts: parts.into_iter().map(start).collect::<io::Result<_>>()? })
    }

    /// How its parts are; `None` for one that has ended.
    pub fn parts(&self) -> impl Iterator<Item = Option<PartStatus>> + '_ {
        let status = |PartMachine { core, .. }: &PartMachine, wire| PartStatus {
            part: core.name(),
            counts: core.counts(),
            load_per_s: core.load_per_s(),
            items: core.items(),
            backends: core.charge(),
            wire,
        };
        self.parts.iter().map(move |part| part.look(status))
    }

    /// How it is; `None` if a part has ended.
    pub fn status(&self) -> Option<CacheStatus> {
        let mut sum = CacheStatus::default();
        for part in self.parts() {
            let PartStatus { counts, load_per_s, items, backends, .. } = part?;
            sum.counts += counts;
            sum.load_per_s += load_per_s;
            sum.items += items;
            // Each is in charge of all of them, but for moments.
            sum.backends = sum.backends.max(backends);
        }
        Some(sum)
    }

    /// See [`CacheNode::hottest`]; of all parts that have not ended, two of which may have a key.
    pub fn hottest(&self, len_max: usize) -> Vec<(Box<[u8]>, f64)> {
        // Of the last of them a half may not have been told of, where many keys are about as hot.
        let asked = len_max.saturating_mul(2);
        let of_part = |part: &Host<PartMachine>| part.look(move |machine, _| machine.core.hottest(asked));
        let mut sums: BTreeMap<Box<[u8]>, f64> = BTreeMap::new();
        for (key, per_s) in self.parts.iter().filter_map(of_part).flatten() {
            *sums.entry(key).or_default() += per_s;
        }
        let mut all: Vec<(Box<[u8]>, f64)> = sums.into_iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(len_max);
        all
    }
}

impl MemberHost for CacheHost {
    type View = View;

    fn set_view(&self, members: Arc<Members>, view: View) -> Result<(), Ended> {
        let set = |part: &Host<PartMachine>| part.set_view(Arc::clone(&members), view.clone());
        // All are told, whatever the first has to say.
        self.parts.iter().map(set).fold(Ok(()), Result::and)
    }

    fn runs(&self) -> bool {
        self.parts.iter().all(Host::runs)
    }

    fn stop(self) -> Result<(), DriverError> {
        self.parts.into_iter().map(Host::stop).fold(Ok(()), Result::and)
    }
}
