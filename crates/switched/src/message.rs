//! What members tell each other, and how it is written.
//!
//! ```text
//! gateway --- Join, Joined, Request, Reply, Gone -------------------------- backend
//! gateway --- AskHoldings, Holdings --------------------------------------- backend
//! gateway --- Request, Reply -------------- cache node --- Request (on) --- backend
//! gateway --- Probe, Reply, Absent -------- cache node
//! cache node --- Open, Opened, AskLease, Lease, Void, Voided, Told, Gone -- backend, controller
//! gateway ------ Open, Opened, AskLease, Lease, Told, Gone ---------------- controller
//! ```
//! Always true: what is asked for has a key, and lengths are those of what was there; anything else is no message. Keys in sessions are bytes, of
//! which a receiver has nothing unless they are a key.

use std::sync::Arc;

use guira_chain::Reply;
use guira_cluster::{Incarnation, Opening, Seq, SessionId, Weigh};
use guira_item::{Answer, Death, Expiry, Hit, Key, Moment, Operation, Span, Time};
use guira_routing::{KeyHash, Load, NodeId, PartitionId, RuleUpdate};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Holdings, Revision};

/// The number of a request in its gateway's session, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Number(pub u64);

/// One message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message<'m> {
    /// A gateway begins a session with a backend.
    Join {
        /// Above all of its earlier ones.
        opening: Opening,
    },
    /// The session is there.
    Joined {
        /// Its name.
        session: SessionId,
    },
    /// An operation is asked for.
    Request(#[serde(borrow)] Ask<'m>),
    /// All items that are there at a time are to be gone then.
    Flush {
        /// Who asks.
        asker: Asker,
        /// The time; what has passed is now.
        at: Time,
        /// The number of the map by which all backends are asked.
        revision: Revision,
    },
    /// What comes of a request.
    Reply {
        /// The session of the request.
        session: SessionId,
        /// The number of the request.
        number: Number,
        /// The cache node that had passed the request on.
        via: Option<NodeId>,
        /// What is said.
        #[serde(borrow)]
        said: Said<'m>,
    },
    /// An item is asked for, where it may be cached, and nobody is to be asked on.
    Probe(#[serde(borrow)] Ask<'m>),
    /// What was probed for is not to be had here.
    Absent {
        /// The session of the request.
        session: SessionId,
        /// The number of the request.
        number: Number,
    },
    /// The sender does not have what was asked for, or is giving it away, and has done nothing: who has it the map says.
    Moved {
        /// The session of the request.
        session: SessionId,
        /// The number of the request.
        number: Number,
    },
    /// The receiver goes by a session that the sender does not know, or no more.
    Gone {
        /// Which.
        session: SessionId,
    },
    /// A session is begun that has a lease.
    Open {
        /// Above all of the sender's earlier ones with the receiver.
        opening: Opening,
        /// When, by the sender's clock.
        at: Moment,
        /// A backend is to report its hot keys to this cache node, until it says otherwise.
        in_charge: bool,
    },
    /// It is there, and so is its first lease.
    Opened {
        /// Its name.
        session: SessionId,
        /// As it was asked for.
        at: Moment,
        /// How long the lease is, from then.
        lease: Span,
    },
    /// The lease is to go on.
    AskLease {
        /// Whose.
        session: SessionId,
        /// When this is asked, by the sender's clock.
        at: Moment,
    },
    /// It does.
    Lease {
        /// Whose.
        session: SessionId,
        /// As it was asked for.
        at: Moment,
        /// How long it is, from then.
        lease: Span,
    },
    /// All sessions with this life of the sender up to an opening, and all with earlier lives, are void.
    Void {
        /// This life.
        incarnation: Incarnation,
        /// The opening.
        up_to: Opening,
    },
    /// They are, and nothing is served under them any more.
    Voided {
        /// As it was said.
        incarnation: Incarnation,
        /// As it was said.
        up_to: Opening,
    },
    /// The same, of who gives partitions away: two backends may give to each other at a time, in sessions of one name.
    Given {
        /// Which.
        session: SessionId,
        /// All up to this one have been heeded.
        ack: Seq,
        /// The number of `body`, 0 with none.
        seq: Seq,
        /// What is told, or an acknowledgement alone.
        body: Option<Body>,
    },
    /// Whatever the sender was giving to the receiver, in sessions up to an opening, it gives no more: what of it was given is in the map of that number.
    Release {
        /// The opening.
        up_to: Opening,
        /// The map's.
        revision: Revision,
    },
    /// It is not waited for any more.
    Released {
        /// As it was said.
        up_to: Opening,
    },
    /// What is told in a session: in order, and once.
    Told {
        /// Which.
        session: SessionId,
        /// All up to this one have been heeded.
        ack: Seq,
        /// The number of `body`, 0 with none.
        seq: Seq,
        /// What is told, or an acknowledgement alone.
        body: Option<Body>,
    },
    /// A gateway asks what a backend has.
    AskHoldings,
    /// It has this.
    Holdings(Holdings),
}

/// Who asks for something, so that it happens once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Asker {
    /// Who is answered.
    pub gateway: NodeId,
    /// Its session with the backend.
    pub session: SessionId,
    /// The number of the request.
    pub number: Number,
    /// Nobody waits for those below this one any more.
    pub done_below: Number,
}

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ask<'m> {
    /// Who asks.
    pub asker: Asker,
    /// The key's hash.
    pub hash: KeyHash,
    /// The key.
    #[serde(borrow, with = "key_bytes")]
    pub key: Key<'m>,
    /// The operation, in the cluster's seconds.
    #[serde(borrow)]
    pub operation: Operation<'m>,
}

