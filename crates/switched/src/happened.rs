//! What a cache node and a controller are told.

use guira_routing::NodeId;

use crate::{Message, View};

/// What has happened to a member that has nothing but messages and time.
#[derive(Debug)]
pub enum Happened<'e> {
    /// A message came.
    Message(NodeId, Message<'e>),
    /// There are others now.
    View(&'e View),
    /// Time has passed.
    Tick,
}
