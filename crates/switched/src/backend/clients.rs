//! Gateways' sessions: each request acts once, however often it comes.
//!
//! Always true (R3): a session is with one life of the backend and one of the gateway; a request below what its gateway still waits for, of
//! another session does nothing; one that is under way or has changed something is not carried out again.

use std::collections::{BTreeMap, btree_map::Entry};

use guira_chain::Reply;
use guira_cluster::{Opening, SessionId};
use guira_item::{Answer, Failure, Moment};
use guira_routing::NodeId;
use serde::Serialize;

use super::{Backend, OPERATIONS_MAX, ReplyTo};
use crate::{Ask, Asker, ITEM_LEN_MAX, Message, Mutant, Number, Outbox, Said};

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
    /// It is another's, and nothing was done.
    Moved,
}

impl Outcome {
    fn kept_len(&self) -> usize {
        match self {
            Self::UnderWay { .. } | Self::Moved => 0,
            Self::Said(reply) => reply.value_len(),
        }
    }

    fn only_reads(&self) -> bool {
        matches!(self, Self::UnderWay { only_reads: true })
    }
}

/// A request that is to be answered.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Asked {
    gateway: NodeId,
    session: SessionId,
    number: Number,
    only_reads: bool,
    /// The cache node that has passed it on.
    via: Option<NodeId>,
}

impl Asked {
    pub(super) fn of(asker: &Asker, only_reads: bool, via: Option<NodeId>) -> Self {
        let Asker { gateway, session, number, .. } = *asker;
        Self { gateway, session, number, only_reads, via }
    }

    fn send(&self, reply: &Reply, out: &mut Outbox) {
        let Self { gateway, session, number, via, .. } = *self;
        out.send(gateway, &Message::Reply { session, number, via, said: Said::of(reply) });
    }

    fn send_moved(&self, out: &mut Outbox) {
        out.send(self.gateway, &Message::Moved { session: self.session, number: self.number });
    }
}

/// One gateway.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Client {
    session: SessionId,
    /// A request was let in.
    is_used: bool,
    /// Its gateway has gone from the cluster: what was answered is not known any more.
    is_over: bool,
    done_below: Number,
    outcomes: BTreeMap<Number, Outcome>,
    /// Outcomes of what does not only read.
    changes: usize,
    /// Bytes of the values in them.
    kept_len: usize,
}

