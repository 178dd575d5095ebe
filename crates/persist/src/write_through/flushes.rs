//! What the store's state says, and the `flush_all`s that change it.
//!
//! Always true: one `flush_all` at a time is on its way to the store, so that what is known to be written is clear when one fails;
//! those that come meanwhile wait, and all that want the same share a write; what is given to the store says what is settled and what is on
//! its way; a generation's number that has begun is never given again; after one has failed nobody knows what the store has, and no item
//! is changed, until a state without it is known to be written: what is stored in a generation that the store takes for flushed would be
//! gone with the next start.

use std::{collections::VecDeque, sync::Arc};

use guira_item::store::{Generation, StoreState};

use super::mail::{Mailbox, ReplyTo};

/// What a `flush_all` wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// The next generation, at once.
    Now,
    /// The next generation at this second of the server's time, which is this second of Unix time.
    At(u32, u64),
}

/// What one that is on its way does once it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flush {
    /// This generation begins.
    Begin(Generation),
    /// The next one begins at this second of the server's time, which is this second of Unix time.
    At(u32, u64),
}

/// Whether the store is to be told what it may not have: that a `flush_all` is not to be, or that one whose time came has been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TakingBack {
    /// None has failed.
    No,
    /// It has been told, and has not answered.
    UnderWay,
    /// It has not taken that.
    Again,
}

/// The state, and who wants to change it.
#[derive(Debug)]
pub(super) struct Flushes {
    given: StoreState,
    /// When the next generation begins by itself, Unix time in seconds, of what is settled; 0: never.
    settled_at_unix_s: u64,
    under_way: Option<(Flush, Vec<ReplyTo>)>,
    taking_back: TakingBack,
    waiting: VecDeque<(Wanted, Vec<ReplyTo>)>,
}

impl Flushes {
    /// As the store has it.
    pub(super) fn new(state: StoreState) -> Self {
        Self {
            given: state,
            settled_at_unix_s: state.flush_at_unix_s,
            under_way: None,
            taking_back: TakingBack::No,
            waiting: VecDeque::new(),
        }
    }

    /// What the store is to be given.
    pub(super) fn given(&self) -> StoreState {
        self.given
    }

    /// Reserves versions; false if that many are already.
    pub(super) fn reserve(&mut self, version: u64, more: u64) -> bool {
        let is_new = version > self.given.versions_reserved;
        if is_new {
            self.given.versions_reserved = version + more;
        }
        is_new
    }

    /// Adds one that is wanted.
    pub(super) fn want(&mut self, wanted: Wanted, reply_to: ReplyTo) {
        match self.waiting.back_mut() {
            Some((last, replies)) if *last == wanted => replies.push(reply_to),
            _ => self.waiting.push_back((wanted, vec![reply_to])),
        }
    }

    /// Begins the next one that waits, if none is under way: then [`Flushes::given`] is to be written, and whose mailbox is returned is to
    /// hear of it.
    pub(super) fn next(&mut self) -> Option<Arc<Mailbox>> {
        if self.under_way.is_some() || !self.is_settled() {
            return None;
        }
        let (wanted, replies) = self.waiting.pop_front()?;
        let mailbox = Arc::clone(&replies[0].mailbox);
        let flush = match wanted {
            Wanted::Now => {
                self.given.generation = Generation(self.given.generation.0 + 1);
                // One that was to come is overtaken.
                self.given.flush_at_unix_s = 0;
                Flush::Begin(self.given.generation)
            }
            Wanted::At(second, unix_s) => {
                self.given.flush_at_unix_s = unix_s;
                Flush::At(second, unix_s)
            }
        };
        self.under_way = Some((flush, replies));
        Some(mailbox)
    }

    /// The one under way has been written: what it does, and who waits for it.
    pub(super) fn settle(&mut self) -> (Flush, Vec<ReplyTo>) {
        let (flush, replies) = self.under_way.take().expect("one is under way");
        self.settled_at_unix_s = match flush {
            Flush::Begin(_) => 0,
            Flush::At(_, unix_s) => unix_s,
        };
        (flush, replies)
    }

    /// The one under way may not have been written, in whatever generation `begun` the server is: [`Flushes::given`], which is to be
    /// written, says that it is not to be.
    pub(super) fn take_back(&mut self, begun: Generation) -> Vec<ReplyTo> {
        let (flush, replies) = self.under_way.take().expect("one is under way");
        // Unless another generation has begun by itself meanwhile.
        if flush == Flush::Begin(self.given.generation) {
            self.given.generation = begun;
        }
        self.given.flush_at_unix_s = self.settled_at_unix_s;
        self.taking_back = TakingBack::UnderWay;
        replies
    }

    /// Whether it is known what the store has.
    pub(super) fn is_settled(&self) -> bool {
        self.taking_back == TakingBack::No
    }

    /// The store has, or has not, taken that one is not to be. If not, those that wait have failed.
    pub(super) fn on_taken_back(&mut self, is_written: bool) -> Vec<ReplyTo> {
        if is_written {
            self.taking_back = TakingBack::No;
            return Vec::new();
        }
        self.taking_back = TakingBack::Again;
        self.waiting.drain(..).flat_map(|(_, replies)| replies).collect()
    }

    /// The state of a generation that began by itself may not have been written. False if it cannot be given again yet, for another is under
    /// way.
    pub(super) fn give_again(&mut self) -> bool {
        let is_free = self.under_way.is_none() && self.is_settled();
        if is_free {
            self.taking_back = TakingBack::Again;
        }
        is_free
    }

    /// Whether [`Flushes::given`] is to be written once more; from now on that is under way.
    pub(super) fn tries_again(&mut self) -> bool {
        let again = self.taking_back == TakingBack::Again;
        if again {
            self.taking_back = TakingBack::UnderWay;
        }
        again
    }

    /// The time of a settled one has come: the generation that begins. [`Flushes::given`] is to be written.
    pub(super) fn begin_due(&mut self) -> Generation {
        self.given.generation = Generation(self.given.generation.0 + 1);
        // Unless another is to take its place.
        if !matches!(self.under_way, Some((Flush::At(..), _))) {
            self.given.flush_at_unix_s = 0;
        }
        self.settled_at_unix_s = 0;
        self.given.generation
    }
}
