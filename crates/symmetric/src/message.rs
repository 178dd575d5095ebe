//! What nodes and the coordinator tell each other, and how it is written.
//!
//! ```text
//! node --- Here, Hottest ----------------------> coordinator      coordinator --- Told, AskHottest, HotSet --> node
//! node --- Protocol (0037), Request, Replied --- node      node --- AskCredits --> node --- Credits --> node
//! node --- Fetch --> node --- Page --> node
//! ```
//! Always true: anything else is no message; each may be lost, come twice, or come in any order.

use guira_consistency::{Answer, Consistency, Envelope, Epoch, Key, RequestId, Wish};
use guira_item::KEY_LEN_MAX;
use serde::{Deserialize, Serialize};

use crate::{Fetch, Here, HotSet, MessageNumber, Page, Told};

/// One message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A node is there.
    Here {
        /// In which life, with what.
        here: Here,
        /// The number of the hot set that it has.
        hot_set: u64,
        /// What it promises: by another file than the coordinator's it may be something else.
        consistency: Consistency,
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
    /// Of a hot key, to another node's replica. It takes a credit of that node's.
    Protocol {
        /// Which it is of those that this node has told that one in this view.
        number: MessageNumber,
        /// The last that has come the other way: all up to it give back their credits.
        seen: MessageNumber,
        /// What is told.
        envelope: Envelope,
    },
    /// Something is asked of a key's home.
    Request(Request),
    /// What came of it.
    Replied {
        /// What was asked.
        request: RequestId,
        /// What is told.
        told: Replied,
    },
    /// Credits are given back: nothing else has told so much.
    Credits {
        /// Of messages in this view.
        epoch: Epoch,
        /// Of what who is told has sent, the last that has come.
        seen: MessageNumber,
    },
    /// Who says this has had none for a while.
    AskCredits {
        /// In this view.
        epoch: Epoch,
        /// The last that was sent: none of before is under way any more.
        sent: MessageNumber,
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
        Message::Protocol { envelope, .. } => envelope.message.keys().all(is_key),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use guira_consistency::{Message as OfHotKeys, Timestamp, Writer};

    use super::*;

    fn protocol(key: &[u8], number: u64) -> Message {
        let at = Timestamp { version: 1, writer: Writer(2) };
        let envelope = Envelope { epoch: Epoch(3), message: OfHotKeys::Question { key: Key::from(key), at } };
        Message::Protocol { number: MessageNumber(number), seen: MessageNumber(u64::MAX), envelope }
    }

    fn encoded(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn what_gives_and_takes_credits_is_read_as_it_was_written_and_short() {
        for message in [
            protocol(b"key", 1),
            protocol(b"key", u64::MAX),
            Message::Credits { epoch: Epoch(7), seen: MessageNumber(1_000) },
            Message::AskCredits { epoch: Epoch(u64::MAX), sent: MessageNumber(0) },
        ] {
            let bytes = encoded(&message);
            assert_eq!(Message::decode(&bytes), Ok(message));
            (0..bytes.len()).for_each(|len| assert_eq!(Message::decode(&bytes[..len]), Err(NoMessage)));
        }
        let credits = Message::Credits { epoch: Epoch(100), seen: MessageNumber(10_000) };
        assert!(encoded(&credits).len() < 8, "what it costs is its header");
        assert_eq!(Message::decode(&encoded(&protocol(b"", 1))), Err(NoMessage), "that is no key");
    }
}
