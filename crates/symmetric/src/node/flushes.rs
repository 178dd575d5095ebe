//! Everything is to be gone: each home removes what it has, and the hot keys whose home it is by rounds.
//!
//! Always true: a client is told that everything is gone when all homes of the view in which it has asked have said so; so each item was gone for a moment between its asking and
//! the answer.

use std::collections::BTreeSet;

use guira_chain::Owned;
use guira_consistency::{Key, Wish, Writer};
use guira_item::{Delete, Moment, Operation};
use guira_routing::NodeId;

use super::{
    AskId, Node, NodeOutbox,
    asked::{Pending, Who},
};
use crate::{Asked, Items, Message, Replied, lanes::Open};

/// Which flush.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct FlushNumber(pub(super) u64);

/// One that is under way.
#[derive(Clone, Debug)]
pub(super) struct Flush {
    /// Who is told: a client, or another node.
    who: Who,
    /// Homes, or keys, of which nothing has been heard.
    left: usize,
    /// One of them may not have done it.
    has_failed: bool,
    until: Moment,
}

impl<I: Items> Node<I> {
    /// A client wants it.
    pub(super) fn on_flush(&mut self, now: Moment, id: AskId, out: &mut NodeOutbox) {
        let view = self.holder.view();
        let homes: BTreeSet<(NodeId, Writer)> = view.homes.iter().filter_map(|home| view.member(*home)).collect();
        if homes.is_empty() {
            self.answer(id, true, Replied::NotServing, out);
            return;
        }
        let until = now + self.config.answer_within;
        let number = self.open_flush(Who::Client(id), homes.len(), until);
        for home in homes {
            if home.0 == self.config.me {
                self.begin_flush(now, Who::Flush(number), out);
            } else {
                self.open_lane(now, Open::new(Who::Flush(number), Asked::Flush, home, until), out);
            }
        }
    }

    fn open_flush(&mut self, who: Who, left: usize, until: Moment) -> FlushNumber {
        self.last_flush = FlushNumber(self.last_flush.0 + 1);
        self.flushes.insert(self.last_flush, Flush { who, left, has_failed: false, until });
        self.last_flush
    }

    /// Removes what is here.
    pub(super) fn begin_flush(&mut self, now: Moment, who: Who, out: &mut NodeOutbox) {
        let view = self.holder.view();
        let is_settled = |(shard, home): (usize, &NodeId)| *home != self.config.me || self.answers_for(shard);
        if !self.serves(now) || !view.homes.iter().enumerate().all(is_settled) {
            self.end_flush(who, Replied::NotServing, out);
            return;
        }
        // What is copied from another home goes when that removes it; what is hot, or was written back and is not yet forgotten by all, by what is asked of its key below, once.
        let (time, shards, copied) = (self.time(now), view.homes.len(), self.homecoming.copied_shard());
        let is_copied = |key: &[u8]| copied.is_some() && super::slot_of(key, shards) == copied;
        let there: BTreeSet<&[u8]> = self.replica.keys().map(|(key, _)| &key[..]).collect();
        self.shard.clear(time, &|key| is_copied(key) || there.contains(key));
        let me = Some(self.config.me);
        let keys: Vec<Key> = self
            .replica
            .keys()
            .map(|(key, _)| key.clone())
            .filter(|key| view.home_of(super::hash_of(key)) == me)
            .collect();
        let until = now + self.config.answer_within;
        // One more, so that it does not end while it begins.
        let number = self.open_flush(who, keys.len() + 1, until);
        let wish = Wish::new(Owned::of(&Operation::Delete(Delete { cas: None, invalidate: None })), self.time(now));
        for key in keys {
            let wish = wish.clone();
            self.try_here(now, Pending { who: Who::Flush(number), key, wish, until }, out);
        }
        self.on_flush_part(number, true, out);
    }

    /// A hot key is gone, or may not be.
    pub(super) fn on_flushed_key(&mut self, _: Moment, number: FlushNumber, told: &Replied, out: &mut NodeOutbox) {
        self.on_flush_part(number, matches!(told, Replied::Answer(_)), out);
    }

    /// A home has removed everything, or may not have.
    pub(super) fn on_flushed_home(&mut self, number: FlushNumber, told: &Replied, out: &mut NodeOutbox) {
        self.on_flush_part(number, *told == Replied::Flushed, out);
    }

    fn on_flush_part(&mut self, number: FlushNumber, is_done: bool, out: &mut NodeOutbox) {
        let Some(flush) = self.flushes.get_mut(&number) else { return };
        flush.left -= 1;
        flush.has_failed |= !is_done;
        if flush.left == 0
            && let Some(Flush { who, has_failed, .. }) = self.flushes.remove(&number)
        {
            self.end_flush(who, if has_failed { Replied::Unknown } else { Replied::Flushed }, out);
        }
    }

    fn end_flush(&mut self, who: Who, told: Replied, out: &mut NodeOutbox) {
        match who {
            Who::Client(id) => self.answer(id, false, told, out),
            Who::Flush(number) => self.on_flushed_home(number, &told, out),
            Who::Peer(node, request) => {
                self.serving.remove(&request);
                if told != Replied::NotServing {
                    // For good: what was gone once, for a moment, and is there again stays.
                    self.shard.settle(request, told.clone(), None);
                }
                out.sends.push((node, Message::Replied { request, told }));
            }
        }
    }

    pub(super) fn end_overdue_flushes(&mut self, now: Moment, out: &mut NodeOutbox) {
        let is_over = |(number, flush): (&FlushNumber, &Flush)| (now >= flush.until).then_some(*number);
        let over: Vec<FlushNumber> = self.flushes.iter().filter_map(is_over).collect();
        for number in over {
            if let Some(Flush { who, .. }) = self.flushes.remove(&number) {
                self.end_flush(who, Replied::Unknown, out);
            }
        }
    }
}
