//! Partitions that are another's by right: given away while they are served.
//!
//! ```text
//! Idle -> Asked -> Copying ----------> Uncaching ------> Draining -----------> Sealed -----> Committing -> (the map says so) Idle
//!          Begin    Records,            no cache node     nothing new is let    Seal          the map is put
//!            |      changes, too        has any of it     in, chains run dry     |              |
//!            +--------+--------------------+----------------+-- the session -----+--> Idle      +-- refused --> Idle
//!                                                               ends, or a flush_all
//!
//! Copying: a scan names keys, each is read and told of, then Mark: there is room for more (More): the next scan
//! ```
//! Always true:
//! - until the map is put these keys are this backend's and nobody else's, and from the moment when it may have been put this backend answers nothing
//!   for them until it knows;
//! - the taker is told of a key in the order of its chain, and since it has made room for its partition of each change, and of each read that is news
//!   (`guira_row`): what nobody knew to be there may come to be there once the scan has passed.

use std::collections::{BTreeMap, BTreeSet};

use guira_chain::{Base, Item};
use guira_cluster::{Incarnation, Opening, SessionId};
use guira_item::{Key, Moment, Span, store::StoreError};
use guira_routing::{KeyHash, NodeId, PARTITIONS, PartitionId};
use serde::Serialize;

use super::{
    Backend, ReplyTo,
    standstill::{Standstill, Why},
    work::LOOK,
};
use crate::{
    Body, Commit, Committed, ITEM_LEN_MAX, ItemCopy, KeyBytes, Message, Mutant, Outbox, Revision, Scan, ScanBounds,
    ScanNumber, Scanned, Shares, StoreCall,
    initiator::{Initiator, Turn},
};

/// How often it is said that something is not given any more, until it is heard.
const RELEASE_AGAIN_AFTER: Span = Span::from_ms(100);

/// How long after an attempt that came to nothing there is another, at first and at most: each time twice as long.
const AGAIN_AFTER: Span = Span::from_ms(500);
const AGAIN_AFTER_MAX: Span = Span::from_s(16);

/// How long who is to take something may take to answer, before somebody else is asked: it may not be there.
const OPENED_WITHIN: Span = Span::from_s(10);

/// How long it may take to make room, for which it looks through all that it has: as long as it is there, in effect.
const READY_WITHIN: Span = Span::from_s(24 * 60 * 60);

/// How long nothing is let in, until the taker says that it has all, before this backend goes on with it: a store may be stuck.
const SEALED_WITHIN: Span = Span::from_s(5);

/// How partitions are given away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GivingConfig {
    /// Partitions that are given at a time: a backend's keys are looked through once for as many, and what has failed begins again with all of them.
    pub partitions_at_once: usize,
    /// How much of the store is looked through at a time.
    pub scan: ScanBounds,
}

impl Default for GivingConfig {
    fn default() -> Self {
        Self { partitions_at_once: PARTITIONS / 8, scan: ScanBounds::default() }
    }
}

/// What is given away.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Giving {
    /// Those who have taken something, or are to.
    takers: BTreeMap<NodeId, Initiator>,
    given: Option<Given>,
    /// Those who may wait for something that is not given any more, in sessions up to an opening; when they are told so.
    unreleased: BTreeMap<NodeId, (Opening, Moment)>,
    /// All other backends.
    others: BTreeSet<NodeId>,
    /// The last opening of earlier lives.
    earlier: Opening,
    /// There is more to give, from then on.
    again_at: Option<Moment>,
    /// How long after the next attempt that comes to nothing there is another.
    again_after: Span,
    /// Who has not made room when asked last: others are asked first.
    unready: Option<NodeId>,
    #[serde(skip)]
    standstill: Option<Standstill>,
}

