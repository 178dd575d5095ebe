//! A sink between an engine and the server's: it lets answers through until the first that the engine cannot give.

use std::sync::Arc;

use guira_item::{Answer, Death, Expiry, Get, Hit, Operation, PinnedValue, Request, Sink, VALUE_SLACK_LEN, gathered};

use guira_chain::{Reply, UseBefore};

/// Whether a read that the engine could answer has to change the item: its reader wins.
pub(super) fn wins(get: &Get, hit: &Hit) -> bool {
    let too_close = |deadline: Expiry| hit.expiry != Expiry::NEVER && hit.expiry.to_raw() < deadline.to_raw();
    get.wins && !hit.win_sent && (hit.stale || get.recache.is_some_and(too_close))
}

/// What became of a read behind the first one that stays open.
pub(super) enum Kept {
    /// The engine has not the item, or may not answer: then it has told how used the item was.
    Open(Option<UseBefore>),
    /// It has.
    Reply(Reply),
}

/// Lets the hits of a run of reads through, until one is open; keeps what comes then.
pub(super) struct Split<'s, T> {
    inner: &'s mut T,
    /// The index of the run's first request.
    offset: usize,
    requests: &'s [Request<'s>],
    kept: &'s mut Vec<Kept>,
    /// Room for values that are kept.
    room: &'s mut Vec<u8>,
    is_kept: bool,
}

impl<'s, T: Sink> Split<'s, T> {
    /// `kept` is empty.
    pub(super) fn new(
        inner: &'s mut T,
        offset: usize,
        requests: &'s [Request<'s>],
        kept: &'s mut Vec<Kept>,
        room: &'s mut Vec<u8>,
    ) -> Self {
        Self { inner, offset, requests, kept, room, is_kept: false }
    }

    fn wins(&self, index: usize, hit: &Hit) -> bool {
        matches!(&self.requests[index].operation, Operation::Get(get) if wins(get, hit))
    }

    fn keep(&mut self, index: usize, hit: &Hit, value: Option<Arc<[u8]>>) {
        let kept = if self.wins(index, hit) {
            Kept::Open(Some(UseBefore::of(hit)))
        } else {
            Kept::Reply(Reply::Hit(*hit, value))
        };
        self.kept.push(kept);
    }

    fn is_through(&self, index: usize, hit: &Hit) -> bool {
        self.kept.is_empty() && !self.wins(index, hit)
    }
}

impl<T: Sink> Sink for Split<'_, T> {
    #[inline]
    fn reserve(&mut self, index: usize, hit: &Hit) -> &mut [u8] {
        self.is_kept = !self.is_through(index, hit);
        if self.is_kept {
            self.room.resize(VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0);
            return self.room;
        }
        self.inner.reserve(self.offset + index, hit)
    }

    #[inline]
    fn commit(&mut self, index: usize, hit: &Hit) {
        if self.is_kept {
            let value = Arc::from(&self.room[VALUE_SLACK_LEN..][..hit.value_len]);
            self.keep(index, hit, Some(value));
        } else {
            self.inner.commit(self.offset + index, hit);
        }
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        if self.is_through(index, hit) {
            self.inner.pinned(self.offset + index, hit, value);
        } else {
            self.keep(index, hit, Some(gathered(&*value).into()));
        }
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        if self.is_through(index, hit) {
            self.inner.metadata(self.offset + index, hit);
        } else {
            self.keep(index, hit, None);
        }
    }

    fn answer(&mut self, _: usize, _: Answer) {
        // A miss, dead items among them, means that the store has to be asked.
        self.kept.push(Kept::Open(None));
    }

    fn found_dead(&mut self, _: usize, _: Death) {}
}
