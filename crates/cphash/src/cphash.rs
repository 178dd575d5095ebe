//! CPHASH (Metreveli, Zeldovich, Kaashoek, PPoPP'12): the keys are split into partitions, and whoever has requests sends them to
//! the partitions as messages, a batch at a time, and gets the places of the values back.
//!
//! ```text
//! client thread ── requests, a ring for each partition ──> station: partition + heap <── served by a server thread
//!               <── replies, a ring for each partition ──                            (or by a client while that sleeps)
//! ```
//! Few requests at a time are carried out on the spot, on the partition that is held meanwhile (`direct.rs`): messages pay when
//! there are enough of them to fill cache lines.
//!
//! Always true: when `execute` returns, every message that it sent has been replied to, and every element that it read is given
//! back or pinned by a value being sent; a reply that says "stored" leaves when the element is in its bucket, so that whoever
//! learns of it finds the element there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence},
    },
    thread::JoinHandle,
};

use crossbeam_utils::CachePadded;
use guira_item::{
    Answer, Engine, EngineStats, EvictionLog, Hit, ItemInfo, Loan, MemoryLimitError, Operation, ReassignError, Request,
    ScanCursor, Sink, Store, StoreMode, Time, VALUE_SLACK_LEN,
};
use guira_sync::{
    SpinGuard, SpinLock, hint, prefetch,
    ring::{Consumer, Producer, ring},
};

use crate::{
    config::{Config, ConfigError},
    crew::{Crew, Served},
    direct::{self, ROOM_TRIES},
    element::{LINE_LEN, Parts, Slot},
    group::Group,
    heap::Heap,
    message::{self, Call},
    partition::{Context, Lookup, Outcome, Partition, drop_reference, free_element, is_plain, refer},
    pin::Pin,
    shards::{Common, Held, Shards},
    station::{Seat, Station},
};

/// Cache lines of a ring in each direction.
const RING_LINES: usize = 64;

/// Requests in flight at a time (CPHASH, section 6.1: any number from 512 to 8,192 served as well).
const WINDOW_LEN: usize = 1_024;

/// Fewer requests than this are carried out on the spot.
const MESSAGES_MIN: usize = 16;

/// Values above this many bytes are copied by the client into memory that it has asked for; shorter ones by whoever serves the
/// partition, in one message instead of two.
const CLIENT_COPY_LEN_MIN: usize = 1_024;

/// Messages after which partitions are told that something has come, so that they are served while more are being sent.
const SHOWN_AHEAD: usize = 128;

/// Requests whose replies are fetched, and their values asked for, before the first one is answered.
const FETCHED_AHEAD: usize = 16;

/// Turns of waiting for a server thread after which a client serves the partition itself.
const PATIENCE: u32 = 256;

/// Messages that clients have served themselves after which a server thread is woken for the partition.
const HELP_MAX: u32 = 4_096;

/// Partitions for each server thread, so that they can be spread anew.
const PARTITIONS_PER_THREAD: usize = 4;

/// A cache in memory whose partitions are served by messages. Cheap to share: clones are the same cache.
#[derive(Clone)]
pub struct Cphash {
    owner: Arc<Owner>,
}

/// The server threads' life.
struct Owner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.crew.stop();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Cphash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shared = &self.owner.shared;
        f.debug_struct("Cphash").field("partitions", &shared.stations.len()).field("crew", &shared.crew).finish()
    }
}

/// A station and its bell.
struct Post {
    station: CachePadded<SpinLock<Station>>,
    /// Somebody has sent something.
    bell: CachePadded<AtomicBool>,
    /// Messages that clients have served since a server thread did.
    helped: AtomicU32,
}

pub(crate) struct Shared {
    common: Common,
    stations: Box<[Post]>,
    crew: Arc<Crew>,
    /// Clients so far, by which they are told apart.
    clients: AtomicUsize,
}