#[derive(Clone, Debug, Serialize)]
struct Given {
    to: NodeId,
    partitions: BTreeSet<PartitionId>,
    stage: Stage,
    /// The stage lasts until then at most, if it is bounded.
    until: Moment,
    /// The session in which it was told that all has come.
    sealed_in: Opening,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
enum Stage {
    /// The taker is to make room.
    Asked,
    /// Their keys are told of.
    Copying(Copying),
    /// Cache nodes are given nothing of it, and are to drop these keys.
    Uncaching(BTreeSet<Box<[u8]>>),
    /// Nothing new is let in; what is on its way for these keys is waited for.
    Draining(BTreeSet<Box<[u8]>>),
    /// The taker is to say that it has all.
    Sealed,
    /// The map is put.
    Committing,
    /// It was, as this one: it is to come here.
    Committed(Revision),
}

/// How far the keys of partitions were told of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
enum Copying {
    /// Those behind this key are to be named; `None`: all.
    Next(Option<Box<[u8]>>),
    /// The store names them.
    Scanning(ScanNumber),
    /// So many of those that a scan has named are yet to be read; it is gone on behind a key, if that is not all.
    Reading(ScanNumber, usize, Option<Box<[u8]>>),
    /// The taker is to say that there is room for more.
    Marked(Option<Box<[u8]>>),
}

impl Given {
    fn has(&self, hash_of: fn(&[u8]) -> KeyHash, key: &[u8]) -> bool {
        self.partitions.contains(&PartitionId::of(hash_of(key)))
    }

    /// The stage lasts for so long at most, whoever is waited for.
    fn is_bounded(&self) -> bool {
        matches!(self.stage, Stage::Asked | Stage::Draining(_) | Stage::Sealed)
    }

    /// It may be given already.
    fn is_committing(&self) -> bool {
        matches!(self.stage, Stage::Committing | Stage::Committed(_))
    }

    fn is_sealed(&self) -> bool {
        !matches!(self.stage, Stage::Asked | Stage::Copying(_) | Stage::Uncaching(_))
    }
}

impl Giving {
    /// It is to be looked whether there is something to give.
    /// What an earlier life was giving to these others it gives no more.
    pub(super) fn beginning(now: Moment, incarnation: Incarnation, others: BTreeSet<NodeId>) -> Self {
        let earlier = Opening(Opening::first_of(incarnation).0.saturating_sub(1));
        let unreleased = others.iter().map(|other| (*other, (earlier, now))).collect();
        Self { again_at: Some(now), again_after: AGAIN_AFTER, unreleased, others, earlier, ..Self::default() }
    }

    /// Why nothing was given the last time.
    pub(super) fn standstill(&self) -> Option<Standstill> {
        self.standstill
    }

    /// Whether nothing new is let in for a partition.
    pub(super) fn is_sealed(&self, partition: PartitionId) -> bool {
        self.given.as_ref().is_some_and(|given| given.is_sealed() && given.partitions.contains(&partition))
    }

    /// Whether cache nodes are given nothing of a partition.
    pub(super) fn is_uncached(&self, partition: PartitionId) -> bool {
        let given = self.given.as_ref().filter(|given| !matches!(given.stage, Stage::Asked | Stage::Copying(_)));
        given.is_some_and(|given| given.partitions.contains(&partition))
    }

    /// Whether a flush has to wait.
    pub(super) fn holds_flushes(&self) -> bool {
        self.given.as_ref().is_some_and(Given::is_sealed)
    }

    /// Whether what is read for a scan is told.
    pub(super) fn reads_for(&self, number: ScanNumber) -> bool {
        let stage = self.given.as_ref().map(|given| &given.stage);
        matches!(stage, Some(Stage::Copying(Copying::Reading(reading, ..))) if *reading == number)
    }

