//! A service: takes a batch of requests and answers them in order, at once or later. The server knows nothing else.

use std::sync::Arc;

use crate::{
    Answer, Engine, EngineStats, EvictionLog, ItemInfo, Loan, MemoryLimitError, ReassignError, Request, ScanCursor,
    Sink, Time,
};

/// Names a batch whose answers come later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// Wakes the event loop of a worker from any thread.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What a server serves.
///
/// A batch is `submit`ted; the service answers a prefix of it at once and says how long that prefix was. If it is the whole
/// batch, that is all. Otherwise it keeps copies of the others, and when they are done it wakes the worker, names the
/// ticket in `next_ready` and hands over the answers in `deliver`, whose indexes go on where the prefix ended. A session has at
/// most one ticket open. If the connection is lost meanwhile, the server `abandon`s the ticket.
pub trait Service: Send + Sync + 'static {
    /// What one server thread needs to use the service.
    type Worker: Send;

    /// A worker for a server thread, which `wake` wakes.
    fn worker(&self, wake: Wake) -> Self::Worker;

    /// Takes a batch; returns how many requests, from the front, were answered into `sink` at once.
    fn submit<S: Sink>(
        &self,
        worker: &mut Self::Worker,
        now: Time,
        ticket: Ticket,
        requests: &[Request<'_>],
        sink: &mut S,
    ) -> usize;

    /// Requests for these keys (or what look like keys) are about to come: a service that is quicker for knowing may ask the
    /// memory for them now. Nothing may depend on it.
    fn prefetch(&self, _worker: &mut Self::Worker, _keys: &[&[u8]]) {}

    /// A ticket whose remaining answers are all there.
    fn next_ready(&self, worker: &mut Self::Worker) -> Option<Ticket>;

    /// Hands over the remaining answers of a ticket named by `next_ready`.
    fn deliver<S: Sink>(&self, worker: &mut Self::Worker, ticket: Ticket, sink: &mut S);

    /// Nobody waits for this ticket any more.
    fn abandon(&self, worker: &mut Self::Worker, ticket: Ticket);

    /// See [`Engine::flush_all`]. Answers [`Answer::Deleted`] or [`Answer::Failed`], at once or, if it returns `None`, later: as the
    /// first and only answer of the ticket.
    fn flush_all(&self, worker: &mut Self::Worker, at: Time, now: Time, ticket: Ticket) -> Option<Answer>;

    /// See [`Engine::stats`].
    fn stats(&self) -> EngineStats;

    /// See [`Engine::scan`].
    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor>;

    /// See [`Engine::set_memory_limit`].
    ///
    /// # Errors
    /// [`MemoryLimitError`] if that much cannot be had.
    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError>;

    /// See [`Engine::reassign_page`].
    ///
    /// # Errors
    /// [`ReassignError`] if that cannot be.
    fn reassign_page(
        &self,
        _worker: &mut Self::Worker,
        _now: Time,
        _from: Option<u32>,
        _to: u32,
    ) -> Result<(), ReassignError> {
        Err(ReassignError::BadClass)
    }

    /// See [`Engine::lend`].
    fn lend(&self, _worker: &mut Self::Worker, _now: Time, _bytes: usize) -> Option<Loan> {
        None
    }

    /// See [`Engine::maintain`].
    fn maintain(&self, worker: &mut Self::Worker, now: Time) -> bool;

    /// See [`Engine::log_evictions`].
    fn log_evictions(&self, log: Option<EvictionLog>);
}

/// An engine as a service: every answer at once, nothing added.
#[derive(Debug)]
pub struct Immediate<E>(pub Arc<E>);

impl<E: Engine> Service for Immediate<E> {
    type Worker = E::Worker;

    fn worker(&self, _wake: Wake) -> E::Worker {
        self.0.worker()
    }

    #[inline]
    fn submit<S: Sink>(
        &self,
        worker: &mut E::Worker,
        now: Time,
        _ticket: Ticket,
        requests: &[Request<'_>],
        sink: &mut S,
    ) -> usize {
        self.0.execute(worker, now, requests, sink);
        requests.len()
    }

    #[inline]
    fn prefetch(&self, worker: &mut E::Worker, keys: &[&[u8]]) {
        self.0.prefetch(worker, keys);
    }

    fn next_ready(&self, _worker: &mut E::Worker) -> Option<Ticket> {
        None
    }

    fn deliver<S: Sink>(&self, _worker: &mut E::Worker, ticket: Ticket, _sink: &mut S) {
        unreachable!("an engine answers at once; {ticket:?} was never open");
    }

    fn abandon(&self, _worker: &mut E::Worker, _ticket: Ticket) {}

    fn flush_all(&self, _worker: &mut E::Worker, at: Time, now: Time, _ticket: Ticket) -> Option<Answer> {
        self.0.flush_all(at, now);
        Some(Answer::Deleted)
    }

    fn stats(&self) -> EngineStats {
        self.0.stats()
    }

    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        self.0.scan(cursor, limit, now, visit)
    }

    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        self.0.set_memory_limit(bytes)
    }

    fn reassign_page(
        &self,
        worker: &mut E::Worker,
        now: Time,
        from: Option<u32>,
        to: u32,
    ) -> Result<(), ReassignError> {
        self.0.reassign_page(worker, now, from, to)
    }

    fn lend(&self, worker: &mut E::Worker, now: Time, bytes: usize) -> Option<Loan> {
        self.0.lend(worker, now, bytes)
    }

    fn maintain(&self, worker: &mut E::Worker, now: Time) -> bool {
        self.0.maintain(worker, now)
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.0.log_evictions(log);
    }
}