impl Cphash {
    /// An empty cache and its server threads.
    ///
    /// # Errors
    /// [`ConfigError`] if the settings make no sense, the memory cannot be reserved or a thread cannot be started.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = config.server_threads.unwrap_or(cores.div_ceil(2));
        let wanted = (PARTITIONS_PER_THREAD * threads.max(1)).next_power_of_two();
        let count = config.large_partitions(wanted.min(Common::heaps_max(&config)))?;
        let (seed, cores) = (config.hash_seed, config.server_cores.clone());
        let common = Common::new(config, count)?;
        let post = |number: usize| Post {
            station: CachePadded::new(SpinLock::new(Station::new(number, seed ^ number as u64))),
            bell: CachePadded::default(),
            helped: AtomicU32::new(0),
        };
        let stations = (0..count).map(post).collect();
        let crew = Arc::new(Crew::new(threads.min(count), count));
        let shared = Arc::new(Shared { common, stations, crew, clients: AtomicUsize::new(0) });
        let serving = Arc::clone(&shared);
        let threads =
            shared.crew.start(&cores, move |station| serving.serve(station)).map_err(ConfigError::NoThread)?;
        Ok(Self { owner: Arc::new(Owner { shared, threads }) })
    }
}

#[cfg(test)]
impl Cphash {
    /// Clients that stations know of.
    pub(crate) fn seats(&self) -> usize {
        self.owner.shared.stations.iter().map(|post| post.station.lock().seats.len()).sum()
    }
}

impl Shared {
    /// A server thread looks at a station.
    fn serve(&self, number: usize) -> Served {
        let post = &self.stations[number];
        if !post.bell.load(Ordering::Relaxed) {
            return Served::Nothing;
        }
        let Some(mut station) = post.station.try_lock() else { return Served::Elsewhere };
        post.bell.store(false, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `ring_bell`: whoever finds the bell still rung has shown its messages before this looks.
        fence(Ordering::SeqCst);
        if post.helped.load(Ordering::Relaxed) > 0 {
            post.helped.store(0, Ordering::Relaxed);
        }
        Served::Messages(self.serve_station(&mut station))
    }

    fn serve_station(&self, station: &mut Station) -> usize {
        // SAFETY: the station is held.
        let cx = unsafe { self.common.context(self.common.now()) };
        station.serve(&cx)
    }

    /// Tells whoever serves a station that something has come, and serves it if nobody does.
    #[inline]
    fn ring_bell(&self, number: usize) {
        let post = &self.stations[number];
        // SeqCst: pairs with the fences in `serve` and in `Crew::work`.
        fence(Ordering::SeqCst);
        if !post.bell.load(Ordering::Relaxed) {
            post.bell.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        if self.crew.is_asleep(number) {
            self.help(number);
        }
    }

    /// A client serves a station, if nobody else does. When that goes on, a server thread is woken.
    fn help(&self, number: usize) {
        let post = &self.stations[number];
        let Some(mut station) = post.station.try_lock() else { return };
        let served = self.serve_station(&mut station) as u32;
        drop(station);
        let helped = post.helped.load(Ordering::Relaxed).saturating_add(served);
        post.helped.store(helped, Ordering::Relaxed);
        if helped > HELP_MAX {
            post.helped.store(0, Ordering::Relaxed);
            self.crew.wake(number);
        }
    }
}

/// A station under its lock.
pub(crate) struct HeldStation<'a>(SpinGuard<'a, Station>);

impl Held for HeldStation<'_> {
    type Supply = Heap;

    #[inline]
    fn parts(&mut self) -> (&mut Partition, &mut Heap) {
        let Station { partition, heap, .. } = &mut *self.0;
        (partition, heap)
    }
}

impl Shards for Shared {
    type Held<'a> = HeldStation<'a>;

    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn group_of(&self, partition: usize) -> usize {
        partition
    }

    #[inline]
    fn hold(&self, partition: usize) -> HeldStation<'_> {
        HeldStation(self.stations[partition].station.lock())
    }

    fn groups(&self) -> usize {
        self.stations.len()
    }

    fn with_heap<R>(&self, group: usize, work: impl FnOnce(&Heap) -> R) -> R {
        work(&self.stations[group].station.lock().heap)
    }

    fn with_group<R>(&self, group: usize, now: Time, work: impl FnOnce(&mut Group<'_>, &Context<'_>) -> R) -> R {
        let mut station = self.stations[group].station.lock();
        // SAFETY: the station is held.
        let cx = unsafe { self.common.context(now) };
        // What was sent before comes before, references that were given back among it.
        station.serve(&cx);
        station.with_group(|group| work(group, &cx))
    }
}

/// A client's rings to and from one station.
struct Lane {
    requests: Producer,
    replies: Consumer,
    /// Something may not have been shown yet.
    is_unshown: bool,
}

/// A message that has been sent and not been replied to.
#[derive(Clone, Copy)]
enum Sent {
    Lookup,
    Insert,
    Call,
}

