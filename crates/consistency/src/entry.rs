//! One hot key at one member: what was written last, whether it may be served, and what is under way.
//!
//! ```text
//!              (promotion: Invalidate, creates)        Evict            Forget
//!   nothing --------------> Unconfirmed --------> Hot -------> Leaving -------> nothing
//!                                    Validate, or something newer
//!   Hot:  Valid --(newer)--> Invalid --(Validate, or a round of its own that all have acknowledged)--> Valid
//! ```
//! Hermes's states (ASPLOS'20) are those of `is_valid` and `round` together: Write and Replay are a round about what is newest, with and without
//! somebody who asked for it, and Trans is one about what is not newest any more.
//!
//! Always true:
//! - what is here never gives way to something older, from the promotion to the end of the write-back (a leaving member takes and acknowledges what
//!   is written, as everybody does): so a write that all have acknowledged is at each of them;
//! - what is written on top of something is so when all members had that, or newer.

use std::collections::{BTreeSet, VecDeque};

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{
    Answer, Generation, Key, Kind, Message, Mutant, Operation, Outbox, Outcome, Version, ground::Ground,
    version::Window,
};

/// How far a key is on its way through the hot set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Stage {
    /// It is being promoted, as far as is known here: its home answers.
    Unconfirmed,
    /// It is.
    Hot,
    /// It is being evicted: its home answers, once it is.
    Leaving,
}

/// Something that all members are to acknowledge.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Round {
    pub(crate) version: Version,
    /// Who has not yet.
    pub(crate) missing: BTreeSet<NodeId>,
    pub(crate) told_at: Moment,
    /// It is a promotion.
    pub(crate) creates: bool,
    /// Nobody waits for it (SC).
    pub(crate) is_update: bool,
    /// It is to be with all, and nothing newer with anybody (SC).
    pub(crate) settles: bool,
    /// Who is told when they have.
    pub(crate) asked: Option<(Operation, Answer)>,
}

/// An operation that waits for its turn.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiting {
    pub(crate) operation: Operation,
    /// It was tried, and may still take effect as long as what was newer has not been acknowledged by all.
    pub(crate) is_tried: bool,
}

/// At the home: the end of a key's time in the hot set.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Eviction {
    pub(crate) step: EvictionStep,
    /// Who has not answered yet.
    pub(crate) missing: BTreeSet<NodeId>,
    pub(crate) told_at: Moment,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum EvictionStep {
    /// Others may still be writing.
    Ending,
    /// What was written last is on its way into the shard.
    Writing,
    /// It is there, and others may still have it.
    Forgetting,
}

/// What somebody tells of a write.
pub(crate) struct Told {
    pub(crate) from: NodeId,
    pub(crate) generation: Generation,
    pub(crate) version: Version,
    pub(crate) done: Window,
}

/// A key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) generation: Generation,
    pub(crate) newest: Version,
    pub(crate) done: Window,
    /// What is newest may be served.
    pub(crate) is_valid: bool,
    /// SC: all members had this and nothing newer when they acknowledged it, so whatever they write now is on top of it.
    pub(crate) is_settled: bool,
    pub(crate) stage: Stage,
    /// When that was looked after last: when it became invalid, or the home was told of it.
    pub(crate) since: Moment,
    pub(crate) round: Option<Round>,
    pub(crate) eviction: Option<Eviction>,
    /// The home was told what is here.
    pub(crate) has_told: bool,
    /// While it is not hot: there may have been a home meanwhile that has known nothing of it, and served the key from its shard.
    pub(crate) is_doubtful: bool,
    pub(crate) waiting: VecDeque<Waiting>,
}

impl Entry {
    pub(crate) fn new(generation: Generation, newest: Version, done: Window, stage: Stage, now: Moment) -> Self {
        Self {
            generation,
            newest,
            done,
            is_valid: false,
            is_settled: false,
            stage,
            since: now,
            round: None,
            eviction: None,
            has_told: false,
            is_doubtful: false,
            waiting: VecDeque::new(),
        }
    }

    /// Something is asked of the key.
    pub(crate) fn ask(&mut self, ground: &mut Ground, key: &Key, now: Moment, operation: Operation, out: &mut Outbox) {
        let home = ground.home_of(key);
        if self.stage != Stage::Hot && home != Some(ground.config.me) {
            out.answers.push((operation.ticket, home.map_or(Outcome::NotServing, Outcome::Forward)));
            return;
        }
        if operation.request.is_some() {
            // Asked again here: who asks has given up waiting for what he was to be told.
            let waiting = self.waiting.iter_mut().map(|waiting| &mut waiting.operation);
            let under_way = self.round.iter_mut().filter_map(|round| round.asked.as_mut().map(|(asked, _)| asked));
            if let Some(first) = waiting.chain(under_way).find(|first| first.request == operation.request) {
                first.ticket = operation.ticket;
                return;
            }
        }
        if self.waiting.len() >= ground.config.waiting_max {
            ground.counts.busy += 1;
            out.answers.push((operation.ticket, Outcome::Busy));
            return;
        }
        self.waiting.push_back(Waiting { operation, is_tried: false });
        self.go_on(ground, key, now, out);
    }

