//! What one worker thread works with: the buffers all its connections share, its counters, its part of the service.
//!
//! Always true: the outbox is empty and the tools are in their place whenever no connection is having its turn, so that an
//! idle connection owns no buffer at all.

use std::sync::Arc;

use guira_item::{Answer, Death, Footprints, Hit, PinnedValue, Request, Service, Sink, Ticket, Time};
use guira_memcache::{Batch, Counters, Output, Scratch};
use mio::Registry;

use crate::clock::Reading;
use crate::malformed_log::MalformedLog;
use crate::shared::Shared;
use crate::tally::Traffic;
use crate::watchers::Observed;

/// Bytes of the buffer a worker reads into: what the kernel hands over at once under load, and short enough that parsing
/// and answering all of it (some 10^3 to 10^4 commands) keeps no other connection waiting for long.
pub(crate) const READ_LEN: usize = 64 << 10;

/// Answers are sent when there are so many bytes of them, even if there is more to answer.
pub(crate) const OUTPUT_LEN_SEND: usize = 128 << 10;

/// Requests submitted at once, at most: some thousand, as a client of CPHASH has in flight (CPHASH, section 6.1). After long answers
/// there are fewer, so that a slice's do not amount to much more than a write takes; the first that are long do.
const SLICE_LEN_MAX: usize = 1_024;
const SLICE_LEN_MIN: usize = 4;

/// And at first, when nothing is known of the answers: several times what an engine prefetches.
const SLICE_LEN_FIRST: usize = 256;

/// A slice with more bytes of answers than this was too long, one with fewer could have been longer.
const SLICE_OUTPUT_LEN_HIGH: usize = 1 << 20;
const SLICE_OUTPUT_LEN_LOW: usize = 64 << 10;

/// What a worker has once, for whichever connection has its turn.
pub(crate) struct Desk<S: Service> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) worker: S::Worker,
    pub(crate) index: usize,
    pub(crate) registry: Registry,
    pub(crate) now: Reading,
    pub(crate) outbox: Output,
    pub(crate) counters: Counters,
    pub(crate) traffic: Traffic,
    pub(crate) malformed_log: MalformedLog,
    /// Requests submitted at once: fewer while values are large.
    slice_len: usize,
    tools: Option<Box<Tools>>,
}

/// What parsing borrows from; taken out of the desk meanwhile.
pub(crate) struct Tools {
    pub(crate) input: Vec<u8>,
    pub(crate) parsing: Parsing,
}

/// The memory of batches.
#[derive(Default)]
pub(crate) struct Parsing {
    pub(crate) scratch: Scratch,
    pub(crate) batch: Batch<'static>,
}

/// Where a batch stands that could not be answered in one go. Requests are submitted in slices, so that the answers to
/// one batch never amount to much more than the socket takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    /// When the batch was parsed.
    pub(crate) now: Time,
    /// Requests answered so far.
    answered: usize,
    /// The slice whose answers are late, if it is that; otherwise only the socket was full.
    late: Option<Slice>,
}

/// Part of a batch.
#[derive(Clone, Copy, Debug)]
struct Slice {
    first: usize,
    end: usize,
}

/// How far answering a batch came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    /// All is answered.
    Done,
    /// Send what there is, then go on.
    Full(Resume),
    /// The service answers later.
    Later(Resume),
}

/// A sink for a slice: indexes count from the slice's first request.
struct SliceSink<'s, T> {
    inner: &'s mut T,
    first: usize,
}

impl<T: Sink> Sink for SliceSink<'_, T> {
    #[inline]
    fn reserve(&mut self, index: usize, hit: &Hit) -> &mut [u8] {
        self.inner.reserve(self.first + index, hit)
    }

    #[inline]
    fn commit(&mut self, index: usize, hit: &Hit) {
        self.inner.commit(self.first + index, hit);
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        self.inner.pinned(self.first + index, hit, value);
    }

    #[inline]
    fn metadata(&mut self, index: usize, hit: &Hit) {
        self.inner.metadata(self.first + index, hit);
    }

    fn found_dead(&mut self, index: usize, death: Death) {
        self.inner.found_dead(self.first + index, death);
    }

    #[inline]
    fn answer(&mut self, index: usize, answer: Answer) {
        self.inner.answer(self.first + index, answer);
    }

    #[inline]
    fn answer_change(&mut self, index: usize, answer: Answer, items: &Footprints) {
        self.inner.answer_change(self.first + index, answer, items);
    }
}

