//! What nodes and the coordinator tell each other, and how it is written.
//!
//! ```text
//! node --- Here, Hottest ----------------------> coordinator      coordinator --- Told, AskHottest, HotSet --> node
//! node --- Protocol (0037), Request, Replied, Fetch, Page --- node
//! ```
//! Always true: anything else is no message; each may be lost, come twice, or come in any order.

use guira_consistency::{Answer, Envelope, Epoch, Key, RequestId, Wish};
use guira_item::KEY_LEN_MAX;
use serde::{Deserialize, Serialize};

use crate::{Fetch, Here, HotSet, Page, Told};

/// One message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A node is there.
    Here {
        /// In which life, with what.
        here: Here,
        /// The number of the hot set that it has.
        hot_set: u64,
    },
    /// Who is there, and a lease.
    Told(Box<Told>),
    /// Which keys are the hottest?
    AskHottest,
    /// These are, where this is said.
    Hottest {
        /// Hottest first, with how often a second they are asked for.
        keys: Vec<(Key, f64)>,
        /// What is to be hot, as is known there: a coordinator that has begun anew goes on from it.
        set: HotSet,
    },
    /// Which keys are to be hot.
    HotSet(HotSet),
    /// Of a hot key, to the other nodes' replicas.
    Protocol(Envelope),
    /// Something is asked of a key's home.
    Request(Request),
    /// What came of it.
    Replied {
        /// What was asked.
        request: RequestId,
        /// What is told.
        told: Replied,
    },
    /// A page of the asking node's own shard, of whoever is home of it.
    Fetch(Fetch),
    /// This is that.
    Page(Box<Page>),
}

/// Something is asked of a home.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The view by which it is the home: in any other one it does nothing.
    pub epoch: Epoch,
    /// Who asks, and the number of what he asks.
    pub request: RequestId,
    /// What.
    pub asked: Asked,
}

/// What is asked of a home.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Asked {
    /// Something of a key.
    Key(Key, Wish),
    /// That all of which it is home is gone.
    Flush,
}

/// What a home says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Replied {
    /// It was carried out.
    Answer(Answer),
    /// Everything is gone.
    Flushed,
    /// Too much waits. It was not carried out, and never will be.
    Busy,
    /// Not here, or not now. It was not carried out by this telling of it; it may be told again.
    NotServing,
    /// This is not the key's home any more. It was not carried out, and never will be.
    Elsewhere,
    /// It may have been carried out, and may yet be.
    Unknown,
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMessage;

impl Message {
    /// Appends it to `into`.
    ///
    /// # Panics
    /// There is no memory.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let taken = std::mem::take(into);
        *into = postcard::to_extend(self, taken).expect("nothing in it cannot be written");
    }

    /// Reads one that fills `bytes`.
    ///
    /// # Errors
    /// [`NoMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, NoMessage> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) if is_sound(&message) => Ok(message),
            _ => Err(NoMessage),
        }
    }
}

/// What it is about are keys.
fn is_sound(message: &Message) -> bool {
    let is_key = |key: &Key| (1..=KEY_LEN_MAX).contains(&key.len());
    match message {
        Message::Request(Request { asked: Asked::Key(key, _), .. }) => is_key(key),
        Message::Hottest { keys, set } => keys.iter().all(|(key, _)| is_key(key)) && set.keys.iter().all(is_key),
        Message::HotSet(set) => set.keys.iter().all(is_key),
        Message::Page(page) => page.items.iter().all(|(key, _)| is_key(key)),
        Message::Protocol(envelope) => envelope.message.keys().all(is_key),
        _ => true,
    }
}
