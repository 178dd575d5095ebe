//! What is written as the store's state: versions ahead of their use, and `flush_all`s.
//!
//! ```text
//! now:   no sessions any more --> declared void, heard or their leases over --> next generation in the store --> here --> answered
//! later: its time in the store --> here --> answered . . . the time comes: as above, for nobody
//! ```
//! Always true:
//! - one state is on its way at a time; while nobody can say whether a generation has begun in the store nothing is changed, and it is written again
//!   until it has; so is a time of which nobody can say whether the store has it, unless a flush takes its place;
//! - the last time that was wanted counts, and none once all was taken away for somebody who did not want to wait;
//! - neither generation nor time changes while partitions may go from one backend to another ([`StateWork::holds_moves`], `holds_flushes`); but for what comes
//!   due at one that has all that is given, which was to come at its giver too.

use guira_chain::Reply;
use guira_cluster::CLOCK;
use guira_item::{
    Answer, Failure, Moment, Span, Time,
    store::{Generation, StoreError, StoreState},
};
use serde::Serialize;

use super::{Backend, VOID_AGAIN_AFTER, Why, clients::Asked};
use crate::{Asker, Message, Mutant, Outbox, Revision, StoreCall};

/// Versions that are reserved at a time: few writes of the state, and few versions lost at a restart.
const VERSIONS_AT_ONCE: u64 = 1 << 20;

/// How long after a failure the state is written again.
const AGAIN_AFTER: Span = Span::from_ms(100);

/// The state and what is to become of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct StateWork {
    /// What the store is writing.
    under_way: Option<UnderWay>,
    again_at: Option<Moment>,
    /// Who waits for a flush.
    flushers: Vec<Asker>,
    stage: Stage,
    /// When all is to be taken away, as somebody wants it.
    wish: Option<Wish>,
    /// A time that the store may have in place of that of the state.
    in_doubt: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct UnderWay {
    state: StoreState,
    /// The time in it is somebody's wish.
    wish: Option<Wish>,
}

/// A time at which all is to be taken away.
#[derive(Clone, Debug, Serialize)]
struct Wish {
    /// As [`StoreState::flush_at_unix_s`].
    at_unix_s: u64,
    /// Who waits until that is sure.
    askers: Vec<Asker>,
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

    /// Whether no partition may be given or taken: what there is, or when it is to be taken away, is changing.
    pub(super) fn holds_moves(&self) -> bool {
        self.is_flushing() || self.wish.is_some() || self.in_doubt.is_some() || self.sets_time()
    }

    /// Whether the store is writing a time.
    fn sets_time(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.wish.is_some())
    }

    /// All is to be taken away then, for nobody who waits for that: unless something changes already, after which it is to be wanted again.
    pub(super) fn want_time(&mut self, at_unix_s: u64) {
        if !self.holds_moves() {
            self.wish = Some(Wish { at_unix_s, askers: Vec::new() });
        }
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        let tell_at = if let Stage::Voiding { tell_at } = self.stage { Some(tell_at) } else { None };
        let wanted_at = self.wish.as_ref().filter(|_| self.stage == Stage::None).map(|_| Moment::default());
        // What is under way says when it is over.
        let again_at = self.again_at.or(wanted_at).filter(|_| self.under_way.is_none());
        again_at.into_iter().chain(tell_at).min()
    }
}

impl Backend {
    pub(super) fn on_flush(&mut self, now: Moment, asker: &Asker, at: Time, revision: Revision, out: &mut Outbox) {
        let is_sure = self.config.mutant != Some(Mutant::MoveFlush);
        // It comes again, and then it is known who has what.
        if is_sure && self.holds_flushes() {
            return;
        }
        // As many as there is room for in the gateways' windows.
        if !self.admits(asker, false, out) {
            return;
        }
        if revision != self.config.shares.revision && is_sure {
            // What another has given away meanwhile would be left out, or gone twice.
            self.answer_flush(*asker, Answer::Failed(Failure::Refused), out);
            return;
        }
        if at <= self.config.clock.time(now) {
            self.state_work.flushers.push(*asker);
            self.begin_flush(now);
            return;
        }
        self.give_up(now, Why::Changed);
        self.drop_taken();
        let wish = self.state_work.wish.get_or_insert(Wish { at_unix_s: 0, askers: Vec::new() });
        wish.at_unix_s = CLOCK.to_unix_s(at);
        wish.askers.push(*asker);
    }

