//! What is asked of a key, by whom, and what becomes of it.

use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

use crate::{Answer, Kind, Timestamp, Wish};

/// Names what a replica was asked, by whoever drives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Who asks, for as long as he numbers his requests: a lane of a member's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Whose.
    pub node: NodeId,
    /// Which life of it.
    pub life: u64,
    /// Which of what it asks side by side.
    pub lane: u16,
}

/// The number of a request in its session, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Sequence(pub u64);

/// A request that takes effect once, wherever it is asked (R3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RequestId {
    /// Whose: one request at a time.
    pub session: Session,
    /// Which.
    pub sequence: Sequence,
}

/// An operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    /// Under which it is answered.
    pub ticket: Ticket,
    /// What is wanted.
    pub wish: Wish,
    /// What it is known by, if it may be asked again.
    pub request: Option<RequestId>,
    /// It was asked before, elsewhere: nobody knows whether it has taken effect.
    pub is_again: bool,
    /// The newest that its session has seen of the key: nothing older is served to it (R12).
    pub floor: Option<Timestamp>,
}

/// What becomes of an operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It was carried out.
    Answer(Answer),
    /// Another node is to be asked: the key's home.
    Forward(NodeId),
    /// The key is not hot, and this is its home: the shard is to be asked, before the next step.
    Shard,
    /// Too many wait for the key. Nothing has changed.
    Busy,
    /// The node may not serve: it has no lease, or is not whole. Nothing has changed.
    NotServing,
    /// A later request of the session has been carried out; what became of this one is forgotten.
    Late,
    /// It may have taken effect, and may yet.
    Unknown,
}

impl Operation {
    /// The kind of the write that it is, if it is one. What may have taken effect elsewhere is made to depend on that it has not.
    pub(crate) fn kind(&self) -> Kind {
        if self.wish.is_blind() && !self.is_again { Kind::Plain } else { Kind::Modify }
    }
}