/// What one thread needs to use the engine: its rings, and what is in flight.
pub struct Worker {
    shared: Arc<Shared>,
    client: usize,
    lanes: Box<[Lane]>,
    hashes: Vec<u64>,
    /// What was sent for each request of the window, with its partition.
    sent: Vec<(Sent, usize)>,
    /// The calls of the window, which servers look into: never more than there is room for, so that none moves.
    calls: Vec<Call>,
    /// The first message of `sent` whose reply has not been fetched.
    fetched: usize,
    /// The replies that were fetched last.
    replies: Vec<u64>,
    /// The first message of `sent` that has not been answered to the sink.
    answered: usize,
    /// An element whose value is being copied.
    in_hand: Option<(Slot, usize)>,
}

// SAFETY: a call's cells are touched by the thread that has the worker, and by whoever serves the partition between the call's
// message and its reply, during which the worker stays in `execute`.
unsafe impl Send for Worker {}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("in_flight", &(self.sent.len() - self.fetched)).finish_non_exhaustive()
    }
}

impl Worker {
    fn new(shared: &Arc<Shared>) -> Self {
        let client = shared.clients.fetch_add(1, Ordering::Relaxed);
        let lane = |post: &Post| {
            let (requests, served) = ring(RING_LINES);
            let (answered, replies) = ring(RING_LINES);
            post.station.lock().seats.push(Seat { client, requests: served, replies: answered, is_stalled: false });
            Lane { requests, replies, is_unshown: false }
        };
        Self {
            lanes: shared.stations.iter().map(lane).collect(),
            shared: Arc::clone(shared),
            client,
            hashes: Vec::with_capacity(WINDOW_LEN),
            sent: Vec::with_capacity(WINDOW_LEN),
            calls: Vec::with_capacity(WINDOW_LEN),
            fetched: 0,
            replies: Vec::with_capacity(FETCHED_AHEAD),
            answered: 0,
            in_hand: None,
        }
    }

    /// Gives a reference back.
    #[inline]
    fn give_back(&mut self, partition: usize, slot: Slot) {
        let lane = &mut self.lanes[partition];
        lane.is_unshown = true;
        if lane.requests.put([message::word(message::DECREF, slot.0.into())]).is_err() {
            // Who serves the partition may be waiting for this client.
            let mut held = self.shared.hold(partition);
            // SAFETY: the partition is held.
            let cx = unsafe { self.shared.common.context(self.shared.common.now()) };
            drop_reference(&cx, held.parts().1, slot);
        }
    }

