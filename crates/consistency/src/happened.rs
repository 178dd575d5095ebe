//! What a replica is told.

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{Envelope, Epoch, Key, Operation, Timestamp, Version, View, Window};

/// What has happened to a replica.
#[derive(Clone, Debug)]
pub enum Happened<'e> {
    /// A message came.
    Message(NodeId, Envelope),
    /// Somebody wants something of a key.
    Asked(Key, Operation),
    /// There is a new view, and a lease for it.
    View(&'e View, Moment),
    /// The lease of an epoch goes on until then.
    Lease(Epoch, Moment),
    /// The key is to be hot: this is its home, the shard has this of it, and nothing that was asked of the shard is under way. One that cannot be
    /// now ([`Replica::can_promote`](crate::Replica::can_promote)) stays as it is.
    Promote(Key, Box<Version>, Window),
    /// The key is to be hot no more: this is its home.
    Evict(Key),
    /// What was to be written back is in the shard.
    WrittenBack(Key, Timestamp),
    /// Time has passed.
    Tick,
}
