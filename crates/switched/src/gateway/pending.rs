//! A request that is under way.

use guira_chain::Owned;
use guira_item::{Key, Moment, Span};
use guira_routing::{KeyHash, NodeId};
use serde::Serialize;

use crate::{Ask, AskId, Asker, Message, Outbox};

/// What is asked.
#[derive(Clone, Debug, Serialize)]
pub(super) enum What {
    Operation { key: Box<[u8]>, hash: KeyHash, operation: Owned },
    Flush,
}

/// A request that is under way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pending {
    pub(super) ask: AskId,
    pub(super) backend: NodeId,
    pub(super) what: What,
    pub(super) only_reads: bool,
    /// Where it goes at first, instead.
    pub(super) cache: Option<NodeId>,
    /// In the session that there is.
    pub(super) is_sent: bool,
    /// In any.
    pub(super) was_sent: bool,
    /// When it was sent, if once.
    pub(super) sent_at: Option<Moment>,
    pub(super) resend_after: Span,
    pub(super) look_at: Moment,
    pub(super) answer_until: Moment,
}

impl Pending {
    pub(super) fn send(&mut self, now: Moment, asker: Asker, out: &mut Outbox) {
        self.sent_at = (!self.was_sent).then_some(now);
        (self.is_sent, self.was_sent) = (true, true);
        match &self.what {
            What::Flush => out.send(self.backend, &Message::Flush(asker)),
            What::Operation { key, hash, operation } => {
                let key = Key::new(key).expect("it was a key when it was asked for");
                let ask = Ask { asker, hash: *hash, key, operation: operation.get() };
                out.send(self.cache.unwrap_or(self.backend), &Message::Request(ask));
            }
        }
    }
}
