//! Cores as a server's [`Service`]: what a worker does not know by itself ([`Direct`](crate::Direct)) is answered later, from a core's host.
//!
//! Always true: a batch goes to one core, in order; a worker keeps to the core that it has asked first; expiries are the server's
//! seconds on this side, and the cluster's on the other.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use guira_chain::{Late, Owned, Place, Reply, give};
use guira_cluster::CLOCK;
use guira_item::{
    Answer, Clock, EngineStats, EvictionLog, Expiry, Failure, ItemInfo, MemoryLimitError, Request, ScanCursor, Service,
    Sink, Ticket, Time, Wake,
};

use crate::{
    Front, Wanted,
    asked::{Asked, What},
    direct::Looked,
    owed::{Mailbox, Owed, Weight},
};

/// Operations of a worker that are under way at most, some hundred bytes each beside their values: further ones are refused.
const OPEN_MAX: usize = 1 << 16;

/// Ties the server's time to the wall clock, as it is now.
pub type ClockNow = Arc<dyn Fn() -> Clock + Send + Sync>;

/// How a server stands before its cores.
#[derive(Clone)]
pub struct ServiceConfig {
    /// The server's seconds.
    pub clock: ClockNow,
    /// Bytes of a key and a value together beyond which an item is refused: as the cores'.
    pub item_len_max: usize,
    /// Bytes that values to be stored may take, and as many again those of answers that have come and wait for others: further ones fail.
    pub values_len_max: usize,
}

impl fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock: _, item_len_max, values_len_max } = self;
        f.debug_struct("ServiceConfig")
            .field("item_len_max", item_len_max)
            .field("values_len_max", values_len_max)
            .finish_non_exhaustive()
    }
}

/// Cores as a service.
#[derive(Debug)]
pub struct FrontService<F> {
    config: ServiceConfig,
    fronts: Vec<F>,
    /// Workers that have chosen one.
    chosen: AtomicUsize,
    late_len: Arc<AtomicUsize>,
    asked_len: Arc<AtomicUsize>,
}

/// What a server's thread needs to ask a core.
pub struct FrontWorker<F: Front> {
    mailbox: Arc<Mailbox>,
    late: Late,
    mail: Vec<(Place, Reply)>,
    /// Chosen when it first asks: the janitor never does.
    front: Option<Chosen<F>>,
    looked: Looked,
    /// Operations under way, those of abandoned batches included.
    open: usize,
}

/// A front, and what is known without asking it.
struct Chosen<F: Front> {
    front: F,
    direct: F::Direct,
}

impl<F: Front> fmt::Debug for FrontWorker<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontWorker").field("open", &self.open).finish_non_exhaustive()
    }
}

impl<F: Front> Drop for FrontWorker<F> {
    fn drop(&mut self) {
        // Nobody waits for what is left.
        drop(self.mailbox.close());
    }
}

impl<F: Front> FrontService<F> {
    /// Before these cores, of which there is one at least.
    pub fn before(config: ServiceConfig, fronts: impl IntoIterator<Item = F>) -> Self {
        let fronts = fronts.into_iter().collect();
        Self { config, fronts, chosen: AtomicUsize::new(0), late_len: Arc::default(), asked_len: Arc::default() }
    }

    /// The worker's core.
    fn front<'w>(&self, front: &'w mut Option<Chosen<F>>) -> &'w mut Chosen<F> {
        front.get_or_insert_with(|| {
            let front = self.fronts[self.chosen.fetch_add(1, Relaxed) % self.fronts.len()].clone();
            Chosen { direct: front.direct(), front }
        })
    }

    /// Has the worker's core told.
    fn tell(&self, worker: &mut FrontWorker<F>, what: What) {
        self.front(&mut worker.front).front.tell(Wanted(what));
    }

    /// What a request that is passed on weighs, or why it is not.
    fn admit(&self, worker: &FrontWorker<F>, request: &Request<'_>) -> Result<Weight, Reply> {
        let refused = |answer| Err(Reply::Answer(answer, None));
        let value_len = request.operation.value_len();
        if request.key.as_bytes().len() + value_len > self.config.item_len_max {
            return refused(Answer::TooLarge);
        }
        let weight = self.weight(value_len).filter(|_| worker.open < OPEN_MAX);
        weight.map_or(refused(Answer::Failed(Failure::Busy)), Ok)
    }

    fn weight(&self, value_len: usize) -> Option<Weight> {
        Weight::new(&self.asked_len, value_len, self.config.values_len_max)
    }
}

impl<F: Front> Service for FrontService<F> {
    type Worker = FrontWorker<F>;

