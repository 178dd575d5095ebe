//! What is asked of a key here, by whoever, from the first try until somebody is told what became of it.
//!
//! Always true: what has not been carried out is tried again, here or elsewhere; what may have been is asked again under its number or ends as unknown.

use guira_chain::{Owned, Reply};
use guira_consistency::{Consistency, Happened, Key, Operation, Outcome, RequestId, Ticket, Wish};
use guira_item::{Answer, Failure, Moment};
use guira_routing::NodeId;

use super::{AskId, Node, NodeOutbox, flushes::FlushNumber};
use crate::{Asked, Items, Message, Replied, lanes::Open, shard::Known};

/// What waits for a lease or for a home at most, some hundred bytes each beside its value.
const PARKED_MAX: usize = 1 << 16;

/// Who waits for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    /// A client, here.
    Client(AskId),
    /// Another node, for one of its clients.
    Peer(NodeId, RequestId),
    /// Whoever wants everything to be gone.
    Flush(FlushNumber),
}

impl Who {
    /// Under which number it takes effect once, if it may be told again.
    fn request(self) -> Option<RequestId> {
        if let Self::Peer(_, request) = self { Some(request) } else { None }
    }
}

/// Something that is asked of a key.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) who: Who,
    pub(super) key: Key,
    pub(super) wish: Wish,
    /// How long it is waited for.
    pub(super) until: Moment,
}

impl<I: Items> Node<I> {
    pub(super) fn on_ask(
        &mut self,
        now: Moment,
        id: AskId,
        key: guira_item::Key<'_>,
        operation: &Owned,
        out: &mut NodeOutbox,
    ) {
        self.hot.see(key.as_bytes());
        let pending = Pending {
            who: Who::Client(id),
            key: Key::from(key.as_bytes()),
            wish: Wish::new(operation.clone(), self.time(now)),
            until: now + self.config.answer_within,
        };
        self.try_here(now, pending, out);
    }

    /// All that is to be tried again, each once.
    pub(super) fn try_all(&mut self, now: Moment, out: &mut NodeOutbox) {
        for _ in 0..self.to_try.len() {
            let Some(pending) = self.to_try.pop_front() else { break };
            self.try_here(now, pending, out);
        }
    }

    /// Asks what is here: the replica, and whoever that says.
    pub(super) fn try_here(&mut self, now: Moment, pending: Pending, out: &mut NodeOutbox) {
        self.last_ticket = Ticket(self.last_ticket.0 + 1);
        let Pending { key, wish, .. } = &pending;
        let (floor, request) = (self.floors.get(key).copied(), pending.who.request());
        // Nothing is asked of another home under the number by which one was asked that is gone.
        let is_again = false;
        let operation = Operation { ticket: self.last_ticket, wish: wish.clone(), request, is_again, floor };
        let key = key.clone();
        self.tickets.insert(self.last_ticket, pending);
        self.step_replica(now, Happened::Asked(key, operation), out);
    }

    /// The replica says what becomes of something.
    pub(super) fn resolve(&mut self, now: Moment, ticket: Ticket, outcome: Outcome, out: &mut NodeOutbox) {
        // Who is not there any more has been told already.
        let Some(pending) = self.tickets.remove(&ticket) else { return };
        match outcome {
            Outcome::Answer(answer) => {
                if matches!(pending.who, Who::Client(_)) {
                    let count = if pending.wish.only_reads() {
                        &mut self.counts.hot_reads
                    } else {
                        &mut self.counts.hot_writes
                    };
                    *count += 1;
                }
                self.finish(now, pending, Replied::Answer(answer), out);
            }
            Outcome::Shard if self.is_home_of(&pending.key) => {
                // It may have been carried out while the key was hot.
                match pending.who.request().map_or(Known::New, |request| self.shard.known(request)) {
                    Known::New => {}
                    Known::Told(told) => return self.finish(now, pending, told, out),
                    Known::Late => return self.finish(now, pending, Replied::Unknown, out),
                }
                let Pending { key, wish, who, .. } = &pending;
                let (writer, len_max) = (self.writer(), self.config.item_len_max);
                let answer = self.shard.carry_out(key, wish, who.request(), writer, len_max);
                self.counts.at_home += u64::from(matches!(pending.who, Who::Client(_)));
                self.finish(now, pending, Replied::Answer(answer), out);
            }
            // A home that may not serve yet: nobody else may, either.
            Outcome::Shard | Outcome::NotServing => self.wait(now, pending, out),
            Outcome::Forward(home) => self.ask_home(now, pending, home, out),
            Outcome::Busy => self.finish(now, pending, Replied::Busy, out),
            Outcome::Late | Outcome::Unknown => self.finish(now, pending, Replied::Unknown, out),
        }
    }