    /// Partitions that are being given away.
    pub(super) fn giving(&self) -> usize {
        self.given.as_ref().map_or(0, |given| given.partitions.len())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.given.is_none()
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        let given = self.given.as_ref().filter(|given| !given.is_committing());
        let taker = given.and_then(|given| self.takers.get(&given.to));
        let released_at = self.unreleased.values().map(|(_, at)| *at).min();
        let until = given.filter(|given| given.is_bounded()).map(|given| given.until);
        [taker.map(Initiator::wake_at), released_at, until].into_iter().flatten().min()
    }
}

impl Backend {
    /// Gives away what is to be given, as far as it goes now.
    pub(super) fn go_on_giving(&mut self, now: Moment, out: &mut Outbox) {
        self.release(now, out);
        if self.giving.given.is_none() && !self.begin_giving(now) {
            return;
        }
        // While the map is put nothing is said to the taker: it would take another session for another attempt.
        let Some(given) = self.giving.given.as_ref().filter(|given| !given.is_committing()) else { return };
        let to = given.to;
        if given.is_bounded() && given.until <= now {
            let why = match given.stage {
                Stage::Draining(_) => Why::Undrained,
                Stage::Sealed => Why::NotStored,
                _ => Why::Unready,
            };
            return self.give_up(now, why);
        }
        let Some(taker) = self.giving.takers.get_mut(&to) else { return };
        let turn = taker.tick(now, out);
        self.on_taker_turn(now, to, Some(turn));
        self.go_on_copying(now, out);
        self.go_on_emptying(now);
        if let Some(taker) = self.giving.takers.get_mut(&to) {
            taker.emit(now, out);
        }
    }

    /// Whether there is something to give, and somebody to give it to.
    fn begin_giving(&mut self, now: Moment) -> bool {
        let shares = &self.config.shares;
        let is_busy = self.start.is_some() || self.state_work.holds_moves();
        if is_busy || self.giving.again_at.is_none_or(|at| now < at) {
            return false;
        }
        self.giving.again_at = None;
        let me = self.config.me;
        let goes = || shares.map.differing_from(&shares.wanted).filter(|partition| shares.map.owner(*partition) == me);
        let takers = || goes().map(|partition| shares.wanted.owner(partition));
        let unready = self.giving.unready.take();
        let Some(to) = takers().find(|to| Some(*to) != unready).or_else(|| takers().next()) else {
            self.giving.standstill = None;
            return false;
        };
        let partitions = goes().filter(|partition| shares.wanted.owner(*partition) == to);
        let partitions = partitions.take(self.config.giving.partitions_at_once).collect();
        let opening = Opening::first_of(self.config.incarnation);
        let initiator = || Initiator::new(to, opening, self.config.drift, self.config.mutant).giving();
        self.giving.takers.entry(to).or_insert_with(initiator);
        let until = now + OPENED_WITHIN;
        self.giving.given = Some(Given { to, partitions, stage: Stage::Asked, until, sealed_in: opening });
        true
    }

    pub(super) fn taker(&mut self, from: NodeId) -> Option<&mut Initiator> {
        self.giving.takers.get_mut(&from)
    }

    /// What has become of a session with somebody who is, or was, to take something.
    pub(super) fn on_taker_turn(&mut self, now: Moment, from: NodeId, turn: Option<Turn>) {
        let given = self.giving.given.as_mut().filter(|given| given.to == from);
        match (turn.unwrap_or(Turn::None), given) {
            (Turn::None, _) | (Turn::Void, None) => {}
            (Turn::Opened, Some(given)) if given.stage == Stage::Asked => {
                given.until = now + READY_WITHIN;
                let partitions = given.partitions.iter().copied().collect();
                let (revision, flush_at_unix_s) = (self.config.shares.revision, self.state.flush_at_unix_s);
                self.tell_taker(now, Body::Begin { partitions, revision, flush_at_unix_s });
            }
            // It was asked for by an attempt that is over.
            (Turn::Opened, _) => self.end_taker(now, from),
            (Turn::Void, Some(_)) => self.give_up(now, Why::Ended),
        }
    }

    /// Gives nothing for a while, unless it may be given already.
    pub(super) fn give_up(&mut self, now: Moment, why: Why) {
        let is_open = self.giving.given.as_ref().is_some_and(|given| !given.is_committing());
        if let Some(given) = self.giving.given.take_if(|_| is_open) {
            if given.stage == Stage::Sealed {
                self.giving.unreleased.insert(given.to, (given.sealed_in, now));
            }
            if given.stage == Stage::Asked {
                self.giving.unready = Some(given.to);
            }
            self.giving.standstill = Some(Standstill { taker: given.to, why });
            self.again_later(now);
            self.end_taker(now, given.to);
        }
    }

