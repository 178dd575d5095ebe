//! What went over the network, by kind.
//!
//! Always true: every byte that is sent is counted once, as one kind's or as a packet's header.

use guira_consistency as hot;
use guira_plan::MessageLens;
use guira_symmetric::Message;
use serde::{Deserialize, Serialize};

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Something asked of a key's home.
    Request,
    /// What came of it.
    Reply,
    /// A write of a hot key begins (Lin).
    Invalidate,
    /// It has come.
    Ack,
    /// It is over.
    Validate,
    /// A write of a hot key (SC).
    Update,
    /// All else: views, leases, hot sets, what is asked again.
    Other,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Request, Self::Reply, Self::Invalidate, Self::Ack, Self::Validate, Self::Update, Self::Other];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Reply => "reply",
            Self::Invalidate => "invalidate",
            Self::Ack => "ack",
            Self::Validate => "validate",
            Self::Update => "update",
            Self::Other => "other",
        }
    }

    /// A message's.
    pub(super) fn of(message: &Message) -> Self {
        match message {
            Message::Request(_) => Self::Request,
            Message::Replied { .. } => Self::Reply,
            Message::Protocol { envelope, .. } => match envelope.message {
                hot::Message::Invalidate { .. } => Self::Invalidate,
                hot::Message::Ack { .. } => Self::Ack,
                hot::Message::Validate { .. } => Self::Validate,
                hot::Message::Update { .. } => Self::Update,
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

/// Messages and bytes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Messages of each kind, in the order of [`Kind::ALL`].
    pub messages: [u64; 7],
    /// Their bytes, without headers of packets.
    pub bytes: [u64; 7],
    /// Packets.
    pub packets: u64,
    /// Bytes of their headers.
    pub header_bytes: u64,
}

impl Traffic {
    /// One message more.
    pub(super) fn count(&mut self, kind: Kind, len: usize) {
        self.messages[kind as usize] += 1;
        self.bytes[kind as usize] += len as u64;
    }

    /// One packet more, with such a header.
    pub(super) fn count_packet(&mut self, header_len: usize) {
        self.packets += 1;
        self.header_bytes += header_len as u64;
    }

    /// All bytes.
    pub fn len(&self) -> u64 {
        self.bytes.iter().sum::<u64>() + self.header_bytes
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a message of a kind on average, with what it has of its packet's header; `None`: there was none.
    pub fn mean_len(&self, kind: Kind) -> Option<f64> {
        let (messages, bytes) = (self.messages[kind as usize], self.bytes[kind as usize]);
        let header = self.header_bytes as f64 / self.messages.iter().sum::<u64>() as f64;
        (messages > 0).then(|| bytes as f64 / messages as f64 + header)
    }

    /// What the equations are to know of messages; of what there was none, nothing but a byte. Ours acknowledge an update, which counts with it.
    pub fn lens(&self) -> MessageLens {
        let sum = |kinds: &[Kind]| kinds.iter().filter_map(|kind| self.mean_len(*kind)).sum::<f64>().max(1.0);
        let ack = |other: Kind| if self.mean_len(other).is_some() { Kind::Ack } else { other };
        MessageLens {
            remote: sum(&[Kind::Request, Kind::Reply]),
            update: if self.mean_len(Kind::Update).is_some() { sum(&[Kind::Update, Kind::Ack]) } else { 1.0 },
            lin_write: if self.mean_len(Kind::Invalidate).is_some() {
                sum(&[Kind::Invalidate, ack(Kind::Invalidate), Kind::Validate])
            } else {
                1.0
            },
        }
    }
}
