//! One node's side of all hot keys: what comes is handed to its key.
//!
//! Always true:
//! - a message of another epoch, or of who is no member, is refused;
//! - who is no member, or is one in a life that the view does not know, has nothing;
//! - a home promotes one key at a time, in the order of their numbers.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{
    Config, Consistency, Counts, Epoch, Generation, Happened, Key, Message, Mutant, Operation, Outbox, Outcome,
    Timestamp, Version, View, Window,
    entries::Entries,
    entry::{Entry, Stage, Told},
    ground::Ground,
    hot_set::Held,
    joining::{Joining, merge, page},
};

/// One node's side of all hot keys.
#[derive(Clone, Debug)]
pub struct Replica {
    ground: Ground,
    entries: Entries,
    joining: Option<Joining>,
    /// The last promotion that was heard of, by home.
    promoted: BTreeMap<NodeId, Generation>,
    /// What is being promoted here.
    promoting: Option<Key>,
    /// What is to be, as it was begun by a home that is gone: one a home at most.
    to_promote: VecDeque<Key>,
}

/// What a replica has of a key, for who looks on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen<'r> {
    /// What was written last.
    pub version: &'r Version,
    /// A read is answered with it now.
    pub is_served: bool,
    /// It is over, as far as is known here.
    pub is_valid: bool,
    /// What all others are to acknowledge.
    pub under_way: Option<Timestamp>,
}

impl Replica {
    /// A replica that is in no view yet. The members of the first view have all there is, which is nothing: they are whole; all others have to
    /// become so.
    pub fn new(config: Config, is_whole: bool) -> Self {
        let ground = Ground {
            config,
            view: View::default(),
            serves_until: Moment::default(),
            is_whole,
            generation: Generation::default(),
            counts: Counts::default(),
        };
        Self {
            ground,
            entries: Entries::default(),
            joining: None,
            promoted: BTreeMap::new(),
            promoting: None,
            to_promote: VecDeque::new(),
        }
    }

