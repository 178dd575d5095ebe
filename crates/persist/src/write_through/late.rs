//! Answers that come later: where they are kept until all of a batch are there, and how other threads bring them.
//!
//! Always true: a reply reaches the worker whose client asked, or nobody if nobody waits any more; what the values of late answers
//! take is bounded over all workers; mail to a worker that has ended goes to one that has not.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use guira_item::{
    Answer, Sink, Ticket, VALUE_SLACK_LEN, Wake,
    store::{Record, StoreError, Written},
};

use super::chain::Reply;

/// Whose answer it is.
#[derive(Clone, Debug)]
pub(super) struct ReplyTo {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) ticket: Ticket,
    /// Tells a batch from earlier ones under the same ticket.
    pub(super) serial: u64,
    /// The place among the batch's late answers.
    pub(super) at: u32,
}

/// What another thread has for a worker.
pub(super) enum Mail {
    /// An item has been read.
    Read(Box<[u8]>, Result<Option<Record<Arc<[u8]>>>, StoreError>),
    /// A change has been written.
    Written(Box<[u8]>, Result<Written, StoreError>),
    /// The `flush_all` that was under way has been written.
    Flushed(Result<Written, StoreError>),
    /// That one which may not have been written is not to be has been written.
    TakenBack(Result<Written, StoreError>),
    /// An answer.
    Reply(ReplyTo, Reply),
}

/// Where a worker gets its mail.
pub(super) struct Mailbox {
    /// `None` once the worker has ended.
    mail: Mutex<Option<Vec<Mail>>>,
    wake: Wake,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

impl Mailbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<Mail>>> {
        // Mail is moved in and out whole.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the mail back if the worker has ended.
    fn post(&self, letter: Mail) -> Result<(), Mail> {
        let mut mail = self.lock();
        let Some(letters) = &mut *mail else { return Err(letter) };
        let is_first = letters.is_empty();
        letters.push(letter);
        drop(mail);
        if is_first {
            (self.wake)();
        }
        Ok(())
    }

    /// Takes what there is; `into` is empty.
    pub(super) fn take(&self, into: &mut Vec<Mail>) {
        if let Some(letters) = &mut *self.lock() {
            std::mem::swap(letters, into);
        }
    }
}

/// The mailboxes of all workers.
#[derive(Default, Debug)]
pub(super) struct PostOffice(RwLock<Vec<Arc<Mailbox>>>);

impl PostOffice {
    pub(super) fn open(&self, wake: Wake) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox { mail: Mutex::new(Some(Vec::new())), wake });
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&mailbox));
        mailbox
    }

    /// A worker ends; what it has not seen to goes to another.
    pub(super) fn close(&self, mailbox: &Arc<Mailbox>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, mailbox));
        let left = mailbox.lock().take();
        for letter in left.into_iter().flatten() {
            self.forward(letter);
        }
    }

    /// Brings `letter` to `to`, or to whoever is there.
    pub(super) fn post(&self, to: &Mailbox, letter: Mail) {
        if let Err(letter) = to.post(letter) {
            self.forward(letter);
        }
    }

    fn forward(&self, mut letter: Mail) {
        if let Mail::Reply(..) = letter {
            // Nobody waits for it.
            return;
        }
        for mailbox in self.0.read().unwrap_or_else(PoisonError::into_inner).iter() {
            match mailbox.post(letter) {
                Ok(()) => return,
                Err(back) => letter = back,
            }
        }
        // All have ended, and the server with them.
    }
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
pub(super) struct Late {
    batches: HashMap<Ticket, Batch>,
    ready: VecDeque<Ticket>,
    next_serial: u64,
    /// Bytes of values that are kept, over all workers.
    kept_len: Arc<AtomicUsize>,
    kept_len_max: usize,
}

impl Late {
    pub(super) fn new(kept_len: Arc<AtomicUsize>, kept_len_max: usize) -> Self {
        Self { batches: HashMap::new(), ready: VecDeque::new(), next_serial: 0, kept_len, kept_len_max }
    }

    /// The serial of the next batch.
    pub(super) fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Keeps a batch of which the requests from `first` on are answered later: those whose replies are `None` yet will come.
    pub(super) fn open(&mut self, ticket: Ticket, serial: u64, first: usize, replies: Vec<Option<Reply>>) {
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
            let unknown =
                matches!(&reply, Reply::Hit(hit, _) if hit.won || hit.created || hit.expiry != hit.expiry_before);
            return Reply::Answer(Answer::Failed { unknown }, None);
        }
        reply
    }

    /// An answer has come.
    pub(super) fn put(&mut self, reply_to: &ReplyTo, reply: Reply) {
        let ReplyTo { ticket, serial, at, .. } = reply_to;
        if self.batches.get(ticket).is_none_or(|batch| batch.serial != *serial) {
            // Abandoned.
            return;
        }
        let reply = self.kept(reply);
        let batch = self.batches.get_mut(ticket).expect("it is there");
        let place = &mut batch.replies[*at as usize];
        debug_assert!(place.is_none(), "answered once");
        *place = Some(reply);
        batch.open -= 1;
        if batch.open == 0 {
            self.ready.push_back(*ticket);
        }
    }

    /// A batch that is answered.
    pub(super) fn next_ready(&mut self) -> Option<Ticket> {
        while let Some(ticket) = self.ready.pop_front() {
            if self.batches.get(&ticket).is_some_and(|batch| batch.open == 0) {
                return Some(ticket);
            }
        }
        None
    }

    /// Hands over the answers of a batch.
    pub(super) fn deliver<S: Sink>(&mut self, ticket: Ticket, sink: &mut S) {
        let batch = self.batches.remove(&ticket).expect("named by next_ready");
        for (at, reply) in batch.replies.into_iter().enumerate() {
            let reply = reply.expect("all are there");
            self.kept_len.fetch_sub(reply.value_len(), Relaxed);
            give(reply, batch.first + at, sink);
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn abandon(&mut self, ticket: Ticket) {
        if let Some(batch) = self.batches.remove(&ticket) {
            let len: usize = batch.replies.iter().flatten().map(Reply::value_len).sum();
            self.kept_len.fetch_sub(len, Relaxed);
        }
    }
}

/// Puts a reply into a sink.
pub(super) fn give<S: Sink>(reply: Reply, index: usize, sink: &mut S) {
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
