//! What is on its way for one key: its chain, and the cache nodes that have yet to hear of a change.
//!
//! Always true: there is work for a key while the store reads or writes it, or a cache node may serve what is older than what the store has;
//! and only then.

use guira_chain::{Base, Chain, Item, Next, Owned, Reply, Setting, base_of, record_of};
use guira_cluster::{CLOCK, SessionId};
use guira_item::{
    Get, Key, Moment, Operation, Time,
    store::{Condition, Found, StoreError, StoreErrorKind, Write, Written},
};
use guira_routing::NodeId;
use serde::Serialize;

use super::{Backend, ReplyTo};
use crate::{Mutant, Outbox, ScanNumber, StoreCall};

/// Work for one key.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Work {
    chain: Chain<ReplyTo>,
    /// A change that the store has, or may have.
    told: Option<Told>,
    /// It was begun for a taker, who is told what is read for that scan.
    looks_for: Option<ScanNumber>,
}

/// A change of which cache nodes are told.
#[derive(Clone, Debug, Serialize)]
struct Told {
    outcome: Result<(), StoreError>,
    /// Sessions that have to hear of it, or end.
    left: usize,
    /// They have to cease to serve what there was, and are told the new item once all have (R7).
    is_held: bool,
}

/// What asks for what is there, and nothing else.
pub(super) const LOOK: Operation<'static> =
    Operation::Get(Get { value: false, bump: false, tells: true, ..Get::PLAIN });

impl Backend {
    /// Carries out an operation behind what is on its way for its key.
    pub(super) fn ask(
        &mut self,
        now: Moment,
        key: Key<'_>,
        operation: &Operation<'_>,
        reply_to: ReplyTo,
        out: &mut Outbox,
    ) {
        self.operations += 1;
        let (operation, time) = (Owned::of(operation), self.config.clock.time(now));
        if let Some(work) = self.keys.get_mut(key.as_bytes()) {
            work.chain.push(operation, time, reply_to);
            return;
        }
        let looks_for = if let ReplyTo::Taker { number, .. } = reply_to { Some(number) } else { None };
        let mut work = Work { looks_for, ..Work::default() };
        work.chain.push(operation, time, reply_to);
        self.drive(now, key.as_bytes().into(), work, out);
    }

    /// A cache node wants an item.
    pub(super) fn fetch(&mut self, now: Moment, key: Key<'_>, cache: NodeId, session: SessionId, out: &mut Outbox) {
        if self.config.mutant == Some(Mutant::R5)
            && let Some(work) = self.keys.get(key.as_bytes())
            && let Base::Present(item) = work.chain.base()
        {
            // The fault: past what is on its way.
            let item = item.clone();
            self.give(now, key.as_bytes(), Some(&item), cache, session);
            return;
        }
        self.ask(now, key, &LOOK, ReplyTo::Fetch { cache, session }, out);
    }

    /// Goes on with a key for as long as nothing has to be waited for.
    fn drive(&mut self, now: Moment, key: Box<[u8]>, mut work: Work, out: &mut Outbox) {
        let mut replies = std::mem::take(&mut self.replies);
        loop {
            let mut setting = Setting {
                now: self.config.clock.time(now),
                generation: self.state.generation,
                key_len: key.len(),
                len_max: self.config.item_len_max,
                last_version: &mut self.last_version,
                next_version: |last| last + 1,
                versions_shown: true,
                buries: self.config.mutant != Some(Mutant::R1Bury),
            };
            let next = work.chain.advance(&mut setting, &mut replies);
            self.answer(now, &key, &work, &mut replies, out);
            match next {
                Next::Read => {
                    out.store.push(StoreCall::Read(key.clone()));
                    self.keys.insert(key, work);
                    break;
                }
                Next::Write => match self.may_write() {
                    Err(error) => {
                        work.chain.on_written(Err(&error), &mut replies);
                        self.answer(now, &key, &work, &mut replies, out);
                    }
                    Ok(()) => {
                        if self.config.mutant == Some(Mutant::R4) {
                            // The fault: cache nodes are told before the store has it, and nobody waits for them.
                            self.tell_caches(now, &key, present(work.chain.written()));
                        }
                        let write = write_of(key.clone(), work.chain.written(), self.config.clock.time(now));
                        out.store.push(StoreCall::Write(key.clone(), write));
                        self.keys.insert(key, work);
                        break;
                    }
                },
                Next::Rest => break,
            }
        }
        self.replies = replies;
    }

    /// Why nothing may be written now, if that is so.
    fn may_write(&self) -> Result<(), StoreError> {
        let refused = |told: &str| Err(StoreError::refused(StoreErrorKind::Unavailable, told));
        if !self.state_work.is_settled() {
            return refused("the store has not said what became of a flush_all");
        }
        if self.last_version > self.state.versions_reserved {
            return refused("the store has no versions reserved");
        }
        Ok(())
    }