    fn worker(&self, wake: Wake) -> FrontWorker<F> {
        FrontWorker {
            mailbox: Arc::new(Mailbox::new(wake)),
            late: Late::new(Arc::clone(&self.late_len), self.config.values_len_max),
            mail: Vec::new(),
            front: None,
            looked: Looked::default(),
            open: 0,
        }
    }

    fn submit<S: Sink>(
        &self,
        worker: &mut FrontWorker<F>,
        _now: Time,
        ticket: Ticket,
        requests: &[Request<'_>],
        sink: &mut S,
    ) -> usize {
        let Chosen { direct, .. } = self.front(&mut worker.front);
        worker.looked.at(requests, direct);
        let first = worker.looked.prefix();
        (0..first).for_each(|index| worker.looked.tell(index, sink));
        if first == requests.len() {
            return first;
        }
        let clock = (self.config.clock)();
        let serial = worker.late.serial();
        let mut replies = Vec::with_capacity(requests.len() - first);
        let mut asked = Vec::with_capacity(requests.len() - first);
        for ((index, request), at) in requests.iter().enumerate().skip(first).zip(0..) {
            if let Some(reply) = worker.looked.reply(index) {
                replies.push(Some(reply));
                continue;
            }
            let refusal = match self.admit(worker, request) {
                Err(reply) => Some(reply),
                Ok(weight) => {
                    worker.open += 1;
                    asked.push(Asked {
                        key: request.key.as_bytes().into(),
                        operation: Owned::of(&request.operation.map_expiries(|expiry| clock.carry(expiry, &CLOCK))),
                        owed: Owed::new(&worker.mailbox, Place { ticket, serial, at }, Some(weight)),
                    });
                    None
                }
            };
            replies.push(refusal);
        }
        if asked.is_empty() {
            let replies = (first..).zip(replies.into_iter().flatten());
            replies.for_each(|(index, reply)| give(reply, index, sink));
            return requests.len();
        }
        worker.late.open(ticket, serial, first, replies);
        self.tell(worker, What::Asked(asked));
        first
    }

    fn next_ready(&self, worker: &mut FrontWorker<F>) -> Option<Ticket> {
        let mut mail = mem::take(&mut worker.mail);
        worker.mailbox.take(&mut mail);
        if !mail.is_empty() {
            let clock = (self.config.clock)();
            for (place, reply) in mail.drain(..) {
                worker.open -= 1;
                worker.late.put(place, with_expiries(reply, |expiry| CLOCK.carry(expiry, &clock)));
            }
        }
        worker.mail = mail;
        worker.late.next_ready()
    }

    fn deliver<S: Sink>(&self, worker: &mut FrontWorker<F>, ticket: Ticket, sink: &mut S) {
        worker.late.deliver(ticket, sink);
    }

    fn abandon(&self, worker: &mut FrontWorker<F>, ticket: Ticket) {
        worker.late.abandon(ticket);
    }

    fn flush_all(&self, worker: &mut FrontWorker<F>, at: Time, now: Time, ticket: Ticket) -> Option<Answer> {
        let weight = self.weight(0).filter(|_| worker.open < OPEN_MAX);
        let Some(weight) = weight else { return Some(Answer::Failed(Failure::Busy)) };
        let serial = worker.late.serial();
        worker.open += 1;
        worker.late.open(ticket, serial, 0, vec![None]);
        let owed = Owed::new(&worker.mailbox, Place { ticket, serial, at: 0 }, Some(weight));
        // By the clock here: one that has passed there only is done at once there.
        let at = if at <= now { Time::default() } else { CLOCK.from_unix_s((self.config.clock)().to_unix_s(at)) };
        self.tell(worker, What::Flush(at, owed));
        None
    }

    /// As the fronts say.
    fn stats(&self) -> EngineStats {
        F::stats(&self.fronts)
    }

    /// What items there are cannot be gone through from here.
    fn scan(&self, _: ScanCursor, _: usize, _: Time, _: &mut dyn FnMut(&ItemInfo<'_>)) -> Option<ScanCursor> {
        None
    }

    /// Nothing is kept here, so there is nothing to limit.
    fn set_memory_limit(&self, _: usize) -> Result<(), MemoryLimitError> {
        Err(MemoryLimitError::TooLarge { max: 0 })
    }

    fn maintain(&self, _: &mut FrontWorker<F>, _: Time) -> bool {
        false
    }

    /// Nothing is evicted here.
    fn log_evictions(&self, _: Option<EvictionLog>) {}
}

fn with_expiries(reply: Reply, map: impl Fn(Expiry) -> Expiry) -> Reply {
    match reply {
        Reply::Hit(hit, value) => Reply::Hit(hit.map_expiries(map), value),
        Reply::Answer(answer, death) => Reply::Answer(answer.map_expiries(map), death),
    }
}
