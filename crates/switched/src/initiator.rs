//! One end of a session with a lease: the end that begins it, asks for its lease, and begins another when it is void.
//!
//! Always true (R1, R6): a lease is counted from before it was asked for, less the drift of two clocks; once it has lapsed the session is void
//! for good; an opening is never used twice, nor one below what the other end has declared void.

use guira_cluster::{Incarnation, Link, Opening, SessionId};
use guira_item::{Moment, Span};
use guira_routing::NodeId;
use serde::Serialize;

use crate::{Body, Drift, Message, Mutant, Outbox, given, told};

/// How long an answer to an opening is waited for.
const OPEN_AGAIN_AFTER: Span = Span::from_ms(50);

/// One end of sessions with one other node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Initiator {
    peer: NodeId,
    #[serde(skip)]
    drift: Drift,
    opening: Opening,
    /// What the other end is told with an opening.
    in_charge: bool,
    /// This end gives partitions away.
    gives: bool,
    /// Sessions up to here are void.
    floor: SessionId,
    state: State,
    #[serde(skip)]
    mutant: Option<Mutant>,
}

#[derive(Clone, Debug, Serialize)]
enum State {
    Opening { again_at: Moment },
    Open(Open),
}

/// A session that is there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Open {
    pub(crate) id: SessionId,
    pub(crate) link: Link<Body>,
    lease_until: Moment,
    ask_at: Moment,
    ask_every: Span,
}

/// What has become of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Nothing that its user has to heed.
    None,
    /// It is there now; nothing was told in it yet.
    Opened,
    /// It was there, and is void: nothing may be served under it.
    Void,
}

impl Initiator {
    /// Begins a session with `peer` at the next tick, of which this end is not in charge. `opening` is above all openings of earlier lives with it.
    pub(crate) fn new(peer: NodeId, opening: Opening, drift: Drift, mutant: Option<Mutant>) -> Self {
        let floor = SessionId { incarnation: Incarnation(0), opening: Opening(0) };
        let state = State::Opening { again_at: Moment::default() };
        Self { peer, drift, opening, in_charge: false, gives: false, floor, state, mutant }
    }

    /// The same, in charge of the other end or not.
    pub(crate) fn in_charge(self, in_charge: bool) -> Self {
        Self { in_charge, ..self }
    }

    /// The same, giving partitions away.
    pub(crate) fn giving(self) -> Self {
        Self { gives: true, ..self }
    }

    /// The session that is there, or is being begun.
    pub(crate) fn opening(&self) -> Opening {
        self.opening
    }

    /// Whether there is a session that is not known to be void.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// The session, if it may be gone by at `now`.
    pub(crate) fn valid(&mut self, now: Moment) -> Option<&mut Open> {
        let lives_on = self.mutant == Some(Mutant::R6Lapse);
        match &mut self.state {
            State::Open(open) if now < open.lease_until || lives_on => Some(open),
            _ => None,
        }
    }

