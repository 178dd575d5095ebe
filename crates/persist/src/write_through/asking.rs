//! A batch that is asked: what is answered at once, and what its keys' chains answer later.
//!
//! Always true: answers reach the sink in the order of the requests, so behind the first that comes later all are kept.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use guira_chain::{Chain, Owned, Place, Reply, UseBefore, give};
use guira_item::{
    Engine, Operation, Request, Sink, Ticket,
    store::{Store, StoreError, StoreErrorKind},
};

use super::{
    Worker, WriteThrough,
    mail::{Mailbox, ReplyTo},
};

/// Operations that may be on their way to or from the store, which take some hundred bytes each beside their values.
pub(super) const OPERATIONS_MAX: usize = 1 << 18;

/// Whether an engine has been asked for an item already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AskedEngine {
    No,
    /// It has not the item, or may not answer: then it has told how used the item was. Whoever has put it there since has put it
    /// into the store before.
    InVain(Option<UseBefore>),
}

/// A batch that is being answered.
pub(super) struct Asking {
    pub(super) ticket: Ticket,
    pub(super) serial: u64,
    /// The first request that is answered later, and the replies from there on.
    pub(super) late: Option<(usize, Vec<Option<Reply>>)>,
}

impl Asking {
    /// An answer has been found, or will come.
    pub(super) fn settle<T: Sink>(&mut self, index: usize, reply: Option<Reply>, sink: &mut T) {
        match (&mut self.late, reply) {
            (None, Some(reply)) => give(reply, index, sink),
            (None, None) => self.late = Some((index, vec![None])),
            (Some((_, replies)), reply) => replies.push(reply),
        }
    }
}

impl<E: Engine, S: Store> WriteThrough<E, S> {
    /// Answers at once, or has a chain answer later.
    pub(super) fn ask(
        &self,
        worker: &mut Worker<E>,
        request: &Request<'_>,
        asking: &Asking,
        index: usize,
        asked: AskedEngine,
    ) -> Option<Reply> {
        let key = request.key;
        let mut shard = self.shard(key.as_bytes());
        let reply_to = |mailbox: &Arc<Mailbox>| {
            let at = asking.late.as_ref().map_or(0, |(first, _)| index - first) as u32;
            ReplyTo { mailbox: Arc::clone(mailbox), place: Place { ticket: asking.ticket, serial: asking.serial, at } }
        };
        let mut operation = Owned::of(&request.operation);
        if let AskedEngine::InVain(use_before) = asked {
            operation.use_before = use_before;
        }
        if !shard.chains.contains_key(key.as_bytes())
            && let Operation::Get(get) = &request.operation
            && get.touch.is_none()
            && operation.use_before.is_none()
        {
            match self.read_now(worker, key, get, asked) {
                Ok(reply) => return Some(reply),
                Err(use_before) => operation.use_before = use_before,
            }
        }
        if self.operations.fetch_add(1, Relaxed) >= OPERATIONS_MAX {
            self.operations.fetch_sub(1, Relaxed);
            return Some(Reply::failed(&StoreError::refused(StoreErrorKind::Busy, "too much at a time")));
        }
        if let Some(chain) = shard.chains.get_mut(key.as_bytes()) {
            chain.push(operation, worker.now, reply_to(&worker.mailbox));
            return None;
        }
        let mut chain = Chain::default();
        chain.push(operation, worker.now, reply_to(&worker.mailbox));
        if self.drive(worker, &mut shard, key, &mut chain) {
            shard.chains.insert(key.as_bytes().into(), chain);
            return None;
        }
        self.operations.fetch_sub(1, Relaxed);
        let (_, reply) = worker.out.pop().expect("what rests has answered");
        debug_assert!(worker.out.is_empty(), "nobody else has asked");
        Some(reply)
    }
}
