//! Gateways' sessions: each request acts once, however often it comes.
//!
//! Always true (R3): a session is with one life of the backend and one of the gateway; a request below what its gateway still waits for, of
//! another session does nothing; one that is under way or has changed something is not carried out again.

use std::collections::{BTreeMap, btree_map::Entry};

use guira_chain::Reply;
use guira_cluster::{Opening, SessionId};
use guira_item::{Answer, Moment};
use guira_routing::NodeId;
use serde::Serialize;

use super::{Backend, OPERATIONS_MAX, ReplyTo};
use crate::{Ask, Asker, Message, Mutant, Number, Outbox, Said};

/// Changes of a gateway that are under way or whose answers are kept. Gateways have fewer under way ([`crate::gateway::PENDING_MAX`]).
const WINDOW_MAX: usize = 1 << 13;
const _: () = assert!(crate::gateway::PENDING_MAX < WINDOW_MAX);

/// What has become of a request.
#[derive(Clone, Debug, Serialize)]
enum Outcome {
    UnderWay {
        only_reads: bool,
    },
    /// It was answered so, and may have changed something.
    Said(Reply),
}

impl Outcome {
    fn kept_len(&self) -> usize {
        match self {
            Self::UnderWay { .. } => 0,
            Self::Said(reply) => reply.value_len(),
        }
    }

    fn only_reads(&self) -> bool {
        matches!(self, Self::UnderWay { only_reads: true })
    }
}

/// One gateway.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Client {
    session: SessionId,
    done_below: Number,
    outcomes: BTreeMap<Number, Outcome>,
    /// Outcomes of what does not only read.
    changes: usize,
    /// Bytes of the values in them.
    kept_len: usize,
}

/// Bytes of values in the answers that are kept for one gateway, beyond which no change is let in but the lowest.
const KEPT_LEN_MAX: usize = 64 << 20;

/// What is to be done with a request.
enum Admission {
    /// Carry it out.
    New,
    /// Nothing: it is under way, nobody waits for it, or there is no room, and it comes again.
    Old,
}

impl Client {
    fn new(session: SessionId) -> Self {
        Self { session, done_below: Number(0), outcomes: BTreeMap::new(), changes: 0, kept_len: 0 }
    }

    fn admit(&mut self, asker: &Asker, only_reads: bool, out: &mut Outbox) -> Admission {
        if asker.done_below > self.done_below {
            self.done_below = asker.done_below;
            while let Some(entry) = self.outcomes.first_entry().filter(|entry| *entry.key() < asker.done_below) {
                self.changes -= usize::from(!entry.get().only_reads());
                self.kept_len -= entry.get().kept_len();
                entry.remove();
            }
        }
        if asker.number < self.done_below {
            return Admission::Old;
        }
        // The lowest is always let in: all others wait for it to be done.
        let has_room = (self.changes < WINDOW_MAX && self.kept_len < KEPT_LEN_MAX) || asker.number == self.done_below;
        match self.outcomes.entry(asker.number) {
            Entry::Occupied(entry) => {
                if let Outcome::Said(reply) = entry.get() {
                    send_reply(asker.gateway, asker.session, asker.number, reply, out);
                }
                Admission::Old
            }
            // It comes again, and then there may be room.
            Entry::Vacant(_) if !only_reads && !has_room => Admission::Old,
            Entry::Vacant(entry) => {
                entry.insert(Outcome::UnderWay { only_reads });
                self.changes += usize::from(!only_reads);
                Admission::New
            }
        }
    }
}

fn send_reply(gateway: NodeId, session: SessionId, number: Number, reply: &Reply, out: &mut Outbox) {
    out.send(gateway, &Message::Reply { session, number, said: Said::of(reply) });
}

impl Backend {
    pub(super) fn on_join(&mut self, gateway: NodeId, opening: Opening, out: &mut Outbox) {
        if !self.config.gateways.contains(&gateway) {
            self.counts.strangers += 1;
            return;
        }
        let session = SessionId { incarnation: self.config.incarnation, opening };
        let client = self.clients.entry(gateway).or_insert_with(|| Client::new(session));
        if opening > client.session.opening {
            *client = Client::new(session);
        }
        if opening == client.session.opening {
            out.send(gateway, &Message::Joined { session });
        }
    }

    pub(super) fn on_request(&mut self, now: Moment, ask: &Ask<'_>, out: &mut Outbox) {
        let only_reads = ask.operation.only_reads();
        if !self.admits(&ask.asker, only_reads, out) {
            return;
        }
        let Asker { gateway, session, number, .. } = ask.asker;
        self.counts.operations += 1;
        let is_hot = only_reads && self.hot.see(ask.key.as_bytes(), now);
        let reply_to = ReplyTo::Request { gateway, session, number, only_reads, is_hot };
        if self.operations >= OPERATIONS_MAX {
            self.counts.refused += 1;
            let refused = Reply::Answer(Answer::Failed { unknown: false }, None);
            self.reply(gateway, session, number, refused, only_reads, out);
            return;
        }
        self.ask(now, ask.key, &ask.operation, reply_to, out);
    }

    /// Whether a request is new.
    pub(super) fn admits(&mut self, asker: &Asker, only_reads: bool, out: &mut Outbox) -> bool {
        if self.start.is_some() {
            // It comes again.
            return false;
        }
        let client = self.clients.get_mut(&asker.gateway).filter(|client| client.session == asker.session);
        let Some(client) = client else {
            self.counts.strangers += 1;
            if self.config.gateways.contains(&asker.gateway) {
                out.send(asker.gateway, &Message::Gone { session: asker.session });
            }
            return false;
        };
        match client.admit(asker, only_reads, out) {
            Admission::New => true,
            Admission::Old if self.config.mutant == Some(Mutant::R3) => true,
            Admission::Old => {
                self.counts.repeated += 1;
                false
            }
        }
    }

    /// Answers a request. Unless it only reads it must not be carried out again, whatever the answer: that one may be believed already.
    pub(super) fn reply(
        &mut self,
        gateway: NodeId,
        session: SessionId,
        number: Number,
        reply: Reply,
        only_reads: bool,
        out: &mut Outbox,
    ) {
        let client = self.clients.get_mut(&gateway).filter(|client| client.session == session);
        let Some(client) = client else { return };
        send_reply(gateway, session, number, &reply, out);
        if let Entry::Occupied(mut entry) = client.outcomes.entry(number) {
            if only_reads {
                entry.remove();
            } else {
                client.kept_len += reply.value_len();
                entry.insert(Outcome::Said(reply));
            }
        }
    }
}
