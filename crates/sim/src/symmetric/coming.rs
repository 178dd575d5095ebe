//! What is going to happen.

use guira_chain::Reply;
use guira_consistency::Epoch;
use guira_routing::NodeId;
use guira_switched::AskId;

use crate::clients::Wish;

/// Something that happens to a member.
pub(super) enum Input {
    Datagram(NodeId, Box<[u8]>),
    Ask(AskId, Wish),
    /// What was to be kept is on disk, up to the view of this epoch.
    Kept(Epoch),
    Tick,
}

/// Something that is going to happen.
pub(super) enum Coming {
    /// To a member, in one of its lives; in whichever it is in, if that is not said.
    To(NodeId, Option<u64>, Input),
    /// A member wakes up, unless it has said otherwise since.
    Wake(NodeId),
    /// A member comes back.
    Restart(NodeId),
    /// The oldest of what the coordinator keeps is on disk, if it is still in that life.
    Written(u64),
    /// A client is answered.
    Answer(AskId, Box<Reply>),
    /// A client asks.
    Asks(usize),
    /// Something goes wrong.
    Fault,
    /// The weather is as usual again.
    Clears,
    /// Two members do not hear each other any more.
    Cuts(NodeId, NodeId),
    /// Everybody hears everybody again.
    Heals,
}
