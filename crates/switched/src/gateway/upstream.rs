//! A gateway's sessions with one backend, one after the other.

use std::collections::BTreeSet;

use guira_cluster::{Opening, SessionId};
use guira_item::{Moment, Span};
use guira_routing::NodeId;
use serde::Serialize;

use crate::{Message, Number, Outbox};

/// How long an answer to `Join` is waited for.
const JOIN_AGAIN_AFTER: Span = Span::from_ms(20);

/// A backend, as a gateway sees it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Upstream {
    opening: Opening,
    session: Option<SessionId>,
    join_again_at: Moment,
    /// Requests that it has not answered.
    pub(super) open: BTreeSet<Number>,
    /// Bytes of the values in them.
    pub(super) open_len: usize,
    /// How long answers have taken of late, smoothed.
    takes: Span,
    /// When it was first told something since it was last heard of. Not part of what models compare: in them nobody is away. (That who is silent is
    /// sent `Join`s makes a difference there only where one takes the place of another datagram, or is lost.)
    #[serde(skip)]
    silent_since: Option<Moment>,
    /// Probes that it has not answered.
    #[serde(skip)]
    probes: u32,
}

/// An answer is asked for again once it has taken so many times as long as usual.
const PATIENCE: u64 = 4;

/// Probes without an answer, from which on a backend may be away.
const PROBES_MIN: u32 = 8;

/// What an answer counts as having taken at most: one that was waited for while its backend was away says nothing of the next.
const TAKES_MAX: Span = Span::from_ms(125);

impl Upstream {
    pub(super) fn new(opening: Opening) -> Self {
        Self {
            opening,
            session: None,
            join_again_at: Moment::default(),
            open: BTreeSet::new(),
            open_len: 0,
            takes: Span::default(),
            silent_since: None,
            probes: 0,
        }
    }

    /// Something was sent to it that it answers.
    pub(super) fn asked(&mut self, now: Moment) {
        self.silent_since.get_or_insert(now);
    }

    /// It has said something.
    pub(super) fn heard(&mut self) {
        (self.silent_since, self.probes) = (None, 0);
    }

    /// Whether it was told something, and nothing was heard of it since.
    pub(super) fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Whether it has been silent for so long.
    pub(super) fn is_silent_for(&self, now: Moment, span: Span) -> bool {
        self.silent_since.is_some_and(|since| now.since(since) >= span)
    }

    /// Whether it has been silent for so long, and answered none of several probes: some may be lost, and who has slept has not asked.
    pub(super) fn is_away(&self, now: Moment, after: Span) -> bool {
        self.probes >= PROBES_MIN && self.is_silent_for(now, after)
    }

    /// Has it say something if it can: who is there answers this whatever else it has to do, also if the session has begun.
    pub(super) fn probe(&mut self, backend: NodeId, out: &mut Outbox) {
        self.probes = self.probes.saturating_add(1);
        out.send(backend, &Message::Join { opening: self.opening });
    }

    /// An answer has come so long after it was first asked for: of one that was asked for again this may be more than it took, but not less, so that
    /// nobody goes on asking too early.
    pub(super) fn on_answer(&mut self, took: Span) {
        self.takes = (self.takes.times(7) + took.min(TAKES_MAX)).part(8);
    }

    /// How long an answer is waited for at first.
    pub(super) fn patience(&self) -> Span {
        self.takes.times(PATIENCE)
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// The session, or none yet: it is asked for.
    pub(super) fn session_or_join(&mut self, now: Moment, backend: NodeId, out: &mut Outbox) -> Option<SessionId> {
        if self.session.is_none() && self.join_again_at <= now {
            self.join_again_at = now + JOIN_AGAIN_AFTER;
            out.send(backend, &Message::Join { opening: self.opening });
            self.asked(now);
        }
        self.session
    }

    /// Whether there is a session now that was not there before.
    pub(super) fn on_joined(&mut self, session: SessionId) -> bool {
        let is_new = self.session.is_none() && session.opening == self.opening;
        if is_new {
            self.session = Some(session);
        }
        is_new
    }

    /// Ends the session, if there is one, since the backend has gone; the requests that it has not answered.
    pub(super) fn end(&mut self) -> BTreeSet<Number> {
        self.heard();
        if let Some(session) = self.session {
            self.on_gone(session);
        }
        self.open.clone()
    }

    /// Whether the session was that one; there is none then.
    pub(super) fn on_gone(&mut self, session: SessionId) -> bool {
        let is_ours = self.session == Some(session);
        if is_ours {
            self.session = None;
            self.opening = self.opening.next();
            self.join_again_at = Moment::default();
        }
        is_ours
    }
}
