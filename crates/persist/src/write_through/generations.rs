//! Generations, which a `flush_all` begins, and versions: what all keys share.
//!
//! Always true: versions are reserved in the store before they are given, so no restart gives one again; a generation is in the store
//! before it begins here; it begins here and in the engine at one moment, with nobody putting anything into the engine meanwhile.
//!
//! Lock order: generation, flushes.

use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering::Relaxed};

use guira_item::{
    Engine, Time,
    store::{Generation, Store, StoreError, Write, Written},
};

use super::{
    WriteThrough,
    flushes::{Flush, Flushes, Wanted},
    mail::{Mail, Mailbox, ReplyTo},
};

/// Versions that are reserved at a time: few writes of the state, and few versions lost at a restart.
const VERSIONS_AT_ONCE: u64 = 1 << 20;

/// The last version before they begin again at 1, which every engine can have: 2^38 - 2^33. A shard comes there after five months of
/// twenty thousand changes a second.
pub(crate) const VERSION_LAST: u64 = (1 << 38) - (1 << 33);

/// What a `flush_all` changes for everybody.
#[derive(Clone, Copy, Debug)]
pub(super) struct Versions {
    pub(super) generation: Generation,
    /// Versions go on from here.
    pub(super) floor: u64,
    /// Counts the floors.
    pub(super) floors: u64,
}

impl<E: Engine, S: Store> WriteThrough<E, S> {
    pub(super) fn versions(&self) -> Versions {
        *self.generation.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn flushes(&self) -> MutexGuard<'_, Flushes> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that no restart gives versions up to `version` again.
    pub(super) fn reserve(&self, version: u64) {
        self.highest_version.fetch_max(version, Relaxed);
        if version <= self.versions_reserved.load(Relaxed) {
            return;
        }
        let mut flushes = self.flushes();
        if flushes.reserve(version, VERSIONS_AT_ONCE) {
            // Before whatever has the version. It is only refused if nothing is written any more.
            self.store.write(vec![Write::State(flushes.given())], Box::new(|_| {}));
            self.versions_reserved.store(flushes.given().versions_reserved, Relaxed);
        }
    }

    /// Begins the next generation if its time has come.
    pub(super) fn flush_if_due(&self, now: Time) {
        let is_due = || (1..=now.0).contains(&self.flush_at_s.load(Relaxed));
        if !is_due() {
            return;
        }
        let mut versions = self.generation.write().unwrap_or_else(PoisonError::into_inner);
        // Others wait for whoever was first.
        if is_due() {
            let mut flushes = self.flushes();
            let generation = flushes.begin_due();
            // That it was to be is in the store already, unless another is on its way to its place.
            let due_failed = Arc::clone(&self.due_failed);
            let done = move |written: Result<Written, StoreError>| due_failed.store(written.is_err(), Relaxed);
            self.store.write(vec![Write::State(flushes.given())], Box::new(done));
            self.begin(&mut versions, generation, now);
            self.flush_at_s.store(0, Relaxed);
        }
    }

    /// Has the store write a `flush_all`, once none is under way; `reply_to` is told when that is over.
    pub(super) fn want_flush(&self, at: Time, now: Time, reply_to: ReplyTo) {
        let wanted = if at <= now { Wanted::Now } else { Wanted::At(at.0, (self.config.clock)().to_unix_s(at)) };
        let mailbox = Arc::clone(&reply_to.mailbox);
        let mut flushes = self.flushes();
        flushes.want(wanted, reply_to);
        self.write_next_flush(&mut flushes);
        self.take_back_again(&mut flushes, &mailbox);
    }

    fn write_next_flush(&self, flushes: &mut Flushes) {
        if let Some(mailbox) = flushes.next() {
            self.write_state(flushes, &mailbox, Mail::Flushed);
        }
    }

    /// Has the store told once more, if need be, that a `flush_all` is not to be.
    fn take_back_again(&self, flushes: &mut Flushes, mailbox: &Arc<Mailbox>) {
        if flushes.tries_again() {
            self.write_state(flushes, mailbox, Mail::TakenBack);
        }
    }

    fn write_state(&self, flushes: &Flushes, mailbox: &Arc<Mailbox>, mail: fn(Result<Written, StoreError>) -> Mail) {
        let (post, mailbox) = (Arc::clone(&self.post), Arc::clone(mailbox));
        self.store
            .write(vec![Write::State(flushes.given())], Box::new(move |written| post.post(&mailbox, mail(written))));
    }

    /// Whether items may be changed; if not, the store is asked again whether they may.
    pub(super) fn may_change(&self, mailbox: &Arc<Mailbox>) -> bool {
        let has_failed = self.due_failed.load(Relaxed);
        if self.is_settled.load(Relaxed) && !has_failed {
            return true;
        }
        let mut flushes = self.flushes();
        if has_failed && flushes.give_again() {
            self.due_failed.store(false, Relaxed);
            self.is_settled.store(false, Relaxed);
        }
        self.take_back_again(&mut flushes, mailbox);
        flushes.is_settled() && !self.due_failed.load(Relaxed)
    }

    /// The `flush_all` that was under way has been written, or may not have been; who waits for that.
    pub(super) fn on_flush_written(
        &self,
        written: Result<(), &StoreError>,
        now: Time,
        mailbox: &Arc<Mailbox>,
    ) -> Vec<ReplyTo> {
        let mut versions = self.generation.write().unwrap_or_else(PoisonError::into_inner);
        let mut flushes = self.flushes();
        if written.is_err() {
            let replies = flushes.take_back(versions.generation);
            if self.is_settled.swap(false, Relaxed) {
                tracing::warn!("a flush_all may not have been written: nothing is changed until the store has said so");
            }
            self.write_state(&flushes, mailbox, Mail::TakenBack);
            return replies;
        }
        let (flush, replies) = flushes.settle();
        match flush {
            Flush::Begin(generation) => {
                self.flush_at_s.store(0, Relaxed);
                self.begin(&mut versions, generation, now);
            }
            Flush::At(second, _) => self.flush_at_s.store(second, Relaxed),
        }
        self.write_next_flush(&mut flushes);
        replies
    }

    /// The store has, or has not, taken that a `flush_all` is not to be; who had waited behind it in vain.
    pub(super) fn on_taken_back(&self, written: Result<(), &StoreError>) -> Vec<ReplyTo> {
        let mut flushes = self.flushes();
        let replies = flushes.on_taken_back(written.is_ok());
        self.is_settled.store(flushes.is_settled(), Relaxed);
        self.write_next_flush(&mut flushes);
        replies
    }

    /// Nothing of earlier generations is there from now on.
    fn begin(&self, versions: &mut Versions, generation: Generation, now: Time) {
        if versions.generation < generation {
            versions.generation = generation;
            // An engine tells what was flushed by its version.
            versions.floor = self.highest_version.load(Relaxed);
            versions.floors += 1;
            self.engine.flush_all(now, now);
        }
    }
}

/// The version after `last`.
pub(super) fn next_version(last: u64) -> u64 {
    if last >= VERSION_LAST { 1 } else { last + 1 }
}
