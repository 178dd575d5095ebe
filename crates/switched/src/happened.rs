//! What a cache node and a controller are told.

use guira_routing::NodeId;

use crate::Message;

/// What has happened to a member that has nothing but messages and time.
#[derive(Debug)]
pub enum Happened<'e> {
    /// A message came.
    Message(NodeId, Message<'e>),
    /// Time has passed.
    Tick,
}
