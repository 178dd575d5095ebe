//! How a key comes into the hot set and out of it again: at its home, and at the other members.
//!
//! *Promotion*: a round that creates the entries; before it is over nobody but the home answers. A home has one under way at a time, so members that
//! have heard of one have nothing to wait for of those before it, and one that comes late is known by its number (R9).
//! *Eviction*: all finish what they are writing and serve the key no longer, but keep what they have, and go on acknowledging; then the home writes
//! back what is newest; then all forget, and when they have said so it serves the key from its shard. So whoever is lost meanwhile, the others have all
//! there is; and when the home is lost later, with what was written in its shard, nobody has what is older.
//!
//! Always true: only a promotion creates an entry (and joining, which copies one); a home serves a key from its shard only when nobody else serves it.

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{
    Epoch, Generation, Key, Message, Mutant, Outbox, Outcome, Timestamp, Version,
    entry::{Entry, Eviction, EvictionStep, Round, Stage},
    ground::Ground,
    outbox::WriteBack,
    version::Window,
};

/// What a member has of a key that it does not serve.
pub(crate) struct Held {
    pub(crate) from: NodeId,
    pub(crate) version: Option<Version>,
    pub(crate) done: Window,
    /// Any more; otherwise: yet.
    pub(crate) is_leaving: bool,
    pub(crate) generation: Generation,
    pub(crate) of: Generation,
    pub(crate) is_doubtful: bool,
}

impl Entry {
    /// At the home: begins the promotion of what is here.
    pub(crate) fn promote(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        self.generation = ground.generation.next(ground.epoch());
        self.of = self.generation;
        ground.generation = self.generation;
        let round = Round::about(self.newest.clone(), ground, now);
        self.begin(ground, key, now, Round { creates: true, ..round }, out);
    }

    /// A promotion of what is here already: it came twice, a successor goes on with it, or the key was on its way out.
    pub(crate) fn on_promotion(&mut self, generation: Generation) {
        if generation != self.generation && self.stage == Stage::Leaving {
            // Its home has written it back, or has known nothing of it, and promotes it anew.
            self.stage = Stage::Unconfirmed;
            self.is_valid = false;
        }
        self.generation = generation;
        self.is_doubtful = false;
        if self.stage == Stage::Hot {
            // A successor goes on with what has come to be hot here.
            self.of = generation;
        }
    }

    /// At the home: begins the end of the key's time in the hot set.
    pub(crate) fn evict(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        if self.stage == Stage::Unconfirmed || self.round.as_ref().is_some_and(|round| round.creates) {
            ground.counts.ignored += 1;
            return;
        }
        self.is_doubtful &= self.stage != Stage::Hot;
        self.leave();
        let missing = ground.others().collect();
        let eviction = Eviction { step: EvictionStep::Ending, missing, told_at: now };
        let message = Message::Evict { key: key.clone(), generation: self.generation };
        ground.send_all(eviction.missing.iter().copied(), &message, out);
        self.eviction = Some(eviction);
        self.go_on(ground, key, now, out);
    }

    /// Serves it no longer, and begins nothing.
    fn leave(&mut self) {
        self.stage = Stage::Leaving;
        // Somebody else's write need not be finished: if it is over it is here.
        self.round.take_if(|round| round.asked.is_none() && !round.is_update);
    }

    /// The home says that the key is to go.
    pub(crate) fn on_evict(
        &mut self,
        ground: &mut Ground,
        key: &Key,
        now: Moment,
        generation: Generation,
        out: &mut Outbox,
    ) {
        if generation < self.generation || ground.is_home_of(key) {
            ground.counts.ignored += 1;
            return;
        }
        self.generation = generation;
        self.is_doubtful = false;
        self.leave();
        self.has_told = false;
        self.go_on(ground, key, now, out);
    }

    /// What is to go, and is not written any more: the home is told so, or writes it back once all are so far.
    pub(crate) fn give_up(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        if let Some(eviction) = &mut self.eviction {
            let all_have = eviction.missing.is_empty() || ground.has(Mutant::WriteBackEarly);
            if all_have && eviction.step == EvictionStep::Ending {
                eviction.step = EvictionStep::Writing;
                let (key, version, done) = (key.clone(), self.newest.clone(), self.done.clone());
                out.write_backs.push(WriteBack { key, version, done, is_doubtful: self.is_doubtful });
            }
        } else if !self.has_told {
            self.tell_home(ground, key, now, out);
        }
    }

    /// Tells the home what is here.
    fn tell_home(&mut self, ground: &Ground, key: &Key, now: Moment, out: &mut Outbox) {
        if !ground.is_whole && !ground.has(Mutant::JoinerLeaves) {
            // It would end an eviction in the view in which this one joins, and what was told before it ended would come to be an entry again.
            return;
        }
        self.has_told = true;
        self.since = now;
        let Some(home) = ground.home_of(key).filter(|home| *home != ground.config.me) else { return };
        let (is_leaving, is_doubtful) = (self.stage == Stage::Leaving, self.is_doubtful);
        let (key, generation, of) = (key.clone(), self.generation, self.of);
        let (version, done) = (Some(self.newest.clone()), self.done.clone());
        let message = Message::Holding { key, generation, of, version, done, is_leaving, is_doubtful };
        ground.send(home, message, out);
    }

    /// The home has not been heard of for a while.
    pub(crate) fn tell_home_again(&mut self, ground: &Ground, key: &Key, now: Moment, out: &mut Outbox) {
        if self.eviction.is_none() && self.round.is_none() {
            self.tell_home(ground, key, now, out);
        }
    }