    fn again_later(&mut self, now: Moment) {
        self.giving.again_at = Some(now + self.giving.again_after);
        self.giving.again_after = self.giving.again_after.times(2).min(AGAIN_AFTER_MAX);
    }

    /// Tells those who may wait for something that it is not given any more.
    fn release(&mut self, now: Moment, out: &mut Outbox) {
        let revision = self.config.shares.revision;
        for (to, (up_to, at)) in &mut self.giving.unreleased {
            if *at <= now {
                *at = now + RELEASE_AGAIN_AFTER;
                out.send(*to, &Message::Release { up_to: *up_to, revision });
            }
        }
    }

    pub(super) fn on_released(&mut self, from: NodeId, up_to: Opening) {
        if self.giving.unreleased.get(&from).is_some_and(|(opening, _)| *opening <= up_to) {
            self.giving.unreleased.remove(&from);
        }
    }

    fn end_taker(&mut self, now: Moment, to: NodeId) {
        if let Some(taker) = self.giving.takers.get_mut(&to) {
            let _ = taker.end(now);
        }
    }

    fn tell_taker(&mut self, now: Moment, body: Body) {
        let Some(given) = &self.giving.given else { return };
        let open = self.giving.takers.get_mut(&given.to).and_then(|taker| taker.valid(now));
        match open.map(|open| open.link.send(body)) {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.give_up(now, Why::Behind),
            None => self.give_up(now, Why::Ended),
        }
    }

    /// What the taker tells.
    pub(super) fn on_taker_told(
        &mut self,
        now: Moment,
        from: NodeId,
        session: SessionId,
        body: Option<Body>,
        out: &mut Outbox,
    ) {
        let Some(given) = self.giving.given.as_mut().filter(|given| given.to == from) else { return };
        match (body, &given.stage) {
            (Some(Body::Ready), Stage::Asked) => given.stage = Stage::Copying(Copying::Next(None)),
            (Some(Body::More), Stage::Copying(Copying::Marked(Some(after)))) => {
                given.stage = Stage::Copying(Copying::Next(Some(after.clone())));
            }
            (Some(Body::More), Stage::Copying(Copying::Marked(None))) => self.begin_to_uncache(now),
            (Some(Body::Stored), Stage::Sealed) => {
                given.stage = Stage::Committing;
                let (partitions, to_life) = (given.partitions.iter().copied().collect(), session.incarnation);
                out.commit = Some(Commit { partitions, to: given.to, to_life });
            }
            (None, _) => {}
            _ => self.counts.ignored += 1,
        }
    }

    fn go_on_copying(&mut self, now: Moment, out: &mut Outbox) {
        let Some(Given { stage: Stage::Copying(copying), partitions, .. }) = &mut self.giving.given else { return };
        match copying {
            Copying::Next(after) => {
                self.last_scan = ScanNumber(self.last_scan.0 + 1);
                let (number, bounds, after) = (self.last_scan, self.config.giving.scan, after.take());
                out.store.push(StoreCall::Scan(Scan { number, partitions: partitions.clone(), after, bounds }));
                *copying = Copying::Scanning(number);
            }
            Copying::Reading(_, 0, more_after) => {
                *copying = Copying::Marked(more_after.take());
                self.tell_taker(now, Body::Mark);
            }
            Copying::Scanning(_) | Copying::Reading(..) | Copying::Marked(_) => {}
        }
    }

    /// The store has named keys of what is given.
    pub(super) fn on_scanned_to_give(
        &mut self,
        now: Moment,
        number: ScanNumber,
        found: Result<Scanned, StoreError>,
        out: &mut Outbox,
    ) {
        let Some(Given { stage: Stage::Copying(copying), to, .. }) = &mut self.giving.given else { return };
        if *copying != Copying::Scanning(number) {
            return;
        }
        let Ok(Scanned { keys, more_after }) = found else { return self.give_up(now, Why::Unsure) };
        let keys: Vec<Key<'_>> = keys.iter().filter_map(|key| Key::new(key).ok()).collect();
        *copying = Copying::Reading(number, keys.len(), more_after);
        let to = *to;
        for key in keys {
            self.ask(now, key, &LOOK, ReplyTo::Taker { to, number }, out);
        }
    }