impl<S: Service> Desk<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, worker: S::Worker, index: usize, registry: Registry) -> Self {
        let tools = Box::new(Tools { input: vec![0; READ_LEN], parsing: Parsing::default() });
        Self {
            now: shared.watch.read(),
            shared,
            worker,
            index,
            registry,
            outbox: Output::default(),
            counters: Counters::default(),
            traffic: Traffic::default(),
            malformed_log: MalformedLog::default(),
            slice_len: SLICE_LEN_FIRST,
            tools: Some(tools),
        }
    }

    pub(crate) fn take_tools(&mut self) -> Box<Tools> {
        self.tools.take().expect("only one connection has its turn")
    }

    pub(crate) fn put_back(&mut self, tools: Box<Tools>) {
        self.tools = Some(tools);
    }

    /// Has a batch answered into the outbox, from the beginning or from where it stands.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        batch: &Batch<'_>,
        ticket: Ticket,
        now: Time,
        resume: Option<Resume>,
        fd: i32,
    ) -> Progress {
        let requests_len = batch.requests().len();
        let mut answered = resume.map_or(0, |resume| resume.answered);
        if let Some(slice) = resume.and_then(|resume| resume.late) {
            self.answer_slice(batch, ticket, now, answered, slice, true, fd);
            answered = slice.end;
        } else if requests_len == 0 {
            batch.replies(0, now, &mut self.outbox, &mut self.counters).finish();
        }
        while answered < requests_len {
            let before_len = self.outbox.len();
            let slice = Slice { first: answered, end: requests_len.min(answered + self.slice_len) };
            answered += self.answer_slice(batch, ticket, now, answered, slice, false, fd);
            if answered < slice.end {
                return Progress::Later(Resume { now, answered, late: Some(slice) });
            }
            let grown_len = self.outbox.len() - before_len;
            if grown_len > SLICE_OUTPUT_LEN_HIGH {
                self.slice_len = (self.slice_len / 4).max(SLICE_LEN_MIN);
            } else if grown_len < SLICE_OUTPUT_LEN_LOW {
                self.slice_len = (self.slice_len * 2).min(SLICE_LEN_MAX);
            }
            if answered < requests_len && self.outbox.len() >= OUTPUT_LEN_SEND {
                return Progress::Full(Resume { now, answered, late: None });
            }
        }
        Progress::Done
    }

    /// Submits a slice, or takes its late answers; returns how many were answered.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one call site each for the two ways")]
    fn answer_slice(
        &mut self,
        batch: &Batch<'_>,
        ticket: Ticket,
        now: Time,
        answered: usize,
        slice: Slice,
        late: bool,
        fd: i32,
    ) -> usize {
        let requests = &batch.requests()[slice.first..slice.end];
        let by_class = &self.shared.tallies.workers[self.index].classes;
        let mut replies = batch.replies(answered, now, &mut self.outbox, &mut self.counters).by_class(by_class);
        let mut sink = SliceSink { inner: &mut replies, first: slice.first };
        let service = &self.shared.service;
        let answered = if self.shared.watchers.wants_items() || self.shared.prefixes.is_on() {
            let mut observed = Observed::new(
                &mut sink,
                requests,
                now,
                fd,
                &self.shared.watchers,
                &self.shared.prefixes,
                self.shared.watch,
            );
            let answered = ask(service, &mut self.worker, now, ticket, requests, late, &mut observed);
            self.traffic.log_worker_written += observed.lines();
            answered
        } else {
            ask(service, &mut self.worker, now, ticket, requests, late, &mut sink)
        };
        debug_assert!(answered <= requests.len(), "the service answered more than it was asked");
        replies.finish();
        answered
    }

    /// The late answer to a `flush_all`.
    pub(crate) fn take_flush_answer(&mut self, ticket: Ticket) -> Answer {
        let mut sink = OneAnswer(None);
        self.shared.service.deliver(&mut self.worker, ticket, &mut sink);
        sink.0.expect("a ticket is answered as a whole")
    }

    /// Shows this worker's counters to the other threads: before an answer leaves, so that whoever has got it finds it
    /// counted.
    #[inline]
    pub(crate) fn publish(&self) {
        self.shared.tallies.workers[self.index].publish(&self.counters, &self.traffic);
    }
}

/// Takes the answer to something that reads nothing.
struct OneAnswer(Option<Answer>);

impl Sink for OneAnswer {
    fn reserve(&mut self, _: usize, _: &Hit) -> &mut [u8] {
        unreachable!("nothing is read");
    }

    fn commit(&mut self, _: usize, _: &Hit) {
        unreachable!("nothing is read");
    }

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {
        unreachable!("nothing is read");
    }

    fn metadata(&mut self, _: usize, _: &Hit) {
        unreachable!("nothing is read");
    }

    fn answer(&mut self, _: usize, answer: Answer) {
        self.0 = Some(answer);
    }
}

#[inline]
fn ask<S: Service>(
    service: &S,
    worker: &mut S::Worker,
    now: Time,
    ticket: Ticket,
    requests: &[Request<'_>],
    late: bool,
    sink: &mut impl Sink,
) -> usize {
    if late {
        service.deliver(worker, ticket, sink);
        requests.len()
    } else {
        service.submit(worker, now, ticket, requests, sink)
    }
}