    /// Takes something newer than what is here.
    pub(crate) fn take(
        &mut self,
        ground: &mut Ground,
        now: Moment,
        version: Version,
        is_valid: bool,
        out: &mut Outbox,
    ) {
        let is_on_top = |round: &Round| version.base == round.version.at && !ground.has(Mutant::ModifyTwice);
        match self.round.take() {
            Some(round) if round.creates => self.round = Some(round),
            Some(Round { asked: None, .. }) | None => {}
            Some(round) if round.version.kind == Kind::Plain || ground.has(Mutant::ModifyNotAborted) => {
                // Its place in the order is before what is newer; it is over when all have heard of it.
                self.round = Some(round);
            }
            Some(round) if is_on_top(&round) => {
                // Somebody else has told it to all, and then written on top of it. Whoever writes on top of something had it valid, which takes an
                // acknowledgement from here: so what comes on top of it is seen here before anything that comes on top of that.
                ground.counts.finished_elsewhere += 1;
                self.finish(ground, now, round, out);
            }
            Some(Round { asked: Some((operation, _)), .. }) => {
                ground.counts.aborts += 1;
                self.waiting.push_front(Waiting { operation, is_tried: true });
            }
        }
        self.newest = version;
        self.remember(Kind::Plain);
        self.is_valid = is_valid;
        self.is_settled = false;
        self.since = now;
    }

    /// Remembers the request of what is newest: a plain write's at once, whatever is newer, one that depends on what was there when it is valid.
    pub(crate) fn remember(&mut self, of: Kind) {
        if let Some(by) = self.newest.by.as_ref().filter(|_| self.newest.kind == of) {
            self.done.add(by);
        }
    }

    /// All members have what is newest, or newer.
    pub(crate) fn validate(&mut self) {
        self.is_valid = true;
        if self.stage == Stage::Unconfirmed {
            self.stage = Stage::Hot;
        }
        self.remember(Kind::Modify);
    }

    /// Tells who has asked for a round that is over.
    pub(crate) fn finish(&self, ground: &Ground, now: Moment, round: Round, out: &mut Outbox) {
        if let Some((operation, answer)) = round.asked {
            let outcome = if ground.serves(now) { Outcome::Answer(answer) } else { Outcome::Unknown };
            out.answers.push((operation.ticket, outcome));
        }
    }

    /// Does what can be done now: answers what waits, writes what is to be written, or gives the key up.
    pub(crate) fn go_on(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        while self.stage == Stage::Hot && self.is_valid && ground.serves(now) && self.can_go_on(ground, key, now, out) {
            let Some(Waiting { operation, .. }) = self.waiting.pop_front() else { break };
            self.carry_out(ground, key, now, operation, out);
        }
        if self.stage == Stage::Leaving && self.round.is_none() {
            self.give_up(ground, key, now, out);
        }
    }

    /// The message of the round.
    pub(crate) fn told(&self, key: &Key, round: &Round) -> Message {
        let (key, generation, version) = (key.clone(), self.generation, round.version.clone());
        let done = self.done.clone();
        if round.is_update {
            return Message::Update { key, generation, version, done, settles: round.settles };
        }
        Message::Invalidate { key, generation, version, done, creates: round.creates }
    }

    /// Begins a round about a version: all others are to acknowledge it.
    pub(crate) fn begin(&mut self, ground: &mut Ground, key: &Key, now: Moment, round: Round, out: &mut Outbox) {
        let message = self.told(key, &round);
        ground.send_all(round.missing.iter().copied(), &message, out);
        self.round = Some(round);
        self.look_at_round(ground, key, now, out);
    }

    /// What is said again of the round to who has not acknowledged it.
    pub(crate) fn tell_again(&mut self, ground: &Ground, key: &Key, now: Moment, out: &mut Outbox) {
        let Some(mut round) = self.round.take() else { return };
        if now.since(round.told_at) >= ground.config.tell_again_after
            && !(round.is_update && ground.has(Mutant::UpdateOnce))
        {
            round.told_at = now;
            let message = self.told(key, &round);
            ground.send_all(round.missing.iter().copied(), &message, out);
        }
        self.round = Some(round);
    }

    /// What waits is told that it is not to be had here.
    pub(crate) fn turn_away(&mut self, with: &Outcome, out: &mut Outbox) {
        for Waiting { operation, is_tried } in self.waiting.drain(..) {
            let outcome = match (with, is_tried) {
                (Outcome::NotServing, true) => Outcome::Unknown,
                (with, _) => with.clone(),
            };
            out.answers.push((operation.ticket, outcome));
        }
    }
}