    /// Shows all partitions what has been sent.
    fn flush(&mut self) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if std::mem::take(&mut lane.is_unshown) {
                lane.requests.flush();
                self.shared.ring_bell(number);
            }
        }
    }

    /// The next reply of a partition.
    #[inline]
    fn reply(&mut self, partition: usize) -> u64 {
        let (mut turns, mut round) = (0u32, 0);
        loop {
            if let Some(reply) = self.lanes[partition].replies.take() {
                return reply;
            }
            turns += 1;
            if turns.is_multiple_of(PATIENCE) || self.shared.crew.is_asleep(partition) {
                self.shared.help(partition);
            }
            hint::spin(&mut round);
        }
    }

    /// Sends messages for requests from the front until the window is full or has to be closed; returns how many.
    fn send(&mut self, requests: &[Request<'_>], hashes: &[u64]) -> usize {
        self.sent.clear();
        self.calls.clear();
        self.replies.clear();
        self.fetched = 0;
        self.answered = 0;
        for (request, hash) in requests.iter().zip(hashes) {
            let partition = self.shared.common.partition(*hash);
            let lane = &mut self.lanes[partition];
            let key_len = request.key.as_bytes().len();
            let (sent, put) = match &request.operation {
                Operation::Get(get) if is_plain(get) && get.bump => {
                    (Sent::Lookup, lane.requests.put([message::word(message::LOOKUP, *hash)]))
                }
                Operation::Store(Store { mode, value, .. }) if is_copied_by_client(*mode, value.len()) => {
                    let words = [message::word(message::INSERT, *hash), message::lens(key_len, value.len())];
                    (Sent::Insert, lane.requests.put(words))
                }
                _ => {
                    self.calls.push(Call::new(request, None));
                    let word = self.calls.last().expect("just pushed").word();
                    let put = lane.requests.put([word, *hash]);
                    if put.is_err() {
                        self.calls.pop();
                    }
                    (Sent::Call, put)
                }
            };
            // A full ring is answered first. So is what is stored in two steps: what follows must find it.
            if put.is_err() {
                if self.sent.is_empty() {
                    // What fills it are references given back, to which nobody replies.
                    self.shared.ring_bell(partition);
                    self.shared.help(partition);
                    hint::yield_now();
                }
                break;
            }
            lane.is_unshown = true;
            self.sent.push((sent, partition));
            if matches!(sent, Sent::Insert) || self.sent.len() == WINDOW_LEN {
                break;
            }
            if self.sent.len().is_multiple_of(SHOWN_AHEAD) {
                self.flush();
            }
        }
        self.flush();
        self.sent.len()
    }

    /// Fetches the replies to the next messages, and asks for the values they lead to.
    fn fetch(&mut self) {
        self.replies.clear();
        let end = self.sent.len().min(self.fetched + FETCHED_AHEAD);
        while self.fetched < end {
            let (sent, partition) = self.sent[self.fetched];
            let reply = self.reply(partition);
            self.fetched += 1;
            if let (Sent::Lookup, Lookup::Hit(slot)) = (sent, message::open_lookup_reply(reply)) {
                let body = self.shared.common.memory.address(slot).wrapping_add(LINE_LEN);
                prefetch(body);
                prefetch(body.wrapping_add(LINE_LEN));
            }
            self.replies.push(reply);
            if matches!(sent, Sent::Call) && reply == message::STALLED {
                // Nothing that was sent after it is replied to before it has been seen to.
                return;
            }
        }
    }

    /// Gives up what a window has not come to, when it ends before its time.
    fn settle(&mut self) {
        if let Some((slot, partition)) = self.in_hand.take() {
            self.give_back(partition, slot);
        }
        let first = self.fetched - self.replies.len();
        let is_call = |(sent, _): &&(Sent, usize)| matches!(sent, Sent::Call);
        let mut calls = self.sent[..self.answered].iter().filter(is_call).count();
        for index in self.answered..self.sent.len() {
            let (sent, partition) = self.sent[index];
            let reply = if index < self.fetched { self.replies[index - first] } else { self.reply(partition) };
            match sent {
                Sent::Lookup => {
                    if let Lookup::Hit(slot) = message::open_lookup_reply(reply) {
                        self.give_back(partition, slot);
                    }
                }
                Sent::Insert => {
                    if let Some(slot) = message::open_insert_reply(reply) {
                        let mut held = self.shared.hold(partition);
                        // SAFETY: the partition is held, and the element is this client's.
                        let cx = unsafe { self.shared.common.context(self.shared.common.now()) };
                        free_element(&cx, held.parts().1, slot);
                    }
                }
                Sent::Call => {
                    let answered = self.calls[calls].answer.take();
                    calls += 1;
                    if reply == message::STALLED {
                        self.shared.hold(partition).0.resume(self.client);
                    } else if let Some(slot) = answered.and_then(message::referenced) {
                        self.give_back(partition, slot);
                    }
                }
            }
        }
        self.answered = self.sent.len();
        self.fetched = self.sent.len();
        self.replies.clear();
        self.flush();
    }
}

/// Cache lines that have changed hands between a client and the partitions, and the words in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Lines of requests: lookups, inserts and calls, and references given back.
    pub request_lines: u64,
    /// Words in them.
    pub request_words: u64,
    /// Lines of replies.
    pub reply_lines: u64,
    /// Words in them.
    pub reply_words: u64,
}

impl Worker {
    /// What has gone to and fro so far.
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for (lane, post) in self.lanes.iter().zip(&self.shared.stations) {
            sum.request_lines += lane.requests.lines();
            sum.request_words += lane.requests.words();
            let station = post.station.lock();
            for seat in station.seats.iter().filter(|seat| seat.client == self.client) {
                sum.reply_lines += seat.replies.lines();
                sum.reply_words += seat.replies.words();
            }
        }
        sum
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Whether a store's value is copied by the client.
fn is_copied_by_client(mode: StoreMode, value_len: usize) -> bool {
    value_len >= CLIENT_COPY_LEN_MIN && matches!(mode, StoreMode::Set | StoreMode::Add | StoreMode::Replace)
}

/// A window of requests in flight; what is left of it when it is dropped is given up in order.
struct Window<'w> {
    worker: &'w mut Worker,
    now: Time,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.worker.settle();
    }
}