    /// A key was read that is given.
    pub(super) fn give_record(&mut self, now: Moment, key: &[u8], base: &Base, to: NodeId, number: ScanNumber) {
        let Some(given) = self.giving.given.as_mut().filter(|given| given.to == to) else { return };
        match &mut given.stage {
            Stage::Copying(Copying::Reading(reading, left, _)) if *reading == number => *left -= 1,
            // It was read for an attempt that is over.
            _ => return,
        }
        match base {
            Base::Unknown => self.give_up(now, Why::Unsure),
            Base::Present(item) => self.tell_record(now, key, Some(item)),
            Base::Absent(_) => self.tell_record(now, key, None),
        }
    }

    /// A key has changed, or may have.
    pub(super) fn tell_change(
        &mut self,
        now: Moment,
        key: &[u8],
        outcome: &Result<(), StoreError>,
        item: Option<&Item>,
    ) {
        let hash_of = self.config.hash_of;
        let given = self.giving.given.as_ref().filter(|given| given.has(hash_of, key));
        match (given.map(|given| &given.stage), outcome) {
            (None | Some(Stage::Asked), _) => {}
            // The fault: what changes while it is copied is not told.
            (Some(Stage::Copying(_)), Ok(())) if self.config.mutant == Some(Mutant::MoveChange) => {}
            (Some(_), Ok(())) => self.tell_record(now, key, item),
            // What is there is read again, by another attempt.
            (Some(_), Err(error)) if error.unknown => self.give_up(now, Why::Unsure),
            (Some(_), Err(_)) => {}
        }
    }

    /// What was read of a key is news: its taker was told of something else, or of nothing.
    pub(super) fn tell_news(&mut self, now: Moment, key: &[u8], item: Option<&Item>) {
        if self.config.mutant != Some(Mutant::MoveNews) {
            self.tell_change(now, key, &Ok(()), item);
        }
    }

    fn tell_record(&mut self, now: Moment, key: &[u8], item: Option<&Item>) {
        // What is over the store has not kept.
        let time = self.config.clock.time(now);
        let is_there = |item: &&Item| item.generation >= self.state.generation && !item.expiry.is_past(time);
        let item = item.filter(is_there);
        if item.is_some_and(|item| item.value.len() > ITEM_LEN_MAX) {
            // No message carries what a store that was filled under another limit may have: it stays here.
            return self.give_up(now, Why::TooLarge);
        }
        let copy = item.map(|item| ItemCopy {
            flags: item.flags,
            version: item.version,
            expiry: item.expiry,
            serve_until: None,
            stale: item.stale,
            win_sent: item.win_sent,
            value: item.value.clone(),
        });
        self.tell_taker(now, Body::Record(KeyBytes(key.into()), copy));
    }

    /// All was told, and changes still are: cache nodes are to have none of it.
    fn begin_to_uncache(&mut self, now: Moment) {
        let hash_of = self.config.hash_of;
        let Some(given) = &self.giving.given else { return };
        let cached = self.cached_where(|key| given.has(hash_of, key));
        for key in &cached {
            self.have_dropped(now, key);
        }
        if let Some(given) = &mut self.giving.given {
            given.stage = Stage::Uncaching(cached);
        }
    }

