//! Answers that come later: where they are kept until all of a batch are there.
//!
//! Always true: a reply reaches the batch it belongs to, or nobody if nobody waits any more; what the values of late answers take is bounded
//! over all who share a count of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use guira_item::{Answer, Failure, Sink, Ticket, VALUE_SLACK_LEN};

use crate::Reply;

/// The place of an answer among those that come later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Whose batch it is.
    pub ticket: Ticket,
    /// Tells the batch from earlier ones under the same ticket.
    pub serial: u64,
    /// The place among the batch's late answers.
    pub at: u32,
}

/// A batch whose answers are not all there.
#[derive(Debug)]
struct Batch {
    serial: u64,
    /// The index of the first request that is answered later.
    first: usize,
    replies: Vec<Option<Reply>>,
    open: usize,
}

/// The batches of one worker that are answered later.
#[derive(Debug)]
pub struct Late {
    batches: HashMap<Ticket, Batch>,
    ready: VecDeque<Ticket>,
    next_serial: u64,
    /// Bytes of values that are kept, over all workers.
    kept_len: Arc<AtomicUsize>,
    kept_len_max: usize,
}

impl Late {
    /// None are there. `kept_len` counts the bytes of values that are kept, at most `kept_len_max`, for all who share it.
    pub fn new(kept_len: Arc<AtomicUsize>, kept_len_max: usize) -> Self {
        Self { batches: HashMap::new(), ready: VecDeque::new(), next_serial: 0, kept_len, kept_len_max }
    }

    /// The serial of the next batch.
    pub fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Keeps a batch of which the requests from `first` on are answered later: those whose replies are `None` yet will come.
    pub fn open(&mut self, ticket: Ticket, serial: u64, first: usize, replies: Vec<Option<Reply>>) {
        let open = replies.iter().filter(|reply| reply.is_none()).count();
        let replies = replies.into_iter().map(|reply| reply.map(|reply| self.kept(reply))).collect();
        if open == 0 {
            self.ready.push_back(ticket);
        }
        let earlier = self.batches.insert(ticket, Batch { serial, first, replies, open });
        debug_assert!(earlier.is_none(), "one batch at a time");
    }

    /// Counts a reply; too many bytes at once become a failure, which costs nothing.
    fn kept(&self, reply: Reply) -> Reply {
        let len = reply.value_len();
        if len > 0 && self.kept_len.fetch_add(len, Relaxed) + len > self.kept_len_max {
            self.kept_len.fetch_sub(len, Relaxed);
            // What a read has changed is changed.
            let has_changed =
                matches!(&reply, Reply::Hit(hit, _) if hit.won || hit.created || hit.expiry != hit.expiry_before);
            let failure = Failure::Busy.or_unknown(has_changed);
            return Reply::Answer(Answer::Failed(failure), None);
        }
        reply
    }

    /// An answer has come.
    pub fn put(&mut self, place: Place, reply: Reply) {
        let Place { ticket, serial, at } = place;
        if self.batches.get(&ticket).is_none_or(|batch| batch.serial != serial) {
            // Abandoned.
            return;
        }
        let reply = self.kept(reply);
        let batch = self.batches.get_mut(&ticket).expect("it is there");
        let place = &mut batch.replies[at as usize];
        debug_assert!(place.is_none(), "answered once");
        *place = Some(reply);
        batch.open -= 1;
        if batch.open == 0 {
            self.ready.push_back(ticket);
        }
    }

    /// A batch that is answered.
    pub fn next_ready(&mut self) -> Option<Ticket> {
        while let Some(ticket) = self.ready.pop_front() {
            if self.batches.get(&ticket).is_some_and(|batch| batch.open == 0) {
                return Some(ticket);
            }
        }
        None
    }

    /// Hands over the answers of a batch.
    ///
    /// # Panics
    /// [`Late::next_ready`] has not named it.
    pub fn deliver<S: Sink>(&mut self, ticket: Ticket, sink: &mut S) {
        let (first, replies) = self.close(ticket);
        replies.zip(first..).for_each(|(reply, index)| give(reply, index, sink));
    }

    /// The answers of a batch, for who has no sink.
    ///
    /// # Panics
    /// [`Late::next_ready`] has not named it.
    pub fn take(&mut self, ticket: Ticket) -> Vec<Reply> {
        self.close(ticket).1.collect()
    }

    /// The index of a batch's first answer, and its answers, each of which is no longer kept when it is handed over.
    fn close(&mut self, ticket: Ticket) -> (usize, impl Iterator<Item = Reply>) {
        let batch = self.batches.remove(&ticket).expect("named by next_ready");
        let replies = batch.replies.into_iter().map(|reply| {
            let reply = reply.expect("all are there");
            self.kept_len.fetch_sub(reply.value_len(), Relaxed);
            reply
        });
        (batch.first, replies)
    }

    /// Nobody waits for it any more.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Some(batch) = self.batches.remove(&ticket) {
            let len: usize = batch.replies.iter().flatten().map(Reply::value_len).sum();
            self.kept_len.fetch_sub(len, Relaxed);
        }
    }
}

/// Puts a reply into a sink.
pub fn give<S: Sink>(reply: Reply, index: usize, sink: &mut S) {
    match reply {
        Reply::Hit(hit, Some(value)) => {
            sink.reserve(index, &hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(&value);
            sink.commit(index, &hit);
        }
        Reply::Hit(hit, None) => sink.metadata(index, &hit),
        Reply::Answer(answer, death) => {
            if let Some(death) = death {
                sink.found_dead(index, death);
            }
            sink.answer(index, answer);
        }
    }
}