impl Window<'_> {
    /// Answers the first `sent` of `requests`, whose messages are under way.
    fn answer<S: Sink>(&mut self, requests: &[Request<'_>], hashes: &[u64], index: usize, sink: &mut S) {
        let mut calls = 0;
        while self.worker.answered < requests.len() {
            self.worker.fetch();
            for turn in 0..self.worker.replies.len() {
                let reply = self.worker.replies[turn];
                let number = self.worker.answered;
                let (sent, partition) = self.worker.sent[number];
                let (request, hash) = (&requests[number], hashes[number]);
                let index = index + number;
                // From here on what it holds is in hand, or given back.
                self.worker.answered += 1;
                match sent {
                    Sent::Lookup => self.answer_lookup(request, hash, partition, reply, index, sink),
                    Sent::Insert => self.finish_insert(request, hash, partition, reply, index, sink),
                    Sent::Call => {
                        calls += 1;
                        self.answer_call(calls - 1, request, hash, partition, index, sink);
                    }
                }
            }
        }
    }

    #[inline]
    fn answer_lookup<S: Sink>(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        reply: u64,
        index: usize,
        sink: &mut S,
    ) {
        match message::open_lookup_reply(reply) {
            Lookup::Hit(slot) => {
                let body = self.worker.shared.common.memory.body(slot);
                let key = request.key.as_bytes();
                // The whole key decides: that two have one hash key of 60 bits is possible (CPHASH, section 8.2).
                if body.key() != key {
                    self.worker.give_back(partition, slot);
                    return sink.answer(index, Answer::Miss);
                }
                let settings = &self.worker.shared.common.settings;
                let (value_len, cas) = (body.value_len(), settings.shown(body.version()));
                let class = settings.shape(key.len(), value_len).map_or(0, |shape| shape.class.number());
                let hit = Hit { flags: body.flags(), cas, value_len, class, ..Hit::default() };
                self.deliver(slot, hash, partition, &hit, index, sink);
            }
            Lookup::Miss(death) => {
                if let Some(death) = death {
                    sink.found_dead(index, death);
                }
                sink.answer(index, Answer::Miss);
            }
        }
    }

    /// Delivers the value of an element that has been given a reference.
    #[inline]
    fn deliver<S: Sink>(&mut self, slot: Slot, hash: u64, partition: usize, hit: &Hit, index: usize, sink: &mut S) {
        let shared = &self.worker.shared;
        let body = shared.common.memory.body(slot);
        let shape = shared.common.settings.shape(body.key_len(), hit.value_len);
        if shape.is_none_or(|shape| shape.in_pieces) {
            let pieces = shared.common.memory.first_piece(slot);
            let pin = Pin::new(Arc::clone(shared), slot, hash, pieces, hit.value_len);
            self.worker.in_hand = None;
            return sink.pinned(index, hit, Box::new(pin));
        }
        self.worker.in_hand = Some((slot, partition));
        let value = self.worker.shared.common.memory.body(slot).value();
        sink.reserve(index, hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
        self.worker.in_hand = None;
        self.worker.give_back(partition, slot);
        sink.commit(index, hit);
    }

    /// Fills the element that a store was given, and has it stored.
    fn finish_insert<S: Sink>(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        reply: u64,
        index: usize,
        sink: &mut S,
    ) {
        let filled = message::open_insert_reply(reply);
        if let (Some(slot), Operation::Store(store)) = (filled, &request.operation) {
            let parts = Parts::new([store.value, &[], &[]], 0);
            // SAFETY: the element was allocated for this key and value, and for this thread.
            unsafe { self.worker.shared.common.memory.fill(slot, request.key.as_bytes(), store.flags, parts) };
            // An insert ends its window, so that there is room for one call more, and nothing else is under way.
            debug_assert!(self.worker.calls.len() < self.worker.calls.capacity());
            self.worker.calls.push(Call::new(request, filled));
            let call = self.worker.calls.len() - 1;
            let lane = &mut self.worker.lanes[partition];
            lane.is_unshown = true;
            if lane.requests.put([self.worker.calls[call].word(), hash]).is_ok() {
                self.worker.flush();
                self.worker.reply(partition);
                return self.answer_call(call, request, hash, partition, index, sink);
            }
        }
        self.carry_out(filled, request, hash, partition, index, sink);
    }

    fn answer_call<S: Sink>(
        &mut self,
        call: usize,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        index: usize,
        sink: &mut S,
    ) {
        let answered = self.worker.calls[call].answer.take().expect("a call that was replied to has its answer");
        match answered {
            Ok((death, outcome)) => {
                if let Outcome::Hit(_, slot) = &outcome {
                    self.worker.in_hand = Some((*slot, partition));
                }
                if let Some(death) = death {
                    sink.found_dead(index, death);
                }
                self.answer_outcome(outcome, hash, partition, index, sink);
            }
            Err(shortage) => {
                // Memory may be with other partitions, of which one is held at a time.
                self.worker.shared.make_room(partition, self.now, shortage);
                self.carry_out(None, request, hash, partition, index, sink);
            }
        }
    }

    fn answer_outcome<S: Sink>(&mut self, outcome: Outcome, hash: u64, partition: usize, index: usize, sink: &mut S) {
        match outcome {
            Outcome::Hit(hit, slot) => self.deliver(slot, hash, partition, &hit, index, sink),
            Outcome::Metadata(hit) => sink.metadata(index, &hit),
            Outcome::Answer(answer, items) => sink.answer_change(index, answer, &items),
        }
    }

    /// Carries out one operation on the spot, while what was sent to the partition after it waits.
    fn carry_out<S: Sink>(
        &mut self,
        filled: Option<Slot>,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        index: usize,
        sink: &mut S,
    ) {
        let shared = Arc::clone(&self.worker.shared);
        let mut filled = filled;
        for attempt in 0.. {
            let mut held = shared.hold(partition);
            // SAFETY: the partition is held.
            let cx = unsafe { shared.common.context(self.now) };
            let (served, heap) = held.parts();
            let (death, outcome) = match served.execute(&cx, heap, hash, request, &mut filled) {
                Ok(done) => done,
                Err(shortage) => {
                    drop(held);
                    if attempt < ROOM_TRIES && shared.make_room(partition, self.now, shortage) {
                        continue;
                    }
                    held = shared.hold(partition);
                    let (served, heap) = held.parts();
                    (None, served.out_of_memory(&cx, heap, hash, request))
                }
            };
            if let Outcome::Hit(_, slot) = &outcome {
                refer(&cx, *slot);
                self.worker.in_hand = Some((*slot, partition));
            }
            held.0.resume(self.worker.client);
            drop(held);
            if let Some(death) = death {
                sink.found_dead(index, death);
            }
            return self.answer_outcome(outcome, hash, partition, index, sink);
        }
    }
}

impl Engine for Cphash {
    type Worker = Worker;

    fn worker(&self) -> Worker {
        Worker::new(&self.owner.shared)
    }

    fn execute<S: Sink>(&self, worker: &mut Worker, now: Time, requests: &[Request<'_>], sink: &mut S) {
        let shared = &self.owner.shared;
        shared.common.set_now(now);
        shared.flush_if_due(now);
        if requests.len() < MESSAGES_MIN {
            for (index, request) in requests.iter().enumerate() {
                let hash = shared.common.hash(request.key.as_bytes());
                match &request.operation {
                    Operation::Get(get) if is_plain(get) => direct::get(shared, now, hash, request, get, index, sink),
                    _ => direct::change(shared, now, hash, request, index, sink),
                }
            }
            return;
        }
        let mut done = 0;
        while done < requests.len() {
            let rest = &requests[done..];
            let rest = &rest[..rest.len().min(WINDOW_LEN)];
            let mut hashes = std::mem::take(&mut worker.hashes);
            hashes.clear();
            hashes.extend(rest.iter().map(|request| shared.common.hash(request.key.as_bytes())));
            let mut window = Window { worker, now };
            let sent = window.worker.send(rest, &hashes);
            window.answer(&rest[..sent], &hashes, done, sink);
            drop(window);
            worker.hashes = hashes;
            done += sent;
        }
    }

    fn flush_all(&self, at: Time, now: Time) {
        self.owner.shared.flush_all(at, now);
    }

    fn stats(&self) -> EngineStats {
        self.owner.shared.stats("cphash")
    }

    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        self.owner.shared.scan(cursor, limit, now, visit)
    }

    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        self.owner.shared.set_memory_limit(bytes)
    }

    fn reassign_page(&self, _: &mut Worker, now: Time, from: Option<u32>, to: u32) -> Result<(), ReassignError> {
        self.owner.shared.reassign_page(now, from, to)
    }

    fn lend(&self, _: &mut Worker, now: Time, bytes: usize) -> Option<Loan> {
        self.owner.shared.lend(now, bytes)
    }

    fn maintain(&self, _: &mut Worker, now: Time) -> bool {
        self.owner.shared.maintain(now)
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.owner.shared.log_evictions(log);
    }
}