/// Bytes of values in the answers that are kept for one gateway. While the longest answer would not fit no change is let in but the lowest; of an
/// answer that does not fit, to one that was let in before, nothing is kept but that nobody can say: it is told only if the answer itself is lost.
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
        let (is_used, is_over) = (false, false);
        Self { session, is_used, is_over, done_below: Number(0), outcomes: BTreeMap::new(), changes: 0, kept_len: 0 }
    }

    /// Its gateway has gone. The session stays known, so that what comes late of it does nothing; if nothing was done in it, it may go on.
    pub(super) fn leave(&mut self) {
        *self = Self { is_used: self.is_used, is_over: self.is_used, ..Self::new(self.session) };
    }

    fn admit(&mut self, asker: &Asker, only_reads: bool, item_len_max: usize, out: &mut Outbox) -> Admission {
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
        let answer_fits = self.kept_len + item_len_max <= KEPT_LEN_MAX;
        let has_room = (self.changes < WINDOW_MAX && answer_fits) || asker.number == self.done_below;
        self.is_used = true;
        match self.outcomes.entry(asker.number) {
            Entry::Occupied(entry) => {
                match entry.get() {
                    Outcome::UnderWay { .. } => {}
                    Outcome::Said(reply) => Asked::of(asker, only_reads, None).send(reply, out),
                    Outcome::Moved => Asked::of(asker, only_reads, None).send_moved(out),
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
            // Who only wants to hear whether anybody is there is to hear that this session is over.
            out.send(gateway, &if client.is_over { Message::Gone { session } } else { Message::Joined { session } });
        }
    }

    pub(super) fn on_request(&mut self, now: Moment, from: NodeId, ask: &Ask<'_>, out: &mut Outbox) {
        let only_reads = ask.operation.only_reads();
        if !self.admits(&ask.asker, only_reads, out) {
            return;
        }
        // It is asked again under another number, when it is known whose the key is: this one would hold up all above it.
        if self.is_sealed(ask.key.as_bytes()) || !self.owns(ask.key.as_bytes()) {
            self.counts.moved += 1;
            self.tell_moved(&Asked::of(&ask.asker, only_reads, None), out);
            return;
        }
        let via = Some(from).filter(|from| *from != ask.asker.gateway);
        let asked = Asked::of(&ask.asker, only_reads, via);
        self.counts.operations += 1;
        let is_hot = ask.operation.copy_may_answer() && self.hot.see(ask.key.as_bytes(), now);
        let value_len = ask.operation.value_len();
        let has_room = self.operations_len == 0 || self.operations_len + value_len <= self.config.operations_len_max;
        if self.operations >= OPERATIONS_MAX || !has_room {
            self.counts.refused += 1;
            let refused = Reply::Answer(Answer::Failed(Failure::Busy), None);
            self.reply(&asked, refused, out);
            return;
        }
        self.operations_len += value_len;
        self.ask(now, ask.key, &ask.operation, ReplyTo::Request { asked, is_hot, value_len }, out);
    }

    /// Whether a request is new.
    pub(super) fn admits(&mut self, asker: &Asker, only_reads: bool, out: &mut Outbox) -> bool {
        if self.start.is_some() {
            // It comes again.
            return false;
        }
        let is_its = |client: &&mut Client| client.session == asker.session && !client.is_over;
        let is_member = self.config.gateways.contains(&asker.gateway);
        let client = self.clients.get_mut(&asker.gateway).filter(is_its).filter(|_| is_member);
        let Some(client) = client else {
            self.counts.strangers += 1;
            if is_member {
                out.send(asker.gateway, &Message::Gone { session: asker.session });
            }
            return false;
        };
        match client.admit(asker, only_reads, self.config.item_len_max, out) {
            Admission::New => true,
            Admission::Old if self.config.mutant == Some(Mutant::R3) => true,
            Admission::Old => {
                self.counts.repeated += 1;
                false
            }
        }
    }

    /// A request is another's to answer, or soon will be. Unless it only reads it must not be carried out here, also when the partition has come back.
    fn tell_moved(&mut self, asked: &Asked, out: &mut Outbox) {
        asked.send_moved(out);
        let client = self.clients.get_mut(&asked.gateway).filter(|client| client.session == asked.session);
        if let Some(client) = client
            && let Entry::Occupied(mut entry) = client.outcomes.entry(asked.number)
        {
            if asked.only_reads {
                entry.remove();
            } else if self.config.mutant == Some(Mutant::MoveAnswer) {
                entry.remove();
                client.changes -= 1;
            } else {
                entry.insert(Outcome::Moved);
            }
        }
    }

    /// Answers a request. Unless it only reads it must not be carried out again, whatever the answer: that one may be believed already.
    /// What no message carries (a store that was filled under another limit may have it) is a failure at once: it would be lost however often it went.
    pub(super) fn reply(&mut self, asked: &Asked, reply: Reply, out: &mut Outbox) {
        let client = self.clients.get_mut(&asked.gateway).filter(|client| client.session == asked.session);
        let Some(client) = client else { return };
        let reply = match reply {
            reply if reply.value_len() <= ITEM_LEN_MAX => reply,
            _ => Reply::Answer(Answer::Failed(Failure::Refused.or_unknown(!asked.only_reads)), None),
        };
        asked.send(&reply, out);
        if let Entry::Occupied(mut entry) = client.outcomes.entry(asked.number) {
            if asked.only_reads {
                entry.remove();
            } else {
                let fits = client.kept_len + reply.value_len() <= KEPT_LEN_MAX;
                let kept = if fits { reply } else { Reply::Answer(Answer::Failed(Failure::Unknown), None) };
                client.kept_len += kept.value_len();
                entry.insert(Outcome::Said(kept));
            }
        }
    }
}
