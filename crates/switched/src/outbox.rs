//! What a step wants done: messages, calls of the store, answers.
//!
//! Always true: a driver does what is in it in its order before the next step, and empties it.

use guira_chain::Reply;
use guira_item::store::{StoreState, Write};
use guira_routing::NodeId;
use serde::Serialize;

use crate::Message;

/// Bytes of memory that are kept for the next step: as much as most steps say.
const KEPT_LEN_MAX: usize = 1 << 20;

/// Names what a gateway was asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct AskId(pub u64);

/// What a backend wants of its store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreCall {
    /// Read an item; told by [`Happened::Read`](crate::backend::Happened::Read).
    Read(Box<[u8]>),
    /// Write an item; told by [`Happened::Written`](crate::backend::Happened::Written).
    Write(Box<[u8]>, Write),
    /// Write the state; told by [`Happened::StateWritten`](crate::backend::Happened::StateWritten).
    State(StoreState),
}

/// What a step wants done.
#[derive(Default, Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Receivers, with where their messages end.
    sends: Vec<(NodeId, usize)>,
    /// For the store, in order.
    pub store: Vec<StoreCall>,
    /// For who has asked a gateway.
    pub answers: Vec<(AskId, Reply)>,
}

impl Outbox {
    /// Sends a message.
    pub fn send(&mut self, to: NodeId, message: &Message<'_>) {
        message.encode(&mut self.bytes);
        self.sends.push((to, self.bytes.len()));
    }

    /// What is to be sent, in order.
    pub fn sends(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        let mut from = 0;
        self.sends.iter().map(move |(to, end)| {
            let message = &self.bytes[from..*end];
            from = *end;
            (*to, message)
        })
    }

    /// Everything is done.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_LEN_MAX);
        self.sends.clear();
        self.store.clear();
        self.answers.clear();
    }

    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.store.is_empty() && self.answers.is_empty()
    }
}
