//! Writes, in rounds: tell all, wait for all, tell all that it is over (ccKVS's Lin, EuroSys'18, section 5.2, made fault-tolerant as Hermes is,
//! ASPLOS'20: the value travels with the invalidation, so anybody can finish it).
//!
//! Always true:
//! - a write is over when all members of one epoch have acknowledged it in that epoch;
//! - a plain write is always acknowledged, since who has something newer has no use for it; a read-modify-write is answered with what is newer, and
//!   then it is not over, and never will be.

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{
    Answer, Changed, Generation, Key, Kind, Message, Mutant, Operation, Outbox, Outcome, Timestamp, Version, Wish,
    entry::{Entry, Round, Stage, Told},
    ground::Ground,
    version::Done,
};

impl Round {
    /// One about a version that all other members are to acknowledge.
    pub(crate) fn about(version: Version, ground: &Ground, now: Moment) -> Self {
        let missing = ground.others().collect();
        Self { version, missing, told_at: now, creates: false, is_update: false, settles: false, asked: None }
    }
}

impl Entry {
    /// Whether the operation that waits first can be carried out: what is newest is valid.
    pub(crate) fn can_go_on(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        let operation = &first.operation;
        let is_behind = operation.floor.is_some_and(|floor| ground.is_newer(floor, self.newest.at));
        if is_behind && !ground.has(Mutant::FloorIgnored) {
            return false;
        }
        if operation.wish.is_get() && self.tried(ground, key, &operation.wish, self.newest.at).is_err() {
            return true;
        }
        if !ground.is_sequential() {
            return self.round.is_none();
        }
        operation.kind() == Kind::Plain || self.may_modify(ground, key, now, out)
    }

    /// Carries out what has its turn.
    pub(crate) fn carry_out(
        &mut self,
        ground: &mut Ground,
        key: &Key,
        now: Moment,
        operation: Operation,
        out: &mut Outbox,
    ) {
        let may_repeat = ground.has(Mutant::AgainPlain);
        if let Some(request) = operation.request.filter(|_| !may_repeat)
            && let Some(done) = self.done.last_of(request)
            && done.request.sequence >= request.sequence
        {
            let is_it = done.request.sequence == request.sequence;
            let outcome = if is_it { Outcome::Answer(done.answer.clone()) } else { Outcome::Late };
            out.answers.push((operation.ticket, outcome));
            return;
        }
        let kind = if operation.wish.is_blind() && may_repeat { Kind::Plain } else { operation.kind() };
        let step = if ground.has(Mutant::ModifyByTwo) { Kind::Plain } else { kind };
        let base = self.newest.at;
        let at = base.next(step, ground.writer());
        let changed = match self.tried(ground, key, &operation.wish, at) {
            Ok(changed) => changed,
            Err(answer) => {
                out.answers.push((operation.ticket, Outcome::Answer(answer)));
                return;
            }
        };
        let by = operation.request.map(|request| Done { request, answer: changed.answer.clone() });
        self.newest = Version { at, base, kind, value: changed.value, by };
        self.remember(Kind::Plain);
        self.is_settled = false;
        let round = Round::about(self.newest.clone(), ground, now);
        if ground.is_sequential() && kind == Kind::Plain {
            out.answers.push((operation.ticket, Outcome::Answer(changed.answer)));
            self.begin(ground, key, now, Round { is_update: true, ..round }, out);
            return;
        }
        self.is_valid = false;
        self.begin(ground, key, now, Round { asked: Some((operation, changed.answer)), ..round }, out);
    }

    /// What a wish makes of what is here, if the write is to be `next`.
    fn tried(&self, ground: &Ground, key: &Key, wish: &Wish, next: Timestamp) -> Result<Changed, Answer> {
        let Version { at, value, .. } = &self.newest;
        match wish.apply(value.as_ref(), *at, next, key.len(), ground.config.item_len_max) {
            Ok(changed) if wish.is_get() && ground.has(Mutant::Unburied) => Err(changed.answer),
            tried => tried,
        }
    }

    /// Somebody else's write.
    pub(crate) fn on_invalidate(
        &mut self,
        ground: &mut Ground,
        key: &Key,
        now: Moment,
        told: Told,
        creates: bool,
        out: &mut Outbox,
    ) {
        let Told { from, generation, version, done } = told;
        if generation < self.generation {
            ground.counts.ignored += 1;
            return;
        }
        if creates {
            self.on_promotion(generation);
        } else if self.stage == Stage::Unconfirmed {
            // Whoever writes had it valid.
            self.stage = Stage::Hot;
        }
        self.done.merge(&done);
        let at = version.at;
        if ground.is_newer(at, self.newest.at) {
            self.take(ground, now, version, false, out);
        } else if at != self.newest.at && version.kind == Kind::Modify {
            self.tell_newest(ground, key, from, out);
            return;
        } else if let Some(by) = version.by.as_ref().filter(|_| version.kind == Kind::Plain) {
            self.done.add(by);
        }
        if self.stage != Stage::Leaving || !ground.has(Mutant::LeavingDeaf) {
            ground.send(from, Message::Ack { key: key.clone(), generation, at }, out);
        }
        self.go_on(ground, key, now, out);
    }