    /// It was not carried out, and cannot be now.
    fn wait(&mut self, now: Moment, pending: Pending, out: &mut NodeOutbox) {
        match pending.who {
            Who::Client(_) if self.parked.len() < PARKED_MAX => self.parked.push_back(pending),
            Who::Client(_) => self.finish(now, pending, Replied::Busy, out),
            Who::Peer(..) | Who::Flush(_) => self.finish(now, pending, Replied::NotServing, out),
        }
    }

    /// Another node is its home.
    fn ask_home(&mut self, now: Moment, pending: Pending, home: NodeId, out: &mut NodeOutbox) {
        match pending.who {
            Who::Client(_) => {
                let Some(home) = self.holder.view().member(home) else { return self.wait(now, pending, out) };
                self.counts.forwarded += 1;
                let Pending { who, key, wish, until } = pending;
                self.open_lane(now, Open::new(who, Asked::Key(key, wish), home, until), out);
            }
            // As long as it may be: whoever is home of a view is not asked in another one under the same number.
            Who::Peer(..) => self.finish(now, pending, Replied::Elsewhere, out),
            Who::Flush(_) => self.finish(now, pending, Replied::NotServing, out),
        }
    }

    /// Tells who waits what became of it.
    pub(super) fn finish(&mut self, now: Moment, pending: Pending, told: Replied, out: &mut NodeOutbox) {
        match pending.who {
            Who::Client(id) => self.answer(id, pending.wish.only_reads(), told, out),
            Who::Flush(number) => self.on_flushed_key(now, number, &told, out),
            Who::Peer(node, request) => {
                self.serving.remove(&request);
                // For good: what was told twice must not be carried out after this.
                match &told {
                    Replied::Answer(answer) if !pending.wish.only_reads() => {
                        self.shard.settle_answer(request, answer, &pending.key);
                    }
                    Replied::Busy | Replied::Elsewhere => self.shard.settle(request, told.clone(), None),
                    _ => {}
                }
                out.sends.push((node, Message::Replied { request, told }));
            }
        }
    }

    /// Tells a client.
    pub(super) fn answer(&mut self, id: AskId, only_reads: bool, told: Replied, out: &mut NodeOutbox) {
        let failed = |failure| Reply::Answer(Answer::Failed(failure), None);
        let reply = match told {
            Replied::Answer(answer) => answer.reply,
            Replied::Flushed => Reply::Answer(Answer::Deleted, None),
            Replied::Busy => {
                self.counts.busy += 1;
                failed(Failure::Busy)
            }
            Replied::Unknown if !only_reads => {
                self.counts.unknown += 1;
                failed(Failure::Unknown)
            }
            Replied::NotServing | Replied::Elsewhere | Replied::Unknown => {
                self.counts.away += 1;
                failed(Failure::Away)
            }
        };
        out.answers.push((id, reply));
    }

    /// What has been waited for long enough.
    pub(super) fn end_overdue(&mut self, now: Moment, out: &mut NodeOutbox) {
        let is_over = |pending: &Pending| now >= pending.until && matches!(pending.who, Who::Client(_));
        let (over, parked): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.parked).into_iter().partition(is_over);
        self.parked = parked.into();
        over.into_iter().for_each(|pending| self.finish(now, pending, Replied::NotServing, out));
        let late: Vec<Ticket> =
            self.tickets.iter().filter(|(_, pending)| is_over(pending)).map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            // The replica goes on with it.
            if let Some(pending) = self.tickets.remove(&ticket) {
                self.finish(now, pending, Replied::Unknown, out);
            }
        }
        self.end_overdue_lanes(now, out);
        self.end_overdue_flushes(now, out);
    }

    /// SC: a client here has seen this.
    pub(super) fn note_floor(&mut self, now: Moment, key: &Key, at: guira_consistency::Timestamp) {
        if self.config.consistency == Consistency::Sc && self.replica.has(key) {
            let floor = self.floors.entry(key.clone()).or_insert(at);
            if at.is_newer_than(*floor) {
                *floor = at;
            }
            self.show(now, key);
        }
    }
}
