//! What is written as the store's state: versions ahead of their use, and a `flush_all`.
//!
//! ```text
//! flush_all: no sessions any more --> declared void, heard or their leases over --> next generation in the store --> here --> answered
//! ```
//! Always true: one state is on its way at a time; while nobody can say whether a generation has begun in the store nothing is changed, and it
//! is written again until it has.

use guira_chain::Reply;
use guira_item::{
    Answer, Moment, Span,
    store::{Generation, StoreError, StoreState},
};
use serde::Serialize;

use super::{Backend, VOID_AGAIN_AFTER, clients::Asked};
use crate::{Asker, Message, Mutant, Outbox, Revision, StoreCall};

/// Versions that are reserved at a time: few writes of the state, and few versions lost at a restart.
const VERSIONS_AT_ONCE: u64 = 1 << 20;

/// How long after a failure the state is written again.
const AGAIN_AFTER: Span = Span::from_ms(100);

/// The state and what is to become of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct StateWork {
    /// What the store is writing.
    under_way: Option<StoreState>,
    again_at: Option<Moment>,
    /// Who waits for a flush.
    flushers: Vec<Asker>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
enum Stage {
    /// No flush is under way.
    #[default]
    None,
    /// Cache nodes are to have nothing; they are told so then.
    Voiding { tell_at: Moment },
    /// The store writes the generation.
    Writing,
    /// It may have written it.
    Unsettled,
}

impl StateWork {
    /// Whether what the store has as its generation is known.
    pub(super) fn is_settled(&self) -> bool {
        self.stage != Stage::Unsettled
    }

    /// Whether a flush is under way: no session may be opened.
    pub(super) fn is_flushing(&self) -> bool {
        self.stage != Stage::None
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        let tell_at = if let Stage::Voiding { tell_at } = self.stage { Some(tell_at) } else { None };
        // What is under way says when it is over.
        let again_at = self.again_at.filter(|_| self.under_way.is_none());
        again_at.into_iter().chain(tell_at).min()
    }
}

impl Backend {
    pub(super) fn on_flush(&mut self, now: Moment, asker: &Asker, revision: Revision, out: &mut Outbox) {
        let is_sure = self.config.mutant != Some(Mutant::MoveFlush);
        // It comes again, and then it is known who has what.
        if is_sure && (self.giving.holds_flushes() || self.taking.holds_flushes()) {
            return;
        }
        // As many as there is room for in the gateways' windows.
        if !self.admits(asker, false, out) {
            return;
        }
        if revision != self.config.shares.revision && is_sure {
            // What another has given away meanwhile would be left out, or gone twice.
            self.answer_flush(*asker, Answer::Failed { unknown: false }, out);
            return;
        }
        self.give_up(now);
        self.drop_taken();
        self.state_work.flushers.push(*asker);
        if self.state_work.stage == Stage::None {
            self.end_sessions();
            self.state_work.stage = Stage::Voiding { tell_at: Moment::default() };
        }
    }

    fn answer_flush(&mut self, asker: Asker, answer: Answer, out: &mut Outbox) {
        self.reply(&Asked::of(&asker, false, None), Reply::Answer(answer, None), out);
    }

    pub(super) fn go_on_with_state(&mut self, now: Moment, out: &mut Outbox) {
        if let Stage::Voiding { tell_at } = &mut self.state_work.stage {
            let peers = self.caches.iter().filter(|(_, peer)| peer.has_sessions());
            let peers: Vec<_> = peers.map(|(cache, peer)| (*cache, peer.last_opening())).collect();
            if !peers.is_empty() && *tell_at <= now {
                *tell_at = now + VOID_AGAIN_AFTER;
                for (cache, up_to) in &peers {
                    out.send(*cache, &Message::Void { incarnation: self.config.incarnation, up_to: *up_to });
                }
            }
            if peers.is_empty() {
                self.state_work.stage = Stage::Writing;
                self.state_work.again_at = Some(now);
            }
        }
        if self.state_work.under_way.is_some() || self.state_work.again_at.is_some_and(|at| now < at) {
            return;
        }
        let mut wanted = self.state;
        if matches!(self.state_work.stage, Stage::Writing | Stage::Unsettled) {
            wanted.generation = Generation(self.state.generation.0 + 1);
        }
        // What is taken comes with versions that are not to be had again.
        let last_version = self.last_version.max(self.taking.last_version());
        if last_version + VERSIONS_AT_ONCE / 2 > self.state.versions_reserved {
            wanted.versions_reserved = last_version + VERSIONS_AT_ONCE;
        }
        self.state_work.again_at = None;
        if wanted != self.state {
            self.state_work.under_way = Some(wanted);
            out.store.push(StoreCall::State(wanted));
        }
    }

    pub(super) fn on_state_written(&mut self, now: Moment, written: Result<(), StoreError>, out: &mut Outbox) {
        let Some(wanted) = self.state_work.under_way.take() else { return };
        let flushes = wanted.generation != self.state.generation;
        let answer = match &written {
            Ok(()) => {
                self.state = wanted;
                Answer::Deleted
            }
            Err(error) => {
                self.state_work.again_at = Some(now + AGAIN_AFTER);
                Answer::Failed { unknown: error.unknown }
            }
        };
        if !flushes {
            return;
        }
        self.state_work.stage = match written {
            Err(error) if error.unknown || self.state_work.stage == Stage::Unsettled => Stage::Unsettled,
            _ => Stage::None,
        };
        for asker in std::mem::take(&mut self.state_work.flushers) {
            self.answer_flush(asker, answer, out);
        }
    }
}