    /// Whether somebody may have what this backend has, or has had.
    fn holds_flushes(&self) -> bool {
        self.giving.holds_flushes() || self.taking.holds_flushes()
    }

    fn begin_flush(&mut self, now: Moment) {
        self.give_up(now, Why::Changed);
        if self.config.mutant != Some(Mutant::MoveFlushTaken) {
            self.drop_taken();
        }
        if self.state_work.stage == Stage::None {
            if self.config.mutant == Some(Mutant::FlushSessions) {
                (self.state_work.stage, self.state_work.again_at) = (Stage::Writing, Some(now));
                return;
            }
            self.end_sessions();
            self.state_work.stage = Stage::Voiding { tell_at: Moment::default() };
        }
    }

    fn answer_flush(&mut self, asker: Asker, answer: Answer, out: &mut Outbox) {
        self.reply(&Asked::of(&asker, false, None), Reply::Answer(answer, None), out);
    }

    /// The `flush_all` that is still to come: when, in the cluster's seconds.
    pub fn flush_to_come(&self) -> Option<Time> {
        let unix_s = self.state.flush_at_unix_s;
        (unix_s != 0).then(|| CLOCK.from_unix_s(unix_s))
    }

    pub(super) fn is_flush_due(&self, now: Moment) -> bool {
        self.flush_to_come().is_some_and(|at| at <= self.config.clock.time(now))
    }

    /// When a flush begins by itself, if it may.
    pub(super) fn flush_wake_at(&self) -> Option<Moment> {
        // Who wants another time would lose it to this one. Who takes something waits for nobody: it has the same to come as its giver, who may be dead.
        let is_held = self.state_work.sets_time() || self.giving.holds_flushes();
        let may_begin = self.state_work.stage == Stage::None && !is_held;
        self.flush_to_come().filter(|_| may_begin).map(|at| self.config.clock.when(at))
    }

    pub(super) fn go_on_with_state(&mut self, now: Moment, out: &mut Outbox) {
        if self.flush_wake_at().is_some_and(|at| at <= now) {
            self.begin_flush(now);
        }
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
        self.state_work.again_at = None;
        let mut state = self.state;
        state.flush_at_unix_s = self.state_work.in_doubt.unwrap_or(state.flush_at_unix_s);
        let wish = match self.state_work.stage {
            Stage::None => self.state_work.wish.take(),
            Stage::Voiding { .. } => None,
            Stage::Writing | Stage::Unsettled => {
                (state.generation, state.flush_at_unix_s) = (Generation(self.state.generation.0 + 1), 0);
                None
            }
        };
        state.flush_at_unix_s = wish.as_ref().map_or(state.flush_at_unix_s, |wish| wish.at_unix_s);
        // What is taken comes with versions that are not to be had again.
        let last_version = self.last_version.max(self.taking.last_version());
        if last_version + VERSIONS_AT_ONCE / 2 > self.state.versions_reserved {
            state.versions_reserved = last_version + VERSIONS_AT_ONCE;
        }
        if state != self.state || wish.is_some() || self.state_work.in_doubt.is_some() {
            self.state_work.under_way = Some(UnderWay { state, wish });
            out.store.push(StoreCall::State(state));
        }
    }

    pub(super) fn on_state_written(&mut self, now: Moment, written: Result<(), StoreError>, out: &mut Outbox) {
        let Some(UnderWay { state, wish }) = self.state_work.under_way.take() else { return };
        let flushes = state.generation != self.state.generation;
        let answer = match &written {
            Ok(()) => {
                (self.state, self.state_work.in_doubt) = (state, None);
                Answer::Deleted
            }
            Err(error) => {
                self.state_work.again_at = Some(now + AGAIN_AFTER);
                Answer::Failed(error.failure())
            }
        };
        if let Some(Wish { at_unix_s, askers }) = wish {
            self.state_work.in_doubt = match &written {
                Err(error) if error.unknown => Some(at_unix_s),
                _ => self.state_work.in_doubt,
            };
            askers.into_iter().for_each(|asker| self.answer_flush(asker, answer, out));
        }
        if !flushes {
            return;
        }
        self.state_work.stage = match written {
            Err(error) if error.unknown || self.state_work.stage == Stage::Unsettled => Stage::Unsettled,
            // It comes whoever is told that his own does not.
            Err(_) if self.is_flush_due(now) => Stage::Writing,
            _ => Stage::None,
        };
        for asker in std::mem::take(&mut self.state_work.flushers) {
            self.answer_flush(asker, answer, out);
        }
    }
}
