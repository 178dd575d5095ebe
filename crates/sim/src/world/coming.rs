//! What is going to happen, and when.

use guira_chain::Reply;
use guira_cluster::Incarnation;
use guira_item::{Moment, Time};
use guira_routing::NodeId;
use guira_switched::{AskId, Commit, Committed};

use crate::{clients::Wish, register::FlushNumber};

/// Something that happens to a node.
pub(crate) enum Input {
    Datagram(NodeId, Box<[u8]>),
    Disk(u64),
    Ask(AskId, Wish),
    /// There are others now: the view of that number.
    View(usize),
    /// What came of what was to be put into the map.
    Committed(Committed),
    Tick,
}

/// Something that is going to happen.
pub(crate) enum Coming {
    /// To a node, in one of its lives; in whichever it is in, if that is not said.
    To(NodeId, Option<u64>, Input),
    /// A node wakes up, unless it has said otherwise since.
    Wake(NodeId),
    /// A node comes back.
    Restart(NodeId),
    /// A client is answered.
    Answer(AskId, Box<Reply>),
    /// A client asks.
    Asks(usize),
    /// The time of a `flush_all` comes then, may have come by some clock, and is looked after until it has taken place.
    Due(FlushNumber, Time, Moment),
    /// Something goes wrong.
    Fault,
    /// Somebody comes or goes.
    Changes,
    /// What a backend has given away in the life that had begun as `begun` is to be put into the map, if it has begun no other since; who asks is to hear of it.
    Commit { giver: NodeId, life: u64, begun: Incarnation, commit: Commit },
    /// Who has just gone is there again.
    ComesBack(NodeId),
    /// A backend that stands by has the store of another one.
    HasStore { standby: NodeId, of: NodeId },
    /// It has that one's place.
    HasPlace { standby: NodeId, of: NodeId },
    /// The weather is as usual again.
    Clears,
    /// Two nodes do not hear each other any more.
    Cuts(NodeId, NodeId),
    /// Everybody hears everybody again.
    Heals,
}
