//! A cache node on its socket.

use std::io;

use guira_cluster::{UdpTransport, boot_now};
use guira_item::Moment;
use guira_routing::NodeId;

use super::{Host, Machine, Wire, send_all};
use crate::{
    Message, Outbox,
    cache_node::{CacheConfig, CacheCounts, CacheNode, Happened},
};

/// A [`CacheNode`].
pub type CacheHost = Host<CacheMachine>;

/// A cache node, and what it wants sent.
pub struct CacheMachine {
    cache: CacheNode,
    out: Outbox,
}

/// How a cache node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheStatus {
    /// The core's numbers.
    pub counts: CacheCounts,
    /// Items there are.
    pub items: usize,
    /// The socket's numbers.
    pub wire: Wire,
}

impl CacheHost {
    /// Starts it on a socket whose members are set.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start(transport: UdpTransport, config: CacheConfig) -> io::Result<Self> {
        let name = format!("guira-c{}", config.me.0);
        Self::start_with(&name, transport, |_| CacheMachine {
            cache: CacheNode::new(config, boot_now()),
            out: Outbox::default(),
        })
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<CacheStatus> {
        self.look(|CacheMachine { cache, .. }, wire| CacheStatus { counts: cache.counts(), items: cache.items(), wire })
    }

    /// See [`CacheNode::hottest`]; nothing if it has ended.
    pub fn hottest(&self, len_max: usize) -> Vec<(Box<[u8]>, f64)> {
        self.look(move |machine, _| machine.cache.hottest(len_max)).unwrap_or_default()
    }
}

impl CacheMachine {
    fn step(&mut self, now: Moment, happened: Happened<'_>, transport: &mut UdpTransport) {
        self.cache.step(now, happened, &mut self.out);
        send_all(&self.out, transport);
        self.out.clear();
    }
}

impl Machine for CacheMachine {
    type Told = std::convert::Infallible;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, transport: &mut UdpTransport) {
        self.step(now, Happened::Message(from, message), transport);
    }

    fn on_told(&mut self, _: Moment, told: Self::Told, _: &mut UdpTransport) {
        match told {}
    }

    fn on_tick(&mut self, now: Moment, transport: &mut UdpTransport) {
        self.step(now, Happened::Tick, transport);
    }

    fn wake_at(&self, _: Moment) -> Option<Moment> {
        self.cache.wake_at()
    }
}