/// What is said to who has asked.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Said<'m> {
    /// A read has found something.
    Hit {
        /// What is known about it.
        hit: Hit,
        /// Its value, if that was wanted.
        #[serde(borrow, with = "serde_bytes")]
        value: Option<&'m [u8]>,
    },
    /// Anything else.
    Answer {
        /// What.
        answer: Answer,
        /// Why what lay there was not live.
        death: Option<Death>,
    },
}

impl<'m> Said<'m> {
    /// A reply, with its value where it lies.
    pub fn of(reply: &'m Reply) -> Self {
        match reply {
            Reply::Hit(hit, value) => Self::Hit { hit: *hit, value: value.as_deref() },
            Reply::Answer(answer, death) => Self::Answer { answer: *answer, death: *death },
        }
    }

    /// A copy.
    pub fn to_reply(self) -> Reply {
        match self {
            Self::Hit { hit, value } => Reply::Hit(hit, value.map(Arc::from)),
            Self::Answer { answer, death } => Reply::Answer(answer, death),
        }
    }
}

/// What is told in sessions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Backend to cache node: keys with much load of late.
    Report(Vec<Loaded>),
    /// Backend to cache node: a key that has just become hot, with its item.
    Burst(Loaded, ItemCopy),
    /// Backend to cache node: what was fetched; `None` if there is nothing that could be cached.
    Value(KeyBytes, Option<ItemCopy>),
    /// Backend to cache node: what is there now; `None` if nothing is, or nobody knows.
    Update(KeyBytes, Option<ItemCopy>),
    /// Cache node to backend: the item is wanted.
    Fetch(KeyBytes),
    /// Cache node to backend: the item is not kept, or no more.
    Drop {
        /// Whose.
        key: KeyBytes,
        /// What the backend told after this one is not meant.
        seen: Seq,
    },
    /// Cache node to controller: hashes that are to be routed to it, with their keys' load, or (`None`) no more.
    Rules(Vec<(KeyHash, Option<Load>)>),
    /// Controller to gateway: what changes in its table.
    Routes(Vec<RuleUpdate>),
    /// Controller to cache node: keys with these hashes are not routed to it, for want of room.
    NoRoom(Vec<KeyHash>),
    /// Backend to cache node: the item is not to be served until it is told again (R7).
    Hold(KeyBytes),
    /// Cache node to backend: a key that another cache node is to have too, or another part of this one, so that each has half of its load.
    Spread(Loaded),
    /// Cache node to backend: whether hot keys are to be reported to it from here on.
    InCharge(bool),
    /// Cache node to controller: what it has to do.
    Loads {
        /// How often it was told in this session what is to be in its charge: what it says is of after that.
        orders_heard: u32,
        /// The backends in its charge, with the load of their items.
        charge: Vec<(NodeId, Load)>,
        /// That of all other items.
        others: Load,
    },
    /// Controller to cache node: the backends that are to be in its charge.
    Charge(Vec<NodeId>),
    /// Controller to cache node: the load of a part of a cache node, on average.
    MeanLoad(Load),
    /// Backend to backend: these partitions are to be taken.
    Begin {
        /// Which.
        partitions: Vec<PartitionId>,
        /// The number of the map by which they are given.
        revision: Revision,
        /// When the giver takes all its items away, Unix time in seconds: a `flush_all` that is still to come. 0: never.
        flush_at_unix_s: u64,
    },
    /// Backend to backend: they may come.
    Ready,
    /// Backend to backend: what is there of a key; `None` if nothing is.
    Record(KeyBytes, Option<ItemCopy>),
    /// Backend to backend: there is more to come, for which there is to be room.
    Mark,
    /// Backend to backend: there is room for more.
    More,
    /// Backend to backend: all has come.
    Seal {
        /// No item has had a version above this one.
        last_version: u64,
    },
    /// Backend to backend: all is stored.
    Stored,
}

