//! A batch: requests, how each one's answer is to be written, and the lines between them whose text is already known.
//!
//! ```text
//! requests   r0      r1      r2
//! plans      p0      p1      p2         (one a request)
//! literals       ^before 1        ^before 3   (behind the last one)
//! ```
//! Always true: as many plans as requests; literals ascend in `before`, which is at most the number of requests.

use guira_item::{Key, Operation, Request, Time};

use crate::{Counters, Output, Replies};

/// The most requests and literals of a batch. Enough that the cost of a batch is in its requests, few enough that one
/// connection does not hold up the others for long and that everything about the batch stays in the caches.
pub const BATCH_LEN_MAX: usize = 1024;

/// How the answer to a request is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// `VALUE`, for a key of get, gets, gat, gats.
    Value { with_cas: bool, touches: bool, ends: bool },
    /// CPSERVER's size and value.
    Lookup,
    /// `STORED` and its like.
    Store { with_cas: bool, extends: bool, noreply: bool },
    /// `DELETED`.
    Delete { noreply: bool },
    /// `TOUCHED`.
    Touch { noreply: bool },
    /// The number.
    Arithmetic { up: bool, noreply: bool },
    /// Nothing: a literal stands for it.
    Silent,
    /// See `metas[_]`.
    Meta(u16),
}

const _: () = assert!(size_of::<Plan>() <= 4);
const _: () = assert!(BATCH_LEN_MAX <= u16::MAX as usize);

/// What a meta command wants to hear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MetaCommand {
    Get { touches: bool },
    Set { with_cas: bool, extends: bool },
    Delete,
    Arithmetic { up: bool, value: bool },
    Debug,
}

/// How the answer to a meta command is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaPlan<'a> {
    pub(crate) command: MetaCommand,
    /// The line behind the key (behind the length, for ms): the answer repeats flags in this order.
    pub(crate) flags: &'a [u8],
    /// q was given.
    pub(crate) quiet: bool,
    /// The key came as base64 and goes back as base64.
    pub(crate) base64: bool,
}

/// A line whose text is known before anything is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal {
    /// It stands before the answer to the request of this number.
    pub(crate) before: u32,
    pub(crate) text: &'static [u8],
}

/// What a session made of some input.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    pub(crate) requests: Vec<Request<'a>>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) metas: Vec<MetaPlan<'a>>,
    pub(crate) literals: Vec<Literal>,
    /// What parsing has counted; added to the worker's counters when the batch has been answered.
    pub(crate) counted: Counters,
    pub(crate) has_counted: bool,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The requests, for [`Service::submit`](guira_item::Service::submit).
    #[inline]
    pub fn requests(&self) -> &[Request<'a>] {
        &self.requests
    }

    /// Whether there is nothing to ask, to say or to count.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.literals.is_empty() && !self.has_counted
    }

    /// An empty batch that keeps the memory of this one.
    pub fn recycle<'b>(mut self) -> Batch<'b> {
        // A vector without elements says nothing about lifetimes; collecting it in place keeps its allocation.
        self.requests.clear();
        self.plans.clear();
        self.metas.clear();
        self.literals.clear();
        Batch {
            requests: self.requests.into_iter().map(|_| unreachable!("cleared")).collect(),
            plans: self.plans,
            metas: self.metas.into_iter().map(|_| unreachable!("cleared")).collect(),
            literals: self.literals,
            counted: Counters::default(),
            has_counted: false,
        }
    }

    /// Takes the answers from request number `first` on and writes them to `output`: 0, or where the answers that came at
    /// once ended.
    pub fn replies<'r>(
        &'r self,
        first: usize,
        now: Time,
        output: &'r mut Output,
        counters: &'r mut Counters,
    ) -> Replies<'r, 'a> {
        Replies::new(self, first, now, output, counters)
    }

    /// Whether another command fits.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() + self.literals.len() >= BATCH_LEN_MAX
    }

    #[inline]
    pub(crate) fn ask(&mut self, key: Key<'a>, operation: Operation<'a>, plan: Plan) {
        self.requests.push(Request { key, operation });
        self.plans.push(plan);
    }

    pub(crate) fn ask_meta(&mut self, key: Key<'a>, operation: Operation<'a>, meta: MetaPlan<'a>) {
        let plan = Plan::Meta(self.metas.len() as u16);
        self.metas.push(meta);
        self.ask(key, operation, plan);
    }

    /// Says `text` (with its line end) at this place.
    pub(crate) fn say(&mut self, text: &'static [u8]) {
        self.literals.push(Literal { before: self.requests.len() as u32, text });
    }

    /// Says `text` unless silence was asked for.
    pub(crate) fn say_unless(&mut self, noreply: bool, text: &'static [u8]) {
        if !noreply {
            self.say(text);
        }
    }

    /// Takes back all requests from number `from` on, which are plain reads.
    pub(crate) fn take_back(&mut self, from: usize) {
        self.requests.truncate(from);
        self.plans.truncate(from);
    }

    pub(crate) fn count(&mut self, counter: fn(&mut Counters) -> &mut u64) {
        *counter(&mut self.counted) += 1;
        self.has_counted = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guira_item::Get;

    #[test]
    fn recycling_keeps_the_memory() {
        let mut batch = Batch::new();
        let key = Key::new(b"k").expect("short");
        for _ in 0..100 {
            batch.ask(key, Operation::Get(Get::PLAIN), Plan::Silent);
        }
        let place = batch.requests.as_ptr() as usize;
        let again: Batch<'_> = batch.recycle();
        assert!(again.is_empty());
        assert_eq!((again.requests.as_ptr() as usize, again.requests.capacity() >= 100), (place, true));
    }
}