    fn go_on_emptying(&mut self, now: Moment) {
        let (hash_of, mutant) = (self.config.hash_of, self.config.mutant);
        let Some(given) = &mut self.giving.given else { return };
        if let Stage::Uncaching(left) = &mut given.stage {
            let mut left = std::mem::take(left);
            while left
                .first()
                .is_some_and(|key| self.holders(key).next().is_none() || mutant == Some(Mutant::MoveUncache))
            {
                left.pop_first();
            }
            let Some(given) = &mut self.giving.given else { return };
            if !left.is_empty() {
                given.stage = Stage::Uncaching(left);
                return;
            }
            let under_way = self.keys.keys().filter(|key| given.has(hash_of, key)).cloned();
            (given.stage, given.until) = (Stage::Draining(under_way.collect()), now + SEALED_WITHIN);
        }
        let Some(given) = &mut self.giving.given else { return };
        let Stage::Draining(left) = &mut given.stage else { return };
        while left.first().is_some_and(|key| !self.keys.contains_key(key) || mutant == Some(Mutant::MoveDrain)) {
            left.pop_first();
        }
        if left.is_empty() {
            given.stage = Stage::Sealed;
            given.sealed_in = self.giving.takers.get(&given.to).map_or(given.sealed_in, Initiator::opening);
            // The fault: as if no item had had a version.
            let last_version = if mutant == Some(Mutant::MoveVersions) { 0 } else { self.last_version };
            self.tell_taker(now, Body::Seal { last_version });
        }
    }

    /// By the map, and by what it is to be, others may be to take something now.
    pub(super) fn see_given(&mut self, now: Moment) {
        self.see_committed(now);
        self.see_others(now);
        let Shares { map, wanted, .. } = &self.config.shares;
        let me = self.config.me;
        let is_right = |given: &Given| {
            let mut partitions = given.partitions.iter();
            partitions.all(|partition| map.owner(*partition) == me && wanted.owner(*partition) == given.to)
        };
        if !self.giving.given.as_ref().is_none_or(is_right) {
            self.give_up(now, Why::Changed);
        }
        if self.giving.is_idle() {
            self.giving.again_at = Some(self.giving.again_at.unwrap_or(now));
        }
    }

    /// Who has come may wait for what an earlier life was giving; who has gone does not.
    fn see_others(&mut self, now: Moment) {
        let Giving { unreleased, others, earlier, .. } = &mut self.giving;
        let Shares { map, wanted, .. } = &self.config.shares;
        let are = map.backends().iter().chain(wanted.backends()).copied();
        let are: BTreeSet<NodeId> = are.filter(|other| *other != self.config.me).collect();
        unreleased.retain(|other, _| are.contains(other));
        for other in are.difference(others) {
            unreleased.entry(*other).or_insert((*earlier, now));
        }
        *others = are;
    }

    /// When it is to be looked whether there is something to give.
    pub(super) fn next_giving_at(&self) -> Option<Moment> {
        let may = self.giving.is_idle() && self.start.is_none() && !self.state_work.holds_moves();
        self.giving.again_at.filter(|_| may)
    }

    /// It is known whether the map was put.
    pub(super) fn on_committed(&mut self, now: Moment, committed: Committed) {
        let is_asked = |given: &&mut Given| given.stage == Stage::Committing;
        let Some(given) = self.giving.given.as_mut().filter(is_asked) else { return };
        match committed {
            Committed::As(revision) => {
                given.stage = Stage::Committed(revision);
                self.see_committed(now);
            }
            Committed::Not => {
                let (to, sealed_in) = (given.to, given.sealed_in);
                self.giving.given = None;
                self.giving.standstill = Some(Standstill { taker: to, why: Why::NotPut });
                self.again_later(now);
                self.giving.unreleased.insert(to, (sealed_in, now));
                self.end_taker(now, to);
            }
        }
    }

    /// What was given is another's once a map has come here that says so, or a later one, by which it may have come back.
    fn see_committed(&mut self, now: Moment) {
        let (Shares { map, revision, .. }, me) = (&self.config.shares, self.config.me);
        let is_here = |given: &mut Given| matches!(given.stage, Stage::Committed(as_of) if as_of <= *revision);
        let Some(given) = self.giving.given.take_if(is_here) else { return };
        // What has come back, or is coming back, was cleared for that.
        let gone = given.partitions.iter().copied().filter(|partition| map.owner(*partition) != me);
        self.foreign.clear(gone.filter(|partition| !self.taking.takes(*partition)));
        self.counts.given += 1;
        self.giving.standstill = None;
        (self.giving.again_at, self.giving.again_after) = (Some(now), AGAIN_AFTER);
        self.end_taker(now, given.to);
    }
}