    /// At the home: who has not answered is told again that the key is to go, or to be forgotten.
    pub(crate) fn tell_evict_again(&mut self, ground: &Ground, key: &Key, now: Moment, out: &mut Outbox) {
        let Some(eviction) = &mut self.eviction else { return };
        if now.since(eviction.told_at) >= ground.config.tell_again_after {
            eviction.told_at = now;
            let (key, generation) = (key.clone(), self.generation);
            let message = match eviction.step {
                EvictionStep::Ending | EvictionStep::Writing => Message::Evict { key, generation },
                EvictionStep::Forgetting => Message::Forget { key, generation },
            };
            ground.send_all(eviction.missing.iter().copied(), &message, out);
        }
    }

    /// At the home: what was written at that time is in the shard, so all may forget it. Whether it was that which is on its way there.
    pub(crate) fn on_written_back(&mut self, ground: &Ground, key: &Key, at: Timestamp, now: Moment, out: &mut Outbox) {
        let is_it = self.newest.at == at || ground.has(Mutant::WriteBackEarly);
        let Some(eviction) = self.eviction.as_mut().filter(|it| is_it && it.step == EvictionStep::Writing) else {
            return;
        };
        *eviction = Eviction { step: EvictionStep::Forgetting, missing: ground.others().collect(), told_at: now };
        let message = Message::Forget { key: key.clone(), generation: self.generation };
        ground.send_all(eviction.missing.iter().copied(), &message, out);
        if ground.has(Mutant::ForgottenByNobody) {
            eviction.missing.clear();
        }
    }

    /// At the home: a member has forgotten it.
    pub(crate) fn on_forgotten(&mut self, from: NodeId, generation: Generation) {
        let is_it = generation == self.generation;
        if let Some(eviction) = self.eviction.as_mut().filter(|it| is_it && it.step == EvictionStep::Forgetting) {
            eviction.missing.remove(&from);
        }
    }

    /// At the home: all is in the shard, and nobody else has anything.
    pub(crate) fn is_forgotten(&self) -> bool {
        let is_over = |it: &Eviction| it.step == EvictionStep::Forgetting && it.missing.is_empty();
        self.eviction.as_ref().is_some_and(is_over)
    }

    /// At the home: what a member has that does not serve the key.
    pub(crate) fn on_holding(&mut self, ground: &mut Ground, key: &Key, now: Moment, held: Held, out: &mut Outbox) {
        let Held { from, version, done, is_leaving, generation, of, is_doubtful } = held;
        self.done.merge(&done);
        // Of a home that is gone, and was known to few.
        self.generation = self.generation.max(generation);
        self.is_doubtful &= version.is_none() || is_doubtful;
        let at = version.as_ref().map(|version| version.at);
        if let Some(version) = version.filter(|version| self.is_behind(ground, of, version.at)) {
            self.of = of;
            self.take(ground, now, version, false, out);
        }
        if is_leaving {
            if self.eviction.is_none() {
                // Begun by a home that is gone, or by a life of this one: it goes on.
                self.evict(ground, key, now, out);
            }
            match &mut self.eviction {
                Some(eviction) if eviction.step == EvictionStep::Forgetting => {
                    let generation = self.generation;
                    ground.send(from, Message::Forget { key: key.clone(), generation }, out);
                }
                Some(eviction) => {
                    eviction.missing.remove(&from);
                }
                None => {}
            }
        } else if self.stage == Stage::Hot {
            if self.is_valid && at == Some(self.newest.at) {
                let (generation, at) = (self.generation, self.newest.at);
                ground.send(from, Message::Validate { key: key.clone(), generation, at }, out);
            } else if at != Some(self.newest.at) {
                self.tell_newest(ground, key, from, out);
            }
        }
        self.go_on(ground, key, now, out);
    }

    /// In a new view: whether there may have been a home since the last one, or is from now on, that knows nothing of what is here. If it knows of it, it says
    /// so; if it does not, and dies before all have forgotten what they have, that is older than what it may have served.
    pub(crate) fn look_at_doubt(&mut self, ground: &Ground, key: &Key, last: Epoch) {
        let hash = (ground.config.hash_of)(key);
        let is_doubtful = ground.view.has_had_another_home(hash, last, ground.config.me);
        self.is_doubtful |= self.stage != Stage::Hot && is_doubtful && !ground.has(Mutant::DoubtIgnored);
    }

    /// In a new view what a home has under way begins anew, by the one that is home now; the one that was is a member like others.
    ///
    /// In SC a successor ends a promotion that it finds open, and does not go on with it: for others it may have been over, and they may have written, of which
    /// nothing has come here; what is promoted anew would be from a later time than that, and so be taken for newer.
    pub(crate) fn look_at_home(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        self.eviction = None;
        let is_anothers = ground.is_sequential() && self.round.is_none() && !ground.has(Mutant::SuccessorPromotes);
        if !ground.is_home_of(key) {
            self.round.take_if(|round| round.creates);
        } else if ground.is_whole
            && (self.stage == Stage::Leaving || (self.stage == Stage::Unconfirmed && (self.is_doubtful || is_anothers)))
        {
            // Nobody may serve what others may know better: they say what they have.
            self.stage = Stage::Leaving;
            self.evict(ground, key, now, out);
        }
    }

    /// What waits for a key that is gone goes where it is now.
    pub(crate) fn close(&mut self, ground: &Ground, key: &Key, out: &mut Outbox) {
        let outcome = match ground.home_of(key) {
            Some(home) if home == ground.config.me => Outcome::Shard,
            Some(home) => Outcome::Forward(home),
            None => Outcome::NotServing,
        };
        self.turn_away(&outcome, out);
    }
}
