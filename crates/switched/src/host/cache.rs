//! A cache node on its socket.

use std::io;

use guira_cluster::{Transport, boot_now};

use super::{Host, PlainMachine, Wire};
use crate::cache_node::{CacheConfig, CacheCounts, CacheNode};

/// A [`CacheNode`].
pub type CacheHost = Host<PlainMachine<CacheNode>>;

/// How a cache node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheStatus {
    /// The core's numbers.
    pub counts: CacheCounts,
    /// Items there are.
    pub items: usize,
    /// Backends in its charge.
    pub backends: usize,
    /// The socket's numbers.
    pub wire: Wire,
}

impl CacheHost {
    /// Starts it on a socket whose members are set.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start(transport: Transport, config: CacheConfig) -> io::Result<Self> {
        let name = format!("guira-c{}", config.me.0);
        Self::start_with(&name, transport, |_| PlainMachine::new(CacheNode::new(config, boot_now())))
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<CacheStatus> {
        self.look(|PlainMachine { core, .. }, wire| CacheStatus {
            counts: core.counts(),
            items: core.items(),
            backends: core.charge(),
            wire,
        })
    }

    /// See [`CacheNode::hottest`]; nothing if it has ended.
    pub fn hottest(&self, len_max: usize) -> Vec<(Box<[u8]>, f64)> {
        self.look(move |machine, _| machine.core.hottest(len_max)).unwrap_or_default()
    }
}