    /// Heeds what has happened; `now` was read after it had (R1).
    pub fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        match happened {
            Happened::Message(from, envelope) => {
                let is_of_view = envelope.epoch == self.ground.epoch() || self.ground.has(Mutant::OldEpoch);
                if is_of_view && self.ground.view.members.contains_key(&from) {
                    self.on_message(now, from, envelope.message, out);
                } else {
                    self.ground.counts.refused += 1;
                }
            }
            Happened::Asked(key, operation) => self.on_asked(now, &key, operation, out),
            Happened::View(view, serves_until) => self.on_view(now, view, serves_until, out),
            Happened::Lease(epoch, serves_until) => {
                if epoch == self.ground.epoch() {
                    self.ground.serves_until = self.ground.serves_until.max(serves_until);
                }
            }
            Happened::Promote(key, version, done) => self.on_promote(now, key, *version, done, out),
            Happened::Evict(key) => {
                if self.ground.is_home_of(&key)
                    && let Some(entry) = self.entries.get_mut(&key)
                    && entry.eviction.is_none()
                {
                    entry.evict(&mut self.ground, &key, now, out);
                }
            }
            Happened::WrittenBack(key, at) => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.on_written_back(&self.ground, &key, at, now, out);
                    self.end_eviction(&key, out);
                }
            }
            Happened::Tick => self.on_tick(now, out),
        }
        self.look_at_promotions(now, out);
        out.touched.extend(self.entries.settle());
    }

    /// Whether a key can be promoted here, and now.
    pub fn can_promote(&self, key: &Key) -> bool {
        let has_room = self.entries.len() < self.ground.config.keys_max;
        let is_free = self.promoting.is_none() && self.to_promote.is_empty();
        self.ground.is_whole && self.ground.is_home_of(key) && is_free && has_room && !self.entries.contains_key(key)
    }

    /// The keys of which something is here, each with whether it is hot: not on its way in or out.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, bool)> {
        self.entries.iter().map(|(key, entry)| (key, entry.stage == Stage::Hot))
    }

    /// Whether something of a key is here: then its home's shard does not answer for it.
    pub fn has(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether a key is hot here: not on its way in or out.
    pub fn is_hot(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.stage == Stage::Hot)
    }

    /// Keys of which something is here.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// It has all there is.
    pub fn is_whole(&self) -> bool {
        self.ground.is_whole
    }

    /// What it promises.
    pub fn consistency(&self) -> Consistency {
        self.ground.config.consistency
    }

    /// The epoch it is in.
    pub fn epoch(&self) -> Epoch {
        self.ground.epoch()
    }

    /// Numbers about it.
    pub fn counts(&self) -> Counts {
        self.ground.counts
    }

    /// What it has of a key, if that is hot here or on its way in or out.
    pub fn seen(&self, key: &Key, now: Moment) -> Option<Seen<'_>> {
        let entry = self.entries.get(key)?;
        let is_served = entry.stage == Stage::Hot && entry.is_valid && self.ground.serves(now);
        let under_way = entry.round.as_ref().map(|round| round.version.at);
        Some(Seen { version: &entry.newest, is_served, is_valid: entry.is_valid, under_way })
    }

    /// Whether it would send who asks for a key to the shard now.
    pub fn serves_from_shard(&self, key: &Key, now: Moment) -> bool {
        self.ground.serves(now) && self.ground.is_home_of(key) && !self.entries.contains_key(key)
    }

    /// Whether nothing is under way, and nothing waits.
    pub fn is_quiet(&self) -> bool {
        self.ground.is_whole && self.entries.busy().next().is_none() && self.to_promote.is_empty()
    }

    fn on_asked(&mut self, now: Moment, key: &Key, operation: Operation, out: &mut Outbox) {
        let home = self.ground.home_of(key).filter(|_| self.ground.serves(now));
        let Some(home) = home else {
            out.answers.push((operation.ticket, Outcome::NotServing));
            return;
        };
        match self.entries.get_mut(key) {
            Some(entry) => entry.ask(&mut self.ground, key, now, operation, out),
            None if home == self.ground.config.me => out.answers.push((operation.ticket, Outcome::Shard)),
            None => out.answers.push((operation.ticket, Outcome::Forward(home))),
        }
    }

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message, out: &mut Outbox) {
        let ground = &mut self.ground;
        match message {
            Message::Invalidate { key, generation, version, done, creates } => {
                if creates && generation.epoch > self.ground.epoch() {
                    // Nobody promotes in an epoch that is to come.
                    self.ground.counts.ignored += 1;
                    return;
                }
                if creates && !self.heeds_promotion(from, &key, generation) {
                    self.ground.counts.ignored += 1;
                    return;
                }
                let stage = if creates { Stage::Unconfirmed } else { Stage::Hot };
                let told = Told { from, generation, version, done };
                let Some((ground, entry)) = self.entry_of(now, &key, &told, stage, out) else { return };
                entry.on_invalidate(ground, &key, now, told, creates, out);
                if creates && ground.has(Mutant::UnconfirmedServes) {
                    entry.on_validate(ground, &key, now, (entry.generation, entry.newest.at), out);
                }
            }
            Message::Update { key, generation, version, done, settles } => {
                let told = Told { from, generation, version, done };
                let Some((ground, entry)) = self.entry_of(now, &key, &told, Stage::Hot, out) else { return };
                entry.on_update(ground, &key, now, told, settles, out);
            }
            Message::Ack { key, generation, at } => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.on_ack(ground, &key, now, from, (generation, at), out);
                }
            }
            Message::Validate { key, generation, at } => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.on_validate(ground, &key, now, (generation, at), out);
                }
            }
            Message::Question { key, at } => {
                if let Some(entry) = self.entries.get(&key) {
                    entry.on_question(ground, &key, from, at, out);
                }
            }
            // Who joins may have it on its way: it answers when it is whole.
            Message::Evict { .. } | Message::Holding { .. } | Message::Fetch { .. } if !ground.is_whole => {
                ground.counts.ignored += 1;
            }
            Message::Evict { key, generation } => match self.entries.get_mut(&key) {
                Some(entry) => {
                    entry.on_evict(ground, &key, now, generation, out);
                    if ground.has(Mutant::EvictDrops) && entry.has_told {
                        entry.close(ground, &key, out);
                        self.entries.remove(&key);
                    }
                }
                None => {
                    let (version, done, is_doubtful) = (None, Window::default(), false);
                    let of = Generation::default();
                    let message =
                        Message::Holding { key, generation, of, version, done, is_leaving: true, is_doubtful };
                    ground.send(from, message, out);
                }
            },
            Message::Holding { key, generation, of, version, done, is_leaving, is_doubtful } => {
                if !ground.is_home_of(&key) {
                    ground.counts.ignored += 1;
                    return;
                }
                match self.entries.get_mut(&key) {
                    Some(entry) if generation < entry.generation => ground.counts.ignored += 1,
                    Some(entry) => {
                        let held = Held { from, version, done, is_leaving, generation, of, is_doubtful };
                        entry.on_holding(ground, &key, now, held, out);
                    }
                    None if version.is_some() => ground.send(from, Message::Forget { key, generation }, out),
                    None => {}
                }
            }
            Message::Forget { key, generation } => {
                let is_it = |entry: &&mut Entry| entry.stage != Stage::Hot && entry.generation <= generation;
                if ground.home_of(&key) != Some(from) {
                    return;
                }
                if let Some(entry) = self.entries.get_mut(&key).filter(is_it) {
                    entry.close(ground, &key, out);
                    self.entries.remove(&key);
                }
                if !self.entries.contains_key(&key) {
                    ground.send(from, Message::Forgotten { key, generation }, out);
                }
            }
            Message::Forgotten { key, generation } => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.on_forgotten(from, generation);
                    self.end_eviction(&key, out);
                }
            }
            Message::Fetch { number, after } => {
                let message = page(ground, &self.entries, number, after);
                ground.send(from, message, out);
            }
            Message::Fetched { number, page, has_more } => {
                let Some(joining) = &mut self.joining else { return };
                if !joining.waits_for(from, number) {
                    ground.counts.ignored += 1;
                    return;
                }
                let last = page.last().map(|copied| copied.key.clone());
                for copied in page {
                    merge(ground, &mut self.entries, now, copied, out);
                }
                if has_more {
                    joining.go_on(ground, last, now, out);
                } else {
                    self.become_whole(now, out);
                }
            }
        }
    }

    /// Whether a promotion is one: its home's, and no earlier one that comes late (R9).
    fn heeds_promotion(&mut self, from: NodeId, key: &Key, generation: Generation) -> bool {
        if self.ground.home_of(key) != Some(from) {
            return false;
        }
        let last = self.promoted.entry(from).or_default();
        let is_new = generation > *last;
        *last = generation.max(*last);
        is_new || self.entries.contains_key(key) || self.ground.has(Mutant::PromotesTwice)
    }

    /// The key of which somebody tells a write. Who has nothing of it acknowledges, and keeps it only if he joins or it is promoted.
    fn entry_of(
        &mut self,
        now: Moment,
        key: &Key,
        told: &Told,
        stage: Stage,
        out: &mut Outbox,
    ) -> Option<(&mut Ground, &mut Entry)> {
        let Self { ground, entries, .. } = self;
        let keeps = stage == Stage::Unconfirmed || (!ground.is_whole && !ground.has(Mutant::JoinerDeaf));
        if !keeps && !entries.contains_key(key) {
            let (generation, at) = (told.generation, told.version.at);
            ground.send(told.from, Message::Ack { key: key.clone(), generation, at }, out);
            return None;
        }
        let new = || Entry::new(told.generation, told.version.clone(), Window::default(), stage, now);
        Some((ground, entries.get_or_insert_with(key, new)))
    }

    fn on_promote(&mut self, now: Moment, key: Key, version: Version, done: Window, out: &mut Outbox) {
        if !self.can_promote(&key) {
            self.ground.counts.ignored += 1;
            return;
        }
        let mut entry = Entry::new(Generation::default(), version, done, Stage::Unconfirmed, now);
        entry.promote(&mut self.ground, &key, now, out);
        entry.go_on(&mut self.ground, &key, now, out);
        self.entries.insert(key.clone(), entry);
        self.promoting = Some(key);
    }

    /// What all others have forgotten is served by the shard.
    fn end_eviction(&mut self, key: &Key, out: &mut Outbox) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.is_forgotten()) {
            entry.close(&self.ground, key, out);
            self.entries.remove(key);
        }
    }

    fn on_tick(&mut self, now: Moment, out: &mut Outbox) {
        let ground = &mut self.ground;
        self.entries.for_busy(|key, entry| entry.on_tick(ground, key, now, out));
        if let Some(joining) = &mut self.joining {
            joining.on_tick(&self.ground, now, out);
        }
    }

    fn on_view(&mut self, now: Moment, view: &View, serves_until: Moment, out: &mut Outbox) {
        if view.epoch <= self.ground.epoch() {
            self.ground.counts.ignored += 1;
            return;
        }
        let me = self.ground.config.me;
        let life = |view: &View| view.members.get(&me).copied();
        let before = life(&self.ground.view);
        if before.is_some() && before != life(view) {
            // It was taken for dead, and is not the one any more that it was.
            self.end_life(out);
        }
        let last = std::mem::replace(&mut self.ground.view, view.clone()).epoch;
        self.ground.serves_until = serves_until;
        self.promoting = None;
        self.to_promote.clear();
        if life(view).is_none() {
            self.joining = None;
            return;
        }
        if !self.ground.is_whole {
            self.joining = Some(Joining::begin(self.joining.as_ref(), &self.ground, now, out));
        }
        let Self { ground, entries, promoting, .. } = self;
        entries.for_all(|key, entry| {
            entry.look_at_doubt(ground, key, last);
            entry.on_view(ground, key, now, out);
            if entry.round.as_ref().is_some_and(|round| round.creates) {
                *promoting = Some(key.clone());
            }
        });
        self.take_over();
    }

    fn become_whole(&mut self, now: Moment, out: &mut Outbox) {
        self.joining = None;
        self.ground.is_whole = true;
        out.is_whole = true;
        self.take_over();
        let ground = &mut self.ground;
        self.entries.for_all(|key, entry| {
            entry.look_at_home(ground, key, now, out);
            entry.go_on(ground, key, now, out);
        });
    }

    /// Promotions that a home which is gone has begun are this one's.
    fn take_over(&mut self) {
        let ground = &self.ground;
        if !ground.is_whole || ground.has(Mutant::SuccessorIdle) {
            return;
        }
        let is_open = |(key, entry): &(&Key, &Entry)| {
            entry.stage == Stage::Unconfirmed && entry.round.is_none() && ground.is_home_of(key)
        };
        self.to_promote = self.entries.iter().filter(is_open).map(|(key, _)| key.clone()).collect();
    }

    /// One promotion after the other.
    fn look_at_promotions(&mut self, now: Moment, out: &mut Outbox) {
        let is_open = |entry: &Entry| entry.round.as_ref().is_some_and(|round| round.creates);
        if self.promoting.as_ref().is_some_and(|key| !self.entries.get(key).is_some_and(is_open)) {
            self.promoting = None;
        }
        while self.promoting.is_none()
            && let Some(key) = self.to_promote.pop_front()
        {
            let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.stage == Stage::Unconfirmed) else {
                continue;
            };
            entry.promote(&mut self.ground, &key, now, out);
            entry.go_on(&mut self.ground, &key, now, out);
            self.promoting = Some(key).filter(|key| self.entries.get(key).is_some_and(is_open));
        }
    }

    /// What it has is worth nothing any more.
    fn end_life(&mut self, out: &mut Outbox) {
        for (_, mut entry) in self.entries.take_all() {
            entry.turn_away(&Outcome::NotServing, out);
            if let Some((operation, _)) = entry.round.and_then(|round| round.asked) {
                out.answers.push((operation.ticket, Outcome::Unknown));
            }
        }
        self.ground.is_whole = false;
        self.joining = None;
        // One that was heard of and is open still is told again to who has nothing of it any more.
        self.promoted.clear();
    }
}

/// What makes a difference to what it does: not what it has counted.
impl Hash for Replica {
    fn hash<H: Hasher>(&self, to: &mut H) {
        let Self { ground, entries, joining, promoted, promoting, to_promote } = self;
        let Ground { config: _, view, serves_until, is_whole, generation, counts: _ } = ground;
        (view, serves_until, is_whole, generation).hash(to);
        (entries, joining, promoted, promoting, to_promote).hash(to);
    }
}
