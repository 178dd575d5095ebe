//! A request that is under way.

use guira_chain::Owned;
use guira_item::{Key, Moment, Span, Time};
use guira_routing::{KeyHash, NodeId};
use serde::Serialize;

use super::hedging::Hedge;
use crate::{Ask, AskId, Asker, Message, Outbox, Revision};

/// What is asked.
#[derive(Clone, Debug, Serialize)]
pub(super) enum What {
    Operation {
        key: Box<[u8]>,
        hash: KeyHash,
        operation: Owned,
    },
    /// By the map of that number.
    Flush {
        at: Time,
        revision: Revision,
    },
}

impl What {
    /// Bytes of the value that it brings.
    pub(super) fn value_len(&self) -> usize {
        match self {
            Self::Operation { operation, .. } => operation.get().value_len(),
            Self::Flush { .. } => 0,
        }
    }
}

/// A request that is under way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pending {
    pub(super) ask: AskId,
    pub(super) backend: NodeId,
    pub(super) what: What,
    pub(super) only_reads: bool,
    /// Where it goes at first, instead, or is thought to go.
    pub(super) cache: Option<NodeId>,
    /// It goes where the network brings it, at first.
    pub(super) by_content: bool,
    /// In the session that there is.
    pub(super) is_sent: bool,
    /// When it was first sent to whom it goes now.
    pub(super) sent_at: Option<Moment>,
    pub(super) hedge: Hedge,
    pub(super) resend_after: Span,
    pub(super) look_at: Moment,
    pub(super) answer_until: Moment,
}

impl Pending {
    /// Whether its backend may have carried it out, and something has changed by that.
    pub(super) fn may_have_acted(&self) -> bool {
        self.is_sent && !self.only_reads && self.cache.is_none()
    }

    /// Whether an answer of a node counts: of what may change something a cache node's does only until the backend may have been asked.
    pub(super) fn may_be_answered_by(&self, node: NodeId) -> bool {
        self.only_reads || node == self.backend || self.cache == Some(node)
    }

    /// Sends it; to a cache node as a probe, if that `probes`.
    pub(super) fn send(&mut self, now: Moment, asker: Asker, probes: bool, out: &mut Outbox) {
        self.sent_at.get_or_insert(now);
        self.is_sent = true;
        match (&self.what, self.cache) {
            (What::Operation { key, hash, operation }, _) if self.by_content => {
                let ask = Ask { asker, hash: *hash, key: as_key(key), operation: operation.get() };
                out.send_get(self.backend, *hash, &Message::Request(ask));
            }
            (_, Some(cache)) => self.ask(cache, asker, probes, out),
            (_, None) => self.ask(self.backend, asker, false, out),
        }
    }

    /// Asks a node for it, or probes that.
    pub(super) fn ask(&self, node: NodeId, asker: Asker, probes: bool, out: &mut Outbox) {
        match &self.what {
            What::Flush { at, revision } => {
                out.send(node, &Message::Flush { asker, at: *at, revision: *revision });
            }
            What::Operation { key, hash, operation } => {
                let ask = Ask { asker, hash: *hash, key: as_key(key), operation: operation.get() };
                out.send(node, &if probes { Message::Probe(ask) } else { Message::Request(ask) });
            }
        }
    }
}

fn as_key(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).expect("it was a key when it was asked for")
}