/// What is said about an item beside key and value, or about anything in a list, at most.
pub(crate) const ABOUT_LEN: usize = 64;

impl Weigh for Body {
    fn len_bytes(&self) -> usize {
        match self {
            Self::Report(loaded) => loaded.iter().map(|loaded| loaded.key.0.len() + ABOUT_LEN).sum(),
            Self::Burst(Loaded { key, .. }, item) => key.0.len() + item.value.len() + ABOUT_LEN,
            Self::Value(key, item) | Self::Update(key, item) | Self::Record(key, item) => {
                key.0.len() + item.as_ref().map_or(0, |item| item.value.len()) + ABOUT_LEN
            }
            Self::Fetch(key) | Self::Drop { key, .. } | Self::Hold(key) | Self::Spread(Loaded { key, .. }) => {
                key.0.len() + ABOUT_LEN
            }
            Self::Rules(rules) => rules.len() * ABOUT_LEN / 4,
            Self::Routes(updates) => updates.len() * ABOUT_LEN / 3,
            Self::NoRoom(hashes) => hashes.len() * ABOUT_LEN / 4,
            Self::Loads { charge, .. } => ABOUT_LEN + charge.len() * ABOUT_LEN / 8,
            Self::Charge(backends) => ABOUT_LEN + backends.len() * ABOUT_LEN / 16,
            Self::Begin { partitions, .. } => ABOUT_LEN + partitions.len() * ABOUT_LEN / 16,
            Self::MeanLoad(_)
            | Self::InCharge(_)
            | Self::Ready
            | Self::Mark
            | Self::More
            | Self::Seal { .. }
            | Self::Stored => ABOUT_LEN,
        }
    }
}

/// A key that owns its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyBytes(#[serde(with = "owned_bytes")] pub Box<[u8]>);

impl From<&[u8]> for KeyBytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

/// A key with its load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// The key.
    pub key: KeyBytes,
    /// Queries a second.
    pub per_s: f32,
}

/// An item as a cache node is given it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ItemCopy {
    /// Client flags.
    pub flags: u32,
    /// Version.
    pub version: u64,
    /// When it ends, in the cluster's seconds: for who asks.
    pub expiry: Expiry,
    /// When it ends at the latest, by the cache node's own clock, whatever the two clocks do meanwhile; `None`: never.
    pub serve_until: Option<Moment>,
    /// Is marked stale.
    pub stale: bool,
    /// A client has been told that it won.
    pub win_sent: bool,
    /// The bytes.
    #[serde(with = "owned_bytes")]
    pub value: Arc<[u8]>,
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMessage;

impl<'m> Message<'m> {
    /// Appends it to `into`.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let taken = std::mem::take(into);
        *into = postcard::to_extend(self, taken)
            .expect("there is room in memory, and nothing in it that cannot be written");
    }

    /// Reads one that fills `bytes`.
    ///
    /// # Errors
    /// [`NoMessage`].
    pub fn decode(bytes: &'m [u8]) -> Result<Self, NoMessage> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Ok(message),
            _ => Err(NoMessage),
        }
    }
}

/// Keys that are borrowed, and checked.
mod key_bytes {
    use guira_item::Key;
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(key: &Key<'_>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(key.as_bytes())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Key<'de>, D::Error> {
        let bytes: &'de [u8] = serde_bytes::deserialize(from)?;
        Key::new(bytes).map_err(|_| D::Error::custom("no key has this length"))
    }
}

/// Bytes that are copied into what owns them.
mod owned_bytes {
    use super::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes.as_ref())
    }

    pub(super) fn deserialize<'de, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: for<'b> From<&'b [u8]>,
    {
        let bytes: &'de [u8] = serde_bytes::deserialize(from)?;
        Ok(T::from(bytes))
    }
}