    /// Tells somebody what is newest here.
    pub(crate) fn tell_newest(&self, ground: &Ground, key: &Key, to: NodeId, out: &mut Outbox) {
        let (generation, version, done) = (self.generation, self.newest.clone(), self.done.clone());
        let at = version.at;
        if ground.is_sequential() && self.is_valid {
            ground.send(to, Message::Update { key: key.clone(), generation, version, done, settles: false }, out);
            return;
        }
        ground.send(to, Message::Invalidate { key: key.clone(), generation, version, done, creates: false }, out);
        if self.is_valid {
            ground.send(to, Message::Validate { key: key.clone(), generation, at }, out);
        }
    }

    /// A member has it, or something newer.
    pub(crate) fn on_ack(
        &mut self,
        ground: &mut Ground,
        key: &Key,
        now: Moment,
        from: NodeId,
        (generation, at): (Generation, Timestamp),
        out: &mut Outbox,
    ) {
        let is_of_now = generation == self.generation || ground.has(Mutant::AckOfEarlier);
        let Some(round) = self.round.as_mut().filter(|round| round.version.at == at && is_of_now) else {
            return;
        };
        round.missing.remove(&from);
        self.look_at_round(ground, key, now, out);
        self.go_on(ground, key, now, out);
    }

    /// Whether all have acknowledged it.
    pub(crate) fn look_at_round(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        let enough = usize::from(ground.has(Mutant::AckForgotten));
        let Some(round) = self.round.take_if(|round| round.missing.len() <= enough) else { return };
        if round.version.at == self.newest.at {
            self.validate();
            let has_settled = round.settles || (round.is_update && ground.has(Mutant::SettledByAny));
            self.is_settled = has_settled || (round.version.kind == Kind::Modify && !round.is_update);
            if !round.is_update {
                let (generation, at) = (self.generation, round.version.at);
                let message = Message::Validate { key: key.clone(), generation, at };
                ground.send_all(ground.others(), &message, out);
            }
        } else if round.creates && self.stage == Stage::Unconfirmed {
            self.stage = Stage::Hot;
        }
        self.finish(ground, now, round, out);
    }

    /// Something is over: who has told it all knows that all have it.
    pub(crate) fn on_validate(
        &mut self,
        ground: &mut Ground,
        key: &Key,
        now: Moment,
        (generation, at): (Generation, Timestamp),
        out: &mut Outbox,
    ) {
        if generation < self.generation || (at != self.newest.at && !ground.has(Mutant::ValidateAny)) {
            return;
        }
        self.validate();
        self.is_settled |= self.newest.kind == Kind::Modify;
        if let Some(round) = self.round.take_if(|round| round.version.at == at && !round.creates) {
            self.finish(ground, now, round, out);
        }
        self.go_on(ground, key, now, out);
    }

    /// Finishes what somebody else has written: the same again, under the same timestamp.
    pub(crate) fn replay(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        ground.counts.replays += 1;
        if ground.has(Mutant::ReplayFresh) {
            let base = self.newest.at;
            self.newest = Version { at: base.next(Kind::Plain, ground.writer()), base, ..self.newest.clone() };
        }
        self.since = now;
        let round = Round::about(self.newest.clone(), ground, now);
        self.begin(ground, key, now, round, out);
    }

    /// Time has passed.
    pub(crate) fn on_tick(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        if !ground.serves(now) {
            self.turn_away(&Outcome::NotServing, out);
        }
        self.tell_again(ground, key, now, out);
        self.tell_evict_again(ground, key, now, out);
        let waited = now.since(self.since);
        if self.stage != Stage::Hot {
            if waited >= ground.config.tell_again_after {
                self.tell_home_again(ground, key, now, out);
            }
        } else if !self.is_valid && self.round.is_none() && waited >= ground.config.replay_after && ground.is_whole {
            if ground.is_sequential() && ground.view.has_writer(self.newest.at.writer) {
                self.question(ground, key, now, out);
            } else {
                self.replay(ground, key, now, out);
            }
        }
        self.go_on(ground, key, now, out);
    }

    /// There is a new view: what is under way begins anew in it.
    pub(crate) fn on_view(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        self.has_told = false;
        self.since = now;
        self.look_at_home(ground, key, now, out);
        if let Some(mut round) = self.round.take() {
            if ground.has(Mutant::AcksKept) {
                round.missing.retain(|member| ground.view.members.contains_key(member));
            } else {
                round.missing = ground.others().collect();
            }
            round.told_at = now;
            self.begin(ground, key, now, round, out);
        }
        if self.round.is_none() && !ground.view.has_writer(self.newest.at.writer) && self.stage == Stage::Hot {
            if !self.is_valid && ground.is_whole {
                self.replay(ground, key, now, out);
            } else if self.is_valid && ground.is_sequential() {
                self.tell_departed(ground, key, now, out);
            }
        }
        self.go_on(ground, key, now, out);
    }
}