    /// Whether something may be served under the session at `now`.
    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        let lives_on = self.mutant == Some(Mutant::R6Lapse);
        matches!(&self.state, State::Open(open) if now < open.lease_until || lives_on)
    }

    /// Ends the session, if there is one.
    pub(crate) fn end(&mut self, now: Moment) -> Turn {
        match self.state {
            State::Opening { .. } => Turn::None,
            State::Open(_) => {
                self.opening = self.opening.next();
                self.state = State::Opening { again_at: now };
                Turn::Void
            }
        }
    }

    /// Says whether this end is in charge of the other: in the session, or, if there is none, with another opening than one that may have said otherwise.
    pub(crate) fn set_in_charge(&mut self, now: Moment, in_charge: bool) -> Turn {
        self.in_charge = in_charge;
        let said = self.valid(now).map(|open| open.link.send(Body::InCharge(in_charge)));
        match (said, &self.state) {
            (Some(Ok(_)), _) => Turn::None,
            (_, State::Open(_)) => self.end(now),
            (_, State::Opening { .. }) => {
                self.opening = self.opening.next();
                self.state = State::Opening { again_at: now };
                Turn::None
            }
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Moment, out: &mut Outbox) -> Turn {
        let turn = if self.is_lapsed(now) { self.end(now) } else { Turn::None };
        match &mut self.state {
            State::Opening { again_at } if *again_at <= now => {
                *again_at = now + OPEN_AGAIN_AFTER;
                let (opening, in_charge) = (self.opening, self.in_charge);
                out.send(self.peer, &Message::Open { opening, at: now, in_charge });
            }
            State::Opening { .. } => {}
            State::Open(open) => {
                if open.ask_at <= now {
                    open.ask_at = now + open.ask_every;
                    out.send(self.peer, &Message::AskLease { session: open.id, at: now });
                }
                open.emit(self.peer, self.gives, now, out);
            }
        }
        turn
    }

    fn is_lapsed(&self, now: Moment) -> bool {
        let lives_on = self.mutant == Some(Mutant::R6Lapse);
        matches!(&self.state, State::Open(open) if now >= open.lease_until && !lives_on)
    }

    /// The other end has opened the session.
    pub(crate) fn on_opened(&mut self, now: Moment, session: SessionId, at: Moment, lease: Span) -> Turn {
        let is_awaited = matches!(self.state, State::Opening { .. }) && session.opening == self.opening;
        let lease_until = at + self.drift.holder(lease);
        if !is_awaited || session <= self.floor || at > now || lease_until <= now {
            return Turn::None;
        }
        let ask_every = lease.part(4);
        let (link, ask_at) = (Link::default(), at + ask_every);
        self.state = State::Open(Open { id: session, link, lease_until, ask_at, ask_every });
        Turn::Opened
    }

    /// The lease goes on.
    pub(crate) fn on_lease(&mut self, now: Moment, session: SessionId, at: Moment, lease: Span) {
        // The fault: from when it was heard of.
        let from = if self.mutant == Some(Mutant::R1) { now } else { at };
        let until = from + self.drift.holder(lease);
        if let Some(open) = self.valid(now).filter(|open| open.id == session && at <= now) {
            open.lease_until = open.lease_until.max(until);
        }
    }

    /// The other end does not know a session.
    pub(crate) fn on_gone(&mut self, now: Moment, session: SessionId) -> Turn {
        match &self.state {
            State::Open(open) if open.id == session => self.end(now),
            _ => Turn::None,
        }
    }

    /// The other end declares sessions void. Whoever calls this stops serving under them before the answer is sent.
    pub(crate) fn on_void(&mut self, now: Moment, incarnation: Incarnation, up_to: Opening, out: &mut Outbox) -> Turn {
        self.floor = self.floor.max(SessionId { incarnation, opening: up_to });
        let turn = match &self.state {
            // Of an earlier life than the one this session is with: what it says is nothing to it.
            State::Open(open) if open.id.incarnation > incarnation => return Turn::None,
            State::Open(open) if open.id <= self.floor => self.end(now),
            _ => Turn::None,
        };
        if self.opening <= up_to {
            self.opening = up_to.next();
        }
        out.send(self.peer, &Message::Voided { incarnation, up_to });
        turn
    }

    /// When `tick` has something to do, if nothing happens before.
    pub(crate) fn wake_at(&self) -> Moment {
        match &self.state {
            State::Opening { again_at } => *again_at,
            State::Open(open) => {
                let at = open.ask_at.min(open.lease_until);
                open.link.wake_at().map_or(at, |wake_at| wake_at.min(at))
            }
        }
    }

    /// Sends what is to be sent by now.
    pub(crate) fn emit(&mut self, now: Moment, out: &mut Outbox) {
        let (peer, gives) = (self.peer, self.gives);
        if let State::Open(open) = &mut self.state {
            open.emit(peer, gives, now, out);
        }
    }
}

impl Open {
    fn emit(&mut self, peer: NodeId, gives: bool, now: Moment, out: &mut Outbox) {
        let session = self.id;
        let message = if gives { given } else { told };
        self.link.emit(now, |frame| out.send(peer, &message(session, frame)));
    }
}
