//! Hosts: the four cores on sockets and threads, and a gateway as a [`Service`](guira_item::Service) or before a program ([`Caller`]).
//!
//! ```text
//! server's workers --> GatewayService --(a batch)--> GatewayHost --> CacheHost --> BackendHost --> Store
//!        ^----------------- mailbox <--(answers)---------/              ControllerHost
//! ```
//! Always true: what a core wants done is done, in its order, before it is told the next thing; what happens on other threads (answers of a
//! store, batches of clients) comes to it through its driver's inbox, once each; who waits for an answer gets one, also when the host ends.

mod backend;
mod cache;
mod controller;
mod gateway;
mod heard;
mod local;
mod network;
mod pace;

use guira_cluster::{Protocol, Transport};
use guira_routing::Header;

use crate::{Message, Outbox, View};

pub use backend::{BackendHost, BackendMachine, BackendStatus, BackendTold, Completed};
pub use cache::{CacheHost, CacheStatus, PartStatus};
pub use controller::{ControllerHost, ControllerMachine, ControllerStatus, ControllerTold, MoveWish, NoFlows};
pub use gateway::{Caller, GatewayFront, GatewayHost, GatewayMachine, GatewayService, GatewayStatus, GatewayWorker};
pub use guira_cluster::{Ended, MemberHost, Wire};
pub use guira_front::{CallerBounds, ClockNow, ServiceConfig};
pub use heard::ClusterHoldings;
pub use local::{LocalCluster, LocalConfig, LocalStatus};
pub use network::NetworkConfig;

/// What the members of a switched cluster say to each other.
#[derive(Debug)]
pub enum Switched {}

impl Protocol for Switched {
    type Message<'m> = Message<'m>;
    type View = View;

    fn decode(bytes: &[u8]) -> Option<Message<'_>> {
        Message::decode(bytes).ok()
    }

    /// A read of a key of that hash, and nothing that changes anything.
    fn is_get_of(message: &Message<'_>, header: &Header) -> bool {
        match (message, header) {
            (Message::Request(ask), Header::Get { hash, .. }) => hash.is_of(ask.hash) && ask.operation.only_reads(),
            _ => false,
        }
    }
}

/// Sends the messages of a step.
fn send_all(out: &Outbox, transport: &mut Transport) {
    out.sends().for_each(|(to, message)| transport.send(to, message));
    out.gets().for_each(|(backend, hash, message)| transport.send_get(backend, hash, message));
}

#[cfg(test)]
#[path = "host/host_tests.rs"]
mod tests;
