//! Backends that are away.
//!
//! A backend that has answered nothing for as long as anybody waits is away: what would be asked of it is refused at once, and has changed nothing. It is
//! told to join now and then, which who is there answers at once, so one that is slow is not away, and one that is back is not for long.

use guira_chain::Reply;
use guira_item::{Answer, Failure, Moment, Span};
use guira_routing::{NodeId, RuleSink};

use super::{Gateway, GatewayConfig, upstream::Upstream};
use crate::{Number, Outbox};

/// A backend is not away before it has been silent for so long, however short a time anybody waits.
const AWAY_AFTER_MIN: Span = Span::from_s(2);

/// Probes of a silent backend in the time after which it is away, about, and in as much from then on; more, where that is long.
const PROBES: u64 = 16;

/// How often it is probed at least: so soon one that is back is found.
const PROBE_EVERY_MAX: Span = Span::from_ms(500);

impl GatewayConfig {
    /// How long a backend is silent until it is away.
    pub(super) fn away_after(&self) -> Span {
        self.answer_within.max(AWAY_AFTER_MIN)
    }

    /// How often a silent one is probed.
    pub(super) fn probe_every(&self) -> Span {
        self.away_after().part(PROBES).min(PROBE_EVERY_MAX)
    }
}

impl<R: RuleSink> Gateway<R> {
    pub(super) fn is_away(&self, now: Moment, backend: NodeId) -> bool {
        self.upstreams.get(&backend).is_some_and(|upstream| upstream.is_away(now, self.config.away_after()))
    }

    /// Whether there is a session with a backend: without one no cache node is asked, either.
    pub(super) fn is_joined(&self, backend: NodeId) -> bool {
        self.upstreams.get(&backend).is_some_and(|upstream| upstream.session().is_some())
    }

    /// Probes the backends that have been silent for a while.
    pub(super) fn probe(&mut self, now: Moment, out: &mut Outbox) {
        let every = self.config.probe_every();
        for (backend, upstream) in &mut self.upstreams {
            if upstream.is_silent_for(now, every) {
                upstream.probe(*backend, out);
            }
        }
        self.probe_at = self.upstreams.values().any(Upstream::is_silent).then(|| now + every);
    }

    /// Refuses a request that was sent to a cache node, if its backend is away; whether it was. It only reads, or was a probe: nothing has changed.
    pub(super) fn refuse_if_away(&mut self, now: Moment, number: Number, out: &mut Outbox) -> bool {
        let is_away = self.pending.get(&number).is_some_and(|pending| self.is_away(now, pending.backend));
        if is_away {
            self.counts.away += 1;
            self.finish(number, Reply::Answer(Answer::Failed(Failure::Away), None), out);
        }
        is_away
    }
}
