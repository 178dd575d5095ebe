//! Hedged reads (Dean and Barroso, "The tail at scale", CACM 2013): who waits for a cache node for longer than usual asks the backend as well, and is
//! answered by whichever comes first.
//!
//! Always true: only what only reads is asked of two, under one number (R3); and of what each cache node is asked one in so many at most is, and a few at once, so that
//! backends do not have to do what a cache node does not get done. A cache node counts as silent after as long a wait as without, of nothing at all.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;

use guira_item::{Moment, Span};
use guira_routing::{CacheNodes, NodeId, RuleSink};
use serde::Serialize;

use super::{Gateway, pending::Pending};
use crate::{Asker, Mutant, Number, Outbox};

/// Of so many reads one is hedged: who hedges what the slowest twentieth takes longer than (the paper's 95th percentile) sends a twentieth more.
const ONE_IN: NonZero<u32> = NonZero::new(20).expect("it is not 0");

/// Hedges of a cache node that may be saved up.
const SAVED_MAX: u32 = 16;

/// Reads that backends have answered whose cache nodes are still listened for, at most.
const LEFT_MAX: usize = 256;

/// When reads are hedged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HedgeConfig {
    /// How long a cache node is waited for alone; it has no effect if that is as long as one is waited for anyway.
    pub after: Span,
    /// Of so many reads that a cache node is asked one may be hedged.
    pub one_in: NonZero<u32>,
}

impl HedgeConfig {
    /// One in twenty, after so long.
    pub fn after(after: Span) -> Self {
        Self { after, one_in: ONE_IN }
    }
}

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
    config: Option<HedgeConfig>,
    #[serde(skip)]
    mutant: Option<Mutant>,
    /// By cache node, in parts of a hedge.
    saved: BTreeMap<NodeId, u32>,
    /// Cache nodes that have left a read to its backend, and when they will have been silent for as long as anybody waits.
    left: VecDeque<(Moment, NodeId)>,
}

impl Hedging {
    pub(super) fn new(config: Option<HedgeConfig>, mutant: Option<Mutant>) -> Self {
        Self { config, mutant, saved: BTreeMap::new(), left: VecDeque::new() }
    }

    /// A cache node is asked: how long it is waited for alone, and whether a hedge comes then; without one, for all its `patience`.
    pub(super) fn alone(&mut self, cache: NodeId, only_reads: bool, patience: Span) -> (Span, Hedge) {
        // The fault: a read by which somebody may win is hedged, too.
        let may = only_reads || self.mutant == Some(Mutant::HedgeWin);
        match self.config {
            Some(HedgeConfig { after, one_in }) if may && after < patience => {
                let saved = self.saved.entry(cache).or_default();
                *saved = (*saved + 1).min(one_in.get().saturating_mul(SAVED_MAX));
                (after, Hedge::Due(patience - after))
            }
            _ => (patience, Hedge::None),
        }
    }

    /// Whether a read of a cache node may be hedged now.
    fn may(&mut self, cache: NodeId) -> bool {
        let (Some(config), Some(saved)) = (self.config, self.saved.get_mut(&cache)) else { return false };
        let left = saved.checked_sub(config.one_in.get());
        *saved = left.unwrap_or(*saved);
        left.is_some()
    }

    /// There are others now.
    pub(super) fn on_view(&mut self, caches: &CacheNodes) {
        self.saved.retain(|cache, _| caches.is_part(*cache));
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        self.left.front().map(|(at, _)| *at)
    }
}

impl<R: RuleSink> Gateway<R> {
    /// Asks the backend as well, if it may; the cache node is waited for a while longer.
    pub(super) fn hedge(&mut self, now: Moment, number: Number, rest: Span, out: &mut Outbox) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let Some(upstream) = self.upstreams.get_mut(&pending.backend) else { return };
        let is_away = upstream.is_away(now, self.config.away_after());
        pending.hedge = Hedge::None;
        if let (Some(session), Some(cache), false) = (upstream.session(), pending.cache, is_away)
            && self.hedging.may(cache)
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

    /// A backend has answered what a cache node was asked as well: that has it to do until it is heard of, or has been silent for too long.
    pub(super) fn leave_to_backend(&mut self, number: Number) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let Pending { hedge: Hedge::Sent, look_at, .. } = *pending else { return };
        if self.hedging.left.len() < LEFT_MAX
            && let Some(cache) = pending.cache.take()
        {
            let behind = self.hedging.left.partition_point(|(at, _)| *at <= look_at);
            self.hedging.left.insert(behind, (look_at, cache));
        }
    }

    /// A cache node was heard of: it has left nothing.
    pub(super) fn has_left_nothing(&mut self, cache: NodeId) {
        self.hedging.left.retain(|(_, left_by)| {
            if *left_by == cache {
                self.awaited.remove(cache);
            }
            *left_by != cache
        });
    }

    /// Counts the reads against cache nodes that they have left for too long.
    pub(super) fn count_left(&mut self, now: Moment) {
        while let Some((_, cache)) = self.hedging.left.pop_front_if(|(at, _)| *at <= now) {
            self.awaited.remove(cache);
            self.unanswered_by(now, cache);
        }
    }
}
