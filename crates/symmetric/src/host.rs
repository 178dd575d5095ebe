//! Hosts: the two cores on sockets and threads, and a node as a [`Service`](guira_item::Service).
//!
//! ```text
//! server's workers --> NodeService --(a batch)--> NodeHost <--> the others' NodeHost
//!        ^---------------- mailbox <--(answers)------/  <--> CoordinatorHost --> ViewsFile
//! ```
//! Always true: what a core wants done is done, in its order, before it is told the next thing; who waits for an answer gets one, also when the host ends;
//! a view is on disk before the coordinator's core is told so.

mod coordinator;
mod node;
mod numbers;
mod views_file;

use std::convert::Infallible;

use guira_cluster::Protocol;
use guira_routing::Header;

use crate::Message;

pub use coordinator::{CoordinatorHost, CoordinatorHostStatus, CoordinatorMachine, CoordinatorTold, Keeping};
pub use node::{NodeFront, NodeHost, NodeHostStatus, NodeMachine, NodeService};
pub use views_file::{ViewsFile, ViewsFileError};

/// What the members of a symmetric cluster say to each other.
#[derive(Debug)]
pub enum Symmetric {}

impl Protocol for Symmetric {
    type Message<'m> = Message;

    /// Who may say something to whom does not change; views are the coordinator's to give out.
    type View = Infallible;

    fn decode(bytes: &[u8]) -> Option<Message> {
        Message::decode(bytes).ok()
    }

    /// The network routes none.
    fn is_get_of(_: &Message, _: &Header) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "host/host_tests.rs"]
mod tests;