    pub(super) fn on_read(&mut self, now: Moment, key: Box<[u8]>, found: Result<Found, StoreError>, out: &mut Outbox) {
        if self.on_foreign_read(now, &key, found.is_ok(), out) {
            return;
        }
        let Some(mut work) = self.keys.remove(&key) else { return };
        match found {
            Ok(Found { record, is_news }) => {
                let time = self.config.clock.time(now);
                work.chain.on_read(base_of(record, self.state.generation, &CLOCK, time));
                if is_news && work.looks_for.is_none_or(|number| !self.giving.reads_for(number)) {
                    self.tell_news(now, &key, present(work.chain.base()));
                }
            }
            Err(error) => {
                let mut replies = std::mem::take(&mut self.replies);
                work.chain.on_read_failed(&error, &mut replies);
                self.answer(now, &key, &work, &mut replies, out);
                self.replies = replies;
            }
        }
        self.drive(now, key, work, out);
    }

    /// The store has a change, or has not, or may have: then cache nodes are told, and heard, before anybody else (R4).
    pub(super) fn on_written(
        &mut self,
        now: Moment,
        key: Box<[u8]>,
        written: Result<Written, StoreError>,
        out: &mut Outbox,
    ) {
        if self.on_foreign_written(&key, &written, out) {
            return;
        }
        let Some(mut work) = self.keys.remove(&key) else { return };
        let outcome = written.map(|written| assert_eq!(written, Written::All, "written under no condition"));
        let item = present(work.chain.written());
        // Nothing is a new item to nobody: it is enough that all hear of it.
        let is_held = outcome.is_ok()
            && item.is_some()
            && self.holders(&key).nth(1).is_some()
            && !matches!(self.config.mutant, Some(Mutant::R4 | Mutant::R7));
        let left = match &outcome {
            _ if self.config.mutant == Some(Mutant::R4) => 0,
            Ok(()) if is_held => self.hold(now, &key),
            Ok(()) => self.tell_caches(now, &key, item),
            Err(error) if error.unknown => self.tell_caches(now, &key, None),
            Err(_) => 0,
        };
        self.tell_change(now, &key, &outcome, present(work.chain.written()));
        work.told = Some(Told { outcome, left, is_held });
        self.finish_if_told(now, key, work, out);
    }

    /// One session has heard of the change of a key, or is void.
    pub(super) fn heard(&mut self, now: Moment, key: Box<[u8]>, out: &mut Outbox) {
        let Some(mut work) = self.keys.remove(&key) else { return };
        if let Some(told) = &mut work.told {
            told.left -= 1;
        }
        self.finish_if_told(now, key, work, out);
    }

    fn finish_if_told(&mut self, now: Moment, key: Box<[u8]>, mut work: Work, out: &mut Outbox) {
        match work.told.take_if(|told| told.left == 0) {
            None => drop(self.keys.insert(key, work)),
            Some(told) => {
                if told.is_held {
                    self.tell_held(now, &key, present(work.chain.written()));
                }
                let mut replies = std::mem::take(&mut self.replies);
                work.chain.on_written(told.outcome.as_ref().copied(), &mut replies);
                self.answer(now, &key, &work, &mut replies, out);
                self.replies = replies;
                self.drive(now, key, work, out);
            }
        }
    }

    /// Brings replies to who waits. What a cache node gets is what the store has now: its look may have come before a change.
    fn answer(&mut self, now: Moment, key: &[u8], work: &Work, replies: &mut Vec<(ReplyTo, Reply)>, out: &mut Outbox) {
        self.operations -= replies.len();
        for (reply_to, reply) in replies.drain(..) {
            match reply_to {
                ReplyTo::Request { asked, is_hot, value_len } => {
                    self.operations_len -= value_len;
                    self.reply(&asked, reply, out);
                    if is_hot && let Some(item) = present(work.chain.base()) {
                        self.tell_burst(now, key, item);
                    }
                }
                ReplyTo::Fetch { cache, session } => {
                    self.give(now, key, present(work.chain.base()), cache, session);
                }
                ReplyTo::Taker { to, number } => self.give_record(now, key, work.chain.base(), to, number),
                ReplyTo::Second { cache, per_s } => {
                    if let Some(item) = present(work.chain.base()) {
                        self.tell_second(now, key, item, cache, per_s);
                    }
                }
            }
        }
    }
}

fn present(base: &Base) -> Option<&Item> {
    match base {
        Base::Present(item) => Some(item),
        Base::Absent(_) | Base::Unknown => None,
    }
}

/// What the store has to do so that it has `base`.
fn write_of(key: Box<[u8]>, base: &Base, now: Time) -> Write {
    match base {
        Base::Present(item) if !item.expiry.is_past(now) => {
            Write::Put { key, record: record_of(item, &CLOCK), condition: Condition::Always }
        }
        _ => Write::Delete { key, condition: Condition::Always },
    }
}
