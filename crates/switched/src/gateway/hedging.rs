//! Hedged reads (Dean and Barroso, "The tail at scale", CACM 2013): who waits for a cache node for longer than usual asks the backend as well, and is
//! answered by whichever comes first.
//!
//! Always true: only what only reads is asked of two, under one number (R3); and of what is asked of cache nodes one in twenty at most is, and a few at once, so
//! that a cache node that has too much to do does not have its backends have too much.

use guira_item::{Moment, Span};
use guira_routing::Router;
use serde::Serialize;

use super::Gateway;
use crate::{Asker, Number, Outbox};

/// Of so many reads that cache nodes are asked one may be hedged.
const OF_READS: u32 = 20;

/// Hedges that may be saved up.
const SAVED_MAX: u32 = 16;

/// Where the hedge of a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) enum Hedge {
    /// None is to come.
    #[default]
    None,
    /// It comes when the request is looked at next, which would otherwise be so much later.
    Due(Span),
    /// The backend was asked as well.
    Sent,
}

/// Which reads are hedged, and how many may be.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Hedging {
    #[serde(skip)]
    after: Option<Span>,
    /// In parts of a hedge.
    saved: u32,
}

impl Hedging {
    /// Of reads that were not answered after so long, if of any.
    pub(super) fn new(after: Option<Span>) -> Self {
        Self { after, saved: 0 }
    }

    /// A cache node is asked for what only reads, and would be waited for so long: how long it is waited for alone.
    pub(super) fn alone(&mut self, patience: Span) -> (Span, Hedge) {
        match self.after {
            Some(after) if after < patience => {
                self.saved = (self.saved + 1).min(SAVED_MAX * OF_READS);
                (after, Hedge::Due(patience - after))
            }
            _ => (patience, Hedge::None),
        }
    }

    /// Whether one may be hedged now.
    pub(super) fn may(&mut self) -> bool {
        let left = self.saved.checked_sub(OF_READS);
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }
}

impl<R: Router> Gateway<R> {
    /// Asks the backend as well, if it may; the cache node is waited for a while longer.
    pub(super) fn hedge(&mut self, now: Moment, number: Number, rest: Span, out: &mut Outbox) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let Some(upstream) = self.upstreams.get_mut(&pending.backend) else { return };
        let is_away = upstream.is_away(now, self.config.away_after());
        pending.hedge = Hedge::None;
        if let Some(session) = upstream.session().filter(|_| !is_away)
            && self.hedging.may()
        {
            let done_below = upstream.open.first().copied().unwrap_or(number);
            pending.ask(pending.backend, Asker { gateway: self.config.me, session, number, done_below }, false, out);
            pending.hedge = Hedge::Sent;
            upstream.asked(now);
            self.probe_at.get_or_insert(now + self.config.probe_every());
            self.counts.hedged += 1;
        }
        pending.look_at = (now + rest).min(pending.answer_until);
        self.timers.insert((pending.look_at, number));
    }
}
