//! What a step wants done: messages, answers, and what a home writes into its shard.
//!
//! Always true: a driver does what is in it in its order before the next step, and empties it.

use guira_routing::NodeId;

use crate::{Envelope, Key, Outcome, Ticket, Version, Window};

/// What a home is to write into its shard, with the timestamp and what is remembered of requests, unless the shard has something newer. Told by
/// [`Happened::WrittenBack`](crate::Happened::WrittenBack), also if it has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WriteBack {
    /// Of which key.
    pub key: Key,
    /// The newest of all that members had.
    pub version: Version,
    /// What is remembered of requests.
    pub done: Window,
    /// There may have been a home meanwhile that has known nothing of it: a shard that does not know when what it has was written keeps that.
    pub is_doubtful: bool,
}

/// What a step wants done.
#[derive(Clone, Default, Debug)]
pub struct Outbox {
    /// For members, in order.
    pub sends: Vec<(NodeId, Envelope)>,
    /// For who has asked.
    pub answers: Vec<(Ticket, Outcome)>,
    /// For the shard.
    pub write_backs: Vec<WriteBack>,
    /// Keys that may be something else than they were to who looks on ([`Replica::seen`](crate::Replica::seen)); some more than once.
    pub touched: Vec<Key>,
    /// The replica is whole: from here on it serves.
    pub is_whole: bool,
}

impl Outbox {
    /// Everything is done.
    pub fn clear(&mut self) {
        let Self { sends, answers, write_backs, touched, is_whole } = self;
        sends.clear();
        answers.clear();
        write_backs.clear();
        touched.clear();
        *is_whole = false;
    }
}
