//! Generations, which a `flush_all` begins, and versions: what all keys share.
//!
//! Always true: versions are reserved in the store before they are given, so no restart gives one again; a generation is in the store
//! before it begins here; it begins here and in the engine at one moment, with nobody putting anything into the engine meanwhile;
//! `state` is what was last given to the store.
//!
//! Lock order: generation, state.

use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering::Relaxed};

use guira_item::{
    Answer, Engine, Time,
    store::{Generation, Store, StoreError, StoreState, Write},
};

use super::{
    WriteThrough,
    chain::Reply,
    late::{Flush, Mail, ReplyTo},
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

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that no restart gives versions up to `version` again.
    pub(super) fn reserve(&self, version: u64) {
        self.highest_version.fetch_max(version, Relaxed);
        if version <= self.versions_reserved.load(Relaxed) {
            return;
        }
        let mut state = self.state();
        if version > state.versions_reserved {
            state.versions_reserved = version + VERSIONS_AT_ONCE;
            // Before whatever has the version. It is only refused if nothing is written any more.
            self.store.write(vec![Write::State(*state)], Box::new(|_| {}));
            self.versions_reserved.store(state.versions_reserved, Relaxed);
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
            let mut state = self.state();
            state.generation = Generation(state.generation.0 + 1);
            // Unless another has taken its place meanwhile.
            if state.flush_at_unix_s == self.flush_at_unix_s.load(Relaxed) {
                state.flush_at_unix_s = 0;
            }
            // That it was to be is in the store already.
            self.store.write(vec![Write::State(*state)], Box::new(|_| {}));
            self.begin(&mut versions, state.generation, now);
            self.flush_at_s.store(0, Relaxed);
        }
    }

    /// Has the store write a `flush_all`; `reply_to` is told once that is over.
    pub(super) fn write_flush(&self, at: Time, now: Time, reply_to: ReplyTo) {
        let (post, mailbox) = (Arc::clone(&self.post), Arc::clone(&reply_to.mailbox));
        let mut state = self.state();
        let flush = if at <= now {
            state.generation = Generation(state.generation.0 + 1);
            state.flush_at_unix_s = 0;
            // One that was to come has been overtaken.
            self.flush_at_s.store(0, Relaxed);
            Flush::Begin(state.generation)
        } else {
            state.flush_at_unix_s = (self.config.clock)().to_unix_s(at);
            Flush::At(at.0, state.flush_at_unix_s)
        };
        let done = Box::new(move |written| post.post(&mailbox, Mail::Flushed(reply_to, flush, written)));
        self.store.write(vec![Write::State(*state)], done);
    }

    /// A `flush_all` has been written, or may not have been.
    pub(super) fn on_flush_written(&self, flush: Flush, written: Result<(), &StoreError>, now: Time) -> Reply {
        match written {
            Ok(()) => {
                self.carry_out(flush, now);
                Reply::Answer(Answer::Deleted, None)
            }
            Err(error) => {
                self.take_back(flush);
                Reply::failed(error)
            }
        }
    }

    fn carry_out(&self, flush: Flush, now: Time) {
        match flush {
            Flush::Begin(generation) => {
                let mut versions = self.generation.write().unwrap_or_else(PoisonError::into_inner);
                self.begin(&mut versions, generation, now);
            }
            Flush::At(second, unix_s) => {
                // Unless another has overtaken it.
                let state = self.state();
                if state.flush_at_unix_s == unix_s {
                    self.flush_at_unix_s.store(unix_s, Relaxed);
                    self.flush_at_s.store(second, Relaxed);
                }
            }
        }
    }

    /// A `flush_all` may not have been written: what is written next says that it is not to be, unless another has come since. Were it
    /// left, a store that goes on would have it some day, and what was stored meanwhile would be gone with the next start.
    fn take_back(&self, flush: Flush) {
        let begun = self.versions().generation;
        let mut state = self.state();
        match flush {
            Flush::Begin(generation) if state.generation == generation && begun < generation => {
                state.generation = begun;
            }
            Flush::At(_, unix_s) if state.flush_at_unix_s == unix_s => {
                state.flush_at_unix_s = self.flush_at_unix_s.load(Relaxed);
            }
            _ => return,
        }
        self.store.write(vec![Write::State(*state)], Box::new(|_| {}));
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
